"""Tensors, their integer schemes, and regions of them."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.errors import ModelError

Shape = tuple[int, ...]
Array = NDArray[Any]
Real = NDArray[np.float64]
Region = tuple[tuple[int, int], ...]
"""One half-open interval per dimension of a tensor."""


@dataclass(frozen=True, slots=True)
class Scheme:
    """Fixed point: a stored integer `q` of `bits` bits means `q * 2**exponent`.

    One exponent for the whole tensor (`axis is None`) or one per index of `axis`.
    Zero points are zero by design: see docs/numerics.md.
    """

    bits: int
    signed: bool
    exponents: tuple[int, ...]
    axis: int | None = None

    def __post_init__(self) -> None:
        if not 2 <= self.bits <= 32:
            raise ModelError(f"scheme: {self.bits} bits; 2 to 32 are possible")
        if self.axis is None and len(self.exponents) != 1:
            raise ModelError(f"scheme: {len(self.exponents)} exponents without an axis; give one, or an axis")

    @property
    def lo(self) -> int:
        return -(1 << (self.bits - 1)) if self.signed else 0

    @property
    def hi(self) -> int:
        return (1 << (self.bits - 1)) - 1 if self.signed else (1 << self.bits) - 1

    @property
    def exponent(self) -> int:
        """The single exponent of a per-tensor scheme."""
        assert self.axis is None, "a per-channel scheme has no single exponent"
        return self.exponents[0]

    @property
    def dtype(self) -> np.dtype[np.generic]:
        """The NumPy type that stores this scheme."""
        width = 8 if self.bits <= 8 else 16 if self.bits <= 16 else 32
        return np.dtype(f"{'' if self.signed else 'u'}int{width}")

    def exponents_along(self, rank: int) -> NDArray[np.int64]:
        """Exponents shaped to broadcast against a tensor of `rank` dimensions."""
        values = np.asarray(self.exponents, dtype=np.int64)
        if self.axis is None:
            return values.reshape((1,) * rank)
        return values.reshape(tuple(-1 if d == self.axis else 1 for d in range(rank)))

    def cut(self, region: Region) -> Scheme:
        """The scheme of a region of the tensor."""
        if self.axis is None:
            return self
        start, stop = region[self.axis]
        return Scheme(self.bits, self.signed, self.exponents[start:stop], self.axis)

    def __str__(self) -> str:
        kind = f"{'s' if self.signed else 'u'}{self.bits}"
        if self.axis is None:
            return f"{kind}e{self.exponent}"
        return f"{kind}@{self.axis}e[{','.join(map(str, self.exponents))}]"


@dataclass(frozen=True, slots=True)
class Tensor:
    """A value that flows through the graph: integers of its scheme, or without one plain numbers of type `element`."""

    name: str
    shape: Shape
    scheme: Scheme | None = None
    element: str = "float32"

    def __post_init__(self) -> None:
        if any(d < 1 for d in self.shape):
            raise ModelError(f"tensor {self.name}: shape {list(self.shape)} has a dimension below 1; every size must be positive")

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def dtype(self) -> np.dtype[np.generic]:
        return np.dtype(self.element) if self.scheme is None else self.scheme.dtype

    @property
    def element_bytes(self) -> int:
        """Bytes one element takes in a transfer; in a float model tensors are planned as the int8 they will become."""
        return 1 if self.scheme is None else self.scheme.dtype.itemsize


@dataclass(frozen=True, slots=True, eq=False)
class Constant:
    """Weights: a float array, or integers with their scheme."""

    name: str
    array: Array
    scheme: Scheme | None = None

    def __eq__(self, other: object) -> bool:
        return (isinstance(other, Constant) and self.name == other.name and self.scheme == other.scheme
                and self.array.dtype == other.array.dtype and np.array_equal(self.array, other.array))

    def __hash__(self) -> int:
        return hash((self.name, self.scheme, self.array.shape))


def whole(shape: Shape) -> Region:
    """The region that is all of a tensor."""
    return tuple((0, d) for d in shape)


def region_shape(region: Region) -> Shape:
    return tuple(stop - start for start, stop in region)


def region_size(region: Region) -> int:
    return prod(region_shape(region))


def slices(region: Region) -> tuple[slice, ...]:
    """A region as NumPy index."""
    return tuple(slice(start, stop) for start, stop in region)


def intersect(a: Region, b: Region) -> Region | None:
    """What two regions share, or None."""
    both = tuple((max(a0, b0), min(a1, b1)) for (a0, a1), (b0, b1) in zip(a, b, strict=True))
    return both if all(start < stop for start, stop in both) else None
