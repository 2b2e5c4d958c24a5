"""The kernel of whole inverted residuals of bytes in bands of output rows, four rows of values in a word.

Records call this kernel `walked_bytes`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dovetail.kernels.inverted_residual import InvertedResidualShape, is_one, size_constants, sizes_of
from dovetail.kernels.items import Item
from dovetail.kernels.layers import (
    FLOATING,
    STORED_OFFSET,
    as_floats,
    as_least_floats,
    finished_in_floats,
    packs_to_bytes,
    taps_by_rows,
    without_signs,
)
from dovetail.kernels.operands import Constants, Operands, four_times, laid, or_nothing, sum_constants


class InvertedResidualBytesShape(InvertedResidualShape):
    """The sizes of an inverted residual of bytes."""

    __slots__ = ()


def shapes_of(kind: str, part: Sequence[Item]) -> list[InvertedResidualBytesShape]:
    """Of PWDWPW of bytes whose sums float32 finishes."""
    if kind != "int8" or not is_one(part) or len(part) != 3 or not packs_to_bytes(part[0].layer) \
            or not finished_in_floats(part[1].layer) or part[2].layer.rounding != FLOATING:
        return []
    shape = InvertedResidualBytesShape(*sizes_of(kind, part))
    return [shape] if shape.tiles() else []


def operands(kind: str, part: Sequence[Item]) -> tuple[Operands, Constants]:
    front, middle, last = (item.layer for item in part)
    weights, wk, wn = laid(front.weights, kind)
    taps, words = taps_by_rows(middle.weights, part[1].window.kernel, part[1].window.stride[0])
    pad = int(middle.pad) + STORED_OFFSET
    constants = {**size_constants(part), "W1K": wk, "W1N": wn, "LOD": middle.lo, "HID": middle.hi,
                 "ZEROD": middle.zero, "LO2": last.lo, "HI2": last.hi, "ZERO2": last.zero, "PADE": pad, "PAD4": four_times(pad),
                 "WORDS": words, **sum_constants(part[2].total, part[2].other)}
    return (part[0].x, weights, *as_least_floats(front), taps, *as_floats(without_signs(middle)),
            last.weights.astype(np.float16), last.bias.astype(np.float32),
            np.ldexp(np.float32(1.0), -last.shifts).astype(np.float32),
            or_nothing(part[2].other), part[2].y, part[2].y.images), constants
