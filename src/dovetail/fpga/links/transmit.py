"""The sending end of a link: every clock that the link allows, a cell leaves; time slots say whose payload it may carry."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dovetail.fpga.expressions import (
    ONE,
    ZERO,
    Expr,
    Signal,
    all_of,
    any_of,
    bits,
    choose,
    compare,
    const,
    negate,
    odd_of,
    pack,
    parity,
    select,
    signal,
    subtract,
)
from dovetail.fpga.hardware import Module
from dovetail.fpga.links.cells import (
    CHECK_BITS,
    CIRCUIT_BITS,
    CREDIT_BITS,
    SEQUENCE_BITS,
    CellFormat,
    syndrome_masks,
)

PART_BITS = 64


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A circuit that leaves over a link: the bits of its words, and how many of them the far end can hold."""

    width: int
    depth: int


def transmitter_module(name: str, form: CellFormat, circuits: Sequence[Outgoing], slots: Sequence[int], incoming: int,
                       identity: int) -> Module:
    """Streams `ch0_…` in, cells out at `tx_…`; `freedN` are what the receiver beside it has taken of its own circuits.

    `slots` name the circuit of each time slot, round and round; a slot whose circuit has nothing to send, or nowhere to send it
    to, stays empty.
    """
    m = Module(name, (f"Cells of {form.bits} bits, {len(circuits)} circuits in {len(slots)} time slots.",))
    tx_ready, alarm = m.input("tx_ready"), m.input("alarm")
    heard, running = m.input("heard"), m.input("peer_heard")
    credit_valid, credit_circuit, credit = m.input("credit_valid"), m.input("credit_circuit", CIRCUIT_BITS), m.input(
        "credit_count", CREDIT_BITS)
    full = signal("full")
    advance = m.wire("advance", any_of(negate(full), tx_ready))
    step = m.wire("step", all_of(advance, running))
    owner = _owner(m, slots, step)
    fires, payloads = list[Signal](), list[Expr]()
    for k, circuit in enumerate(circuits):
        valid, data = m.input(f"ch{k}_valid"), m.input(f"ch{k}_data", circuit.width)
        open_now = _has_credit(m, k, circuit, all_of(credit_valid, compare("==", credit_circuit, const(k))), credit)
        may = m.wire(f"may{k}", all_of(step, open_now, ONE if owner is None else compare("==", owner, const(k))))
        m.output(f"ch{k}_ready", may)
        fires.append(m.wire(f"fire{k}", all_of(may, valid)))
        payloads.append(data)
    sent = m.wire("sends", any_of(*fires))
    chosen: Expr = const(identity)
    if payloads:
        chosen = select(sent, payloads[0] if owner is None else choose(owner, payloads), const(identity))
    sequence = m.counter("number", 1 << SEQUENCE_BITS, step)
    which, freed = _credits(m, incoming, advance)
    body = m.register("body", pack([(sequence, SEQUENCE_BITS), (ZERO if owner is None else owner, CIRCUIT_BITS),
                                    (which, CIRCUIT_BITS), (freed, CREDIT_BITS), (sent, 1), (negate(running), 1), (heard, 1),
                                    (alarm, 1), (m.wire("payload", chosen, (0, (1 << form.payload_bits) - 1)),
                                                 form.payload_bits)]), advance)
    made = m.register("made", ONE, advance, 0, (0, 1))
    m.drive(full, made, advance, 0)
    held = m.register("checked_body", body, advance)
    check = m.register("check", pack([(bit, 1) for bit in parities(m, "crc", body, syndrome_masks(form))]), advance)
    m.output("tx_valid", full)
    m.output("tx_data", pack([(held, form.body_bits), (check, CHECK_BITS)]))
    return m


def parities(m: Module, name: str, word: Signal, masks: Sequence[tuple[int, int]]) -> list[Signal]:
    """Of every (mask, constant): the parity of the masked bits and the constant."""
    # By parts of 64 bits, because a simulator is fast up to that.
    parts = [(at, m.wire(f"{name}_part{at}", bits(word, at, min(PART_BITS, word.width - at))))
             for at in range(0, word.width, PART_BITS)]
    return [m.wire(f"{name}_bit{i}", odd_of(const(constant), *(parity(part, mask >> at & (1 << part.width) - 1)
                                                               for at, part in parts)))
            for i, (mask, constant) in enumerate(masks)]


def _owner(m: Module, slots: Sequence[int], step: Expr) -> Signal | None:
    """The circuit of the present time slot; None where there is one circuit, or none."""
    if len(set(slots)) < 2:
        return None
    at = m.counter("slot", len(slots), step)
    # One slot ahead, so that choosing a payload starts at a register.
    owner = signal("owner", 0, max(slots))
    m.drive(owner, choose(at, [const(slots[(s + 1) % len(slots)]) for s in range(len(slots))]), step, slots[0])
    return owner


def _has_credit(m: Module, k: int, circuit: Outgoing, told: Expr, credit: Signal) -> Expr:
    """Whether the far end has room for one more word of a circuit."""
    sent = m.counter(f"sent{k}", 1 << CREDIT_BITS, signal(f"fire{k}"))
    freed = m.register(f"far_freed{k}", credit, told, 0)
    under_way = m.wire(f"under_way{k}", subtract(sent, freed))
    return m.wire(f"open{k}", compare("<", bits(under_way, 0, CREDIT_BITS), const(circuit.depth)))


def _credits(m: Module, incoming: int, advance: Expr) -> tuple[Expr, Expr]:
    """The circuit whose credit the next cell carries, in turn, and that credit."""
    freed = [m.input(f"freed{j}", CREDIT_BITS) for j in range(incoming)]
    if not freed:
        return ZERO, ZERO
    if incoming == 1:
        return ZERO, freed[0]
    which = m.counter("credit_turn", incoming, advance)
    return which, choose(which, freed)
