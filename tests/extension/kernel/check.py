"""The new kernel is estimated, chosen, and computes what the reference does, in Triton's interpreter."""

import numpy as np
import onnx
from onnx import helper, numpy_helper

from dovetail.gpu.executor import compile_graph
from dovetail.ir.onnx.read import read_onnx
from dovetail.numerics.reference import run_float

rng = np.random.default_rng(0)
weights = [numpy_helper.from_array(rng.normal(size=shape).astype(np.float32), name) for name, shape in (
    ("w1", (12, 7)), ("w2", (5, 12)))]
x, y = (helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, (1, size)) for name, size in (("x", 7), ("y", 5)))
nodes = [helper.make_node("Gemm", [source, weight], [target], name, transB=1) for source, weight, target, name in (
    ("x", "w1", "h", "fc1"), ("h", "w2", "y", "fc2"))]
graph = helper.make_graph(nodes, "two", [x], [y], weights)
onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), "two.onnx")

imported = read_onnx("two.onnx").graph
made = compile_graph(imported, "float32")
assert [call.kernel for call, _ in made.calls] == ["conv", "single"], "the first layer reads planes"
frames = {"x": rng.normal(size=(3, 7)).astype(np.float32)}
np.testing.assert_allclose(made.run(frames)["y"], run_float(imported, frames)["y"], rtol=1e-5, atol=1e-6)
