"""The one requantizer: exact integers for any scales, close to the real ratio, a shift between powers of two."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.errors import ModelError
from dovetail.ir import Add, Clip, Constant, Gemm, Graph, Node, Scheme, Tensor
from dovetail.ir.tensor import scheme_of_scales
from dovetail.numerics.oracle import run_oracle
from dovetail.numerics.ranges import float32_exact, stored_ranges
from dovetail.numerics.reference import run_integer
from dovetail.numerics.requantize import MOST_SHIFT, MULTIPLIER_BITS, requantizer, rounded
from tests.scales import with_arbitrary_scales
from tests.strategies import networks, quantized

SCALES = st.floats(2.0**-20, 2.0**10, width=32)


def half_even(value: Fraction) -> int:
    return round(value)  # Python rounds fractions half to even


def through(source: Scheme, target: Scheme, count: int = 1) -> Graph:
    names = [f"x{i}" for i in range(count)]
    tensors = {n: Tensor(n, (1, 4), source) for n in names} | {"y": Tensor("y", (1, 4), target)}
    node = Node("n", Clip() if count == 1 else Add(), tuple(names), (), "y")
    return Graph("g", tuple(names), ("y",), (node,), tensors)


@given(SCALES, SCALES, st.integers(-(1 << 30), 1 << 30), st.integers(1, 5000))
def test_one_multiplication_and_one_rounding_are_exact_and_near_the_real_ratio(
        step: float, target: float, total: int, divisor: int) -> None:
    graph = through(scheme_of_scales(8, True, [step]), scheme_of_scales(8, True, [target], zero=3))
    node = graph.nodes[0]
    try:
        how = requantizer(graph, node)
    except ModelError:
        assert step / target >= 2.0**(MULTIPLIER_BITS - 1)
        return
    (multiplier,), (shift,) = how.multipliers, how.shifts
    ratio = Fraction(multiplier) / Fraction(2)**shift
    found = rounded(np.array([[float(total)]]), divisor, how, node)
    assert found[0, 0] == half_even(total * ratio / divisor) + 3
    assert multiplier == 1 or multiplier.bit_length() == 31 or shift == MOST_SHIFT
    real = Fraction(step) / Fraction(target)
    assert abs(ratio / real - 1) <= Fraction(1, 1 << 30) or abs(ratio - real) <= Fraction(1, 1 << (MOST_SHIFT + 1))
    assert abs(ratio - Fraction(step / target)) * Fraction(2)**shift <= Fraction(1, 2)


@given(st.integers(-20, 20), st.integers(-20, 20))
def test_between_powers_of_two_the_ratio_is_a_shift(source: int, target: int) -> None:
    how = requantizer(through(Scheme(8, True, (source,)), Scheme(8, True, (target,))), through(
        Scheme(8, True, (source,)), Scheme(8, True, (target,))).nodes[0])
    assert (how.multipliers, how.shifts) == ((1,), (target - source,))


@given(st.lists(st.tuples(SCALES, st.integers(0, 255)), min_size=2, max_size=3), SCALES, st.integers(0, 255), st.integers(0))
def test_sums_of_differently_scaled_integers_stay_within_a_step_of_the_real_sum(
        given_inputs: list[tuple[float, int]], target: float, zero: int, seed: int) -> None:
    out = scheme_of_scales(8, False, [target], zero=zero)
    tensors = {f"x{i}": Tensor(f"x{i}", (1, 4), scheme_of_scales(8, False, [s], zero=z)) for i, (s, z) in enumerate(given_inputs)}
    graph = Graph("g", tuple(tensors), ("y",), (Node("n", Add(), tuple(tensors), (), "y"),),
                  {**tensors, "y": Tensor("y", (1, 4), out)})
    if max(s for s, _ in given_inputs) / target >= 2.0**(MULTIPLIER_BITS - 1):
        return
    values = {n: np.random.default_rng(seed).integers(0, 256, (1, 4)).astype(np.uint8) for n in tensors}
    real = sum(((values[n].astype(np.float64) - t.scheme.zero) * t.scheme.scale for n, t in tensors.items() if t.scheme),
               np.zeros((1, 4)))
    wanted = np.clip(np.rint(real / target) + zero, 0, 255)
    assert np.abs(run_integer(graph, values)["y"].astype(np.float64) - wanted).max() <= 1


@given(networks(), st.integers(0, 2**32 - 1))
def test_networks_of_arbitrary_scales_equal_onnx_runtime_but_for_ties(network: Graph, seed: int) -> None:
    graph = with_arbitrary_scales(quantized(network), seed)
    assert not all(float32_exact(graph, n, stored_ranges(graph)) for n in graph.nodes)
    rng = np.random.default_rng(seed)
    values = {n: rng.integers(s.lo, s.hi + 1, graph.shape(n)).astype(s.dtype) for n in graph.inputs
              if (s := graph.tensors[n].scheme) is not None}
    outside = {**run_oracle(graph, values), **values}
    for node in graph.nodes:  # node by node, on what ONNX Runtime computed before: a tie may round the other way there
        alone = Graph("one", node.inputs, (node.output,), (node,), {t: graph.tensors[t] for t in (*node.inputs, node.output)},
                      {c: graph.constants[c] for c in node.params})
        ours = run_integer(alone, {t: outside[t] for t in node.inputs})[node.output].astype(np.int64)
        difference = np.abs(ours - outside[node.output])
        assert difference.max() <= 1
        assert np.count_nonzero(difference) <= 1 + difference.size // 1000


def test_a_ratio_no_multiplier_reaches_is_refused_by_node() -> None:
    graph = through(scheme_of_scales(8, True, [3e6]), scheme_of_scales(8, True, [1e-6]))
    with pytest.raises(ModelError, match=r"node n: its sums are 3e\+12 steps of its output y"):
        requantizer(graph, graph.nodes[0])


def test_channels_with_a_shift_are_exact_beside_channels_with_a_multiplier() -> None:
    """Powers of two above one need no digit behind the point, on either side of a ratio of 31 bits."""
    source, target = Scheme(8, True, (0,)), Scheme(8, True, (-3,))
    steps = [2.0, 0.3, 0.25]
    weight = Constant("w", np.ones((3, 1), np.int8), scheme_of_scales(8, True, steps, 0))
    bias = Constant("b", np.zeros(3, np.int32), scheme_of_scales(32, True, steps, 0))
    graph = Graph("g", ("x",), ("y",), (Node("n", Gemm(3), ("x",), ("w", "b"), "y"),),
                  {"x": Tensor("x", (1, 1), source), "y": Tensor("y", (1, 3), target)}, {"w": weight, "b": bias})
    how = requantizer(graph, graph.nodes[0])
    assert how.multipliers[0] == how.multipliers[2] == 1
    assert (how.shifts[0], how.shifts[2]) == (-4, -1)
    for total in (-7, 0, 5, 123_456_789):
        found = rounded(np.full((1, 3), float(total)), 1, how, graph.nodes[0])
        exact = half_even(total * Fraction(how.multipliers[1]) / Fraction(2)**how.shifts[1])
        assert found.tolist() == [[16 * total, exact, 2 * total]]


@pytest.mark.parametrize("total", [2.0**31 - 1, -(2.0**31) + 1, 2.0**31, -(2.0**31)])
def test_sums_before_a_multiplier_have_32_bits(total: float) -> None:
    graph = through(scheme_of_scales(8, True, [0.3]), Scheme(8, True, (0,)))
    node, how = graph.nodes[0], requantizer(graph, graph.nodes[0])
    if abs(total) < 2.0**31:
        wanted = half_even(int(total) * Fraction(how.multipliers[0]) / Fraction(2)**how.shifts[0])
        assert rounded(np.array([[total]]), 1, how, node).item() == wanted
    else:
        with pytest.raises(ModelError, match="node n: the accumulator exceeds int32; narrow the weights or the input range"):
            rounded(np.array([[total]]), 1, how, node)
