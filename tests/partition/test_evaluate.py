"""The evaluator by hand, its refusals, and its agreement with the solver's tables."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.cost.estimate import ShareCosts
from dovetail.errors import UnsupportedError, UsageError
from dovetail.hardware.shares import Ints
from dovetail.ir import Axis, Graph, Node
from dovetail.partition.candidates import cut_positions
from dovetail.partition.cost_model import Rates
from dovetail.partition.effort import counted, should_take
from dovetail.partition.evaluate import evaluate
from dovetail.partition.exact.cuts import network
from dovetail.partition.plan import Mode, Piece, Split, whole_on
from dovetail.partition.problem import Problem
from dovetail.partition.tables.columns import inputs_held, options
from dovetail.partition.tables.costs import tabulate
from dovetail.platform.device import Device, Kind, Link, Platform
from tests.partition.worlds import Builder, Synthetic, chain, depthwise, fork, platform, pooled, residual

KINDS = (Kind.CPU, Kind.GPU, Kind.FPGA)


@dataclass(frozen=True)
class Plain:
    """One second per whole node on every device, a tenth when fused on the FPGA; one joule; one byte per second."""

    def costs_of(self, graph: Graph, node: Node, axis: Axis | None, starts: Ints, stops: Ints,
                 device: Device) -> ShareCosts | None:
        extent = 1 if axis is None else node.op.extent(axis, graph.input_shapes(node))
        alone = (stops - starts) / extent
        fpga = device.kind is Kind.FPGA
        return ShareCosts(alone, alone * (0.1 if fpga else 1.0), alone, alone * 2, alone, {"alm": alone * 10} if fpga else {},
                          np.zeros(len(starts), dtype=np.bool_), device.name)

    def by_shape(self, device: Device) -> bool:
        return False

    def why_not(self, graph: Graph, node: Node, device: Device) -> str | None:
        return None

    def reduce_costs(self, graph: Graph, node: Node, parts: int, device: Device) -> ShareCosts | None:
        one = np.array([0.5])
        return ShareCosts(one, one, one, one, one, {}, np.zeros(1, dtype=np.bool_), "sum")

    def rates(self, platform: Platform, source: str, target: str) -> Rates:
        return 0.0, 1 / platform.route(source, target)[0].bandwidth_bytes_per_s, 0.0


def star(full_duplex: bool = True) -> Platform:
    """A host with two devices on links of 16 and 8 bytes per second; no idle power."""
    devices = tuple(Device(k.value, k, "", "", 0.0, 1.0, resources={"alm": 15.0} if k is Kind.FPGA else {}) for k in KINDS)
    return Platform("star", "", "cpu", devices, (Link("fast", ("cpu", "gpu"), 16.0, 0.0, 0.0, full_duplex=full_duplex),
                                                 Link("slow", ("cpu", "fpga"), 8.0, 0.0, 0.0, full_duplex=full_duplex)))


def pair(mode: Mode = Mode.CONCURRENT, **options: object) -> Problem:
    """Two convolutions on 1x2x4x4 tensors: 32 bytes everywhere."""
    return Problem(chain(2, 2, 4), star(), Plain(), mode=mode, **options)  # type: ignore[arg-type]


def halves(first: str, second: str, axis: Axis = Axis.OUTPUT_CHANNELS, reducer: str | None = None) -> Split:
    return Split(axis, (Piece(first, 0, 1), Piece(second, 1, 2)), reducer)


def test_a_chain_on_the_fpga_pays_the_way_there_and_back_and_streams_inside() -> None:
    found = evaluate(pair(), {"n0": whole_on("fpga"), "n1": whole_on("fpga")})
    # The first engine starts with the first packet and ends a tenth after the last one; what the second puts out over 0.9 s
    # is on its way by then.
    assert [n.latency_s for n in found.nodes] == [pytest.approx(4.0 + 0.1), pytest.approx(0.1)]
    assert found.delivery_s == pytest.approx(4.0 - 0.9)
    assert found.latency_s == pytest.approx(7.3)
    assert found.resources == {"fpga": {"alm": 20.0}}
    assert found.violations == ("fpga alm: 20 used, 15 allowed, 5 too much",)


def test_one_layer_at_a_time_fits_where_all_together_do_not() -> None:
    assert evaluate(pair(shared_budget=False), {"n0": whole_on("fpga"), "n1": whole_on("fpga")}).feasible


@pytest.mark.parametrize(("allowed", "violations"), [
    (20.0, ()), (19.99, ("fpga alm: 20 used, 19.99 allowed, 0.01 too much",))])
def test_a_budget_is_kept_to_the_last_part(allowed: float, violations: tuple[str, ...]) -> None:
    board = star()
    devices = tuple(replace(d, resources={"alm": allowed}) if d.kind is Kind.FPGA else d for d in board.devices)
    found = evaluate(replace(pair(), platform=replace(board, devices=devices)), {"n0": whole_on("fpga"), "n1": whole_on("fpga")})
    assert found.violations == violations


def test_a_plan_judged_again_counts_as_one_judgement() -> None:
    problem, placed = pair(), {"n0": whole_on("gpu"), "n1": whole_on("cpu")}
    evaluate(problem, placed)
    with counted(inf) as meter:
        evaluate(problem, placed)
        spent_s = meter.seconds
    assert spent_s == should_take("nodes", 2, 0) + should_take("judgements", 1, 2 + len(problem.budgets))


@pytest.mark.parametrize("limit", ["max_latency_s", "max_energy_j"])
def test_a_limit_is_kept_to_the_last_part(limit: str) -> None:
    placed = {"n0": whole_on("gpu"), "n1": whole_on("cpu")}
    plain = evaluate(pair(), placed)
    reached = plain.latency_s if limit == "max_latency_s" else plain.energy_j
    assert evaluate(pair(**{limit: reached}), placed).feasible
    assert not evaluate(pair(**{limit: reached * 0.999}), placed).feasible


def test_frames_that_leave_too_rarely_are_said() -> None:
    placed = {"n0": whole_on("gpu"), "n1": whole_on("cpu")}
    plain = evaluate(pair(), placed)
    assert evaluate(pair(max_interval_s=plain.interval_s), placed).feasible
    assert evaluate(pair(max_interval_s=1.5), placed).violations == (
        "interval between frames: 2000 ms used, 1500 ms allowed, 500 ms too much",)


@pytest.mark.parametrize(("mode", "expected"), [
    (Mode.CONCURRENT, [(1.0, 2.0, (1.0, 2.0), "gpu"), (0.5, 1.55, (0.5, 1.0), "gpu; fpga")]),  # a tenth behind the last packet
    (Mode.SEQUENTIAL, [(1.0, 2.0, (1.0, 2.0), "gpu"), (1.0, 2.0, (1.0, 2.0), "gpu; fpga")])])
def test_a_node_says_what_computes_what_moves_how_sure_it_is_and_who_said_so(mode: Mode, expected: object) -> None:
    found = evaluate(pair(mode), {"n0": whole_on("gpu"), "n1": halves("gpu", "fpga")})
    assert [(n.compute_s, round(n.transfer_s, 9), n.interval_s, n.source) for n in found.nodes] == expected


@dataclass(frozen=True)
class Beyond(Plain):
    """The FPGA's costs are outside what was measured."""

    def costs_of(self, graph: Graph, node: Node, axis: Axis | None, starts: Ints, stops: Ints,
                 device: Device) -> ShareCosts | None:
        known = super().costs_of(graph, node, axis, starts, stops, device)
        return replace(known, extrapolated=~known.extrapolated) if known and device.kind is Kind.FPGA else known


