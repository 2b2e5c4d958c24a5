"""Engines of directly mapped hardware: what one share of a node needs of adders, tables, memories and clocks.

Every multiplier exists, one pixel enters per clock: time follows the stream (`streaming`), arithmetic the weights (`adders`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from math import prod

import numpy as np

from dovetail.cost.adders import Once, adders_of, digits_of, input_bits, multiplier_adders
from dovetail.cost.estimate import Floats, Ints
from dovetail.cost.streaming import FIFO_LATENCY_CYCLES, Raster
from dovetail.cost.work import map_shape, work_of
from dovetail.ir import (
    Add,
    Axis,
    Concat,
    Conv,
    Gemm,
    GlobalAvgPool,
    Graph,
    Lookup,
    MaxPool,
    Mul,
    Node,
    Pointwise,
    Pool,
    Reduce,
    Select,
    Window,
)
from dovetail.numerics.requantize import requantizer

ROUNDING_STAGES = 2
"""Clock edges from the accumulator to the output FIFO: bias with half a unit, then ties and saturation."""
TABLE_STAGES = 1
"""Clock edges from a code to its entry, which is stored as it is."""
TABLE_CODES = 256
PRODUCT_STAGES = 1
ACCUMULATOR_BITS = 32
PARTIAL_SUM_BITS = 24
"""Width of the sums that partial sums really reach, for their adders."""
TYPICAL_STAGES = 13
"""Pipeline of an engine where only the delay between branches is wanted."""
DIVISION_OUTPUTS = 6.0
"""Outputs whose rounding costs as much as one exact division by a count that is no power of two."""
MULTIPLIED_BITS = 40
"""Mean width of the adders that multiply a sum by a 31-bit constant."""


@dataclass(frozen=True, slots=True)
class Engine:
    """What the engine of each share needs; bits are sums of widths, cycles are per frame."""

    steps: Floats
    flush: Floats
    stages: Floats
    adder_bits: Floats
    comparison_bits: Floats
    rounded_bits: Floats
    register_bits: Floats
    masked_bits: Floats
    """Tap bits that padding may blank."""
    output_bits: Floats
    """Width of an output beat."""
    fifo_share: Floats | float = 1.0
    """Outputs per step within a row: a strided engine keeps fewer beats in flight."""
    line_depth: Floats | int = 0
    line_bits: Floats | None = None
    """Words and width of the line memory."""
    table_bits: Floats | float = 0.0
    """Entries of all tables times the width of an entry."""
    products: Floats | float = 0.0
    """Multipliers of two activations."""
    skip_depth: Floats | int = 0
    skip_bits: Floats | int = 0
    """Words and width of the FIFO that delays the faster of several inputs."""


def constant_divisor(graph: Graph, node: Node) -> int | None:
    """The count an average divides by; None if it depends on the position."""
    counts = np.unique(np.asarray(node.op.divisor(graph.input_shapes(node)), dtype=np.float64))
    return int(counts[0]) if counts.size == 1 else None


def stream_shape(graph: Graph, tensor: str) -> tuple[int, int, int]:
    """Channels, height and width of a tensor's stream; a flattened map still streams as the map."""
    shape, producer = graph.shape(tensor), graph.producer(tensor)
    while len(shape) == 2 and producer is not None and not isinstance(producer.op, Gemm | Concat | Select):
        shape, producer = graph.shape(producer.inputs[0]), graph.producer(producer.inputs[0])
    return map_shape(shape)


def joined_engines(engines: Sequence[Engine]) -> Engine:
    """All shares of several engines, one entry each in every field."""
    counts = [len(e.steps) for e in engines]
    total = sum(counts)
    found = {f.name: np.zeros(total) for f in fields(Engine)}
    at = 0
    for own, count in zip(engines, counts, strict=True):
        for name, array in found.items():
            value = getattr(own, name)
            if value is not None:
                array[at:at + count] = value
        at += count
    return Engine(**found)


def engine_of(graph: Graph, node: Node, axis: Axis | None, starts: Ints, stops: Ints, most_bits: float = np.inf) -> Engine:
    """The engine of every share; adders of those with more than `most_bits` adder bits are too few, but more than that."""
    if isinstance(node.op, Conv | Gemm):
        engine = _product(graph, node, axis, starts, stops, most_bits)
    elif isinstance(node.op, Pool):
        engine = _pool(graph, node, axis, starts, stops)
    elif isinstance(node.op, GlobalAvgPool):
        engine = _global_average(graph, node, axis, starts, stops)
    elif isinstance(node.op, Pointwise):
        return _table(graph, node, axis, starts, stops)
    else:
        engine = _joined(graph, node, axis, starts, stops)
    return _multiplied(graph, node, axis, engine)


