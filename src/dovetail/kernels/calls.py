"""One kernel launch each: what it reads and writes, its constants, its grid and its possible tiles, best estimate first."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dovetail.ir import Array, Window
from dovetail.kernels.estimator import Config, tiles_of
from dovetail.kernels.items import QUARTER, Item, fused_shape, is_scaled, side_by_side, stages, words_of
from dovetail.kernels.layers import (
    LOOKED_UP,
    STORED_OFFSET,
    Change,
    Sum,
    as_floats,
    as_least_floats,
    common_rounding,
    scaled_taps,
    taps_by_rows,
    without_signs,
)
from dovetail.kernels.place import Place
from dovetail.kernels.ranking import WORK, ranked
from dovetail.kernels.shapes import (
    BandedShape,
    BridgedShape,
    BytewiseShape,
    ConvShape,
    DeepShape,
    DepthwiseShape,
    FusedShape,
    KernelShape,
    MovedShape,
    VectorShape,
    WalkedBytesShape,
    WalkedShape,
)
from dovetail.platform.gpu_specification import Gpu

NOTHING = np.zeros(1, dtype=np.int32)
Operands = tuple[Place | Array | int, ...]
Constants = Mapping[str, int | float | bool | str]


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """A launch: operands in the kernel's order are places, constant arrays or numbers."""

    kernel: str
    nodes: tuple[str, ...]
    operands: tuple[Place | Array | int, ...]
    constants: Mapping[str, int | float | bool | str]
    shape: KernelShape
    configs: tuple[Config, ...]
    estimates_s: tuple[float, ...]
    output: Place
    key: str = ""

    def grid(self, config: Config) -> tuple[int, int, int]:
        """Programs of a launch with a tile."""
        x, y, z = (int(np.asarray(n).item()) for n in self.shape.grid(tiles_of([config])))
        return x, y, z


def window_constants(window: Window) -> dict[str, int]:
    return {"KH": window.kernel[0], "KW": window.kernel[1], "SH": window.stride[0], "SW": window.stride[1],
            "PH": window.pads[0], "PW": window.pads[1]}


def sum_constants(total: Sum | None, other: Place | None) -> dict[str, int | float | bool]:
    total = total or Sum()
    return {"ADD": other is not None, "A_FACTOR": total.factors[0], "O_FACTOR": total.factors[1], "A_ZERO": total.zeros[0],
            "O_ZERO": total.zeros[1], "A_SHIFT": total.shift, "ALO": total.lo, "AHI": total.hi, "AZERO": total.zero,
            "OP": other.pitch if other is not None else 1}


def mean_constants(how: Change | None) -> dict[str, int | float]:
    how = how or Change()
    return {"M_FACTOR": how.factor, "M_SHIFT": how.shift, "M_FROM": how.source, "M_ZERO": how.zero, "M_LO": how.lo,
            "M_HI": how.hi}


def change_constants(how: Change) -> dict[str, int | float]:
    return {"FACTOR": how.factor, "SHIFT": how.shift, "FROM": how.source, "ZERO": how.zero, "LO": how.lo, "HI": how.hi}


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


def call_of(gpu: Gpu, kind: str, part: Sequence[Item], shape: KernelShape) -> Call:
    """The launch that computes a part of a run with one of its kernels."""
    makers: Mapping[type, Callable[[str, Sequence[Item]], tuple[Operands, Constants]]] = {
        ConvShape: _conv, DeepShape: _deep, VectorShape: _vector, DepthwiseShape: _depthwise, BytewiseShape: _bytewise,
        FusedShape: _fused, BandedShape: _banded, WalkedShape: _walked,
        WalkedBytesShape: _walked_bytes, BridgedShape: _bridged}
    operands, constants = makers[type(shape)](kind, part)
    copied = [item.along.node for item in part if item.along is not None]
    return _keyed(gpu, kind, WORK[type(shape)][0], (*(n for item in part for n in item.names), *copied), operands, constants,
                  shape, part[-1].output)


def _layer_constants(item: Item | None, suffix: str = "") -> dict[str, int | float | bool | str]:
    found = (0.0, 0.0, 0, 0) if item is None else (item.layer.lo, item.layer.hi, item.layer.zero, item.activation)
    return dict(zip((f"LO{suffix}", f"HI{suffix}", f"ZERO{suffix}", f"ACT{suffix}"), found, strict=True))


def _constants(item: Item) -> tuple[Array, Array, Array, Array]:
    """Biases, multipliers and shifts of channels, and the table behind them."""
    return item.layer.bias, item.layer.multipliers, item.layer.shifts, _table(item)


def _table(item: Item) -> Array:
    return NOTHING if item.activation != LOOKED_UP or item.table is None else item.table


