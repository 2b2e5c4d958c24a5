"""One round of questions: what comes back is what each question alone would have answered, and no share that fits is lost."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dovetail.cost import costs_of, costs_of_many, reductions
from dovetail.cost.estimate import ShareCosts
from dovetail.hardware.shares import Ints
from dovetail.ir import (
    Add,
    AvgPool,
    Axis,
    Concat,
    Conv,
    Gemm,
    GlobalAvgPool,
    Graph,
    MaxPool,
    Mul,
    Node,
    Op,
    PixelShuffle,
    Reshape,
    Select,
    Transpose,
    Upsample,
    Window,
)
from dovetail.partition.boards.solver import pooled_problem
from dovetail.partition.device_costs import DeviceCosts, RememberedCosts
from dovetail.partition.memo import Memo
from dovetail.partition.plan import Split
from dovetail.partition.problem import PIECES, QUOTES, TWINS, Problem, entry, price
from dovetail.partition.tables import quotes
from dovetail.partition.tables.columns import options
from dovetail.partition.tables.quotes import ask_all, ask_pieces, menu_of
from dovetail.partition.tables.regions import Ends, share_ends, share_regions
from dovetail.platform.device import Kind
from dovetail.platform.load import load_platform
from tests.partition.worlds import Builder, Synthetic, depthwise, fork, platform, residual

FIELDS = ("alone_s", "fused_s", "low_s", "high_s", "energy_j", "extrapolated")


def network() -> Graph:
    """Layers of every formula, small and too large for any FPGA, in floats."""
    b = Builder(16, 20)
    at = b.conv("x", 24, 3)
    at = b.conv(b.conv(at, 24, 3, groups=24), 96, 1)
    at = b.add(MaxPool(Window((2, 2), (2, 2))), at)
    at = b.add(Add(), at, b.conv(at, 96, 3))
    at = b.add(GlobalAvgPool(), b.conv(at, 1024, 3))
    at = b.add(Gemm(512), b.add(Reshape((1, 1024)), at))
    graph = b.graph(at)
    rng = np.random.default_rng(7)
    for constant in graph.constants.values():
        constant.array[...] = rng.normal(0, 1, constant.array.shape)
    return graph


def one_by_one(problem: Problem, node: Node, device: str, number: int) -> list[tuple[int, int, ShareCosts]]:
    """Every segment of a node's menu asked for by itself."""
    found, at = [], 0
    for axis, starts, stops in menu_of(problem, node).asks[number]:
        costs = costs_of(problem.graph, node, axis, starts, stops, problem.platform.device(device))
        assert costs is not None
        found.append((at, at + len(starts), costs))
        at += len(starts)
    return found


@pytest.mark.parametrize("board", ["tx2-c10gx", "ecp5-85", "h200", "zcu102"])
def test_prices_asked_together_are_those_asked_one_by_one_to_the_last_bit(board: str) -> None:
    problem = Problem(network(), load_platform(board), DeviceCosts())
    ask_all(problem)
    compared = left_out = 0
    for node in problem.graph.nodes:
        for device in problem.platform.devices:
            quote = problem.memo.of(QUOTES).get((node.name, device.name))
            if quote is None:
                continue
            for start, stop, alone in one_by_one(problem, node, device.name, int(not problem.costs.by_shape(device))):
                together = quote[1].part(start, stop)
                fits, known = np.isfinite(together.alone_s), np.isfinite(together.alone_s)
                for resource, amounts in alone.resources.items():
                    limit = device.resources.get(resource, np.inf)
                    fits &= amounts <= limit
                    known &= together.resources[resource] <= limit
                # An estimate may stand for what does not fit, but never for what does.
                assert np.array_equal(fits, known)
                for resource, amounts in alone.resources.items():
                    assert np.array_equal(together.resources[resource][fits], amounts[fits])
                    ends = np.isfinite(together.alone_s)
                    assert together.resources[resource][ends] == pytest.approx(amounts[ends], rel=0.05)
                for name in FIELDS:
                    same = np.array_equal(getattr(together, name)[fits], getattr(alone, name)[fits])
                    assert same, (node.name, device.name, name)
                compared, left_out = compared + int(fits.sum()), left_out + int((~fits).sum())
    assert compared > 300
    assert left_out > 0 or all(d.kind is not Kind.FPGA for d in problem.platform.devices)


def test_what_does_not_fit_is_estimated_alike_whatever_was_counted_before() -> None:
    graph, board = network(), load_platform("tx2-c10gx")
    first, second = (Problem(graph, board, DeviceCosts()) for _ in range(2))
    ask_all(first)
    for node in graph.nodes:
        one_by_one(first, node, "fpga", 1)  # exact, so that every weight is counted
    ask_all(second)
    for node in graph.nodes:
        before, after = first.memo.of(QUOTES)[node.name, "fpga"], second.memo.of(QUOTES)[node.name, "fpga"]
        assert before is not None
        assert after is not None
        for resource, amounts in before[1].resources.items():
            assert np.array_equal(amounts, after[1].resources[resource]), (node.name, resource)


