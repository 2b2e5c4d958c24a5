"""A bound over all ways to run branches at once, where they are too many to look at one by one.

A block takes at least as long as its longest arm, and as all it computes shared evenly by the devices that can run its arms;
transfers into, within and out of it may all be hidden. The rest of the network stands in the tree relaxation as always.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np

from dovetail.ir.branches import Block
from dovetail.partition.exact.elimination import rank
from dovetail.partition.exact.energy_delay import Point
from dovetail.partition.exact.separate_bound import least_costs
from dovetail.partition.exact.tree import TREES, relaxed_tree
from dovetail.partition.parallel.block_steps import left_out, whole_columns
from dovetail.partition.problem import Problem
from dovetail.partition.tables.columns import PricedSplits, options
from dovetail.partition.tables.costs import Table
from dovetail.partition.tables.timing import Later

ONE_BY_ONE = 4
"""Blocks up to which each is looked at by itself:

that its nodes are whole where it runs at once makes the bound closer. Chosen: any value from 2 to 8 gives the same plans
(bench/constants.py).
"""


def bound_every_way(problem: Problem, best: Point | None, deadline: float) -> float:
    """A lower bound on plans that run some block at once in a way that no jump has; `best` is a known plan's point."""
    left = left_out(problem, near=False)
    return min(_bound(problem, block, best, deadline) for block in (left if len(left) <= ONE_BY_ONE else (None,)))


def _bound(problem: Problem, at_once: Block | None, best: Point | None, deadline: float) -> float:
    """The same for plans that run a given block at once; None for all plans."""
    whole = {n.name for n in at_once.nodes} if at_once is not None else set()
    every = [options(problem, n) for n in problem.graph.nodes]
    choices = [c.keep(np.array(sorted(whole_columns(c).values()))) if c.node.name in whole else c for c in every]
    loose = _loose(problem)
    plain = replace(problem, forks=tuple(b for b in problem.blocks if b not in loose), memo=problem.memo.without(TREES))
    tree, own = relaxed_tree(plain, choices), {c.node.name: c for c in choices}
    parts = [_parts(problem, block, own) for block in loose]
    around = {n.name for block in loose for n in block.around}
    tables = tuple(_free(problem, t, prod(p.get(t.node.name, 1.0) for p in parts)) if t.node.name in around else t
                   for t in tree.tables)
    return rank(plain, replace(tree, tables=tables), best, deadline).bound


def _loose(problem: Problem) -> list[Block]:
    """Blocks not all ways of which were looked at, and those that share nodes with them."""
    found, nodes = list(left_out(problem, near=False)), set[str]()
    while len(nodes) < len(nodes := nodes.union(n.name for b in found for n in b.around)):
        found = [b for b in problem.blocks if any(n.name in nodes for n in b.around)]
    return found


def _parts(problem: Problem, block: Block, own: dict[str, PricedSplits]) -> dict[str, float]:
    """By which part of what nodes of a block compute it takes at least as long, at once or not: of one arm, or of all."""
    least = [sum(float(least_costs(problem, own[n.name])[0].min()) for n in arm) for arm in block.arms]
    able = {d for arm in block.arms for d in set.intersection(*(set(whole_columns(own[n.name])) for n in arm))}
    share, longest = 1 / max(1, min(len(able), len(block.arms))), int(np.argmax(least))
    evenly = sum(least) * share > least[longest]
    return {n.name: share if evenly else float(a == longest) for a, arm in enumerate(block.arms) for n in arm}


def _free(problem: Problem, table: Table, part: float) -> Table:
    """A table in which transfers are free and only a part of the time counts."""
    own, shape = table.options, table.latency_s.shape
    seconds, joules = least_costs(problem, own)
    energy = joules + problem.idle_power_w * part * seconds + own.home_j
    return replace(table, latency_s=np.broadcast_to(part * seconds + own.home_s, shape).copy(),
                   energy=Later(lambda: np.broadcast_to(energy, shape).copy()))
