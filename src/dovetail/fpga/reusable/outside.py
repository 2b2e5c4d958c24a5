"""Maps in external memory: requests of the memory port in their fixed order, rows on their way in, rows on their way out.

Ports beside those of weights: `memory_request_write` says that a request writes; then `memory_write_valid`, `_ready`, `_data`
carry its beats, and `memory_written` is set for a clock when a burst has been written and may be read again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dovetail.fpga.engines.stream import fifo_module, reserved_fifo
from dovetail.fpga.reusable.storage import count_up, read_entries
from dovetail.fpga.rtl.expressions import ZERO, Const, Expr, Signal, all_of, any_of, choose, compare, const, pack, select, signal
from dovetail.fpga.rtl.modules import Instance, Module
from dovetail.hardware.arrays.jobs import BURST_BEATS, ArrayProgram, ArrayTransfer, Bank, TransferKind, fifo_depth
from dovetail.hardware.arrays.layers import Config
from dovetail.hardware.arrays.stripes import beats_per_word, words_per_beat

ADDRESS_BITS = 32
LEAVING_BEATS = 64
"""Beats that wait for the memory to take them."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a frame is: jobs of each engine that are done, loads that arrived, bursts that were written; and its end."""

    counts: Sequence[Expr]
    loads: Expr
    bursts: Expr
    ended: Signal


def progress_of(module: Module, program: ArrayProgram, counts: Sequence[Expr], ended: Signal) -> tuple[Progress, Signal]:
    """Counters of a frame's transfers, and the net that tells of a load that arrived."""
    arrived = module.net("load_arrived")
    if not stores_of(program):
        module.assigns.append((arrived, ZERO))
        return Progress(counts, ZERO, ZERO, ended), arrived
    written = module.input("memory_written")
    loads = signal("loads_count", 0, sum(t.kind is TransferKind.LOAD for t in program.transfers))
    bursts = signal("bursts_count", 0, sum(t.bursts for t in stores_of(program)))
    module.drive(loads, select(ended, 0, loads + arrived), reset=0)
    module.drive(bursts, select(ended, 0, bursts + written), reset=0)
    return Progress(counts, loads, bursts, ended), arrived


def stores_of(program: ArrayProgram) -> list[ArrayTransfer]:
    """Transfers that write."""
    return [t for t in program.transfers if t.kind is TransferKind.STORE]


def may_move(module: Module, name: str, fields: Mapping[str, Expr], now: Progress, taken: Expr) -> Expr:
    """Whether an entry's rows may be moved: what it needs is done, and in this frame; `taken` is when it begins."""
    over = signal(f"{name}_over")
    module.drive(over, any_of(all_of(taken, fields["ends_frame"]), all_of(over, ~now.ended)), reset=0)
    known = ((now.counts[0], "needs_array"), (now.counts[1], "needs_depthwise"), (now.bursts, "stored"))
    return all_of(~over, ~now.ended, *(compare(">=", count, fields[key]) for count, key in known))


def gates(transfers: Sequence[ArrayTransfer], waiting: Sequence[TransferKind], for_jobs: Sequence[TransferKind]) -> dict[str,
                                                                                                                         list[int]]:
    """Columns of a table of transfers that `may_move` looks at: which kinds wait at all, and which of them for jobs."""
    waits = [t.kind in waiting for t in transfers]
    last = max((i for i, mine in enumerate(waits) if mine), default=-1)
    needs = [t.needs if t.kind in for_jobs else (0, 0) for t in transfers]
    return {"needs_array": [n[0] for n in needs], "needs_depthwise": [n[1] for n in needs],
            "stored": [t.stored for t in transfers], "ends_frame": [int(i == last) for i in range(len(waits))],
            "waits": [int(mine) for mine in waits]}


