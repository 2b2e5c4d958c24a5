"""The integers of a block's layers: weights as the arrays see them, biases, multipliers, bounds, and ranges proven from them.

A filter's sum becomes its output by one multiplication and one rounding: clamp(round((sum + bias) * multiplier / 2**shift)). The
shift is one for all filters of an engine; between power-of-two scales multipliers are powers of two. Averages over counts that
are no power of two are sums of 64 times the pixels, times a reciprocal, of whose product some bits are cut off: the cut makes
ties look like ties, and what multiplier and bias do so is checked for every sum there can be. Averages of an engine share cuts as
far as they can.

Where the array counts bits, every layer is a sum over planes of bits of its weights and of its input. Weights of codes are ±1
per bit, plain ones 0 or 1 with the powers of two of two's complement; inputs are 0 or 1 per bit, of the pattern that a code
stands for or of the number itself. What a pair of planes counts is multiplied with the filter's factor for that pair: a product
of bases, a power of two, or one times the other. So codes, bytes and residual sums are the same work, some of it more often.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dovetail.errors import UnsupportedError
from dovetail.fpga.engines.arithmetic import lowest_terms
from dovetail.hardware.arrays.jobs import ARRAY, DEPTHWISE, FACTOR_BYTES, ArrayProgram
from dovetail.hardware.arrays.layers import ArrayLayer, Config, operands, table_bytes, tables_of
from dovetail.ir import Coded, Graph, Scheme
from dovetail.numerics.fixed import divide_half_even, integer_bounds
from dovetail.numerics.requantize import requantizer

Ints = NDArray[np.int64]
MULTIPLIER_BITS = 32
BIAS_BITS = 32
MEAN_WEIGHT = 64
"""What every pixel of an average counts: a bias of one is then a 64th of a pixel."""
MOST_DROP = 40
LEAST = -256
"""What taps in the padding count where the largest is taken."""
MEAN_BIASES = (0, 1, 2, 4, 8)
NEVER = (1 << 31) - 1
"""A threshold that no sum reaches."""


@dataclass(frozen=True, slots=True)
class Added:
    """A residual addition: left shifts of the convolution's output and of the other operand, bounds of the sum."""

    own_lift: int
    other_lift: int
    other_signed: bool
    bounds: tuple[int, int]


@dataclass(frozen=True, slots=True)
class PlaneForm:
    """A layer as a sum over planes of bits of its weights and of its input.

    The sum is that of factors[f, i, j] times how many channels and taps have both bit i of the weight and bit j of the input set;
    with `signs` a cleared bit of the weight counts -1.
    """

    weights: Ints
    """(filters, channels of a group, rows, columns), of whose bits the planes are made."""
    factors: Ints
    signs: bool
    steps: Ints | None
    """Thresholds (filters, steps) that make codes of the sum; None where it is rounded."""
    patterns: tuple[int, ...] = ()
    """Which bits a code of the input stands for, where that is not its binary number."""

    def reach(self) -> Ints:
        """Of every filter, what no sum over some of its planes exceeds on either side of zero."""
        found: Ints = np.abs(self.factors).sum(axis=(1, 2)) * self.weights[0].size
        return found


@dataclass(frozen=True, slots=True)
class CountNumbers:
    """Ranges over all layers of an array that counts bits; None where no layer writes codes, or none is rounded."""

    most: int
    """Bits that are counted in a row."""
    factors: tuple[int, int]
    totals: tuple[int, int]
    steps: tuple[int, int] | None
    rounding: EngineNumbers | None


@dataclass(frozen=True, slots=True)
class Gate:
    """The other operand of a product: by how much it is shifted left, whether it is signed, and its range."""

    lift: int
    signed: bool
    ends: tuple[int, int]