def test_a_pool_takes_prices_from_the_problem_it_is_made_of_and_asks_for_none(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = Problem(network(), load_platform("fic:8"), DeviceCosts())
    ask_all(problem)
    pool = pooled_problem(problem)
    assert pool is not None
    anew = replace(pool, memo=Memo())
    ask_all(anew)
    monkeypatch.setattr(quotes, "answers", lambda *_: pytest.fail("the prices are known"))
    ask_all(pool)
    assert pool.memo.of(QUOTES).keys() == anew.memo.of(QUOTES).keys()
    assert pool.memo.of(TWINS) == anew.memo.of(TWINS)
    for key, quote in anew.memo.of(QUOTES).items():
        own = pool.memo.of(QUOTES)[key]
        assert (own is None) is (quote is None)
        if own is not None and quote is not None:
            assert own[0] == quote[0]
            assert all(np.array_equal(getattr(own[1], name), getattr(quote[1], name)) for name in FIELDS)
            assert all(np.array_equal(own[1].resources[r], v) for r, v in quote[1].resources.items())


@pytest.mark.parametrize("board", ["fic:8", "tx2-c10gx"])
def test_pieces_of_a_plan_asked_for_together_cost_what_each_does(board: str) -> None:
    problem, again = (Problem(network(), load_platform(board), DeviceCosts()) for _ in range(2))
    draw, plan = np.random.default_rng(3), dict[str, Split]()
    for node in problem.graph.nodes:
        splits = options(problem, node).splits
        plan[node.name] = splits[int(draw.integers(len(splits)))]
    ask_pieces(again, plan)
    assert {(n, a, p.device, p.start, p.stop) for n, s in plan.items() for a in [s.axis] for p in s.pieces} == {
        (n, a, d, *share) for (n, a, d), shares in again.memo.of(PIECES).items() for share in shares or ()}
    for node in problem.graph.nodes:
        for piece in plan[node.name].pieces:
            alone = costs_of(problem.graph, node, plan[node.name].axis, np.array([piece.start]), np.array([piece.stop]),
                             problem.platform.device(piece.device))
            assert alone is not None
            assert price(again, node, plan[node.name].axis, piece) == entry(alone, 0)


def test_nodes_cut_alike_share_a_menu_and_no_price() -> None:
    b = Builder(16, 20)
    b.conv(b.conv("x", 16, 3), 16, 1)
    problem = Problem(b.graph(), load_platform("tx2-c10gx"), DeviceCosts())
    ask_all(problem)
    wide, narrow = problem.graph.nodes
    assert menu_of(problem, wide) is menu_of(problem, narrow)
    for device in problem.platform.devices:
        for node in (wide, narrow):
            quote = problem.memo.of(QUOTES)[node.name, device.name]
            assert quote is not None
            for start, stop, alone in one_by_one(problem, node, device.name, int(not problem.costs.by_shape(device))):
                assert np.array_equal(quote[1].part(start, stop).alone_s, alone.alone_s), (node.name, device.name)


@pytest.mark.parametrize("parts", [2, 3])
def test_sums_of_outputs_of_many_shapes_cost_what_each_alone_costs(parts: int) -> None:
    graph, together = network(), DeviceCosts()
    for device in load_platform("tx2-c10gx").devices:
        for node in (n for n in graph.nodes if isinstance(n.op, Conv | Gemm)):
            found = together.reduce_costs(graph, node, parts, device)
            (alone,) = reductions([graph.shape(node.output)], parts, device)
            assert found is not None
            assert alone is not None
            assert [getattr(found, name).tolist() for name in FIELDS] == [getattr(alone, name).tolist() for name in FIELDS]
            assert {r: v.tolist() for r, v in found.resources.items()} == {r: v.tolist() for r, v in alone.resources.items()}


def test_many_questions_to_a_device_that_cannot_are_answered_with_none() -> None:
    graph = network()
    b = Builder(4, 4)
    b.add(Transpose((0, 1, 3, 2)), "x")
    wide = b.graph()
    fpga = load_platform("tx2-c10gx").device("fpga")
    whole = ((None, np.zeros(1, dtype=np.int64), np.ones(1, dtype=np.int64)),)
    assert costs_of_many(wide, [(wide.nodes[0], whole)], [fpga]) == [[None]]
    assert costs_of_many(graph, [(graph.nodes[0], whole)], [fpga])[0][0] is not None


OPERATORS: list[tuple[Op, tuple[tuple[int, ...], ...]]] = [
    (Conv(6, Window((3, 3), (2, 2), (1, 1, 1, 1))), ((1, 4, 9, 9),)),
    (Conv(8, Window((3, 3), pads=(1, 1, 1, 1)), 4), ((1, 8, 7, 7),)),
    (MaxPool(Window((3, 3), (2, 2), (1, 1, 1, 1))), ((1, 5, 9, 9),)),
    (AvgPool(Window((2, 2), (2, 2))), ((1, 5, 8, 8),)),
    (Gemm(7), ((1, 9),)),
    (Add(), ((1, 6, 5, 5), (1, 6, 5, 5))),
    (Mul(), ((1, 6, 5, 5), (1, 6, 1, 1))),
    (Concat(1), ((1, 3, 5, 5), (1, 4, 5, 5))),
    (Select(tuple(range(2, 6))), ((1, 8, 5, 5),)),
    (Upsample(2, 3), ((1, 6, 4, 4),)),
    (PixelShuffle(2, 3, cropped=(1, 2)), ((1, 30, 4, 4),)),
    (GlobalAvgPool(), ((1, 6, 4, 4),)),
]


def boxes(shape: tuple[int, ...], count: int, ends: Ends) -> Ints:
    """Regions of shares, whole along all dimensions that have no ends of their own."""
    found = np.zeros((count, len(shape), 2), dtype=np.int64)
    found[:, :, 1] = shape
    for i, low, high in ends:
        found[:, i, 0], found[:, i, 1] = low, high
    return found


@pytest.mark.parametrize(("op", "shapes"), OPERATORS, ids=lambda x: x.kind if isinstance(x, Op) else "")
def test_regions_of_many_shares_are_those_of_each(op: Op, shapes: tuple[tuple[int, ...], ...]) -> None:
    for axis in op.axes(shapes):
        starts, stops = (a.astype(np.int64) for a in np.triu_indices(op.extent(axis, shapes) + 1, 1))
        *reads, made = (boxes(shape, len(starts), ends) for shape, ends in zip(
            (*shapes, op.infer(shapes)), share_ends(op, axis, starts, stops, shapes, op.infer(shapes)), strict=True))
        for i, (start, stop) in enumerate(zip(starts.tolist(), stops.tolist(), strict=True)):
            share = op.share(axis, start, stop, shapes)
            assert share_regions(op, axis, start, stop, shapes, op.infer(shapes)) == (share.inputs, share.output)
            assert [tuple(map(tuple, r[i].tolist())) for r in reads] == list(share.inputs)
            assert axis is Axis.INPUT_CHANNELS or tuple(map(tuple, made[i].tolist())) == share.output


@pytest.mark.parametrize("shape", [residual, fork, depthwise])
def test_columns_read_back_as_splits_are_legal_and_distinct(shape: object) -> None:
    problem = Problem(shape(3), platform(3, budget=1e9), Synthetic(3))  # type: ignore[operator]
    for node in problem.graph.nodes:
        splits = options(problem, node).splits
        assert len(set(splits)) == len(splits)
        for split in splits:
            assert split.axis is None or split.pieces[-1].stop == node.op.extent(split.axis, problem.graph.input_shapes(node))
            assert all(a.stop == b.start for a, b in zip(split.pieces[:-1], split.pieces[1:], strict=True))


def test_remembered_answers_are_those_of_a_model_that_forgets() -> None:
    graph, board, costs = network(), load_platform("tx2-c10gx"), RememberedCosts()
    faster = replace(board, devices=tuple(replace(d, clock_hz=d.clock_hz and 2 * d.clock_hz) for d in board.devices))
    for asked in (board, faster, board, faster.with_pace(4096), board.with_fill(0.5), board):
        known, new = (Problem(graph, asked, c) for c in (costs, DeviceCosts()))
        for problem in (known, new):
            ask_all(problem)
        one, other = known.memo.of(QUOTES), new.memo.of(QUOTES)
        assert one.keys() == other.keys()
        for key, quote in one.items():
            against = other[key]
            assert (quote is None) == (against is None), key
            if quote is not None and against is not None:
                assert all(np.array_equal(getattr(quote[1], f), getattr(against[1], f)) for f in FIELDS), key
                assert all(np.array_equal(v, against[1].resources[r]) for r, v in quote[1].resources.items()), key


def test_an_equal_question_is_answered_once_and_another_networks_is_not_taken_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Graph] = []
    real = DeviceCosts.costs_of_many
    monkeypatch.setattr(DeviceCosts, "costs_of_many", lambda self, graph, *rest: asked.append(graph) or real(self, graph, *rest))
    costs, graph, board = RememberedCosts(), network(), load_platform("tx2-c10gx")
    for one in (graph, graph, network()):
        ask_all(Problem(one, board, costs))
    assert [g.tensors is graph.tensors for g in asked] == [True, True, False, False]  # processors, then engines