def request_transfers(module: Module, program: ArrayProgram, take: Signal, now: Progress) -> tuple[Signal, Signal, Module,
                                                                                                   Module]:
    """Ask for everything that is read and announce everything that is written, in order.

    Returns whether a beat that was read waits, the beat, the FIFO it waits in and that of the table's entries.
    """
    config = program.config
    depth = fifo_depth(config)
    runs = _runs(program.transfers)
    table = {"address": [t.address for t in runs], "beats": [t.beats for t in runs],
             "write": [int(t.kind is TransferKind.STORE) for t in runs],
             **gates(runs, (TransferKind.LOAD, TransferKind.STORE), (TransferKind.STORE,))}
    begins = module.net("request_begins")
    entries = read_entries(module, "request", table, begins)
    head, active = entries.fields, signal("request_active")
    free = may_move(module, "request", head, now, begins)
    module.assigns.append((begins, all_of(entries.valid, ~active, any_of(~head["waits"], free))))
    asks, ready = signal("request_asks"), module.input("memory_request_ready")
    accepted = module.wire("request_accepted", all_of(asks, ready))
    at, left = signal("request_at", 0, (1 << ADDRESS_BITS) - 1), signal("request_left", 0, max(table["beats"]))
    to_edge = module.wire("request_to_edge", const(BURST_BEATS) - at.bits(0, BURST_BEATS.bit_length() - 1))
    beats = module.register("request_beats", select(compare("<", left, to_edge), left, to_edge), bounds=(0, 255))
    writes = module.register("request_writes", head["write"], begins) if stores_of(program) else ZERO
    module.drive(at, select(begins, head["address"], at + beats), any_of(begins, accepted))
    module.drive(left, select(begins, head["beats"], left - beats), any_of(begins, accepted))
    ends = module.wire("request_ends", all_of(accepted, compare("==", left, beats)))
    module.drive(active, any_of(begins, all_of(active, ~ends)), reset=0)
    spare = signal("read_spare", 0, depth)
    module.drive(spare, spare + take - select(all_of(accepted, ~writes), beats, 0), reset=depth)
    # A request is considered when the beats of the one before have been counted and its own length is known.
    settled = module.register("request_settled", all_of(active, ~any_of(asks, accepted, ends)), reset=0)
    room = any_of(writes, compare(">=", spare, BURST_BEATS))
    module.drive(asks, any_of(all_of(asks, ~ready), all_of(~asks, active, settled, room)), reset=0)
    module.output("memory_request_valid", asks)
    module.output("memory_request_address", at)
    module.output("memory_request_beats", beats)
    if isinstance(writes, Signal):
        module.output("memory_request_write", writes)
    return (*beats_fifo(module, "read", config, take), entries.fifo)


def beats_fifo(module: Module, name: str, config: Config, take: Signal) -> tuple[Signal, Signal, Module]:
    """Beats that memory sends, until they are taken: whether one waits, it, and the FIFO's module.

    Every master that brings a part of a beat has a FIFO of its own, because none waits for the others.
    """
    width, lanes = config.port_bytes * 8, config.masters
    part, depth = width // lanes, fifo_depth(config)
    arrives, data = module.input("memory_valid", lanes), module.input("memory_data", width)
    if lanes == 1:
        valid, beat = module.net(f"{name}_waiting"), module.net(f"{name}_beat", width)
        return valid, beat, reserved_fifo(module, f"{name}_fifo", depth, (arrives, data), (valid, take, beat))
    fifo = fifo_module(f"{module.name}_{name}_fifo", part, depth, reserved=True)
    waiting, parts = list[Signal](), list[tuple[Signal, int]]()
    for lane in range(lanes):
        waiting.append(module.net(f"{name}_waiting_{lane}"))
        parts.append((module.net(f"{name}_part_{lane}", part), part))
        module.instances.append(Instance(fifo.name, f"{name}_fifo_{lane}", (
            ("in_valid", module.wire(f"{name}_arrives_{lane}", arrives.bit(lane))),
            ("in_data", module.wire(f"{name}_brings_{lane}", data.bits(lane * part, part))), ("out_valid", waiting[lane]),
            ("out_ready", take), ("out_data", parts[lane][0]))))
    return (module.wire(f"{name}_waiting", all_of(*waiting)), module.wire(f"{name}_beat", pack(parts), (0, (1 << width) - 1)),
            fifo)


