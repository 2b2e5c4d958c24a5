"""A quantized graph seen as streams: engines of its nodes, engines that cut pixels anew between them, who takes which stream."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import gcd

import numpy as np

from dovetail.cost.firb import Bottleneck, bottlenecks
from dovetail.errors import UnsupportedError, UsageError
from dovetail.fpga import mapping
from dovetail.fpga.engines import firb, layers
from dovetail.fpga.engines.layers import LEAST_SUMMED_WORDS, MappedLayer, weighted
from dovetail.fpga.engines.lq import Datapath
from dovetail.fpga.engines.regroup import regroup_engine
from dovetail.fpga.engines.stream import Engine, Format
from dovetail.fpga.mapping import identifiers, joined, scheme_of, stored_filters, stream_formats
from dovetail.hardware.folds import Fold, Loops, channels_of
from dovetail.ir import Graph, Node

LEAST_AVERAGED = 8
"""Channels at once below which an average hardly gets smaller."""


@dataclass(frozen=True, slots=True)
class Taker:
    """One reader of a stream: input `index` of a station, or graph output `index`."""

    station: Station | None
    index: int


@dataclass(frozen=True, slots=True)
class Station:
    """What stands between streams: the engines of a node in stream order, or one that cuts a stream's pixels anew."""

    name: str
    label: str
    """Verilog identifier."""
    inputs: tuple[str, ...]
    """Streams: tensors, or tensors in words of another size."""
    output: str
    engines: tuple[Engine, ...]


@dataclass(frozen=True, slots=True)
class StreamNetwork:
    """A graph seen as streams: relabelled tensors resolved, engines made in the order of the data, takers listed."""

    inputs: tuple[str, ...]
    """Streams of the graph's inputs, in its order; so are the outputs."""
    outputs: tuple[str, ...]
    stations: tuple[Station, ...]
    formats: dict[str, Format]
    takers: dict[str, tuple[Taker, ...]]
    labels: dict[str, str]
    """Verilog identifiers of streams."""
    words: dict[str, int]
    """Channels per beat of nodes that would take any number, where it is not all of them."""

    def producer(self, stream: str) -> Station | None:
        return next((s for s in self.stations if s.output == stream), None)


