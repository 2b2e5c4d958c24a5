"""Learned quantization in integers: every form of a sum is the same, thresholds are BatchNorm and the next quantizer."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.errors import ModelError, UnsupportedError
from dovetail.ir import Axis, Coded, Gemm, Graph, Scheme, slices
from dovetail.ir.onnx.write import to_onnx
from dovetail.ir.onnx.writer import Boundary
from dovetail.ir.operators.lq import count_steps
from dovetail.numerics.fast import exact_nodes, run_stored, stored_values
from dovetail.numerics.lq import (
    LearnedLayer,
    boundaries_of,
    canonical,
    coded_node,
    float_layer,
    levels_of,
    products_of,
    ranked,
    threshold_node,
    weight_values,
)
from dovetail.numerics.oracle import run_onnx
from dovetail.numerics.ranges import float32_exact, partial_sum_bound, stored_ranges
from dovetail.numerics.reference import run_integer, run_node
from tests.numerics.lq_forms import popcount_sum, product_table, table_sum
from tests.numerics.lq_networks import coded, conv_of, images, learned, network

BITS = st.integers(0, 4)


def layer_of(seed: int, weight_bits: int, input_bits: int, groups: int = 1, stride: int = 1, kernel: int = 3, pad: int = 1,
             gemm: bool = False):  # type: ignore[no-untyped-def]
    """A drawn node with its constants and an input over its whole range."""
    rng = np.random.default_rng(seed)
    shape = (4 * groups, 3) if gemm else (2 * groups, 3, kernel, kernel)
    body = Gemm(shape[0]) if gemm else conv_of(shape, groups, stride, pad)
    layer = learned(rng, body, shape, weight_bits, input_bits)
    node, constants = coded_node("n", layer, "x", "y", None)
    inputs = (3, 3) if gemm else (3, 3 * groups, 6, 5)
    x = rng.integers(0, 1 << (input_bits or 8), inputs).astype(np.uint8)
    return layer, node, constants, x


@settings(max_examples=60)
@given(st.integers(0, 1 << 30), BITS, BITS, st.integers(1, 3), st.integers(1, 2), st.sampled_from([1, 3]), st.booleans())
def test_table_and_popcounts_are_the_sum_of_the_reference(seed: int, weight_bits: int, input_bits: int, groups: int, stride: int,
                                                         kernel: int, gemm: bool) -> None:
    _, node, constants, x = layer_of(seed, weight_bits, input_bits, groups, stride, kernel, kernel // 2, gemm)
    codes, products, bias = (c.array for c in constants[:3])
    op = node.op
    assert isinstance(op, Coded)
    biased = op.accumulate([x.astype(np.float64)], [c.array.astype(np.float64) for c in constants])
    sums = biased - bias.reshape((1, -1) + (1,) * (biased.ndim - 2))
    np.testing.assert_array_equal(popcount_sum(op, x, codes, products), sums)
    np.testing.assert_array_equal(table_sum(op, x, codes, products), sums)
    assert np.abs(sums).max() <= op.bound(codes, products, 255)


@settings(max_examples=40)
@given(st.integers(0, 1 << 30), st.integers(1, 4))
def test_signed_bytes_are_summed_by_popcounts_too(seed: int, weight_bits: int) -> None:
    _, node, constants, x = layer_of(seed, weight_bits, 0)
    signed = (x.astype(np.int16) - 128).astype(np.int8)
    arrays = [c.array.astype(np.float64) for c in constants]
    arrays[2] = np.zeros_like(arrays[2])
    np.testing.assert_array_equal(popcount_sum(node.op, signed, constants[0].array, constants[1].array),
                                  node.op.accumulate([signed.astype(np.float64)], arrays))


def test_and_alone_is_wrong_for_weights_of_both_signs() -> None:
    """The paper counts w AND a; a cleared weight bit subtracts, which only 2·popcount(w AND a) - popcount(a) has."""
    _, node, constants, x = layer_of(3, 1, 1)
    codes, products = (c.array for c in constants[:2])
    as_bits = replace(node.op, weight_bits=0)
    wrong = popcount_sum(as_bits, x, codes.astype(np.int8), products)
    assert np.any(wrong != popcount_sum(node.op, x, codes, products))


@settings(max_examples=60)
@given(st.integers(0, 1 << 30), st.integers(1, 4), st.integers(1, 4))
def test_a_canonical_basis_means_the_same_weights(seed: int, bits: int, filters: int) -> None:
    rng = np.random.default_rng(seed)
    codes, basis = rng.integers(0, 1 << bits, (filters, 5)), rng.normal(0, 1, (filters, bits))
    sorted_codes, sorted_basis = canonical(codes, basis)
    np.testing.assert_allclose(weight_values(sorted_codes, sorted_basis), weight_values(codes, basis), atol=1e-12)
    assert np.all(sorted_basis >= 0)
    assert np.all(np.diff(sorted_basis, axis=1) >= 0)


@settings(max_examples=60)
@given(st.lists(st.floats(0, 10), min_size=1, max_size=4))
def test_a_larger_code_means_a_larger_value(values: list[float]) -> None:
    basis = np.sort(np.asarray(values))
    levels, patterns = ranked(basis)
    assert np.all(np.diff(levels) >= 0)
    assert levels[0] == 0.0
    assert len(values) > 2 or patterns == ()
    np.testing.assert_array_equal(levels, levels_of(basis)[list(patterns)] if patterns else levels_of(basis))


@pytest.mark.parametrize("basis", [[-0.1, 1.0], [2.0, 1.0]])
def test_a_basis_out_of_order_is_refused(basis: list[float]) -> None:
    with pytest.raises(ModelError, match="negative or unsorted values; sort it in ascending order, from 0"):
        ranked(np.asarray(basis))


@settings(max_examples=60)
@given(st.integers(0, 1 << 30), st.integers(1, 3), st.integers(1, 3), st.integers(1, 4))
def test_thresholds_are_the_affine_map_and_the_next_quantizer(seed: int, weight_bits: int, input_bits: int, bits: int) -> None:
    """In exact arithmetic of the rounded products; gains of both signs and of zero."""
    rng = np.random.default_rng(seed)
    layer = learned(rng, conv_of((6, 3, 3, 3)), (6, 3, 3, 3), weight_bits, input_bits)
    layer = replace(layer, gain=np.where(np.arange(6) == 0, 0.0, layer.gain))
    boundaries = boundaries_of(ranked(np.sort(rng.uniform(0.1, 1, bits)))[0])
    node, constants = coded_node("n", layer, "x", "y", boundaries.tolist())
    codes, products, steps = (c.array for c in constants[:3])
    x = rng.integers(0, 1 << input_bits, (2, 3, 5, 5)).astype(np.uint8)
    sums = popcount_sum(node.op, x, codes, products)
    along = (1, -1, 1, 1)
    unit = np.asarray(constants[1].scheme.scales).reshape(along)  # type: ignore[union-attr]
    real = np.abs(layer.gain).reshape(along) * sums * unit + layer.offset.reshape(along)
    near = np.abs(real[..., None] - boundaries).min(axis=-1) < 1e-9 * np.abs(boundaries).max()
    wanted = (real[..., None] >= boundaries).sum(axis=-1)
    np.testing.assert_array_equal(count_steps(sums, steps)[~near], wanted[~near])


@settings(max_examples=40)
@given(st.integers(0, 1 << 30), st.integers(1, 4), st.integers(1, 4), st.integers(4, 14))
def test_a_product_is_off_by_half_a_step_at_most(seed: int, weight_bits: int, input_bits: int, bits: int) -> None:
    rng = np.random.default_rng(seed)
    basis, input_basis = rng.normal(0, 1, (5, weight_bits)), rng.uniform(0, 2, input_bits)
    products, exponents = products_of(basis, input_basis, bits)
    exact = basis[:, :, None] * input_basis
    step = np.exp2(exponents.astype(np.float64))[:, None, None]
    assert np.all(np.abs(products * step - exact) <= np.maximum(step, np.abs(exact).max() * 2.0**-bits) / 2 + 1e-15)
    assert np.abs(products).max() <= 1 << bits


@pytest.mark.parametrize("weight_bits", [1, 2, 3, 4])
@pytest.mark.parametrize("input_bits", [1, 2, 3, 4])
def test_onnx_runtime_computes_the_same_codes(weight_bits: int, input_bits: int) -> None:
    graph = network(weight_bits * 5 + input_bits, weight_bits, input_bits, product_bits=8)
    ranges = stored_ranges(graph)
    assert all(float32_exact(graph, n, ranges) for n in graph.nodes)
    frames = images(7, 3)
    expected = run_integer(graph, frames)
    found = run_onnx(to_onnx(graph, Boundary.INTEGER), frames)
    np.testing.assert_array_equal(found["last_y"], expected["last_y"])


@pytest.mark.parametrize(("weight_bits", "input_bits", "last"), [(1, 2, "fixed"), (2, 2, "codes"), (3, 4, "fixed"),
                                                                 (4, 3, "codes")])
def test_the_fast_way_gives_the_integers_of_the_reference(weight_bits: int, input_bits: int, last: str) -> None:
    graph = network(5, weight_bits, input_bits, last=last)
    assert {n.name for n in graph.nodes} == exact_nodes(graph)
    x = images(6, 9)
    right = run_integer(graph, x, keep=True)
    for name, found in stored_values(graph)(x):
        assert found.dtype == right[name].dtype, name
        np.testing.assert_array_equal(found, right[name], name)
    np.testing.assert_array_equal(run_stored(graph, x)["last_y"], right["last_y"])


def test_a_threshold_that_no_sum_reaches_stays_out_of_reach_in_float32() -> None:
    graph = network(7, 2, 2)
    node = graph.node("second")
    steps = graph.params(node)[2]
    far = steps.array.astype(np.int32).copy()
    far[0], far[1] = 2**31 - 1, -(2**31)
    graph = replace(graph, constants={**graph.constants, steps.name: replace(steps, array=far)})
    x = images(8, 3)
    found = dict(stored_values(graph)(x))["second_y"]
    np.testing.assert_array_equal(found, run_integer(graph, x, keep=True)["second_y"])
    assert (found[:, 0] == 0).all()
    assert (found[:, 1] == 3).all()


@settings(max_examples=30)
@given(st.integers(0, 1 << 30), st.floats(2.0**-20, 2.0**20))
def test_a_filter_without_gain_keeps_its_offset_to_the_millionth(seed: int, offset: float) -> None:
    layer = learned(np.random.default_rng(seed), conv_of((3, 2, 3, 3)), (3, 2, 3, 3), 2, 2)
    layer = replace(layer, gain=layer.gain * [1, 0, 1], offset=np.asarray([0.1, -offset, 0.2]))
    _, (_, products, bias, *_) = coded_node("n", layer, "x", "y", None)
    assert not products.array[1].any()
    assert bias.real[1] == pytest.approx(-offset, rel=2.0**-20)


@pytest.mark.parametrize(("weight", "level", "message"), [
    (2.0**-60, 2.0**-50, "products from 7.7e-34 up to 7.7e-34"), (2.0**70, 2.0**55, "products from 4.25e+37 up to 4.25e+37")])
def test_a_layer_that_leaves_single_precision_is_refused(weight: float, level: float, message: str) -> None:
    basis, one = np.full((2, 1), weight), np.ones(2)
    layer = LearnedLayer(Gemm(2), np.ones((2, 4), np.uint8), 1, basis, 1, np.asarray([level]), one, 0 * one)
    node, constants = coded_node("n", layer, "x", "y", [0.5])
    assert isinstance(node.op, Coded)
    with pytest.raises(UnsupportedError, match=f"n: {re.escape(message)}; single precision without subnormal numbers needs "
                                               r"7.89e-31 to 8.51e\+37 of a sum"):
        float_layer("n", node.op, constants)


def test_codes_as_results_reach_the_user_as_numbers() -> None:
    graph = network(3, 2, 2, last="codes")
    frames = images(1, 2)
    stored = run_integer(graph, frames)["last_y"]
    assert len(np.unique(stored)) > 1
    real = run_onnx(to_onnx(graph), {"x": frames["x"].astype(np.float32) / 256})["last_y"]
    np.testing.assert_array_equal(real, stored.astype(np.float32))


def test_no_sum_exceeds_the_bound_that_ranges_state() -> None:
    graph = network(2, 3, 2)
    values, ranges = run_integer(graph, images(5, 8), keep=True), stored_ranges(graph)
    for node in coded(graph):
        params = [c.array.astype(np.float64) for c in graph.params(node)]
        sums = node.op.accumulate([values[node.inputs[0]].astype(np.float64)], params)
        assert np.abs(sums).max() <= partial_sum_bound(graph, node, ranges)


@pytest.mark.parametrize("largest", [0, 1, 9000])
def test_the_bound_of_a_sum_is_that_of_its_products_and_its_largest_bias(largest: int) -> None:
    graph = network(2, 3, 2)
    node = graph.node("last")
    codes, products, bias, *_ = graph.params(node)
    assert isinstance(node.op, Coded)
    digits = np.zeros_like(bias.array)
    digits[3] = -largest
    graph = replace(graph, constants={**graph.constants, bias.name: replace(bias, array=digits)})
    assert partial_sum_bound(graph, node, stored_ranges(graph)) == node.op.bound(codes.array, products.array, 3) + largest


@settings(max_examples=30)
@given(st.integers(0, 1 << 20), st.sampled_from(["first", "second", "third", "last"]), st.data())
def test_shares_put_together_are_the_whole(seed: int, name: str, data: st.DataObject) -> None:
    graph = network(seed % 7, 2, 2)
    node = graph.node(name)
    assert isinstance(node.op, Coded)
    shapes = graph.input_shapes(node)
    axis = data.draw(st.sampled_from(node.op.axes(shapes)))
    assert axis is not Axis.INPUT_CHANNELS
    cut = data.draw(st.integers(1, node.op.extent(axis, shapes) - 1))
    values = run_integer(graph, images(seed, 1), keep=True)
    x, whole = values[node.inputs[0]], values[node.output]
    joined = np.full_like(whole, 99)
    for start, stop in ((0, cut), (cut, node.op.extent(axis, shapes))):
        share = node.op.share(axis, start, stop, shapes)
        constants = {}
        for constant, region in zip(graph.params(node), share.params, strict=True):
            scheme = None if constant.scheme is None else constant.scheme.cut(region)
            constants[constant.name] = replace(constant, array=constant.array[slices(region)], scheme=scheme)
        given_ = x[slices(share.inputs[0])]
        tensors = {node.inputs[0]: replace(graph.tensors[node.inputs[0]], shape=given_.shape),
                   node.output: replace(graph.tensors[node.output], shape=tuple(b - a for a, b in share.output))}
        part = Graph("share", (node.inputs[0],), (node.output,), (replace(node, op=share.op),), tensors, constants)
        joined[slices(share.output)] = run_node(part, part.nodes[0], [given_])
    np.testing.assert_array_equal(joined, whole)


def test_boundaries_of_no_code_are_refused() -> None:
    layer, *_ = layer_of(1, 2, 2)
    with pytest.raises(ModelError, match="n: 2 boundaries; codes of 1 to 4 bits have 1, 3, 7 or 15"):
        coded_node("n", layer, "x", "y", [0.1, 0.2])


def test_thresholds_of_fixed_point_numbers_are_the_next_step_up() -> None:
    node, steps = threshold_node("t", "x", "y", Scheme(8, True, (-2,)), [0.1, 0.25, 40.0])
    assert steps.array.tolist() == [1, 1, 128]  # 0.25 and 0.25 are one step, 40 is beyond what 8 bits reach
    assert count_steps(np.asarray([[-3, 0, 1, 127]]), steps.array).tolist() == [[0, 0, 2, 2]]
    assert node.op.attributes() == "to codes of 2"


def test_thresholds_by_channel_stand_for_a_gain_and_an_offset_before_the_quantizer() -> None:
    """Every fixed-point number of every channel, a gain of zero among them, gets the code of gain·number + offset."""
    scheme, boundaries = Scheme(8, False, (-4,)), [0.5, 1.5, 2.25]
    gain, offset = np.asarray([1.0, 0.37, 12.0, 0.0, 0.0]), np.asarray([0.0, -0.8, 0.3, 1.6, -1.0])
    node, steps = threshold_node("t", "x", "y", scheme, boundaries, gain, offset)
    x = np.broadcast_to(np.arange(256), (5, 256)).T[:, :, None, None]
    real = gain * x[:, :, 0, 0] * scheme.scale + offset
    codes = node.op.accumulate((x.astype(np.float64),), (steps.array.astype(np.float64),))[:, :, 0, 0]
    np.testing.assert_array_equal(codes, (real[:, :, None] >= boundaries).sum(axis=2))
    with pytest.raises(ValueError, match="negative gain"):
        threshold_node("t", "x", "y", scheme, boundaries, -gain, offset)



def test_the_table_holds_what_the_basis_says() -> None:
    """The paper's example: weights over 1.1 and 0.5, the code 10 is 1.1 - 0.5."""
    products, exponents = products_of(np.asarray([[0.5, 1.1]]), np.asarray([1.0, 2.0]), 12)
    table = product_table(Coded(Gemm(1), 2, 2), products)[0] * 2.0 ** exponents[0]
    np.testing.assert_allclose(table[0b10], [0.0, 0.6, 1.2, 1.8], atol=2.0**-10)
    np.testing.assert_allclose(table[0b00, 3], -4.8, atol=2.0**-9)
