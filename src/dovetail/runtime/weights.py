"""A build whose layers load their weights, with the weights of another model in them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import numpy as np

from dovetail.errors import UsageError
from dovetail.fpga.assemble import loaded_node
from dovetail.fpga.part import load_design
from dovetail.ir import Constant, Graph
from dovetail.ir.onnx.read import read_onnx
from dovetail.numerics.tables import tabulate
from dovetail.platform.device import Kind
from dovetail.runtime.build import Build, partial_ranges
from dovetail.schedule.program import lower
from dovetail.words import counted


def loaded_names(build: Build) -> list[str]:
    """The layers of a build whose weights are loaded; one that is divided has a set for every share, cut from the layer's."""
    found: dict[str, None] = {}
    for segment in build.program.segments:
        if build.platform.device(segment.device).kind is Kind.FPGA:
            origins = dict(zip((n.name for n in segment.graph.nodes), segment.origins, strict=True))
            loads = load_design(build.folder / "fpga" / segment.graph.name).loads
            found |= dict.fromkeys(origins[loaded_node(port.tensor)] for port in loads)
    return list(found)


def with_weights(build: Build, model: str | Path) -> Build:
    """The build with the weights that another model of the same shapes and bits has in the layers whose weights are loaded.

    UsageError where the two differ in anything else.
    """
    names = loaded_names(build)
    if not names:
        raise UsageError(f"{build.folder}: no layer's weights are loaded; compile with --loaded to change them afterwards")
    other = tabulate(read_onnx(model).graph)
    graph = replace(build.graph, constants={**build.graph.constants, **_taken(build.graph, other, names, str(model))})
    program = lower(graph, build.plan.assignment)
    return replace(build, graph=graph, program=program, partials=partial_ranges(program))


def _taken(graph: Graph, other: Graph, names: Collection[str], where: str) -> dict[str, Constant]:
    """Constants of loaded layers as the other graph has them, under the names they have here."""
    theirs = {n.name: n for n in other.nodes}
    found: dict[str, Constant] = {}
    for node in graph.nodes:
        peer = theirs.get(node.name)
        if peer is None or (peer.op, peer.inputs, peer.output) != (node.op, node.inputs, node.output) \
                or other.tensors[node.output] != graph.tensors[node.output]:
            raise UsageError(f"{where}: node {node.name} is {'missing' if peer is None else 'another operator or scheme'} there; "
                             "weights come from a model that differs in weights alone")
        for mine, own in zip(graph.params(node), other.params(peer), strict=True):
            if node.name in names:
                if mine.array.shape != own.array.shape or mine.array.dtype != own.array.dtype:
                    raise UsageError(f"{where}: {own.name} is {own.array.dtype} {list(own.array.shape)}; the build has "
                                     f"{mine.array.dtype} {list(mine.array.shape)}")
                found[mine.name] = replace(own, name=mine.name)
            elif mine.scheme != own.scheme or not np.array_equal(mine.array, own.array):
                raise UsageError(f"{where}: weights of {node.name} differ, and they are constants of the build; only those of "
                                 f"{', '.join(names)} are loaded")
    if len(theirs) != len(graph.nodes):
        raise UsageError(f"{where}: {counted(len(theirs), 'node')}; the build has {len(graph.nodes)}")
    return found
