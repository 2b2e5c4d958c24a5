"""Folds and their costs: laws of the closed forms, the hardware they stand for, and what a planner makes of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from dovetail.cost import costs_of
from dovetail.cost.costs import costs_of_many
from dovetail.cost.folded import best_folds, folds_of, folds_offered, shape_of, sum_of_parts
from dovetail.cost.folded_area import Shape, _tree_bits, folded_cost
from dovetail.errors import InfeasibleError, ModelError
from dovetail.fpga.assemble import build_design
from dovetail.fpga.toolchain.synthesize import synthesize
from dovetail.hardware.folds import Channels, Fold, Loops, soft_logic
from dovetail.hardware.rounding import tree_bits
from dovetail.hardware.streaming import FoldedRaster, Raster
from dovetail.ir import RELU, Axis, Conv, Gemm, Graph, Op, Reshape, Window
from dovetail.partition.plan import Piece, Split, whole_on
from dovetail.partition.solve import plan
from dovetail.platform.device import Device
from dovetail.platform.fitted import dhm_model
from dovetail.platform.load import load_platform
from dovetail.schedule.program import lower
from tests.fpga.random_graphs import Sketch, same_window
from tests.strategies import Net, quantized

BOARD = load_platform("ecp5-85")
ECP5 = dhm_model("dhm-ecp5")
SAME = (1, 1, 1, 1)


def chain(*ops: Op, shape: tuple[int, int, int]) -> Graph:
    net = Net(3)
    x = net.input((1, *shape))
    for op in ops:
        x = net.add(op, x)
    return quantized(net.graph(x))


def paced(clocks: int) -> Device:
    return BOARD.with_pace(clocks).device("fpga")


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    side, stride = st.integers(1, 3), st.tuples(st.integers(1, 2), st.integers(1, 2))
    window = Window((draw(side), draw(side)), draw(stride), draw(st.tuples(*[st.integers(0, 1)] * 4)))
    channels = Channels(*draw(st.tuples(st.integers(1, 5), st.integers(1, 12), st.integers(1, 12))))
    shape = Shape(channels, window, draw(st.integers(1, 9)), draw(st.integers(1, 9)), 8, 8)
    try:
        _ = shape.raster.output_size
    except ModelError:
        assume(False)
    return shape


@given(shapes(), st.integers(1, 3000))
def test_folds_keep_the_pace_and_one_that_is_narrower_would_not(shape: Shape, clocks: int) -> None:
    for fold in folds_offered([shape], clocks):
        assert folded_cost(shape, fold, ECP5).steps <= clocks
        if fold.outputs > 1:
            fewer = replace(fold, outputs=fold.outputs - 1)
            slower = Loops(shape.channels, fewer).passes > Loops(shape.channels, fold).passes
            assert not slower or folded_cost(shape, fewer, ECP5).steps > clocks


@given(shapes(), shapes(), st.integers(1, 3000))
def test_a_table_of_folds_says_of_each_what_its_loops_and_raster_say(first: Shape, second: Shape, clocks: int) -> None:
    table = folds_offered([first, second], clocks, twins=True, soft=True)
    needs = table.resources(ECP5)
    for row, (fold, layer) in enumerate(zip(table, table.which, strict=True)):
        shape = (first, second)[layer]
        loops = Loops(shape.channels, fold)
        for name in ("blocks", "slices", "passes", "words", "results", "clocks", "lanes", "twins", "soft", "reads_words",
                     "writes_words", "input_width", "output_width"):
            assert getattr(table, name)[row] == getattr(loops, name), name
        assert table.steps[row] == FoldedRaster(shape.raster, loops).steps <= clocks
        assert table.costs(np.array([row]), needs, ECP5) == [folded_cost(shape, fold, ECP5)]


@given(shapes())
def test_a_tree_of_products_in_a_table_has_the_adders_of_one_by_itself(shape: Shape) -> None:
    every = list(folds_offered([shape], 1 << 30))
    terms, bits = np.array([f.inputs * shape.window.kernel[0] * shape.window.kernel[1] for f in every]), np.full(len(every), 16)
    merged, waiting = _tree_bits(terms, bits)
    assert list(zip(merged.tolist(), waiting.tolist(), strict=True)) == [tree_bits(int(n), 16, 1) for n in terms]


@given(shapes(), st.integers(1, 3000))
def test_the_best_fold_needs_the_smallest_parts_of_the_device(shape: Shape, clocks: int) -> None:
    limits = dict(BOARD.device("fpga").resources)
    (best,) = best_folds([shape], "dhm-ecp5", tuple(sorted(limits.items())), clocks)
    others = [folded_cost(shape, fold, ECP5) for fold in folds_offered([shape], clocks)]
    assert (best is None) == (not others)
    if best is not None:
        assert sum_of_parts(dict(best.resources), limits) == min(sum_of_parts(dict(o.resources), limits) for o in others)


@given(st.integers(1, 3), st.integers(1, 3), st.integers(3, 9), st.integers(3, 9), st.integers(1, 6), st.integers(1, 6))
def test_folded_steps_follow_beats_and_hold_where_outputs_end(kernel: int, stride: int, height: int, width: int, words: int,
                                                              passes: int) -> None:
    raster = Raster(Window((kernel, kernel), (stride, stride), ((kernel - 1) // 2,) * 4), height, width)
    folded = FoldedRaster(raster, Loops(Channels(1, 2 * words, 3 * passes), Fold(1, 2, 3)))
    clock, taken, left, ends = 0, [], [], set(raster.output_steps().tolist())
    for step in range(raster.steps):
        if step < raster.beats:
            taken += range(clock, clock + words)
        if step in ends:
            left += range(clock + words - 1, clock + folded.clocks, words)
        clock += folded.clocks if step in ends else words
    assert folded.input_steps().tolist() == taken
    assert folded.output_steps().tolist() == left
    assert folded.steps == clock


LAYERS = {
    "dense": (chain(Conv(8, Window((3, 3), pads=SAME), 1, RELU), shape=(6, 12, 12)), Fold(1, 2, 3)),
    "strided": (chain(Conv(8, Window((3, 3), (2, 2), SAME), 1, RELU), shape=(4, 14, 14)), Fold(1, 4, 2)),
    "pointwise": (chain(Conv(16, Window((1, 1))), shape=(8, 7, 7)), Fold(1, 3, 4)),
    "depthwise": (chain(Conv(8, Window((3, 3), pads=SAME), 8), shape=(8, 14, 14)), Fold(3, 1, 1)),
    "fully connected": (chain(Reshape((1, 128)), Gemm(10), shape=(8, 4, 4)), Fold(1, 2, 5)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_planned_clocks_of_a_fold_are_those_of_the_design_within_a_few(name: str) -> None:
    graph, fold = LAYERS[name]
    design = build_design(graph, "layer", folds={graph.nodes[-1].name: fold})
    cost = folded_cost(shape_of(graph, graph.nodes[-1]), fold, ECP5)
    assert cost.steps == design.interval_cycles
    assert cost.steps + cost.stages == pytest.approx(design.latency_cycles, abs=5)


NETWORK = chain(Conv(24, Window((3, 3), pads=SAME), 1, RELU), Conv(24, Window((3, 3), pads=SAME), 24, RELU),
                Conv(40, Window((1, 1)), 1, RELU), Conv(40, Window((3, 3), (2, 2), SAME), 1, RELU), shape=(16, 20, 20))


def test_planned_clocks_of_a_folded_chain_are_within_a_tenth_of_the_design() -> None:
    device = paced(40_000)
    folds = folds_of(NETWORK, device)
    assert len(folds) >= 3
    design = build_design(NETWORK, "chain", folds=folds)
    costs = [costs_of(NETWORK, node, None, np.array([0]), np.array([1]), device) for node in NETWORK.nodes]
    assert device.clock_hz is not None
    seconds = sum(float((c.fused_s if i else c.alone_s)[0]) for i, c in enumerate(costs) if c is not None)
    assert seconds * device.clock_hz == pytest.approx(design.latency_cycles, rel=0.1)
    assert design.interval_cycles <= 40_000


def test_a_board_without_a_pace_maps_directly() -> None:
    assert folds_of(NETWORK, BOARD.device("fpga")) == {}


@pytest.mark.parametrize("axis", [Axis.OUTPUT_CHANNELS, Axis.ROWS, Axis.INPUT_CHANNELS])
def test_shares_cost_what_the_hardware_lowered_from_them_will_be_folded_to(axis: Axis) -> None:
    node = NETWORK.nodes[0]
    device = paced(30_000)
    extent = node.op.extent(axis, NETWORK.input_shapes(node))
    cut = extent // 2
    costs = costs_of(NETWORK, node, axis, np.array([0]), np.array([cut]), device)
    many = costs_of_many(NETWORK, [(node, ((axis, np.array([0]), np.array([cut])),))], [device])[0][0]
    assert costs is not None
    assert many is not None
    assert dict(costs.resources) == dict(many.resources)
    share = folded_cost(shape_of(NETWORK, node, axis, 0, cut), best(node.name, axis, cut, device), ECP5)
    assert costs.resources["dsp"][0] == dict(share.resources)["dsp"] > 0


def best(name: str, axis: Axis, cut: int, device: Device) -> Fold:
    """The fold that hardware generation finds for the lowered share [0, cut) of a node."""
    extent = NETWORK.node(name).op.extent(axis, NETWORK.input_shapes(NETWORK.node(name)))
    split = Split(axis, (Piece("fpga", 0, cut), Piece("cpu", cut, extent)), "cpu" if axis is Axis.INPUT_CHANNELS else None)
    assignment = {n.name: whole_on("cpu") for n in NETWORK.nodes} | {name: split}
    segment = next(s for s in lower(NETWORK, assignment).segments if s.device == "fpga")
    (found,) = folds_of(segment.graph, device).values()
    return found


def test_folds_bring_a_network_onto_an_fpga_that_cannot_hold_it_directly() -> None:
    small = replace(BOARD.device("fpga"), resources={**BOARD.device("fpga").resources, "lut4": 30_000.0})
    board = replace(BOARD, devices=tuple(small if d.name == "fpga" else d for d in BOARD.devices))
    everything = {n.name: whole_on("fpga") for n in NETWORK.nodes}
    with pytest.raises(InfeasibleError):
        plan(NETWORK, board, fixed=everything)
    assert plan(NETWORK, board.with_pace(65_536), fixed=everything).resources["fpga"]["dsp"][0] > 0


@pytest.mark.yosys
def test_area_of_a_fold_is_near_what_yosys_counts() -> None:
    s, fold = Sketch(np.random.default_rng(0)), Fold(1, 2, 3)
    graph = s.graph((s.conv(s.input((1, 6, 12, 12), signed=False), 8, same_window(3)),))
    counted = synthesize(build_design(graph, "layer", folds={graph.nodes[0].name: fold}), "ecp5").resources
    expected = dict(folded_cost(shape_of(graph, graph.nodes[0]), fold, ECP5).resources)
    assert expected["dsp"] == counted["dsp"]
    assert expected["bram"] == pytest.approx(counted["bram"], abs=1)
    assert expected["lut4"] == pytest.approx(counted["lut4"], rel=0.35)
    assert expected["register"] == pytest.approx(counted["register"], rel=0.35)


@pytest.mark.parametrize(("logic", "bits", "measured"), [
    ("lut", 8, (45, 21, 9)), ("lut4", 8, (107, 49, 20)), ("alm", 8, (55, 27, 13))])
def test_products_in_logic_cost_what_was_measured(logic: str, bits: int, measured: tuple[int, ...]) -> None:
    assert [round(soft_logic(logic, bits, w)) for w in (8, 4, 2)] == list(measured)


def test_products_in_logic_need_no_multiplier_and_narrow_weights_less_of_everything() -> None:
    shape = Shape(Channels(1, 16, 16), Window((1, 1)), 7, 7, 8, 8)
    hard, soft, narrow = (dict(folded_cost(s, Fold(1, 8, 8, products), dhm_model("dhm-xcu")).resources)
                          for s, products in ((shape, 1), (shape, 0), (replace(shape, weight_bits=4), 0)))
    assert (hard["dsp"], soft["dsp"], narrow["dsp"]) == (64, 0, 0)
    assert soft["lut"] - hard["lut"] == pytest.approx(64 * 45)
    assert soft["register"] - hard["register"] == pytest.approx(64 * 65)
    assert narrow["lut"] < soft["lut"] - 64 * 24
    assert narrow["register"] < soft["register"]


def test_folds_in_logic_are_offered_where_they_are_asked_for() -> None:
    shape = Shape(Channels(1, 4, 6), Window((1, 1)), 3, 3, 8, 8)
    plain, more = list(folds_offered([shape], 100)), list(folds_offered([shape], 100, soft=True))
    assert {f.products for f in plain} == {1}
    assert sorted(f.sizes[:3] for f in more if f.products == 0) == sorted(f.sizes for f in plain)
    assert Fold(*more[-1].sizes) == more[-1]
