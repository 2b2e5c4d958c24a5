"""Layers of different bits in one network: what was asked for is what is built, and it means the same to everyone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dovetail.errors import ModelError, UnsupportedError, UsageError
from dovetail.ir import Clamp, Coded, Conv, Graph, Thresholds
from dovetail.ir.onnx.read import read_onnx
from dovetail.ir.onnx.write import to_onnx
from dovetail.numerics.calibration import load_samples
from dovetail.numerics.equalize import Equalise
from dovetail.numerics.fixed import quantize
from dovetail.numerics.lq import fit_levels, fit_weights, weight_values
from dovetail.numerics.mixed import BitChoices, bits_of
from dovetail.numerics.oracle import run_oracle
from dovetail.numerics.quantize import quantize_graph
from dovetail.numerics.reference import run_integer

FASHION = Path(__file__).parents[2] / "examples" / "fashion"


def silent(stage: str, done: int, total: int) -> None:
    """Nobody watches."""


@pytest.fixture(scope="module")
def menu() -> BitChoices:
    graph = read_onnx(FASHION / "fashion.onnx").graph
    return BitChoices(graph, load_samples(FASHION / "calibration.npz", graph), silent)


def frames(graph: Graph, count: int = 8) -> dict[str, np.ndarray]:
    with np.load(FASHION / "test_images.npz") as data:
        x = data["x"][:count]
    scheme = graph.tensors["image"].scheme
    assert scheme is not None
    return {"image": quantize(x.astype(np.float64), scheme).astype(scheme.dtype)}


def test_all_int8_is_what_quantization_makes(menu: BitChoices) -> None:
    plain = quantize_graph(menu.network, menu.samples, 8, equalise=Equalise.OFF)
    made = menu.graph({})
    x = frames(plain)
    np.testing.assert_array_equal(run_integer(made, x)["logits"], run_integer(plain, x)["logits"])


@pytest.mark.slow("quantizes a network many times")
def test_layers_and_what_they_read_have_the_bits_that_were_asked_for(menu: BitChoices) -> None:
    graph = menu.graph({"dw1": "int4", "pw2": "int4", "dw3": "lq2", "fc1": "lq3", "conv1": "lq2"})

    def bits(tensor: str) -> int:
        scheme = graph.tensors[tensor].scheme
        assert scheme is not None
        return scheme.bits

    assert bits("relu1_out") == 4, "only dw1 reads it"
    assert bits("relu3_out") == 8, "the residual sum reads it too"
    assert graph.constants[graph.node("dw1").params[0]].array.max() <= 7
    first, third = graph.node("conv1").op, graph.node("fc1").op
    assert isinstance(first, Coded)
    assert isinstance(third, Coded)
    assert (first.weight_bits, first.input_bits) == (2, 0), "the image stays bytes"
    assert (third.weight_bits, third.input_bits) == (3, 3)
    entry = graph.producer(graph.node("fc1").inputs[0])
    assert entry is not None
    assert isinstance(entry.op, Thresholds)


@pytest.mark.parametrize("kinds", [{"dw1": "int4", "fc2": "int4"}, {"pw3": "lq2", "fc2": "lq4", "dw2": "int4"}])
def test_a_mixed_network_comes_back_from_its_file_and_onnx_runtime_computes_the_same(
        menu: BitChoices, kinds: dict[str, str], tmp_path: Path) -> None:
    graph = menu.graph(kinds)
    x = frames(graph)
    expected = run_integer(graph, x)["logits"]
    (tmp_path / "m.onnx").write_bytes(to_onnx(graph))
    back = read_onnx(tmp_path / "m.onnx").graph
    np.testing.assert_array_equal(run_integer(back, x)[back.outputs[0]], expected)
    np.testing.assert_array_equal(next(iter(run_oracle(graph, x).values())), expected)


def test_coding_a_layer_keeps_the_means_of_its_outputs(menu: BitChoices) -> None:
    """What codes take from the mean stands in the bias: without it, scores would be off on average."""
    graph = menu.graph({"fc2": "lq2"})
    plain = menu.graph({})
    x = frames(graph, 128)
    scale = plain.tensors["logits"].scheme
    assert scale is not None
    shift = (run_integer(graph, x)["logits"].mean(axis=0) - run_integer(plain, x)["logits"].mean(axis=0)) * scale.scale
    assert np.abs(shift).max() < 0.6
    spread = run_integer(plain, x)["logits"].std(axis=0).mean() * scale.scale
    assert np.abs(shift).max() < 0.25 * spread


def test_what_cannot_be_is_refused(menu: BitChoices) -> None:
    with pytest.raises(UsageError, match="bits 'lq9': unknown; int2 to int8 and lq1 to lq4 exist"):
        bits_of("lq9")
    with pytest.raises(ModelError, match="came quantized; bits are chosen for a float model"):
        BitChoices(menu.whole(8), menu.samples, silent)
    node = menu.network.node("pw1")
    assert isinstance(node.op, Conv)
    bound = Conv(node.op.filters, node.op.window, node.op.groups, Clamp(0.0, 6.0))
    nodes = tuple(n if n.name != "pw1" else type(n)(n.name, bound, n.inputs, n.params, n.output) for n in menu.network.nodes)
    limited = BitChoices(menu.network.with_nodes(nodes), menu.samples, silent)
    with pytest.raises(UnsupportedError, match="pw1: lq2 for a layer with a bound above; int8 or int4 keep it"):
        limited.graph({"pw1": "lq2"})


@pytest.mark.parametrize("bits", [1, 2, 3])
def test_fitted_bases_reproduce_what_has_few_levels_and_are_near_the_best_for_what_has_not(bits: int) -> None:
    """Taking turns ends in some minimum: with three bits it need not be the one of no error."""
    rng = np.random.default_rng(bits)
    basis = np.sort(rng.uniform(0.3, 1.0, (3, bits)) * 2.0 ** np.arange(bits), axis=1)
    weights = weight_values(rng.integers(0, 1 << bits, (3, 4, 5, 5)), basis)
    codes, found = fit_weights(weights, bits)
    if bits < 3:
        np.testing.assert_allclose(weight_values(codes, found), weights, atol=1e-9)
    normal = rng.normal(size=(2, 400))
    codes, found = fit_weights(normal, bits)
    error = np.mean((weight_values(codes, found) - normal) ** 2)
    assert error < {1: 0.38, 2: 0.125, 3: 0.045}[bits], "the best levels for a normal distribution leave 0.363, 0.118, 0.035"


def test_fitted_levels_are_near_the_best_for_half_a_normal_distribution() -> None:
    values = np.abs(np.random.default_rng(0).normal(size=20_000)) * (np.random.default_rng(1).random(20_000) < 0.5)
    basis = fit_levels(values, 2)
    levels = np.asarray([0, basis[0], basis[1], basis.sum()])
    error = np.mean(np.min((values[:, None] - levels) ** 2, axis=1))
    assert error < 0.05 * np.mean(values**2)
    assert np.all(np.diff(basis) >= 0)
    assert basis[0] >= 0
