"""Layers of codes in hardware: every datapath, bit for bit, with stalls, padding, groups and thresholds of all kinds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dovetail.cost.folded import chosen_fold, coded_shape
from dovetail.cost.lq_folds import coded_folds
from dovetail.errors import UnsupportedError, UsageError
from dovetail.fpga.assemble import build_design
from dovetail.fpga.design import Design
from dovetail.fpga.engines import floats
from dovetail.fpga.engines.lq import FLOATS, Datapath
from dovetail.fpga.part import weight_sets
from dovetail.fpga.toolchain.simulate import simulate_many
from dovetail.hardware.folds import Fold, Loops
from dovetail.ir import Array, Coded, Constant, Conv, Gemm, Graph, Node, Scheme, Tensor, Thresholds, Window
from dovetail.ir.operators.lq import count_steps
from dovetail.numerics.lq import boundaries_of, coded_node, float_layer, ranked
from dovetail.numerics.reference import run_integer
from dovetail.platform.load import load_platform
from tests.numerics.lq_forms import float_sum
from tests.numerics.lq_networks import IMAGE, conv_of, images, learned, network

Job = tuple[Graph, dict[str, Array], Design]


def layer(seed: int, body: Conv | Gemm, weights: tuple[int, ...], shape: tuple[int, ...], bits: tuple[int, int, int],
          datapath: Datapath = Datapath.POPCOUNT, name: str = "layer", fold: Fold | None = None) -> Job:
    """A drawn layer of (weight, input, output) bits, three frames for it, and its hardware."""
    rng = np.random.default_rng(seed)
    weight_bits, input_bits, output_bits = bits
    boundaries = boundaries_of(ranked(np.sort(rng.uniform(0.1, 1, output_bits)))[0]).tolist() if output_bits else None
    node, constants = coded_node("n", learned(rng, body, weights, weight_bits, input_bits), "x", "y", boundaries)
    source = Scheme(input_bits, False, (0,)) if input_bits else IMAGE
    target = Scheme(output_bits, False, (0,)) if output_bits else Scheme(8, True, (-4,))
    tensors = {"x": Tensor("x", shape, source), "y": Tensor("y", body.infer((shape,)), target)}
    graph = Graph("one", ("x",), ("y",), (node,), tensors, {c.name: c for c in constants})
    frames = rng.integers(0, source.hi + 1, (3, *shape[1:])).astype(np.uint8)
    return graph, {"x": frames}, build_design(graph, name, folds={"n": fold} if fold else None, datapath=datapath)


def check(jobs: list[Job], stall_seed: int | None = None) -> None:
    results = simulate_many([(design, frames) for _, frames, design in jobs], stall_seed)
    for (graph, frames, design), found in zip(jobs, results, strict=True):
        for name, expected in run_integer(graph, frames).items():
            np.testing.assert_array_equal(found.outputs[name].reshape(expected.shape), expected, err_msg=design.top)


SHAPE = (1, 3, 6, 5)


@pytest.mark.verilator
def test_every_datapath_computes_the_reference() -> None:
    every = ((2, 2, 2), (3, 3, 1), (1, 1, 0))
    forms = [(d, bits) for d in Datapath if d not in FLOATS
             for bits in (*every, *(((4, 4, 3),) if d is Datapath.POPCOUNT else ()))]
    jobs = [layer(k, conv_of((3, 2, 3, 3)), (3, 2, 3, 3), (1, 2, 6, 5), bits, datapath, f"{datapath.name.lower()}_{k}")
            for k, (datapath, bits) in enumerate(forms)]
    trees = [made for job in jobs if (made := with_trees(job))[2] != job[2]]
    assert len(trees) >= 5
    check([*jobs, *trees])


def with_trees(job: Job) -> Job:
    """A job whose simulator sees tables as synthesis does."""
    graph, frames, design = job
    files = {name: text.replace("`ifdef VERILATOR\nlocalparam", "`ifdef NEVER\nlocalparam")
             for name, text in design.files.items()}
    return graph, frames, replace(design, files=files)


@pytest.mark.verilator
def test_float_baselines_compute_single_precision_bit_for_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thresholds are sums that occur and the next numbers above them, so that a sum off by one bit makes another code."""
    jobs, expected = [], []
    for k, (body, weights, shape, bits) in enumerate((
            (conv_of((2, 2, 3, 2)), (2, 2, 3, 2), (1, 2, 5, 4), (2, 2, 2)),
            (conv_of((2, 2, 2, 2), 2), (2, 2, 2, 2), (1, 4, 4, 4), (3, 3, 3)),
            (Gemm(3), (3, 12), (1, 12), (1, 1, 1)))):
        graph, frames, _ = layer(30 + k, body, weights, shape, bits)
        (node,) = graph.nodes
        assert isinstance(node.op, Coded)
        numbers = float_layer("n", node.op, graph.params(node))
        sums = np.moveaxis(float_sum(node.op, frames["x"], numbers), 1, 0).reshape(len(numbers.weights), -1)
        half = np.quantile(sums, (0.3, 0.5, 0.7), axis=1, method="lower").T
        steps = np.sort(np.concatenate([half, np.nextafter(half, np.float32(np.inf)), half[:, :1]], axis=1), axis=1)
        exact = replace(numbers, steps=steps[:, -numbers.steps.shape[1]:])
        monkeypatch.setattr(floats, "float_layer", lambda *_, exact=exact: exact)
        for datapath in FLOATS:
            jobs.append((build_design(graph, f"{datapath.name.lower()}_{k}", datapath=datapath), frames))
            expected.append(count_steps(float_sum(node.op, frames["x"], exact), exact.steps))
    for right, (design, _), found in zip(expected, jobs, simulate_many(jobs, stall_seed=3), strict=True):
        assert len(np.unique(right)) > 1
        np.testing.assert_array_equal(found.outputs["y"].reshape(right.shape), right, err_msg=design.top)


