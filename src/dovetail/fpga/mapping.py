"""From graph nodes to engines: stream formats of tensors, what can be mapped, and the engines of each operator."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from dovetail.errors import UnsupportedError
from dovetail.fpga.engines.coded_lane import coded_filters
from dovetail.fpga.engines.direct_coded import direct_coded_engine
from dovetail.fpga.engines.folded import Filters, folded_engine
from dovetail.fpga.engines.folded_coded import folded_coded_engine
from dovetail.fpga.engines.layers import (
    Layer,
    Rescale,
    chosen,
    global_average_engine,
    join_engine,
    largest,
    pad_engine,
    padded,
    weighted,
    window_engine,
)
from dovetail.fpga.engines.lq import Datapath, coded_window, stepped
from dovetail.fpga.engines.pointwise import looked_up, multiplied
from dovetail.fpga.engines.pool import pool_engine
from dovetail.fpga.engines.repeat import repeat_engine
from dovetail.fpga.engines.stream import Engine, Format
from dovetail.hardware.adders.graph import IntMatrix
from dovetail.hardware.folds import Fold, Loops, channels_of
from dovetail.hardware.streaming import Raster
from dovetail.ir import (
    Add,
    AvgPool,
    Clip,
    Coded,
    Concat,
    Conv,
    Gemm,
    GlobalAvgPool,
    Graph,
    Lookup,
    MaxPool,
    Mul,
    Node,
    Reduce,
    Reshape,
    Scheme,
    Select,
    Thresholds,
    Upsample,
    Window,
)
from dovetail.numerics.fixed import integer_bounds
from dovetail.numerics.ranges import stored_ranges
from dovetail.numerics.requantize import requantizer

Formats = Mapping[str, Format]

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
        if isinstance(node, Node) and isinstance(node.op, Reshape):
            source = formats.get(node.inputs[0])
            if source is not None and flattens(source, shape):
                formats[tensor] = source
            continue
        if shape[0] != 1 or len(shape) not in (2, 4):
            continue
        size = maps.get(tensor, (shape[1], 1, 1)) if node is None and len(shape) == 2 else (*shape[1:], 1, 1)[:3]
        if node is not None and len(shape) == 2 and not isinstance(node.op, Gemm | Coded | Concat | Select):
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
        if isinstance(node.op, Reshape) and {len(source), len(target)} == {2, 4}:
            maps.setdefault(node.inputs[0] if len(source) == 2 else node.output, max(source, target, key=len)[1:])
        elif len(target) == 2 and isinstance(node.op, Add | Clip | Lookup | Mul | Reshape):
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


def reason_unsupported(graph: Graph, node: Node, formats: Formats) -> str | None:
    """Why a node cannot be mapped, in one sentence; None if it can."""
    if graph.shape(node.output)[0] != 1:
        return f"{node.name}: batch size {graph.shape(node.output)[0]}; hardware takes one frame at a time"
    for tensor in (*node.inputs, node.output):
        if tensor not in formats:
            shape = "x".join(map(str, graph.shape(tensor)))
            return f"{node.name}: tensor {tensor} ({shape}) has no pixel stream; N,C,H,W, N,C and their flattening have one"
    inputs = [formats[t] for t in node.inputs]
    match node.op:
        case Conv() | Gemm() | Coded() | Thresholds() | GlobalAvgPool() | Clip() | Reshape() | Upsample():
            return None
        case MaxPool():
            return _max_pool_reason(node.op, node.name, inputs[0])
        case AvgPool():
            if _divisor(graph, node) is None:
                return f"{node.name}: the average divides by a count that depends on the position; count the padding instead"
            return None
        case Select():
            flat = len(graph.shape(node.output)) == 2 and inputs[0].beats > 1
            return f"{node.name}: chooses from a flattened map, whose features are not channels of one beat" if flat else None
        case Add() | Mul() | Reduce() | Concat():
            return _join_reason(graph, node, inputs)
        case Lookup():
            flat = node.op.by_channel and len(graph.shape(node.output)) == 2 and inputs[0].beats > 1
            return f"{node.name}: a table per feature of a flattened map; look up before flattening" if flat else None
        case _:
            return f"{node.name}: no engine for {node.op.kind}"


def _max_pool_reason(op: MaxPool, name: str, form: Format) -> str | None:
    raster = Raster(op.window, form.height, form.width)
    for inside, count, taps in ((raster.row_inside, raster.output_size[0], op.window.kernel[0]),
                                (raster.column_inside, raster.output_size[1], op.window.kernel[1])):
        seen = np.zeros(count, dtype=bool)
        for tap in range(taps):
            seen[slice(*inside(tap))] = True
        if not seen.all():
            return f"{name}: a window lies in the padding alone and has no largest value; shrink the padding"
    return None


def _join_reason(graph: Graph, node: Node, inputs: list[Format]) -> str | None:
    if isinstance(node.op, Mul | Add) and {1} < {f.beats for f in inputs}:
        return f"{node.name}: one value per channel for a whole map; it waits for a whole frame, which streams cannot"
    if len({(f.height, f.width) for f in inputs}) != 1:
        return f"{node.name}: inputs stream {[f'{f.height}x{f.width}' for f in inputs]} pixels; they must agree"
    flat = len(graph.shape(node.output)) == 2 and inputs[0].beats > 1
    if isinstance(node.op, Concat):
        if node.op.axis != 1:
            return f"{node.name}: joins along axis {node.op.axis}; only channels (axis 1) lie side by side in a beat"
        return f"{node.name}: joins flattened maps, whose features are not channels of one beat" if flat else None
    if isinstance(node.op, Mul) and 1 in {f.channels for f in inputs}:
        return None
    if len({f.channels for f in inputs}) != 1:
        return f"{node.name}: inputs stream {[f.channels for f in inputs]} channels; they must agree"
    return f"{node.name}: bias per feature of a flattened map; reduce before flattening" if flat and node.params else None


def _divisor(graph: Graph, node: Node) -> int | None:
    """The constant count an average divides by; None if it depends on the position."""
    counts = np.unique(np.asarray(node.op.divisor(graph.input_shapes(node)), dtype=np.float64))
    return int(counts[0]) if counts.size == 1 else None


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
    layer = Layer(module, label, heading, inputs, output)
    zero = scheme_of(graph, node.inputs[0]).zero
    match node.op:
        case Conv():
            return _windowed(layer, node.op.window, zero, *filters_of(graph, node, _conv_matrix(graph, node)))
        case Gemm():
            matrix = graph.constants[node.params[0]].array.astype(np.int64)
            return _windowed(layer, Window((inputs[0].height, inputs[0].width)), zero, *filters_of(graph, node, matrix))
        case AvgPool():
            taps = node.op.window.kernel[0] * node.op.window.kernel[1]
            sums = np.repeat(np.eye(output.fields, dtype=np.int64), taps, axis=1)
            return _windowed(layer, node.op.window, zero, sums, [-zero * taps] * output.fields, _rescale(graph, node))
        case MaxPool():
            return _windowed(layer, node.op.window, inputs[0].lo, None, [zero], _rescale(graph, node))
        case GlobalAvgPool():
            return (global_average_engine(layer, zero, _rescale(graph, node)),)
        case Select(indices):
            return (join_engine(layer, chosen(layer, indices, zero, _moved(graph, node))),)
        case Upsample(rows, columns):
            return (repeat_engine(layer, rows, columns, chosen(layer, range(output.channels), zero, _moved(graph, node))),)
        case Lookup():
            table = graph.constants[node.params[0]].array.astype(np.int64)
            return (join_engine(layer, looked_up(layer, np.broadcast_to(table, (output.fields, table.shape[-1])), node.op.lo)),)
        case Coded():
            front, behind, window = _explicit_padding(layer, coded_window(node.op, inputs[0]), 0)
            how = coded_rescale(graph, node)
            return (*front, direct_coded_engine(behind, window, node.op, graph.params(node), how, datapath))
        case Thresholds():
            steps = graph.constants[node.params[0]].array.astype(np.int64)
            return (join_engine(layer, stepped(layer, np.broadcast_to(steps, (output.channels, steps.shape[-1])))),)
        case Mul():
            zeros = (zero, scheme_of(graph, node.inputs[1]).zero)
            return (join_engine(layer, multiplied(layer, zeros, _rescale(graph, node))),)
        case Add() | Clip() | Concat() | Reduce():
            return (join_engine(layer, weighted(layer, *_of_words(joined(graph, node, inputs), inputs))),)
        case _:
            raise UnsupportedError(f"{node.name}: no engine for {node.op.kind}; ask `unsupported` first")


def word_fields(graph: Graph, node: Node, inputs: tuple[Format, ...], output: Format,
                fold: Fold | None) -> tuple[int, int] | None:
    """Channels per beat that a node without choice takes and leaves, 0 for whole pixels; None where any number will do.

    Words share their hardware, so all channels must be treated alike; direct mapping treats each by itself.
    """
    body = node.op.body if isinstance(node.op, Coded) else node.op
    if fold is not None and isinstance(body, Conv | Gemm):
        loops = Loops(channels_of(body, inputs[0].channels, output.channels), fold)
        return loops.input_width, loops.output_width
    return None if _treats_alike(graph, node, inputs) else (0, 0)


def _treats_alike(graph: Graph, node: Node, inputs: tuple[Format, ...]) -> bool:
    """Whether an operator does the same to every channel by itself."""
    match node.op:
        case Add() | Clip():
            matrix, bias, rescale = joined(graph, node, inputs)
            factors = [np.diagonal(matrix, i * len(matrix)) for i in range(len(inputs))]
            return _uniform(rescale) and len(set(bias)) == 1 and all(len(np.unique(f)) == 1 for f in factors)
        case Lookup():
            return not node.op.by_channel
        case Mul():
            return len({f.channels for f in inputs}) == 1 and _uniform(_rescale(graph, node))
        case AvgPool() | MaxPool() | GlobalAvgPool():
            return _uniform(_rescale(graph, node))
        case _:
            return False


def _uniform(rescale: Rescale) -> bool:
    return rescale.scales is None or len(set(rescale.scales)) == 1


def _of_words(of_pixel: tuple[IntMatrix, list[int], Rescale], inputs: tuple[Format, ...]) -> tuple[IntMatrix, list[int], Rescale]:
    """The rows of a beat's channels, where all channels are alike."""
    matrix, bias, rescale = of_pixel
    fields, channels = inputs[0].fields, inputs[0].channels
    if fields == channels:
        return of_pixel
    columns = np.concatenate([i * channels + np.arange(fields) for i in range(len(inputs))])
    return matrix[:fields, columns], bias[:fields], rescale


