"""The array: nested counters over pixels, taps and words of a filter block, lanes, and the words that their sums leave in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from dovetail.fpga.engines.stream import Pipeline, Staged
from dovetail.fpga.reusable.numbers import BlockNumbers
from dovetail.fpga.reusable.storage import Entries, Table, count_up, kept_entry, read_entries
from dovetail.fpga.rtl.expressions import ONE, ZERO, Const, Expr, Signal, all_of, any_of, compare, pack, select, signal
from dovetail.fpga.rtl.modules import Module
from dovetail.hardware.arrays.jobs import ARRAY, ARRAY_SLOTS, ArrayProgram, Bank, Job
from dovetail.hardware.arrays.layers import ArrayLayer

CODED_PLANES = 4
"""Planes of a code's pattern, at the most."""


@dataclass(frozen=True, slots=True)
class ArrayIssue:
    """What the array issues in a clock, all of stage 0: where it reads, whether it works, and what that leads to."""

    active: Signal
    entries: Entries
    address: Signal
    bank: Expr
    works: Signal
    starts: Signal
    ends: Signal
    weight: Signal
    signed: Expr
    inside: Expr
    """Whether the tap lies in the map and not in its padding."""
    words: Expr
    slot: Signal
    round: Expr
    """Which planes of the input are worked on."""
    opens: Expr
    """Whether this is the first time that the pixel is worked on."""
    closes: Expr
    """Whether this is the last time."""
    fields: Mapping[str, Expr]
    """Those of the job at work."""


def own_jobs(program: ArrayProgram, engine: int) -> list[Job]:
    return [job for job in program.jobs if job.engine == engine]


def common_table(jobs: Sequence[Job]) -> Table:
    """What every job waits for, and whether it is its engine's last of a frame."""
    return {"needs_array": [j.needs[0] for j in jobs], "needs_depthwise": [j.needs[1] for j in jobs],
            "needs_loads": [j.loads for j in jobs], "needs_bursts": [j.stores for j in jobs],
            "needs_input": [int(j.needs_input) for j in jobs], "needs_output": [int(j.needs_output) for j in jobs],
            "ends_frame": [int(j is jobs[-1]) for j in jobs]}


def array_table(program: ArrayProgram, numbers: BlockNumbers, banks: Sequence[int], address_bits: int) -> Table:
    """The array's entries: bounds of its loops and what each step of a loop adds to address, row and column."""
    jobs = own_jobs(program, ARRAY)
    table = common_table(jobs)
    rows = [_loops(j.part, j, 1 << address_bits) for j in jobs]
    table.update({key: [row[key] for row in rows] for key in rows[0]})
    table["bank"] = [banks.index(j.read.bank) for j in jobs]
    table["from_input"] = [int(j.read.bank == Bank.INPUT) for j in jobs]
    table["words"] = [j.words for j in jobs]
    table["signed"] = [int(numbers.layers[j.layer].signed) for j in jobs]
    forms = [numbers.layers[j.layer].planes for j in jobs]
    table["signs"] = [int(form is not None and form.signs) for form in forms]
    return {**table, **pattern_columns([() if form is None else form.patterns for form in forms])}


def pattern_columns(patterns: Sequence[tuple[int, ...]]) -> Table:
    """Which codes have a plane's bit set; nothing where codes are their own patterns everywhere."""
    if not any(patterns):
        return {}
    found = {f"pattern_{j}": [sum((p >> j & 1) << code for code, p in enumerate(own)) for own in patterns]
             for j in range(CODED_PLANES)}
    return {**found, "patterned": [int(bool(own)) for own in patterns]}