def _along(item: Item) -> Operands:
    """Where channels that are copied along lie and go, and which they are."""
    if item.along is None:
        return NOTHING, NOTHING, NOTHING
    return item.along.source, item.along.target, np.array(item.along.channels, dtype=np.int32)


def _along_constants(item: Item) -> dict[str, int]:
    if item.along is None:
        return {"AC": 0, "AXP": 1, "AYP": 1}
    return {"AC": len(item.along.channels), "AXP": item.along.source.pitch, "AYP": item.along.target.pitch}


def _conv(kind: str, part: Sequence[Item]) -> tuple[Operands, Constants]:
    """Convolution of any kind but depthwise; `other` is added, or all pixels averaged into `mean`."""
    item, = part
    x, y, window, layer, out = item.x, item.y, item.window, item.layer, item.output
    channels = x.channels // item.groups
    xb, xh, xw, xc = x.strides
    weights, wk, wn = laid(layer.weights, kind, item.groups)
    constants = {"H": x.height, "W": x.width, "OH": y.height, "OW": y.width, "CI": channels, "N": y.channels // item.groups,
                 **window_constants(window), "DH": window.dilation[0], "DW": window.dilation[1], "XB": xb, "XH": xh, "XW": xw,
                 "XC": xc, "WK": wk, "WN": wn, "YP": out.pitch, **_layer_constants(item), "PAD": layer.pad,
                 "INTEGER": kind == "int8", "ROUND": layer.rounding, "MEAN": item.mean is not None,
                 **mean_constants(item.average), "FLAT": item.taps > 1 and channels < 16, "PRECISION": precision(kind),
                 **sum_constants(item.total, item.other), **_along_constants(item)}
    beside = item.other if item.other is not None else NOTHING
    return (x, weights, *_constants(item), beside, out, *_along(item), y.images), constants


def _deep(kind: str, part: Sequence[Item]) -> tuple[Operands, Constants]:
    """A pointwise layer of few pixels."""
    item, = part
    x, y, layer, out = item.x, item.y, item.layer, item.output
    weights, wk, wn = laid(layer.weights, kind)
    constants = {"SPACE": y.height * y.width, "K": x.channels, "N": y.channels, "XP": x.pitch, "WK": wk, "WN": wn,
                 "YP": out.pitch, **_layer_constants(item), "INTEGER": kind == "int8", "ROUND": layer.rounding,
                 "MEAN": item.mean is not None, **mean_constants(item.average),
                 "PRECISION": precision(kind), **sum_constants(item.total, item.other)}
    beside = item.other if item.other is not None else NOTHING
    return (x, weights, *_constants(item), beside, out, y.images), constants


def _vector(kind: str, part: Sequence[Item]) -> tuple[Operands, Constants]:
    """A layer of one pixel per image with few images."""
    item, = part
    layer = item.layer
    constants = {"K": item.x.channels, "N": item.y.channels, "XP": item.x.pitch, "YP": item.y.pitch, **_layer_constants(item),
                 "INTEGER": kind == "int8", "ROUND": layer.rounding}
    return (item.x, np.ascontiguousarray(layer.weights.T), *_constants(item), item.y), constants


def _depthwise(kind: str, part: Sequence[Item]) -> tuple[Operands, Constants]:
    """One filter per channel."""
    item, = part
    x, y, window, layer = item.x, item.y, item.window, item.layer
    constants = {"H": x.height, "W": x.width, "OH": y.height, "OW": y.width, "C": x.channels, **window_constants(window),
                 "DH": window.dilation[0], "DW": window.dilation[1], "XP": x.pitch, "YP": y.pitch, **_layer_constants(item),
                 "PAD": layer.pad, "INTEGER": kind == "int8", "ROUND": layer.rounding}
    return (x, layer.weights, *_constants(item), y), constants


def _bytewise(kind: str, part: Sequence[Item]) -> tuple[Operands, Constants]:
    """One filter per channel, of bytes."""
    item, = part
    x, y, window, layer = item.x, item.y, item.window, item.layer
    side, words = side_by_side(window)
    constants = {"H": x.height, "W": x.width, "OH": y.height, "OW": y.width, "C": x.channels // QUARTER,
                 **window_constants(window), "XP": x.pitch // QUARTER, "YP": y.pitch // QUARTER, **_layer_constants(item),
                 "PAD": _four_times(layer.pad), "ROUND": layer.rounding, "SIDE": side, "WORDS": words}
    return (x, *_in_words(item), _table(item), y), constants