def test_a_node_is_extrapolated_where_one_of_its_pieces_is() -> None:
    placed = {"n0": whole_on("gpu"), "n1": halves("gpu", "fpga")}
    assert [n.extrapolated for n in evaluate(pair(), placed).nodes] == [False, False]
    assert [n.extrapolated for n in evaluate(replace(pair(), costs=Beyond()), placed).nodes] == [False, True]


def test_an_engine_behind_another_is_as_sure_as_the_tenth_that_it_adds() -> None:
    found = evaluate(pair(), {"n0": whole_on("fpga"), "n1": whole_on("fpga")}).nodes[1]
    assert (found.compute_s, found.transfer_s) == pytest.approx((0.1, 0.0))
    assert found.interval_s == pytest.approx((0.1, 0.2))


@pytest.mark.parametrize(("mode", "seconds"), [(Mode.CONCURRENT, 2.0), (Mode.SEQUENTIAL, 3.0)])
def test_halves_of_an_output_come_home_over_their_links_at_once_or_in_turn(mode: Mode, seconds: float) -> None:
    assert evaluate(pair(mode), {"n0": whole_on("gpu"), "n1": halves("gpu", "fpga")}).delivery_s == seconds


def test_pieces_on_different_links_run_at_once() -> None:
    found = evaluate(pair(), {"n0": halves("gpu", "fpga"), "n1": whole_on("cpu")})
    assert found.nodes[0].latency_s == pytest.approx(4.0 + 0.05)
    assert found.nodes[0].compute_s == 0.5
    assert found.nodes[1].latency_s == 2.0 + 1.0
    assert found.nodes[1].transfer_bytes == 32


