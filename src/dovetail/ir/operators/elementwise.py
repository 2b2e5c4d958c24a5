"""Operators that combine or pass on values without a window."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import ClassVar

import numpy as np

from dovetail.errors import ModelError
from dovetail.ir.operators.base import Axis, Clamp, Movement, Op
from dovetail.ir.tensor import Real, Shape
from dovetail.words import counted


@dataclass(frozen=True, slots=True)
class Elementwise(Op):
    """Same shape in and out; divisible along channels and rows."""

    uniform: ClassVar[bool] = True
    apart: ClassVar[tuple[Axis, ...]] = (Axis.GROUPS, Axis.ROWS)
    clamp: Clamp | None = None

    def clamped(self, clamp: Clamp) -> Op:
        return replace(self, clamp=clamp.after(self.clamp))

    def infer(self, inputs: tuple[Shape, ...]) -> Shape:
        if len(set(inputs)) != 1:
            raise ModelError(f"{self.kind}: inputs of different shapes {[list(s) for s in inputs]}; they must be equal")
        return inputs[0]


@dataclass(frozen=True, slots=True)
class Broadcast(Elementwise):
    """Tensors of one shape, some of them perhaps with one value per channel (N,C,1,1) or one map for all (N,1,H,W)."""

    broadcasts: ClassVar[bool] = True

    def infer(self, inputs: tuple[Shape, ...]) -> Shape:
        if inputs.count(inputs[0]) == len(inputs):
            return inputs[0]
        if len({len(s) for s in inputs}) == 1:
            shape = tuple(max(sizes) for sizes in zip(*inputs, strict=True))
            if all(s in _spread_shapes(shape) for s in inputs):
                return shape
        raise ModelError(f"{self.kind}: inputs of different shapes {[list(s) for s in inputs]}; they must be equal, or one value "
                         "per channel, or one map for all channels")


def _spread_shapes(shape: Shape) -> tuple[Shape, ...]:
    """Shapes that are stretched to `shape` along whole rows and columns, or along channels."""
    if len(shape) != 4:
        return (shape,)
    batch, channels, height, width = shape
    return (shape, (batch, channels, 1, 1), (batch, 1, height, width))


@dataclass(frozen=True, slots=True)
class Add(Broadcast):
    """Sum of tensors (the residual connection)."""

    def accumulate(self, inputs: Sequence[Real], params: Sequence[Real]) -> Real:
        return sum(inputs[1:], inputs[0])


@dataclass(frozen=True, slots=True)
class Mul(Broadcast):
    """Product of two tensors (a gate: squeeze-excite, SiLU in two steps)."""

    multiplies: ClassVar[bool] = True

    def infer(self, inputs: tuple[Shape, ...]) -> Shape:
        if len(inputs) != 2:
            raise ModelError(f"Mul: {len(inputs)} inputs; two are multiplied")
        return Broadcast.infer(self, inputs)

    def accumulate(self, inputs: Sequence[Real], params: Sequence[Real]) -> Real:
        return inputs[0] * inputs[1]


@dataclass(frozen=True, slots=True)
class Clip(Elementwise):
    """An activation that stands alone: ReLU, ReLU6, Clip, or a plain change of scale."""

    picks: ClassVar[bool] = True

    def accumulate(self, inputs: Sequence[Real], params: Sequence[Real]) -> Real:
        return inputs[0]


@dataclass(frozen=True, slots=True)
class Concat(Op):
    """Tensors side by side along `axis` (1 is channels)."""

    joins: ClassVar[bool] = True
    picks: ClassVar[bool] = True
    axis: int = 1

    def infer(self, inputs: tuple[Shape, ...]) -> Shape:
        first = inputs[0]
        for shape in inputs[1:]:
            same_rank = len(shape) == len(first)
            if not same_rank or any(a != b for d, (a, b) in enumerate(zip(first, shape, strict=True)) if d != self.axis):
                raise ModelError(f"Concat: shapes {[list(s) for s in inputs]} differ outside axis {self.axis}")
        return (*first[:self.axis], sum(s[self.axis] for s in inputs), *first[self.axis + 1:])

    def accumulate(self, inputs: Sequence[Real], params: Sequence[Real]) -> Real:
        return np.concatenate(list(inputs), axis=self.axis)

    def extent(self, axis: Axis, inputs: tuple[Shape, ...]) -> int:
        return inputs[0][2] if axis is Axis.ROWS and len(inputs[0]) == 4 and self.axis != 2 else 0

    def attributes(self) -> str:
        return f"axis {self.axis}"


@dataclass(frozen=True, slots=True)
class Reshape(Movement):
    """The same values in another shape, in C order; Flatten is one of these."""

    still: ClassVar[bool] = True
    shape: Shape

    def infer(self, inputs: tuple[Shape, ...]) -> Shape:
        if prod(inputs[0]) != prod(self.shape):
            raise ModelError(f"Reshape: {list(inputs[0])} has {counted(prod(inputs[0]), 'element')}, "
                             f"{list(self.shape)} has {prod(self.shape)}")
        return self.shape

    def accumulate(self, inputs: Sequence[Real], params: Sequence[Real]) -> Real:
        lead = self.shape[0] * inputs[0].size // prod(self.shape)  # any number of frames, also where rows join the leading one
        return inputs[0].reshape(lead, *self.shape[1:])

    def attributes(self) -> str:
        return f"to {'x'.join(map(str, self.shape))}"
