"""An array that counts bits: lanes that count pairs of set bits plane by plane, and what makes outputs of their counts.

Counts of a pair of planes run over the taps and words of a pixel, leave their lanes as sums of products do, and are multiplied
with the filter's factor of that pair. Where a layer has more planes than are counted at once, a pixel is worked on several times,
and what its counts come to adds up in the finishing modules until the last time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from dovetail.fpga.engines.coded_lane import counted_pairs
from dovetail.fpga.engines.lane import tree
from dovetail.fpga.engines.lq import BitCounters
from dovetail.fpga.engines.stream import Pipeline, Staged
from dovetail.fpga.reusable.array import CODED_PLANES, ArrayIssue, delayed, hold_words, own_jobs, token
from dovetail.fpga.reusable.feed import Fill
from dovetail.fpga.reusable.image import layer_fields, lift_options
from dovetail.fpga.reusable.lanes import Finisher, Lanes, lanes_in_module, layer_pins, settled
from dovetail.fpga.reusable.numbers import BlockNumbers, CountNumbers
from dovetail.fpga.reusable.storage import WideMemory, filled_memory
from dovetail.fpga.rtl.expressions import ONE, ZERO, Expr, Signal, all_of, any_of, choose, compare, const, pack, select, signal
from dovetail.fpga.rtl.modules import Instance, Module
from dovetail.hardware.arrays.jobs import ARRAY, ARRAY_SLOTS, FACTOR_BYTES, ArrayProgram, factor_bytes, final_words
from dovetail.hardware.arrays.layers import Config

WORD_STAGE = 2
"""Stage of a word out of its bank."""
OPERAND_STAGE = 3
"""Stage of the array's operands: extended words and weights."""
CONSTANT_STAGE = 2
"""Stage of a word's constants, behind the word itself."""


@dataclass(frozen=True, slots=True)
class WrittenValues:
    """Values of a word that is written, so many stages behind `valid`."""

    values: Sequence[Signal]
    valid: Signal
    stages: int


def count_words(m: Module, pipeline: Pipeline, program: ArrayProgram, numbers: BlockNumbers, front: ArrayIssue, word: Signal,
                fill: Fill, other_of: Callable[[Signal, Finisher], Signal]) -> tuple[WrittenValues, list[Module]]:
    """What the array writes, and its modules; `other_of` reads the other operand of additions."""
    config, jobs, counts, beats = program.config, own_jobs(program, ARRAY), numbers.counts, fill.weights[ARRAY]
    assert counts is not None
    assert beats is not None
    x = m.wire("array_operands", pack([(bit, 1) for bit in plane_bits(m, pipeline, config, front, word)]))
    weights = filled_memory(m, "array_weights", config.inputs * config.outputs * config.weight_planes,
                            ARRAY_SLOTS * program.weight_depth, beats, delayed(pipeline, front.weight, OPERAND_STAGE - 2, ""))
    counted, modules = place_counters(m, pipeline, config, counts.most, x, weights, front)
    leaving = leave_counts(m, pipeline, front, counted, config.block_words, program.constant_depth)
    adds = numbers.add_shift if any(j.residual is not None for j in jobs) else 0
    finisher = counts_finisher(f"{m.name}_array_finish", config, counts, lift_options(numbers), adds, max(j.passes for j in jobs),
                               config.block_words)
    kept = _constants(m, pipeline, program, numbers, fill, leaving, final_stage(finisher.enters))
    valid = m.wire("array_results", all_of(leaving.valid, leaving.closes))
    other = other_of(valid, finisher) if adds else None
    size, width = config.value_bits, counts.most.bit_length()
    pins = [*shared_pins(m, pipeline, finisher, leaving).items(),
            *layer_pins(pipeline, numbers, "array", finisher, kept.final, config.inputs * final_words(config) * 32,
                        final_stage(finisher.enters))]
    outputs = []
    for k in range(config.inputs):
        y = m.net(f"array_y_{k}", size)
        own = finishing_pins(m, pipeline, config, finisher, leaving, kept, k, width)
        if other is not None:
            own.append(("other", m.wire(f"array_other_{k}", other.bits(k * size, size))))
        m.instances.append(Instance(finisher.module.name, f"array_finish_{k}", (*own, *pins, ("y", y))))
        outputs.append(y)
    return WrittenValues(outputs, valid, CONSTANT_STAGE + finisher.stages), [*modules, finisher.module]


