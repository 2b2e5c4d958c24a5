"""State of one ONNX export: the nodes and initializers written so far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np
from onnx import helper, numpy_helper

from dovetail.ir import Array, Graph, Scheme
from dovetail.ir.onnx.file import OPSET


class Boundary(StrEnum):
    """What crosses the edge of an exported quantized model."""

    FLOAT = "float"
    """Float inputs and outputs, as users' programs expect."""
    INTEGER = "integer"
    """Stored integers, as between the parts of a plan."""


@dataclass(slots=True)
class Writer:
    """A model being written: what its nodes and constants are so far."""

    graph: Graph
    boundary: Boundary
    sep: str = "_"
    """Between a name of the network and what is derived from it; grows where the network uses such names itself."""
    nodes: list[Any] = field(default_factory=list)
    initializers: dict[str, Any] = field(default_factory=dict)
    domains: set[str] = field(default_factory=set)
    integers: dict[str, str] = field(default_factory=dict)
    """Of the node being written: inputs and parameters that are read as integers, and under what name."""

    def emit(self, op: str, inputs: list[str], output: str, name: str, **attributes: Any) -> str:
        self.nodes.append(helper.make_node(op, inputs, [output], name=name, **attributes))
        return output

    def constant(self, name: str, array: Array) -> str:
        self.initializers[name] = numpy_helper.from_array(np.asarray(array, order="C"), name)
        return name

    def scale(self, name: str, scheme: Scheme) -> list[str]:
        """Scale and zero-point initializers of a scheme, shared by its Quantize and Dequantize."""
        scales = np.asarray(scheme.scales, dtype=np.float32)
        zeros = np.full(len(scales), scheme.zero, dtype=scheme.dtype)
        if scheme.axis is None:
            scales, zeros = scales.reshape(()), zeros.reshape(())
        return [self.constant(f"{name}{self.sep}scale", scales), self.constant(f"{name}{self.sep}zero_point", zeros)]

    def dequantize(self, source: str, output: str, name: str, scheme: Scheme) -> str:
        axis = {} if scheme.axis is None else {"axis": scheme.axis}
        return self.emit("DequantizeLinear", [source, *self.scale(name, scheme)], output, f"{name}{self.sep}dequantize", **axis)

    def parameter(self, name: str) -> str:
        """A weight as ONNX value: float as it is, integers behind a DequantizeLinear."""
        if name in self.integers:
            return self.integers[name]
        constant = self.graph.constants[name]
        stored = self.constant(name, constant.array)
        return stored if constant.scheme is None else self.dequantize(stored, f"{name}{self.sep}dq", name, constant.scheme)


@dataclass(slots=True)
class FunctionBody:
    """The nodes of a function that a file defines itself, made one after the other."""

    opset: int = OPSET
    nodes: list[Any] = field(default_factory=list)

    def emit(self, op: str, *inputs: str, output: str = "", **attributes: Any) -> str:
        output = output or f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [output], **attributes))
        return output

    def constant(self, values: Array) -> str:
        return self.emit("Constant", value=numpy_helper.from_array(np.asarray(values, order="C")))

    def function(self, domain: str, name: str, inputs: Sequence[str], attributes: Sequence[str]) -> Any:
        """The function, whose result is what the node writes that has the output `y`."""
        return helper.make_function(domain, name, inputs, ["y"], self.nodes, [helper.make_opsetid("", self.opset)], attributes)
