"""Matrix multiplication by constant weights, and the sum that ends an input-channel split."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dovetail.errors import ModelError
from dovetail.ir.operators.base import Axis, Clamp, Op, OperatorShare, Product
from dovetail.ir.tensor import Real, Shape, whole
from dovetail.words import plural


@dataclass(frozen=True, slots=True)
class Gemm(Product):
    """Fully connected layer. Constants: weight (units, features), bias (units)."""

    units: int
    clamp: Clamp | None = None
    partial: bool = False

    @property
    def filters(self) -> int:
        return self.units

    def clamped(self, clamp: Clamp) -> Gemm:
        return replace(self, clamp=clamp.after(self.clamp))

    def infer(self, inputs: tuple[Shape, ...]) -> Shape:
        (shape,) = inputs
        if len(shape) != 2:
            raise ModelError(f"Gemm: input of rank {len(shape)}; a matrix (batch, features) is needed, flatten first")
        return (shape[0], self.units)

    def param_shapes(self, inputs: tuple[Shape, ...]) -> tuple[Shape, ...]:
        weight = (self.units, inputs[0][1])
        return (weight,) if self.partial else (weight, (self.units,))

    def macs(self, inputs: tuple[Shape, ...]) -> int:
        return inputs[0][0] * inputs[0][1] * self.units

    def accumulate(self, inputs: Sequence[Real], params: Sequence[Real]) -> Real:
        result: Real = inputs[0] @ params[0].T
        return result if self.partial else result + params[1]

    def extent(self, axis: Axis, inputs: tuple[Shape, ...]) -> int:
        if self.partial:
            return 0
        return {Axis.OUTPUT_CHANNELS: self.units, Axis.INPUT_CHANNELS: inputs[0][1]}.get(axis, 0)

    def share(self, axis: Axis, start: int, stop: int, inputs: tuple[Shape, ...]) -> OperatorShare:
        x, out, cut = whole(inputs[0]), whole(self.infer(inputs)), (start, stop)
        weight = whole(self.param_shapes(inputs)[0])
        if axis is Axis.OUTPUT_CHANNELS:
            return OperatorShare(replace(self, units=stop - start), (x,), ((cut, weight[1]), (cut,)), (out[0], cut))
        if axis is Axis.INPUT_CHANNELS:
            return OperatorShare(replace(self, clamp=None, partial=True), ((x[0], cut),), ((weight[0], cut),), out)
        return Op.share(self, axis, start, stop, inputs)

    def attributes(self) -> str:
        partial, clamp = " partial" if self.partial else "", f" clamp {self.clamp}" if self.clamp else ""
        return f"{self.units} {plural(self.units, 'unit')}{partial}{clamp}"


@dataclass(frozen=True, slots=True)
class Reduce(Op):
    """Adds the partial sums of an input-channel split, then bias, activation and one rounding.

    Never in an imported model: a plan introduces it. Constant: bias (channels).
    """

    clamp: Clamp | None = None

    def infer(self, inputs: tuple[Shape, ...]) -> Shape:
        if len(set(inputs)) != 1:
            raise ModelError(f"Reduce: partial sums of different shapes {[list(s) for s in inputs]}; they must be equal")
        return inputs[0]

    def param_shapes(self, inputs: tuple[Shape, ...]) -> tuple[Shape, ...]:
        return ((inputs[0][1],),)

    def accumulate(self, inputs: Sequence[Real], params: Sequence[Real]) -> Real:
        bias = params[0].reshape((1, -1) + (1,) * (inputs[0].ndim - 2))
        return sum(inputs[1:], inputs[0]) + bias
