"""Functions of one value at a time: formulas in a float graph, tables of integers in a quantized one.

HardSwish, SiLU, PReLU and their like come in as `Function`, whatever nodes an exporter made of them. Quantization turns each
into a `Lookup`, whose table is computed once and stored in the graph: every device looks up, so every device is exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from dovetail.errors import ModelError
from dovetail.ir.operators.base import Axis, Op
from dovetail.ir.tensor import Array, Real, Shape

TABLE_ENTRIES = 256
"""One per code of the byte an activation is stored in; narrower schemes repeat their ends."""


@dataclass(frozen=True, slots=True)
class Pointwise(Op):
    """One tensor in, one of its shape out, element by element; constants, where there are any, have a row per channel."""

    apart: ClassVar[tuple[Axis, ...]] = (Axis.GROUPS, Axis.ROWS)

    def infer(self, inputs: tuple[Shape, ...]) -> Shape:
        if len(inputs) != 1 or len(inputs[0]) < 2:
            raise ModelError(f"{self.kind}: inputs of shapes {[list(s) for s in inputs]}; one tensor with channels is needed")
        return inputs[0]

    @property
    def per_channel(self) -> bool:
        """Whether channels differ in their function."""
        return False


@dataclass(frozen=True, slots=True)
class Function(Pointwise):
    """A formula in floats.

    `content` is a serialized ONNX model without shapes: `x0` is the tensor, `p0`, `p1`, … are constants with one value per
    channel (owned by the node, shape (channels,)), `y0` is the result; numbers that all channels share are inside.
    """

    formula: ClassVar[bool] = True

    name: str
    content: bytes = field(repr=False)
    opset: int = field()
    constants: int = 0

    @property
    def kind(self) -> str:
        return self.name

    @property
    def per_channel(self) -> bool:
        return self.constants > 0

    def param_shapes(self, inputs: tuple[Shape, ...]) -> tuple[Shape, ...]:
        return ((inputs[0][1],),) * self.constants

    def attributes(self) -> str:
        return "per channel" if self.per_channel else ""


@dataclass(frozen=True, slots=True)
class Lookup(Pointwise):
    """A table from stored codes to stored codes. Constant: the table, (256) or (channels, 256), entry 0 for the least code."""

    table: ClassVar[bool] = True

    name: str
    signed: bool
    per_channel: bool = False

    @property
    def lo(self) -> int:
        """The least code the input's byte can hold."""
        return -(TABLE_ENTRIES // 2) if self.signed else 0

    def param_shapes(self, inputs: tuple[Shape, ...]) -> tuple[Shape, ...]:
        return ((inputs[0][1], TABLE_ENTRIES) if self.per_channel else (TABLE_ENTRIES,),)

    def look_up(self, codes: Array, table: Array) -> Array:
        """The entries of stored codes, in the table's own type."""
        index = codes.astype(np.int64) - self.lo
        if not self.per_channel:
            return table[index]
        channel = np.arange(len(table)).reshape((1, -1) + (1,) * (codes.ndim - 2))
        return table[channel, index]

    def accumulate(self, inputs: Sequence[Real], params: Sequence[Real]) -> Real:
        return self.look_up(inputs[0], params[0])

    def attributes(self) -> str:
        return f"of {self.name}" + (" per channel" if self.per_channel else "")
