"""From graph nodes to engines: stream formats of tensors, what can be mapped, and the engines of each operator."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from dovetail import ir, plugins
from dovetail.errors import UnsupportedError
from dovetail.fpga.engines import layers
from dovetail.fpga.engines.blocks import blocks_engine
from dovetail.fpga.engines.coded_lane import coded_filters
from dovetail.fpga.engines.floats import float_engine
from dovetail.fpga.engines.folded import Filters, folded_coded_engine, folded_engine
from dovetail.fpga.engines.layers import MappedLayer, Rescale, weighted
from dovetail.fpga.engines.lq import FLOATS, Datapath, coded, coded_window, stepped
from dovetail.fpga.engines.narrow import narrowed, settled
from dovetail.fpga.engines.stream import Engine, Format
from dovetail.hardware.adders.graph import IntMatrix
from dovetail.hardware.engines import constant_divisor
from dovetail.hardware.folds import Fold, Loops, channels_of
from dovetail.hardware.scans import OWN_FEATURES
from dovetail.hardware.streaming import Raster
from dovetail.ir import Graph, Node, Scheme, Window
from dovetail.numerics.fixed import integer_bounds
from dovetail.numerics.ranges import stored_ranges
from dovetail.numerics.requantize import requantizer

Formats = Mapping[str, Format]

SAME_MAP: tuple[type[ir.Op], ...] = (ir.Add, ir.Clip, ir.Lookup, ir.Mul, ir.Reshape)
"""Operators whose flat outputs stream as the map that their inputs are."""
MOST_LETTERS = 48
"""Letters of a network name that survive in an identifier: two of them and a prefix must fit a file name."""


def identifiers(names: Iterable[str]) -> dict[str, str]:
    """Distinct Verilog identifiers for network names, such that none runs into another one's helper modules.

    They differ by more than upper and lower case, because each is also a file's name.
    """
    found: dict[str, str] = {}
    used: set[str] = set()
    for name in names:
        clean = re.sub(r"\W", "_", name, flags=re.ASCII)[:MOST_LETTERS]
        if not clean[:1].isalpha() or clean.startswith(("fork_", "fifo_", "words_")):
            clean = f"n{clean}"
        choice, number = clean, 2
        while used & (family := {choice.lower() + suffix for suffix in ("", "_pad", "_fifo", "_pad_fifo", "_lane")}):
            choice, number = f"{clean}_{number}", number + 1
        used |= family
        found[name] = choice
    return found


def scheme_of(graph: Graph, tensor: str) -> Scheme:
    scheme = graph.tensors[tensor].scheme
    if scheme is None:
        raise UnsupportedError(f"tensor {tensor}: float values; hardware is generated from a quantized graph, quantize it first")
    return scheme


def stream_formats(graph: Graph) -> dict[str, Format]:
    """The stream of every tensor that has one; flattened tensors keep the pixels they came from."""
    if not graph.quantized:
        missing = next(t.name for t in graph.tensors.values() if t.scheme is None)
        scheme_of(graph, missing)
    ranges, formats, maps = stored_ranges(graph), dict[str, Format](), flattened_maps(graph)
    for tensor in (*graph.inputs, *(n.output for n in graph.nodes)):
        node, shape, scheme = graph.producer(tensor), graph.shape(tensor), scheme_of(graph, tensor)
        if node is not None and node.op.still:
            source = formats.get(node.inputs[0])
            if source is not None and flattens(source, shape):
                formats[tensor] = source
            continue
        if shape[0] != 1 or len(shape) not in (2, 4):
            continue
        size = maps.get(tensor, (shape[1], 1, 1)) if node is None and len(shape) == 2 else (*shape[1:], 1, 1)[:3]
        if node is not None and len(shape) == 2 and type(node.op) not in OWN_FEATURES:
            source = formats.get(node.inputs[0])
            if source is None:
                continue
            size = (source.channels, source.height, source.width)
        known = ranges[tensor]
        formats[tensor] = Format(size[0], scheme.bits, scheme.signed, known.lo, known.hi, size[1], size[2])
    return formats


def flattened_maps(graph: Graph) -> dict[str, tuple[int, ...]]:
    """The (channels, height, width) that flat tensors are, where something in the graph still shows it.

    A flat input that another device flattened must stream like the maps it is joined with here.
    """
    maps: dict[str, tuple[int, ...]] = {}
    alike: list[tuple[str, ...]] = []
    for node in graph.nodes:
        source, target = graph.shape(node.inputs[0]), graph.shape(node.output)
        if node.op.still and {len(source), len(target)} == {2, 4}:
            maps.setdefault(node.inputs[0] if len(source) == 2 else node.output, max(source, target, key=len)[1:])
        elif len(target) == 2 and type(node.op) in SAME_MAP:
            alike.append((*node.inputs, node.output))
    for group in (*alike, *reversed(alike)):
        shown = next((maps[t] for t in group if t in maps), None)
        if shown is not None:
            maps |= {t: shown for t in group if t not in maps}
    return maps


def flattens(source: Format, shape: tuple[int, ...]) -> bool:
    """Whether a reshape to `shape` only relabels the stream: a flattening, or an added or dropped 1x1."""
    flat = (1, source.channels * source.beats)
    return shape in (flat, (1, source.channels, source.height, source.width)) or (source.beats == 1 and shape == (*flat, 1, 1))


def engines(graph: Graph, node: Node, inputs: tuple[Format, ...], output: Format, module: str, label: str,
            fold: Fold | None = None, datapath: Datapath = Datapath.POPCOUNT, loaded: bool = False) -> tuple[Engine, ...]:
    """The engines of a node, in stream order: the last one writes its output. `label` starts its signals' names.

    A convolution or fully connected layer with a `fold` keeps its weights in memory and shares its multipliers. Beats are
    as the formats say: words only where `word_fields` allows them. `loaded`: a stream fills a folded layer's memories.
    """
    if fold is not None:
        return _folded(graph, node, inputs, output, module, label, fold, loaded)
    pace = "one pixel of all channels per clock" if output.at_once is None else f"{output.at_once} channels per clock"
    heading = (f"{node.op.kind} {node.name}: {node.op.attributes()}".removesuffix(": "),
               f"{' + '.join(map(str, inputs))} -> {output}; {pace}.")
    layer = MappedLayer(module, label, heading, inputs, output)
    build = _engines_of(type(node.op))
    if build is None:
        raise UnsupportedError(f"{node.name}: no engine for {node.op.kind}; ask `unsupported` first")
    return build(_Site(graph, node, layer, scheme_of(graph, node.inputs[0]).zero, datapath), node.op)


@dataclass(frozen=True, slots=True)
class _Site:
    """Where an engine stands: its node, its streams, and the zero point of the first of them."""

    graph: Graph
    node: Node
    layer: MappedLayer
    zero: int
    datapath: Datapath

    def constant(self) -> IntMatrix:
        """The node's first constant: weights, a table or thresholds."""
        return self.graph.constants[self.node.params[0]].array.astype(np.int64)

    def rows(self, channels: int) -> IntMatrix:
        """A row of the first constant for every channel, which may all share one."""
        return np.broadcast_to(self.constant(), (channels, self.constant().shape[-1]))

    def rescale(self) -> Rescale:
        return _rescale(self.graph, self.node)


