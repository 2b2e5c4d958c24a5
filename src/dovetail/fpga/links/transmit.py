"""The sending end of a link: every clock that the link allows, a cell leaves; time slots say whose payload it may carry.

Cells with data are kept until the far end has answered for them, and are sent again from where it asks (`cells.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dovetail.fpga.links.cells import (
    ANSWER,
    CHECK_BITS,
    CIRCUIT_BITS,
    CREDIT_BITS,
    MOST_KEPT,
    NUMBER_BITS,
    SEQUENCE_BITS,
    CellFormat,
    parities,
    syndrome_masks,
)
from dovetail.fpga.rtl.expressions import ONE, ZERO, Expr, Signal, all_of, any_of, choose, compare, const, pack, select, signal
from dovetail.fpga.rtl.modules import Memory, Module


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A circuit that leaves over a link: the bits of its words, and how many of them the far end can hold."""

    width: int
    depth: int


def transmitter_module(name: str, form: CellFormat, circuits: Sequence[Outgoing], slots: Sequence[int], incoming: int,
                       identity: int) -> Module:
    """Streams `ch0_…` in, cells out at `tx_…`; `freedN` are what the receiver beside it has taken of its own circuits.

    `slots` name the circuit of each time slot, round and round; a slot whose circuit has nothing to send, or nowhere to send it
    to, stays empty, as all are while cells are repeated.
    """
    m = Module(name, (f"Cells of {form.bits} bits, {len(circuits)} circuits in {len(slots)} time slots.",))
    advance, step = begin_cells(m)
    owner = _owner(m, slots, step)
    depth = kept_cells(circuits)
    free = _answers(m, depth) if circuits else ONE
    fires, payloads = list[Signal](), list[Expr]()
    for k, circuit in enumerate(circuits):
        valid, data = m.input(f"ch{k}_valid"), m.input(f"ch{k}_data", circuit.width)
        taken = m.register(f"far_freed{k}", signal("credit_count", 0, (1 << CREDIT_BITS) - 1), is_told(k), 0)
        open_now = has_credit(m, k, circuit, taken)
        may = m.wire(f"may{k}", all_of(step, free, open_now, compare("==", owner, k)))
        m.output(f"ch{k}_ready", may)
        fires.append(m.wire(f"fire{k}", all_of(may, valid)))
        payloads.append(data)
    told = _credits(m, incoming, advance)
    if not circuits:
        finish_cells(m, form, (ZERO, owner, const(identity)), told, ZERO)
        return m
    sent = m.wire("sends", any_of(*fires))
    payload = m.wire("new_payload", choose(owner, payloads), (0, (1 << max(c.width for c in circuits)) - 1))
    again, circuit_again, payload_again = _repeats(m, depth, step, sent, owner, payload)
    chosen = select(again, payload_again, select(sent, payload, identity))
    number = pack([(signal("at", 0, (1 << NUMBER_BITS) - 1), NUMBER_BITS), (signal("epoch"), 1)])
    finish_cells(m, form, (any_of(sent, again), select(again, circuit_again, owner), chosen), told, number)
    return m


def kept_cells(circuits: Sequence[Outgoing]) -> int:
    """Cells that are kept until they are answered for: a round trip, and the turns that an answer waits for; a power of two."""
    return min(MOST_KEPT, 1 << (max((c.depth for c in circuits), default=0) + len(circuits)).bit_length())


def _answers(m: Module, depth: int) -> Signal:
    """Hear what the far end expects; whether a new cell may be sent.

    None may while cells are repeated (`at` is behind `head`), and while so many wait for an answer that no other can be kept.
    """
    of_circuit, most = signal("credit_circuit", 0, (1 << CIRCUIT_BITS) - 1), (1 << NUMBER_BITS) - 1
    told = m.wire("answered", all_of(signal("credit_valid"), compare("==", of_circuit.bits(1, CIRCUIT_BITS - 1), ANSWER >> 1)))
    asked = m.register("asked", signal("credit_count", 0, (1 << CREDIT_BITS) - 1), told, 0)
    wanted = m.register("wanted_epoch", of_circuit.bit(0), told, 0)
    head, epoch = m.counter("head", most + 1, signal("sends")), signal("epoch")
    goes_back = m.wire("goes_back", compare("!=", wanted, epoch))
    m.drive(epoch, wanted, reset=0)
    behind = m.wire("behind", compare("!=", signal("at", 0, most), head))
    waiting = m.wire("unanswered", head - asked).bits(0, NUMBER_BITS)
    return m.wire("new_cells", all_of(~behind, ~goes_back, compare("<", waiting, depth)))


