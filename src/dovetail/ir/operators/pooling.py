"""Pooling operators; averages are kept as a sum and a count so that integers round once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import ClassVar

import numpy as np

from dovetail.errors import ModelError
from dovetail.ir.operators.base import Axis, Op, OperatorShare
from dovetail.ir.operators.window import Window
from dovetail.ir.tensor import Real, Shape, cut, whole


@dataclass(frozen=True, slots=True)
class WindowPool(Op):
    """A channel-wise sliding window."""

    uniform: ClassVar[bool] = True

    window: Window = field()

    def infer(self, inputs: tuple[Shape, ...]) -> Shape:
        (shape,) = inputs
        if len(shape) != 4:
            raise ModelError(f"{self.kind}: input of rank {len(shape)}; pooling needs N,C,H,W")
        return (*shape[:2], *self.window.output_size(*shape[2:]))

    def extent(self, axis: Axis, inputs: tuple[Shape, ...]) -> int:
        if axis is Axis.GROUPS:
            return inputs[0][1]
        if axis is Axis.ROWS and self.window.divides_rows():
            return self.infer(inputs)[2]
        return 0

    def share(self, axis: Axis, start: int, stop: int, inputs: tuple[Shape, ...]) -> OperatorShare:
        if axis is not Axis.ROWS:
            return Op.share(self, axis, start, stop, inputs)
        window, rows = self.window.rows(start, stop, inputs[0][2])
        return OperatorShare(replace(self, window=window), (cut(whole(inputs[0]), 2, *rows),), (),
                             cut(whole(self.infer(inputs)), 2, start, stop))

    def attributes(self) -> str:
        return str(self.window)


@dataclass(frozen=True, slots=True)
class MaxPool(WindowPool):
    """Largest value in the window; padding never wins."""

    commutes: ClassVar[bool] = True
    picks: ClassVar[bool] = True
    largest: ClassVar[bool] = True

    def accumulate(self, inputs: Sequence[Real], params: Sequence[Real]) -> Real:
        return reduce(np.maximum, (tap for _, _, tap in self.window.taps(self.window.pad(inputs[0], -np.inf))))


@dataclass(frozen=True, slots=True)
class AvgPool(WindowPool):
    """Mean over the window; `count_pads` counts padding as zeros, as some exporters ask for."""

    averages: ClassVar[bool] = True
    count_pads: bool = False

    def accumulate(self, inputs: Sequence[Real], params: Sequence[Real]) -> Real:
        padded = self.window.pad(inputs[0], 0.0)
        total: Real = np.sum(np.stack([tap for _, _, tap in self.window.taps(padded)]), axis=0)
        return total

    def divisor(self, inputs: tuple[Shape, ...]) -> Real | int:
        if self.count_pads or not any(self.window.pads):
            return self.window.kernel[0] * self.window.kernel[1]
        ones = self.window.pad(np.ones((1, 1, *inputs[0][2:])), 0.0)
        count: Real = np.sum(np.stack([tap for _, _, tap in self.window.taps(ones)]), axis=0)
        return count

    def attributes(self) -> str:
        return f"{self.window}" + (" count pads" if self.count_pads else "")


@dataclass(frozen=True, slots=True)
class GlobalAvgPool(Op):
    """Mean of each channel over the whole map."""

    uniform: ClassVar[bool] = True
    averages: ClassVar[bool] = True
    apart: ClassVar[tuple[Axis, ...]] = (Axis.GROUPS,)

    def infer(self, inputs: tuple[Shape, ...]) -> Shape:
        (shape,) = inputs
        if len(shape) != 4:
            raise ModelError(f"GlobalAvgPool: input of rank {len(shape)}; pooling needs N,C,H,W")
        return (*shape[:2], 1, 1)

    def accumulate(self, inputs: Sequence[Real], params: Sequence[Real]) -> Real:
        total: Real = inputs[0].sum(axis=(2, 3), keepdims=True)
        return total

    def divisor(self, inputs: tuple[Shape, ...]) -> Real | int:
        return inputs[0][2] * inputs[0][3]
