"""Operators that move values and compute nothing: every output is one of the inputs, so schemes pass through unchanged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dovetail.errors import ModelError
from dovetail.ir.operators.base import Axis, Movement, Op, OperatorShare
from dovetail.ir.operators.elementwise import Reshape
from dovetail.ir.tensor import Real, Shape, cut, whole
from dovetail.words import plural


@dataclass(frozen=True, slots=True)
class Select(Movement):
    """Output channel i is input channel `indices[i]` (axis 1 of N,C or N,C,H,W).

    Channel Split, Slice and Gather are this, and so is the channel shuffle of Zhang et al. 2018. In hardware it is wiring.
    """

    indices: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.indices or min(self.indices) < 0:
            raise ModelError(f"Select: indices {list(self.indices[:4])}; at least one is needed, and none below 0")

    def __hash__(self) -> int:
        """Two ends and a length tell most apart; equality compares all."""
        return hash((len(self.indices), self.indices[0], self.indices[-1]))

    @property
    def step(self) -> int | None:
        """The constant distance of neighbouring indices (1 for a single one); None where there is none, or it is 0."""
        if len(self.indices) == 1:
            return 1
        step = self.indices[1] - self.indices[0]
        last = self.indices[0] + step * (len(self.indices) - 1)
        return step if step and self.indices == tuple(range(self.indices[0], last + (1 if step > 0 else -1), step)) else None

    @property
    def groups(self) -> int | None:
        """The groups of a channel shuffle: indices run down the columns of a (groups, channels / groups) matrix."""
        count = len(self.indices)
        stride = self.indices[1] if count > 3 and self.indices[0] == 0 else 0
        if stride < 2 or count % stride or stride == count:
            return None
        shuffled = tuple(i * stride + j for j in range(stride) for i in range(count // stride))
        return count // stride if self.indices == shuffled else None

    @property
    def kind(self) -> str:
        if self.step is not None:
            return "ChannelSlice"
        return "ChannelShuffle" if self.groups is not None else "Select"

    def infer(self, inputs: tuple[Shape, ...]) -> Shape:
        (shape,) = inputs
        if len(shape) not in (2, 4):
            raise ModelError(f"{self.kind}: input of rank {len(shape)}; channels are chosen from N,C or N,C,H,W")
        if max(self.indices) >= shape[1]:
            raise ModelError(f"{self.kind}: channel {max(self.indices)} of {shape[1]}; channels count from 0")
        return (shape[0], len(self.indices), *shape[2:])

    def accumulate(self, inputs: Sequence[Real], params: Sequence[Real]) -> Real:
        chosen: Real = inputs[0][:, list(self.indices)]
        return chosen

    def extent(self, axis: Axis, inputs: tuple[Shape, ...]) -> int:
        """Rows always; channels where a share of them reads just its own, which is a slice without gaps."""
        if axis is Axis.ROWS and len(inputs[0]) == 4:
            return inputs[0][2]
        return len(self.indices) if axis is Axis.GROUPS and self.step == 1 else 0

    def share(self, axis: Axis, start: int, stop: int, inputs: tuple[Shape, ...]) -> OperatorShare:
        if axis is not Axis.GROUPS or self.extent(axis, inputs) < 1:
            return Op.share(self, axis, start, stop, inputs)
        first, own = self.indices[0] + start, Select(tuple(range(stop - start)))
        return OperatorShare(own, (cut(whole(inputs[0]), 1, first, first + stop - start),), (),
                             cut(whole(self.infer(inputs)), 1, start, stop))

    def attributes(self) -> str:
        if self.step is not None:
            first, last = self.indices[0], self.indices[-1]
            return f"channels {first}..{last}" + ("" if self.step == 1 else f" by {self.step}")
        if self.groups is not None:
            return f"{self.groups} {plural(self.groups, 'group')}"
        shown = ",".join(map(str, self.indices[:8]))
        return f"channels {shown}" + (f",... ({len(self.indices)})" if len(self.indices) > 8 else "")


@dataclass(frozen=True, slots=True)
class Transpose(Movement):
    """Dimensions in another order: output dimension i is input dimension `perm[i]`; the batch stays first."""

    perm: tuple[int, ...]

    def __post_init__(self) -> None:
        if sorted(self.perm) != list(range(len(self.perm))) or self.perm[:1] != (0,):
            raise ModelError(f"Transpose: order {list(self.perm)}; every dimension once, the batch first")

    def infer(self, inputs: tuple[Shape, ...]) -> Shape:
        (shape,) = inputs
        if len(shape) != len(self.perm):
            raise ModelError(f"Transpose: order {list(self.perm)} of an input of rank {len(shape)}")
        return tuple(shape[i] for i in self.perm)

    def accumulate(self, inputs: Sequence[Real], params: Sequence[Real]) -> Real:
        return np.transpose(inputs[0], self.perm)

    def extent(self, axis: Axis, inputs: tuple[Shape, ...]) -> int:
        """Dimensions that stay where they are can be cut as those of an elementwise operator."""
        dim = {Axis.GROUPS: 1, Axis.ROWS: 2}.get(axis)
        fixed = dim is not None and len(self.perm) == 4 and self.perm[dim] == dim
        return inputs[0][dim] if fixed and dim is not None else 0

    def attributes(self) -> str:
        return f"order {','.join(map(str, self.perm))}"


@dataclass(frozen=True, slots=True)
class Upsample(Movement):
    """Every pixel repeated `rows` times downwards and `columns` times to the right: nearest-neighbour enlargement."""

    apart: ClassVar[tuple[Axis, ...]] = (Axis.GROUPS,)

    rows: int
    columns: int

    def __post_init__(self) -> None:
        if min(self.rows, self.columns) < 1:
            raise ModelError(f"Upsample: by {self.rows}x{self.columns}; whole factors of at least 1 are possible")

    @property
    def repeats(self) -> tuple[int, int]:
        return (self.rows, self.columns)

    def infer(self, inputs: tuple[Shape, ...]) -> Shape:
        (shape,) = inputs
        if len(shape) != 4:
            raise ModelError(f"Upsample: input of rank {len(shape)}; N,C,H,W is needed")
        return (*shape[:2], shape[2] * self.rows, shape[3] * self.columns)

    def accumulate(self, inputs: Sequence[Real], params: Sequence[Real]) -> Real:
        return inputs[0].repeat(self.rows, axis=2).repeat(self.columns, axis=3)

    def attributes(self) -> str:
        return f"{self.rows}x{self.columns}"


Step = Callable[[NDArray[np.int32]], NDArray[np.int32]]
"""What one operator does to the positions of values."""
LARGEST_TRACED = 1 << 24
"""Elements of a tensor whose way through several movements is followed."""


@dataclass(frozen=True, slots=True, eq=False)
class Taken:
    """The step of taking `indices` along an axis; a scalar drops the axis."""

    axis: int
    indices: NDArray[np.int64]

    def __call__(self, x: NDArray[np.int32]) -> NDArray[np.int32]:
        return np.asarray(np.take(x, self.indices, axis=self.axis))


def recognise(shape: Shape, steps: Sequence[Step]) -> Op | None:
    """The one operator that several movements of a tensor of `shape` are, if there is one: Reshape or Select.

    Positions are sent through all steps. Where they come out in order only the shape changed (a Reshape to `shape`
    itself: nothing did); where each map came out whole, channels were chosen. Choosing channels once is plain.
    """
    first = steps[0]
    if len(steps) == 1 and isinstance(first, Taken) and first.axis == 1 == first.indices.ndim and len(shape) in (2, 4):
        chosen = tuple(int(i) for i in first.indices)
        return Reshape(shape) if chosen == tuple(range(shape[1])) else Select(chosen)
    if prod(shape) > LARGEST_TRACED:
        return None
    before = np.arange(prod(shape), dtype=np.int32).reshape(shape)
    after = before
    for step in steps:
        after = step(after)
        if after.size > LARGEST_TRACED:
            return None
    if after.ndim == 0 or after.size == 0 or after.shape[0] != shape[0]:
        return None
    if after.size == before.size and np.array_equal(after.reshape(-1), before.reshape(-1)):
        return Reshape(after.shape)
    if after.ndim not in (2, 4) or after.ndim != len(shape) or after.shape[2:] != shape[2:]:
        return None
    channels = after[0].reshape(after.shape[1], -1)[:, 0] // prod(shape[2:])
    if int(channels.max()) >= shape[1] or not np.array_equal(after, before[:, channels]):
        return None
    return Select(tuple(int(c) for c in channels))