@dataclass(frozen=True, slots=True)
class LayerNumbers:
    """A layer's integers; weights as (filters, channels of a group, rows, columns)."""

    weights: Ints
    bias: Ints
    multipliers: tuple[int, ...]
    bounds: tuple[int, int]
    cut: int
    """The cut of an average among those of its engine, counted from one; 0 without one."""
    signed: bool
    """Whether the input is signed."""
    added: Added | None
    planes: PlaneForm | None = None
    """Where bits are counted: what they are multiplied with, and what the sum meets."""
    gate: Gate | None = None
    """Of a product of maps: its multiplier is the other operand, shifted left."""
    table: int | None = None
    """The table that its output is looked up in, among those of its engine."""


class Cut(NamedTuple):
    """Bits of an average's product that are cut off, and by how many it is then shifted left."""

    drop: int
    lift: int


@dataclass(frozen=True, slots=True)
class EngineNumbers:
    """What all layers of an engine share: the rounding's shift, what averages cut off, ranges."""

    shift: int
    cuts: tuple[Cut, ...]
    sums: tuple[int, int]
    biases: tuple[int, int]
    multiplier: int
    """The largest one."""
    biased: tuple[int, int]
    scaled: tuple[int, int]


@dataclass(frozen=True, slots=True)
class BlockNumbers:
    """The integers of a block: layer by layer, engine by engine (None where an engine has no work), and of additions."""

    layers: tuple[LayerNumbers, ...]
    engines: tuple[EngineNumbers | None, EngineNumbers | None]
    add_shift: int
    """The rounding's shift of additions; 0 where there are none."""
    value_bits: int
    counts: CountNumbers | None
    """Of the array, where it counts bits."""
    ends: tuple[tuple[int, bool], tuple[int, bool]]
    """Bits of the values that enter and leave, and whether they are signed."""
    tables: tuple[tuple[bytes, ...], tuple[bytes, ...]] = ((), ())
    """By engine, what bytes are looked up as."""


@dataclass(frozen=True, slots=True)
class Raw:
    """A layer before its engine's shift is known: (odd multiplier, odd divisor, shift) per filter."""

    weights: Ints
    bias: Ints
    ratios: tuple[tuple[int, int, int], ...]
    bounds: tuple[int, int]
    ends: tuple[int, int]
    signed: bool
    other: Scheme | None = None
    """Of the other operand of a product."""


def block_numbers(graph: Graph, program: ArrayProgram) -> BlockNumbers:
    """The integers of a quantized graph's block; raises UnsupportedError where scales lie too far apart or do not fit."""
    layers, config = program.layers.layers, program.config
    engine_of = {job.layer: job.engine for job in program.jobs}
    adds, add_shift = additions(graph, layers)
    tables = tables_of(layers, config)
    forms = {n: plane_form(graph, layer, config) for n, layer in enumerate(layers) if config.counts and engine_of[n] == ARRAY}
    found: dict[int, LayerNumbers] = {}
    for n, form in forms.items():
        if form.steps is not None:
            none = np.zeros(0, dtype=np.int64)
            found[n] = LayerNumbers(form.weights, none, (), (0, form.steps.shape[1]), 0, False, None, form)
    engines: list[EngineNumbers | None] = []
    for engine in (ARRAY, DEPTHWISE):
        own = [n for n in range(len(layers)) if engine_of[n] == engine and n not in found]
        if not own:
            engines.append(None)
            continue
        raws = [raw_layer(graph, layers[n]) for n in own]
        shift, cuts, scaled = scaled_layers(raws, [layers[n].node for n in own])
        for n, raw, (multipliers, bias, cut) in zip(own, raws, scaled, strict=True):
            weights = raw.weights * (MEAN_WEIGHT if cut else 1)
            gate = None if raw.other is None else Gate(multipliers[0].bit_length() - 1, raw.other.signed,
                                                       (min(0, raw.other.lo), raw.other.hi))
            found[n] = LayerNumbers(weights, bias, multipliers, raw.bounds, cut, raw.signed, adds[n], forms.get(n), gate,
                                    None if (table := layers[n].table) is None else tables[engine].index(table))
        sums = [(-forms[n].reach(), forms[n].reach()) if n in forms else sum_range(found[n].weights, raw.ends)
                for n, raw in zip(own, raws, strict=True)]
        engines.append(engine_numbers([found[n] for n in own], sums, shift, cuts))
    array, depthwise = engines
    counts = _counts(program, list(forms.values()), array) if forms else None
    ends = [graph.scheme(tensor) for tensor in (program.layers.entry, program.layers.exit)]
    return BlockNumbers(tuple(found[n] for n in range(len(layers))), (None if forms else array, depthwise), add_shift,
                        config.value_bits, counts, ((ends[0].bits, ends[0].signed), (ends[1].bits, ends[1].signed)),
                        (_contents(graph, tables[ARRAY]), _contents(graph, tables[DEPTHWISE])))