def _in_words(item: Item) -> tuple[Array, Array, Array, Array]:
    """Weights, biases, multipliers and shifts of a depthwise layer of bytes as words of four channels need them."""
    layer = item.layer
    taps = packed_taps(layer.weights, item.window, *side_by_side(item.window))
    return taps, _by_fourth(layer.bias), _by_fourth(layer.multipliers), _by_fourth(layer.shifts)


def _four_times(value: float) -> int:
    """A byte as a word of four."""
    return int.from_bytes(bytes([int(value) & 255]) * QUARTER, "little", signed=True)


def _by_fourth(values: Array) -> Array:
    """Constants of channels: of the first channel of every word, then of the second, and so on."""
    return np.ascontiguousarray(values.reshape(-1, QUARTER).T).reshape(-1)


def packed_taps(weights: Array, window: Window, side: int, words: int) -> Array:
    """Weights (taps x channels) of a depthwise layer as words of four taps.

    They lie as rows x side x words x words of channels x four channels. Output column `q` of those side by side begins at
    pixel q * stride, so its taps lie that much further on.
    """
    rows, across = window.kernel
    taps = weights.reshape(rows, across, -1)
    laid_out = np.zeros((rows, side, words * QUARTER, taps.shape[2]), dtype=np.int8)
    for q in range(side):
        laid_out[:, q, q * window.stride[1]:q * window.stride[1] + across] = taps
    four = laid_out.reshape(rows, side, words, QUARTER, -1, QUARTER)  # ..., pixel, word of channels, channel
    return np.ascontiguousarray(four.transpose(0, 1, 2, 4, 5, 3)).view(np.int32).reshape(-1)


def _fused(kind: str, part: Sequence[Item]) -> tuple[Operands, Constants]:
    """A fused module."""
    x, y, last = part[0].x, part[-1].y, part[-1]
    own = stages(part)
    front, middle, back = (item.layer if item is not None else None for item in own)
    window = next((item.window for item in part if item.depthwise), Window((1, 1)))
    constants: dict[str, int | float | bool | str] = {
        "H": x.height, "W": x.width, "OH": y.height, "OW": y.width, "CI": x.channels, "E": fused_shape(kind, part).inner,
        "N": y.channels, **window_constants(window), "XP": x.pitch, "YP": y.pitch, "INTEGER": kind == "int8",
        "FRONT": front is not None, "MIDDLE": middle is not None, "BACK": back is not None, "PRECISION": precision(kind),
        "ROUND": common_rounding([stage for stage in (front, middle, back) if stage is not None]),
        **sum_constants(last.total, last.other), **_along_constants(last), "PAD": part[0].layer.pad,
        "PADE": middle.pad if middle is not None else 0.0}
    arrays: list[Array] = []
    for name, item, stage in zip("1D2", own, (front, middle, back), strict=True):
        constants |= _layer_constants(item, name)
        weights, wk, wn = (NOTHING, 1, 1) if stage is None else laid(stage.weights, kind if name != "D" else "")
        if name != "D":
            constants |= {f"W{name}K": wk, f"W{name}N": wn}
        arrays += [weights, stage.bias, stage.multipliers, stage.shifts] if stage is not None else [NOTHING] * 4
    return (x, *arrays, last.other if last.other is not None else NOTHING, y, *_along(last), y.images), constants


def _banded(kind: str, part: Sequence[Item]) -> tuple[Operands, Constants]:
    """A pointwise layer with the depthwise layer behind it, in bands of rows."""
    (first, last), x, y = part, part[0].x, part[1].y
    front, middle = first.layer, last.layer
    weights, wk, wn = laid(front.weights, kind)
    constants: dict[str, int | float | bool | str] = {
        "H": x.height, "W": x.width, "OH": y.height, "OW": y.width, "CI": x.channels, "E": y.channels,
        **window_constants(last.window), "W1K": wk, "W1N": wn, "XP": x.pitch, "YP": y.pitch, **_layer_constants(first, "1"),
        **_layer_constants(last, "D"), "PADE": middle.pad, "INTEGER": kind == "int8", "ROUND": common_rounding([front, middle]),
        "PRECISION": precision(kind)}
    return (x, weights, front.bias, front.multipliers, front.shifts, middle.weights, middle.bias, middle.multipliers,
            middle.shifts, y), constants


