"""Networks that are quantized with any scales: closer to the float network, the same integers everywhere, chosen by answers."""

from __future__ import annotations

from math import frexp
from pathlib import Path

import numpy as np
import pytest

from dovetail.fpga.assemble import build_design
from dovetail.fpga.packing import as_pixels
from dovetail.fpga.toolchain.simulate import simulate
from dovetail.ir import RELU, Graph
from dovetail.ir.onnx.read import read_onnx
from dovetail.ir.onnx.write import to_onnx
from dovetail.numerics import quantize
from dovetail.numerics.calibration import Samples, synthetic
from dovetail.numerics.equalize import Equalise
from dovetail.numerics.fast import run_quantized
from dovetail.numerics.quantize import Quantized, quantize_network
from dovetail.numerics.reference import run_float, run_integer
from dovetail.numerics.scales import Scales, agreement
from dovetail.runtime.build import store
from tests.numerics.test_quality import inverted_residuals


@pytest.fixture(scope="module")
def network() -> Graph:
    return inverted_residuals(RELU, 2.0)


@pytest.fixture(scope="module")
def samples(network: Graph) -> Samples:
    return synthetic(network, 24)


@pytest.fixture(scope="module")
def found(network: Graph, samples: Samples) -> dict[Scales, Quantized]:
    return {s: quantize_network(network, samples, equalise=Equalise.OFF, scales=s) for s in Scales}


def test_any_scales_are_closer_to_the_float_network(network: Graph, samples: Samples, found: dict[Scales, Quantized]) -> None:
    expected = run_float(network, samples.values)["classifier_out"]
    noise = {s: np.square(run_quantized(q.graph, samples.values)["classifier_out"] - expected).sum() for s, q in found.items()}
    assert noise[Scales.ANY] < 0.8 * noise[Scales.POW2]
    assert all(t.scheme is None or not t.scheme.mantissas for t in found[Scales.POW2].graph.tensors.values())
    assert found[Scales.ANY].note == "any scales: rounding multiplies in 8 layers"


def test_any_scales_survive_a_file(found: dict[Scales, Quantized], samples: Samples, tmp_path: Path) -> None:
    graph = found[Scales.ANY].graph
    assert all(frexp(s)[0] == np.float32(frexp(s)[0]) for t in graph.tensors.values() if t.scheme for s in t.scheme.scales)
    (tmp_path / "any.onnx").write_bytes(to_onnx(graph))
    again = read_onnx(tmp_path / "any.onnx").graph
    inputs = store(graph, samples.values, "test")
    for name, expected in run_integer(graph, inputs).items():
        np.testing.assert_array_equal(run_integer(again, inputs)[name], expected)


@pytest.mark.verilator
def test_hardware_of_any_scales_gives_the_reference(found: dict[Scales, Quantized], samples: Samples) -> None:
    graph = found[Scales.ANY].graph
    inputs = {name: x[:2] for name, x in store(graph, samples.values, "test").items()}
    design = build_design(graph, "any_scales")
    result = simulate(design, {p.tensor: as_pixels(p, inputs[p.tensor]) for p in design.inputs})
    for name, expected in run_integer(graph, inputs).items():
        np.testing.assert_array_equal(result.outputs[name].reshape(expected.shape), expected)


@pytest.mark.parametrize(("tolerance", "kept"), [(1.0, Scales.POW2), (-2.0, Scales.ANY)])
def test_auto_takes_powers_of_two_while_answers_agree(network: Graph, samples: Samples, found: dict[Scales, Quantized],
                                                      tolerance: float, kept: Scales, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quantize, "TOLERANCE", tolerance)
    chosen = quantize_network(network, samples, equalise=Equalise.OFF, scales=Scales.AUTO)
    assert chosen.graph == found[kept].graph
    assert "powers of two give the float network's answer on" in chosen.note
    assert chosen.note.endswith("powers of two" if kept is Scales.POW2 else "any scales, rounding multiplies in 8 layers")


def test_agreement_counts_answers_and_not_values() -> None:
    expected = {"a": np.array([[1.0, 2.0], [3.0, 0.0]]), "value": np.ones((2, 1))}
    assert agreement(expected, {"a": np.array([[0.0, 9.0], [1.0, 2.0]]), "value": np.zeros((2, 1))}) == 0.5
    assert agreement({"value": np.ones((2, 1))}, {"value": np.zeros((2, 1))}) == 1.0
