"""What enters and leaves a block: weights by bursts from memory, frames into the input buffer, results out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dovetail.fpga.engines.stream import reserved_fifo
from dovetail.fpga.reusable import outside
from dovetail.fpga.reusable.outside import ArrivingWord, Progress
from dovetail.fpga.reusable.storage import Beat, Table, count_up, read_entries
from dovetail.fpga.rtl.expressions import ONE, ZERO, Expr, Signal, all_of, any_of, choose, compare, pack, select, signal
from dovetail.fpga.rtl.modules import Module
from dovetail.hardware.arrays import jobs
from dovetail.hardware.arrays.jobs import ArrayProgram, Bank, Job, TransferKind
from dovetail.hardware.arrays.layers import Config

Pair = tuple[Beat | None, Beat | None]

LEAVING_BEATS = 8
"""Beats of the output FIFO: enough for those on the way from the output buffer."""
ROWS = 2
"""Beside the numbers of the engines: what is filled are rows of a map."""


def stream_weights(module: Module, program: ArrayProgram, take: Signal) -> tuple[Signal, Signal, Module]:
    """Read the image again and again in bursts; returns whether a beat waits, the beat, and the FIFO it waits in.

    Ports: `memory_request_valid`, `_ready`, `_address` (in beats), `_beats`; `memory_valid`, `memory_data`. The block
    asks only for what it has room for, so it takes every beat that comes.
    """
    config = program.config
    depth, bursts = jobs.fifo_depth(config), -(-program.image_beats // jobs.BURST_BEATS)
    request_ready = module.input("memory_request_ready")
    spare, asks = signal("weights_spare", 0, depth), signal("weights_asks")
    accepted = module.wire("weights_accepted", all_of(asks, request_ready))
    rest = program.image_beats - (bursts - 1) * jobs.BURST_BEATS
    burst, last = module.counted("weights_burst", bursts, accepted)
    beats = module.wire("weights_beats", select(last, rest, jobs.BURST_BEATS), (0, 255))
    module.drive(spare, spare + take - select(accepted, beats, 0), reset=depth)
    # One request at a time; the next one is considered when the room it takes has been counted.
    settled = module.register("weights_settled", ~any_of(asks, accepted), reset=0)
    module.drive(asks, any_of(all_of(asks, ~request_ready),
                              all_of(~asks, settled, compare(">=", spare, jobs.BURST_BEATS))), reset=0)
    low = (jobs.BURST_BEATS - 1).bit_length()
    module.output("memory_request_valid", asks)
    address = pack([(ZERO, low), (burst, outside.ADDRESS_BITS - low)])
    module.output("memory_request_address", module.wire("weights_address", address))
    module.output("memory_request_beats", beats)
    return outside.beats_fifo(module, "weights", config, take)


@dataclass(frozen=True, slots=True)
class Fill:
    """What the filling of weights tells the engines, and the beats for their memories: weights and constants of each engine."""

    filled: tuple[Signal, Signal]
    """Whether weights of a job are there that has not begun."""
    weights: tuple[Beat | None, Beat | None]
    constants: tuple[Beat | None, Beat | None]
    modules: tuple[Module, ...]
    rows: ArrivingWord | None = None
    """Words of maps for the banks of stripes."""


def fill_weights(module: Module, program: ArrayProgram, loads: Sequence[Signal | None], dones: Sequence[Signal | None],
                 now: Progress, arrived: Signal) -> Fill:
    """Beats into the memories of the engines, job after job, each as soon as its engine has room; between them rows of maps."""
    take, finished = module.net("fill_takes"), module.net("fill_finished")
    if program.transfers:
        waiting, beat, *fifos = outside.request_transfers(module, program, take, now)
    else:
        waiting, beat, *fifos = stream_weights(module, program, take)
    entries = read_entries(module, "fill", _fill_table(program), finished)
    fields, opened = entries.fields, signal("fill_opened")
    rooms, filled, opens = _slots(module, fields["engine"], loads, dones, finished)
    is_load = compare("==", fields["engine"], ROWS) if outside.stores_of(program) else ZERO
    if is_load != ZERO:
        rooms.append(outside.may_move(module, "fill", fields, now, all_of(opens, is_load)))
    may = choose(fields["engine"], rooms)
    module.assigns.append((opens, all_of(entries.valid, ~opened, may)))
    module.drive(opened, any_of(opens, all_of(opened, ~finished)), reset=0)
    at_hand = module.wire("fill_at_hand", all_of(opened, waiting))
    rows: ArrivingWord | None = None
    row_takes: Expr = ZERO
    row_ends: Expr = ZERO
    if is_load != ZERO:
        step = module.wire("load_step", all_of(at_hand, is_load))
        rows, row_takes, row_ends = outside.place_rows(module, program, fields, opens, step, beat)
        module.assigns.append((arrived, module.register("load_done", row_ends, reset=0)))
    weighs = module.wire("fill_weighs", all_of(at_hand, ~is_load))
    module.assigns.append((take, any_of(weighs, row_takes)))
    weights, constants, done = _fill_engines(module, program, fields, loads, beat, weighs)
    module.assigns.append((finished, any_of(done, row_ends)))
    return Fill(filled, weights, constants, (*fifos, entries.fifo), rows)


def _fill_table(program: ArrayProgram) -> Table:
    """What the beats are for, in the order in which they come."""
    all_jobs = program.jobs
    if not program.transfers:
        return {"engine": [j.engine for j in all_jobs], "row_most": [j.steps - 1 for j in all_jobs],
                "beat_most": [j.weight_beats // j.steps - 1 for j in all_jobs],
                "word_most": [j.words * j.passes - 1 for j in all_jobs],
                "constant_most": [_constant_most(program, j) for j in all_jobs]}
    reads = [t for t in program.transfers if t.kind is not TransferKind.STORE]
    own = [all_jobs[t.job] if t.kind is TransferKind.WEIGHTS else None for t in reads]
    table: Table = {
        "engine": [ROWS if j is None else j.engine for j in own],
        "row_most": [t.rows - 1 if j is None else j.steps - 1 for t, j in zip(reads, own, strict=True)],
        "beat_most": [0 if j is None else j.weight_beats // j.steps - 1 for j in own],
        "word_most": [t.row_words - 1 if j is None else j.words * j.passes - 1 for t, j in zip(reads, own, strict=True)],
        "constant_most": [_constant_most(program, all_jobs[0] if j is None else j) for j in own]}
    if outside.stores_of(program):
        table |= {"bank": [t.bank if t.kind is TransferKind.LOAD else Bank.LOADED for t in reads],
                  "base": [t.base for t in reads],
                  **outside.gates([t._replace(stored=0) for t in reads], (TransferKind.LOAD,), (TransferKind.LOAD,))}
    return table


def _constant_most(program: ArrayProgram, job: Job) -> int:
    """The last beat of a word of a job's constants."""
    return jobs.constant_beats_per_word(program.config, job.engine) - 1