def test_sequential_adds_everything() -> None:
    found = evaluate(pair(Mode.SEQUENTIAL), {"n0": halves("gpu", "fpga"), "n1": whole_on("cpu")})
    assert [n.latency_s for n in found.nodes] == [2.0 + 4.0 + 0.5 + 0.5, 1.0 + 2.0 + 1.0]


def test_transfers_that_share_a_link_wait_for_each_other() -> None:
    split = halves("gpu", "fpga")
    found = evaluate(pair(), {"n0": split, "n1": split})
    # gpu needs the fpga's 16 bytes over both links (2 s at the first link's rate), fpga the gpu's 16 the other way;
    # and as an fpga keeps nothing, its own 16 bytes go to the host and back (2 s each) once its way out is free.
    assert found.nodes[1].latency_s == pytest.approx(2.0 + 4.0 + 0.5)
    assert found.nodes[1].transfer_bytes == 48
    half_duplex = replace(pair(), platform=star(full_duplex=False))
    assert evaluate(half_duplex, {"n0": split, "n1": split}).nodes[1].latency_s == pytest.approx(2.0 + 1.0 + 4.0 + 0.5)


def test_an_engine_slower_than_its_link_hides_the_transfers_and_pays_two_packets() -> None:
    quick = replace(star(), links=tuple(replace(link, bandwidth_bytes_per_s=80.0) for link in star().links))
    found = evaluate(replace(pair(), platform=quick), {"n0": whole_on("fpga"), "n1": whole_on("cpu")})
    assert found.nodes[0].latency_s == pytest.approx(4 / 80 + 1.0)
    assert found.nodes[1].latency_s == pytest.approx(4 / 80 + 1.0)
    half_duplex = replace(quick, links=tuple(replace(link, full_duplex=False) for link in quick.links))
    found = evaluate(replace(pair(), platform=half_duplex), {"n0": whole_on("fpga"), "n1": whole_on("cpu")})
    assert found.nodes[1].latency_s == pytest.approx(32 / 80 + 1.0)


def test_partial_sums_travel_as_four_bytes_and_the_tensor_stays_with_the_reducer() -> None:
    found = evaluate(pair(), {"n0": halves("cpu", "gpu", Axis.INPUT_CHANNELS, "cpu"), "n1": whole_on("cpu")})
    assert found.nodes[0].latency_s == 1.0 + 0.5 + 128 / 16 + 0.5
    assert found.nodes[1].transfer_bytes == 0


def test_a_row_split_fetches_only_its_halo() -> None:
    rows = Split(Axis.ROWS, (Piece("cpu", 0, 2), Piece("gpu", 2, 4)))
    graph = Builder(2, 4)
    end = graph.conv(graph.conv("x", 2, 3), 2, 3)
    found = evaluate(Problem(graph.graph(end), star(), Plain()), {"n0": rows, "n1": rows})
    assert found.nodes[0].transfer_bytes == 2 * 3 * 4
    assert found.nodes[1].transfer_bytes == 2 * (2 * 1 * 4)


def test_energy_counts_idle_devices_for_the_whole_frame() -> None:
    base = pair()
    devices = tuple(replace(d, idle_power_w=2.0) for d in base.platform.devices)
    busy = replace(base, platform=replace(base.platform, devices=devices))
    found = evaluate(busy, {"n0": whole_on("gpu"), "n1": whole_on("cpu")})
    assert found.energy_j == pytest.approx(2.0 + 6.0 * found.latency_s)
    assert found.energy_j == pytest.approx(sum(n.energy_j for n in found.nodes) + found.delivery_j)


