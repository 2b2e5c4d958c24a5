"""Requantization beside ONNX Runtime's, for every sum that a layer can have and not for samples."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from dovetail.ir import Array, Clip, Graph, Node, Scheme, Tensor
from dovetail.ir.onnx.read import read_onnx
from dovetail.numerics.reference import run_integer
from dovetail.numerics.requantize import requantizer, rounded
from tests.numerics.test_quantized_import import plain_session

LARGEST_SHIFT = 16
"""Sums of up to 24 bits, behind which floats are not exact, reach all of 8 bits at this shift."""
SINGLE = Fraction(1, 1 << 24)
"""What one rounding to float32 changes at most, as a part of the value."""
RATIO = Fraction(1, 1 << 30)
"""What the 31 bits of a ratio change at most."""


def model(nodes: list[object], inputs: dict[str, tuple[int, list[object]]], output: tuple[str, int], **constants: Array) -> bytes:
    """A model of opset 17."""
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in inputs.items()],
        [helper.make_tensor_value_info(*output, None)],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return made.SerializeToString()  # type: ignore[no-any-return]


@pytest.mark.slow("some 70 million sums")
@pytest.mark.parametrize(("signed", "largest"), [(True, LARGEST_SHIFT), (False, 10)])
def test_between_powers_of_two_every_sum_becomes_what_onnx_runtime_makes_of_it(signed: bool, largest: int) -> None:
    target = Scheme(8, signed, (0,))
    zero = np.asarray(0, dtype=target.dtype)
    for shift in range(-4, largest + 1):
        sums = np.arange(-(1 << (9 + max(shift, 0))), (1 << (9 + max(shift, 0))) + 1, dtype=np.int32)  # beyond, all are saturated
        outside = plain_session(model(
            [helper.make_node("DequantizeLinear", ["x", "unit", "none"], ["real"]),
             helper.make_node("QuantizeLinear", ["real", "step", "zero"], ["y"])],
            {"x": (TensorProto.INT32, ["n"])}, ("y", TensorProto.INT8 if signed else TensorProto.UINT8),
            unit=np.float32(2.0**-shift), none=np.int32(0), step=np.float32(1.0), zero=zero)).run(None, {"x": sums})[0]
        node = Node("n", Clip(), ("x",), (), "y")
        graph = Graph("g", ("x",), ("y",), (node,), {"x": Tensor("x", (1, 1), Scheme(8, True, (-shift,))),
                                                     "y": Tensor("y", (1, 1), target)})
        how = requantizer(graph, node)
        assert (how.multipliers, how.shifts) == ((1,), (shift,))
        found = np.clip(rounded(sums.astype(np.float64)[:, None], 1, how, node), target.lo, target.hi)
        np.testing.assert_array_equal(found[:, 0].astype(target.dtype), outside, f"shift {shift}")


@pytest.mark.parametrize("seed", range(4))
def test_between_any_scales_a_sum_differs_from_onnx_runtime_only_beside_a_tie_and_by_one(seed: int) -> None:
    """ONNX Runtime multiplies by a float; three roundings of 24 bits cannot move a value past more than the nearest tie."""
    rng = np.random.default_rng(seed)
    source, weight = (np.float32(s) for s in rng.uniform(0.001, 0.1, 2))
    target = np.float32(float(source) * float(weight) * rng.uniform(8, 512))
    bound = 140 * int(np.ceil(float(target) / (float(source) * float(weight))))  # beyond, all are saturated
    fine, coarse, most = 1, 64, 127  # weights small enough for kernels that add two products in 16 bits
    channels = 1 + -(-bound // (coarse * most))
    sums = np.arange(-bound, bound + 1)
    high = (sums + coarse // 2) // coarse
    x = np.empty((len(sums), channels, 1, 1), np.int8)
    x[:, 0, 0, 0] = sums - coarse * high
    for c in range(1, channels):
        x[:, c, 0, 0] = np.sign(high) * np.clip(np.abs(high) - most * (c - 1), 0, most)
    content = model(
        [helper.make_node("QuantizeLinear", ["x", "xs", "z"], ["q"]),
         helper.make_node("QLinearConv", ["q", "xs", "z", "w", "ws", "z", "ys", "z"], ["y"], name="conv", kernel_shape=[1, 1])],
        {"x": (TensorProto.FLOAT, ["n", channels, 1, 1])}, ("y", TensorProto.INT8), xs=source, ws=weight, ys=target,
        z=np.int8(0), w=np.asarray([fine] + [coarse] * (channels - 1), np.int8).reshape(1, channels, 1, 1))
    outside = plain_session(content).run(None, {"x": x * source})[0].reshape(-1)
    graph = read_onnx(content).graph
    found = run_integer(graph, {graph.inputs[0]: x})[graph.outputs[0]].reshape(-1)
    ratio = Fraction(float(source)) * Fraction(float(weight)) / Fraction(float(target))
    differs = np.flatnonzero(found != outside)
    assert np.all(np.abs(found[differs].astype(int) - outside[differs]) == 1)
    for index in differs:
        real = int(sums[index]) * ratio
        assert abs(abs(real % 1) - Fraction(1, 2)) <= abs(real) * (3 * SINGLE + RATIO)
    assert {int(found.min()), int(found.max())} == {-128, 127}
