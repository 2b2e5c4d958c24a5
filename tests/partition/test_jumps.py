"""Blocks as steps of the solvers: their arrays against the evaluator."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.partition.evaluate import evaluate
from dovetail.partition.parallel.block_steps import MOST_COLUMNS, jumps
from dovetail.partition.parallel.overlap import arm_devices, join_device
from dovetail.partition.plan import Assignment
from dovetail.partition.problem import Problem
from dovetail.partition.tables.columns import PricedSplits, inputs_held, options
from dovetail.platform.device import Kind
from tests.partition.branching import SHAPES, branching
from tests.partition.test_narrow import wide
from tests.partition.worlds import Synthetic, platform

KINDS = ((Kind.CPU, Kind.FPGA), (Kind.CPU, Kind.GPU, Kind.FPGA))


def random_columns(choices: list[PricedSplits], rng: np.random.Generator) -> tuple[Assignment, dict[str, int]]:
    """Some assignment, and in which of its places it leaves every tensor."""
    path = [int(rng.integers(len(c))) for c in choices]
    return ({c.node.name: c.splits[i] for c, i in zip(choices, path, strict=True)},
            {c.node.output: int(c.place_of[i]) for c, i in zip(choices, path, strict=True)})


@pytest.mark.parametrize("shape", SHAPES)
@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000), kinds=st.sampled_from(KINDS))
def test_jumps_agree_with_the_evaluator(shape: str, seed: int, kinds: tuple[Kind, ...]) -> None:
    problem = Problem(branching(shape, seed, 2), platform(seed, kinds, 1e9), Synthetic(seed))
    choices = [options(problem, n) for n in problem.graph.nodes]
    known = inputs_held(problem) | {c.node.output: c.held for c in choices}
    rng = np.random.default_rng(seed)
    found = jumps(problem, choices, known)
    assert [len(own) for own in found] == [1 + b.meets for b in problem.blocks] != []
    for block, ways, low_ways in zip(problem.blocks, found, jumps(problem, choices, known, fork_only=True), strict=True):
        for jump, low in zip(ways, low_ways, strict=True):
            for column in rng.integers(len(jump), size=12).tolist():
                around, places = random_columns(choices, rng)
                placed = {**around, **jump.assignment(problem, column)}
                if len(jump.groups) == len(block.arms) and join_device(block, placed) is not None:
                    continue  # then the join goes along
                names = {n.name for group in jump.groups for n in group}
                judged = evaluate(problem, placed)
                costs = [c for c in judged.nodes if c.node in names]
                home = float(block.join.name in names and block.join.output in problem.graph.outputs)
                spent = sum(c.latency_s for c in costs), sum(c.energy_j for c in costs)
                entry = (*(places[t] for t in jump.inputs), column)
                assert arm_devices(block, placed) is not None
                assert jump.latency_s[entry] == pytest.approx(spent[0] + home * judged.delivery_s, rel=1e-12)
                assert jump.energy_j[entry] == pytest.approx(spent[1] + home * judged.delivery_j, rel=1e-12)
                used = [sum(c.resources.get(d, {}).get(r, 0.0) for c in costs) for d, r, _ in problem.budgets]
                assert jump.resources[column].tolist() == pytest.approx(used)
                for same in np.flatnonzero((low.devices == jump.devices[column]).all(axis=1)).tolist():
                    fork = (*(places[t] for t in low.inputs), same)
                    assert low.latency_s[fork] <= jump.latency_s[entry] * (1 + 1e-12)
                    assert low.energy_j[fork] <= jump.energy_j[entry] * (1 + 1e-12)
                for tensor, leaves in jump.leaves.items():
                    own = choices[problem.order[problem.graph.producer(tensor).name]]  # type: ignore[union-attr]
                    assert own.pattern.layout(int(own.places[leaves[column]]), 4)[0][0] == placed[own.node.name].devices[0]


@pytest.mark.parametrize("arms", [5, 6, 18])
def test_many_arms_are_placed_in_fewer_ways(arms: int) -> None:
    problem = Problem(wide(arms), platform(1), Synthetic(1))
    choices = [options(problem, n) for n in problem.graph.nodes]
    known = inputs_held(problem) | {c.node.output: c.held for c in choices}
    found = jumps(problem, choices, known, fork_only=True)[0][0]
    assert len(found) == {5: 3**5 - 3, 6: 3 * (2**6 - 2), 18: 6 * 18}[arms]
    assert len(found) <= MOST_COLUMNS
    assert all(len(set(row)) > 1 for row in found.devices.tolist())