def _windowed(layer: Layer, window: Window, fill: int, matrix: IntMatrix | None, bias: Sequence[int],
              rescale: Rescale) -> tuple[Engine, ...]:
    """A window engine, behind explicit padding where masks cannot express it; without a matrix, the maximum less bias[0]."""
    front, layer, window = _explicit_padding(layer, window, fill)
    compute = largest(layer, bias[0], rescale) if matrix is None else weighted(layer, matrix, bias, rescale)
    made = window_engine if layer.output.at_once is None else pool_engine
    return (*front, made(layer, window, fill, compute))


def _explicit_padding(layer: Layer, window: Window, fill: int) -> tuple[tuple[Engine, ...], Layer, Window]:
    """An engine that inserts padding where masks cannot express it, with the layer and window that remain behind it."""
    (form,) = layer.inputs
    if Raster(window, form.height, form.width).masks_suffice:
        return (), layer, window
    wide = padded(form, window.pads, fill)
    heading = (f"Padding before {layer.label}: {','.join(map(str, window.pads))} of {fill}", f"{form} -> {wide}.")
    front = pad_engine(Layer(f"{layer.module}_pad", layer.label, heading, (form,), wide), window.pads, fill)
    return (front,), replace(layer, inputs=(wide,)), replace(window, pads=(0, 0, 0, 0))