def _runs(transfers: Sequence[ArrayTransfer]) -> list[ArrayTransfer]:
    """Transfers as they are asked for: weights that lie behind each other together."""
    found: list[ArrayTransfer] = []
    for transfer in transfers:
        last = found[-1] if found else None
        if last is not None and transfer.kind is last.kind is TransferKind.WEIGHTS \
                and last.address + last.beats == transfer.address:
            found[-1] = ArrayTransfer(TransferKind.WEIGHTS, last.address, last.beats + transfer.beats)
        else:
            found.append(transfer)
    return found


@dataclass(frozen=True, slots=True)
class ArrivingWord:
    """A word of a map on its way into a bank of stripes."""

    writes: Mapping[Bank, Expr]
    """By bank: whether it is meant for it."""
    address: Signal
    word: Signal


def place_rows(module: Module, program: ArrayProgram, fields: Mapping[str, Expr], opens: Expr, step: Expr,
               beat: Signal) -> tuple[ArrivingWord, Expr, Expr]:
    """Words out of beats; `step` says that a beat of rows is there. Returns words, when the beat is done, and when all are."""
    config = program.config
    per_word, per_beat, size = beats_per_word(config), words_per_beat(config), config.word_bits
    last = module.net("load_row_word_last")
    writes, takes, word = step, step, beat if per_word == per_beat == 1 else None
    if per_word > 1:
        piece, piece_last = module.rounds("load_piece", per_word, step)
        held = [module.register(f"load_held_{k}", beat, all_of(step, compare("==", piece, k)))
                for k in range(per_word - 1)]
        rest = size - (per_word - 1) * beat.width
        parts = [*((h, h.width) for h in held), (beat.bits(0, rest), rest)]
        writes, word = module.wire("load_writes", all_of(step, piece_last)), module.wire("load_assembled", pack(parts))
    elif per_beat > 1:
        index = signal("load_piece", 0, per_beat - 1)
        takes = module.wire("load_takes", all_of(step, any_of(compare("==", index, per_beat - 1), last)))
        module.drive(index, select(takes, 0, index + 1), step, 0)
        word = module.wire("load_chosen", choose(index, [beat.bits(k * size, size) for k in range(per_beat)]))
    elif beat.width > size:
        word = module.wire("load_cut", beat.bits(0, size))
    assert word is not None
    _, row_word_last = count_up(module, "load_word", fields["word_most"], writes)
    _, row_last = count_up(module, "load_row", fields["row_most"], all_of(writes, row_word_last))
    module.assigns.append((last, row_word_last))
    depth = max(program.depths[Bank.LOADED], program.depths[Bank.ADDED])
    at = signal("load_at", 0, (1 << max(2, depth.bit_length())) - 1)
    module.drive(at, select(opens, fields["base"], at + 1), any_of(opens, writes))
    banks = [b for b in (Bank.LOADED, Bank.ADDED) if program.depths[b]]
    when = {b: module.register(f"load_writes_{b}", all_of(writes, compare("==", fields["bank"], b)), reset=0) for b in banks}
    return (ArrivingWord(when, module.register("load_address", at), module.register("load_value", word)), takes,
            module.wire("load_ends", all_of(writes, row_word_last, row_last)))


