"""The receiving end of a link: a cell is judged first and used then; after the first fault nothing more is let through.

Cells that are damaged or missing are asked for again (`cells.py`), and are no fault; at a switch they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from dovetail.fpga.engines.stream import fifo_module
from dovetail.fpga.links import cells
from dovetail.fpga.links.cells import CellFormat
from dovetail.fpga.links.transmit import Outgoing
from dovetail.fpga.rtl.expressions import ONE, ZERO, Expr, Signal, all_of, any_bit, any_of, choose, compare, pack, select, signal
from dovetail.fpga.rtl.modules import Instance, Module

CAUSE_BITS = 3


class Cause(IntEnum):
    """Why a receiver stopped."""

    NONE = 0
    DAMAGED = 1
    """A checksum was wrong; at a switch alone."""
    OUT_OF_ORDER = 2
    """A sequence number was not the next, cells were lost or came twice; at a switch alone."""
    OVERFLOW = 3
    """A word came for which there was no room, for a circuit that does not exist, or in another's slot: credits are wrong."""
    SILENT = 4
    """No cell came for long, or at least none that was whole."""
    RESTARTED = 5
    """The far end greets again: it was reset."""
    FOREIGN = 6
    """The far end was made from another build."""


@dataclass(frozen=True, slots=True)
class ArrivingSlots:
    """Time slots as they come in at a switch: the circuit of each (the number behind the last: none), and where circuits go on.

    A circuit that goes on has the number of the passage it goes through, which takes its slots in their order.
    """

    owners: tuple[int, ...]
    through: Mapping[int, int]

    def places(self, passage: int) -> list[int]:
        """Slots of a passage, in their order."""
        return [s for s, owner in enumerate(self.owners) if self.through.get(owner) == passage]


def receiver_module(name: str, form: CellFormat, circuits: Sequence[Outgoing], identity: int,
                    slots: ArrivingSlots | None = None) -> tuple[Module, list[Module]]:
    """Cells in at `rx_…`, streams `ch0_…` out; returns the module and those it instantiates.

    Cells say whose circuit they are of; those of a switch say their slot, and circuits that go on leave at `passN_…`.
    """
    m = Module(name, (f"Cells of {form.bits} bits, {len(circuits)} circuits.",))
    rx_valid, rx_data = m.input("rx_valid"), m.input("rx_data", form.bits)
    m.output("rx_ready", ONE)
    good, bad, body = _judged(m, form, rx_valid, rx_data)
    at = cells.SEQUENCE_BITS + 2 * cells.CIRCUIT_BITS + cells.CREDIT_BITS
    data, greeting, heard, alarm = (m.wire(f"is_{flag}", body.bit(at + i)) for i, flag in enumerate(cells.FLAGS))
    circuit = m.wire("circuit", body.bits(cells.SEQUENCE_BITS, cells.CIRCUIT_BITS))
    failed, live = signal("failed"), signal("live")
    counts = m.wire("counts", all_of(good, ~greeting, ~failed))
    accept, spoilt = _counted(m, counts, body) if slots is not None else _asked_for(m, counts, body, data, bool(circuits))
    trusted = accept if slots is not None else counts  # also cells that are dropped tell how many words were taken: totals
    m.drive(live, any_of(live, trusted), reset=0)
    sender = m.wire("identity", body.bits(cells.HEADER_BITS, cells.IDENTITY_BITS))
    foreign = m.wire("foreign", all_of(good, greeting, compare("!=", sender, identity)))
    if slots is None:
        unknown = all_of(accept, data, compare(">=", circuit, len(circuits)))
    else:
        circuit, unknown = _slots(m, slots, accept, data, circuit, len(circuits))
    ending = {j: own for j, own in enumerate(circuits) if slots is None or j not in slots.through}
    parts, overflows = _buffers(m, ending, all_of(accept, data), circuit, body)
    if slots is not None:
        overflows += [_passes(m, n, circuits, slots, accept, data, body) for n in sorted(set(slots.through.values()))]
    silence = _silence(m, live, rx_valid if slots is not None else good)
    causes = {Cause.FOREIGN: foreign, Cause.RESTARTED: all_of(good, greeting, live), Cause.SILENT: silence,
              Cause.OVERFLOW: any_of(unknown, *overflows)}
    if slots is not None:
        causes |= {Cause.OUT_OF_ORDER: spoilt, Cause.DAMAGED: all_of(bad, live)}
    code: Expr = ZERO
    for cause, found in causes.items():
        code = select(found, cause, code)
    m.drive(failed, any_of(failed, *causes.values()), reset=0)
    m.register("cause", code, ~failed, 0, (0, (1 << CAUSE_BITS) - 1))
    m.output("spoilt", all_of(live, any_of(bad, spoilt)))
    # A damaged greeting, or one of another build, is not an answer; greetings are repeated until they are heard.
    hears = all_of(good, ~foreign)
    flags = {"heard": hears, "peer_heard": all_of(hears, heard), "alarmed": all_of(trusted, alarm)}
    for flag, seen in flags.items():
        sticky = signal(f"{flag}_kept")
        m.drive(sticky, any_of(sticky, seen), reset=0)
        m.output(flag, sticky)
    m.drive_outputs(credit_valid=trusted, credit_circuit=body.bits(cells.SEQUENCE_BITS + cells.CIRCUIT_BITS, cells.CIRCUIT_BITS),
                    credit_count=body.bits(cells.SEQUENCE_BITS + 2 * cells.CIRCUIT_BITS, cells.CREDIT_BITS), up=live,
                    fault=failed, fault_cause=signal("cause", 0, (1 << CAUSE_BITS) - 1))
    return m, parts