@pytest.mark.parametrize(("split", "message"), [
    (Split(Axis.OUTPUT_CHANNELS, (Piece("cpu", 0, 1),)),
     r"node n0: pieces end at 1; output_channels has 2 units and all must be covered"),
    (Split(Axis.ROWS, (Piece("cpu", 0, 2), Piece("gpu", 1, 4))),
     r"node n0: piece \[1, 4\) on gpu does not continue at 2; pieces must cover rows \[0, 4\) in order, without gaps"),
    (Split(Axis.ROWS, (Piece("cpu", 0, 2), Piece("cpu", 2, 4))),
     r"node n0: devices cpu, cpu repeat; a device holds at most one piece of a node"),
    (Split(Axis.GROUPS, (Piece("cpu", 0, 2),)),
     r"node n0: Conv cannot be divided along groups; possible: output_channels, input_channels, rows"),
    (Split(None, (Piece("cpu", 0, 2),)),
     r"node n0: 1 pieces without an axis; a whole node is one piece \[0, 1\)"),
    (Split(Axis.INPUT_CHANNELS, (Piece("cpu", 0, 2),)),
     r"node n0: reducer None with axis input_channels; an input-channel split names one, no other split does"),
])
def test_an_illegal_split_is_refused_by_name(split: Split, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        evaluate(pair(), {"n0": split, "n1": whole_on("cpu")})


def test_a_missing_node_and_an_unable_device_are_named() -> None:
    with pytest.raises(UsageError, match="assignment: node n1 is missing; every node of the graph needs a split"):
        evaluate(pair(), {"n0": whole_on("cpu")})
    refusing = replace(pair(), costs=Synthetic(1, refuse=1.0))
    with pytest.raises(UnsupportedError, match="node n0: fpga cannot run it, Conv has no engine; place it on another device"):
        evaluate(refusing, {"n0": whole_on("fpga"), "n1": whole_on("cpu")})


@pytest.mark.parametrize("extent", [2, 3, 16, 17, 18, 64, 1000])
def test_cut_positions_reach_both_ends_and_the_middle(extent: int) -> None:
    found = cut_positions(extent)
    assert found[0] == 1
    assert found[-1] == extent - 1
    assert extent // 2 in found
    assert len(found) <= 17
    assert found == tuple(extent - c for c in reversed(found)) or extent % 32


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), shape=st.sampled_from([residual, fork, depthwise, pooled]), mode=st.sampled_from(Mode))
def test_tables_agree_with_the_evaluator(seed: int, shape: object, mode: Mode) -> None:
    problem = Problem(shape(seed), platform(seed, KINDS, 1e9), Synthetic(seed), mode=mode)  # type: ignore[operator]
    choices = [options(problem, n) for n in problem.graph.nodes]
    known = inputs_held(problem) | {c.node.output: c.held for c in choices}
    net = network(problem, tuple(tabulate(problem, c, known) for c in choices))
    rng = np.random.default_rng(seed)
    for _ in range(20):
        path = [int(rng.integers(len(t.splits))) for t in net.tables]
        found = evaluate(problem, net.assignment(tuple(path)))
        at: dict[str, int] = {}
        latency = energy = 0.0
        for table, column in zip(net.tables, path, strict=True):
            entry = (*(at[t] for t in table.inputs), column)
            latency, energy = latency + table.latency_s[entry], energy + table.energy_j[entry]
            at[table.node.output] = int(table.place_of[column])
        hidden = sum(c.hidden_s for c in found.nodes)
        assert latency == pytest.approx(found.latency_s + hidden, rel=1e-12)
        assert energy == pytest.approx(found.energy_j + problem.idle_power_w * hidden, rel=1e-12)


def test_every_pair_of_whole_placements_of_a_chain_is_legal() -> None:
    problem = pair()
    for first, second in product(problem.devices, repeat=2):
        assert evaluate(problem, {"n0": whole_on(first), "n1": whole_on(second)}).latency_s > 0
