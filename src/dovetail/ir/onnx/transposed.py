"""A transposed convolution of stride s as s * s ordinary ones that take turns: the window, the weights and the shuffle behind.

Output pixel s * q + r reads input pixels q + offset, by other weights for every r. So one convolution with the filters of
every r, zero where an r has no weight for an offset, computes a block of pixels as channels (Shi et al. 2016, section 2.2).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import gcd

import numpy as np
from numpy.typing import NDArray

from dovetail.errors import ModelError, UnsupportedError
from dovetail.ir import PixelShuffle, Shape, Window
from dovetail.ir.onnx.state import Attributes
from dovetail.ir.tensor import Constant, Scheme

MOST_TAPS = 1 << 18
"""Places of a block times taps of the window in one dimension; chosen, strides of 500 with kernels as large fit."""


@dataclass(frozen=True, slots=True)
class _Side:
    """One dimension: `taps[r, j]` is the weight that place r of a block has for tap j of the window, -1 for none."""

    taps: NDArray[np.int64]
    dilation: int
    pads: tuple[int, int]
    cropped: int


@dataclass(frozen=True, slots=True)
class TransposedWindow:
    """Both dimensions of a transposed convolution."""

    down: _Side
    right: _Side

    @property
    def block(self) -> int:
        return len(self.down.taps) * len(self.right.taps)

    @property
    def window(self) -> Window:
        """The window of the ordinary convolution."""
        down, right = self.down, self.right
        pads = (down.pads[0], right.pads[0], down.pads[1], right.pads[1])
        return Window((down.taps.shape[1], right.taps.shape[1]), pads=pads, dilation=(down.dilation, right.dilation))

    @property
    def shuffle(self) -> PixelShuffle:
        """What is behind it."""
        return PixelShuffle(len(self.down.taps), len(self.right.taps), cropped=(self.down.cropped, self.right.cropped))


def transposed_window(attributes: Attributes, kernel: tuple[int, ...], shape: Shape, where: str) -> TransposedWindow:
    """The window that a ConvTranspose's attributes state for an input of `shape`, by pads, auto_pad or output_shape."""
    strides, dilations, more = (tuple(attributes.get(key, (default,) * 2)) for key, default in
                                (("strides", 1), ("dilations", 1), ("output_padding", 0)))
    edges, mode = tuple(attributes.get("pads", (0,) * 4)), attributes.get("auto_pad", "NOTSET")
    wanted = tuple(attributes.get("output_shape", ()))[-2:]
    if not wanted and mode in ("SAME_UPPER", "SAME_LOWER"):
        wanted = tuple(n * s for n, s in zip(shape[2:], strides, strict=True))
    if min(*strides, *dilations) < 1:
        raise ModelError(f"{where}: strides {list(strides)} and dilations {list(dilations)}; both must be at least 1")
    sides = []
    for i in range(2):
        reach = (shape[2 + i] - 1) * strides[i] + (kernel[i] - 1) * dilations[i] + 1 + more[i]
        size = wanted[i] if wanted else reach - edges[i] - edges[i + 2]
        total = max(0, reach - size)
        before = edges[i] if not wanted else total // 2 if mode == "SAME_UPPER" else total - total // 2
        if size < 1:
            raise ModelError(f"{where}: {total} of {reach} rows or columns are cropped and nothing is left; "
                             "export the model again")
        if min(strides[i], size) * kernel[i] > MOST_TAPS:
            raise UnsupportedError(f"{where}: transposed convolution with stride {strides[i]} and kernel {kernel[i]}; up to "
                                   f"{MOST_TAPS:,} weights are placed in a dimension")
        sides.append(_side(kernel[i], strides[i], dilations[i], before, shape[2 + i], size))
    return TransposedWindow(*sides)


def _side(kernel: int, stride: int, dilation: int, before: int, size: int, wanted: int) -> _Side:
    """One dimension of `size` pixels that becomes `wanted`, of which `before` are cut away in front."""
    count, places = -(-wanted // stride), min(stride, wanted)
    found = [(r, (r + before - k * dilation) // stride, k) for r in range(places) for k in range(kernel)
             if (r + before - k * dilation) % stride == 0]
    offsets = [offset for _, offset, _ in found]
    low, high = min([0, *offsets]), max([0, size - count, *offsets])
    step = gcd(high - low, *(offset - low for offset in offsets)) or 1
    if places * ((high - low) // step + 1) > MOST_TAPS:
        raise UnsupportedError(f"transposed convolution over {(high - low) // step + 1:,} pixels at a time; at most "
                               f"{MOST_TAPS // places:,} are possible")
    taps = np.full((places, (high - low) // step + 1), -1)
    for r, offset, k in found:
        taps[r, (offset - low) // step] = k
    return _Side(taps, step, (-low, count + high - size), count * places - wanted)


def transposed_weights(weight: Constant, placed: TransposedWindow, groups: int) -> Constant:
    """The filters of the ordinary convolution: those of an output channel's block follow each other."""
    scheme = weight.scheme
    if scheme is not None and scheme.axis not in (None, 1):
        weight, scheme = Constant(weight.name, weight.real.astype(np.float32)), None
    channels, each = weight.array.shape[:2]
    padded = np.pad(weight.array, ((0, 0), (0, 0), (0, 1), (0, 1)), constant_values=0 if scheme is None else scheme.zero)
    taken = padded[:, :, placed.down.taps[:, :, None, None], placed.right.taps]
    rows, down, columns, right = taken.shape[2:]
    turned = taken.reshape(groups, channels // groups, each, *taken.shape[2:]).transpose(0, 2, 3, 5, 1, 4, 6)
    array = np.ascontiguousarray(turned.reshape(groups * each * rows * columns, channels // groups, down, right))
    if scheme is None or scheme.axis is None:
        return Constant(weight.name, array, scheme)
    return Constant(weight.name, array, repeated_scales(scheme, placed.block, 0, groups))


def repeated_scales(scheme: Scheme, times: int, axis: int, rounds: int = 1) -> Scheme:
    """A scheme with every scale so many times along an axis, all of them in so many rounds; one for all stays as it is."""
    if scheme.axis is None:
        return scheme
    order = [i for _ in range(rounds) for i in range(len(scheme.exponents)) for _ in range(times)]
    mantissas = tuple(scheme.mantissas[i] for i in order) if scheme.mantissas else ()
    return replace(scheme, exponents=tuple(scheme.exponents[i] for i in order), mantissas=mantissas, axis=axis)