def _counted(m: Module, counts: Signal, body: Signal) -> tuple[Signal, Expr]:
    """Whether a cell is the next of all cells, and whether it is another."""
    expected = m.counter("expected", 1 << cells.SEQUENCE_BITS, counts)
    in_order = m.wire("in_order", compare("==", expected, body.bits(0, cells.SEQUENCE_BITS)))
    return m.wire("accept", all_of(counts, in_order)), all_of(counts, ~in_order)


def _asked_for(m: Module, counts: Signal, body: Signal, data: Signal, asks: bool) -> tuple[Signal, Expr]:
    """Whether a cell is of the epoch and has the number that is expected, and whether cells before it went missing.

    Missing cells turn the epoch; cells of the former one are not looked at. `asks` says whether anything can go missing.
    """
    expected, epoch = signal("expected", 0, (1 << cells.NUMBER_BITS) - 1), signal("epoch")
    of_epoch = m.wire("of_epoch", all_of(counts, compare("==", body.bit(cells.NUMBER_BITS), epoch)))
    in_order = m.wire("in_order", compare("==", expected, body.bits(0, cells.NUMBER_BITS)))
    accept, missing = m.wire("accept", all_of(of_epoch, in_order)), m.wire("missing", all_of(of_epoch, ~in_order))
    m.drive(expected, m.wire("next_expected", expected + 1).bits(0, cells.NUMBER_BITS), all_of(accept, data), 0)
    m.drive(epoch, ~epoch, missing, 0)
    if asks:
        m.drive_outputs(expected_number=expected, expected_epoch=epoch)
    return accept, missing


def _judged(m: Module, form: CellFormat, valid: Signal, data: Signal) -> tuple[Signal, Signal, Signal]:
    """Whether the cell of three clocks ago is whole, whether it is damaged, and its body."""
    came, word = m.register("came", valid, reset=0), m.register("word", data)
    masks = [(mask | 1 << form.body_bits + i, zero) for i, (mask, zero) in enumerate(cells.syndrome_masks(form))]
    wrong = cells.parities(m, "wrong", word, masks)
    syndrome = m.register("syndrome", pack([(bit, 1) for bit in wrong]))
    checked, body = m.register("checked", came, reset=0), m.register("checked_body", word.bits(0, form.body_bits))
    damaged = m.wire("damaged", any_bit(syndrome))
    return (m.register("good", all_of(checked, ~damaged), reset=0), m.register("bad", all_of(checked, damaged), reset=0),
            m.register("body", body))