def _gemm_engines(site: _Site, op: ir.Gemm) -> tuple[Engine, ...]:
    (form,) = site.layer.inputs
    return _windowed(site.layer, Window((form.height, form.width)), site.zero,
                     *_filters_of(site.graph, site.node, site.constant()))


def _average_engines(site: _Site, op: ir.AvgPool) -> tuple[Engine, ...]:
    taps, fields = op.window.kernel[0] * op.window.kernel[1], site.layer.output.fields
    sums = np.repeat(np.eye(fields, dtype=np.int64), taps, axis=1)
    (zero,) = requantizer(site.graph, site.node).zeros
    return _windowed(site.layer, op.window, zero, sums, [-zero * taps] * fields, site.rescale())


def _repeat_engines(site: _Site, op: ir.Upsample) -> tuple[Engine, ...]:
    channels = site.layer.output.channels
    return _moving(site, np.broadcast_to(np.arange(channels), (op.rows, op.columns, channels)), (0, 0))


def _shuffle_engines(site: _Site, op: ir.PixelShuffle) -> tuple[Engine, ...]:
    places = np.arange(site.layer.inputs[0].channels).reshape(op.inner(site.layer.output.channels))
    return _moving(site, places if op.depth_first else places.transpose(1, 2, 0), op.cropped)