def _walked(kind: str, part: Sequence[Item]) -> tuple[Operands, Constants]:
    """An inverted residual in bands of rows, its constants scaled for bounds of 0 and 1."""
    x, y, last, back = part[0].x, part[-1].y, part[-1], part[2] if len(part) > 2 else None
    front = part[0].layer
    scales = [item.layer.hi if is_scaled(item) else 1.0 for item in part[:2]]
    constants: dict[str, int | float | bool | str] = {
        **_walked_sizes(part), "SAT1": is_scaled(part[0]), "SATD": is_scaled(part[1]), "BACK": back is not None,
        "PRECISION": precision(kind), "OP": last.other.pitch if last.other is not None else 1, "ADD": last.other is not None,
        "ALO": (last.total or Sum()).lo, "AHI": (last.total or Sum()).hi}
    for name, item in zip("1D2", (*part[:2], back), strict=True):
        constants |= {n: v for n, v in _layer_constants(item, name).items() if not n.startswith("ZERO")}
    behind = (NOTHING, NOTHING) if back is None else (back.layer.weights, back.layer.bias)
    return (x, front.weights, front.bias, *scaled_taps(part[1].layer, *scales), *behind,
            last.other if last.other is not None else NOTHING, y, y.images), constants


def _walked_sizes(part: Sequence[Item]) -> dict[str, int]:
    x, y = part[0].x, part[-1].y
    return {"H": x.height, "W": x.width, "OH": y.height, "OW": y.width, "CI": x.channels, "E": part[1].y.channels,
            "N": y.channels, **window_constants(part[1].window), "XP": x.pitch, "YP": y.pitch}


def _walked_bytes(kind: str, part: Sequence[Item]) -> tuple[Operands, Constants]:
    """The same of bytes, finished in floats."""
    front, middle, last = (item.layer for item in part)
    weights, wk, wn = laid(front.weights, kind)
    taps, words = taps_by_rows(middle.weights, part[1].window.kernel, part[1].window.stride[0])
    pad = int(middle.pad) + STORED_OFFSET
    constants = {**_walked_sizes(part), "W1K": wk, "W1N": wn, "LOD": middle.lo, "HID": middle.hi,
                 "ZEROD": middle.zero, "LO2": last.lo, "HI2": last.hi, "ZERO2": last.zero, "PADE": pad, "PAD4": _four_times(pad),
                 "WORDS": words, **sum_constants(part[2].total, part[2].other)}
    other = part[2].other
    return (part[0].x, weights, *as_least_floats(front), taps, *as_floats(without_signs(middle)),
            last.weights.astype(np.float16), last.bias.astype(np.float32),
            np.ldexp(np.float32(1.0), -last.shifts).astype(np.float32),
            other if other is not None else NOTHING, part[2].y, part[2].y.images), constants


def _bridged(kind: str, part: Sequence[Item]) -> tuple[Operands, Constants]:
    """From one block into the next; weights of pointwise layers as filters x channels."""
    (first, between, _), x, y = part, part[0].x, part[2].y
    near, words = words_of(kind, first)
    constants: dict[str, int | float | bool | str] = {
        "H": x.height, "W": x.width, "OH": y.height, "OW": y.width, "C": x.channels, "M": between.y.channels, "N": y.channels,
        **window_constants(first.window), "XP": x.pitch, "ZP": between.y.pitch, "YP": y.pitch, "NEAR": near, "WORDS": words,
        "PAD": _four_times(first.layer.pad) if words else first.layer.pad,
        "INTEGER": kind == "int8", "ROUND": common_rounding([item.layer for item in part]), "KEPT": between.kept,
        "PRECISION": precision(kind), **sum_constants(between.total, between.other)}
    arrays: list[Array] = []
    for name, item in zip("D12", part, strict=True):
        constants |= _layer_constants(item, name)
        weights = item.layer.weights if item.depthwise else np.ascontiguousarray(item.layer.weights.T)
        plain = [weights, item.layer.bias, item.layer.multipliers, item.layer.shifts]
        arrays += _in_words(item) if item.depthwise and words else plain
    return (x, *arrays[:8], between.other if between.other is not None else NOTHING, between.y if between.kept else NOTHING,
            *arrays[8:], y), constants


def moved_call(gpu: Gpu, kernel: str, nodes: tuple[str, ...], operands: Operands, constants: Constants, shape: MovedShape,
               y: Place, kind: str) -> Call:
    """A kernel that computes next to nothing."""
    return _keyed(gpu, kind, kernel, nodes, operands, constants, shape, y)


def _keyed(gpu: Gpu, kind: str, kernel: str, nodes: tuple[str, ...], operands: Operands, constants: Constants,
           shape: KernelShape, output: Place) -> Call:
    """The call with a name under which its best tile is remembered: everything that decides its time."""
    best, times = ranked(gpu, kind, shape)
    shapes = [(p.images, p.pitch) if isinstance(p, Place) else p.shape if isinstance(p, np.ndarray) else p for p in operands]
    return Call(kernel, nodes, operands, constants, shape, best, times, output,
                f"{kernel} {kind} {sorted(constants.items())} {shapes}")