def test_float_baselines_say_what_they_cannot_take() -> None:
    with pytest.raises(UnsupportedError, match="n: plain integers on one side; the float baselines take layers from codes"):
        layer(1, Gemm(3), (3, 12), (1, 12), (0, 2, 2), Datapath.FP32)
    graph, _, _ = layer(1, Gemm(3), (3, 12), (1, 12), (2, 2, 2))
    (node,) = graph.nodes
    tiny = [Constant(c.name, np.full_like(c.array, 1e-30) if c.name.endswith("basis") else c.array, c.scheme)
            for c in graph.params(node)]
    assert isinstance(node.op, Coded)
    with pytest.raises(UnsupportedError, match="n: products from"):
        float_layer("n", node.op, tiny)


@pytest.mark.verilator
def test_groups_strides_and_plain_integers_are_mapped_too() -> None:
    check([
        layer(1, conv_of((4, 2, 3, 3), 2, 2), (4, 2, 3, 3), (1, 4, 7, 6), (2, 2, 2), name="grouped"),
        layer(2, conv_of((3, 3, 1, 1), pad=0), (3, 3, 1, 1), SHAPE, (2, 2, 2), name="pointwise"),
        layer(3, conv_of((2, 3, 3, 3)), (2, 3, 3, 3), SHAPE, (0, 0, 2), name="first"),
        layer(4, conv_of((2, 3, 3, 3)), (2, 3, 3, 3), SHAPE, (1, 0, 0), name="binary"),
        layer(5, Gemm(3), (3, 12), (1, 12), (0, 2, 0), name="last"),
        layer(6, Gemm(3), (3, 12), (1, 12), (2, 3, 2), name="hidden"),
    ])


@pytest.mark.verilator
def test_a_whole_network_of_codes_is_bit_exact_while_it_stalls() -> None:
    graph = network(1, 2, 2)
    check([(graph, images(4, 3), build_design(graph, "net"))], stall_seed=7)


