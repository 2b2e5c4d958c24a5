"""Engines of directly mapped hardware: what one share of a node needs of adders, tables, memories and clocks.

Every multiplier exists, one pixel enters per clock: time follows the stream (`streaming`), arithmetic the weights (`adders`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from math import ceil, log2, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail import ir, plugins
from dovetail.hardware import rounding
from dovetail.hardware.adders.digits import Digits, Once, digits_of, multiplier_adders, used_taps
from dovetail.hardware.adders.slices import Arithmetic, Slices, adders_of, between
from dovetail.hardware.lq_engines import adds_integers, coded_parts, coded_slices
from dovetail.hardware.scans import ROUNDING_STAGES, Parts, Scans, keeps, stream_shape, window_of
from dovetail.hardware.shares import Flags, Floats, Ints, Question, Segments, shares_in
from dovetail.hardware.streaming import FIFO_LATENCY_CYCLES, Raster
from dovetail.hardware.work import map_shape
from dovetail.ir import Axis, Graph, Node, Op
from dovetail.numerics.requantize import requantizer

TABLE_STAGES = 1
"""Clock edges from a code to its entry, which is stored as it is."""
TABLE_CODES = 256
PRODUCT_STAGES = 1
REPEAT_STAGES = 3
"""Clock edges from a step to the repeated pixel: it may come from a row's memory, whose word waits in a register."""
ACCUMULATOR_BITS = 32
PARTIAL_SUM_BITS = 24
"""Width of the sums that partial sums really reach, for their adders."""
TYPICAL_STAGES = 13
"""Pipeline of an engine where only the delay between branches is wanted."""
MULTIPLIED_BITS = 40
"""Mean width of the adders that multiply a sum by a 31-bit constant."""


@dataclass(frozen=True, slots=True)
class EngineSizes:
    """What the engine of each share needs; bits are sums of widths, cycles are per frame."""

    steps: Floats
    flush: Floats
    stages: Floats
    adder_bits: Floats
    """Bits of the carry chains of sums."""
    comparison_bits: Floats
    rounded_bits: Floats
    """Widths of what is rounded, before it is clamped."""
    register_bits: Floats
    """Registers counted bit by bit: pixels, window, the word that leaves."""
    masked_bits: Floats
    """Tap bits that padding may blank."""
    output_bits: Floats
    """Width of an output beat."""
    fifo_share: Floats | float = 1.0
    row_outputs: Floats | float = 1e9
    row_steps: Floats | float = 1e9
    """Outputs per step within a row, outputs of a row, steps from row to row: how many beats are in flight."""
    chain_bits: Floats | float = 0.0
    chain_rows: Floats | float = 0.0
    """Registers that only delay a line, and the bits of their chains: some families have shift registers for those."""
    line_depth: Floats | int = 0
    line_bits: Floats | None = None
    """Words and width of the line memory."""
    sum_bits: Floats | float = 0.0
    """Registers of sums and of what waits to be added."""
    accumulator_bits: Floats | float = 0.0
    """Widths of the sums that take a bias."""
    counted_bits: Floats | float = 0.0
    """Bits that counters of ones remove from their columns."""
    adders: Floats | float = 0.0
    loop_bits: Floats | float = 0.0
    """Bits of sums that run over a frame and start again with the next."""
    division_bits: Floats | float = 0.0
    """Carry bits of multiplying by reciprocals."""
    clamped_bits: Floats | float = 0.0
    control_bits: Floats | float = 0.0
    """Widths of the counters."""
    lag_bits: Floats | float = 0.0
    """Registers in which outputs of shallow sums wait for the deepest."""
    table_bits: Floats | float = 0.0
    """Entries of all tables times the width of an entry."""
    choice_bits: Floats | float = 0.0
    """Bits of choices between two values."""
    products: Floats | float = 0.0
    """Multipliers of two activations."""
    skip_depth: Floats | int = 0
    skip_bits: Floats | int = 0
    """Words and width of the FIFO that delays the faster of several inputs."""


FIELDS = tuple(f.name for f in fields(EngineSizes))
DEFAULTS = {f.name: float(f.default) if isinstance(f.default, int | float) else 0.0 for f in fields(EngineSizes)}
"""What a field holds where an engine has nothing to say of it."""


