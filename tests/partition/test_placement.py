"""Plans of the relaxation on real boards: what the beam search places is legal, and on small boards as good as trying all."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail import zoo
from dovetail.ir import Axis
from dovetail.ir.onnx.read import read_onnx
from dovetail.partition.boards.board_shares import BoardShares, holds
from dovetail.partition.boards.local_search import improved, returned
from dovetail.partition.boards.placement import _Search, place
from dovetail.partition.boards.relaxation import Pool
from dovetail.partition.boards.solver import pooled_problem
from dovetail.partition.candidates import divide
from dovetail.partition.device_costs import DeviceCosts
from dovetail.partition.evaluate import evaluate
from dovetail.partition.options import PROOF
from dovetail.partition.plan import whole_on
from dovetail.partition.problem import Problem
from dovetail.partition.solve import plan
from dovetail.partition.work import work_of
from dovetail.platform.load import load_platform
from tests.partition.enumeration import Enumeration
from tests.partition.test_pooled import Alike, ring
from tests.partition.worlds import chain

WIDE_BUDGET = 1e9
"""More than any node takes of a board."""

WIDTH = 32
"""Partial plans kept per node."""


def pool_of(problem: Problem) -> Pool:
    """What all boards of a problem hold together, as its relaxation knows it."""
    pooled = pooled_problem(problem)
    assert pooled is not None
    assert pooled.pool is not None
    return pooled.pool


def tight(seed: int, nodes: int, boards: int, room: float, extent: tuple[int, int] | None = None) -> Problem:
    """A chain on boards that hold so many times its largest node, or its largest share of so many filters."""
    graph, costs = chain(nodes, 16, 3), Alike(seed)
    wide = Problem(graph, ring(seed, boards, WIDE_BUDGET), costs)
    shares = BoardShares(wide, "fpga0")
    axis, start, stop = (None, 0, 1) if extent is None else (Axis.OUTPUT_CHANNELS, *extent)
    sizes = [size for n in graph.nodes if (size := shares.of(n, axis, start, stop)) is not None]
    return Problem(graph, ring(seed, boards, room * WIDE_BUDGET * max(max(s) for s in sizes)), costs, off_grid=True)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10_000), count=st.integers(2, 5), budget=st.sampled_from([12.0, 20.0, 45.0]), mask=st.integers(0, 7))
def test_a_placement_is_legal_and_no_better_than_the_best_candidate(seed: int, count: int, budget: float, mask: int) -> None:
    problem = Problem(chain(3, 2, 2), ring(seed, count, budget), Alike(seed))
    guide = {n.name: whole_on("fpga0" if mask >> i & 1 else "cpu") for i, n in enumerate(problem.graph.nodes)}
    found = place(problem, pool_of(problem), guide, np.inf, 1.0, WIDTH)
    assert found is not None, "the host can run all nodes"
    for assignment, judged in (found, improved(problem, pool_of(problem), *found)):
        assert judged.feasible
        assert judged.objective == evaluate(problem, assignment).objective
        assert judged.objective >= Enumeration(problem).best * (1 - 1e-9)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10_000), count=st.integers(2, 4), room=st.floats(1.0, 2.5))
def test_nodes_are_placed_as_well_as_by_trying_all_boards(seed: int, count: int, room: float) -> None:
    problem = tight(seed, 3, count, room)
    pool, nodes = pool_of(problem), problem.graph.nodes
    every = [evaluate(problem, {n.name: whole_on(b) for n, b in zip(nodes, boards, strict=True)})
             for boards in product(pool.boards, repeat=3)]
    found = place(problem, pool, {n.name: whole_on("fpga0") for n in nodes}, np.inf, 0.0, WIDTH)
    assert found is not None
    assert found[1].objective <= min([e.objective for e in every if e.feasible], default=np.inf) * (1 + 1e-9)


def test_what_fits_on_no_board_as_it_is_is_cut_to_fill_them() -> None:
    """Each of three nodes takes most of a board, and there are fewer boards than nodes."""
    divided = 0
    for seed in range(12):
        problem = tight(seed, 3, 2, 1.6)
        found = place(problem, pool_of(problem), {n.name: whole_on("fpga0") for n in problem.graph.nodes}, np.inf, 1.0, WIDTH)
        assert found is not None
        assert found[1].feasible
        divided += any(len(s.pieces) > 1 for s in found[0].values())
    assert divided


def test_what_no_board_has_room_for_stays_on_the_host() -> None:
    problem = Problem(chain(3, 4, 3), ring(1, 2, 1e-3), Alike(1))
    found = place(problem, pool_of(problem), {n.name: whole_on("fpga0") for n in problem.graph.nodes}, np.inf, 1.0, WIDTH)
    assert found is not None
    assert set(found[0].values()) == {whole_on("cpu")}


def test_nodes_that_fill_boards_go_along_a_long_ring() -> None:
    """Each node takes most of a board, so six of them need as many: neighbours, as they follow each other."""
    for seed in range(4):
        problem = tight(seed, 6, 9, 1.1)
        found = place(problem, pool_of(problem), {n.name: whole_on("fpga0") for n in problem.graph.nodes}, np.inf, 1.0, WIDTH)
        assert found is not None
        assert found[1].feasible
        assert evaluate(problem, found[0]).objective == found[1].objective
        assert all(d.startswith("fpga") for s in found[0].values() for d in s.devices)


def test_what_no_board_near_has_room_for_goes_over_several_or_to_the_host() -> None:
    """More nodes than five boards hold: some are divided among what the others leave, or stay on the host."""
    ways: set[str] = set()
    for seed in range(4):
        problem = tight(seed, 6 + 6 * (seed % 2), 5, 1.1)
        found = place(problem, pool_of(problem), {n.name: whole_on("fpga0") for n in problem.graph.nodes}, np.inf, 1.0, WIDTH)
        assert found is not None
        assert found[1].feasible
        ways |= {"host" if s.devices == ("cpu",) else "several" if len(s.devices) > 1 else "one" for s in found[0].values()}
    assert ways == {"host", "several", "one"}


def test_what_the_host_shares_goes_to_boards_with_room_wherever_they_are() -> None:
    """Halves that fill a board each: those near the host are full, others are not."""
    kept = 0
    for seed in range(4):
        problem = tight(seed, 6, 12, 1.01, extent=(8, 16))
        shared = {n.name: divide(Axis.OUTPUT_CHANNELS, [8], 16, ["cpu", "fpga0"]) for n in problem.graph.nodes}
        found = place(problem, pool_of(problem), shared, np.inf, 1.0, WIDTH)
        assert found is not None
        assert found[1].feasible
        kept += all(len(s.devices) == 2 for s in found[0].values()) and len({s.devices[1] for s in found[0].values()}) > 5
    assert kept


def test_the_host_takes_back_what_it_would_rather_do_itself() -> None:
    """Never worse, always a plan, and as the evaluator judges it; somewhere the host is better than boards far away."""
    taken = 0
    for seed in range(6):
        problem = Problem(chain(6, 8, 3), ring(seed, 8, WIDE_BUDGET), Alike(seed))
        apart = {n.name: whole_on(f"fpga{4 * (i % 2)}") for i, n in enumerate(problem.graph.nodes)}
        before = evaluate(problem, apart)
        found, judged = returned(problem, apart, before)
        assert judged.objective <= before.objective
        assert abs(judged.objective / evaluate(problem, found).objective - 1) < 1e-9
        taken += found != apart
    assert taken


def test_channels_flow_on_where_they_were_made_and_sums_go_where_they_are_joined() -> None:
    """A node that two boards share hands its halves on to a node that adds up what each makes of its own."""
    problem = Problem(chain(3, 16, 3), ring(2, 9, WIDE_BUDGET), Alike(2), off_grid=True)
    nodes = problem.graph.nodes
    search = _Search(problem, pool_of(problem), {n.name: whole_on("fpga0") for n in nodes})
    first = search.extended(search.start(), nodes[0], divide(Axis.OUTPUT_CHANNELS, [8], 16, ["fpga3", "fpga4"]))
    assert first is not None
    after = search.partial(first, nodes[0])
    sums = [s for s in search.ways(nodes[1], after) if s.axis is Axis.INPUT_CHANNELS]
    assert {(s.devices, s.reducer) for s in sums} == {(("fpga3", "fpga4"), home) for home in ("fpga3", "fpga4")}
    for split in sums:
        work = work_of(problem, nodes[1], split, after.places)
        assert not work.arrivals
        assert all(work.fused)


def test_as_many_filters_as_fit_are_found() -> None:
    problem = tight(3, 2, 3, 1.0)
    shares, node = BoardShares(problem, "fpga0"), problem.graph.nodes[0]
    left = tuple(x / 2 for x in shares.of(node, None, 0, 1) or ())
    for last in (False, True):
        count = shares.most(node, Axis.OUTPUT_CHANNELS, 0, 16, left, last)
        sizes = [shares.of(node, Axis.OUTPUT_CHANNELS, *((16 - k, 16) if last else (0, k))) for k in range(1, 17)]
        assert [size is not None and holds(left, size) for size in sizes] == [k <= count for k in range(1, 17)]


def test_resnet18_is_cut_to_fill_four_boards(tmp_path: Path) -> None:
    """Five layers take 3.99 of four boards: no quarters fit, so plans between the candidates are better than on them."""
    path = tmp_path / "m.onnx"
    path.write_bytes(zoo.build("resnet18"))
    graph, board = read_onnx(path).graph, load_platform("fic:4").with_link_logic()
    found = plan(graph, board, replace(PROOF, off_grid=True, explained=False))
    judged = evaluate(Problem(graph, board, DeviceCosts()), found.assignment)
    assert judged.feasible
    assert judged.objective == found.objective
    on_grid = plan(graph, board, replace(PROOF, explained=False, time_limit_s=1.0))
    assert on_grid.objective >= found.objective
    assert on_grid.lower_bound <= on_grid.objective
    assert found.gap <= 0.03


def test_a_board_holds_what_plans_may_take_of_it(tmp_path: Path) -> None:
    """Boards are filled by the limits that plans are judged by, not by all there is: with a margin, or as far as was asked."""
    (path := tmp_path / "net.onnx").write_bytes(zoo.build("squeezenet1.1"))
    graph = read_onnx(path).graph
    for board in (load_platform("fic:3"), load_platform("fic:3").with_fill(0.3)):
        problem = Problem(graph, board, DeviceCosts())
        shares, split = BoardShares(problem, "fpga0"), whole_on("fpga0")
        for node in graph.nodes:
            size = shares.of_piece(node, split, split.pieces[0])
            if size is not None:
                splits = {n.name: whole_on(problem.platform.host) for n in graph.nodes} | {node.name: split}
                assert holds((1.0,) * len(size), size) == evaluate(problem, splits).feasible


def test_boards_with_a_margin_are_used(tmp_path: Path) -> None:
    """A network that six boards speed up is placed on them by default, near its bound."""
    (path := tmp_path / "resnet18.onnx").write_bytes(zoo.build("resnet18"))
    found = plan(read_onnx(path).graph, load_platform("fic:6"), replace(PROOF, time_limit_s=10.0), costs=DeviceCosts())
    assert found.gap < 0.02