def _folded(graph: Graph, node: Node, inputs: tuple[Format, ...], output: Format, module: str, label: str,
            fold: Fold, loaded: bool) -> tuple[Engine, ...]:
    """A layer whose weights are in memory."""
    op = node.op.body if isinstance(node.op, Coded) else node.op
    if not isinstance(op, Conv | Gemm):
        raise UnsupportedError(f"{node.name}: a fold for {op.kind}; only Conv and Gemm have multipliers to share")
    (form,), zero = inputs, scheme_of(graph, node.inputs[0]).zero
    loops = Loops(channels_of(op, form.channels, output.channels), fold)
    head = (f"{node.op.kind} {node.name}: {node.op.attributes()}", f"{form} -> {output}; {loops.clocks} clocks per output pixel.")
    window = op.window if isinstance(op, Conv) else Window((form.height, form.width))
    front, layer, inner = _explicit_padding(Layer(module, label, head, (form,), output), window, zero)
    if isinstance(node.op, Coded):
        codes = coded_filters(node.op, graph.params(node), window, coded_rescale(graph, node), form, loaded)
        return (*front, folded_coded_engine(layer, inner, codes, loops))
    weights = graph.params(node)[0].array.astype(np.int64).reshape(output.channels, loops.channels.inputs, *window.kernel)
    _, bias, rescale = filters_of(graph, node, weights.reshape(len(weights), -1))
    return (*front, folded_engine(layer, inner, zero, Filters(weights, bias, rescale), loops))


