"""Work stealing over tiles (DeepThings, Zhao et al. 2018), simulated: an idle device takes the next tile of a layer.

Every layer is a queue of equal tiles. A device that is free takes one as long as its budgets have room for it, which occupies it
for the tile's transfer and computation. What each has taken at the end becomes one contiguous share, as plans need it.
"""

from __future__ import annotations

from dovetail.ir import Axis, Node
from dovetail.partition.candidates import divide
from dovetail.partition.explain.baselines import beam
from dovetail.partition.plan import Assignment, Piece, Split, whole_on
from dovetail.partition.problem import Problem, axes_of, price_pieces
from dovetail.partition.tables.quotes import capable
from dovetail.partition.tolerances import TOLERANCE

TILES = 16
"""Tiles of a layer. Chosen, not measured."""
AXES = (Axis.ROWS, Axis.OUTPUT_CHANNELS, Axis.GROUPS)
"""What tiles are cut of, first legal one first."""


def work_stealing(problem: Problem) -> Assignment | None:
    """Layer after layer the shares that devices took; where they do not fit together, the layer stays whole."""
    left = {(d, r): limit for d, r, limit in problem.budgets}

    def choices(node: Node) -> list[Split]:
        if node.name in problem.fixed:
            return [problem.fixed[node.name]]
        whole = [whole_on(d) for d in problem.devices if capable(problem, node, d)]
        taken = _taken(problem, node, left)
        if problem.shared_budget:
            for p in taken.pieces if taken is not None else ():
                for r, amount in _needs(problem, node, taken.axis if taken else None, p).items():
                    left[p.device, r] -= amount
        return [taken] if taken is not None else whole

    return beam(problem, choices, 1)


def _taken(problem: Problem, node: Node, left: dict[tuple[str, str], float]) -> Split | None:
    """The division that stealing ends in; None where there is nothing to take."""
    axis = next((a for a in AXES if a in axes_of(problem, node)), None)
    if axis is None or not node.params:
        return None
    extent = axes_of(problem, node)[axis]
    tile = -(-extent // TILES)
    size = float(problem.graph.tensors[node.inputs[0]].transfer_bytes) * tile / extent
    free = {d: 0.0 for d in problem.devices if price_pieces(problem, node, axis, d, [(0, tile)])}
    units, at = dict.fromkeys(free, 0), 0
    while at < extent and free:
        device = min(free, key=free.__getitem__)
        step = min(tile, extent - at)
        asked = Piece(device, 0, units[device] + step)
        if any(amount > left.get((device, r), amount) * (1 + TOLERANCE)
               for r, amount in _needs(problem, node, axis, asked).items()):
            del free[device]
            continue
        cost = price_pieces(problem, node, axis, device, [(0, step)])
        fetched = 0.0 if device == problem.platform.host else problem.transfer_one(problem.platform.host, device, int(size))[0]
        free[device] += fetched + (cost[0, step].alone_s if cost and (0, step) in cost else 0.0)
        units[device], at = units[device] + step, at + step
    present = {d: units[d] for d in problem.devices if units.get(d)}
    if at < extent or not present:
        return None
    if len(present) == 1:
        return whole_on(next(iter(present)))
    edges = [sum(list(present.values())[:i]) for i in range(1, len(present))]
    return divide(axis, edges, extent, tuple(present))


def _needs(problem: Problem, node: Node, axis: Axis | None, piece: Piece) -> dict[str, float]:
    """What a share takes of budgets; more than there is where it has no price."""
    found = price_pieces(problem, node, axis, piece.device, [(piece.start, piece.stop)])
    cost = (found or {}).get((piece.start, piece.stop))
    limits = problem.limits[piece.device]
    return {r: 2 * limit + 1 for r, limit in limits.items()} if cost is None else {r: a for r, a in cost.resources if r in limits}