def _loops(layer: ArrayLayer, job: Job, modulus: int) -> dict[str, int]:
    (high, wide), (down, right), (top, left, _, _) = layer.window.kernel, layer.window.stride, layer.window.pads
    (row_step, column_step), pixel, row = layer.window.dilation, job.read.stride, job.read.stride * layer.reads.width
    back = job.read_words - 1  # each loop undoes what the loops inside it added
    columns_back, rows_back = (wide - 1) * column_step, (high - 1) * row_step
    pixel_back = columns_back * pixel + rows_back * row + back
    masked = any(layer.window.pads)
    return {
        "base": (job.read.base - top * row - left * pixel) % modulus,
        "word_most": back, "column_most": wide - 1, "row_most": high - 1,
        "across_most": layer.writes.width - 1, "down_most": layer.writes.height - 1,
        "column_jump": (column_step * pixel - back) % modulus,
        "row_jump": (row_step * row - columns_back * pixel - back) % modulus,
        "round_most": job.rounds - 1, "turn_most": job.turns - 1, "pass_jump": -pixel_back % modulus,
        "across_jump": (right * pixel - pixel_back) % modulus,
        "down_jump": (down * row - (layer.writes.width - 1) * right * pixel - pixel_back) % modulus,
        "idle": max(0, job.words - job.pass_steps),
        # without padding every tap is inside, wherever row and column point to
        "x": -left * masked, "y": -top * masked, "width": layer.reads.width, "height": layer.reads.height,
        "column_x": column_step * masked, "row_x": -columns_back * masked, "across_x": (right - columns_back) * masked,
        "pass_x": -columns_back * masked, "pass_y": -rows_back * masked,
        "down_x": (-(layer.writes.width - 1) * right - columns_back) * masked,
        "row_y": row_step * masked, "across_y": -rows_back * masked, "down_y": (down - rows_back) * masked,
    }


def array_front(module: Module, table: Table, load: Signal, ready: Expr, weight_depth: int, parity: Expr, frame_words: int,
                address_bits: int) -> ArrayIssue:
    """Counters of the array; `ready` is whether the entry at hand may start, `load` the net that says that it does."""
    active = signal("array_active")
    entries = read_entries(module, "array", table, load)
    head, now = entries.fields, kept_entry(module, "array", entries, load)
    spent: Expr = ZERO if now["idle"] == ZERO else signal("array_spent")
    works = module.wire("array_works", all_of(active, ~spent))
    _, word_last = count_up(module, "array_word", now["word_most"], works)
    _, column_last = count_up(module, "array_column", now["column_most"], all_of(works, word_last))
    _, row_last = count_up(module, "array_row", now["row_most"], all_of(works, word_last, column_last))
    ends = module.wire("array_ends", all_of(works, word_last, column_last, row_last))
    pass_done = module.wire("array_pass_done", _idled(module, now["idle"], ends, spent))
    round_at, round_last = count_up(module, "array_round", now["round_most"], pass_done)
    turn_at, turn_last = count_up(module, "array_turn", now["turn_most"], all_of(pass_done, round_last))
    pass_last = all_of(round_last, turn_last)
    pixel_done = module.wire("array_pixel_done", all_of(pass_done, pass_last))
    _, across_last = count_up(module, "array_across", now["across_most"], pixel_done)
    _, down_last = count_up(module, "array_down", now["down_most"], all_of(pixel_done, across_last))
    last = module.wire("array_last", all_of(pixel_done, across_last, down_last))
    armed = signal("array_armed")
    module.assigns.append((load, all_of(armed, any_of(~active, last))))
    module.drive(armed, all_of(entries.valid, ready, ~load), reset=0)
    module.drive(active, any_of(load, all_of(active, ~last)), reset=0)

    def jumped(kind: str) -> Expr:
        levels = [(across_last, "across"), (pass_last, "pass"), (row_last, "row"), (column_last, "column")]
        value = now[f"down_{kind}"]
        for over, level in levels:
            value = select(over, value, now.get(f"{level}_{kind}", ZERO))
        return select(word_last, value, ONE if kind == "jump" else ZERO)

    address = signal("array_address", 0, (1 << address_bits) - 1)
    offset = select(all_of(head["from_input"], parity), frame_words, 0)
    module.drive(address, select(load, head["base"] + offset, address + jumped("jump")), any_of(load, works))
    inside = _inside(module, table, head, now, load, works, jumped)
    slot = signal("array_slot")
    module.drive(slot, ~slot, load, 1)
    begins = module.wire("array_weight_begin", select(slot, weight_depth, 0))
    starts, weight = signal("array_starts"), signal("array_weight", 0, ARRAY_SLOTS * weight_depth - 1)
    module.drive(starts, any_of(load, ends, all_of(starts, ~works)), reset=1)
    restart = select(slot, 0, weight_depth)  # the slot turns when the next job is loaded
    following = weight + 1
    if round_last != ONE:  # all planes of the input meet the same planes of the weights
        turn = signal("array_turn_weight", 0, ARRAY_SLOTS * weight_depth - 1)
        module.drive(turn, select(load, restart, select(turn_last, begins, following)), any_of(load, all_of(ends, round_last)))
        following = select(all_of(ends, ~round_last), turn, following)
    module.drive(weight, select(load, restart, select(all_of(ends, pass_last), begins, following)), any_of(load, works))
    opens = all_of(compare("==", round_at, 0), compare("==", turn_at, 0))
    return ArrayIssue(active, entries, address, now["bank"], works, starts, ends, weight, now["signed"], inside, now["words"],
                      slot, round_at, opens, pass_last, now)


