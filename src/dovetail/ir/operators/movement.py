"""Operators that move values and compute nothing: every output is one of the inputs, so schemes pass through unchanged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar

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


@dataclass(frozen=True, slots=True)
class PixelShuffle(Movement):
    """Blocks of channels become blocks of `rows` x `columns` pixels (Shi et al. 2016); the last `cropped` of both are left out.

    The channels of a block follow each other (ONNX's CRD); `depth_first`, all blocks' channels for one pixel do (DCR).
    """

    rows: int
    columns: int
    depth_first: bool = False
    cropped: tuple[int, int] = (0, 0)

    def __post_init__(self) -> None:
        if min(self.rows, self.columns) < 1 or self.block < 2:
            raise ModelError(f"PixelShuffle: blocks of {self.rows}x{self.columns} pixels; at least two pixels are needed")
        if not all(0 <= c < n for c, n in zip(self.cropped, self.repeats, strict=True)):
            raise ModelError(f"PixelShuffle: {self.cropped[0]} rows and {self.cropped[1]} columns cropped; a block of "
                             f"{self.rows}x{self.columns} is larger")

    @property
    def repeats(self) -> tuple[int, int]:
        return (self.rows, self.columns)

    @property
    def block(self) -> int:
        """Pixels that the channels of one become."""
        return self.rows * self.columns

    @property
    def order(self) -> tuple[int, ...]:
        """The transpose between blocks of channels (`inner`) and blocks of pixels."""
        return (0, 3, 4, 1, 5, 2) if self.depth_first else (0, 1, 4, 2, 5, 3)

    def inner(self, depth: int) -> tuple[int, int, int]:
        """What the channels of `depth` output channels are made of."""
        return (self.rows, self.columns, depth) if self.depth_first else (depth, self.rows, self.columns)

    def infer(self, inputs: tuple[Shape, ...]) -> Shape:
        (shape,) = inputs
        if len(shape) != 4:
            raise ModelError(f"PixelShuffle: input of rank {len(shape)}; N,C,H,W is needed")
        if shape[1] % self.block:
            raise ModelError(f"PixelShuffle: {shape[1]} channels; blocks of {self.rows}x{self.columns} pixels need a multiple of "
                             f"{self.block}")
        return (shape[0], shape[1] // self.block, shape[2] * self.rows - self.cropped[0],
                shape[3] * self.columns - self.cropped[1])

    def accumulate(self, inputs: Sequence[Real], params: Sequence[Real]) -> Real:
        return self.moved(inputs[0])

    def moved(self, x: NDArray[Any]) -> NDArray[Any]:
        """The shuffle of numbers of any type."""
        batch, channels, height, width = x.shape
        depth = channels // self.block
        apart = x.reshape(batch, *self.inner(depth), height, width).transpose(self.order)
        tall = apart.reshape(batch, depth, height * self.rows, width * self.columns)
        _, _, rows, columns = self.infer((x.shape,))
        return tall[:, :, :rows, :columns]

    def extent(self, axis: Axis, inputs: tuple[Shape, ...]) -> int:
        """Output channels, where those that one reads follow each other."""
        return inputs[0][1] // self.block if axis is Axis.GROUPS and not self.depth_first else 0

    def share(self, axis: Axis, start: int, stop: int, inputs: tuple[Shape, ...]) -> OperatorShare:
        if self.extent(axis, inputs) < 1:
            return Op.share(self, axis, start, stop, inputs)
        return OperatorShare(self, (cut(whole(inputs[0]), 1, start * self.block, stop * self.block),), (),
                             cut(whole(self.infer(inputs)), 1, start, stop))

    def attributes(self) -> str:
        order, cropped = " depth first" * self.depth_first, f" less {self.cropped[0]},{self.cropped[1]}" * any(self.cropped)
        return f"{self.rows}x{self.columns}{order}{cropped}"


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
    """The one operator that several movements of a tensor of `shape` are, if there is one: Reshape, Select or PixelShuffle.

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
    if after.ndim not in (2, 4) or after.ndim != len(shape):
        return None
    if after.shape[2:] != shape[2:]:
        return _shuffled(before, after)
    channels = after[0].reshape(after.shape[1], -1)[:, 0] // prod(shape[2:])
    if int(channels.max()) >= shape[1] or not np.array_equal(after, before[:, channels]):
        return None
    return Select(tuple(int(c) for c in channels))


def _shuffled(before: NDArray[np.int32], after: NDArray[np.int32]) -> PixelShuffle | None:
    """The pixel shuffle that leads from some positions to others, if one does."""
    block = before.shape[1] // after.shape[1] if before.shape[1] % after.shape[1] == 0 else 1
    ways = []
    for rows in (n for n in range(1, block + 1) if block > 1 and block % n == 0):
        columns = block // rows
        cropped = (rows * before.shape[2] - after.shape[2], columns * before.shape[3] - after.shape[3])
        if 0 <= cropped[0] < rows and 0 <= cropped[1] < columns:
            ways += [PixelShuffle(rows, columns, depth_first, cropped) for depth_first in (False, True)]
    return next((op for op in ways if np.array_equal(op.moved(before), after)), None)
