"""Boards filled to the brim: plans that are poured are legal, and better than candidates where those leave boards empty."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from dovetail import zoo
from dovetail.ir import Axis
from dovetail.ir.onnx.read import read_onnx
from dovetail.partition.boards.dividing import _Ways, pour
from dovetail.partition.boards.filter_shares import Sizes, _exchanged, brimmed
from dovetail.partition.boards.relaxation import Pool
from dovetail.partition.boards.ring_order import _Begun, _Ring, wind
from dovetail.partition.boards.ring_places import _ways_home, homeward, turned
from dovetail.partition.boards.solver import pooled_problem
from dovetail.partition.candidates import divide
from dovetail.partition.device_costs import DeviceCosts
from dovetail.partition.evaluate import evaluate
from dovetail.partition.options import PROOF
from dovetail.partition.plan import whole_on
from dovetail.partition.problem import TOLERANCE, Problem
from dovetail.partition.solve import plan
from dovetail.partition.work import input_places, transfer_of, work_of
from dovetail.platform.load import load_platform
from tests.partition.test_pooled import Alike, ring
from tests.partition.worlds import chain


def pool_of(problem: Problem) -> Pool:
    """What all boards of a problem hold together, as its pooled form knows it."""
    pooled = pooled_problem(problem)
    assert pooled is not None
    assert pooled.pool is not None
    return pooled.pool


def test_what_fits_on_no_board_as_it_is_is_cut_to_fill_them() -> None:
    """Each of three nodes takes most of a board, and there are two and a half boards' worth of them."""
    poured = 0
    for seed in range(12):
        graph, costs = chain(3, 16, 3), Alike(seed)
        wide = Problem(graph, ring(seed, 3, 1e9), costs)
        sizes = [dict(costs.costs_of(graph, n, None, np.array([0]), np.array([1]), wide.platform.device("fpga0")).resources)
                 for n in graph.nodes]
        largest = max(float(v[0]) for s in sizes for v in s.values())
        problem = Problem(graph, ring(seed, 3, 1.05 * largest), costs)
        pool = pool_of(problem)
        found = pour(problem, pool, {n.name: whole_on("fpga0") for n in graph.nodes}, np.inf)
        if found is not None:
            poured += 1
            assert evaluate(problem, found).feasible
            assert all(d.startswith("fpga") for s in found.values() for d in s.devices)
            assert all(s.axis in (None, Axis.OUTPUT_CHANNELS) for s in found.values())
    assert poured


def test_a_plan_that_cannot_be_is_none() -> None:
    graph, costs = chain(3, 4, 3), Alike(1)
    problem = Problem(graph, ring(1, 2, 1e-3), costs)
    pool = pool_of(problem)
    assert pour(problem, pool, {n.name: whole_on("fpga0") for n in graph.nodes}, np.inf) is None