def _moving(site: _Site, places: IntMatrix, cropped: tuple[int, int]) -> tuple[Engine, ...]:
    same = partial(layers.chosen, site.layer, range(site.layer.output.channels), site.zero, _moved(site.graph, site.node))
    return (blocks_engine(site.layer, places, cropped, same),)


def _coded_engines(site: _Site, op: ir.Coded) -> tuple[Engine, ...]:
    front, behind, window = _explicit_padding(site.layer, coded_window(op, site.layer.inputs[0]), 0)
    params = site.graph.params(site.node)
    if site.datapath in FLOATS:
        return (*front, float_engine(behind, window, op, params, site.datapath))
    rescale = coded_rescale(site.graph, site.node)
    compute = partial(coded, behind, op, [c.array for c in params], rescale, site.datapath)
    return (*front, layers.window_engine(behind, window, 0, compute))


def _product_engines(site: _Site, op: ir.Mul) -> tuple[Engine, ...]:
    zeros = (site.zero, scheme_of(site.graph, site.node.inputs[1]).zero)
    return _joining(site, layers.multiplied, zeros, site.rescale())


def _joined_engines(site: _Site, op: ir.Add | ir.Clip | ir.Concat | ir.Reduce) -> tuple[Engine, ...]:
    inputs = site.layer.inputs
    return _joining(site, weighted, *_of_words(joined(site.graph, site.node, inputs), inputs))


def _joining(site: _Site, compute: Callable[..., layers.Computed], *constants: Any) -> tuple[Engine, ...]:
    """The engine that computes something of one beat of every input."""
    return (layers.join_engine(site.layer, partial(compute, site.layer, *constants)),)


ENGINES: dict[type[ir.Op], Callable[[_Site, Any], tuple[Engine, ...]]] = {
    ir.Add: _joined_engines, ir.AvgPool: _average_engines, ir.Clip: _joined_engines, ir.Coded: _coded_engines,
    ir.Concat: _joined_engines,
    ir.Conv: lambda site, op: _windowed(site.layer, op.window, site.zero,
                                        *_filters_of(site.graph, site.node, _conv_matrix(site, op))),
    ir.Gemm: _gemm_engines,
    ir.GlobalAvgPool: lambda site, op: (layers.global_average_engine(
        site.layer, requantizer(site.graph, site.node).zeros[0], site.rescale()),),
    ir.Lookup: lambda site, op: _joining(site, layers.looked_up, site.rows(site.layer.output.fields), op.lo),
    ir.MaxPool: lambda site, op: _windowed(site.layer, op.window, site.layer.inputs[0].lo, None, [site.zero], site.rescale()),
    ir.Mul: _product_engines, ir.PixelShuffle: _shuffle_engines, ir.Reduce: _joined_engines,
    ir.Select: lambda site, op: _joining(site, layers.chosen, op.indices, site.zero, _moved(site.graph, site.node)),
    ir.Thresholds: lambda site, op: _joining(site, stepped, site.rows(site.layer.output.channels)),
    ir.Upsample: _repeat_engines,
}
"""The engines of each operator that has any, mapped directly."""


