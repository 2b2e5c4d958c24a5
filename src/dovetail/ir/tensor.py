"""Tensors, their integer schemes, and regions of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from math import frexp, ldexp, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.errors import ModelError

Shape = tuple[int, ...]
Array = NDArray[Any]
Real = NDArray[np.float64]
Region = tuple[tuple[int, int], ...]
"""One half-open interval per dimension of a tensor."""


class Rounding(StrEnum):
    """How a sum becomes the nearest stored integer; docs/method/tflite.md has the last two."""

    EVEN = "even"
    """Once, halves to the even neighbour: ONNX's QuantizeLinear, and ours."""
    AWAY = "away"
    """Once, halves away from zero: TensorFlow Lite's fully connected layers and averages."""
    TWICE = "twice"
    """TensorFlow Lite's fixed point: a 31-bit product rounded to 32 bits, then shifted down with halves away from zero."""


@dataclass(frozen=True, slots=True)
class Scheme:
    """Integers that stand for numbers: a stored `q` of `bits` bits means `(q - zero) * mantissa * 2**exponent`.

    One scale for the whole tensor (`axis is None`) or one per index of `axis`. Our own quantizer makes powers of two
    (no mantissas) without zero points: see docs/method/numerics.md. Imported models may bring any scale: its mantissa, in [1, 2),
    is that of the file's number, so scales and zero points survive a round trip.
    """

    bits: int
    signed: bool
    exponents: tuple[int, ...]
    axis: int | None = None
    mantissas: tuple[float, ...] = ()
    zero: int = 0
    rounding: Rounding = Rounding.EVEN

    def __post_init__(self) -> None:
        if not 1 + self.signed <= self.bits <= 32:
            raise ModelError(f"scheme: {self.bits} bits; {1 + self.signed} to 32 are possible")
        if self.axis is None and len(self.exponents) != 1:
            raise ModelError(f"scheme: {len(self.exponents)} exponents without an axis; give one, or an axis")
        if len(self.mantissas) not in (0, len(self.exponents)):
            raise ModelError(f"scheme: {len(self.mantissas)} mantissas beside {len(self.exponents)} exponents; "
                             "give as many, or none")
        if not self.lo <= self.zero <= self.hi:
            raise ModelError(f"scheme: zero point {self.zero} is outside [{self.lo}, {self.hi}]")

    @property
    def lo(self) -> int:
        return -(1 << (self.bits - 1)) if self.signed else 0

    @property
    def hi(self) -> int:
        return (1 << (self.bits - 1)) - 1 if self.signed else (1 << self.bits) - 1

    @property
    def fixed_point(self) -> bool:
        """Whether scales are powers of two, zero means zero, and halves go to the even neighbour."""
        return not self.mantissas and not self.zero and self.rounding is Rounding.EVEN

    @property
    def exponent(self) -> int:
        """The single exponent of a per-tensor scheme."""
        assert self.axis is None, "a per-channel scheme has no single exponent"
        assert not self.mantissas, "an arbitrary scale is more than an exponent"
        return self.exponents[0]

    @property
    def scales(self) -> tuple[float, ...]:
        """What one step means, exactly."""
        mantissas = self.mantissas or (1.0,) * len(self.exponents)
        return tuple(ldexp(m, e) for m, e in zip(mantissas, self.exponents, strict=True))

    @property
    def scale(self) -> float:
        """The single scale of a per-tensor scheme."""
        assert self.axis is None, "a per-channel scheme has no single scale"
        return self.scales[0]

    @property
    def dtype(self) -> np.dtype[np.generic]:
        """The NumPy type that stores this scheme."""
        width = 8 if self.bits <= 8 else 16 if self.bits <= 16 else 32
        return np.dtype(f"{'' if self.signed else 'u'}int{width}")

    def scales_along(self, rank: int) -> Real:
        """Scales shaped to broadcast against a tensor of `rank` dimensions."""
        values = np.asarray(self.scales, dtype=np.float64)
        if self.axis is None:
            return values.reshape((1,) * rank)
        return values.reshape(tuple(-1 if d == self.axis else 1 for d in range(rank)))

    def cut(self, region: Region) -> Scheme:
        """The scheme of a region of the tensor."""
        if self.axis is None:
            return self
        start, stop = region[self.axis]
        return replace(self, exponents=self.exponents[start:stop], mantissas=self.mantissas[start:stop])

    def __str__(self) -> str:
        kind = f"{'s' if self.signed else 'u'}{self.bits}" + (f"z{self.zero}" if self.zero else "") \
            + (f"~{self.rounding}" if self.rounding is not Rounding.EVEN else "")
        scales = [f"{s:.8g}" for s in self.scales] if self.mantissas else [f"e{e}" for e in self.exponents]
        if self.axis is None:
            return f"{kind}{'*' if self.mantissas else ''}{scales[0]}"
        return f"{kind}@{self.axis}{'*' if self.mantissas else 'e'}[{','.join(s.removeprefix('e') for s in scales)}]"


