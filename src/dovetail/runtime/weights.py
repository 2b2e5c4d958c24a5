"""Layers of codes whose weights are loaded: which of a plan's can be, and a build with the weights of another model in them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from dovetail.cost.coded_folds import best_coded_fold
from dovetail.cost.folded import coded_shape, folds_of, pace_of
from dovetail.cost.folds import Fold
from dovetail.errors import UsageError
from dovetail.fpga.assemble import loaded_node
from dovetail.fpga.engines.coded_lane import LOADED_SHIFT, shifts_alone
from dovetail.fpga.mapping import coded_rescale
from dovetail.fpga.part import load_design
from dovetail.ir import Coded, Constant, Graph, Node
from dovetail.ir.onnx_read import read_onnx
from dovetail.numerics.tables import tabulate
from dovetail.platform.device import Device, Kind, Platform
from dovetail.runtime.build import Build, partial_ranges
from dovetail.schedule.program import Program, lower
from dovetail.words import counted

ALL = "all"
"""In the place of names: every layer that can be."""

Folds = Mapping[str, Fold]


def loadable(graph: Graph, node: Node) -> bool:
    """Whether a layer's weights can be loaded where it is folded: its sums become codes, or are shifted and rounded."""
    if not isinstance(node.op, Coded):
        return False
    how = coded_rescale(graph, node)
    return how is None or shifts_alone(graph.params(node)[2].array.tolist(), how)


def loaded_folds(program: Program, platform: Platform, wanted: Sequence[str]) -> dict[str, Folds]:
    """The layers whose weights are to be loaded, or shares of them, by the segment they are in, with the folds they get.

    `wanted` names layers, or is `ALL`. UsageError where one cannot be.
    """
    possible = _possible(program, platform)
    names = list(possible) if list(wanted) == [ALL] else list(dict.fromkeys(wanted))
    if wanted and not names:
        raise UsageError(f"--loaded {ALL}: no layer of codes is folded on an FPGA; give --fold CLOCKS, or leave "
                         "--loaded out")
    found: dict[str, dict[str, Fold]] = {}
    for name in names:
        if name not in possible:
            raise UsageError(f"--loaded {name}: {_why_not(program.graph, name)}; "
                             f"{', '.join(possible) or 'none of this plan'} can be loaded")
        for segment, share, fold in possible[name]:
            found.setdefault(segment, {})[share] = fold
    return dict(found)


def _possible(program: Program, platform: Platform) -> dict[str, list[tuple[str, str, Fold]]]:
    """Layers all of whose shares can be loaded: segment, node there, and fold of every share."""
    found, whole = dict[str, list[tuple[str, str, Fold]]](), dict[str, bool]()
    for segment in program.segments:
        device = platform.device(segment.device)
        folded = device.kind is Kind.FPGA and device.accelerator is None and pace_of(device) is not None
        folds = _folds(segment.graph, device) if folded else {}
        for node, origin in zip(segment.graph.nodes, segment.origins, strict=True):
            whole[origin] = whole.get(origin, True) and node.name in folds
            if node.name in folds:
                found.setdefault(origin, []).append((segment.name, node.name, folds[node.name]))
    return {origin: shares for origin, shares in found.items() if whole[origin]}


def _folds(graph: Graph, device: Device) -> dict[str, Fold]:
    """Folds of all loadable layers: those they have, or the best where they would be mapped directly."""
    known, pace, limits = folds_of(graph, device), pace_of(device), tuple(sorted(device.resources.items()))
    assert pace is not None
    found: dict[str, Fold] = {}
    for node in (n for n in graph.nodes if loadable(graph, n)):
        best = None if node.name in known else best_coded_fold(coded_shape(graph, node), device.model, limits, pace)
        if node.name in known or best is not None:
            found[node.name] = known[node.name] if best is None else best[0]
    return found


def _why_not(graph: Graph, name: str) -> str:
    node = next((n for n in graph.nodes if n.name == name), None)
    if node is None:
        return "no such layer"
    if not isinstance(node.op, Coded):
        return f"a {node.op.kind} whose weights are constants of the design; only layers of codes have memories"
    if not loadable(graph, node):
        return f"its sums are not shifted down by 1 to {LOADED_SHIFT} places alone"
    return "not on FPGAs whose layers are folded (--fold CLOCKS), or only in part"


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