@pytest.mark.verilator
def test_thresholds_of_residual_sums_are_bit_exact() -> None:
    """Per channel and shared; below, among and above what 16 bits hold."""
    jobs = []
    for by_channel in (False, True):
        rows = np.asarray([[-40, 0, 1], [-32768, 5, 32768], [7, 7, 7]], dtype=np.int32)
        steps = Constant("s", rows if by_channel else rows[0])
        shape = (1, 3, 4, 4)
        tensors = {"x": Tensor("x", shape, Scheme(16, True, (-4,))), "y": Tensor("y", shape, Scheme(2, False, (0,)))}
        graph = Graph("t", ("x",), ("y",), (Node("t", Thresholds(2, by_channel), ("x",), ("s",), "y"),), tensors, {"s": steps})
        x = np.random.default_rng(3).choice([-32768, -41, -40, 0, 1, 5, 6, 7, 32767], (3, 3, 4, 4)).astype(np.int16)
        jobs.append((graph, {"x": x}, build_design(graph, f"steps_{int(by_channel)}")))
    check(jobs)


@pytest.mark.verilator
def test_folded_layers_of_codes_compute_the_reference_in_the_clocks_they_promise() -> None:
    """Slices, passes, blocks of groups, rounds that do not divide the filters, plain integers on either side, padding alone."""
    jobs = [
        layer(11, Gemm(5), (5, 12), (1, 12), (2, 2, 0), name="fixed", fold=Fold(1, 4, 2)),
        layer(12, Gemm(5), (5, 12), (1, 12), (0, 2, 2), name="gated", fold=Fold(1, 3, 2)),
        layer(13, conv_of((3, 4, 2, 2), pad=0), (3, 4, 2, 2), (1, 4, 3, 3), (1, 0, 2), name="signs", fold=Fold(1, 2, 2)),
        layer(14, conv_of((4, 1, 3, 3), 2), (4, 1, 3, 3), (1, 2, 4, 4), (3, 3, 0), name="groups", fold=Fold(1, 1, 2)),
        layer(15, conv_of((3, 2, 2, 2), pad=0), (3, 2, 2, 2), (1, 2, 3, 3), (0, 0, 2), name="plain", fold=Fold(1, 1, 2)),
        layer(16, conv_of((3, 4, 3, 3), stride=2), (3, 4, 3, 3), (1, 4, 5, 5), (2, 2, 2), name="strided", fold=Fold(1, 4, 3)),
        layer(17, Conv(3, Window((3, 3), pads=(1, 1, 0, 1))), (3, 3, 3, 3), (1, 3, 2, 4), (1, 2, 2), name="top_row",
              fold=Fold(1, 3, 2)),
    ]
    results = simulate_many([(design, frames) for _, frames, design in jobs])
    for (graph, frames, design), found in zip(jobs, results, strict=True):
        for name, expected in run_integer(graph, frames).items():
            np.testing.assert_array_equal(found.outputs[name].reshape(expected.shape), expected, err_msg=design.top)
        assert found.frame_cycles[0] == design.latency_cycles, design.top
        assert found.frame_cycles[2] - found.frame_cycles[1] == design.interval_cycles, design.top
    check(jobs, stall_seed=2)


def test_a_fold_that_leaves_channels_over_is_refused_for_codes() -> None:
    with pytest.raises(UsageError, match="a fold of 1x5x1 for 12 input channels of codes; it must divide them"):
        layer(1, Gemm(5), (5, 12), (1, 12), (2, 2, 2), fold=Fold(1, 5, 1))


def test_folds_of_codes_keep_the_pace_and_plans_take_the_cheapest() -> None:
    graph, _, design = layer(16, conv_of((6, 8, 3, 3)), (6, 8, 3, 3), (1, 8, 6, 6), (2, 2, 2), fold=Fold(1, 4, 2))
    (node,) = graph.nodes
    device = load_platform("fic:1").device("fpga0").at_pace(design.interval_cycles)
    shape = coded_shape(graph, node)
    found = coded_folds(shape, design.interval_cycles)
    assert Fold(1, 4, 2) in found
    assert all(Loops(shape.channels, fold).clocks * 36 <= design.interval_cycles for fold in found)
    chosen = chosen_fold(graph, node, device, {"lut": 1e9})
    assert chosen is not None
    assert chosen.fold in found
    assert chosen.steps <= design.interval_cycles
    assert chosen_fold(graph, node, device, {"lut": 1.0}) is None, "what is smaller when mapped directly stays so"


