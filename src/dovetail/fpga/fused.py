"""Inverted residual bottlenecks of a graph as engines of their own (engines/firb.py)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dovetail.cost.firb import Bottleneck
from dovetail.errors import UnsupportedError
from dovetail.fpga.engines import firb
from dovetail.fpga.engines.folded import Filters
from dovetail.fpga.engines.layers import MappedLayer, weighted
from dovetail.fpga.engines.stream import Engine, Format
from dovetail.fpga.mapping import filters_of, joined, scheme_of
from dovetail.hardware.folds import Fold, Loops, channels_of
from dovetail.ir import Graph, Node


def firb_of(graph: Graph, block: Bottleneck, folds: dict[str, Fold], forms: dict[str, Format], module: str, label: str) -> Engine:
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
    expand = _part(graph, block.expand, fold[0], f"{module}_expand", taken, middle)
    depthwise = _part(graph, block.depthwise, fold[1], f"{module}_depthwise", middle, filtered)
    project = _part(graph, block.project, fold[2], f"{module}_project", filtered, whole)
    if project.loops.passes > expand.loops.slices:
        raise UnsupportedError(f"{block.depthwise.name}: {project.loops.passes} passes over a word of fold {fold[2]}; the fold "
                               f"{fold[0]} has a word ready every {expand.loops.slices} clocks, so take no more")
    join, own_first = None, True
    if block.join is not None:
        matrix, bias, rescale = joined(graph, block.join, (whole, whole))
        join = weighted(replace(layer, label=f"{label}_sum"), matrix, bias, rescale)
        own_first = block.join.inputs[0] == block.project.output
    made = firb.BottleneckParts(expand, depthwise, project, block.depthwise.op.window, join, own_first)
    if not made.raster.masks_suffice:
        raise UnsupportedError(f"{block.depthwise.name}: padding beyond the kernel; an inverted residual engine masks taps")
    return firb.firb_engine(layer, made)


def _part(graph: Graph, node: Node, fold: Fold, module: str, source: Format, target: Format) -> firb.BottleneckLayer:
    op = node.op.product
    assert op is not None
    assert op.window is not None
    loops = Loops(channels_of(op, source.channels, target.channels), fold)
    stored = graph.constants[node.params[0]].array.astype(np.int64)
    weights = stored.reshape(target.channels, loops.channels.inputs, *op.window.kernel)
    _, bias, rescale = filters_of(graph, node, weights.reshape(len(weights), -1))
    return firb.BottleneckLayer(MappedLayer(module, "y", (), (source,), target), Filters(weights, bias, rescale), loops,
                                scheme_of(graph, node.inputs[0]).zero)
