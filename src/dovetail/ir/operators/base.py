"""What every operator promises: shapes, work, exact arithmetic, and how it can be cut into shares.

An operator is a frozen value. Its arithmetic is stated once, in `accumulate` and `divisor`, and is exact
on integer-valued float64 arrays; the float and the integer reference both derive from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import inf
from typing import ClassVar

from dovetail.errors import UnsupportedError
from dovetail.ir.operators.window import Window
from dovetail.ir.tensor import Real, Region, Shape, cut, whole


class Axis(StrEnum):
    """The ways to divide one operator among devices; see docs/method/numerics.md for why each is exact."""

    OUTPUT_CHANNELS = "output_channels"
    """Filters are divided; every share reads the whole input; outputs are concatenated."""
    INPUT_CHANNELS = "input_channels"
    """Input channels are divided; every share yields int32 partial sums of all outputs, which are added."""
    GROUPS = "groups"
    """Groups, or channels of a channel-wise operator; shares read and write only their own channels."""
    ROWS = "rows"
    """Output rows; neighbouring shares read overlapping (halo) input rows."""


@dataclass(frozen=True, slots=True)
class Clamp:
    """Real bounds applied to an operator's result: ReLU is [0, inf), ReLU6 is [0, 6]."""

    lo: float = -inf
    hi: float = inf

    def __str__(self) -> str:
        return f"[{self.lo:g},{self.hi:g}]"

    def after(self, first: Clamp | None) -> Clamp:
        """What this clamp and one before it are together."""
        if first is None:
            return self
        return Clamp(min(max(first.lo, self.lo), self.hi), max(min(first.hi, self.hi), self.lo))


RELU = Clamp(0.0, inf)


@dataclass(frozen=True, slots=True)
class OperatorShare:
    """One slice of an operator: what it runs, what it reads, which part of the output it fills.

    For `Axis.INPUT_CHANNELS` every share fills the whole output with partial sums instead.
    """

    op: Op
    inputs: tuple[Region, ...]
    params: tuple[Region, ...]
    output: Region


