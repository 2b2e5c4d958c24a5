"""Area model against synthesis on 16 named layers, the ones the campaign lacks among them: tables, products, a flattened map.

`python bench/dhm.py --part layers --json FILE` prints what Yosys counted, what `dovetail.cost` predicts and the shipped model's
error. Coefficients are fitted, and judged on layers left out, by `dovetail campaign area`.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from onnx import TensorProto, helper

from dovetail.cost.dhm import resources_of
from dovetail.fpga.assemble import build_design
from dovetail.fpga.toolchain.synthesize import synthesize
from dovetail.hardware.engines import engine_of
from dovetail.ir import (
    RELU,
    Add,
    AvgPool,
    Broadcast,
    Clip,
    Constant,
    Conv,
    Function,
    Gemm,
    GlobalAvgPool,
    Graph,
    MaxPool,
    Mul,
    Node,
    Op,
    Reshape,
    Tensor,
    Window,
)
from dovetail.ir.onnx.read import read_onnx
from dovetail.numerics.calibration import synthetic
from dovetail.numerics.quantize import quantize_graph
from dovetail.platform.fitted import dhm_model


def silu() -> Op:
    """x times its sigmoid, as it is imported."""
    nodes = [helper.make_node("Sigmoid", ["x"], ["s"]), helper.make_node("Mul", ["x", "s"], ["y"])]
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 1, 1, 1]) for n in "xy")
    opset = helper.make_opsetid("", 17)
    model = helper.make_model(helper.make_graph(nodes, "silu", [x], [y]), opset_imports=[opset], ir_version=8)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "silu.onnx"
        path.write_bytes(model.SerializeToString())
        return read_onnx(path).graph.nodes[0].op


FAMILIES = ("ecp5", "cyclone10gx", "xcu", "xcup")
SAME = (1, 1, 1, 1)
LAYERS: dict[str, tuple[tuple[Op, ...], tuple[int, int, int]]] = {
    "3 to 4, 3x3": ((Conv(4, Window((3, 3)), 1, RELU),), (3, 24, 24)),
    "3 to 8, 3x3 same": ((Conv(8, Window((3, 3), pads=SAME), 1, RELU),), (3, 28, 28)),
    "1 to 8, 3x3 same": ((Conv(8, Window((3, 3), pads=SAME), 1, RELU),), (1, 28, 28)),
    "4 to 4, 3x3 same": ((Conv(4, Window((3, 3), pads=SAME), 1),), (4, 14, 14)),
    "8 to 8, 1x1": ((Conv(8, Window((1, 1)), 1, RELU),), (8, 14, 14)),
    "8 to 16, 1x1": ((Conv(16, Window((1, 1)), 1),), (8, 14, 14)),
    "depthwise 16, 3x3 same": ((Conv(16, Window((3, 3), pads=SAME), 16, RELU),), (16, 14, 14)),
    "depthwise 8, 3x3 stride 2": ((Conv(8, Window((3, 3), (2, 2), SAME), 8, RELU),), (8, 28, 28)),
    "2 to 4, 5x5": ((Conv(4, Window((5, 5)), 1, RELU),), (2, 20, 20)),
    "max pool 16, 2x2": ((MaxPool(Window((2, 2), (2, 2))),), (16, 28, 28)),
    "average pool 16, 2x2": ((AvgPool(Window((2, 2), (2, 2))),), (16, 28, 28)),
    "global average 16, 7x7": ((GlobalAvgPool(),), (16, 7, 7)),
    "fully connected 32 to 10": ((Reshape((1, 32)), Gemm(10)), (32, 1, 1)),
    "add 16": ((Add(RELU),), (16, 14, 14)),
    "SiLU 16": ((Clip(), silu()), (16, 14, 14)),
    "multiply 16": ((Mul(),), (16, 14, 14)),
}


def network(ops: tuple[Op, ...], shape: tuple[int, int, int], seed: int) -> Graph:
    """A chain of operators with Gaussian weights, quantized on synthetic inputs; an Add or Mul gets two inputs."""
    rng = np.random.default_rng(seed)
    inputs = ("x", "x2") if isinstance(ops[0], Broadcast) else ("x",)
    tensors = {name: Tensor(name, (1, *shape)) for name in inputs}
    constants: dict[str, Constant] = {}
    nodes: list[Node] = []
    at = inputs
    for index, op in enumerate(ops):
        shapes = tuple(tensors[t].shape for t in at)
        params = []
        for role, size in zip(("weight", "bias"), op.param_shapes(shapes), strict=False):
            name = f"n{index}_{role}"
            constants[name] = Constant(name, rng.normal(size=size).astype(np.float32))
            params.append(name)
        tensors[f"t{index}"] = Tensor(f"t{index}", op.infer(shapes))
        nodes.append(Node(f"n{index}", op, at, tuple(params), f"t{index}"))
        at = (f"t{index}",)
    graph = Graph("layer", inputs, at, tuple(nodes), tensors, constants)
    integers = quantize_graph(graph, synthetic(graph, 4, seed))
    return alone(integers, integers.nodes[-1]) if isinstance(ops[-1], Function) else integers


def alone(graph: Graph, node: Node) -> Graph:
    """One node as a network of its own: a formula becomes a table only beside operators that compute integers."""
    tensors = {t: graph.tensors[t] for t in (*node.inputs, node.output)}
    return Graph(graph.name, node.inputs, (node.output,), (node,), tensors, {c.name: c for c in graph.params(node)})


def measure(family: str) -> dict[str, object]:
    """Counted and predicted resources of every layer, and the shipped model's error."""
    model = dhm_model(f"dhm-{family}")
    layers: dict[str, dict[str, dict[str, float]]] = {}
    for index, (name, (ops, shape)) in enumerate(LAYERS.items()):
        graph = network(ops, shape, index)
        counted = synthesize(build_design(graph, "layer"), family).resources
        found = engine_of(graph, graph.nodes[-1], None, np.array([0]), np.array([1]))
        expected = {k: float(v[0]) for k, v in resources_of(found, model).items()}
        layers[name] = {"counted": {k: float(counted[k]) for k in expected}, "predicted": expected}
        both = (f"{k} {layers[name]['counted'][k]:8.0f} / {v:8.0f}" for k, v in expected.items() if k != "dsp")
        print(f"{family:12s} {name:28s}", *both, flush=True)
    result: dict[str, object] = {"layers": layers}
    for key in (model.logic, "register", model.block):
        errors = [abs(x["predicted"][key] - x["counted"][key]) / max(1.0, x["counted"][key]) for x in layers.values()]
        result |= {f"{key}_mean_error": float(np.mean(errors)), f"{key}_largest_error": float(np.max(errors))}
        print(f"{family}: {key} of the shipped model errs by {np.mean(errors):.1%}, {np.max(errors):.1%} at worst")
    return result


def layer_areas() -> dict[str, dict[str, object]]:
    """Every layer in every family."""
    return {"layer_areas": {family: measure(family) for family in FAMILIES}}