def _slots(m: Module, slots: ArrivingSlots, accept: Signal, data: Signal, said: Signal, count: int) -> tuple[Signal, Expr]:
    """The circuit of the slot that a cell comes in, and whether it says another slot, or carries data where nobody has one."""
    at = m.counter("slot", len(slots.owners), accept)
    following = [slots.owners[(s + 1) % len(slots.owners)] for s in range(len(slots.owners))]
    owner = signal("owner", 0, count)
    m.drive(owner, choose(at, following), accept, slots.owners[0])
    return owner, all_of(accept, any_of(compare("!=", said, at), all_of(data, compare("==", owner, count))))


def _passes(m: Module, n: int, circuits: Sequence[Outgoing], slots: ArrivingSlots, accept: Signal, data: Signal,
            body: Signal) -> Expr:
    """What a passage is given: its slots of every frame, each with its place; returns whether the passage had no room."""
    own, at = slots.places(n), signal("slot", 0, len(slots.owners) - 1)
    places = {slot: place for place, slot in enumerate(own)}
    m.output(f"pass{n}_write", all_of(accept, choose(at, [int(s in places) for s in range(len(slots.owners))])))
    if len(own) > 1:
        m.output(f"pass{n}_place", choose(at, [places.get(s, 0) for s in range(len(slots.owners))]))
    m.output(f"pass{n}_flag", data)
    m.output(f"pass{n}_word", body.bits(cells.HEADER_BITS, passage_bits(n, circuits, slots.through)))
    return m.input(f"pass{n}_overflow")


def passage_bits(n: int, circuits: Sequence[Outgoing], through: Mapping[int, int]) -> int:
    """Bits of the widest circuit that goes through a passage."""
    return max(c.width for j, c in enumerate(circuits) if through.get(j) == n)


def _buffers(m: Module, circuits: Mapping[int, Outgoing], comes: Expr, circuit: Signal,
             body: Signal) -> tuple[list[Module], list[Expr]]:
    """One FIFO per circuit, its freed words counted for the sender; returns modules, and when a word finds no room."""
    parts, overflows = list[Module](), list[Expr]()
    for j, own in circuits.items():
        push = m.wire(f"push{j}", all_of(comes, compare("==", circuit, j)))
        room, valid, word = m.net(f"room{j}"), m.net(f"fifo{j}_valid"), m.net(f"fifo{j}_data", own.width)
        ready = m.input(f"ch{j}_ready")
        fifo = fifo_module(f"{m.name}_fifo{j}", own.width, own.depth, report=True)
        parts.append(fifo)
        m.instances.append(Instance(fifo.name, f"fifo{j}", (
            ("in_valid", push), ("in_data", m.wire(f"word{j}", body.bits(cells.HEADER_BITS, own.width))), ("in_ready", room),
            ("out_valid", valid), ("out_ready", ready), ("out_data", word))))
        m.output(f"ch{j}_valid", valid)
        m.output(f"ch{j}_data", word)
        m.output(f"freed{j}", m.counter(f"freed_count{j}", 1 << cells.CREDIT_BITS, all_of(valid, ready)))
        overflows.append(all_of(push, ~room))
    return parts, overflows


def _silence(m: Module, live: Signal, valid: Signal) -> Expr:
    """Whether no cell came for too long."""
    quiet = signal("quiet", 0, cells.SILENCE_CLOCKS)
    long = m.wire("long_quiet", compare("==", quiet, cells.SILENCE_CLOCKS))
    m.drive(quiet, select(any_of(valid, ~live), 0, select(long, quiet, quiet + 1)), reset=0)
    return all_of(live, long)