def _repeats(m: Module, depth: int, step: Expr, sent: Signal, owner: Expr, payload: Signal) -> tuple[Signal, Expr, Expr]:
    """Keep what is sent; whether the next cell is one that is sent again, its circuit and its payload."""
    head, at, asked = (signal(name, 0, (1 << NUMBER_BITS) - 1) for name in ("head", "at", "asked"))
    goes_back = signal("goes_back")
    again = m.wire("again", all_of(step, signal("behind"), ~goes_back))
    moved = m.wire("moved", at + any_of(sent, again)).bits(0, NUMBER_BITS)
    following = m.wire("following", select(goes_back, asked, moved), (at.lo, at.hi))
    m.drive(at, following, reset=0)
    bits, width = (depth - 1).bit_length(), payload.width + CIRCUIT_BITS
    kept, cell = signal("kept_cell", 0, (1 << width) - 1), pack([(payload, payload.width), (owner, CIRCUIT_BITS)])
    m.memories.append(Memory("kept", width, depth, sent, head.bits(0, bits), cell, following.bits(0, bits), kept, True))
    return again, kept.bits(payload.width, CIRCUIT_BITS), kept.bits(0, payload.width)


def begin_cells(m: Module) -> tuple[Signal, Signal]:
    """Ports to the link and to the receiver beside it; when the next cell is made, and when it is one that counts."""
    m.input("tx_ready"), m.input("alarm"), m.input("heard"), m.input("peer_heard")
    m.input("credit_valid"), m.input("credit_circuit", CIRCUIT_BITS), m.input("credit_count", CREDIT_BITS)
    advance = m.wire("advance", any_of(~signal("full"), signal("tx_ready")))
    return advance, m.wire("step", all_of(advance, signal("peer_heard")))


def finish_cells(m: Module, form: CellFormat, sent: tuple[Expr, Expr, Expr], told: tuple[Expr, Expr],
                 number: Expr | None = None) -> None:
    """Cells of what is sent (whether anything is, its circuit or slot, payload) and of a credit (whose, how many).

    Without a number, all cells are counted.
    """
    full, advance, running = signal("full"), signal("advance"), signal("peer_heard")
    sequence = m.counter("number", 1 << SEQUENCE_BITS, signal("step")) if number is None else number
    data, owner, payload = sent
    body = m.register("body", pack([(sequence, SEQUENCE_BITS), (owner, CIRCUIT_BITS), (told[0], CIRCUIT_BITS),
                                    (told[1], CREDIT_BITS), (data, 1), (~running, 1), (signal("heard"), 1),
                                    (signal("alarm"), 1), (m.wire("payload", payload, (0, (1 << form.payload_bits) - 1)),
                                                           form.payload_bits)]), advance)
    made = m.register("made", ONE, advance, 0, (0, 1))
    m.drive(full, made, advance, 0)
    held = m.register("checked_body", body, advance)
    check = m.register("check", pack([(bit, 1) for bit in parities(m, "crc", body, syndrome_masks(form))]), advance)
    m.drive_outputs(tx_valid=full, tx_data=pack([(held, form.body_bits), (check, CHECK_BITS)]))


def _owner(m: Module, slots: Sequence[int], step: Expr) -> Expr:
    """The circuit of the present time slot; constant where there is one circuit, or none."""
    if len(set(slots)) < 2:
        return ZERO
    at = m.counter("slot", len(slots), step)
    # One slot ahead, so that choosing a payload starts at a register.
    owner = signal("owner", 0, max(slots))
    m.drive(owner, choose(at, [slots[(s + 1) % len(slots)] for s in range(len(slots))]), step, slots[0])
    return owner


def is_told(k: int) -> Expr:
    """Whether the receiver beside a transmitter has just heard of a circuit's credit."""
    return all_of(signal("credit_valid"), compare("==", signal("credit_circuit", 0, (1 << CIRCUIT_BITS) - 1), k))


def has_credit(m: Module, k: int, circuit: Outgoing, freed: Signal) -> Expr:
    """Whether the far end has room for one more word of a circuit."""
    sent = m.counter(f"sent{k}", 1 << CREDIT_BITS, signal(f"fire{k}"))
    under_way = m.wire(f"under_way{k}", sent - freed)
    return m.wire(f"open{k}", compare("<", under_way.bits(0, CREDIT_BITS), circuit.depth))


def _credits(m: Module, incoming: int, advance: Expr) -> tuple[Expr, Expr]:
    """The circuit whose credit the next cell carries, in turn, and that credit; the last turn is the answer's."""
    if not incoming:
        return ZERO, ZERO
    freed = [m.input(f"freed{j}", CREDIT_BITS) for j in range(incoming)]
    answer = pack([(m.input("expected_epoch"), 1), (const(ANSWER >> 1), CIRCUIT_BITS - 1)])
    which = m.counter("credit_turn", incoming + 1, advance)
    return select(compare("==", which, incoming), answer, which), choose(which, [*freed, m.input("expected_number", NUMBER_BITS)])
