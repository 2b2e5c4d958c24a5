"""Window geometry from ONNX attributes: explicit pads, auto_pad, ceil_mode."""

from __future__ import annotations

from dataclasses import replace

from dovetail.errors import UnsupportedError
from dovetail.ir.onnx.state import Attributes
from dovetail.ir.operators.window import Pads, Window
from dovetail.ir.tensor import Shape


def window_of(attributes: Attributes, kernel: tuple[int, ...], shape: Shape, where: str, around: Pads | None = None) -> Window:
    """The window that attributes state for an input of `shape`; `around` is zero padding that a Pad node put around it."""
    if around is not None:
        top, left, bottom, right = around
        padded = (*shape[:2], shape[2] + top + bottom, shape[3] + left + right)
        inner = window_of(attributes, kernel, padded, where)
        pads = inner.pads
        return replace(inner, pads=(pads[0] + top, pads[1] + left, pads[2] + bottom, pads[3] + right))
    if len(kernel) != 2:
        raise UnsupportedError(f"{where}: {len(kernel)}-dimensional kernel; two dimensions are supported")
    stride = tuple(attributes.get("strides", (1, 1)))
    dilation = tuple(attributes.get("dilations", (1, 1)))
    edges = tuple(attributes.get("pads", (0, 0, 0, 0)))
    mode = attributes.get("auto_pad", "NOTSET")
    if mode in ("SAME_UPPER", "SAME_LOWER"):
        totals = []
        for size, k, s, d in zip(shape[2:], kernel, stride, dilation, strict=True):
            totals.append(max(0, (-(-size // s) - 1) * s + (k - 1) * d + 1 - size))
        small = [t // 2 for t in totals]
        large = [t - t // 2 for t in totals]
        first, last = (small, large) if mode == "SAME_UPPER" else (large, small)
        edges = (*first, *last)
    if attributes.get("ceil_mode"):
        edges = _ceil_pads(shape, kernel, stride, dilation, edges)
    four = (edges[0], edges[1], edges[2], edges[3])
    return Window((kernel[0], kernel[1]), (stride[0], stride[1]), four, (dilation[0], dilation[1]))


def _ceil_pads(shape: Shape, kernel: tuple[int, ...], stride: tuple[int, ...], dilation: tuple[int, ...],
               pads: tuple[int, ...]) -> Pads:
    """Padding below and right that makes floor arithmetic give the size `ceil_mode` asks for."""
    extra = []
    for i in range(2):
        span = shape[2 + i] + pads[i] + pads[i + 2] - ((kernel[i] - 1) * dilation[i] + 1)
        count = -(-span // stride[i]) + 1
        if (count - 1) * stride[i] >= shape[2 + i] + pads[i]:
            count -= 1  # a window may not start in the padding after the input
        extra.append(max(0, (count - 1) * stride[i] - span))
    return (pads[0], pads[1], pads[2] + extra[0], pads[3] + extra[1])
