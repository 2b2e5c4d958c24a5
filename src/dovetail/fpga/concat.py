"""Concatenations between folded layers: which words they can work on, and their engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import gcd

import numpy as np

from dovetail.fpga.engines.concat import concat_engine
from dovetail.fpga.engines.layers import MappedLayer, weighted
from dovetail.fpga.engines.stream import Engine, Format
from dovetail.fpga.mapping import joined
from dovetail.ir import Graph, Node


def concat_words(graph: Graph, node: Node, inputs: tuple[Format, ...], arriving: Sequence[int]) -> int:
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


def concat_of(graph: Graph, node: Node, inputs: tuple[Format, ...], output: Format, module: str, label: str) -> Engine:
    """The engine of a concatenation in words that `concat_words` allows."""
    heading = (f"Concat {node.name}", f"{' + '.join(map(str, inputs))} -> {output}; {output.fields} channels per clock.")
    layer = MappedLayer(module, label, heading, inputs, output)
    (matrix, bias, rescale), at, found = joined(graph, node, inputs), 0, []
    for index, form in enumerate(inputs):
        one = np.eye(form.fields, dtype=np.int64) * matrix[at, at]
        found.append(weighted(replace(layer, label=f"{label}_in{index}"), one, [bias[at]] * form.fields, rescale))
        at += form.channels
    return concat_engine(layer, found)