def test_boards_that_share_nodes_in_a_row_are_filled_from_an_end() -> None:
    """Three boards, two nodes shared by neighbours: an end takes all it holds, and the board between them what is left."""
    full = 0
    for seed in range(12):
        graph, costs = chain(2, 32, 3), Alike(seed)
        nodes = [n for n in graph.nodes if Axis.OUTPUT_CHANNELS in n.op.axes(graph.input_shapes(n))][:2]
        wide = Problem(graph, ring(seed, 3, 1e9), costs)
        pool = pool_of(wide)
        sizes = [Sizes(wide, pool).of(n, None, 0, 1) for n in nodes]
        total = 1e9 * sum(float(s.max()) for s in sizes if s is not None)
        problem = Problem(graph, ring(seed, 3, 0.36 * total), costs)
        split = {n.name: whole_on("cpu") for n in graph.nodes}
        extents = [n.op.extent(Axis.OUTPUT_CHANNELS, graph.input_shapes(n)) for n in nodes]
        for n, extent, devices in zip(nodes, extents, (("fpga0", "fpga1"), ("fpga1", "fpga2")), strict=True):
            split[n.name] = divide(Axis.OUTPUT_CHANNELS, [extent // 2], extent, devices)
        found = brimmed(problem, Sizes(problem, pool), split)
        if found is not None:
            full += 1
            assert evaluate(problem, found).feasible
            assert [sorted(found[n.name].devices) for n in nodes] == [["fpga0", "fpga1"], ["fpga1", "fpga2"]]
            # One more filter of it would not fit on the end that was filled first.
            ends = [(n, next(p for p in found[n.name].pieces if p.device == end), extent)
                    for n, extent, end in zip(nodes, extents, ("fpga0", "fpga2"), strict=True)]
            more = [Sizes(problem, pool).of(n, Axis.OUTPUT_CHANNELS, max(0, p.start - 1), p.stop + (p.start == 0))
                    for n, p, _ in ends]
            assert any(p.stop - p.start == extent - 1 or (size is not None and float(size.max()) > 1)
                       for size, (_, p, extent) in zip(more, ends, strict=True))
    assert full


def test_what_no_cut_makes_fit_is_none() -> None:
    graph, costs = chain(2, 8, 3), Alike(3)
    problem = Problem(graph, ring(3, 3, 1e-3), costs)
    pool = pool_of(problem)
    assert brimmed(problem, Sizes(problem, pool), {n.name: whole_on("fpga0") for n in graph.nodes}) is None


def test_a_plan_is_wound_around_a_long_ring() -> None:
    """Each node takes most of a board, so seven of them need as many boards: neighbours, as they follow each other."""
    wound = 0
    for seed in range(4):
        graph, costs = chain(6, 16, 3), Alike(seed)
        wide = Problem(graph, ring(seed, 9, 1e9), costs)
        pool = pool_of(wide)
        sizes = [Sizes(wide, pool).of(n, None, 0, 1) for n in graph.nodes]
        problem = Problem(graph, ring(seed, 9, 1.1e9 * max(float(s.max()) for s in sizes if s is not None)), costs)
        found = wind(problem, pool, {n.name: whole_on("fpga0") for n in graph.nodes}, np.inf)
        if found is not None:
            wound += 1
            assert found[1].feasible
            assert evaluate(problem, found[0]).objective == found[1].objective
            assert all(d.startswith("fpga") for s in found[0].values() for d in s.devices)
    assert wound


def test_what_no_board_near_has_room_for_goes_over_several_or_to_the_host() -> None:
    """More nodes than five boards hold: some are divided among what the others leave, or stay at home."""
    ways: set[str] = set()
    for seed in range(4):
        graph, costs = chain(6 + 6 * (seed % 2), 16, 3), Alike(seed)
        wide = Problem(graph, ring(seed, 5, 1e9), costs)
        pool = pool_of(wide)
        sizes = [Sizes(wide, pool).of(n, None, 0, 1) for n in graph.nodes]
        largest = max(float(s.max()) for s in sizes if s is not None)
        problem = Problem(graph, ring(seed, 5, 1.1e9 * largest), costs)
        found = wind(problem, pool, {n.name: whole_on("fpga0") for n in graph.nodes}, np.inf)
        assert found is not None
        assert found[1].feasible
        assert evaluate(problem, found[0]).objective == found[1].objective
        ways |= {"host" if s.devices == (problem.platform.host,) else "several" if len(s.devices) > 1 else "one"
                 for s in found[0].values()}
    assert ways == {"host", "several", "one"}


def test_what_the_host_shares_goes_to_boards_with_room_wherever_they_are() -> None:
    """Halves of more nodes than five boards hold: those near the host are full, others are not."""
    kept = 0
    for seed in range(4):
        graph, costs = chain(6, 16, 3), Alike(seed)
        wide = Problem(graph, ring(seed, 12, 1e9), costs)
        pool, axis = pool_of(wide), Axis.OUTPUT_CHANNELS
        sizes = [Sizes(wide, pool).of(n, axis, 8, 16) for n in graph.nodes]
        problem = Problem(graph, ring(seed, 12, 1.01e9 * max(float(s.max()) for s in sizes if s is not None)), costs)
        shared = {n.name: divide(axis, [8], 16, ["cpu", "fpga0"]) for n in graph.nodes}
        found = wind(problem, pool, shared, np.inf)
        assert found is not None
        assert found[1].feasible
        kept += all(len(s.devices) == 2 for s in found[0].values()) and len({s.devices[1] for s in found[0].values()}) > 5
    assert kept


def test_a_plan_is_turned_around_the_ring_to_where_the_host_is_near() -> None:
    """Every turn of a plan is a plan; one that begins and ends five boards away has shorter ways at the host's door."""
    problem = Problem(chain(2, 16, 3), ring(1, 10, 1e9), Alike(1))
    pool = pool_of(problem)
    far = {n.name: whole_on("fpga5") for n in problem.graph.nodes}
    plan_, judged = turned(problem, pool, far, evaluate(problem, far))
    assert {s.devices for s in plan_.values()} == {("fpga0",)}
    assert judged.objective == evaluate(problem, plan_).objective < evaluate(problem, far).objective
    assert turned(problem, pool, plan_, judged) == (plan_, judged)


def test_ways_home_count_what_really_passes_them() -> None:
    """An eighth of a node's filters leaves an eighth of its output; what a board makes for itself passes the host twice."""
    graph = chain(3, 16, 3)
    problem = Problem(graph, ring(1, 10, 1e9), Alike(1))
    first, second = (n.name for n in graph.nodes[:2])
    plan_ = {n.name: whole_on("cpu") for n in graph.nodes}
    plan_[first] = divide(Axis.OUTPUT_CHANNELS, [14], 16, ["cpu", "fpga3"])
    before, whole = (graph.tensors[t].transfer_bytes for t in (graph.inputs[0], graph.node(first).output))

    def hop_s(size: int) -> float:
        return transfer_of(problem, "fpga0", "fpga1", size)[0]

    seconds = _ways_home(problem, pool_of(problem), plan_)
    assert seconds == pytest.approx([0.0] * 3 + [hop_s(before) + hop_s(whole // 8)] + [0.0] * 6)
    plan_[second] = divide(Axis.OUTPUT_CHANNELS, [8], 16, ["fpga2", "fpga3"])
    seconds = _ways_home(problem, pool_of(problem), plan_)
    half = graph.tensors[graph.node(second).output].transfer_bytes // 2
    assert seconds[2] == pytest.approx(hop_s(whole // 8 * 7) + hop_s(half)), "the eighth comes from its neighbour"
    assert seconds[3] == pytest.approx(hop_s(before) + hop_s(whole // 8 * 7) + 2 * hop_s(whole // 8) + hop_s(half))


def test_the_host_takes_back_what_it_would_rather_do_itself() -> None:
    """Never worse, always a plan, and as the evaluator judges it; somewhere the host is better than boards far away."""
    taken = 0
    for seed in range(6):
        problem = Problem(chain(6, 8, 3), ring(seed, 8, 1e9), Alike(seed))
        apart = {n.name: whole_on(f"fpga{4 * (i % 2)}") for i, n in enumerate(problem.graph.nodes)}
        before = evaluate(problem, apart)
        found, judged = homeward(problem, apart, before)
        assert judged.objective <= before.objective
        assert judged.objective == pytest.approx(evaluate(problem, found).objective)
        taken += found != apart
    assert taken


def test_channels_flow_on_where_they_were_made_and_sums_go_where_they_are_joined() -> None:
    """A node that two boards share hands its halves on to a node that adds up what each makes of its own."""
    problem = Problem(chain(3, 16, 3), ring(2, 9, 1e9), Alike(2))
    pool, nodes = pool_of(problem), problem.graph.nodes
    along, begun = _Ring(problem, pool), _Begun({}, input_places(problem), np.ones((9, 2)), frozenset(), 0.0, 0.0)
    halves = divide(Axis.OUTPUT_CHANNELS, [8], 16, ["fpga3", "fpga4"])
    first = along.extended(begun, nodes[0], halves)
    assert first is not None
    after = along.kept([first], nodes[0], 1, 1)[0]
    sums = [s for s in along.ways(nodes[1], whole_on("fpga0"), after) if s.axis is Axis.INPUT_CHANNELS]
    assert {(s.devices, s.reducer) for s in sums} == {(("fpga3", "fpga4"), home) for home in ("fpga3", "fpga4")}
    for split in sums:
        work = work_of(problem, nodes[1], split, after.places)
        assert not work.arrivals
        assert all(work.fused)


def test_resnet18_fills_what_links_leave_of_four_boards(tmp_path: Path) -> None:
    """Five layers take 3.99 of four boards: no quarters fit, but other filters of three shared layers do."""
    path = tmp_path / "m.onnx"
    path.write_bytes(zoo.build("resnet18"))
    graph, board = read_onnx(path).graph, load_platform("fic:4").with_link_logic()
    found = plan(graph, board, replace(PROOF, off_grid=True, explained=False))
    assert found.gap <= 0.005
    judged = evaluate(Problem(graph, board, DeviceCosts()), found.assignment)
    assert judged.feasible
    assert judged.objective == found.objective
    on_grid = plan(graph, board, replace(PROOF, explained=False, time_limit_s=1.0))
    assert on_grid.objective >= found.objective
    assert on_grid.lower_bound <= on_grid.objective


def test_cuts_weighed_two_at_a_time_fit_wherever_they_are_said_to() -> None:
    met = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        filters = [rng.uniform(0.5, 1.5, 9) for _ in range(3)]
        loads = []
        for own, (a, b) in zip(filters, ((0, 1), (1, 2), (0, 2)), strict=True):
            ways = np.zeros((8, 3, 1))
            ways[:, a, 0], ways[:, b, 0] = own.cumsum()[:-1], own.sum() - own.cumsum()[:-1]
            loads.append(ways)
        # As much room in all as filters take, and a little more, divided as some cuts do.
        some = sum(own[rng.integers(8)] for own in loads)
        left = some * (1 + rng.choice([0.0, 0.01, 0.05])) - rng.choice([0.0, 0.02])
        possible = any((sum(own[c] for own, c in zip(loads, cuts, strict=True)) <= left + TOLERANCE).all()
                       for cuts in product(range(8), repeat=3))
        found = _exchanged(loads, left, [int(rng.integers(8)) for _ in loads])
        assert found is None or (sum(own[c] for own, c in zip(loads, found, strict=True)) <= left + TOLERANCE).all()
        assert possible or found is None
        met += found is not None
    assert met >= 20


def test_boards_that_share_a_node_have_at_least_a_filter_of_it() -> None:
    """What sets of boards must hold alone of a node adds up to all of it, and no board of a share holds less than a filter."""
    shared = 0
    for seed in range(6):
        graph, costs = chain(2, 16, 3), Alike(seed)
        wide = Problem(graph, ring(seed, 3, 1e9), costs)
        sizes = [Sizes(wide, pool_of(wide)).of(n, None, 0, 1) for n in graph.nodes]
        problem = Problem(graph, ring(seed, 3, 1e9 * max(float(s.max()) for s in sizes if s is not None)), costs)
        ways = _Ways(problem, pool_of(problem), {n.name: whole_on("fpga0") for n in graph.nodes})
        for node in graph.nodes:
            single = ways.sizes.of(node, Axis.OUTPUT_CHANNELS, 0, 1)
            for split, taken in ways._every(node):
                if split.axis is not Axis.OUTPUT_CHANNELS or single is None:
                    continue
                shared += 1
                every = [ways.sizes.of(node, split.axis, p.start, p.stop) for p in split.pieces]
                assert np.allclose(sum(size for _, size in taken), sum(e for e in every if e is not None))
                alone = {boards for boards, size in taken if boards.bit_count() == 1 and np.array_equal(size, single)}
                assert alone == {1 << ways.pool.boards.index(d) for d in split.devices}
        most, all_of_them = ways.in_all(0.5), ways.in_all(0.0)
        assert (most <= all_of_them).all()
        assert (all_of_them - most <= np.maximum(0.5 * ways.slack, 0.0) + TOLERANCE).all()
    assert shared
