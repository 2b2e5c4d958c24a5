"""The candidate splits of a node.

A *column* is one way to run one node: whole on a device, or cut along a legal axis of its operator into contiguous
pieces, one per device, in the platform's device order. Short axes may be cut anywhere. Long ones are cut where a device
gets one unit, or 1/16, 3/32, 1/8, 3/16, 1/4, 5/16, 3/8, 1/2 of them: devices differ by factors, and equal fractions let
neighbouring layers keep their data in place. Operators without weights, which cost little anywhere, get the five widest.
On platforms of more than three devices only neighbours share a node, at fewer positions (`partners`).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from dovetail.ir import Axis, Node
from dovetail.partition.plan import Piece, Split, whole_on
from dovetail.partition.problem import Problem

SHARES = (0.0, 1 / 16, 3 / 32, 1 / 8, 3 / 16, 1 / 4, 5 / 16, 3 / 8, 1 / 2)
FRACTIONS = tuple(sorted({*SHARES, *(1 - f for f in SHARES)}))
"""Where long axes are cut; the ends mean one unit."""
COARSE = (1 / 8, 1 / 4, 1 / 2, 3 / 4, 7 / 8)
"""The same for operators without weights."""
SPARSE = (1 / 4, 1 / 2, 3 / 4)
"""The same among many devices."""
MIDDLE = (1 / 8, 1 / 2, 7 / 8)
"""Positions two of which bound the middle piece of a three-device split."""
FEW_DEVICES = 3
"""Up to so many devices, every pair and all three may share a node; among more, neighbours."""
MOST_PAIRS = 12
"""Pairs of neighbours that may share a node; those near the host come first."""
WHOLE_RANK = 4
"""Rank of whole placements, above that of any cut."""


def cut_positions(extent: int, fractions: Sequence[float] = FRACTIONS) -> tuple[int, ...]:
    """Where an axis of `extent` units may be cut: everywhere if it is short, else at the given fractions."""
    if extent - 1 <= len(fractions):
        return tuple(range(1, extent))
    # Halves round down, as `even_cuts` does.
    return tuple(sorted({min(max(1, int(extent * f + 0.5 - 1e-9)), extent - 1) for f in fractions}))


def partners(problem: Problem) -> tuple[tuple[str, ...], ...]:
    """Groups of devices that may share a node."""
    if len(problem.devices) <= FEW_DEVICES:
        return tuple(g for parts in (2, 3) for g in combinations(problem.devices, parts))
    host = problem.platform.host
    joined = {frozenset(link.ends) for link in problem.platform.links}
    beside = {host, *(d for d in problem.devices if frozenset((host, d)) in joined)}
    pairs = [p for p in combinations(problem.devices, 2) if frozenset(p) in joined or set(p) <= beside]
    return tuple(sorted(pairs, key=lambda p: sum(len(problem.platform.route(host, d)) for d in p))[:MOST_PAIRS])


def even_cuts(extent: int, parts: int) -> tuple[int, ...]:
    """Cut positions that divide an axis into `parts` as even as integers allow."""
    return tuple(extent * i // parts for i in range(1, parts))


def divide(axis: Axis, cuts: Sequence[int], extent: int, devices: Sequence[str], reducer: str | None = None) -> Split:
    """A split with the given cut positions."""
    edges = (0, *cuts, extent)
    return Split(axis, tuple(Piece(d, a, b) for d, a, b in zip(devices, edges[:-1], edges[1:], strict=True)), reducer)


def _fractions(problem: Problem, node: Node) -> Sequence[float]:
    if len(problem.devices) > FEW_DEVICES:
        return SPARSE
    return FRACTIONS if node.params else COARSE


def _rank(extent: int, cut: int) -> int:
    """The nearer to the middle, the higher: where too many tensors are alive at once, low ranks are left out first."""
    share = min(cut, extent - cut) / extent
    return 3 if share > 3 / 8 else 2 if share > 3 / 16 else 1 if share > 3 / 32 else 0


def candidates(problem: Problem, node: Node, capable: Sequence[str]) -> list[tuple[Split, int]]:
    """Every candidate split over the given devices, with its rank; a fixed node has one."""
    if node.name in problem.fixed:
        return [(problem.fixed[node.name], WHOLE_RANK)]
    found = [(whole_on(d), WHOLE_RANK) for d in capable]
    shapes = problem.graph.input_shapes(node)
    groups = [g for g in partners(problem) if set(g) <= set(capable)]
    for axis in node.op.axes(shapes):
        extent = node.op.extent(axis, shapes)
        for devices in groups:
            reducers = devices if axis is Axis.INPUT_CHANNELS else (None,)
            cuts = _pairs(problem, node, extent) if len(devices) == 2 else _triples(node, extent)
            found += [(divide(axis, places, extent, devices, reducer), rank) for places, rank in cuts for reducer in reducers]
    return found


def _pairs(problem: Problem, node: Node, extent: int) -> list[tuple[tuple[int, ...], int]]:
    return [((c,), _rank(extent, c)) for c in cut_positions(extent, _fractions(problem, node))]


def _triples(node: Node, extent: int) -> list[tuple[tuple[int, ...], int]]:
    """Cuts among three devices; operators without weights, which gain little from a third, are cut evenly."""
    even = even_cuts(extent, 3)
    if extent < 3 or not node.params:
        return [(even, 1)] if extent >= 3 else []
    return [(cuts, int(cuts == even)) for cuts in sorted({*combinations(cut_positions(extent, MIDDLE), 2), even})]