def _multiplied(graph: Graph, node: Node, axis: Axis | None, engine: Engine) -> Engine:
    """Between arbitrary scales every output is multiplied by a constant; between powers of two that is wiring."""
    schemes = [graph.tensors[t].scheme for t in (*node.inputs, node.output)]
    if axis is Axis.INPUT_CHANNELS or not any(s is not None and not s.fixed_point for s in schemes) or None in schemes:
        return engine
    how = requantizer(graph, node)
    constants = [how.multipliers, *how.factors]
    found = [multiplier_adders(each) for each in constants]
    outputs = engine.output_bits / 8
    return replace(engine, adder_bits=engine.adder_bits + outputs * sum(adders for adders, _ in found) * MULTIPLIED_BITS,
                   stages=engine.stages + max(depth for _, depth in found) + 1 + bool(how.zero))


def window_of(graph: Graph, node: Node) -> tuple[Window, int, int, int]:
    """Window, channels, height and width of the stream a node reads.

    A fully connected layer behind a flattened map is a convolution whose window is the whole map.
    """
    channels, height, width = stream_shape(graph, node.inputs[0])
    if isinstance(node.op, Gemm):
        return Window((height, width)), channels, height, width
    return node.op.window if isinstance(node.op, Conv | Pool) else Window((1, 1)), channels, height, width


@dataclass(frozen=True, slots=True)
class Scan:
    """What pricing needs of a `Raster`, found once for all shares and alike layers."""

    steps: float
    flush: float
    stages: int
    pointwise: bool
    line_in_registers: bool
    masked: bool


@lru_cache(maxsize=4096)
def _scan(window: Window, height: int, width: int) -> Scan:
    raster = Raster(window, height, width)
    if not raster.masks_suffice:  # padding enters as explicit beats
        top, left, bottom, right = window.pads
        raster = Raster(replace(window, pads=(0, 0, 0, 0)), height + top + bottom, width + left + right)
    return Scan(float(raster.steps), float(raster.flush), raster.stages, raster.pointwise, raster.line_in_registers,
                raster.masked)


def _streamed(graph: Graph, node: Node, axis: Axis | None, starts: Ints, stops: Ints) -> Engine:
    """Time and window storage of every share; arithmetic is added by the caller."""
    window, channels, height, width = window_of(graph, node)
    raster = _scan(window, height, width)
    count = len(starts)
    steps, flush = np.full(count, raster.steps), np.full(count, raster.flush)
    if axis is Axis.ROWS:
        steps, flush = row_steps(window, height, width, starts, stops)
    work = work_of(graph, node, axis, starts, stops)
    reads = np.broadcast_to(work.read_channels, (count,))
    reads = reads * (channels / map_shape(graph.shape(node.inputs[0]))[0])  # features of a flattened map to channels
    pixel_bits = reads * input_bits(graph, node)
    (reach_h, reach_w), (kernel_h, _) = window.reach, window.kernel
    kept = 0 if raster.pointwise else kernel_h * reach_w
    # Short lines wait in a chain of registers; longer ones in a memory whose words are registered beside the pixel.
    chain = (reach_h - 1) * width if raster.line_in_registers else reach_h
    masked = pixel_bits * (prod(window.kernel) if raster.masked else 0)
    zero = np.zeros(count)
    return Engine(steps, flush, np.full(count, float(raster.stages + ROUNDING_STAGES + FIFO_LATENCY_CYCLES)), zero, zero, zero,
                  pixel_bits * (1 + kept + chain), masked, np.broadcast_to(work.filters, (count,)) * 8.0, 1.0 / window.stride[1],
                  0 if raster.line_in_registers else width, pixel_bits * (reach_h - 1))


def row_steps(window: Window, height: int, width: int, starts: Ints, stops: Ints) -> tuple[Floats, Floats]:
    """Steps and flush steps of row shares: `Raster` of `Window.rows(start, stop)`, for all shares at once."""
    (reach_h, reach_w), (stride_h, stride_w), (top, left, _, right) = window.reach, window.stride, window.pads
    first_row = np.maximum(0, starts * stride_h - top)
    last_row = np.minimum(height, (stops - 1) * stride_h - top + reach_h)
    above = np.maximum(0, top - starts * stride_h)
    columns = (width + left + right - reach_w) // stride_w + 1
    rows_down = reach_h - 1 - above + (stops - starts - 1) * stride_h
    last = rows_down * width + reach_w - 1 - left + (columns - 1) * stride_w
    beats = (last_row - first_row) * width
    steps = np.maximum(beats, last + 1)
    return steps.astype(np.float64), (steps - beats).astype(np.float64)


def _product(graph: Graph, node: Node, axis: Axis | None, starts: Ints, stops: Ints, most_bits: float) -> Engine:
    """Convolution or fully connected layer: shared multiples, trees, one rounding per filter."""
    assert isinstance(node.op, Conv | Gemm)
    groups, partial = node.op.groups if isinstance(node.op, Conv) else 1, node.op.partial
    sums = adders_of(digits_of(graph.params(node)[0]), groups, axis, starts, stops, input_bits(graph, node), most_bits)
    engine = _streamed(graph, node, axis, starts, stops)
    engine = replace(engine, stages=engine.stages + sums.levels, adder_bits=sums.bits)
    if axis is Axis.INPUT_CHANNELS or partial:
        return replace(engine, output_bits=engine.output_bits * (ACCUMULATOR_BITS / 8))
    return replace(engine, rounded_bits=engine.output_bits)


