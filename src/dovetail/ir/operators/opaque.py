"""Operators Dovetail does not model: kept as the ONNX node they came as, run on the CPU by ONNX Runtime.

They compute in floats. Where a neighbour is quantized, values are dequantized before and quantized after them, so a
network with operators nobody has heard of still gets a plan, and everything around them still gets hardware.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import ClassVar

import onnx

from dovetail.ir.operators.base import Op
from dovetail.ir.tensor import Shape


@dataclass(frozen=True, slots=True)
class Opaque(Op):
    """One output of one foreign node.

    `content` is a serialized ONNX model of that node (or of the few it stands for): inputs `x0`, `x1`, … are the tensors it
    reads, its constants are initializers, its outputs are `y0`, `y1`, …; `index` says which of them this is.
    """

    foreign: ClassVar[bool] = True

    operator: str
    content: bytes = field(repr=False)
    index: int
    result: Shape
    element: str
    opset: int = field()
    products: int = 0
    """Multiply-accumulates of one evaluation, where the node is a matrix product or a convolution."""

    @property
    def kind(self) -> str:
        return self.operator

    def infer(self, inputs: tuple[Shape, ...]) -> Shape:
        return self.result

    def macs(self, inputs: tuple[Shape, ...]) -> int:
        return self.products

    def parameters(self) -> int:
        """Weights among the node's constants: those of at least one dimension that are neither integers of 64 bits nor flags,
        which are shapes, axes and indices."""
        found = onnx.load_model_from_string(self.content).graph.initializer
        return sum(prod(c.dims) for c in found if c.dims and c.data_type not in (onnx.TensorProto.INT64, onnx.TensorProto.BOOL))

    def attributes(self) -> str:
        return "as is, in ONNX Runtime" + (f", output {self.index}" if self.index else "")