def _constants(m: Module, pipeline: Pipeline, program: ArrayProgram, numbers: BlockNumbers, fill: Fill, leaving: LeavingCounts,
               late: int) -> ConstantWords:
    """The memories of factors, read with the counts, and of what finished sums meet, read `late` stages behind them."""
    config, depth, beats = program.config, ARRAY_SLOTS * program.constant_depth, fill.constants[ARRAY]
    assert beats is not None
    shared = sum(n for _, _, n in layer_fields(numbers, numbers.layers[0]))
    size = config.inputs * config.pairs * FACTOR_BYTES * 8
    factors = filled_memory(m, "array_factors", size, depth, beats, leaving.constant, 0)
    final = filled_memory(m, "array_final", config.inputs * final_words(config) * 32 + shared, depth, beats,
                          delayed(pipeline, leaving.constant, late, ""), factor_bytes(config) // config.port_bytes)
    return ConstantWords(factors, final)


def plane_bits(module: Module, pipeline: Pipeline, config: Config, front: ArrayIssue, word: Signal) -> list[Signal]:
    """Bits of the planes at work of every channel of a word, a clock behind it; none is set in the padding."""
    fields, size, stage = front.fields, config.value_bits, WORD_STAGE
    most = front.round.hi + 1
    index = delayed(pipeline, front.round, stage, "array_round_now")
    inside = delayed(pipeline, front.inside, stage, "array_hit")
    patterned = {j: delayed(pipeline, fields[f"pattern_{j}"], stage, f"array_pattern_{j}_now")
                 for j in range(CODED_PLANES) if f"pattern_{j}" in fields}
    uses = delayed(pipeline, fields["patterned"], stage, "array_patterned_now") if patterned else ZERO
    found = []
    for channel in range(config.inputs):
        raw: list[Expr] = [word.bit(channel * size + k) for k in range(size)]
        if patterned:
            code = module.wire(f"array_code_{channel}", word.bits(channel * size, min(size, CODED_PLANES)))
            for j, table in patterned.items():
                if j < size:
                    named = table if isinstance(table, Signal) else module.wire(f"array_pattern_{channel}_{j}", table)
                    wide = module.wire(f"array_table_{channel}_{j}", named, (0, (1 << (1 << CODED_PLANES)) - 1))
                    looked = choose(code, [wide.bit(k) for k in range(1 << code.width)])
                    raw[j] = select(uses, looked, raw[j])
        raw += [ZERO] * (most * config.input_planes - len(raw))
        for j in range(config.input_planes):
            options = raw[j:most * config.input_planes:config.input_planes]
            found.append(module.register(f"array_bit_{channel}_{j}", all_of(inside, choose(index, options)), bounds=(0, 1)))
    return [found[c * config.input_planes + j] for j in range(config.input_planes) for c in range(config.inputs)]


def counting_lanes(name: str, lanes: int, inputs: int, planes: tuple[int, int], most: int) -> Lanes:
    """Ports: x (plane after plane), w (lane, plane, channel), starts, works, y0, y1... with counts of all pairs side by side."""
    m = Module(name, (f"{lanes} lanes that count {inputs} channels of {planes[0]} x {planes[1]} planes.",), shared=True)
    x, w = m.input("x", inputs * planes[1]), m.input("w", lanes * inputs * planes[0])
    starts, works = m.input("starts"), m.input("works")
    pipeline = Pipeline(m)
    counter = BitCounters(pipeline, "lane")
    for lane in range(lanes):
        fields: list[tuple[Expr, int]] = []
        for i in range(planes[0]):
            for j in range(planes[1]):
                pairs = [(x.bit(j * inputs + c), w.bit((lane * planes[0] + i) * inputs + c)) for c in range(inputs)]
                total = counted_pairs(counter, f"count_{lane}_{i}_{j}", pairs)
                running = signal(f"running_{lane}_{i}_{j}", 0, most)
                m.drive(running, select(starts, total.value, running + total.value), works)
                fields.append((running, running.width))
        m.output(f"y{lane}", m.wire(f"counts_{lane}", pack(fields)))
    return Lanes(m, lanes, total.stage, planes[0] * planes[1] * running.width)


@dataclass(frozen=True, slots=True)
class StagedCounts:
    """Counts of all lanes, and those of the input's set bits alone, of one stage."""

    lanes: tuple[Signal, ...]
    ones: Signal
    stage: int


def place_counters(module: Module, pipeline: Pipeline, config: Config, most: int, x: Signal, weights: WideMemory,
                   front: ArrayIssue) -> tuple[StagedCounts, list[Module]]:
    """The array's lanes, and one more that counts the input's bits whatever the weights are."""
    per, inputs, planes = lanes_in_module(config.outputs, config.inputs), config.inputs, config.weight_planes
    lanes = counting_lanes(f"{module.name}_array_lanes", per, inputs, (planes, config.input_planes), most)
    ones = counting_lanes(f"{module.name}_array_ones", 1, inputs, (1, config.input_planes), most)
    at = OPERAND_STAGE + lanes.sum_stage
    starts, works = (module.wire(f"array_{n}_now", delayed(pipeline, v, at, f"array_{n}_first"))
                     for v, n in ((front.starts, "starts"), (front.works, "works")))
    found: list[Signal] = []
    size = per * inputs * planes
    for number in range(config.outputs // per):
        w = weights.slice(module, f"array_w_{number}", number * size, size)
        made = [module.net(f"array_counts_{number * per + k}", lanes.sum_bits) for k in range(per)]
        module.instances.append(Instance(lanes.module.name, f"array_lanes_{number}", (
            ("x", x), ("w", w), ("starts", starts), ("works", works), *((f"y{k}", y) for k, y in enumerate(made)))))
        found += made
    alone, every = module.net("array_ones", ones.sum_bits), module.wire("array_every", const((1 << inputs) - 1))
    module.instances.append(Instance(ones.module.name, "array_ones_lane", (
        ("x", x), ("w", every), ("starts", starts), ("works", works), ("y0", alone))))
    return StagedCounts(tuple(found), alone, at + 1), [lanes.module, ones.module]


@dataclass(frozen=True, slots=True)
class LeavingCounts:
    """Words of counts as they leave: whether there is one, which of its block it is, where its constants lie, and its pass."""

    word: Signal
    ones: Signal
    valid: Signal
    index: Signal
    constant: Signal
    opens: Signal
    closes: Signal
    signs: Signal
    """Whether a cleared bit of a weight counts -1."""


def leave_counts(module: Module, pipeline: Pipeline, front: ArrayIssue, counted: StagedCounts, words: int,
                 depth: int) -> LeavingCounts:
    """Take the counts of all lanes when a pass ends and hand them on word by word; `depth` are a job's words of constants."""
    stage = counted.stage
    ends = token(module, "array_captures", front.ends, stage)
    count, slot, opens, closes, signs = (delayed(pipeline, v, stage, f"array_{n}") for v, n in (
        (front.words, "count"), (front.slot, "slot_now"), (front.opens, "opens_now"), (front.closes, "closes_now"),
        (front.fields["signs"], "signs_now")))
    word = hold_words(module, ends, counted.lanes, words)
    ones = module.register("array_ones_held", counted.ones, ends)
    left, index = signal("array_leaving", 0, words), signal("array_leaving_word", 0, max(1, words - 1))
    some = module.wire("array_leaves", compare("!=", left, 0))
    module.drive(left, select(ends, count, left - 1), any_of(ends, some), 0)
    module.drive(index, select(ends, 0, index + 1))
    constant = signal("array_constant", 0, ARRAY_SLOTS * depth - 1)
    first = all_of(ends, opens)
    module.drive(constant, select(first, select(slot, depth, 0), constant + 1), any_of(first, some), 0)
    flags = [module.register(f"array_{n}_held", v, ends, bounds=(0, 1))
             for v, n in ((opens, "opens"), (closes, "closes"), (signs, "signs"))]
    return LeavingCounts(word, ones, some, index, constant, flags[0], flags[1], flags[2])


def counts_finisher(name: str, config: Config, numbers: CountNumbers, lifts: tuple[Sequence[int], Sequence[int]], add_shift: int,
                    passes: int, words: int) -> Finisher:
    """A module that makes one filter's output of its counts.

    Ports: counts, ones, factors, signs; where a pixel has several passes `gathers`, `opens` and `index`; final words; the layer's
    fields; the other operand of an addition; y.
    """
    m = Module(name, ("From counts of bits to an output.",), shared=True)
    pipeline = Pipeline(m)
    enters = dict.fromkeys(("counts", "ones", "factors", "signs"), 0)
    total = _weighted(pipeline, config, numbers)
    if passes > 1:
        total = _gathered(pipeline, total, numbers.totals, words, enters)
    results: list[Staged] = []
    if numbers.steps is not None:
        results.append(_code(pipeline, config, numbers, total, enters))
    if numbers.rounding is not None:
        made, needs = settled(pipeline, total, numbers.rounding, lifts, add_shift, config.value_bits)
        enters |= needs
        results.append(made)
    last = max(r.stage for r in results)
    values = [pipeline.at(r, last) for r in results]
    y = Staged(values[0], last)
    if len(values) == 2:
        enters["codes"] = last
        y = pipeline.register("outcome", select(m.input("codes"), values[0], values[1]), last)
    value = y.value
    if not isinstance(value, Signal) or value.width < config.value_bits:
        value = m.wire("y_wide", value, (0, (1 << config.value_bits) - 1))
    m.output("y", m.wire("y_bits", value.bits(0, config.value_bits)))
    return Finisher(m, y.stage, enters)


def _weighted(pipeline: Pipeline, config: Config, numbers: CountNumbers) -> Staged:
    """Counts times factors; where bits of weights are signs, twice the counts less the input's set bits."""
    m, most, width = pipeline.module, numbers.most, numbers.most.bit_length()
    counts, ones = m.input("counts", config.pairs * width), m.input("ones", config.input_planes * width)
    factors, signs = m.input("factors", config.pairs * FACTOR_BYTES * 8), m.input("signs")
    terms = []
    for i in range(config.weight_planes):
        for j in range(config.input_planes):
            at = i * config.input_planes + j
            own = m.wire(f"count_{i}_{j}", counts.bits(at * width, width), (0, most))
            every = m.wire(f"ones_{i}_{j}", ones.bits(j * width, width), (0, most))
            both = select(signs, (own << 1) - every, own)
            value = pipeline.register(f"signed_{i}_{j}", both, 0, (-most, most))
            given = factors.field(at * FACTOR_BYTES * 8, *numbers.factors)
            factor = pipeline.at(Staged(m.wire(f"factor_{i}_{j}", given), 0), 1)
            made = pipeline.register(f"weighted_{i}_{j}", value.value * factor, 1)
            terms.append(pipeline.register(f"weighted_{i}_{j}_held", made.value, made.stage))  # retimed into the multiplier
    return tree(pipeline, terms, numbers.totals, "filter_")


def _gathered(pipeline: Pipeline, part: Staged, totals: tuple[int, int], words: int, enters: dict[str, int]) -> Staged:
    """The sum over all passes of a pixel so far, kept for every word of a block."""
    m = pipeline.module
    enters |= dict.fromkeys(("gathers", "opens", "index"), part.stage)
    gathers, opens = m.input("gathers"), m.input("opens")
    index = m.input("index", max(1, (words - 1).bit_length()))
    kept = [signal(f"gathered_{k}", *totals) for k in range(words)]
    before = choose(index, kept)
    total = m.wire("gathered", part.value + select(opens, 0, before), totals)
    for k, own in enumerate(kept):
        m.drive(own, total, all_of(gathers, compare("==", index, k) if words > 1 else ONE))
    return pipeline.register("gathered_now", total, part.stage, totals)


def _code(pipeline: Pipeline, config: Config, numbers: CountNumbers, total: Staged, enters: dict[str, int]) -> Staged:
    """How many thresholds a sum reaches."""
    assert numbers.steps is not None
    m = pipeline.module
    code: Expr = ZERO
    for k in range(config.thresholds):
        enters[f"step_{k}"] = total.stage
        given = m.input(f"step_{k}", 32)
        limit = m.wire(f"limit_{k}", given.field(0, *numbers.steps))
        holds = m.register(f"reaches_{k}", compare(">=", total.value, limit), bounds=(0, 1))
        code = select(holds, k + 1, code)
    return pipeline.register("code", code, total.stage + 1, (0, config.thresholds))


@dataclass(frozen=True, slots=True)
class ConstantWords:
    """Words of constants as they are read: factors with the counts, the rest when sums are complete."""

    factors: WideMemory
    final: WideMemory


def finishing_pins(module: Module, pipeline: Pipeline, config: Config, finisher: Finisher, leaving: LeavingCounts,
                   constants: ConstantWords, lane: int, width: int) -> list[tuple[str, Signal]]:
    """Ports of one filter's finisher that are its own."""
    size, pairs = config.pairs * width, config.pairs * FACTOR_BYTES * 8
    word = pipeline.signal_at(Staged(leaving.word, 0), CONSTANT_STAGE)
    found = [("counts", module.wire(f"array_counted_{lane}", word.bits(lane * size, size))),
             ("factors", constants.factors.slice(module, f"array_own_factors_{lane}", lane * pairs, pairs))]
    words = final_words(config)
    for port, place in (("bias", 0), ("multiplier", 1), *((f"step_{k}", k) for k in range(config.thresholds))):
        if port in finisher.enters:
            found.append((port, constants.final.slice(module, f"array_{port}_{lane}", (lane * words + place) * 32, 32)))
    return found


def shared_pins(module: Module, pipeline: Pipeline, finisher: Finisher, leaving: LeavingCounts) -> dict[str, Signal]:
    """Ports that all filters' finishers share, beside the layer's fields."""
    def late(value: Signal, stage: int) -> Signal:
        return pipeline.signal_at(Staged(value, 0), stage)

    pins = {"ones": late(leaving.ones, CONSTANT_STAGE), "signs": late(leaving.signs, CONSTANT_STAGE)}
    if "gathers" in finisher.enters:
        at = CONSTANT_STAGE + finisher.enters["gathers"]
        pins |= {"gathers": token(module, "array_gathers", leaving.valid, at), "opens": late(leaving.opens, at),
                 "index": late(leaving.index, at)}
    return pins


def final_stage(enters: Mapping[str, int]) -> int:
    """The stage at which a filter's final words are needed."""
    return enters["bias"] if "bias" in enters else enters["step_0"]
