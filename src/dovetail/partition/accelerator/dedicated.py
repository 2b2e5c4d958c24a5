"""Dedicated engines: what every fold of a layer costs at a pace."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod, sqrt

import numpy as np

from dovetail.cost import Floats, costs_of
from dovetail.cost.dhm import dhm_answers
from dovetail.cost.firb import Bottleneck, bottlenecks, firb_engines
from dovetail.cost.folded import folds_offered, shape_of, twins_allowed
from dovetail.cost.folded_area import Shape, resource_names
from dovetail.hardware.folds import Fold
from dovetail.hardware.scans import phases_of, window_of
from dovetail.hardware.streaming import Raster
from dovetail.ir import Conv, Gemm, Graph, Node, Reshape
from dovetail.partition.accelerator.choice import undominated
from dovetail.platform.device import Device
from dovetail.platform.fitted import dhm_model

ONE = (np.zeros(1, dtype=np.int64), np.ones(1, dtype=np.int64))


@dataclass(frozen=True, slots=True)
class Engines:
    """Engines one layer can have at a pace: a fold (None: mapped directly), clocks per frame, and resources, row by row."""

    folds: tuple[Fold | None, ...]
    steps: tuple[int, ...]
    needs: Floats


def direct_needs(graph: Graph, node: Node, device: Device, names: tuple[str, ...]) -> Floats:
    """Resources of a layer that is mapped directly; of one beyond the device an estimate that is beyond it too."""
    if not isinstance(node.op, Conv | Gemm):
        return np.zeros(len(names))
    ((costs,),) = dhm_answers(graph, [(node, ((None, *ONE),))], [device])
    return np.array(_row(costs.resources, names))


def engines_within(graph: Graph, node: Node, device: Device, names: tuple[str, ...], clocks: int,
                   folds: bool = True, direct: Floats | None = None) -> Engines:
    """All engines of a layer that take at most `clocks` clocks per frame and that no other undercuts in every resource.

    Without `folds` a layer is mapped directly or not at all; `direct` is what that needs, where it is known.
    """
    none = Engines((), (), np.zeros((0, len(names))))
    if not isinstance(node.op, Conv | Gemm):
        costs = costs_of(graph, node, None, *ONE, device.at_pace(clocks))
        if costs is None:
            return none
        return Engines((None,), (beats_of(graph, node),), np.array([_row(costs.resources, names)]))
    (folded,) = _folded([shape_of(graph, node)], device, names, clocks) if folds else (none,)
    beats = beats_of(graph, node)
    if beats > clocks:
        return folded
    needs = np.vstack([folded.needs, direct_needs(graph, node, device, names) if direct is None else direct])
    kept = undominated(needs)
    made, steps = (*folded.folds, None), (*folded.steps, beats)
    return Engines(tuple(made[k] for k in kept), tuple(steps[k] for k in kept), needs[kept])


@dataclass(frozen=True, slots=True)
class Fused:
    """An inverted residual as one engine at a pace: its nodes by number, the engines it can be, and their resources."""

    block: Bottleneck
    members: tuple[int, ...]
    folds: tuple[tuple[Fold, Fold, Fold], ...]
    steps: tuple[int, ...]
    needs: Floats


def fused_within(graph: Graph, device: Device, names: tuple[str, ...], clocks: int) -> tuple[Fused, ...]:
    """All inverted residuals of a graph that can be one engine of at most `clocks` clocks per frame."""
    numbers, found = {node.name: i for i, node in enumerate(graph.nodes)}, []
    for block in bottlenecks(graph):
        table = firb_engines(graph, block, device.model, twins_allowed(device), clocks)
        if table is None:
            continue
        needs = resource_columns(table.resources, device.model, names)
        kept = undominated(needs)
        members = tuple(numbers[n.name] for n in (*block.layers, block.join) if n is not None)
        costs = [table.cost(k, device.model) for k in kept]
        found.append(Fused(block, members, tuple(c.folds for c in costs), tuple(c.steps for c in costs), needs[kept]))
    return tuple(found)


@lru_cache(maxsize=1024)
def _known_engines(model: tuple[str, bool], names: tuple[str, ...], clocks: int) -> dict[Shape, Engines]:
    """What `_folded` found for a family at a pace; nothing at first."""
    return {}


def _folded(shapes: Sequence[Shape], device: Device, names: tuple[str, ...], clocks: int) -> list[Engines]:
    """Folded engines of layers that take at most `clocks` clocks per frame and that no other undercuts in every resource."""
    known = _known_engines((device.model, twins_allowed(device)), names, clocks)
    if new := [shape for shape in dict.fromkeys(shapes) if shape not in known]:
        table = folds_offered(new, clocks, twins_allowed(device), soft=True)
        needs = resource_columns(table.resources(dhm_model(device.model)), device.model, names)
        for number, shape in enumerate(new):
            own = np.flatnonzero(table.which == number)
            rows = own[undominated(needs[own])]
            known[shape] = Engines(tuple(table[k] for k in rows), tuple(table.steps[rows].tolist()), needs[rows])
    return [known[shape] for shape in shapes]


def expect_engines(graph: Graph, nodes: Iterable[Node], device: Device, names: tuple[str, ...], clocks: int) -> None:
    """Price folds of many layers at once; `engines_within` then knows them."""
    _folded([shape_of(graph, node) for node in nodes if isinstance(node.op, Conv | Gemm)], device, names, clocks)


def resource_columns(resources: Floats, model_name: str, names: tuple[str, ...]) -> Floats:
    """Resources of folded engines in the order of `names`; nothing of those that they have no use for."""
    at = {name: k for k, name in enumerate(resource_names(dhm_model(model_name)))}
    return np.column_stack([resources[:, at[name]] if name in at else np.zeros(len(resources)) for name in names])


def _row(resources: Mapping[str, Floats], names: tuple[str, ...]) -> list[float]:
    return [float(resources[r][0]) if r in resources else 0.0 for r in names]


def raster_of(graph: Graph, node: Node) -> Raster:
    """What a layer's window goes over."""
    window, _, height, width = window_of(graph, node)
    return Raster(window, height, width)


def beats_of(graph: Graph, node: Node) -> int:
    """Clocks per frame of an engine that takes a pixel per clock."""
    return 0 if isinstance(node.op, Reshape) else raster_of(graph, node).steps


def phase_shares(graph: Graph) -> tuple[float, ...]:
    """Of every node, clocks of its phase of a frame as a share of the longest.

    Phases follow each other, so a frame takes the sum of their clocks T. Engines of a phase need an area of about its
    multiply-adds W, divided by T: with what all need given, the sum is least where T is as the square root of W. A phase that
    multiplies nothing keeps up with the one before it.
    """
    phases = phases_of(graph)
    work = [multiplications_of(graph, [n for n in graph.nodes if phases[n.name] == p]) for p in range(1 + max(phases.values()))]
    for phase in range(1, len(work)):
        work[phase] = work[phase] or work[phase - 1]
    return tuple(sqrt(max(1, work[phases[n.name]]) / max(1, *work)) for n in graph.nodes)


def multiplications_of(graph: Graph, nodes: Iterable[Node]) -> int:
    """Multiply-adds of a frame."""
    return sum(prod(graph.shape(n.output)) * prod(graph.constants[n.params[0]].array.shape[1:])
               for n in nodes if n.params and graph.constants[n.params[0]].array.ndim > 1)