def constant_divisor(graph: Graph, node: Node) -> int | None:
    """The count an average divides by; None if it depends on the position."""
    counts = np.unique(np.asarray(node.op.divisor(graph.input_shapes(node)), dtype=np.float64))
    return int(counts[0]) if counts.size == 1 else None


def has_engine(op: Op) -> bool:
    """Whether there is an engine for an operator."""
    return op.layer is not None or op.learned or type(op) in UNROUNDED or _parts_of(type(op)) is not None


def joined_engines(engines: Sequence[EngineSizes]) -> EngineSizes:
    """All shares of several engines, one entry each in every field."""
    return _filled([{name: value for name in FIELDS if (value := getattr(own, name)) is not None} for own in engines],
                   [len(own.steps) for own in engines])


def _filled(engines: Sequence[Parts], counts: Sequence[int]) -> EngineSizes:
    """Engines with an entry per share in every field, from the fields they have."""
    total = sum(counts)
    found = {name: np.full(total, default) for name, default in DEFAULTS.items()}
    at = 0
    for own, count in zip(engines, counts, strict=True):
        for name, value in own.items():
            found[name][at:at + count] = value
        at += count
    return EngineSizes(**found)


def engine_of(graph: Graph, node: Node, axis: Axis | None, starts: Ints, stops: Ints) -> EngineSizes:
    """The engine of every share of a node along one axis."""
    return engines_of(graph, [(node, ((axis, starts, stops),))])


def engines_of(graph: Graph, questions: Sequence[Question]) -> EngineSizes:
    """The engines of all shares of many nodes, an entry each in every field."""
    scans = Scans(graph)
    products = {i: _weighed(graph, node, segments) for i, (node, segments) in enumerate(questions) if node.op.product}
    slices = {i: own.slices for i, own in products.items()} | {
        i: coded_slices(graph, node, segments) for i, (node, segments) in enumerate(questions) if adds_integers(node)}
    sums = dict(zip(slices, adders_of(list(slices.values())) if slices else (), strict=True))
    found = [_product(graph, question, scans, products[i], sums[i]) if i in products
             else _plain(graph, question, scans, sums.get(i)) for i, question in enumerate(questions)]
    return _filled(found, [shares_in(segments) for _, segments in questions])


def _plain(graph: Graph, question: Question, scans: Scans, sums: Arithmetic | None) -> Parts:
    """The engine of an operator without weights, or of codes; `sums` of those that add integers."""
    node, _ = question
    engine = scans.streamed(question)
    if node.op.learned:
        return coded_parts(graph, node, engine, sums)
    if type(node.op) in UNROUNDED:
        return engine | UNROUNDED[type(node.op)](graph, node, node.op, engine)
    parts = _parts_of(type(node.op))
    assert parts is not None, "asked of operators with an engine alone"
    engine |= parts(graph, node, node.op, engine)
    if len(node.inputs) > 1 and (waiting := waiting_beats(graph, node))[0]:  # a FIFO for the faster of several inputs
        engine |= dict(zip(("skip_depth", "skip_bits"), waiting, strict=True))
    if keeps(graph, node):  # pixels are counted, since one value per channel comes with the first; all of the map follows it
        pixels = prod(map_shape(graph.shape(node.output))[1:])
        engine |= {"flush": engine["steps"] - 1, "control_bits": engine["control_bits"] + float((pixels - 1).bit_length())}
    outputs = engine["output_bits"] / rounding.output_bits(graph, node)
    rounded, clamped = (0, 0) if node.op.moves else rounding.value_widths(graph, node)
    return _multiplied(graph, question, engine | {"rounded_bits": outputs * rounded, "clamped_bits": outputs * clamped})


def _multiplied(graph: Graph, question: Question, engine: Parts) -> Parts:
    """Between arbitrary scales every output is multiplied by a constant; between powers of two that is wiring."""
    node, segments = question
    schemes = [graph.tensors[t].scheme for t in (*node.inputs, node.output)]
    if not any(s is not None and not s.fixed_point for s in schemes) or None in schemes:
        return engine
    how = requantizer(graph, node)
    constants = [how.multipliers, *how.factors]
    found = [multiplier_adders(each) for each in constants]
    each = sum(adders for adders, _ in found) * ~_by_channels(segments)  # partial sums are multiplied when they are added up
    more = engine["output_bits"] / rounding.output_bits(graph, node) * each * MULTIPLIED_BITS
    later = (max(depth for _, depth in found) + 1 + bool(how.zero)) * ~_by_channels(segments)
    return engine | {"adder_bits": engine.get("adder_bits", 0.0) + more, "sum_bits": engine.get("sum_bits", 0.0) + more,
                     "stages": engine["stages"] + later}


