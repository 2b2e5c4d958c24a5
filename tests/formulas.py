"""Activations the way exporters spell them out, as ONNX nodes from `x` to `y`."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from dovetail.ir import Function
from dovetail.ir.onnx.read import read_onnx

CHANNELS = 3


@dataclass
class Formula:
    """Nodes from `x` to `y` with their constants."""

    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: dict[str, np.ndarray] = field(default_factory=dict)

    def number(self, value: float | np.ndarray) -> str:
        name = f"k{len(self.constants)}"
        self.constants[name] = np.asarray(value, dtype=np.float32)
        return name

    def apply(self, op: str, *inputs: str | float | np.ndarray, output: str | None = None, **attributes: object) -> str:
        name = output or f"v{len(self.nodes)}"
        names = [i if isinstance(i, str) else self.number(i) for i in inputs]
        self.nodes.append(helper.make_node(op, names, [name], f"{op.lower()}_{len(self.nodes)}", **attributes))
        return name


def hard_swish(f: Formula, order: int) -> None:
    gate = f.apply("Clip", f.apply("Add", "x", 3.0), 0.0, 6.0)
    if order == 0:
        f.apply("Div", f.apply("Mul", "x", gate), 6.0, output="y")
    elif order == 1:
        f.apply("Mul", f.apply("Div", gate, 6.0), "x", output="y")
    else:
        f.apply("Mul", f.apply("Mul", "x", gate), 1 / 6, output="y")


def gelu(f: Formula) -> None:
    inner = f.apply("Add", f.apply("Erf", f.apply("Div", "x", np.sqrt(2.0))), 1.0)
    f.apply("Mul", f.apply("Mul", "x", inner), 0.5, output="y")


def gelu_tanh(f: Formula) -> None:
    cubic = f.apply("Mul", f.apply("Pow", "x", 3.0), 0.044715)
    inner = f.apply("Tanh", f.apply("Mul", f.apply("Add", "x", cubic), np.sqrt(2 / np.pi)))
    f.apply("Mul", f.apply("Mul", "x", 0.5), f.apply("Add", inner, 1.0), output="y")


SLOPES = np.array([0.1, -0.3, 0.7], dtype=np.float32)
ALONE = {"Sigmoid": {}, "Tanh": {}, "HardSwish": {}, "HardSigmoid": {"alpha": 0.2}, "LeakyRelu": {"alpha": 0.1}, "Elu": {},
         "Selu": {}, "Softplus": {}, "Softsign": {}, "Exp": {}, "Abs": {}, "Sin": {}, "Erf": {}, "ThresholdedRelu": {},
         "Celu": {}}

PATTERNS = {
    "SiLU": lambda f: f.apply("Mul", "x", f.apply("Sigmoid", "x"), output="y"),
    "SiLU reversed": lambda f: f.apply("Mul", f.apply("Sigmoid", "x"), "x", output="y"),
    "HardSwish, divided last": lambda f: hard_swish(f, 0),
    "HardSwish, divided first": lambda f: hard_swish(f, 1),
    "HardSwish, multiplied": lambda f: hard_swish(f, 2),
    "HardSwish by HardSigmoid": lambda f: f.apply("Mul", "x", f.apply("HardSigmoid", "x", alpha=1 / 6, beta=0.5), output="y"),
    "Mish": lambda f: f.apply("Mul", "x", f.apply("Tanh", f.apply("Softplus", "x")), output="y"),
    "GELU": gelu,
    "GELU (tanh)": gelu_tanh,
    "pointwise swish with beta": lambda f: f.apply("Mul", "x", f.apply("Sigmoid", f.apply("Mul", "x", 1.702)), output="y"),
    "pointwise leaky by Max": lambda f: f.apply("Max", "x", f.apply("Mul", "x", 0.125), output="y"),
    "pointwise square root": lambda f: f.apply("Sqrt", f.apply("Abs", "x"), output="y"),
    "PReLU": lambda f: f.apply("PRelu", "x", SLOPES.reshape(3, 1, 1), output="y"),
    "PRelu with one slope": lambda f: f.apply("PRelu", "x", np.array([0.25]), output="y"),
    "Pow": lambda f: f.apply("Pow", "x", 2.0, output="y"),
    "pointwise per channel": lambda f: f.apply(
        "Mul", "x", f.apply("Sigmoid", f.apply("Mul", "x", 1 + SLOPES.reshape(1, 3, 1, 1))), output="y"),
    **{name: (lambda f, name=name, attributes=attributes: f.apply(name, "x", output="y", **attributes))
       for name, attributes in ALONE.items()},
}
"""By what the import should call them (the first word or two)."""


def model(name: str, shape: tuple[int, ...] = (1, CHANNELS, 4, 5)) -> bytes:
    """A network that is one formula."""
    formula = Formula()
    PATTERNS[name](formula)
    return build(formula.nodes, formula.constants, {"x": shape}, {"y": shape})


def build(nodes: list[onnx.NodeProto], constants: dict[str, np.ndarray], inputs: dict[str, tuple[int, ...]],
          outputs: dict[str, tuple[int, ...]], opset: int = 17) -> bytes:
    def values(shapes: dict[str, tuple[int, ...]]) -> list[onnx.ValueInfoProto]:
        return [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in shapes.items()]
    graph = helper.make_graph(nodes, "formula", values(inputs), values(outputs),
                              [numpy_helper.from_array(a, n) for n, a in constants.items()])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    return bytes(made.SerializeToString())


@cache
def function(name: str) -> Function:
    """A formula as the operator it is imported as."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "formula.onnx"
        path.write_bytes(model(name))
        (node,) = read_onnx(path).graph.nodes
    assert isinstance(node.op, Function)
    return node.op