@dataclass(frozen=True, slots=True)
class Op:
    """Base of all operators. What follows here holds for most of them; a class states where it differs."""

    moves: ClassVar[bool] = False
    """Whether it only moves values, of whatever type; see `Movement`."""
    still: ClassVar[bool] = False
    """Whether values even stay in their order, so that hardware has nothing to do."""
    commutes: ClassVar[bool] = False
    """Whether every output is one value of its one input: rounding may come before or after, so both may share a scheme."""
    joins: ClassVar[bool] = False
    """Whether every output is one value of one of its inputs, several of which stand side by side."""
    picks: ClassVar[bool] = False
    """Whether every output is a value of some input, clamped at most."""
    largest: ClassVar[bool] = False
    """Whether it takes the largest value of its window, in which padding never wins."""
    broadcasts: ClassVar[bool] = False
    """Whether inputs may have one value per channel, or one map for all channels."""
    uniform: ClassVar[bool] = False
    """Whether it does the same to every channel by itself."""
    averages: ClassVar[bool] = False
    """Whether sums are divided by a count (`divisor`)."""
    multiplies: ClassVar[bool] = False
    """Whether its inputs are multiplied with each other, and so are their scales."""
    table: ClassVar[bool] = False
    """Whether it looks stored integers up in a table of stored integers."""
    foreign: ClassVar[bool] = False
    """Whether it is kept as the ONNX node it came as; see `Opaque`."""
    formula: ClassVar[bool] = False
    """Whether it is a formula in floats, of which quantization makes a table."""
    coded: ClassVar[bool] = False
    """Whether it is a product over learned codes; its arithmetic is that of `body`."""
    apart: ClassVar[tuple[Axis, ...]] = ()
    """Axes along which every output is made of what lies at the same place of the inputs."""
    learned: ClassVar[bool] = False
    """Whether learned codes are what it reads or writes."""

    @property
    def product(self) -> Product | None:
        """The operator itself, where it is a sum of products with constant weights."""
        return None

    @property
    def body(self) -> Op:
        """The operator whose shape and window it has: for a layer of codes that of the plain layer."""
        return self

    @property
    def layer(self) -> Product | None:
        """The sum of products it is, over integers or over codes."""
        return self.body.product

    @property
    def window(self) -> Window | None:
        """The window it slides over maps, if it does."""
        return None

    @property
    def repeats(self) -> tuple[int, int]:
        """How often every pixel comes, downwards and to the right."""
        return (1, 1)

    @property
    def opset(self) -> int:
        """The opset its own ONNX nodes need; 0 for an operator without such."""
        return 0

    @property
    def weight_bits(self) -> int:
        """Bits of the codes its weights are; 0 for plain integers."""
        return 0

    @property
    def input_bits(self) -> int:
        """Bits of the codes it reads; 0 for plain integers."""
        return 0

    @property
    def code_bits(self) -> int:
        """Bits of the codes it writes; 0 where it writes no codes."""
        return 0

    @property
    def stores(self) -> bool:
        """Whether what it computes are stored integers already: entries of a table, or codes."""
        return self.table or self.code_bits > 0

    @property
    def in_floats(self) -> bool:
        """Whether it computes floats, by ONNX nodes of its own."""
        return self.foreign or self.formula

    @property
    def per_channel(self) -> bool:
        """Whether its constants have a row per channel."""
        return True

    @property
    def kind(self) -> str:
        """The name people read."""
        return type(self).__name__

    @property
    def clamp(self) -> Clamp | None:
        """The fused activation, if the operator has one."""
        return None

    @property
    def bounds(self) -> Clamp | None:
        return self.clamp

    def clamped(self, clamp: Clamp) -> Op | None:
        """The operator with a further activation; None where it takes none."""
        return None

    def infer(self, inputs: tuple[Shape, ...]) -> Shape:
        """Output shape from input shapes; raises ModelError on shapes that cannot be."""
        raise UnsupportedError(f"{self.kind}: the operator states no shape rule; add one to its class")

    def param_shapes(self, inputs: tuple[Shape, ...]) -> tuple[Shape, ...]:
        """Shapes of the constants it owns (weight, bias)."""
        return ()

    def macs(self, inputs: tuple[Shape, ...]) -> int:
        """Multiply-accumulates for one evaluation (0 for operators without multiplications)."""
        return 0

    def accumulate(self, inputs: Sequence[Real], params: Sequence[Real]) -> Real:
        """The operator before division, activation and rounding; exact on integer-valued arrays."""
        raise UnsupportedError(f"{self.kind}: the operator states no arithmetic; add `accumulate` to its class")

    def divisor(self, inputs: tuple[Shape, ...]) -> Real | int:
        """What `accumulate` is divided by (the window count of an average); broadcastable."""
        return 1

    def axes(self, inputs: tuple[Shape, ...]) -> tuple[Axis, ...]:
        """Axes along which the operator can be divided."""
        return tuple(a for a in Axis if self.extent(a, inputs) > 1)

    def extent(self, axis: Axis, inputs: tuple[Shape, ...]) -> int:
        """How many units the axis has; 1 or less means it cannot be divided. Here: channels and rows that stay `apart`."""
        shape = self.infer(inputs) if axis in self.apart else ()
        if axis is Axis.GROUPS and len(shape) >= 2:
            return shape[1]
        return shape[2] if axis is Axis.ROWS and len(shape) == 4 else 0

    def share(self, axis: Axis, start: int, stop: int, inputs: tuple[Shape, ...]) -> OperatorShare:
        """Units [start, stop) of the axis as an operator of its own: here the same cut through all that has the axis."""
        if self.extent(axis, inputs) < 1:
            raise UnsupportedError(f"{self.kind}: cannot be divided along {axis}; "
                                   f"possible: {[str(a) for a in self.axes(inputs)]}")
        dim, out = 1 if axis is Axis.GROUPS else 2, self.infer(inputs)
        reads = tuple(cut(whole(s), dim, start, stop) if s[dim] == out[dim] else whole(s) for s in inputs)
        params = tuple(cut(whole(s), 0, start, stop) if axis is Axis.GROUPS and self.per_channel else whole(s)
                       for s in self.param_shapes(inputs))
        return OperatorShare(self, reads, params, cut(whole(out), dim, start, stop))

    def attributes(self) -> str:
        """Attributes for the text form, one line; here the activation."""
        return f"clamp {self.clamp}" if self.clamp else ""


@dataclass(frozen=True, slots=True)
class Product(Op):
    """A sum of products with constant weights, one filter per output channel: convolutions and fully connected layers.

    Constants: weight, then bias; a `partial` product, one share of an input-channel split, has no bias and no activation.
    """

    @property
    def product(self) -> Product:
        return self

    @property
    def filters(self) -> int:
        raise NotImplementedError

    @property
    def groups(self) -> int:
        """Groups of channels that are products of their own."""
        return 1

    @property
    def partial(self) -> bool:
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Movement(Op):
    """Only moves values: it keeps its input's scheme, and stays in floats where its neighbours do."""

    moves: ClassVar[bool] = True
    commutes: ClassVar[bool] = True
    picks: ClassVar[bool] = True
