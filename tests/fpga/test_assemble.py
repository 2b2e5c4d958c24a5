"""Generated hardware against the reference: every operator, odd shapes, stalls, exact timing, forks and joins."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from dovetail.cost.costs import why_not
from dovetail.errors import UnsupportedError
from dovetail.fpga.assemble import build_design, unsupported
from dovetail.fpga.design import Design
from dovetail.fpga.toolchain.simulate import Simulation, simulate_many
from dovetail.ir import (
    Add,
    Array,
    AvgPool,
    Clamp,
    Clip,
    Concat,
    Constant,
    Conv,
    GlobalAvgPool,
    Graph,
    Lookup,
    MaxPool,
    Node,
    Op,
    Reshape,
    Scheme,
    Select,
    Tensor,
    Window,
)
from dovetail.numerics.oracle import run_oracle
from dovetail.numerics.ranges import float32_exact, stored_ranges
from dovetail.numerics.reference import run_integer
from dovetail.platform.load import load_platform
from tests.fpga.random_graphs import POINTWISE_SEEDS, Sketch, random_graph, random_inputs, same_window
from tests.scales import with_arbitrary_scales

Job = tuple[Graph, Design, dict[str, Array]]


def job(graph: Graph, name: str, frames: int = 3, seed: int = 0) -> Job:
    return graph, build_design(graph, name), random_inputs(graph, frames, seed)


def check_run(jobs: Sequence[Job], stall_seed: int | None = None) -> list[Simulation]:
    """Simulate and compare every output with the reference."""
    simulations = simulate_many([(design, inputs) for _, design, inputs in jobs], stall_seed)
    for (graph, design, inputs), simulation in zip(jobs, simulations, strict=True):
        expected = run_integer(graph, inputs)
        for tensor in graph.outputs:
            found = simulation.outputs[tensor].reshape(expected[tensor].shape)
            np.testing.assert_array_equal(found, expected[tensor], err_msg=f"{design.top} {tensor}")
    return simulations


@pytest.fixture(scope="module")
def random_jobs() -> list[Job]:
    jobs = []
    for seed in (*range(26), *range(POINTWISE_SEEDS, POINTWISE_SEEDS + 8)):
        graph = random_graph(seed)
        if all(unsupported(graph, node) is None for node in graph.nodes):
            jobs.append(job(graph, f"r{seed}", 12, seed))  # in a few frames alone, FIFOs of short ones do not fill
    assert len(jobs) >= 28
    return jobs


@pytest.mark.verilator
def test_random_networks_equal_the_reference_and_take_the_cycles_their_closed_forms_say(random_jobs: list[Job]) -> None:
    for (_, design, _), simulation in zip(random_jobs, check_run(random_jobs), strict=True):
        assert design.latency_cycles == simulation.frame_cycles[0], design.top
        assert design.interval_cycles == simulation.frame_cycles[-1] - simulation.frame_cycles[-2], design.top
        for fifo in design.fifos:
            assert fifo.depth - 4 <= simulation.high_water[fifo.name] <= fifo.depth, (design.top, fifo)


@pytest.mark.slow("generates 34 designs")
def test_the_same_networks_equal_onnx_runtime(random_jobs: list[Job]) -> None:
    judged = 0
    for graph, design, inputs in random_jobs:
        ranges = stored_ranges(graph)
        if all(float32_exact(graph, node, ranges) for node in graph.nodes):
            expected = run_integer(graph, inputs)
            oracle = run_oracle(graph, inputs)
            for tensor in graph.outputs:
                np.testing.assert_array_equal(oracle[tensor], expected[tensor], err_msg=f"{design.top} {tensor}")
            judged += 1
    assert judged >= 28


@pytest.mark.verilator
def test_random_networks_of_arbitrary_scales_and_zero_points_equal_the_reference(random_jobs: list[Job]) -> None:
    scaled = [with_arbitrary_scales(graph, seed) for seed, (graph, _, _) in enumerate(random_jobs[::2])]
    check_run([job(graph, f"s{seed}", seed=seed) for seed, graph in enumerate(scaled)], 4)


@pytest.mark.verilator
@pytest.mark.parametrize("stall_seed", [1, 2, 3])
def test_random_networks_equal_the_reference_under_stalls_at_both_ends(random_jobs: list[Job], stall_seed: int) -> None:
    check_run(random_jobs, stall_seed)


def single(op: Op, shape: tuple[int, ...], source: Scheme, target: Scheme, params: Sequence[Constant] = ()) -> Graph:
    """A graph of one node."""
    out = op.infer((shape,))
    names = tuple(c.name for c in params)
    return Graph("one", ("x",), ("y",), (Node("node", op, ("x",), names, "y"),),
                 {"x": Tensor("x", shape, source), "y": Tensor("y", out, target)}, {c.name: c for c in params})


def ramp(graph: Graph) -> dict[str, Array]:
    """Frames that show every input value at every place of the map."""
    shape, scheme = graph.shape("x"), graph.tensors["x"].scheme
    assert scheme is not None
    values = np.arange(scheme.lo, scheme.hi + 1)
    offsets = np.arange(int(np.prod(shape[1:]))).reshape(shape[1:]) * 37
    return {"x": values[(np.arange(0, 256, 16)[:, None, None, None] + offsets[None]) % len(values)].astype(scheme.dtype)}


@pytest.mark.verilator
def test_rounding_saturation_and_division_are_exact_for_every_value() -> None:
    jobs: list[Job] = []
    for signed in (False, True):
        for shift in (-2, 0, 1, 2, 7, 8, 9):
            graph = single(Clip(), (1, 1, 16, 16), Scheme(8, signed, (0,)), Scheme(8, True, (shift,)))
            jobs.append((graph, build_design(graph, f"clip{shift + 9}{'us'[signed]}"), ramp(graph)))
        for number, (lo, hi, shift) in enumerate(((-3, 5, 1), (-4, 6, 1), (-5, -1, 3), (1, 2, 3), (0, 7, 4), (-7, 4, 4))):
            bounds = Clamp(lo * 2.0**shift, hi * 2.0**shift)
            graph = single(Clip(bounds), (1, 1, 16, 16), Scheme(8, signed, (0,)), Scheme(8, True, (shift,)))
            jobs.append((graph, build_design(graph, f"bounds{number}{'us'[signed]}"), ramp(graph)))
        for height, width, shift in ((3, 3, 1), (7, 7, 0), (2, 3, 0), (10, 10, -2), (4, 4, 0), (1, 1, 1)):
            graph = single(GlobalAvgPool(), (1, 2, height, width), Scheme(8, signed, (0,)), Scheme(8, signed, (shift,)))
            jobs.append((graph, build_design(graph, f"mean{height}_{width}_{shift + 2}{'us'[signed]}"), ramp(graph)))
        pool = AvgPool(Window((3, 2), (1, 2)))
        graph = single(pool, (1, 2, 9, 11), Scheme(8, signed, (0,)), Scheme(8, signed, (0,)))
        jobs.append((graph, build_design(graph, f"pool{'us'[signed]}"), ramp(graph)))
    check_run(jobs)


@pytest.mark.verilator
def test_chosen_channels_are_wires_unless_their_scale_changes() -> None:
    source = Scheme(8, True, (-4,), zero=9)
    jobs: list[Job] = []
    for number, target in enumerate((source, Scheme(8, True, (-3,), zero=-2), Scheme(8, False, (-5,), None, (1.25,), 7))):
        graph = single(Select((2, 0, 1, 2)), (1, 3, 4, 5), source, target)
        jobs.append((graph, build_design(graph, f"chosen{number}"), ramp(graph)))
    check_run(jobs)
    wires = jobs[0][1]
    assert wires.adders == 0
    assert not any(word in text for text in wires.files.values() for word in ("_rounded", "_clamped"))


def two_inputs_of_different_speed(s: Sketch, x: str) -> Graph:
    """Independent inputs that meet, one behind a convolution."""
    other = s.input(s.tensors[x].shape, exponent=-5)
    return s.graph((s.add(s.conv(x, s.tensors[x].shape[1], same_window(3)), other),))


def nested_residuals(s: Sketch, x: str) -> Graph:
    channels = s.tensors[x].shape[1]
    inner = s.add(s.conv(x, channels, same_window(3)), x)
    return s.graph((s.add(s.conv(s.conv(inner, 2, same_window(1)), channels, same_window(5)), inner, x),))


def passed_through(s: Sketch, x: str) -> Graph:
    """An input that is an output, an input nobody reads, names that collide or are no identifiers."""
    s.input((1, 2, 3, 3))
    y = s.conv(x, 2, same_window(1))
    graph = s.graph((x, y))
    names = {t: f"0/{t}:é" for t in graph.tensors}
    nodes = tuple(Node("a/b", n.op, tuple(names[t] for t in n.inputs), n.params, names[n.output]) for n in graph.nodes)
    tensors = {names[k]: Tensor(names[k], v.shape, v.scheme) for k, v in graph.tensors.items()}
    inputs, outputs = (tuple(names[t] for t in ends) for ends in (graph.inputs, graph.outputs))
    return Graph("odd", inputs, outputs, nodes, tensors, graph.constants)


def wide_padding(s: Sketch, x: str) -> Graph:
    """Padding that masks cannot express, in the middle of a chain and before a join."""
    wide = Window((2, 2), pads=(2, 2, 2, 2))
    return s.graph((s.concat(s.conv(s.conv(x, 2, same_window(3)), 2, wide), s.conv(x, 3, wide)),))


def line_memories(s: Sketch, x: str) -> Graph:
    """Lines long enough for memories, with stride, dilation and uneven padding, and frames not a multiple of a line."""
    y = s.conv(x, 2, Window((3, 2), (2, 1), (0, 1, 2, 0), (2, 1)))
    return s.graph((s.pool(MaxPool(Window((3, 3), (2, 2), (1, 1, 1, 1))), y),))


@pytest.mark.verilator
@pytest.mark.parametrize("stall_seed", [None, 7])
def test_directed_networks_equal_the_reference(stall_seed: int | None) -> None:
    jobs = []
    for shape in (two_inputs_of_different_speed, nested_residuals, passed_through, wide_padding, line_memories):
        s = Sketch(np.random.default_rng(11))
        graph = shape(s, s.input((1, 2, 12, 19), exponent=-6))
        jobs.append(job(graph, shape.__name__))
    for (_, design, _), simulation in zip(jobs, check_run(jobs, stall_seed), strict=True):
        if stall_seed is None:
            assert design.latency_cycles == simulation.frame_cycles[0], design.top
            assert design.interval_cycles == simulation.frame_cycles[2] - simulation.frame_cycles[1], design.top


S8 = Scheme(8, True, (0,))


@pytest.mark.parametrize(("op", "shape", "reason"), [
    (AvgPool(Window((3, 3), pads=(1, 1, 1, 1))), (1, 2, 5, 5),
     "node: the average divides by a count that depends on the position; count the padding instead"),
    (MaxPool(Window((1, 2), pads=(0, 2, 0, 0))), (1, 2, 5, 5),
     "node: a window lies in the padding alone and has no largest value; shrink the padding"),
    (Reshape((1, 5, 2, 5)), (1, 2, 5, 5),
     "node: tensor y (1x5x2x5) has no pixel stream; N,C,H,W, N,C and their flattening have one"),
    (Concat(2), (1, 2, 5, 5), "node: joins along axis 2; only channels (axis 1) lie side by side in a beat"),
    (Clip(), (2, 2, 5, 5), "node: batch size 2; hardware takes one frame at a time"),
])
def test_what_cannot_be_mapped_is_said_in_one_sentence(op: Op, shape: tuple[int, ...], reason: str) -> None:
    graph = single(op, shape, S8, S8)
    assert unsupported(graph, graph.nodes[0]) == reason
    with pytest.raises(UnsupportedError) as caught:
        build_design(graph, "top")
    assert str(caught.value) == f"design top: {reason}; place it on another device"


def test_sums_of_one_value_per_channel_and_of_one_map_are_refused_for_their_channels() -> None:
    tensors = {"x": Tensor("x", (1, 1, 5, 5), S8), "s": Tensor("s", (1, 2, 1, 1), S8), "y": Tensor("y", (1, 2, 5, 5), S8)}
    graph = Graph("sum", ("x", "s"), ("y",), (Node("node", Add(), ("s", "x"), (), "y"),), tensors)
    assert unsupported(graph, graph.nodes[0]) == "node: inputs stream [2, 1] channels; they must agree"
    fpga = load_platform("tx2-c10gx").device("fpga")
    assert why_not(graph, graph.nodes[0], fpga) == "fpga: node adds streams of 2, 1 channels; they must agree"


def test_a_table_per_feature_of_a_flattened_map_is_refused() -> None:
    table = Constant("t", np.zeros((50, 256), dtype=np.int8))
    nodes = (Node("flat", Reshape((1, 50)), ("x",), (), "f"), Node("node", Lookup("noise", True, True), ("f",), ("t",), "y"))
    tensors = {"x": Tensor("x", (1, 2, 5, 5), S8), "f": Tensor("f", (1, 50), S8), "y": Tensor("y", (1, 50), S8)}
    graph = Graph("flat", ("x",), ("y",), nodes, tensors, {"t": table})
    assert unsupported(graph, nodes[1]) == "node: a table per feature of a flattened map; look up before flattening"


def test_a_float_graph_is_refused_by_tensor() -> None:
    tensors = {name: Tensor(name, (1, 1, 2, 2)) for name in ("x", "y")}
    graph = Graph("f", ("x",), ("y",), (Node("n", Clip(), ("x",), (), "y"),), tensors)
    with pytest.raises(UnsupportedError) as caught:
        unsupported(graph, graph.nodes[0])
    assert str(caught.value) == "tensor x: float values; hardware is generated from a quantized graph, quantize it first"


def tiny() -> Graph:
    """Two 2x2 filters with padding on one side; one weight needs an adder, one filter is constant."""
    weight = np.array([[[[1, -2], [3, 0]]], [[[0, 0], [0, 0]]]], dtype=np.int8)
    params = (Constant("w", weight, Scheme(8, True, (-1, -2), 0)),
              Constant("b", np.array([5, 9], dtype=np.int32), Scheme(32, True, (-1, -2), 0)))
    return single(Conv(2, Window((2, 2), pads=(1, 0, 0, 0))), (1, 1, 4, 12), S8, Scheme(8, True, (1,)), params)


def test_the_verilog_of_a_tiny_convolution_is_as_reviewed(golden: Callable[[str, str], None]) -> None:
    design = build_design(tiny(), "tiny")
    golden("tiny_conv.v", "".join(f"// ---- {name}\n{text}" for name, text in design.files.items()))


def test_the_same_graph_gives_the_same_design() -> None:
    assert build_design(random_graph(9), "d") == build_design(random_graph(9), "d")
