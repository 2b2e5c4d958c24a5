"""Where networks fork: which nodes form arms, and what running arms at once costs."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.ir import Add, Axis, Concat, Graph
from dovetail.ir.branches import Block, blocks, contiguous
from dovetail.partition.cost_model import Rates
from dovetail.partition.evaluate import Evaluation, evaluate, reevaluate, reevaluate_all
from dovetail.partition.parallel.overlap import arm_devices
from dovetail.partition.plan import Assignment, Mode, Piece, Split, whole_on
from dovetail.partition.problem import Problem
from dovetail.partition.tables.columns import options
from dovetail.platform.device import Device, Kind, Link, Platform
from dovetail.schedule.list_schedule import schedule
from tests.partition.branching import SHAPES, branching, nested, shuffled, two_blocks
from tests.partition.priced import CHANNELS, PerUnit
from tests.partition.worlds import Builder, Synthetic, chain, platform, residual, seeded


def named(graph: Graph) -> list[tuple[str, list[list[str]], str]]:
    return [(b.fork, [[n.name for n in arm] for arm in b.arms], b.join.name) for b in blocks(graph)]


def test_a_fork_has_as_many_arms_as_independent_ways_to_its_join() -> None:
    b = Builder(2, 2)
    stem = b.conv("x", 2, 1)
    one, two = b.conv(stem, 2, 1), b.conv(b.conv(stem, 2, 1), 2, 3)
    b.add(Add(), one, two)
    assert named(b.graph()) == [("t0", [["n1"], ["n2", "n3"]], "n4")]


def test_a_plain_shortcut_is_no_arm() -> None:
    assert named(residual(0)) == []
    b = Builder(1, 1)
    stem = b.conv("x", 1, 1)
    b.add(Concat(1), stem, b.conv(stem, 1, 1), b.conv(stem, 1, 1))
    assert named(b.graph()) == [("t0", [["n1"], ["n2"]], "n3")]


def test_blocks_lie_inside_arms_of_others() -> None:
    b = Builder(1, 1)
    nested(b, b.conv("x", 1, 1), seeded(0))
    assert named(b.graph()) == [("t0", [["n1", "n2", "n3", "n4"], ["n5"]], "n6"), ("t1", [["n2"], ["n3"]], "n4")]


def test_a_chain_and_arms_that_never_meet_are_no_blocks() -> None:
    assert named(chain(4)) == []
    b = Builder(1, 1)
    stem = b.conv("x", 1, 1)
    assert named(b.graph(b.conv(stem, 1, 1), b.conv(stem, 1, 1))) == []


def test_a_node_between_arms_that_is_also_an_output_ends_no_block() -> None:
    b = Builder(1, 1)
    stem = b.conv("x", 1, 1)
    seen = b.conv(stem, 1, 1)
    assert named(b.graph(b.add(Concat(1), seen, b.conv(stem, 1, 1)), seen)) == []


@settings(max_examples=200, deadline=None)
@given(shape=st.sampled_from(sorted(SHAPES)), seed=st.integers(0, 10_000))
def test_any_order_of_nodes_is_brought_together_block_by_block(shape: str, seed: int) -> None:
    graph = shuffled(branching(shape, seed, 2), seed)
    found = blocks(graph)
    ordered = contiguous(graph, found)
    assert sorted(n.name for n in ordered.nodes) == sorted(n.name for n in graph.nodes)
    again = blocks(ordered)
    assert {(b.fork, b.join.name, frozenset(n.name for n in b.nodes)) for b in again} == {
        (b.fork, b.join.name, frozenset(n.name for n in b.nodes)) for b in found}
    for block in again:
        start = ordered.position(block.nodes[0].name)
        assert block.nodes == ordered.nodes[start:start + len(block.nodes)]
    assert contiguous(ordered, again) is ordered


@dataclass(frozen=True)
class Linked(PerUnit):
    """Given times, and links as the platform has them."""

    def rates(self, platform: Platform, source: str, target: str) -> Rates:
        per_byte = sum(1 / link.bandwidth_bytes_per_s for link in platform.route(source, target))
        return 0.0, per_byte, per_byte


def pair_of_arms(bandwidth: float = 1e12, mode: Mode = Mode.CONCURRENT, gpu_us: float = 1000.0) -> Problem:
    """A stem, arms of one and two nodes, their sum; a node takes 1 ms on the GPU, 0.5 ms on the CPU, 2 ms on the second."""
    devices = tuple(Device(n, k, n, "given", 1.0, 1.0) for n, k in (("cpu", Kind.CPU), ("gpu", Kind.GPU), ("gpu2", Kind.GPU)))
    links = (Link("bus", ("cpu", "gpu"), bandwidth, 0.0, 0.0), Link("bus2", ("cpu", "gpu2"), bandwidth, 0.0, 0.0))
    b = Builder(4, 4)
    stem = b.conv("x", 4, 1)
    b.add(Add(), b.conv(stem, 4, 1), b.conv(b.conv(stem, 4, 1), 4, 1))
    units = {"cpu": 500.0 / CHANNELS, "gpu": gpu_us / CHANNELS, "gpu2": 2000.0 / CHANNELS}
    return Problem(b.graph(), Platform("pair", "for arithmetic by hand", "cpu", devices, links), Linked(units), mode=mode)


def placed(**devices: str) -> dict[str, Split]:
    return {"n0": whole_on("cpu"), "n4": whole_on("cpu"), **{n: whole_on(d) for n, d in devices.items()}}


def test_arms_on_different_devices_take_as_long_as_the_longer() -> None:
    problem = pair_of_arms()
    apart = evaluate(problem, placed(n1="gpu2", n2="gpu", n3="gpu"))
    assert apart.latency_s == pytest.approx(0.5e-3 + 2e-3 + 0.5e-3, rel=1e-6)
    assert evaluate(problem, placed(n1="gpu", n2="gpu", n3="gpu")).latency_s == pytest.approx(4e-3, rel=1e-6)
    added = evaluate(pair_of_arms(mode=Mode.SEQUENTIAL), placed(n1="gpu2", n2="gpu", n3="gpu"))
    assert added.latency_s == pytest.approx(5e-3, rel=1e-6)
    costs = {c.node: c for c in apart.nodes}
    assert costs["n1"].beside == ("n2", "n3")
    assert costs["n3"].beside == ("n1",)
    assert costs["n2"].latency_s == 0.0
    assert costs["n2"].hidden_s == pytest.approx(1e-3, rel=1e-6)
    assert costs["n0"].beside == ()


def test_an_arm_on_several_devices_or_in_pieces_runs_by_itself() -> None:
    problem = pair_of_arms()
    assert evaluate(problem, placed(n1="gpu2", n2="gpu", n3="cpu")).latency_s == pytest.approx(4.5e-3, rel=1e-6)
    split = Split(Axis.OUTPUT_CHANNELS, (Piece("cpu", 0, 2), Piece("gpu", 2, 4)))
    whole = evaluate(problem, {**placed(n2="gpu", n3="gpu"), "n1": split})
    assert whole.latency_s == pytest.approx(0.5e-3 + 0.5e-3 + 2e-3 + 0.5e-3, rel=1e-6)
    assert all(c.beside == () for c in whole.nodes)


def test_arms_wait_for_each_other_where_they_share_a_link() -> None:
    problem = pair_of_arms(bandwidth=256e3)
    move = problem.graph.tensors["t0"].size * problem.graph.tensors["t0"].element_bytes / 256e3
    found = evaluate(problem, placed(n0="gpu2", n1="gpu", n2="cpu", n3="cpu"))
    stem, join = move + 2e-3, 0.5e-3
    first, second = 2 * move + 1e-3, 3 * move + 1e-3  # over both buses; then over the one the first has left
    assert found.latency_s == pytest.approx(stem + max(first + move, second) + join, rel=1e-9)


def test_what_an_arm_made_is_on_its_way_to_the_join_while_others_run() -> None:
    problem = pair_of_arms(bandwidth=256e3, gpu_us=50.0)
    move = problem.graph.tensors["t0"].size * problem.graph.tensors["t0"].element_bytes / 256e3
    found = evaluate(problem, placed(n1="gpu", n2="cpu", n3="cpu"))
    assert found.latency_s == pytest.approx(0.5e-3 + max(2 * move + 0.05e-3, 1e-3) + 0.5e-3, rel=1e-9)
    assert {c.node: c for c in found.nodes}["n4"].hidden_s == pytest.approx(min(move, 1e-3 - move - 0.05e-3), rel=1e-9)


def everything(problem: Problem, assignment: Assignment) -> Evaluation:
    """The same assignment as if no branch ever ran beside another."""
    return evaluate(replace(problem, forks=()), assignment)


def random_placement(problem: Problem, rng: np.random.Generator) -> dict[str, Split]:
    """Any candidate columns, or (more often than chance has it) whole arms on devices."""
    found = {}
    for node in problem.graph.nodes:
        choices = options(problem, node).splits
        found[node.name] = choices[int(rng.integers(len(choices)))]
    for block in problem.blocks:
        if rng.uniform() < 0.7:
            for arm in block.arms:
                device = problem.devices[int(rng.integers(len(problem.devices)))]
                found |= {n.name: whole_on(device) for n in arm}
    return found


@settings(max_examples=300, deadline=None)
@given(shape=st.sampled_from(sorted(SHAPES)), seed=st.integers(0, 100_000))
def test_branches_at_once_never_cost_more_and_nodes_add_up(shape: str, seed: int) -> None:
    problem = Problem(shuffled(branching(shape, seed, 2), seed), platform(seed, budget=1e9), Synthetic(seed))
    rng = np.random.default_rng(seed)
    for _ in range(4):
        assignment = random_placement(problem, rng)
        found, apart = evaluate(problem, assignment), everything(problem, assignment)
        assert found.latency_s <= apart.latency_s * (1 + 1e-12)
        assert found.energy_j == pytest.approx(apart.energy_j - problem.idle_power_w * (apart.latency_s - found.latency_s))
        assert found.latency_s == pytest.approx(sum(c.latency_s for c in found.nodes) + found.delivery_s, rel=1e-12)
        assert found.energy_j == pytest.approx(sum(c.energy_j for c in found.nodes) + found.delivery_j, rel=1e-12)
        for cost, alone in zip(found.nodes, apart.nodes, strict=True):
            assert cost.latency_s == pytest.approx(cost.compute_s + cost.transfer_s, rel=1e-9, abs=1e-15)
            assert cost.hidden_s <= alone.latency_s * (1 + 1e-12)
        timeline = schedule(problem.graph, problem.platform, assignment, problem.costs)
        assert timeline.makespan_s <= found.latency_s * (1 + 1e-12)


@settings(max_examples=150, deadline=None)
@given(shape=st.sampled_from(sorted(SHAPES)), seed=st.integers(0, 100_000))
def test_a_move_is_judged_as_if_everything_were_judged_again(shape: str, seed: int) -> None:
    problem = Problem(branching(shape, seed, 2), platform(seed, budget=1e9), Synthetic(seed))
    rng = np.random.default_rng(seed)
    assignment = random_placement(problem, rng)
    judged = evaluate(problem, assignment)
    for node in problem.graph.nodes:
        for split in options(problem, node).splits[:6]:
            moved = evaluate(problem, {**assignment, node.name: split})
            assert reevaluate(problem, assignment, judged, node.name, split) == moved
    some = [n for n in problem.graph.nodes if rng.uniform() < 0.4]
    moves = {n.name: options(problem, n).splits[int(rng.integers(len(options(problem, n))))] for n in some}
    assert reevaluate_all(problem, assignment, judged, moves) == evaluate(problem, {**assignment, **moves})


@pytest.mark.parametrize(("before", "after"), [("cpu", "gpu"), ("gpu", "cpu"), ("gpu", "gpu2")])
def test_a_node_that_moves_begins_and_ends_arms_that_run_at_once(before: str, after: str) -> None:
    problem = pair_of_arms()
    known, moved = placed(n1="gpu2", n2="gpu", n3=before), placed(n1="gpu2", n2="gpu", n3=after)
    wanted = evaluate(problem, moved)
    assert reevaluate(problem, known, evaluate(problem, known), "n3", moved["n3"]) == wanted
    assert wanted.at_once == (frozenset({0}) if after == "gpu" else frozenset())


def test_of_nested_blocks_at_most_one_runs_at_once() -> None:
    problem = Problem(two_blocks(1), platform(1), Synthetic(1))
    assert len(problem.blocks) == 2
    b = Builder(1, 1)
    nested(b, b.conv("x", 1, 1), seeded(0))
    outer, inner = (Problem(b.graph(), platform(1), Synthetic(1))).blocks

    def at_once(block: Block, devices: tuple[str, ...]) -> bool:
        return arm_devices(block, {f"n{i}": whole_on(d) for i, d in enumerate(devices)}) is not None

    assert at_once(outer, ("cpu", "gpu", "gpu", "gpu", "gpu", "cpu", "cpu"))
    assert not at_once(inner, ("cpu", "gpu", "gpu", "gpu", "gpu", "cpu", "cpu"))
    assert at_once(inner, ("cpu", "gpu", "gpu", "fpga", "gpu", "cpu", "cpu"))
    assert not at_once(outer, ("cpu", "gpu", "gpu", "fpga", "gpu", "cpu", "cpu"))