def _fill_engines(module: Module, program: ArrayProgram, fields: Mapping[str, Expr], loads: Sequence[Signal | None], beat: Signal,
                  weighs: Signal) -> tuple[Pair, Pair, Expr]:
    """Beats of weights and constants for either engine, and when those of a job are complete."""
    behind = signal("fill_constants")
    most = select(behind, fields["constant_most"], fields["beat_most"])
    beat_at, beat_last = count_up(module, "fill_beat", most, weighs)
    row_most = select(behind, fields["word_most"], fields["row_most"])
    row_at, row_last = count_up(module, "fill_row", row_most, all_of(weighs, beat_last))
    ends = module.wire("fill_part_ends", all_of(weighs, beat_last, row_last))
    module.drive(behind, ~behind, ends, 0)
    done = module.wire("fill_job_done", all_of(ends, behind))
    value = module.register("fill_value", beat)
    piece = module.register("fill_piece", beat_at) if isinstance(beat_at, Signal) else None
    weights: list[Beat | None] = []
    constants: list[Beat | None] = []
    engine = fields["engine"]
    for number, name in ((jobs.ARRAY, "array"), (jobs.DEPTHWISE, "depthwise")):
        if loads[number] is None:
            weights.append(None)
            constants.append(None)
            continue
        own = compare("==", engine, number)
        bases = _bases(module, name, program, number, all_of(done, own))
        for base, part, kept in zip(bases, (~behind, behind), (weights, constants), strict=True):
            what = "weights" if kept is weights else "constants"
            when = module.register(f"fill_{name}_{what}", all_of(weighs, own, part), reset=0)
            at = base if row_at == ZERO else module.wire(f"fill_{name}_{what}_at", base + row_at)
            kept.append(Beat(when, piece, module.register(f"fill_{name}_{what}_address", at), value))
    return (weights[0], weights[1]), (constants[0], constants[1]), done


def _slots(module: Module, engine: Expr, loads: Sequence[Signal | None], dones: Sequence[Signal | None],
           finished: Signal) -> tuple[list[Expr], tuple[Signal, Signal], Signal]:
    """Of each engine whether it has room for weights, and whether weights wait for it; and the net that opens a job's."""
    opens = module.net("fill_opens")
    rooms: list[Expr] = []
    filled: list[Signal] = []
    for number, name, slots in ((jobs.ARRAY, "array", jobs.ARRAY_SLOTS), (jobs.DEPTHWISE, "depthwise", jobs.DEPTHWISE_SLOTS)):
        load, done = loads[number], dones[number]
        if load is None or done is None:
            rooms.append(ZERO)
            filled.append(module.wire(f"{name}_filled", ZERO))
            continue
        own = compare("==", engine, number)
        room, full = signal(f"{name}_room", 0, slots), signal(f"{name}_full", 0, slots)
        module.drive(room, room + done - all_of(opens, own), reset=slots)
        module.drive(full, full + all_of(finished, own) - load, reset=0)
        rooms.append(compare("!=", room, 0))
        filled.append(module.wire(f"{name}_filled", compare("!=", full, 0)))
    return rooms, (filled[0], filled[1]), opens


