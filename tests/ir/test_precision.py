"""Models in half, bfloat16 or double precision come in as single precision, and say so."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from dovetail.errors import ModelError
from dovetail.ir import Opaque
from dovetail.ir.onnx.read import read_onnx
from dovetail.numerics.oracle import run_onnx
from dovetail.numerics.reference import run_float
from dovetail.pipeline import compile as compile_model
from dovetail.pipeline import verify_build

TYPES = {"float16": TensorProto.FLOAT16, "float64": TensorProto.DOUBLE, "bfloat16": TensorProto.BFLOAT16}
make = helper.make_node


def residual_block(kind: int) -> onnx.ModelProto:
    """A residual block whose inputs, weights and outputs are all of one float type, with casts there and back."""
    rng = np.random.default_rng(0)
    shapes = {"w1": (4, 3, 3, 3), "b1": (4,), "w2": (4, 4, 3, 3), "g": (4,), "o": (4,), "m": (4,), "v": (4,), "w3": (5, 4)}
    weights = {n: np.abs(rng.standard_normal(s)) / np.sqrt(np.prod(s[1:])) + 0.1 for n, s in shapes.items()}
    nodes = [
        make("Conv", ["x", "w1", "b1"], ["a"], "first", pads=[1] * 4), make("Relu", ["a"], ["b"], "relu"),
        make("Conv", ["b", "w2"], ["c"], "second", pads=[1] * 4),
        make("BatchNormalization", ["c", "g", "o", "m", "v"], ["d"], "norm"), make("Add", ["d", "b"], ["e"], "add"),
        make("Cast", ["e"], ["f"], "single", to=TensorProto.FLOAT), make("Cast", ["f"], ["h"], "back", to=kind),
        make("GlobalAveragePool", ["h"], ["p"], "pool"), make("Flatten", ["p"], ["q"], "flatten"),
        make("Gemm", ["q", "w3"], ["y"], "classes", transB=1)]
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    graph = helper.make_graph(nodes, "block", [helper.make_tensor_value_info("x", kind, [1, 3, 6, 6])],
                              [helper.make_tensor_value_info("y", kind, [1, 5])],
                              [numpy_helper.from_array(a.astype(dtype), n) for n, a in weights.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("name", TYPES)
def test_a_block_of_any_float_type_is_read_as_single_precision(tmp_path: Path, name: str) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(residual_block(TYPES[name]).SerializeToString())
    imported = read_onnx(path)
    assert [n.op.kind for n in imported.graph.nodes] == ["Conv", "Conv", "Add", "GlobalAvgPool", "Reshape", "Gemm"]
    assert {t.element for t in imported.graph.tensors.values()} == {"float32"}
    assert imported.notes == (f"9 inputs and constants of {name} are read as float32",)


def test_half_precision_means_what_it_did(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(residual_block(TensorProto.FLOAT16).SerializeToString())
    x = np.random.default_rng(1).random((1, 3, 6, 6)).astype(np.float16)
    expected = run_onnx(path.read_bytes(), {"x": x})["y"]
    assert expected.dtype == np.float16
    np.testing.assert_allclose(run_float(read_onnx(path).graph, {"x": x})["y"], expected.astype(np.float64), rtol=0.02)


@pytest.mark.verilator
def test_a_half_precision_model_becomes_a_build_that_is_exact(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(residual_block(TensorProto.FLOAT16).SerializeToString())
    build = compile_model(path, "tx2-c10gx", tmp_path / "build", verify=False)
    outcome = verify_build(build, frames=2)
    assert outcome.equal, str(outcome.first_mismatch)


def test_doubles_beyond_single_precision_are_refused_by_name(tmp_path: Path) -> None:
    model = residual_block(TensorProto.DOUBLE)
    weight = numpy_helper.to_array(model.graph.initializer[0]).copy()
    weight[0, 0, 0, 0] = 1e300
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(weight, "w1"))
    path = tmp_path / "m.onnx"
    path.write_bytes(model.SerializeToString())
    with pytest.raises(ModelError, match=r"weight first_weight\[0, 0, 0, 0\] is inf; all weights must be finite"):
        read_onnx(path)


def test_a_cast_to_integers_stays_foreign(tmp_path: Path) -> None:
    nodes = [make("Cast", ["x"], ["i"], "whole", to=TensorProto.INT32), make("Cast", ["i"], ["y"], "real", to=TensorProto.FLOAT)]
    graph = helper.make_graph(nodes, "casts", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4])])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = tmp_path / "m.onnx"
    path.write_bytes(model.SerializeToString())
    read = read_onnx(path).graph
    assert [type(n.op) for n in read.nodes] == [Opaque, Opaque]
    x = np.asarray([[1.7, -2.5, 0.0, 9.0]], dtype=np.float32)
    np.testing.assert_array_equal(run_float(read, {"x": x})["y"], [[1.0, -2.0, 0.0, 9.0]])
