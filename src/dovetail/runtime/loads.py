"""Layers of codes whose weights are loaded: which of a plan's can be, and the folds they get."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dovetail.cost.folded import coded_shape, folds_of, pace_of
from dovetail.cost.lq_folds import best_coded_fold
from dovetail.errors import UsageError
from dovetail.fpga.engines.coded_lane import LOADED_SHIFT, shifts_alone
from dovetail.fpga.mapping import coded_rescale
from dovetail.hardware.folds import Fold
from dovetail.ir import Graph, Node
from dovetail.platform.device import Device, Kind, Platform
from dovetail.schedule.program import Program

ALL = "all"
"""In the place of names: every layer that can be."""

Folds = Mapping[str, Fold]


def loadable(graph: Graph, node: Node) -> bool:
    """Whether a layer's weights can be loaded where it is folded: its sums become codes, or are shifted and rounded."""
    if not node.op.coded:
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
    if not node.op.coded:
        return f"a {node.op.kind} whose weights are constants of the design; only layers of codes have memories"
    if not loadable(graph, node):
        return f"its sums are not shifted down by 1 to {LOADED_SHIFT} places alone"
    return "not on FPGAs whose layers are folded (--fold CLOCKS), or only in part"
