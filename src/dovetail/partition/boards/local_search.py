"""Local search on plans for equal FPGAs: nodes move between boards one by one, and back to the host in a row."""

from __future__ import annotations

from collections.abc import Mapping

from dovetail.ir import Node
from dovetail.partition.boards.placement import renamed
from dovetail.partition.boards.relaxation import Pool
from dovetail.partition.evaluate import Evaluation, reevaluate, reevaluate_all
from dovetail.partition.plan import Assignment, Split, whole_on
from dovetail.partition.problem import TOLERANCE, Problem, price
from dovetail.partition.tables.columns import fits, options

PASSES = 3
"""Times all nodes are tried on other boards: chosen; most plans change in the first only."""
LIGHTEST = 2
"""Boards with the lightest load that a node is tried on besides those of its neighbours: chosen."""
Limits = Mapping[str, list[tuple[str, float]]]
"""What there is of each resource of every device that has any limited."""


def improved(problem: Problem, pool: Pool, assignment: Assignment, judged: Evaluation) -> tuple[Assignment, Evaluation]:
    """The plan after all moves that made it better."""
    return returned(problem, *moved(problem, pool, assignment, judged))


def moved(problem: Problem, pool: Pool, assignment: Assignment, judged: Evaluation) -> tuple[Assignment, Evaluation]:
    """The plan after nodes moved between boards, one by one, while that helped; what two boards share may move to one."""
    chosen, limits = dict(assignment), dict[str, list[tuple[str, float]]]()
    for device, resource, limit in problem.budgets if problem.shared_budget else ():
        limits.setdefault(device, []).append((resource, limit))
    for _ in range(PASSES):
        before = judged
        for node in problem.graph.nodes:
            for split in _elsewhere(problem, pool, chosen, judged, node):
                if split == chosen[node.name] or not fits(problem, node, split) or _full(
                        problem, judged, limits, node, chosen[node.name], split):
                    continue
                found = reevaluate(problem, chosen, judged, node.name, split)
                if found.feasible and found.objective < judged.objective * (1 - TOLERANCE):
                    judged, chosen[node.name] = found, split
        if judged is before:
            break
    return chosen, judged


def _full(problem: Problem, judged: Evaluation, limits: Limits, node: Node, split: Split, other: Split) -> bool:
    """Whether a device that a node moves to has too little room for its piece: such a plan need not be judged."""
    for p in other.pieces:
        if p.device not in split.devices and p.device in limits:
            taken, used = dict(price(problem, node, other.axis, p).resources), judged.resources[p.device]
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
    light = sorted(pool.boards, key=lambda b: loads[b])[:LIGHTEST]
    boards = list(dict.fromkeys([*near, *light]))
    found = [renamed(split, {old: new}) for old in mine for new in boards if new not in split.devices]
    return found + ([whole_on(b) for b in boards] if len(mine) == len(split.pieces) > 1 else [])


def returned(problem: Problem, assignment: Assignment, judged: Evaluation) -> tuple[Assignment, Evaluation]:
    """The plan after the host took nodes in a row, all of them whole, from boards while that helped: long rows first."""
    host, chosen = whole_on(problem.platform.host), dict(assignment)
    length = 1 << (len(problem.graph.nodes) - 1).bit_length()
    while length:
        nodes = [n for n in problem.graph.nodes if chosen[n.name] != host and host in options(problem, n).splits]
        for i in range(0, len(nodes), max(1, length // 2)):
            moves = {n.name: host for n in nodes[i:i + length] if chosen[n.name] != host}
            found = reevaluate_all(problem, chosen, judged, moves) if moves else judged
            if found.feasible and found.objective < judged.objective * (1 - TOLERANCE):
                chosen, judged = {**chosen, **moves}, found
        length //= 2
    return chosen, judged