def _division(divisor: int) -> float:
    """How many plain roundings an exact division costs."""
    return 1.0 if divisor & (divisor - 1) == 0 else DIVISION_OUTPUTS


def _pool(graph: Graph, node: Node, axis: Axis | None, starts: Ints, stops: Ints) -> Engine:
    op = node.op
    assert isinstance(op, Pool)
    engine = _streamed(graph, node, axis, starts, stops)
    taps = prod(op.window.kernel)
    engine = replace(engine, stages=engine.stages + np.ceil(np.log2(taps)))
    if isinstance(op, MaxPool):
        return replace(engine, comparison_bits=engine.output_bits * (taps - 1), rounded_bits=engine.output_bits)
    divisor = constant_divisor(graph, node)
    assert divisor is not None
    return replace(engine, adder_bits=engine.output_bits / 8 * (taps - 1) * (8 + 2),
                   rounded_bits=engine.output_bits * _division(divisor))


def _global_average(graph: Graph, node: Node, axis: Axis | None, starts: Ints, stops: Ints) -> Engine:
    """One accumulator per channel; the only output leaves after the last pixel."""
    engine = _streamed(graph, node, axis, starts, stops)
    _, height, width = map_shape(graph.shape(node.inputs[0]))
    bits = input_bits(graph, node) + np.ceil(np.log2(height * width))
    return replace(engine, adder_bits=engine.output_bits / 8 * bits, rounded_bits=engine.output_bits * _division(height * width))


def _joined(graph: Graph, node: Node, axis: Axis | None, starts: Ints, stops: Ints) -> Engine:
    """Add, Mul, Concat, Clip, Reduce: one rounding per output; of several inputs the fast wait in a FIFO. Select is wiring."""
    engine = _streamed(graph, node, axis, starts, stops)
    if isinstance(node.op, Select):
        return replace(engine, stages=engine.stages - ROUNDING_STAGES)
    engine = replace(engine, rounded_bits=engine.output_bits)
    if isinstance(node.op, Add):
        engine = replace(engine, adder_bits=engine.output_bits / 8 * 10 * (len(node.inputs) - 1), stages=engine.stages + 1)
    if isinstance(node.op, Mul):
        engine = replace(engine, products=engine.output_bits / 8, stages=engine.stages + PRODUCT_STAGES,
                         register_bits=engine.register_bits + 3 * engine.output_bits)  # the other pixel, a product twice as wide
    if isinstance(node.op, Reduce):
        engine = replace(engine, adder_bits=engine.output_bits / 8 * PARTIAL_SUM_BITS * len(node.inputs))
    if len(node.inputs) < 2:
        return engine
    lag = stream_delays(graph)
    delays = [lag[t] for t in node.inputs]
    slowest = max(delays)
    waiting = [(int(slowest - d), map_shape(graph.shape(t))[0]) for d, t in zip(delays, node.inputs, strict=True) if d < slowest]
    if not waiting:
        return engine
    return replace(engine, skip_depth=max(depth for depth, _ in waiting), skip_bits=8 * sum(channels for _, channels in waiting))


def _table(graph: Graph, node: Node, axis: Axis | None, starts: Ints, stops: Ints) -> Engine:
    """A table per channel, as wide as its entries need; nothing is rounded."""
    engine = _streamed(graph, node, axis, starts, stops)
    width = 8
    if isinstance(node.op, Lookup):
        entries = graph.params(node)[0].array.astype(np.int64)
        lo, hi = int(entries.min()), int(entries.max())
        width = max((-lo - 1 if lo < 0 else 0).bit_length(), max(hi, 0).bit_length()) + (lo < 0)
    return replace(engine, stages=engine.stages - ROUNDING_STAGES + TABLE_STAGES,
                   table_bits=engine.output_bits / 8 * width * TABLE_CODES,
                   register_bits=engine.register_bits + 2 * engine.output_bits)  # the entries, and the FIFO's word


def stream_delays(graph: Graph) -> Mapping[str, float]:
    """Beats by which each tensor lags the graph inputs if everything before it streams; remembered, as every join asks."""
    return _delays_once(Once(graph))


@lru_cache(maxsize=8)
def _delays_once(key: Once[Graph]) -> Mapping[str, float]:
    graph = key.value
    lag = dict.fromkeys(graph.inputs, 0.0)
    for node in graph.nodes:
        window, _, height, width = window_of(graph, node)
        beats = prod(map_shape(graph.shape(node.output))[1:])
        fill = max(0, Raster(window, height, width).first) + TYPICAL_STAGES
        lag[node.output] = (max(lag[t] for t in node.inputs) + fill) * min(1.0, beats / (height * width))
    return lag
