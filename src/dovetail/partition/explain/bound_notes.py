"""What a plan's notes say of its bound: over which candidates it holds, and which limits bind."""

from __future__ import annotations

from dovetail.partition.boards.relaxation import STAND_INS
from dovetail.partition.candidates import FEW_DEVICES, partners
from dovetail.partition.exact.solver import Answer
from dovetail.partition.explain.reasons_per_node import shown
from dovetail.partition.parallel.block_steps import MOST_COLUMNS, left_out
from dovetail.partition.plan import FEWER, Goal
from dovetail.partition.problem import Problem
from dovetail.partition.tables.columns import PricedSplits
from dovetail.words import counted

ONE_INPUT = "bound: from a relaxation in which every node pays the transfers of one input only"
TOO_WIDE = "too many tensors are alive at once for a closer one"


def bound_note(problem: Problem, left: list[PricedSplits], kept: list[PricedSplits]) -> str:
    """Over which candidates the bound holds."""
    fewer = sum(len(a) > len(b) for a, b in zip(left, kept, strict=True))
    alive = f"fewer at {fewer} of {counted(len(left), 'node')}, where many tensors are alive at once"
    # Without a pool the tree bounds the others as well.
    coarse = "" if not fewer else f" ({FEWER} {alive})" if problem.pool is not None else f" (searched: {alive})"
    groups = partners(problem)
    where = "at one unit, 1/16, 3/32, 1/8, 3/16, 1/4, 5/16, 3/8, 1/2 and their mirrors per device pair"
    if len(problem.devices) > FEW_DEVICES:
        where = f"in quarters between {counted(len(groups), 'pair')} of neighbouring devices"
    pinned = f"; of plans with the {len(problem.fixed)} pinned of {counted(len(left), 'node')} in place" if problem.fixed else ""
    return f"bound: holds over all whole placements and splits of each axis {where}{coarse}{_branches(problem)}{pinned}"


def _branches(problem: Problem) -> str:
    """Over which ways to run branches at once the bound holds, where there are any."""
    # Of boards one by one, a relaxation covers what was not looked at (see `every_way`); of a pool none does.
    few = sum(min(len(problem.devices), STAND_INS)**len(b.arms) > MOST_COLUMNS for b in problem.blocks) if problem.pool else 0
    where = "any devices" if len(problem.devices) <= STAND_INS else f"the {STAND_INS} devices nearest to the host"
    fewer = f" (at {few} of {counted(len(problem.blocks), 'fork')} only arms on two devices, or one arm apart)" if few else ""
    return f"; branches at once on {where}{fewer}" if problem.blocks and problem.goal is not Goal.THROUGHPUT else ""


def many_ways_note(problem: Problem) -> str:
    """Why a bound is lower than what was looked at."""
    few = f"{len(left_out(problem, near=False))} of {counted(len(problem.blocks), 'fork')}"
    return (f"bound: lowered to what no plan is below whose branches run at once in ways not looked at (at {few}), by a "
            "relaxation with their transfers free")


def binding_note(problem: Problem, answer: Answer) -> tuple[str, ...]:
    """The bottleneck: limits of which more would make a better plan, and how much a hundredth of each is worth at most."""
    worth = {name: price / 100 for name, price in answer.prices.items() if price > 0}
    if not worth:
        return ()
    parts = [f"{name} (1 % more would save up to {shown(value, problem.goal is Goal.ENERGY)})" for name, value in worth.items()]
    return (f"bottleneck: {', '.join(parts)}",)
