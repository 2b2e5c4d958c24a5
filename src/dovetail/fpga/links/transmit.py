"""The sending end of a link: every clock that the link allows, a cell leaves; time slots say whose payload it may carry."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dovetail.fpga.links.cells import CHECK_BITS, CIRCUIT_BITS, CREDIT_BITS, SEQUENCE_BITS, CellFormat, parities, syndrome_masks
from dovetail.fpga.rtl.expressions import ONE, ZERO, Expr, Signal, all_of, any_of, choose, compare, const, pack, select, signal
from dovetail.fpga.rtl.modules import Module


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
    advance, step = begin_cells(m)
    owner = _owner(m, slots, step)
    fires, payloads = list[Signal](), list[Expr]()
    for k, circuit in enumerate(circuits):
        valid, data = m.input(f"ch{k}_valid"), m.input(f"ch{k}_data", circuit.width)
        taken = m.register(f"far_freed{k}", signal("credit_count", 0, (1 << CREDIT_BITS) - 1), is_told(k), 0)
        open_now = has_credit(m, k, circuit, taken)
        may = m.wire(f"may{k}", all_of(step, open_now, compare("==", owner, k)))
        m.output(f"ch{k}_ready", may)
        fires.append(m.wire(f"fire{k}", all_of(may, valid)))
        payloads.append(data)
    sent = m.wire("sends", any_of(*fires))
    chosen = select(sent, choose(owner, payloads), identity) if payloads else const(identity)
    finish_cells(m, form, (sent, owner, chosen), _credits(m, incoming, advance))
    return m


def begin_cells(m: Module) -> tuple[Signal, Signal]:
    """Ports to the link and to the receiver beside it; when the next cell is made, and when it is one that counts."""
    m.input("tx_ready"), m.input("alarm"), m.input("heard"), m.input("peer_heard")
    m.input("credit_valid"), m.input("credit_circuit", CIRCUIT_BITS), m.input("credit_count", CREDIT_BITS)
    advance = m.wire("advance", any_of(~signal("full"), signal("tx_ready")))
    return advance, m.wire("step", all_of(advance, signal("peer_heard")))


def finish_cells(m: Module, form: CellFormat, sent: tuple[Expr, Expr, Expr], told: tuple[Expr, Expr]) -> None:
    """Cells of what is sent (whether anything is, its circuit or slot, payload) and of a credit (whose, how many)."""
    full, advance, running = signal("full"), signal("advance"), signal("peer_heard")
    sequence = m.counter("number", 1 << SEQUENCE_BITS, signal("step"))
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
    """The circuit whose credit the next cell carries, in turn, and that credit."""
    freed = [m.input(f"freed{j}", CREDIT_BITS) for j in range(incoming)]
    which = m.counter("credit_turn", incoming, advance) if incoming > 1 else ZERO
    return which, choose(which, freed or [ZERO])
