"""What launches of several kernels are given alike: arrays of a layer, and constants by the names that kernels have for them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dovetail.ir import Array, Window
from dovetail.kernels.items import Item, TensorLayout
from dovetail.kernels.layers import LOOKED_UP, Addition, Change

NOTHING = np.zeros(1, dtype=np.int32)
"""What stands for an operand that a launch does not have."""
Operands = tuple[TensorLayout | Array | int, ...]
Constant = int | float | bool | str
Constants = Mapping[str, Constant]
Given = tuple[Operands, Constants]
"""What a launch is given."""


def window_constants(window: Window) -> dict[str, int]:
    return {"KH": window.kernel[0], "KW": window.kernel[1], "SH": window.stride[0], "SW": window.stride[1],
            "PH": window.pads[0], "PW": window.pads[1]}


def map_constants(x: TensorLayout, y: TensorLayout) -> dict[str, int]:
    """Rows and columns of an input and an output."""
    return {"H": x.height, "W": x.width, "OH": y.height, "OW": y.width}


def sum_constants(total: Addition | None, other: TensorLayout | None) -> dict[str, int | float | bool]:
    total = total or Addition()
    return {"ADD": other is not None, "A_FACTOR": total.factors[0], "O_FACTOR": total.factors[1], "A_ZERO": total.zeros[0],
            "O_ZERO": total.zeros[1], "A_SHIFT": total.shift, "ALO": total.lo, "AHI": total.hi, "AZERO": total.zero,
            "OP": other.pitch if other is not None else 1}


def mean_constants(how: Change | None) -> dict[str, int | float]:
    return {f"M_{name}": value for name, value in change_constants(how or Change()).items()}


def change_constants(how: Change) -> dict[str, int | float]:
    return {"FACTOR": how.factor, "SHIFT": how.shift, "FROM": how.source, "ZERO": how.zero, "LO": how.lo, "HI": how.hi}


def layer_constants(item: Item | None, suffix: str = "") -> dict[str, Constant]:
    """Bounds, zero point and activation of a layer."""
    found = (0.0, 0.0, 0, 0) if item is None else (item.layer.lo, item.layer.hi, item.layer.zero, item.activation)
    return dict(zip((f"LO{suffix}", f"HI{suffix}", f"ZERO{suffix}", f"ACT{suffix}"), found, strict=True))


def dense_constants(kind: str, item: Item) -> dict[str, Constant]:
    """What becomes of a dense layer's sums: rounding, bounds and activation, another tensor added, a mean."""
    return {"YP": item.output.pitch, **layer_constants(item), "INTEGER": kind == "int8", "ROUND": item.layer.rounding,
            "MEAN": item.mean is not None, **mean_constants(item.average), "PRECISION": precision(kind),
            **sum_constants(item.total, item.other)}


def channel_constants(item: Item) -> tuple[Array, Array, Array, Array]:
    """Biases, multipliers and shifts of channels, and the table behind them."""
    return item.layer.bias, item.layer.multipliers, item.layer.shifts, table_of(item)


def table_of(item: Item) -> Array:
    return NOTHING if item.activation != LOOKED_UP or item.table is None else item.table


def or_nothing(layout: TensorLayout | None) -> TensorLayout | Array:
    return NOTHING if layout is None else layout


def copied_operands(item: Item) -> Operands:
    """Where channels that are copied along lie and go, and which they are."""
    if item.along is None:
        return NOTHING, NOTHING, NOTHING
    return item.along.source, item.along.target, np.array(item.along.channels, dtype=np.int32)


def copied_constants(item: Item) -> dict[str, int]:
    if item.along is None:
        return {"AC": 0, "AXP": 1, "AYP": 1}
    return {"AC": len(item.along.channels), "AXP": item.along.source.pitch, "AYP": item.along.target.pitch}


def precision(kind: str) -> str:
    """What matrix units may do with float32: its own products where that is asked for; other kinds do not ask."""
    return "ieee" if kind == "float32" else "tf32"


def laid(weights: Array, kind: str, groups: int = 1) -> tuple[Array, int, int]:
    """Weights as a kernel reads them, and how far apart input and output channels lie: matrix units want bytes input by input."""
    depth, filters = len(weights) // groups, weights.shape[1]
    if kind != "int8":
        return weights, filters, 1
    turned = weights.reshape(groups, depth, filters).transpose(0, 2, 1)
    return np.ascontiguousarray(turned).reshape(groups * filters, depth), 1, depth


def four_times(value: float) -> int:
    """A byte as a word of four."""
    return int.from_bytes(bytes([int(value) & 255]) * 4, "little", signed=True)