def _by_channels(segments: Segments) -> Flags:
    """Which shares are of input channels, and so make partial sums."""
    return np.repeat([axis is Axis.INPUT_CHANNELS for axis, _, _ in segments], [len(starts) for _, starts, _ in segments])


@dataclass(frozen=True, slots=True)
class _Weighed:
    """A node's weights: the taps any filter weighs, digits, and the slices of them that are asked for."""

    taps: NDArray[np.bool_]
    digits: Digits
    slices: Slices


def _weighed(graph: Graph, node: Node, segments: Segments) -> _Weighed:
    assert node.op.product is not None
    groups, weights = node.op.product.groups, rounding.live_weights(graph, node)
    taps, digits = used_taps(Once(weights), groups), digits_of(Once(weights))
    used = taps.sum(axis=(1, 2), dtype=np.float64)
    return _Weighed(taps, digits, Slices(digits, groups, segments, rounding.input_bits(graph, node), used))


def _product(graph: Graph, question: Question, scans: Scans, own: _Weighed, sums: Arithmetic) -> Parts:
    """Convolution or fully connected layer: shared multiples, trees, one rounding per filter."""
    node, segments = question
    assert node.op.product is not None
    engine = scans.streamed(question, own.taps)
    partial = _by_channels(segments) | node.op.product.partial
    beat, (summed, clamped) = engine["output_bits"], rounding.filter_widths(graph, node, own.digits)
    wide = beat * (ACCUMULATOR_BITS / rounding.output_bits(graph, node))
    engine |= {"stages": engine["stages"] + sums.levels, "adder_bits": sums.bits, "adders": sums.adders,
               "sum_bits": sums.registers, "output_bits": np.where(partial, wide, beat),
               "register_bits": np.where(partial, engine["register_bits"] + wide - beat, engine["register_bits"]),
               "accumulator_bits": np.where(partial, 0.0, between(summed, *sums.rows)),
               "clamped_bits": np.where(partial, 0.0, between(clamped, *sums.rows)),
               "lag_bits": np.where(partial, 0.0, sums.lag * rounding.output_bits(graph, node))}
    return _multiplied(graph, question, engine)


def _maximum(graph: Graph, node: Node, op: ir.MaxPool, engine: Parts) -> Parts:
    """A tree of comparisons over the window."""
    taps, bits = prod(op.window.kernel), rounding.input_bits(graph, node)
    outputs = engine["output_bits"] / rounding.output_bits(graph, node)
    merged, waiting = rounding.tree_bits(taps, bits, 0)
    longest = bool(taps & taps - 1 and taps % 2) and taps > 3  # the odd one out waits level after level
    return {"stages": engine["stages"] + np.ceil(np.log2(taps)), "comparison_bits": outputs * merged,
            "sum_bits": outputs * (merged + waiting * (not longest)),
            "chain_bits": engine["chain_bits"] + outputs * waiting * longest,
            "chain_rows": engine["chain_rows"] + outputs * bits * longest}


def _average(graph: Graph, node: Node, op: ir.AvgPool, engine: Parts) -> Parts:
    """A tree of adders over the window, and a division by a constant."""
    taps, bits = prod(op.window.kernel), rounding.input_bits(graph, node)
    outputs = engine["output_bits"] / rounding.output_bits(graph, node)
    divisor = constant_divisor(graph, node)
    assert divisor is not None
    merged, waiting = rounding.tree_bits(taps, bits, 1)
    carry, registers = rounding.division_bits(divisor, bits + ceil(log2(taps)))
    return {"stages": engine["stages"] + np.ceil(np.log2(taps)), "adder_bits": outputs * merged, "adders": outputs * (taps - 1),
            "division_bits": outputs * carry, "sum_bits": outputs * (merged + waiting + registers)}