def _engines_of(kind: type[ir.Op]) -> Callable[[_Site, Any], tuple[Engine, ...]] | None:
    """How the engines of an operator are made, by us or by a plug-in; None where there are none."""
    if kind in ENGINES:
        return ENGINES[kind]
    found: plugins.EnginePlugin | None = plugins.by_kind("engines", kind)
    return None if found is None else found.build


def reason_unsupported(graph: Graph, node: Node, formats: Formats) -> str | None:
    """Why a node cannot be mapped, in one sentence; None if it can."""
    if graph.shape(node.output)[0] != 1:
        return f"{node.name}: batch size {graph.shape(node.output)[0]}; hardware takes one frame at a time"
    for tensor in (*node.inputs, node.output):
        if tensor not in formats:
            shape = "x".join(map(str, graph.shape(tensor)))
            return f"{node.name}: tensor {tensor} ({shape}) has no pixel stream; N,C,H,W, N,C and their flattening have one"
    if not node.op.still and _engines_of(type(node.op)) is None:
        return f"{node.name}: no engine for {node.op.kind}"
    found = _reason(graph, node, [formats[t] for t in node.inputs])
    return None if found is None else f"{node.name}: {found}"


def _reason(graph: Graph, node: Node, inputs: list[Format]) -> str | None:
    """What an operator's engine cannot do; those of most do everything."""
    flat = len(graph.shape(node.output)) == 2 and inputs[0].beats > 1
    match node.op:
        case ir.AvgPool() if constant_divisor(graph, node) is None:
            return "the average divides by a count that depends on the position; count the padding instead"
        case ir.Select() if flat:
            return "chooses from a flattened map, whose features are not channels of one beat"
        case ir.Lookup(per_channel=True) if flat:
            return "a table per feature of a flattened map; look up before flattening"
        case ir.MaxPool(window) if not Raster(window, inputs[0].height, inputs[0].width).every_window_sees:
            return "a window lies in the padding alone and has no largest value; shrink the padding"
        case ir.Add() | ir.Mul() | ir.Reduce() | ir.Concat():
            return _join_reason(node, inputs, flat)
    return None


def _join_reason(node: Node, inputs: list[Format], flat: bool) -> str | None:
    op = node.op
    sizes = {(f.height, f.width) for f in inputs} - ({(1, 1)} if op.broadcasts else set())  # one value per channel is kept
    if len(sizes) > 1:
        return f"inputs stream {[f'{f.height}x{f.width}' for f in inputs]} pixels; they must agree"
    if isinstance(op, ir.Concat):
        if op.axis != 1:
            return f"joins along axis {op.axis}; only channels (axis 1) lie side by side in a beat"
        return "joins flattened maps, whose features are not channels of one beat" if flat else None
    if op.multiplies and 1 in {f.channels for f in inputs}:
        return None
    if len({f.channels for f in inputs}) != 1:
        return f"inputs stream {[f.channels for f in inputs]} channels; they must agree"
    return "bias per feature of a flattened map; reduce before flattening" if flat and node.params else None


def word_fields(graph: Graph, node: Node, inputs: tuple[Format, ...], output: Format,
                fold: Fold | None) -> tuple[int, int] | None:
    """Channels per beat that a node without choice takes and leaves, 0 for whole pixels; None where any number will do.

    Words share their hardware, so all channels must be treated alike; direct mapping treats each by itself.
    """
    if fold is not None and node.op.layer:
        loops = Loops(channels_of(node.op.layer, inputs[0].channels, output.channels), fold)
        return loops.input_width, loops.output_width
    return None if _treats_alike(graph, node, inputs) else (0, 0)


def _treats_alike(graph: Graph, node: Node, inputs: tuple[Format, ...]) -> bool:
    """Whether an operator does the same to every channel by itself."""
    match node.op:
        case ir.Add() | ir.Clip():
            matrix, bias, rescale = joined(graph, node, inputs)
            factors = [np.diagonal(matrix, i * len(matrix)) for i in range(len(inputs))]
            return _uniform(rescale) and len(set(bias)) == 1 and all(len(np.unique(f)) == 1 for f in factors)
        case ir.Lookup():
            return not node.op.per_channel
        case ir.Mul():
            return len({f.channels for f in inputs}) == 1 and _uniform(_rescale(graph, node))
        case ir.AvgPool() | ir.MaxPool() | ir.GlobalAvgPool():
            return _uniform(_rescale(graph, node))
        case _:
            return False


