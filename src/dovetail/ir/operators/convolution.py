"""Convolution: dense, grouped, depthwise and pointwise are one operator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from dovetail.errors import ModelError
from dovetail.ir.operators.base import Axis, Clamp, OperatorShare, Product
from dovetail.ir.operators.window import Window
from dovetail.ir.tensor import Real, Shape, whole
from dovetail.words import plural


@dataclass(frozen=True, slots=True)
class Conv(Product):
    """Two-dimensional convolution with bias and fused activation; padding is real zero.

    Constants: weight (filters, channels / groups, kernel height, kernel width), bias (filters).
    `partial` marks one share of an input-channel split: no bias, no activation, int32 sums out.
    """

    filters: int = field()
    window: Window = field()
    groups: int = 1
    clamp: Clamp | None = None
    partial: bool = False

    def clamped(self, clamp: Clamp) -> Conv:
        return replace(self, clamp=clamp.after(self.clamp))

    @property
    def pointwise(self) -> bool:
        return self.window.kernel == (1, 1) and self.groups == 1

    def depthwise(self, channels: int) -> bool:
        return self.groups == channels and self.groups > 1

    def infer(self, inputs: tuple[Shape, ...]) -> Shape:
        (shape,) = inputs
        if len(shape) != 4:
            raise ModelError(f"Conv: input of rank {len(shape)}; two-dimensional convolution needs N,C,H,W")
        batch, channels, height, width = shape
        if channels % self.groups or self.filters % self.groups:
            raise ModelError(f"Conv: {self.groups} groups divide neither {channels} channels nor {self.filters} filters evenly")
        return (batch, self.filters, *self.window.output_size(height, width))

    def param_shapes(self, inputs: tuple[Shape, ...]) -> tuple[Shape, ...]:
        weight = (self.filters, inputs[0][1] // self.groups, *self.window.kernel)
        return (weight,) if self.partial else (weight, (self.filters,))

    def macs(self, inputs: tuple[Shape, ...]) -> int:
        batch, _, rows, columns = self.infer(inputs)
        kernel = self.window.kernel[0] * self.window.kernel[1]
        return batch * rows * columns * self.filters * (inputs[0][1] // self.groups) * kernel

    def accumulate(self, inputs: Sequence[Real], params: Sequence[Real]) -> Real:
        x, weight = self.window.pad(inputs[0], 0.0), params[0]
        batch, channels = x.shape[:2]
        _, filters, rows, columns = self.infer((inputs[0].shape,))
        per_group = channels // self.groups
        grouped = weight.reshape(self.groups, filters // self.groups, per_group, *self.window.kernel)
        total = np.zeros((batch, self.groups, filters // self.groups, rows * columns))
        for i, j, tap in self.window.taps(x):
            seen = tap.reshape(batch, self.groups, per_group, rows * columns)
            taps = grouped[:, :, :, i, j]
            total += taps * seen if per_group == 1 else taps @ seen
        result = total.reshape(batch, filters, rows, columns)
        return result if self.partial else result + params[1].reshape(1, -1, 1, 1)

    def extent(self, axis: Axis, inputs: tuple[Shape, ...]) -> int:
        if self.partial:
            return 0
        match axis:
            case Axis.OUTPUT_CHANNELS:
                return self.filters if self.groups == 1 else 0
            case Axis.INPUT_CHANNELS:
                return inputs[0][1] if self.groups == 1 else 0
            case Axis.GROUPS:
                return self.groups
            case Axis.ROWS:
                return self.infer(inputs)[2] if self.window.divides_rows() else 0

    def share(self, axis: Axis, start: int, stop: int, inputs: tuple[Shape, ...]) -> OperatorShare:
        (shape,) = inputs
        _, channels, height, _ = shape
        out, weight = whole(self.infer(inputs)), whole(self.param_shapes(inputs)[0])
        x, count = whole(shape), stop - start
        match axis:
            case Axis.OUTPUT_CHANNELS:
                cut = (start, stop)
                return OperatorShare(replace(self, filters=count), (x,), ((cut, *weight[1:]), (cut,)), (out[0], cut, *out[2:]))
            case Axis.INPUT_CHANNELS:
                cut = (start, stop)
                return OperatorShare(replace(self, clamp=None, partial=True), ((x[0], cut, *x[2:]),),
                                     ((weight[0], cut, *weight[2:]),), out)
            case Axis.GROUPS:
                filters, reads = self.filters // self.groups, channels // self.groups
                cut = (start * filters, stop * filters)
                return OperatorShare(replace(self, filters=count * filters, groups=count),
                                     ((x[0], (start * reads, stop * reads), *x[2:]),), ((cut, *weight[1:]), (cut,)),
                                     (out[0], cut, *out[2:]))
            case Axis.ROWS:
                window, rows = self.window.rows(start, stop, height)
                return OperatorShare(replace(self, window=window), ((x[0], x[1], rows, x[3]),),
                                     (weight, (weight[0],)), (out[0], out[1], (start, stop), out[3]))

    def attributes(self) -> str:
        text = f"{self.filters} {plural(self.filters, 'filter')} {self.window}"
        if self.groups > 1:
            text += f" groups {self.groups}"
        if self.partial:
            text += " partial"
        return text + (f" clamp {self.clamp}" if self.clamp else "")
