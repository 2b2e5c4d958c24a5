"""Plans of boards after single nodes moved to where they would rather be."""

from __future__ import annotations

from collections.abc import Mapping

from dovetail.ir import Node
from dovetail.partition.boards.relaxation import Pool
from dovetail.partition.columns import fits
from dovetail.partition.evaluate import Evaluation, reevaluate
from dovetail.partition.plan import Assignment, Piece, Split, whole_on
from dovetail.partition.problem import TOLERANCE, Problem, price

PASSES = 3
"""Times all nodes are asked whether they would rather be elsewhere."""
Limits = Mapping[str, list[tuple[str, float]]]
"""What there is of each resource of every device that has any limited."""


def settle(problem: Problem, pool: Pool, assignment: Assignment, judged: Evaluation) -> tuple[Assignment, Evaluation]:
    """The plan after nodes moved between boards, one by one, while that helped; what two boards share may move to one."""
    chosen, limits = dict(assignment), dict[str, list[tuple[str, float]]]()
    for device, resource, limit in problem.budgets if problem.shared_budget else ():
        limits.setdefault(device, []).append((resource, limit))
    for _ in range(PASSES):
        before = judged
        for node in problem.graph.nodes:
            for moved in _elsewhere(problem, pool, chosen, judged, node):
                if moved == chosen[node.name] or not fits(problem, node, moved) or _full(
                        problem, judged, limits, node, chosen[node.name], moved):
                    continue
                found = reevaluate(problem, chosen, judged, node.name, moved)
                if found.feasible and found.objective < judged.objective * (1 - TOLERANCE):
                    judged, chosen[node.name] = found, moved
        if judged is before:
            break
    return chosen, judged


def _full(problem: Problem, judged: Evaluation, limits: Limits, node: Node, split: Split, moved: Split) -> bool:
    """Whether a device that a node moves to has too little room for its piece: such a plan need not be judged."""
    for p in moved.pieces:
        if p.device not in split.devices and p.device in limits:
            taken, used = dict(price(problem, node, moved.axis, p).resources), judged.resources[p.device]
            if any([used[r] + taken.get(r, 0.0) > limit * (1 + 2 * TOLERANCE) for r, limit in limits[p.device]]):
                return True
    return False


def _elsewhere(problem: Problem, pool: Pool, chosen: Assignment, judged: Evaluation, node: Node) -> list[Split]:
    """A node's split with one of its boards exchanged for one of its neighbours', an idle one or the lightest."""
    graph, split = problem.graph, chosen[node.name]
    mine = [d for d in split.devices if d in pool.boards]
    around = [p for t in node.inputs if (p := graph.producer(t)) is not None] + list(graph.consumers(node.output))
    near = [d for n in around for d in chosen[n.name].devices if d in pool.boards] if mine else []
    if len(mine) == len(split.pieces) == 1 and {*near, *(d for n in around for d in chosen[n.name].devices)} <= {*mine}:
        return []  # it would only be farther from all of them
    loads = {b: max(judged.resources.get(b, {}).values(), default=0.0) for b in pool.boards}
    light = sorted(pool.boards, key=lambda b: loads[b])[:2]
    boards = list(dict.fromkeys([*near, *light]))
    found = [renamed(split, {old: new}) for old in mine for new in boards if new not in split.devices]
    return found + ([whole_on(b) for b in boards] if len(mine) == len(split.pieces) > 1 else [])


def renamed(split: Split, names: Mapping[str, str]) -> Split:
    """A split with other devices in place of some."""
    pieces = tuple(Piece(names.get(p.device, p.device), p.start, p.stop) for p in split.pieces)
    return Split(split.axis, pieces, names.get(split.reducer, split.reducer) if split.reducer is not None else None)