def _contents(graph: Graph, tables: Sequence[str]) -> tuple[bytes, ...]:
    return tuple(table_bytes(graph, graph.node(name)) for name in tables)


def raw_layer(graph: Graph, layer: ArrayLayer) -> Raw:
    """A layer whose sum is rounded."""
    node = graph.node(layer.node)
    read, *others = operands(graph, node)
    source, target, filters = graph.scheme(read), graph.scheme(node.output), layer.writes.channels
    if node.op.layer:
        params = graph.params(node)
        weights = params[0].array.astype(np.int64).reshape(filters, layer.reads.channels // layer.groups, *layer.window.kernel)
        bias = params[2 if node.op.coded else 1].array.astype(np.int64)
    else:  # the largest tap is no sum of products
        weights = np.full((filters, 1, *layer.window.kernel), int(not layer.largest), dtype=np.int64)
        bias = np.zeros(filters, dtype=np.int64)
    ends = min(source.lo, 0), source.hi
    if node.op.table:  # the value itself is looked up
        return Raw(weights, bias, ((1, 1, 0),) * filters, ends, ends, source.signed)
    divisor = int(np.max(node.op.divisor(graph.input_shapes(node))))
    ratios = tuple(lowest_terms((m, divisor, s)) for m, s in requantizer(graph, node).per_channel(filters))
    bounds = integer_bounds(node.op.bounds, target)
    return Raw(weights, bias, ratios, bounds, ends, source.signed, graph.scheme(others[0]) if others else None)


def scaled_layers(raw: Sequence[Raw],
                  names: Sequence[str]) -> tuple[int, tuple[Cut, ...], list[tuple[tuple[int, ...], Ints, int]]]:
    """The shift, the cuts of averages, and per layer multipliers, biases and its cut, counted from one; 0 without one."""
    means = [_Mean(r, name) for r, name in zip(raw, names, strict=True) if r.ratios[0][1] > 1]
    cuts = list[tuple[int, int]]()
    solved = [mean.solved(cuts) for mean in means]
    shift = max([1, *(s for r in raw for _, odd, s in r.ratios if odd == 1), *(kept for kept, _ in cuts)])
    result: list[tuple[tuple[int, ...], Ints, int]] = []
    for r, name in zip(raw, names, strict=True):
        if r.ratios[0][1] > 1:
            multiplier, bias, cut = solved.pop(0)
            result.append(((multiplier,) * len(r.ratios), np.full(len(r.ratios), bias, dtype=np.int64), cut))
            continue
        multipliers = tuple(m << (shift - s) for m, _, s in r.ratios)
        if max(multipliers) >= 1 << MULTIPLIER_BITS:
            raise UnsupportedError(f"node {name}: its scales are too far from others' of the block for multipliers of "
                                   f"{MULTIPLIER_BITS} bits; leave it out of the block")
        result.append((multipliers, r.bias, 0))
    return shift, tuple(Cut(drop, shift - kept) for kept, drop in cuts), result


class _Mean:
    """An average whose count is no power of two: every sum there can be, and the output it must lead to."""

    def __init__(self, raw: Raw, name: str) -> None:
        self.name, count, (self.multiplier, self.odd, self.down) = name, int(raw.weights[0].size), raw.ratios[0]
        self.bounds = raw.bounds
        self.sums = np.arange(count * raw.ends[0], count * raw.ends[1] + 1, dtype=np.int64)
        rounded = divide_half_even(self.sums * self.multiplier << max(0, -self.down), self.odd << max(0, self.down))
        self.wanted = np.clip(rounded, *raw.bounds)

    def solved(self, cuts: list[tuple[int, int]]) -> tuple[int, int, int]:
        """Multiplier and bias with which every sum is averaged exactly, and the cut that it takes; a new one is appended."""
        least = (self.odd << max(0, self.down)).bit_length() + 2
        for kept, drop in (*cuts, *((least, drop) for drop in range(MOST_DROP + 1))):
            found = self._with_cut(kept, drop)
            if found is not None:
                if (kept, drop) not in cuts:
                    cuts.append((kept, drop))
                return *found, cuts.index((kept, drop)) + 1
        raise UnsupportedError(f"node {self.name}: no reciprocal averages exactly; leave it out of the block")

    def _with_cut(self, kept: int, drop: int) -> tuple[int, int] | None:
        """Multiplier and bias where `drop` bits of the product are cut off and `kept` bits are left behind the point."""
        exact = self.multiplier << (kept + drop + max(0, -self.down)), self.odd * MEAN_WEIGHT << max(0, self.down)
        most = max(abs(int(self.sums[0])), int(self.sums[-1])) * MEAN_WEIGHT
        for chosen in {exact[0] // exact[1], -(-exact[0] // exact[1])}:
            if chosen >= 1 << MULTIPLIER_BITS or chosen * most >= 1 << 62:
                return None
            for bias in MEAN_BIASES:
                ties = slice(None, None, self.odd << max(0, self.down - 1))  # the first to go wrong
                if all(self._exact(part, chosen, bias, kept, drop) for part in (ties, slice(None))):
                    return chosen, bias
        return None

    def _exact(self, part: slice, chosen: int, bias: int, kept: int, drop: int) -> bool:
        product = (self.sums[part] * MEAN_WEIGHT + bias) * chosen >> drop
        return np.array_equal(np.clip(divide_half_even(product, 1 << kept), *self.bounds), self.wanted[part])


def additions(graph: Graph, layers: Sequence[ArrayLayer]) -> tuple[list[Added | None], int]:
    """The residual addition of each layer, and the rounding's shift of all of them; 0 where there are none."""
    known = {layer.add: requantizer(graph, graph.node(layer.add)) for layer in layers if layer.add is not None}
    shift = max([1, *(how.shifts[0] for how in known.values())]) if known else 0
    found: list[Added | None] = []
    for layer in layers:
        if layer.add is None:
            found.append(None)
            continue
        node, how = graph.node(layer.add), known[layer.add]
        assert set(how.multipliers) == {1}
        own = node.inputs.index(graph.node(layer.node).output)
        lifts = [how.factors[i][0].bit_length() - 1 + shift - how.shifts[0] for i in (own, 1 - own)]
        other = graph.scheme(node.inputs[1 - own])
        found.append(Added(lifts[0], lifts[1], other.signed, integer_bounds(node.op.bounds, graph.scheme(node.output))))
    return found, shift


def sum_range(weights: Ints, ends: tuple[int, int]) -> tuple[Ints, Ints]:
    """Of every filter, the least and the largest sum of inputs between `ends`."""
    flat = weights.reshape(len(weights), -1)
    above, below = np.maximum(flat, 0).sum(axis=1), np.minimum(flat, 0).sum(axis=1)
    low, high = above * ends[0] + below * ends[1], above * ends[1] + below * ends[0]
    if flat.any():
        return low, high
    return low + LEAST, high + ends[1]  # the largest of taps, of which those in the padding are less than any value


def engine_numbers(layers: Sequence[LayerNumbers], sums: Sequence[tuple[Ints, Ints]],
                   shift: int, cuts: tuple[Cut, ...]) -> EngineNumbers:
    """Ranges over all filters of an engine, whose sums have such ranges; filters that do not exist have zeros everywhere."""
    biased = [(low + x.bias, high + x.bias) for x, (low, high) in zip(layers, sums, strict=True)]
    factors = [(1,) if x.gate is None else x.gate.ends for x in layers]
    scaled = [[v * m * factor for v, m in zip(side.tolist(), x.multipliers, strict=True)]
              for x, sides, own in zip(layers, biased, factors, strict=True) for side in sides for factor in own]
    return EngineNumbers(shift, cuts, _widest([v for sides in sums for v in sides]), _widest([x.bias for x in layers]),
                         max([1, *(m for x in layers for m in x.multipliers)]), _widest([v for sides in biased for v in sides]),
                         _widest(scaled))


def _widest(values: Sequence[Ints | list[int]]) -> tuple[int, int]:
    """The range of all values, and of zero."""
    return min(0, *(int(min(v)) for v in values)), max(0, *(int(max(v)) for v in values))


def plane_form(graph: Graph, layer: ArrayLayer, config: Config) -> PlaneForm:
    """A layer as a sum over planes."""
    node = graph.node(layer.node)
    op, params = node.op, [c.array.astype(np.int64) for c in graph.params(node)[:3]]
    filters, source = layer.writes.channels, graph.scheme(node.inputs[0])
    products, steps, patterns = np.ones((filters, 1, 1), dtype=np.int64), None, tuple[int, ...]()
    if isinstance(op, Coded):
        weights, products, patterns = params[0], params[1], op.patterns
        steps = params[2] if op.output_bits else None
    elif op.product:
        weights = params[0]
    else:
        weights = np.ones((filters, 1, *layer.window.kernel), dtype=np.int64)
        if op.code_bits:
            steps = np.broadcast_to(params[0], (filters, params[0].shape[-1]))
    weights = weights.reshape(filters, layer.reads.channels // layer.groups, *layer.window.kernel)
    rows = np.ones(layer.weight_bits, dtype=np.int64) if op.weight_bits else _powers(layer.weight_bits, int(weights.min()) < 0)
    columns = np.ones(layer.input_bits, dtype=np.int64) if op.input_bits else _powers(layer.input_bits, source.signed)
    factors: Ints = products * rows[None, :, None] * columns[None, None, :]
    if layer.owned(config):
        own = -factors.sum(axis=1, keepdims=True)
        weights, factors = weights | 1 << layer.weight_bits, np.concatenate([2 * factors, own], axis=1)
    if np.abs(factors).max() >= 1 << (8 * FACTOR_BYTES - 1):
        raise UnsupportedError(f"node {layer.node}: {int(np.abs(factors).max())} for a pair of planes; {8 * FACTOR_BYTES} bits "
                               "hold what arrays multiply counts with, leave it out of the block")
    clipped = None if steps is None else np.clip(steps, -NEVER - 1, NEVER)
    return PlaneForm(weights, factors, layer.signs and not layer.owned(config), clipped, patterns)


def _powers(bits: int, signed: bool) -> Ints:
    """What the bits of an integer mean."""
    found = np.left_shift(np.int64(1), np.arange(bits, dtype=np.int64))
    if signed:
        found[-1] = -found[-1]
    return found


def _counts(program: ArrayProgram, forms: Sequence[PlaneForm], rounding: EngineNumbers | None) -> CountNumbers:
    """Ranges of an array that counts bits."""
    most = max(job.pass_steps for job in program.jobs if job.engine == ARRAY) * program.config.inputs
    reach = max(int(form.reach().max()) for form in forms)
    factors = min(int(f.factors.min()) for f in forms), max(int(f.factors.max()) for f in forms)
    steps = [f.steps for f in forms if f.steps is not None]
    return CountNumbers(most, (min(0, factors[0]), max(1, factors[1])), (-reach, reach),
                        (-NEVER - 1, NEVER) if steps else None, rounding)