def coded_rescale(graph: Graph, node: Node) -> Rescale | None:
    """How a layer of codes rounds its sums; None where thresholds turn them into codes."""
    assert isinstance(node.op, Coded)
    return None if node.op.output_bits else _rescale(graph, node)


def _conv_matrix(graph: Graph, node: Node) -> IntMatrix:
    """Weights as (filters, channels * kernel), zero outside each filter's group."""
    assert isinstance(node.op, Conv)
    weight = graph.constants[node.params[0]].array.astype(np.int64)
    channels, groups = graph.shape(node.inputs[0])[1], node.op.groups
    full = np.zeros((node.op.filters, channels, *weight.shape[2:]), dtype=np.int64)
    filters, reads = node.op.filters // groups, channels // groups
    for g in range(groups):
        full[g * filters:(g + 1) * filters, g * reads:(g + 1) * reads] = weight[g * filters:(g + 1) * filters]
    return full.reshape(node.op.filters, -1)


def filters_of(graph: Graph, node: Node, matrix: IntMatrix) -> tuple[IntMatrix, list[int], Rescale]:
    """Weights, bias and rescaling; the input's zero point goes into the bias, since padding streams as that code too."""
    bias = graph.constants[node.params[1]].array if len(node.params) > 1 else np.zeros(len(matrix), dtype=np.int64)
    lift = matrix.sum(axis=1) * scheme_of(graph, node.inputs[0]).zero
    return matrix, [int(b) - int(z) for b, z in zip(bias, lift, strict=True)], _rescale(graph, node)


def _rescale(graph: Graph, node: Node) -> Rescale:
    """How a node's accumulator becomes its stored output."""
    scheme, channels = scheme_of(graph, node.output), graph.shape(node.output)[1]
    if scheme.bits == 32:
        return Rescale(1, None, (scheme.lo, scheme.hi))
    how, divisor = requantizer(graph, node), _divisor(graph, node)
    assert divisor is not None
    return Rescale(divisor, how.per_channel(channels), integer_bounds(node.op.bounds, scheme), how.zero)


def _moved(graph: Graph, node: Node) -> Rescale | None:
    """How what is moved is rescaled: not at all where its scheme stays."""
    return None if scheme_of(graph, node.inputs[0]) == scheme_of(graph, node.output) else _rescale(graph, node)


def joined(graph: Graph, node: Node, inputs: tuple[Format, ...]) -> tuple[IntMatrix, list[int], Rescale]:
    """Elementwise operators as a matrix over the channels of all inputs, with the factors that align their scales."""
    how = requantizer(graph, node)
    blocks = [np.diag(np.broadcast_to(np.asarray(factor, dtype=np.int64), (form.channels,)))
              for factor, form in zip(how.factors, inputs, strict=True)]
    if isinstance(node.op, Concat):
        total = sum(len(b) for b in blocks)
        matrix = np.zeros((total, total), dtype=np.int64)
        at = 0
        for block in blocks:
            matrix[at:at + len(block), at:at + len(block)] = block
            at += len(block)
    else:
        matrix = np.concatenate(blocks, axis=1)
    zeros = np.concatenate([np.full(form.channels, zero) for zero, form in zip(how.zeros, inputs, strict=True)])
    stored = graph.constants[node.params[0]].array if node.params else np.zeros(len(matrix), dtype=np.int64)
    bias = [int(b) for b in stored.astype(np.int64) - matrix @ zeros]
    scheme = scheme_of(graph, node.output)
    scales = None if scheme.bits == 32 else how.per_channel(len(matrix))
    return matrix, bias, Rescale(1, scales, integer_bounds(node.op.bounds, scheme), how.zero)