def _idled(module: Module, idle: Expr, ends: Signal, spent: Expr) -> Expr:
    """When a pixel is done: with its last work, or as many clocks later as it takes to write what it leads to."""
    if not isinstance(spent, Signal):
        return ends
    waits = module.wire("array_waits", all_of(ends, compare("!=", idle, 0)))
    left = signal("array_idle_left", 0, idle.hi)
    over = module.wire("array_idle_over", all_of(spent, compare("==", left, 1)))
    module.drive(left, select(waits, idle, left - 1), any_of(waits, spent))
    module.drive(spent, any_of(waits, all_of(spent, ~over)), reset=0)
    return any_of(all_of(ends, ~waits), over)


def _inside(module: Module, table: Table, head: Mapping[str, Expr], now: Mapping[str, Expr], load: Signal, works: Signal,
            jumped: Callable[[str], Expr]) -> Expr:
    """Whether the tap lies in the map: row and column follow the address."""
    if not any(table["x"]) and not any(table["y"]):
        return ONE
    bounds = []
    reach = max(*table["width"], *table["height"]) + 2 * max(map(abs, (*table["x"], *table["y"], *table["down_x"], 1)))
    for axis, size in (("x", "width"), ("y", "height")):
        at = signal(f"array_place_{axis}", -reach, reach)
        module.drive(at, select(load, head[axis], at + jumped(axis)), any_of(load, works))
        bounds += [compare(">=", at, 0), compare("<", at, now[size])]
    return module.wire("array_inside", all_of(*bounds))


def delayed(pipeline: Pipeline, value: Expr, stage: int, name: str) -> Signal | Const:
    """A value of stage 0 at a later stage."""
    if isinstance(value, Const):
        return value
    named = value if isinstance(value, Signal) else pipeline.module.wire(name, value)
    return pipeline.at(Staged(named, 0), stage)


def token(module: Module, name: str, value: Expr, stages: int) -> Signal:
    """A bit some clocks later, none of them set by a reset: what happens on its account must not happen by chance."""
    if stages == 0:
        return module.wire(name, value)
    flags = signal(f"{name}_flags", 0, (1 << stages) - 1)
    module.drive(flags, pack([(value, 1), *([(flags.bits(0, stages - 1), stages - 1)] if stages > 1 else [])]), reset=0)
    return module.wire(name, flags.bit(stages - 1))


@dataclass(frozen=True, slots=True)
class Sums:
    """Words of sums as they leave the lanes: the word, whether there is one, and where its constants lie."""

    word: Signal
    valid: Signal
    constant: Signal


def hold_words(module: Module, ends: Signal, sums: Sequence[Signal], words: int) -> Signal:
    """Keep the sums of all lanes when a pixel `ends`; the word that leaves, which the others follow clock by clock."""
    size = len(sums) // words
    fields = [[(s, s.width) for s in sums[k * size:(k + 1) * size]] for k in range(words)]
    width = sum(w for _, w in fields[0])
    held = [signal(f"array_held_{k}", 0, (1 << width) - 1) for k in range(words)]
    for k in range(words):
        module.drive(held[k], select(ends, pack(fields[k]), held[k + 1]) if k + 1 < words else pack(fields[k]),
                     ONE if k + 1 < words else ends)
    return held[0]


def leave_in_words(module: Module, pipeline: Pipeline, front: ArrayIssue, sums: Sequence[Signal], words: int, stage: int) -> Sums:
    """Take the sums of all lanes when a pixel ends, at `stage`, and hand them on word by word in the clocks that follow."""
    ends = token(module, "array_captures", front.ends, stage)
    count, slot = (delayed(pipeline, v, stage, f"array_{n}") for v, n in ((front.words, "count"), (front.slot, "slot_now")))
    word = hold_words(module, ends, sums, words)
    if words == 1:
        valid = module.register("array_leaves", ends, reset=0)
        constant = module.register("array_constant", slot)
        return Sums(word, valid, constant)
    left, constant = signal("array_leaving", 0, words), signal("array_constant", 0, ARRAY_SLOTS * words - 1)
    some = module.wire("array_leaves", compare("!=", left, 0))
    module.drive(left, select(ends, count, left - 1), any_of(ends, some), 0)
    module.drive(constant, select(ends, select(slot, words, 0), constant + 1))
    return Sums(word, some, constant)
