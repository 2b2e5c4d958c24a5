"""A board as a circuit switch with time slots, as FiC's are: every slot of a link belongs to one circuit, for good.

What comes in a slot leaves in the slot that follows it (`slots.follow`), over the link of its circuit's next hop: a **passage**
from one link to another stores a frame of slots and sends it with a frame of the other link. Nothing on the way asks whose a cell
is, waits for room or has a buffer of a circuit's own; a cell takes three frames at most. Room is asked for where a circuit
begins: credits come back from its end, passed on by the same boards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dovetail.fpga.links.cells import CIRCUIT_BITS, CREDIT_BITS, CellFormat
from dovetail.fpga.links.transmit import Outgoing, begin_cells, finish_cells, has_credit, is_told
from dovetail.fpga.rtl.expressions import ONE, ZERO, Expr, Signal, all_of, any_of, choose, compare, const, pack, select, signal
from dovetail.fpga.rtl.modules import Memory, Module

BANKS = 4
"""Frames that a passage holds: one is written and one read; a link brings no more in a clock than the next takes, so two wait
only where clocks of boards differ."""
NOBODY = (1 << CIRCUIT_BITS) - 1
"""Where a cell's credit is for no circuit: the one whose turn it is has not been told of yet."""


@dataclass(frozen=True, slots=True)
class LeavingSlots:
    """Time slots as they leave a switch: the circuit of each (the number behind the last: none), and which come from where.

    `through` has the passage of every circuit that only passes, `places` for every passage the place of each slot in a frame.
    """

    owners: tuple[int, ...]
    through: Mapping[int, int]
    places: Mapping[int, Mapping[int, int]]


def passage_module(name: str, width: int, places: int) -> Module:
    """Frames of `places` words from one link to another; frames without data are left out, those with data keep their order.

    `write` stores a word in its place, the last of a frame in the last; `step` moves to the next slot of the other link, whose
    place `next_place` is, and `ends` to its next frame.
    """
    m = Module(name, (f"{BANKS} frames of {places} words of {width} bits from one link to another.",))
    write, flag, word = m.input("write"), m.input("flag"), m.input("word", width)
    step, ends = m.input("step"), m.input("ends")
    place, next_place = (m.input(n, (places - 1).bit_length()) if places > 1 else ZERO for n in ("place", "next_place"))
    count, some, reading = signal("count", 0, BANKS), signal("some"), signal("reading")
    last = m.wire("last", all_of(write, compare("==", place, places - 1) if places > 1 else ONE))
    data_so_far = m.wire("data_so_far", any_of(some, all_of(write, flag)))
    m.drive(some, all_of(data_so_far, compare("==", last, 0)), write, 0)
    stored, freed = m.wire("stored", all_of(last, data_so_far)), m.wire("freed", all_of(ends, reading))
    m.drive(count, m.wire("next_count", count + stored - freed, (0, BANKS)), reset=0)
    m.drive(reading, compare(">", count, reading), ends, 0)
    bank_in, bank_out = m.counter("bank_in", BANKS, stored), m.counter("bank_out", BANKS, freed)
    ahead = m.wire("bank_ahead", select(freed, m.wire("bank_after", bank_out + 1).bits(0, bank_out.width), bank_out))
    read = signal("read_word", 0, (1 << width + 1) - 1)
    field = max(1, (places - 1).bit_length())
    depth = BANKS << field if places > 1 else BANKS
    fields = (lambda at, bank: pack([(at, field), (bank, bank_out.width)])) if places > 1 else (lambda at, bank: bank)
    m.memories.append(Memory("frames", width + 1, depth, write, fields(place, bank_in), pack([(word, width), (flag, 1)]),
                             fields(next_place, ahead), read, False, step))
    m.drive_outputs(valid=all_of(reading, read.bit(width)), data=read.bits(0, width),
                    overflow=all_of(write, compare("==", count, BANKS)))
    return m


def switch_transmitter(name: str, form: CellFormat, circuits: Sequence[Outgoing], slots: LeavingSlots, relayed: Sequence[bool],
                       identity: int) -> Module:
    """Streams `chK_…` of circuits that begin here and passages `passN_…` in, cells out at `tx_…`.

    `relayed` says of each circuit of the other direction whether its credit comes from a board behind this one (`toldJ`) and is
    not counted here. `relayK_…` are the credits of circuits that pass, for the link they came over.
    """
    frame = len(slots.owners)
    m = Module(name, (f"Cells of {form.bits} bits, {len(circuits)} circuits in frames of {frame} time slots.",))
    advance, step = begin_cells(m)
    at, last = m.rounds("slot", frame, step)
    begin = [k for k in range(len(circuits)) if k not in slots.through]
    passages = sorted(set(slots.through.values()))
    source = {**{k: n for n, k in enumerate(begin)}, **{k: len(begin) + passages.index(p) for k, p in slots.through.items()}}
    nobody = len(begin) + len(passages)
    following = [source.get(slots.owners[(s + 1) % frame], nobody) for s in range(frame)]
    turn = signal("turn", 0, nobody)
    m.drive(turn, choose(at, following), step, source.get(slots.owners[0], nobody))
    fires, payloads = list[Signal](), list[Expr]()
    for n, k in enumerate(begin):
        valid, data = m.input(f"ch{k}_valid"), m.input(f"ch{k}_data", circuits[k].width)
        told, freed = _far(m, k)
        may = m.wire(f"may{k}", all_of(step, told, has_credit(m, k, circuits[k], freed), compare("==", turn, n)))
        m.output(f"ch{k}_ready", may)
        fires.append(m.wire(f"fire{k}", all_of(may, valid)))
        payloads.append(data)
    for n, p in enumerate(passages, len(begin)):
        valid = m.input(f"pass{p}_valid")
        payloads.append(m.input(f"pass{p}_data", max(circuits[k].width for k in slots.through if slots.through[k] == p)))
        fires.append(m.wire(f"passes{p}", all_of(step, valid, compare("==", turn, n))))
        places = slots.places[p]
        if len(places) > 1:
            m.output(f"pass{p}_next_place", choose(at, [places.get((s + 1) % frame, 0) for s in range(frame)]))
    for k in sorted(slots.through):
        told, freed = _far(m, k)
        m.output(f"relay{k}_told", told)
        m.output(f"relay{k}_count", freed)
    m.drive_outputs(slot_step=step, slot_ends=all_of(step, last))
    sent = m.wire("sends", any_of(*fires))
    chosen = select(sent, choose(turn, [*payloads, identity]), identity) if payloads else const(identity)
    finish_cells(m, form, (sent, at, chosen), _told(m, relayed, advance))
    return m


def _far(m: Module, k: int) -> tuple[Signal, Signal]:
    """Whether the end of a circuit has ever told of its room, and what it has freed so far."""
    known, told = signal(f"far_told{k}"), is_told(k)
    m.drive(known, any_of(known, told), reset=0)
    return known, m.register(f"far_freed{k}", signal("credit_count", 0, (1 << CREDIT_BITS) - 1), told, 0)


def _told(m: Module, relayed: Sequence[bool], advance: Expr) -> tuple[Expr, Expr]:
    """The circuit of the other direction whose credit the next cell carries, in turn, and that credit."""
    if not relayed:
        return const(NOBODY), ZERO
    freed = [m.input(f"freed{j}", CREDIT_BITS) for j in range(len(relayed))]
    known = [m.input(f"told{j}") if passes else ONE for j, passes in enumerate(relayed)]
    turn = m.counter("credit_turn", len(relayed), advance) if len(relayed) > 1 else ZERO
    return select(choose(turn, known), turn, NOBODY), choose(turn, freed)