def _global_average(graph: Graph, node: Node, op: ir.GlobalAvgPool, engine: Parts) -> Parts:
    """One accumulator per channel; the only output leaves after the last pixel."""
    _, height, width = map_shape(graph.shape(node.inputs[0]))
    bits = rounding.input_bits(graph, node) + ceil(log2(height * width))
    outputs = engine["output_bits"] / rounding.output_bits(graph, node)
    carry, registers = rounding.division_bits(height * width, bits)
    return {"loop_bits": outputs * bits, "division_bits": outputs * carry, "sum_bits": outputs * (bits + registers),
            "control_bits": float((height * width - 1).bit_length()), "row_outputs": 1.0, "row_steps": float(height * width)}


def _sum(graph: Graph, node: Node, op: ir.Add, engine: Parts) -> Parts:
    outputs = engine["output_bits"] / rounding.output_bits(graph, node)
    sums = outputs * (rounding.output_bits(graph, node) + 1) * (len(node.inputs) - 1)
    others = sum(map_shape(graph.shape(t))[0] for t in node.inputs[1:]) / map_shape(graph.shape(node.inputs[0]))[0]
    return {"adder_bits": sums, "adders": outputs * (len(node.inputs) - 1), "sum_bits": sums, "stages": engine["stages"] + 1,
            "register_bits": engine["register_bits"] + others * outputs * rounding.input_bits(graph, node)}


def _gate(graph: Graph, node: Node, op: ir.Mul, engine: Parts) -> Parts:
    """One multiplier per output; the other pixel is stored too, and a product twice as wide."""
    return {"products": engine["output_bits"] / rounding.output_bits(graph, node), "stages": engine["stages"] + PRODUCT_STAGES,
            "register_bits": engine["register_bits"] + 3 * engine["output_bits"]}


def _partial_sums(graph: Graph, node: Node, op: ir.Reduce, engine: Parts) -> Parts:
    sums = engine["output_bits"] / rounding.output_bits(graph, node) * PARTIAL_SUM_BITS * len(node.inputs)
    return {"adder_bits": sums, "sum_bits": sums}


def waiting_beats(graph: Graph, node: Node) -> tuple[int, int]:
    """Beats for which the faster inputs of a join wait for the slowest, and bits of a beat of all of them."""
    delays = _arrivals(graph, node, _stream_delays(Once(graph)))
    slowest = max(delays)
    waiting = [(int(slowest - d), map_shape(graph.shape(t))[0]) for d, t in zip(delays, node.inputs, strict=True) if d < slowest]
    return max((depth for depth, _ in waiting), default=0), 8 * sum(channels for _, channels in waiting)


def gate_layers(graph: Graph) -> frozenset[str]:
    """Nodes between an average over a map and the join at which the map waits for what they make of it."""
    return _gate_layers_once(Once(graph))


@lru_cache(maxsize=8)
def _gate_layers_once(key: Once[Graph]) -> frozenset[str]:
    graph, found = key.value, set[str]()
    open_ends = [t for n in graph.nodes if keeps(graph, n) for t in n.inputs if prod(stream_shape(graph, t)[1:]) == 1]
    while open_ends:
        node = graph.producer(open_ends.pop())
        if node is not None and node.name not in found and prod(window_of(graph, node)[2:]) == 1:
            found.add(node.name)
            open_ends += node.inputs
    return frozenset(found)


def _table(graph: Graph, node: Node, op: ir.Pointwise, engine: Parts) -> Parts:
    """A table per channel, as wide as its entries need; nothing is rounded."""
    width = 8
    if op.table:
        entries = graph.params(node)[0].array.astype(np.int64)
        lo, hi = int(entries.min()), int(entries.max())
        width = max((-lo - 1 if lo < 0 else 0).bit_length(), max(hi, 0).bit_length()) + (lo < 0)
    return {"stages": engine["stages"] - ROUNDING_STAGES + TABLE_STAGES,
            "table_bits": engine["output_bits"] / rounding.output_bits(graph, node) * width * TABLE_CODES,
            "register_bits": engine["register_bits"] + engine["output_bits"]}  # the entries