def _bases(module: Module, name: str, program: ArrayProgram, engine: int, turn: Expr) -> tuple[Signal, Signal]:
    """First words of the slot that is filled, of weights and of constants."""
    if engine == jobs.ARRAY:
        slot = signal("fill_array_slot")
        module.drive(slot, ~slot, turn, 0)
        sizes = (program.weight_depth, program.constant_depth)
        found = [module.wire(f"fill_{name}_base_{k}", select(slot, size, 0)) for k, size in enumerate(sizes)]
        return found[0], found[1]
    place = signal("fill_depthwise_slot", 0, jobs.DEPTHWISE_SLOTS - 1)
    module.drive(place, place + 1, turn, 0)
    low = phase_bits(program)
    return module.wire("fill_depthwise_base", pack([*([(ZERO, low)] if low else []), (place, place.width)])), place


def phase_bits(program: ArrayProgram) -> int:
    """Bits of the place of a phase among a job's depthwise weights."""
    return (program.phases - 1).bit_length()


@dataclass(frozen=True, slots=True)
class Input:
    """The input buffer: whether a frame is there, which half it lies in, and what is written."""

    loaded: Signal
    parity: Signal | None
    writes: Signal
    address: Signal
    word: Signal


def load_frames(module: Module, words: int, end: tuple[int, bool], config: Config, released: Expr) -> Input:
    """Take frames of `words` beats into the halves of the input buffer in turn, while one is free.

    `end` are the bits of a value that enters, and whether it is signed; it is stored in those of a map's.
    """
    buffers = config.input_buffers
    valid, taken = module.input("in0_valid"), module.input("in0_data", config.inputs * end[0])
    data = _widened(module, taken, end, config)
    frames = signal("input_frames", 0, buffers)
    ready = module.wire("input_ready", compare("!=", frames, buffers))
    module.output("in0_ready", ready)
    take = module.wire("input_takes", all_of(valid, ready))
    at, last = module.rounds("input_at", words, take) if words > 1 else (None, ONE)
    complete = module.wire("input_complete", all_of(take, last))
    module.drive(frames, frames + complete - released, reset=0)
    base: Expr = ZERO
    parity = None
    if buffers == 2:
        half, parity = signal("input_half"), signal("input_parity")
        module.drive(half, ~half, complete, 0)
        module.drive(parity, ~parity, released, 0)
        base = select(half, words, 0)
    place = base + at if at is not None else base
    address = module.register("input_address", place, bounds=(0, max(1, buffers * words - 1)))
    loaded = module.wire("input_loaded", compare("!=", frames, 0))
    return Input(loaded, parity, module.register("input_writes", take, reset=0), address, module.register("input_word", data))


def _widened(module: Module, taken: Signal, end: tuple[int, bool], config: Config) -> Signal:
    """A word of values in the bits that maps have."""
    size, signed = end
    more = config.value_bits - size
    if not more:
        return taken
    fields: list[tuple[Expr, int]] = []
    for channel in range(config.inputs):
        sign: Expr = taken.bit(channel * size + size - 1) if signed else ZERO
        fields += [(taken.bits(channel * size, size), size), *[(sign, 1)] * more]
    return module.wire("input_widened", pack(fields))


def leave_frames(module: Module, words: int, value_bits: int, config: Config, finished: Expr,
                 read: Signal) -> tuple[Signal, Signal, Module]:
    """Send the words of the output buffer, once complete, in order, with so many bits of every value.

    Returns whether it still leaves, where it is read, and the FIFO behind it.
    """
    width = config.inputs * value_bits
    streaming, spare = signal("output_streaming"), signal("output_spare", 0, LEAVING_BEATS)
    issues = module.wire("output_issues", all_of(streaming, compare("!=", spare, 0)))
    at, last = module.rounds("output_at", words, issues) if words > 1 else (module.wire("output_at", ZERO, (0, 1)), ONE)
    over = module.wire("output_over", all_of(issues, last))
    module.drive(streaming, any_of(finished, all_of(streaming, ~over)), reset=0)
    arriving = module.register("output_arriving", issues, reset=0)
    arrived = module.register("output_arrived", arriving, reset=0)
    held = module.register("output_held", read)
    if value_bits < config.value_bits:
        held = module.wire("output_narrow", pack([(held.bits(c * config.value_bits, value_bits), value_bits)
                                                  for c in range(config.inputs)]))
    ready = module.input("out_ready")
    valid, data = module.net("output_valid"), module.net("output_data", width)
    module.drive(spare, spare + all_of(valid, ready) - issues, reset=LEAVING_BEATS)
    fifo = reserved_fifo(module, "output_fifo", LEAVING_BEATS, (arrived, held), (valid, ready, data))
    module.output("out_valid", valid)
    module.output("out_data", data)
    return streaming, at, fifo
