"""The kernel of whole inverted residuals of bytes in bands of output rows, four rows of values in a word.

Records call this kernel `walked_bytes`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dovetail.kernels import launch, layers
from dovetail.kernels.inverted_residual import InvertedResidualShape, is_one, size_constants, sizes_of
from dovetail.kernels.items import Item


class InvertedResidualBytesShape(InvertedResidualShape):
    """The sizes of an inverted residual of bytes."""

    __slots__ = ()


def shapes_of(kind: str, part: Sequence[Item]) -> list[InvertedResidualBytesShape]:
    """Of PWDWPW of bytes whose sums float32 finishes."""
    if kind != "int8" or not is_one(part) or len(part) != 3 or not layers.packs_to_bytes(part[0].layer) \
            or not layers.finished_in_floats(part[1].layer) or part[2].layer.rounding != layers.FLOATING:
        return []
    shape = InvertedResidualBytesShape(*sizes_of(kind, part))
    return [shape] if shape.tiles() else []


def operands(kind: str, part: Sequence[Item]) -> launch.Given:
    front, middle, last = (item.layer for item in part)
    weights, wk, wn = launch.laid(front.weights, kind)
    taps, words = layers.taps_by_rows(middle.weights, part[1].window.kernel, part[1].window.stride[0])
    pad = int(middle.pad) + layers.STORED_OFFSET
    constants = {**size_constants(part), "W1K": wk, "W1N": wn, "LOD": middle.lo, "HID": middle.hi,
                 "ZEROD": middle.zero, "LO2": last.lo, "HI2": last.hi, "ZERO2": last.zero, "PADE": pad,
                 "PAD4": launch.four_times(pad), "WORDS": words, **launch.sum_constants(part[2].total, part[2].other)}
    return (part[0].x, weights, *layers.as_least_floats(front), taps, *layers.as_floats(layers.without_signs(middle)),
            last.weights.astype(np.float16), last.bias.astype(np.float32),
            np.ldexp(np.float32(1.0), -last.shifts).astype(np.float32),
            launch.or_nothing(part[2].other), part[2].y, part[2].y.images), constants
