"""What every operator promises: shapes, work, exact arithmetic, and how it can be cut into shares.

An operator is a frozen value. Its arithmetic is stated once, in `accumulate` and `divisor`, and is exact
on integer-valued float64 arrays; the float and the integer reference both derive from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import inf

from dovetail.errors import UnsupportedError
from dovetail.ir.tensor import Real, Region, Shape


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


RELU = Clamp(0.0, inf)


@dataclass(frozen=True, slots=True)
class Share:
    """One slice of an operator: what it runs, what it reads, which part of the output it fills.

    For `Axis.INPUT_CHANNELS` every share fills the whole output with partial sums instead.
    """

    op: Op
    inputs: tuple[Region, ...]
    params: tuple[Region, ...]
    output: Region


@dataclass(frozen=True, slots=True)
class Op:
    """Base of all operators."""

    @property
    def kind(self) -> str:
        """The name people read."""
        return type(self).__name__

    @property
    def bounds(self) -> Clamp | None:
        """The fused activation, if the operator has one."""
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
        """How many units the axis has; 1 or less means it cannot be divided."""
        return 0

    def share(self, axis: Axis, start: int, stop: int, inputs: tuple[Shape, ...]) -> Share:
        """Units [start, stop) of the axis as an operator of its own."""
        raise UnsupportedError(f"{self.kind}: cannot be divided along {axis}; possible: {[str(a) for a in self.axes(inputs)]}")

    def attributes(self) -> str:
        """Attributes for the text form, one line."""
        return ""
