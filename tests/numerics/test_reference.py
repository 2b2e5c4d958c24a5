"""The reference against two outsiders: exact rational arithmetic, and ONNX Runtime on the exported model."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from dovetail.cpu.executor import CpuPart
from dovetail.errors import ModelError, UsageError
from dovetail.ir import RELU, Array, Clamp, Clip, Constant, Conv, Gemm, Graph, MaxPool, Node, Scheme, Tensor, Window
from dovetail.ir.onnx.read import read_onnx
from dovetail.ir.onnx.write import to_onnx
from dovetail.ir.onnx.writer import Boundary
from dovetail.numerics import submodel
from dovetail.numerics.calibration import clipped_notes, load_arrays, synthetic
from dovetail.numerics.fixed import dequantize, divide_half_even, integer_bounds, quantize, rescale
from dovetail.numerics.oracle import run_onnx, run_oracle
from dovetail.numerics.quantize import quantize_weight
from dovetail.numerics.ranges import Range, float32_exact, partial_sum_bound, stored_ranges
from dovetail.numerics.reference import accumulate, run_float, run_integer, run_node
from dovetail.numerics.requantize import requantizer
from dovetail.numerics.submodel import Submodel, inexact_sums
from tests.formulas import build
from tests.strategies import Net, networks, quantized, stored_inputs


def half_even(value: Fraction) -> int:
    return round(value)  # Python rounds fractions half to even, exactly


@given(st.integers(-(2**40), 2**40), st.integers(1, 2**12))
def test_division_rounds_half_to_even(numerator: int, denominator: int) -> None:
    found = divide_half_even(np.array([float(numerator)]), denominator)
    assert int(found[0]) == half_even(Fraction(numerator, denominator))


@given(st.integers(-(1 << 52), 1 << 52), st.integers(-20, 60))
def test_a_power_of_two_divides_as_any_number_does(numerator: int, shift: int) -> None:
    found = rescale(np.array([float(numerator)]), 1, np.array([shift]))
    assert int(found[0]) == half_even(Fraction(numerator) / Fraction(2) ** shift)


@given(st.integers(-8, 8), st.booleans(), st.integers(2, 8), st.floats(-1e4, 1e4))
def test_quantizing_twice_changes_nothing(exponent: int, signed: bool, bits: int, value: float) -> None:
    scheme = Scheme(bits, signed, (exponent,))
    once = quantize(np.array([value]), scheme)
    assert scheme.lo <= once[0] <= scheme.hi
    np.testing.assert_array_equal(quantize(dequantize(once, scheme), scheme), once)


def test_an_activation_cuts_the_stored_range_at_its_rounded_bound() -> None:
    assert integer_bounds(Clamp(0.0, 6.0), Scheme(8, False, (-5,))) == (0, 192)
    assert integer_bounds(RELU, Scheme(8, True, (-3,))) == (0, 127)
    assert integer_bounds(None, Scheme(4, True, (0,))) == (-8, 7)
    assert integer_bounds(Clamp(-1.0, 0.01), Scheme(8, True, (0,))) == (-1, 0)


@settings(max_examples=120, deadline=None)
@given(networks(), st.integers(0, 100))
def test_the_reference_equals_onnx_runtime_on_every_tensor(network: Graph, seed: int) -> None:
    graph = quantized(network, seed)
    inputs = stored_inputs(graph, 2, seed)
    expected = run_integer(graph, inputs, keep=True)
    ranges = stored_ranges(graph)
    assert all(float32_exact(graph, n, ranges) for n in graph.nodes)
    for name, values in run_oracle(graph, inputs).items():
        np.testing.assert_array_equal(values, expected[name], err_msg=name)


@settings(max_examples=40, deadline=None)
@given(networks(), st.integers(0, 100))
def test_no_accumulator_leaves_its_static_bound(network: Graph, seed: int) -> None:
    graph = quantized(network, seed)
    values = run_integer(graph, stored_inputs(graph, 2, seed), keep=True)
    ranges = stored_ranges(graph)
    for node in graph.nodes:
        found = values[node.output]
        assert found.min() >= ranges[node.output].lo
        assert found.max() <= ranges[node.output].hi
        assert partial_sum_bound(graph, node, ranges) >= 0


def test_the_bound_is_reached_by_the_worst_input() -> None:
    net = Net(0)
    x = net.input((1, 2, 3, 3))
    y = net.add(Conv(1, Window((3, 3)), 1, RELU), x)
    graph = quantized(net.graph(y))
    node = graph.nodes[0]
    weight, bias = (graph.constants[c].array.astype(np.int64) for c in node.params)
    bound = partial_sum_bound(graph, node, stored_ranges(graph))
    assert bound == np.abs(weight).sum() * 255 + abs(int(bias[0]))


def test_quantization_stays_near_the_float_network() -> None:
    net = Net(5)
    x = net.input((1, 3, 12, 12))
    x = net.add(Conv(8, Window((3, 3), pads=(1, 1, 1, 1)), 1, RELU), x)
    x = net.add(MaxPool(Window((2, 2), (2, 2))), x)
    x = net.add(Conv(8, Window((3, 3), pads=(1, 1, 1, 1)), 8, RELU), x)
    x = net.add(Conv(16, Window((1, 1))), x)
    float_graph = net.graph(x)
    graph = quantized(float_graph)
    frames = np.random.default_rng(9).random((8, 3, 12, 12))
    stored = quantize(frames, graph.tensors["x"].scheme)
    expected = run_float(float_graph, {"x": frames})[x]
    found = dequantize(run_integer(graph, {"x": stored})[x].astype(float), graph.tensors[x].scheme)
    noise = np.square(found - expected).mean() / np.square(expected).mean()
    assert noise < 1e-3


def test_values_outside_a_scheme_are_refused_by_index() -> None:
    net = Net(0)
    x = net.input((1, 1, 2, 2))
    graph = quantized(net.graph(net.add(Conv(1, Window((1, 1))), x)))
    values = np.zeros((1, 1, 2, 2), dtype=np.int64)
    values[0, 0, 1, 0] = 300
    with pytest.raises(ModelError, match=r"^tensor x\[0, 0, 1, 0\]: 300 is outside \[0, 255\]$"):
        run_integer(graph, {"x": values})


def test_a_left_shift_is_exact() -> None:
    """Accumulators coarser than the output are multiplied, not rounded."""
    net = Net(0)
    x = net.input((1, 1, 1, 1))
    graph = quantized(net.graph(net.add(Conv(1, Window((1, 1))), x)))
    node = graph.nodes[0]
    name = graph.nodes[0].output
    finer = graph.with_nodes(graph.nodes, tensors=[type(graph.tensors[name])(name, (1, 1, 1, 1), Scheme(16, True, (-30,)))])
    accumulator = int(graph.constants[node.params[0]].array.item()) * 1 + int(graph.constants[node.params[1]].array.item())
    shift = -30 - (graph.tensors["x"].scheme.exponent + graph.constants[node.params[0]].scheme.exponents[0])
    found = run_node(finer, node, [np.ones((1, 1, 1, 1), dtype=np.uint8)])
    assert found.item() == max(-32768, min(32767, accumulator << -shift))


def test_units_too_small_for_float32_are_not_called_exact() -> None:
    net = Net(1)
    graph = quantized(net.graph(net.add(Conv(2, Window((1, 1))), net.input((1, 2, 3, 3)))))
    node = graph.nodes[0]
    assert float32_exact(graph, node, stored_ranges(graph))
    tiny = replace(graph.tensors["x"], scheme=Scheme(8, False, (-130,)))
    faint = replace(graph, tensors={**graph.tensors, "x": tiny})
    assert not float32_exact(faint, node, stored_ranges(faint))


@pytest.mark.parametrize("frames", [1, 3, 4, 9])
def test_a_fixed_batch_takes_any_number_of_frames(frames: int) -> None:
    net = Net(1)
    graph = quantized(net.graph(net.add(Conv(2, Window((1, 1))), net.input((4, 2, 3, 3)))))
    part = CpuPart(graph, to_onnx(graph, Boundary.INTEGER))
    inputs = {"x": np.random.default_rng(0).integers(0, 200, (frames, 2, 3, 3)).astype(np.uint8)}
    np.testing.assert_array_equal(part.run(inputs)["n0_out"], run_integer(graph, inputs)["n0_out"])


@pytest.mark.parametrize("frames", [2, 4, 6])
def test_inputs_of_different_sizes_advance_batch_by_batch(frames: int) -> None:
    """A foreign operator over pairs of rows and one row beside them: two frames and one belong to a batch."""
    nodes = [helper.make_node("Einsum", ["x", "y"], ["z"], "pairs", equation="ij,kj->ij")]
    graph = read_onnx(build(nodes, {}, {"x": (2, 3), "y": (1, 3)}, {"z": (2, 3)})).graph
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(frames, 3)).astype(np.float32), rng.normal(size=(frames // 2, 3)).astype(np.float32)
    found = run_float(graph, {"x": x, "y": y})["z"]
    np.testing.assert_allclose(found, x * np.repeat(y, 2, axis=0), rtol=1e-6)


def test_a_diverging_network_is_refused_by_tensor() -> None:
    net = Net(0)
    x = net.input((1, 4, 4, 4))
    for _ in range(40):
        x = net.add(Conv(4, Window((3, 3), pads=(1, 1, 1, 1))), x)
    with pytest.raises(ModelError, match=r"^tensor n\d+_out: reaches .* on the calibration samples; values must stay below"):
        quantized(net.graph(x))


@pytest.mark.parametrize("total", [2.0**53 - 1, 2.0**53])
def test_a_sum_that_floats_do_not_hold_is_refused(total: float) -> None:
    same = Scheme(8, True, (0,))
    node = Node("n", Clip(), ("x",), (), "y")
    graph = Graph("g", ("x",), ("y",), (node,), {name: Tensor(name, (1, 1), same) for name in "xy"})
    frames = [np.array([[total]])]
    if total < 2.0**53:
        assert accumulate(graph, node, frames, requantizer(graph, node))[0, 0] == total
    else:
        with pytest.raises(ModelError, match=r"node n: the accumulator exceeds 2\*\*53; narrow the weights or the input range"):
            accumulate(graph, node, frames, requantizer(graph, node))


def test_one_clipped_value_of_a_hundred_is_said_and_one_of_more_is_not() -> None:
    for size, said in ((100, 1), (101, 0)):
        graph = Graph("g", ("x",), ("y",), (Node("n", Clip(), ("x",), (), "y"),),
                      {name: Tensor(name, (1, size), Scheme(8, True, (0,))) for name in "xy"})
        frames = np.zeros((1, size), np.float32)
        frames[0, 3] = 500.0
        assert len(clipped_notes(graph, {"x": frames}, "x.npz")) == said


@pytest.mark.parametrize("largest", [2**24 - 1, 2**24])
def test_sums_that_float32_may_round_are_named(largest: int) -> None:
    weight = Constant("w", np.full((1, 1024), 127, np.int8), Scheme(8, True, (0,)))
    bias = Constant("b", np.full(1, largest - 127 * 1024 * 127, np.int32), Scheme(32, True, (0,)))
    graph = Graph("g", ("x",), ("y",), (Node("n", Gemm(1), ("x",), ("w", "b"), "y"),),
                  {"x": Tensor("x", (1, 1024), Scheme(8, True, (0,))), "y": Tensor("y", (1, 1), Scheme(8, True, (8,)))},
                  {"w": weight, "b": bias})
    said = inexact_sums(graph, {"x": Range(-127, 127)})
    assert said == (None if largest < 2**24 else "float32 sums of n could exceed 2**24")


def test_frames_of_a_batch_of_one_run_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """One call of the runtime for all frames: calls cost more than small networks."""
    net = Net(1)
    graph = quantized(net.graph(net.add(Conv(2, Window((1, 1))), net.input((1, 2, 3, 3)))))
    part, asked = Submodel(graph, to_onnx(graph, Boundary.INTEGER)), list[int]()

    def listening(content: bytes, inputs: Mapping[str, Array], cuda: bool) -> dict[str, Array]:
        asked.append(len(inputs["x"]))
        return run_onnx(content, inputs, cuda)

    monkeypatch.setattr(submodel, "run_onnx", listening)
    x = np.random.default_rng(0).integers(0, 200, (5, 2, 3, 3)).astype(np.uint8)
    np.testing.assert_array_equal(part.run({"x": x})["n0_out"], run_integer(graph, {"x": x})["n0_out"])
    assert asked == [5]


def test_thirty_two_frames_are_drawn_unless_told() -> None:
    net = Net(0)
    network = net.graph(net.add(Conv(2, Window((1, 1))), net.input((1, 2, 3, 3))))
    assert synthetic(network).count == 32
    assert synthetic(network, 3).count == 3


@pytest.mark.parametrize(("content", "reason"), [
    (b"", "it is empty"), (b"frames", "it does not begin as one"), (b"PK\x03\x04 no archive", "File is not a zip file"),
    (b"\x93NUMPY\x09\x00", "we only support format version")])
def test_a_damaged_file_of_frames_is_refused_with_the_reason(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "x.npz"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=rf"^{re.escape(str(path))}: not a readable .npz or .npy file \({reason}.*\); "
                                         "save it with numpy.savez_compressed$"):
        load_arrays(path)


def test_accumulators_of_quantized_weights_have_32_bits() -> None:
    """So many equal weights that with all of their eight bits a sum would be between 2**31 and 2**32."""
    count, value = 100_000, 127 / 128
    weight, bias = Constant("w", np.full((2, count), value, np.float32)), Constant("b", np.asarray([0.0, 3.0], np.float32))
    graph = Graph("g", ("x",), ("y",), (Node("n", Gemm(2), ("x",), ("w", "b"), "y"),),
                  {"x": Tensor("x", (1, count)), "y": Tensor("y", (1, 2))}, {"w": weight, "b": bias})
    found = quantized(graph)
    scheme, (integers, offsets) = found.scheme("x"), found.params(found.nodes[0])
    assert 2**31 < 127 * count * max(-scheme.lo, scheme.hi) < 2**32
    sums = np.abs(integers.array.astype(np.int64)).sum(axis=1) * max(-scheme.lo, scheme.hi)
    assert (sums + np.abs(offsets.array.astype(np.int64))).max() < 2**31
    np.testing.assert_allclose(integers.real, value, rtol=0.02)


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_a_filter_of_zeros_is_scaled_as_one_of_ones(bits: int) -> None:
    integers, exponents = quantize_weight(np.asarray([[0.0, 0.0], [1.0, 1.0], [-1.0, 0.0]], np.float32), bits)
    assert exponents[0] == exponents[1] == exponents[2]
    assert integers[0].tolist() == [0.0, 0.0]
    np.testing.assert_array_equal(integers[1:] * 2.0**exponents[0], [[1.0, 1.0], [-1.0, 0.0]])