def scheme_of_scales(bits: int, signed: bool, scales: Sequence[float], axis: int | None = None, zero: int = 0,
                     rounding: Rounding = Rounding.EVEN) -> Scheme:
    """The scheme of given scales; powers of two are recognised, all at once or not at all."""
    parts = [frexp(s) for s in scales]
    exponents = tuple(e - 1 for _, e in parts)
    mantissas = tuple(2 * m for m, _ in parts)
    return Scheme(bits, signed, exponents, axis, () if all(m == 1.0 for m in mantissas) else mantissas, zero, rounding)


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

    @property
    def transfer_bytes(self) -> int:
        """Bytes the whole tensor takes in a transfer."""
        return self.size * self.element_bytes


@dataclass(frozen=True, slots=True, eq=False)
class Constant:
    """Weights: a float array, or integers with their scheme; the array is never changed."""

    name: str
    array: Array
    scheme: Scheme | None = None

    @property
    def filterwise(self) -> bool:
        """Whether each filter (index of axis 0) has a scale of its own, or all share one; floats count as such."""
        return self.scheme is None or self.scheme.axis in (None, 0)

    @property
    def real(self) -> Real:
        """The numbers it means."""
        values = self.array.astype(np.float64)
        return values if self.scheme is None else (values - self.scheme.zero) * self.scheme.scales_along(values.ndim)

    def __eq__(self, other: object) -> bool:
        return (isinstance(other, Constant) and self.name == other.name and self.scheme == other.scheme
                and self.array.dtype == other.array.dtype and np.array_equal(self.array, other.array))

    def __hash__(self) -> int:
        return hash((self.name, self.scheme, self.array.shape))


def largest(filters: Array) -> Array:
    """Largest magnitude of each filter."""
    flat = filters.reshape(len(filters), -1)
    found: Array = np.maximum(flat.max(axis=1, initial=0.0), -flat.min(axis=1, initial=0.0))
    return found


def integer_weights(name: str, values: Array, scales: Real, axis: int | None) -> Constant:
    """Integers as a constant in the narrowest type that holds them: 8 bits, else 16, else 32."""
    lo, hi = int(values.min(initial=0)), int(values.max(initial=0))
    bits = next(b for b in (8, 16, 32) if -(1 << (b - 1)) <= lo and hi < 1 << (b - 1))
    scheme = scheme_of_scales(bits, True, scales.tolist(), axis)
    return Constant(name, values.astype(scheme.dtype), scheme)


@lru_cache(maxsize=4096)
def whole(shape: Shape) -> Region:
    """The region that is all of a tensor."""
    return tuple(zip((0,) * len(shape), shape, strict=True))


def cut(region: Region, dim: int, start: int, stop: int) -> Region:
    """The part of a region between two places of one dimension."""
    return (*region[:dim], (start, stop), *region[dim + 1:])


def region_shape(region: Region) -> Shape:
    return tuple(stop - start for start, stop in region)


def region_size(region: Region) -> int:
    size = 1
    for start, stop in region:
        size *= stop - start
    return size


def slices(region: Region) -> tuple[slice, ...]:
    """A region as NumPy index."""
    return tuple(slice(start, stop) for start, stop in region)


def intersect(a: Region, b: Region) -> Region | None:
    """What two regions share, or None."""
    both = []
    for (a0, a1), (b0, b1) in zip(a, b, strict=True):
        start, stop = a0 if a0 > b0 else b0, a1 if a1 < b1 else b1
        if start >= stop:
            return None
        both.append((start, stop))
    return tuple(both)