def _repeated(graph: Graph, node: Node, op: ir.Upsample, engine: Parts) -> Parts:
    """A step per beat out, for which the source waits; rows of several pixels that come again lie in a memory."""
    _, height, width = map_shape(graph.shape(node.inputs[0]))
    beats, again, beat = float(height * op.rows * width * op.columns), op.rows > 1 and width > 1, engine["output_bits"]
    none = beat * 0
    return {"steps": none + beats, "flush": none + beats - height * width,
            "stages": none + FIFO_LATENCY_CYCLES + (REPEAT_STAGES if again else 1),
            "register_bits": engine["register_bits"] + (3 * beat if again else 0.0),
            "control_bits": float(sum((count - 1).bit_length() for count in (op.rows, op.columns, width))),
            "line_depth": width if again else 0, "line_bits": beat if again else none}


def _shuffled(graph: Graph, node: Node, op: ir.PixelShuffle, engine: Parts) -> Parts:
    """A step per beat out; rows of a block but its first wait in a memory, and every output is chosen from a block.

    Of a pixel whose later rows are in memory only the first row is registered, twice; a word of the others is once.
    """
    _, height, width = map_shape(graph.shape(node.inputs[0]))
    beats, again, beat = float(prod(graph.shape(node.output)[2:])), op.rows > 1 and width > 1, engine["output_bits"]
    none, counters = beat * 0, (op.rows, op.columns, width, height if op.cropped[0] else 1)
    return {"steps": none + beats, "flush": none + beats - height * width,
            "stages": none + FIFO_LATENCY_CYCLES + (REPEAT_STAGES if again else 2),
            "register_bits": engine["register_bits"] + beat * (1 + op.columns * again), "choice_bits": beat * (op.block - 1),
            "control_bits": float(sum((count - 1).bit_length() for count in counters)),
            "line_depth": width if again else 0, "line_bits": beat * (op.rows - 1) * op.columns * again}


OwnParts = Callable[[Graph, Node, Any, Parts], Parts]
def _parts_of(kind: type[Op]) -> OwnParts | None:
    """What the engine of an operator adds, by us or by a plug-in; None where there is no engine."""
    if kind in ROUNDED:
        return ROUNDED[kind]
    found: plugins.EnginePlugin | None = plugins.by_kind("engines", kind)
    return None if found is None else found.area


ROUNDED: dict[type[Op], OwnParts] = {
    ir.Add: _sum, ir.AvgPool: _average, ir.Clip: lambda graph, node, op, engine: {},
    ir.Concat: lambda graph, node, op, engine: {}, ir.GlobalAvgPool: _global_average, ir.MaxPool: _maximum, ir.Mul: _gate,
    ir.Reduce: _partial_sums, ir.Select: lambda graph, node, op, engine: {"stages": engine["stages"] - ROUNDING_STAGES},
}
"""What the engine of an operator without weights has beyond its stream; every output is rounded, but for a `Select`'s."""
UNROUNDED: dict[type[Op], OwnParts] = {ir.Function: _table, ir.Lookup: _table, ir.PixelShuffle: _shuffled,
                                       ir.Upsample: _repeated}
"""Likewise of operators whose outputs are stored as they are."""


@lru_cache(maxsize=8)
def _stream_delays(key: Once[Graph]) -> Mapping[str, float]:
    """Beats by which each tensor lags the graph inputs if everything before it streams; remembered, as every join asks."""
    graph = key.value
    lag = dict.fromkeys(graph.inputs, 0.0)
    longest = max(prod(map_shape(graph.shape(t))[1:]) for t in (*graph.inputs, *(n.output for n in graph.nodes)))
    for node in graph.nodes:
        window, _, height, width = window_of(graph, node)
        beats = prod(map_shape(graph.shape(node.output))[1:])
        pixel = node.op.averages and not node.op.window  # over a whole map
        first = height * width - 1 if pixel else Raster(window, height, width).first
        fill = max(0, first) + TYPICAL_STAGES / (longest if height * width == 1 else 1)
        most = np.inf if node.op.repeats != (1, 1) else 1.0  # repeated beats take their time, padding is masked
        lag[node.output] = (max(_arrivals(graph, node, lag)) + fill) * min(most, beats / (height * width))
    return lag


def _arrivals(graph: Graph, node: Node, lag: Mapping[str, float]) -> list[float]:
    """Lags of a node's inputs in beats of the largest: a beat of one value per channel is a frame."""
    _, height, width = map_shape(graph.shape(node.output))
    kept = keeps(graph, node)
    return [lag[t] * (height * width if kept and prod(stream_shape(graph, t)[1:]) == 1 else 1) for t in node.inputs]