def _uniform(rescale: Rescale) -> bool:
    return rescale.scales is None or (len(set(rescale.scales)) == 1 and len(set(rescale.nudges)) <= 1)


def _of_words(of_pixel: tuple[IntMatrix, list[int], Rescale], inputs: tuple[Format, ...]) -> tuple[IntMatrix, list[int], Rescale]:
    """The rows of a beat's channels, where all channels are alike."""
    matrix, bias, rescale = of_pixel
    fields, channels = inputs[0].fields, inputs[0].channels
    if fields == channels:
        return of_pixel
    columns = np.concatenate([i * channels + np.arange(fields) for i in range(len(inputs))])
    return matrix[:fields, columns], bias[:fields], rescale


def _windowed(layer: MappedLayer, window: Window, fill: int, matrix: IntMatrix | None, bias: Sequence[int],
              rescale: Rescale) -> tuple[Engine, ...]:
    """A window engine, behind explicit padding where masks cannot express it; without a matrix, the maximum less bias[0]."""
    front, layer, window = _explicit_padding(layer, window, fill)
    compute = (partial(layers.largest, layer, bias[0], rescale) if matrix is None
               else partial(weighted, layer, matrix, bias, rescale))
    made = layers.window_engine if layer.output.at_once is None else layers.pool_engine
    return (*front, made(layer, window, fill, compute))


def _explicit_padding(layer: MappedLayer, window: Window, fill: int) -> tuple[tuple[Engine, ...], MappedLayer, Window]:
    """An engine that inserts padding where masks cannot express it, with the layer and window that remain behind it."""
    (form,) = layer.inputs
    if Raster(window, form.height, form.width).masks_suffice:
        return (), layer, window
    top, left, bottom, right = window.pads
    wide = replace(form, lo=min(form.lo, fill), hi=max(form.hi, fill), height=form.height + top + bottom,
                   width=form.width + left + right)
    heading = (f"Padding before {layer.label}: {','.join(map(str, window.pads))} of {fill}", f"{form} -> {wide}.")
    front = layers.pad_engine(MappedLayer(f"{layer.module}_pad", layer.label, heading, (form,), wide), window.pads, fill)
    return (front,), replace(layer, inputs=(wide,)), replace(window, pads=(0, 0, 0, 0))


def _folded(graph: Graph, node: Node, inputs: tuple[Format, ...], output: Format, module: str, label: str,
            fold: Fold, loaded: bool) -> tuple[Engine, ...]:
    """A layer whose weights are in memory."""
    op = node.op.layer
    if op is None:
        raise UnsupportedError(f"{node.name}: a fold for {node.op.kind}; only Conv and Gemm have multipliers to share")
    (form,), zero = inputs, scheme_of(graph, node.inputs[0]).zero
    loops = Loops(channels_of(op, form.channels, output.channels), fold)
    head = (f"{node.op.kind} {node.name}: {node.op.attributes()}", f"{form} -> {output}; {loops.clocks} clocks per output pixel.")
    window = op.window or Window((form.height, form.width))
    front, layer, inner = _explicit_padding(MappedLayer(module, label, head, (form,), output), window, zero)
    if isinstance(node.op, ir.Coded):
        codes = coded_filters(node.op, graph.params(node), window, coded_rescale(graph, node), form, loaded)
        return (*front, folded_coded_engine(layer, inner, codes, loops))
    return (*front, folded_engine(layer, inner, zero, stored_filters(graph, node, loops, window), loops))


