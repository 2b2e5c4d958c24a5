"""Quantization judged: fast kernels equal the reference, equalisation keeps the function, noise is what it says."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

from dovetail.errors import ModelError
from dovetail.ir import RELU, Add, Clamp, Conv, Gemm, GlobalAvgPool, Graph, Reshape, Window
from dovetail.numerics import quality
from dovetail.numerics.calibration import Samples, synthetic
from dovetail.numerics.equalize import Equalise, equalise
from dovetail.numerics.fast import quantized_values, run_quantized
from dovetail.numerics.fixed import dequantize
from dovetail.numerics.observe import float_values, ranges
from dovetail.numerics.quantize import quantize_network
from dovetail.numerics.reference import run_float, run_integer
from dovetail.runtime.build import store
from tests.strategies import Net, networks, quantized


def _quiet(stage: str, done: int, total: int) -> None:
    pass


def inverted_residuals(clamp: Clamp, spread: float = 30.0) -> Graph:
    """Expand, depthwise, project twice with a shortcut, then a classifier; channels differ in loudness by `spread`."""
    net = Net(3)
    x = net.add(Conv(8, Window((1, 1)), clamp=clamp), net.input((1, 3, 8, 8)), name="stem")
    for i in range(2):
        y = net.add(Conv(16, Window((1, 1)), clamp=clamp), x, name=f"expand{i}")
        y = net.add(Conv(16, Window((3, 3), pads=(1, 1, 1, 1)), 16, clamp), y, name=f"depthwise{i}")
        y = net.add(Conv(8, Window((1, 1))), y, name=f"project{i}")
        x = net.add(Add(), y, x, name=f"add{i}")
    x = net.add(Reshape((1, 8)), net.add(GlobalAvgPool(), x, name="pool"), name="flatten")
    graph = net.graph(net.add(Gemm(5), x, name="classifier"))
    loudness = spread ** np.linspace(-0.5, 0.5, 16)
    constants = dict(graph.constants)
    for name in ("expand0", "expand1"):
        for role, shape in (("weight", (-1, 1, 1, 1)), ("bias", (-1,))):
            old = constants[f"{name}_{role}"]
            constants[old.name] = replace(old, array=(old.array * loudness.reshape(shape) / 8).astype(np.float32))
    return replace(graph, constants=constants)


def _equalised(graph: Graph, samples: Samples) -> Graph:
    seen = ranges(graph, samples, graph.integers, _quiet)
    found = equalise(graph, {n: x.channels for n, x in seen.items()}, {n: x.lo < 0 for n, x in seen.items()}, 8)
    assert found is not None
    return found.graph


@settings(max_examples=60, deadline=None)
@given(networks())
def test_fast_kernels_compute_the_reference_bit_for_bit(network: Graph) -> None:
    graph = quantized(network)
    inputs = synthetic(graph, 3, seed=1).values
    expected = run_integer(graph, store(graph, inputs, "test"), keep=True)
    for name, x in quantized_values(graph)(inputs):
        np.testing.assert_array_equal(x, dequantize(expected[name], graph.tensors[name].scheme), err_msg=name)


@settings(max_examples=40, deadline=None)
@given(networks())
def test_single_precision_follows_the_float_reference(network: Graph) -> None:
    inputs = synthetic(network, 3, seed=1).values
    expected = run_float(network, inputs, keep=True)
    for name, x in float_values(network, inputs):
        np.testing.assert_allclose(x, expected[name], rtol=1e-4, atol=1e-4 * np.abs(expected[name]).max(), err_msg=name)


@settings(max_examples=60, deadline=None)
@given(networks())
def test_equalisation_keeps_the_function_on_the_samples(network: Graph) -> None:
    samples = synthetic(network, 4)
    found = quantize_network(network, samples, equalise=Equalise.ON)
    for name, expected in run_float(network, samples.values).items():
        scale = np.abs(expected).max() + 1e-6
        np.testing.assert_allclose(run_float(found.source, samples.values)[name], expected, atol=1e-4 * scale)


@pytest.mark.parametrize(("clamp", "spread", "verdict"), [(RELU, 30.0, "kept"), (Clamp(0.0, 6.0), 1.0, "kept"),
                                                          (RELU, 1.0, "left out")])
def test_equalisation_is_kept_only_where_it_helps_and_said(clamp: Clamp, spread: float, verdict: str) -> None:
    graph = inverted_residuals(clamp, spread)
    samples = synthetic(graph, 16)
    found = {e: quantize_network(graph, samples, equalise=e) for e in Equalise}
    assert found[Equalise.AUTO].note.endswith(f"on the calibration samples: {verdict}")
    assert found[Equalise.AUTO].graph == found[Equalise.ON if verdict == "kept" else Equalise.OFF].graph
    expected = run_float(graph, samples.values)["classifier_out"]
    noise = {e: float(np.square(run_quantized(q.graph, samples.values)["classifier_out"] - expected).sum())
             for e, q in found.items()}
    assert noise[Equalise.AUTO] == min(noise.values())
    assert found[Equalise.OFF].note == ""
    assert found[Equalise.OFF].source is graph


def test_a_bound_that_is_reached_becomes_the_largest_integer() -> None:
    graph = inverted_residuals(Clamp(0.0, 2.0), spread=300.0)
    samples = synthetic(graph, 8)
    assert run_float(graph, samples.values, keep=True)["expand0_out"].max() == 2.0
    clamp = _equalised(graph, samples).node("expand0").op.bounds
    assert clamp is not None
    assert clamp.hi == 255 / 64


def test_a_bound_that_is_reached_scales_all_channels_alike() -> None:
    """So the function is the same on any data, not on the samples alone."""
    graph = inverted_residuals(Clamp(0.0, 2.0), spread=300.0)
    scaled = _equalised(graph, synthetic(graph, 8))
    ratio = scaled.constants["expand0_weight"].array / graph.constants["expand0_weight"].array
    np.testing.assert_allclose(ratio, ratio.flat[0], rtol=1e-6)


def test_tensors_seen_from_outside_are_not_scaled() -> None:
    graph = inverted_residuals(RELU)
    shown = replace(graph, outputs=("expand0_out", *graph.outputs))
    scaled = _equalised(shown, synthetic(graph, 8))
    np.testing.assert_array_equal(scaled.constants["expand0_bias"].array, graph.constants["expand0_bias"].array)
    assert not np.array_equal(scaled.constants["expand1_bias"].array, graph.constants["expand1_bias"].array)


def test_shared_weights_are_not_scaled() -> None:
    graph = inverted_residuals(RELU)
    twin = replace(graph.node("expand1"), params=graph.node("expand0").params)
    shared = graph.with_nodes(twin if n.name == "expand1" else n for n in graph.nodes)
    scaled = _equalised(shared, synthetic(graph, 8))
    np.testing.assert_array_equal(scaled.constants["expand0_weight"].array, graph.constants["expand0_weight"].array)


def test_the_noise_of_a_layer_is_what_the_references_say() -> None:
    graph = inverted_residuals(RELU)
    samples = synthetic(graph, 5)
    found = quantize_network(graph, samples)
    real = run_float(found.source, samples.values, keep=True)
    stored = run_integer(found.graph, store(found.graph, samples.values, "test"), keep=True)
    layers = quality.layer_noise(found.source, found.graph, samples, _quiet)
    assert [x.tensor for x in layers] == list(real)
    for layer in layers:
        scheme = found.graph.tensors[layer.tensor].scheme
        noise = np.square(dequantize(stored[layer.tensor], scheme) - real[layer.tensor]).sum()
        assert layer.snr_db == pytest.approx(10 * np.log10(np.square(real[layer.tensor]).sum() / noise), abs=0.01)


def test_the_report_puts_the_noisiest_layer_first_and_onnx_runtime_beside() -> None:
    graph = inverted_residuals(RELU)
    samples = synthetic(graph, 8)
    found = quantize_network(graph, samples)
    document = quality.report(graph, found.source, found.graph, samples, _quiet)
    ratios = [x["snr_db"] for x in document["layers"]]
    assert ratios == sorted(ratios)
    assert set(document["snr_db"]) == set(document["agreement"]) == {"int8", "onnxruntime_int8"}
    assert all(v > 10 for v in document["snr_db"].values())
    assert document["peer_note"] == ""


def test_agreement_is_not_defined_without_class_scores() -> None:
    graph = inverted_residuals(RELU)
    two = replace(graph, outputs=("add0_out", *graph.outputs))
    assert quality.classes(graph) == 5
    assert quality.classes(two) is None
    assert quality.classes(replace(graph, outputs=("add0_out",))) is None
    samples = synthetic(two, 4)
    found = quantize_network(two, samples)
    document = quality.report(two, found.source, found.graph, samples, _quiet)
    assert document["agreement"] is None
    assert document["agreement_note"] == quality.UNDEFINED
    assert document["snr_db"]["int8"] > 10


def test_a_network_onnx_runtime_cannot_quantize_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = inverted_residuals(RELU)
    samples = synthetic(graph, 2)
    monkeypatch.setattr(quality, "batches", lambda graph, values: iter(()))  # it raises without samples
    with pytest.raises(ModelError, match="network net: ONNX Runtime's static quantization failed"):
        quality.static_int8(graph, samples)


def test_chunks_do_not_change_the_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = inverted_residuals(RELU)
    samples = synthetic(graph, 7)
    whole = quantize_network(graph, samples).graph
    outputs = run_quantized(whole, samples.values)["classifier_out"]
    monkeypatch.setattr("dovetail.numerics.kernels.CHUNK_ELEMENTS", 3 * sum(t.size for t in graph.tensors.values()))
    parted = quantize_network(graph, samples).graph
    assert {n: t.scheme for n, t in parted.tensors.items()} == {n: t.scheme for n, t in whole.tensors.items()}
    np.testing.assert_array_equal(run_quantized(whole, samples.values)["classifier_out"], outputs)