def leave_rows(module: Module, program: ArrayProgram, now: Progress, read: Signal) -> tuple[Signal, tuple[Module, Module]]:
    """Send stripes out of their bank as beats, in the order of their transfers; returns where it is read, and modules."""
    config, width = program.config, program.config.port_bytes * 8
    stores = stores_of(program)
    table = {"base": [t.base for t in stores], "row_most": [t.rows - 1 for t in stores],
             "word_most": [t.row_words - 1 for t in stores], **gates(stores, (TransferKind.STORE,), (TransferKind.STORE,))}
    begins = module.net("store_begins")
    entries = read_entries(module, "store", table, begins)
    head, active, spare = entries.fields, signal("leaving_active"), signal("leaving_spare", 0, LEAVING_BEATS)
    module.assigns.append((begins, all_of(entries.valid, ~active, may_move(module, "store", head, now, begins))))
    kept = {key: head[key] if isinstance(head[key], Const) else module.register(f"store_now_{key}", head[key], begins)
            for key in ("row_most", "word_most")}
    issues = module.wire("store_issues", all_of(active, compare("!=", spare, 0)))
    words, piece, makes = _pieces(module, program, issues)
    _, word_last = count_up(module, "store_word", kept["word_most"], words)
    _, row_last = count_up(module, "store_row", kept["row_most"], all_of(words, word_last))
    flushes = module.wire("store_beats", issues if makes is None else all_of(issues, any_of(makes, word_last)))
    if makes is not None:
        assert piece is not None
        module.drive(piece, select(flushes, 0, piece + 1), issues, 0)
    ends = module.wire("store_ends", all_of(words, word_last, row_last))
    module.drive(active, any_of(begins, all_of(active, ~ends)), reset=0)
    at = signal("store_at", 0, (1 << max(2, max(program.depths).bit_length())) - 1)
    module.drive(at, select(begins, head["base"], at + 1), any_of(begins, words))
    fresh = module.register("leaving_read", flushes, reset=0)
    arrived = module.register("leaving_arrived", fresh, reset=0)
    held = module.register("leaving_word", read)
    late = None if piece is None else module.register("store_piece_held", module.register("store_piece_read", piece))
    beat = _beat(module, config.word_bits, width, held, late, makes is not None,
                 module.register("store_word_arrived", module.register("store_word_read", issues, reset=0), reset=0))
    ready, valid, data = module.input("memory_write_ready"), module.net("leaving_valid"), module.net("leaving_data", width)
    module.drive(spare, spare + all_of(valid, ready) - flushes, reset=LEAVING_BEATS)
    fifo = reserved_fifo(module, "write_fifo", LEAVING_BEATS, (arrived, beat), (valid, ready, data))
    module.output("memory_write_valid", valid)
    module.output("memory_write_data", data)
    return at, (entries.fifo, fifo)


def _pieces(module: Module, program: ArrayProgram, issues: Signal) -> tuple[Expr, Signal | None, Expr | None]:
    """When a word is done, the number of a beat in its word or of a word in its beat, and whether that word ends its beat."""
    per_word, per_beat = beats_per_word(program.config), words_per_beat(program.config)
    if per_word > 1:
        piece, last = module.rounds("store_piece", per_word, issues)
        return module.wire("store_word_done", all_of(issues, last)), piece, None
    if per_beat > 1:
        piece = signal("store_piece", 0, per_beat - 1)
        return issues, piece, compare("==", piece, per_beat - 1)
    return issues, None, None


def _beat(module: Module, size: int, width: int, held: Signal, piece: Signal | None, gathers: bool, arrives: Signal) -> Signal:
    """The beat that a word is, or a part of it, or that words before it began."""
    if piece is None:
        return module.wire("store_beat", held, (0, (1 << width) - 1))
    if not gathers:
        count = -(-size // width)
        parts = [held.bits(k * width, min(width, size - k * width)) for k in range(count)]
        return module.wire("store_beat", choose(piece, parts), (0, (1 << width) - 1))
    count = width // size
    fields: list[tuple[Expr, int]] = []
    for k in range(count):
        here = compare("==", piece, k)
        if k == count - 1:
            fields.append((held, size))
            continue
        part = module.register(f"store_part_{k}", held, all_of(arrives, here))
        fields.append((module.wire(f"store_field_{k}", select(here, held, part)), size))
    return module.wire("store_beat", pack(fields), (0, (1 << width) - 1))