class _Builder:
    """Stations under construction; a stream cut anew is named after its tensor and the channels of its beats."""

    def __init__(self, graph: Graph, name: str, labels: Mapping[str, str] | None, folds: Mapping[str, Fold],
                 words: Mapping[str, int], datapath: Datapath, loaded: Collection[str]) -> None:
        self.graph, self.name, self.folds, self.words, self.datapath, self.loaded = graph, name, folds, words, datapath, loaded
        self.labels = dict(labels or identifiers(n.name for n in graph.nodes))
        self.pixels = stream_formats(graph)
        self.streams = {t: self.pixels[t] for t in graph.inputs if t in self.pixels}  # those without a stream are refused
        self.names = identifiers(graph.tensors)
        self.stations: list[Station] = []
        self.chosen: dict[str, int] = {}

    def root(self, tensor: str) -> str:
        """The tensor whose stream this one is; reshapes are wiring."""
        node = self.graph.producer(tensor)
        return self.root(node.inputs[0]) if node is not None and node.op.still else tensor

    def in_words(self, tensor: str, fields: int) -> str:
        """The stream of a tensor in beats of so many channels, cut anew if it is not."""
        form = self.streams[tensor]
        if form.fields == fields:
            return tensor
        stream = f"{tensor} by {fields}"
        if stream not in self.streams:
            label = f"words_{self.names[tensor]}_{fields}"
            engine = regroup_engine(f"{self.name}_{label}", label, form, fields)
            self.stations.append(Station(stream, label, (tensor,), stream, (engine,)))
            self.streams[stream], self.names[stream] = engine.output, label
        return stream

    def add(self, node: Node) -> None:
        roots = [self.root(t) for t in node.inputs]
        whole = tuple(self.pixels[t] for t in node.inputs)
        output, fold = self.pixels[node.output], self.folds.get(node.name)
        fields = mapping.word_fields(self.graph, node, whole, output, fold)
        if fields is None:
            fields = (self.any_fields(node, roots),) * 2
        elif node.op.joins:
            fields = (self.concat_fields(node, roots),) * 2
        streams = tuple(self.in_words(r, fields[0] or form.channels) for r, form in zip(roots, whole, strict=True))
        taken = tuple(form.in_words(fields[0] or form.channels) for form in whole)
        self.streams[node.output] = output.in_words(fields[1] or output.channels)
        label = self.labels[node.name]
        module = f"{self.name}_{label}"
        if node.op.joins and fields[1]:
            made: tuple[Engine, ...] = (_concat_of(self.graph, node, taken, self.streams[node.output], module, label),)
        else:
            made = mapping.engines(self.graph, node, taken, self.streams[node.output], module, label, fold, self.datapath,
                           node.name in self.loaded)
        self.stations.append(Station(node.name, label, streams, node.output, made))

    def fuse(self, block: Bottleneck) -> None:
        """One station for a whole inverted residual."""
        last, (entry,) = block.join or block.project, block.expand.inputs
        label = self.labels[last.name]
        engine = _firb_of(self.graph, block, self.folds, self.pixels, f"{self.name}_{label}", label)
        self.streams[last.output] = engine.output
        stream = self.in_words(self.root(entry), engine.inputs[0].fields)
        self.stations.append(Station(last.name, label, (stream,), last.output, (engine,)))

    def concat_fields(self, node: Node, roots: list[str]) -> int:
        """Channels per beat of a concatenation, 0 for whole pixels."""
        whole = tuple(self.pixels[t] for t in node.inputs)
        fields = self.words.get(node.name) or _concat_words(self.graph, node, whole, [self.streams[r].words for r in roots])
        if fields:
            self.chosen[node.name] = fields
        return fields

    def any_fields(self, node: Node, roots: list[str]) -> int:
        """Channels per beat of a node that takes any number: the fewest that arrive, which keeps the pace of those."""
        fewest = self.words.get(node.name) or min(self.streams[r].fields for r in roots)
        whole = node.op.averages and not node.op.window
        if whole and node.name not in self.words:
            fewest = min(fewest, self.averaged_fields(roots[0]))
        words = self.pixels[node.inputs[0]].in_words(fewest).words
        if words == 1 or (whole and words < LEAST_SUMMED_WORDS):
            return 0
        self.chosen[node.name] = fewest
        return fewest

    def averaged_fields(self, tensor: str) -> int:
        """Channels at once with which an average keeps up with a folded layer that leaves more of them, but seldom."""
        node, channels = self.graph.producer(tensor), self.pixels[tensor].channels
        fold = None if node is None else self.folds.get(node.name)
        if node is None or fold is None or not (node.op.product and node.op.window):
            return channels
        loops = Loops(channels_of(node.op.product, self.graph.shape(node.inputs[0])[1], channels), fold)
        return max(LEAST_AVERAGED, -(-2 * channels // loops.clocks))


def make_network(graph: Graph, name: str, labels: Mapping[str, str] | None = None, folds: Mapping[str, Fold] | None = None,
                 words: Mapping[str, int] | None = None, leaving: int | None = None,
                 datapath: Datapath = Datapath.POPCOUNT, fused: Collection[str] = (),
                 loaded: Collection[str] = ()) -> StreamNetwork:
    """The network of a graph; `words` are channels per beat of nodes that take any number, else they follow the streams.

    Outputs leave as whole pixels, or in beats of `leaving` channels. Depthwise nodes in `fused` are the middle of an inverted
    residual that is one engine. Folded layers of codes in `loaded` get their weights by a stream.
    """
    built = _Builder(graph, name, labels, folds or {}, words or {}, datapath, loaded)
    for absent in sorted(set(loaded) - {n.name for n in graph.nodes if n.op.coded and n.name in built.folds}):
        raise UsageError(f"design {name}: loaded weights for {absent}, which is no folded layer of codes; give it a fold")
    for node in graph.nodes:
        if reason := mapping.reason_unsupported(graph, node, built.pixels):
            raise UnsupportedError(f"design {name}: {reason}; place it on another device")
    blocks = {(b.join or b.project).name: b for b in bottlenecks(graph) if b.depthwise.name in fused} if fused else {}
    inside = {n.name for b in blocks.values() for n in (*b.layers, b.join) if n is not None} - set(blocks)
    for node in graph.nodes:
        if node.name in blocks:
            built.fuse(blocks[node.name])
        elif not node.op.still and node.name not in inside:
            built.add(node)
    outputs = [built.root(t) for t in graph.outputs]
    outputs = [built.in_words(t, leaving or built.streams[t].channels) for t in outputs]
    takers: dict[str, list[Taker]] = {t: [] for t in built.streams}
    for station in built.stations:
        for index, stream in enumerate(station.inputs):
            takers[stream].append(Taker(station, index))
    for index, stream in enumerate(outputs):
        takers[stream].append(Taker(None, index))
    return StreamNetwork(graph.inputs, tuple(outputs), tuple(built.stations), built.streams,
                         {s: tuple(found) for s, found in takers.items()}, built.names, built.chosen)


def _concat_words(graph: Graph, node: Node, inputs: tuple[Format, ...], arriving: Sequence[int]) -> int:
    """Channels per beat of a concatenation, where the channels of each input are treated alike; 0 for whole pixels.

    As few as leave it no slower than the input that comes in most beats per pixel (`arriving`), and such that no word has
    channels of two inputs.
    """
    matrix, bias, rescale = joined(graph, node, inputs)
    factors, at = np.diagonal(matrix), 0
    for form in inputs:
        if len({(int(factors[c]), bias[c]) for c in range(at, at + form.channels)}) > 1:
            return 0
        at += form.channels
    if len(inputs) < 2 or (rescale.scales is not None and len(set(rescale.scales)) > 1):
        return 0
    common = gcd(*(form.channels for form in inputs[:-1]))
    dividing = [fields for fields in range(1, min(common, inputs[-1].channels) + 1) if common % fields == 0]
    return next((f for f in dividing if sum(-(-form.channels // f) for form in inputs) <= max(arriving)), 0)


def _concat_of(graph: Graph, node: Node, inputs: tuple[Format, ...], output: Format, module: str, label: str) -> Engine:
    """The engine of a concatenation in words that `_concat_words` allows."""
    heading = (f"Concat {node.name}", f"{' + '.join(map(str, inputs))} -> {output}; {output.fields} channels per clock.")
    layer = MappedLayer(module, label, heading, inputs, output)
    (matrix, bias, rescale), at, found = joined(graph, node, inputs), 0, []
    for index, form in enumerate(inputs):
        one = np.eye(form.fields, dtype=np.int64) * matrix[at, at]
        named = replace(layer, label=f"{label}_in{index}")
        found.append(partial(weighted, named, one, [bias[at]] * form.fields, rescale))
        at += form.channels
    return layers.concat_engine(layer, found)


def _firb_of(graph: Graph, block: Bottleneck, folds: Mapping[str, Fold], forms: Mapping[str, Format], module: str,
             label: str) -> Engine:
    """The engine of a bottleneck whose folds share their words (`cost.firb.firb_options`)."""
    fold = [folds[node.name] for node in block.layers]
    shared, last = fold[0].outputs, block.join or block.project
    if fold[1].sizes[:3] != (shared, 1, 1) or fold[2].inputs != shared or fold[0].groups != 1:
        raise UnsupportedError(f"{block.depthwise.name}: folds {fold[0]}, {fold[1]} and {fold[2]} do not share words of "
                               f"{shared} channels; take those of `firb_options`")
    assert block.depthwise.op.window is not None
    entry, wide, thin = (forms[n.inputs[0]] for n in block.layers)
    taken = entry.in_words(fold[0].inputs)
    middle, filtered, whole = wide.in_words(shared), thin.in_words(shared), forms[block.project.output]
    heading = (f"Inverted residual {', '.join(n.name for n in block.layers)}{' + ' + block.join.name if block.join else ''}",
               f"{taken} -> {forms[last.output]}; {shared} expanded channels at once.")
    layer = MappedLayer(module, label, heading, (taken,), forms[last.output])
    expand = _bottleneck_layer(graph, block.expand, fold[0], f"{module}_expand", taken, middle)
    depthwise = _bottleneck_layer(graph, block.depthwise, fold[1], f"{module}_depthwise", middle, filtered)
    project = _bottleneck_layer(graph, block.project, fold[2], f"{module}_project", filtered, whole)
    if project.loops.passes > expand.loops.slices:
        raise UnsupportedError(f"{block.depthwise.name}: {project.loops.passes} passes over a word of fold {fold[2]}; the fold "
                               f"{fold[0]} has a word ready every {expand.loops.slices} clocks, so take no more")
    join, own_first = None, True
    if block.join is not None:
        matrix, bias, rescale = joined(graph, block.join, (whole, whole))
        join = partial(weighted, replace(layer, label=f"{label}_sum"), matrix, bias, rescale)
        own_first = block.join.inputs[0] == block.project.output
    made = firb.BottleneckParts(expand, depthwise, project, block.depthwise.op.window, join, own_first)
    if not made.raster.masks_suffice:
        raise UnsupportedError(f"{block.depthwise.name}: padding beyond the kernel; an inverted residual engine masks taps")
    return firb.firb_engine(layer, made)


def _bottleneck_layer(graph: Graph, node: Node, fold: Fold, module: str, source: Format, target: Format) -> firb.BottleneckLayer:
    """One of a bottleneck's three layers."""
    op = node.op.product
    assert op is not None
    assert op.window is not None
    loops = Loops(channels_of(op, source.channels, target.channels), fold)
    return firb.BottleneckLayer(MappedLayer(module, "y", (), (source,), target), stored_filters(graph, node, loops, op.window),
                                loops, scheme_of(graph, node.inputs[0]).zero)