LOADED = (
    (Gemm(5), (5, 12), (1, 12), (2, 2, 2), Fold(1, 4, 2)),
    (conv_of((4, 4, 3, 3), stride=2), (4, 4, 3, 3), (1, 4, 5, 5), (2, 2, 2), Fold(1, 4, 3)),
    (conv_of((3, 4, 2, 2), pad=0), (3, 4, 2, 2), (1, 4, 3, 3), (0, 2, 2), Fold(1, 2, 1)),
    (Gemm(5), (5, 12), (1, 12), (2, 2, 0), Fold(1, 4, 2)),
    (conv_of((4, 4, 3, 3)), (4, 4, 3, 3), (1, 4, 5, 5), (2, 2, 0), Fold(1, 2, 3)),
)


@pytest.mark.verilator
@pytest.mark.parametrize("stall_seed", [None, 5])
def test_two_sets_of_weights_loaded_one_after_the_other_are_bit_exact(stall_seed: int | None) -> None:
    """Two frames with the first set, three with the second: a frame never sees the other set, whatever waits for what."""
    jobs, expected, per_set = [], [], (2, 3)
    for number, (body, weights, shape, bits, fold) in enumerate(LOADED):
        graphs = [layer(50 + 2 * number + k, body, weights, shape, bits)[0] for k in range(2)]
        design = build_design(graphs[0], f"loaded_{number}", folds={"n": fold}, loaded=("n",))
        assert design.files == build_design(graphs[1], f"loaded_{number}", folds={"n": fold}, loaded=("n",)).files
        rng = np.random.default_rng(number)
        frames = rng.integers(0, 4, (sum(per_set), *shape[1:])).astype(np.uint8)
        right = [run_integer(g, {"x": part})["y"] for g, part in zip(graphs, np.split(frames, [per_set[0]]), strict=True)]
        expected.append(np.concatenate(right))
        sets = [weight_sets(g, {"n": fold}, ("n",), count)["n weights"] for g, count in zip(graphs, per_set, strict=True)]
        # The bench gives all inputs equally many frames: here one, of all the pixels and both the sets.
        x, load = design.inputs
        x, y = (replace(port, width=port.width * port.height * len(frames), height=1) for port in (x, *design.outputs))
        whole = replace(design, inputs=(x, replace(load, width=load.width * 2)), outputs=(y,))
        pixels = frames.reshape(len(frames), x.channels, -1).transpose(1, 0, 2).reshape(1, x.channels, 1, -1)
        jobs.append((whole, {"x": pixels, "n weights": np.concatenate(sets, axis=3)}))
    for right, found in zip(expected, simulate_many(jobs, stall_seed), strict=True):
        taken = found.outputs["y"].reshape(right.shape[1], len(right), -1).transpose(1, 0, 2)
        assert len(np.unique(right)) > 1
        np.testing.assert_array_equal(taken.reshape(right.shape), right)


@pytest.mark.verilator
def test_a_set_for_all_frames_holds_and_layers_that_cannot_take_one_are_refused() -> None:
    body, weights, shape, bits, fold = LOADED[0]
    graph, frames, _ = layer(60, body, weights, shape, bits)
    design = build_design(graph, "all_frames", folds={"n": fold}, loaded=("n",))
    load = design.inputs[1]
    x = replace(design.inputs[0], width=3), replace(design.outputs[0], width=3)
    whole = replace(design, inputs=(x[0], load), outputs=(x[1],))
    found = simulate_many([(whole, {"x": frames["x"].T.reshape(1, 12, 1, 3), **weight_sets(graph, {"n": fold}, ("n",))})])[0]
    np.testing.assert_array_equal(found.outputs["y"].reshape(5, 3).T, run_integer(graph, frames)["y"])
    with pytest.raises(UsageError, match="loaded weights for n, which is no folded layer of codes; give it a fold"):
        build_design(graph, "unfolded", loaded=("n",))
    rounds = layer(61, body, weights, shape, (2, 2, 0))[0]
    coarse = replace(rounds.tensors["y"], scheme=Scheme(8, True, (12,)))
    with pytest.raises(UsageError, match=r"are shifted by \d+ to \d+; where weights are loaded they are shifted down by 1 to 16"):
        build_design(replace(rounds, tensors={**rounds.tensors, "y": coarse}), "far", folds={"n": fold}, loaded=("n",))