def coded_rescale(graph: Graph, node: Node) -> Rescale | None:
    """How a layer of codes rounds its sums; None where thresholds turn them into codes."""
    return None if node.op.code_bits else _rescale(graph, node)


def _conv_matrix(site: _Site, op: ir.Conv) -> IntMatrix:
    """Weights as (filters, channels * kernel), zero outside each filter's group."""
    weight, groups = site.constant(), op.groups
    full = np.zeros((groups, op.filters // groups, groups, *weight.shape[1:]), dtype=np.int64)
    each = np.arange(groups)
    full[each, :, each] = weight.reshape(groups, -1, *weight.shape[1:])
    return full.reshape(op.filters, -1)


def stored_filters(graph: Graph, node: Node, loops: Loops, window: Window) -> Filters:
    """The filters of a layer whose weights are in memory."""
    stored = graph.params(node)[0].array.astype(np.int64)
    weights = stored.reshape(len(stored), loops.channels.inputs, *window.kernel)
    matrix, bias, rescale = _filters_of(graph, node, weights.reshape(len(weights), -1))
    return Filters(matrix.reshape(weights.shape), bias, rescale)


def _filters_of(graph: Graph, node: Node, matrix: IntMatrix) -> tuple[IntMatrix, list[int], Rescale]:
    """Weights, bias and rescaling; the input's zero point goes into the bias, since padding streams as that code too."""
    bias = graph.constants[node.params[1]].array if len(node.params) > 1 else np.zeros(len(matrix), dtype=np.int64)
    lift = matrix.sum(axis=1) * scheme_of(graph, node.inputs[0]).zero
    whole, source = [int(b) - int(z) for b, z in zip(bias, lift, strict=True)], scheme_of(graph, node.inputs[0])
    matrix, whole, rescale = settled(matrix, whole, (source.lo, source.hi), _rescale(graph, node))
    furthest = np.abs(matrix).sum(axis=1) * max(-source.lo, source.hi)
    return matrix, whole, narrowed(rescale, [int(f) + abs(b) for f, b in zip(furthest, whole, strict=True)])


def _rescale(graph: Graph, node: Node) -> Rescale:
    """How a node's accumulator becomes its stored output."""
    scheme, channels = scheme_of(graph, node.output), graph.shape(node.output)[1]
    if scheme.bits == 32:
        return Rescale(1, None, (scheme.lo, scheme.hi))
    how, divisor = requantizer(graph, node), constant_divisor(graph, node)
    assert divisor is not None
    return Rescale(divisor, how.per_channel(channels), integer_bounds(node.op.bounds, scheme), how.zero, how.nudges_of(channels))


def _moved(graph: Graph, node: Node) -> Rescale | None:
    """How what is moved is rescaled: not at all where its scheme stays."""
    return None if scheme_of(graph, node.inputs[0]) == scheme_of(graph, node.output) else _rescale(graph, node)


def joined(graph: Graph, node: Node, inputs: tuple[Format, ...]) -> tuple[IntMatrix, list[int], Rescale]:
    """Elementwise operators as a matrix over the channels of all inputs, with the factors that align their scales."""
    how = requantizer(graph, node)
    factors = [np.broadcast_to(np.asarray(factor, dtype=np.int64), (form.channels,))
               for factor, form in zip(how.factors, inputs, strict=True)]
    matrix = np.diag(np.concatenate(factors)) if node.op.joins else np.concatenate([np.diag(f) for f in factors], axis=1)
    zeros = np.concatenate([np.full(form.channels, zero) for zero, form in zip(how.zeros, inputs, strict=True)])
    stored = graph.constants[node.params[0]].array if node.params else np.zeros(len(matrix), dtype=np.int64)
    bias = [int(b) for b in stored.astype(np.int64) - matrix @ zeros]
    scheme = scheme_of(graph, node.output)
    scales = None if scheme.bits == 32 else how.per_channel(len(matrix))
    return matrix, bias, Rescale(1, scales, integer_bounds(node.op.bounds, scheme), how.zero, how.nudges_of(len(matrix)))
