"""ONNX operators that sample maps anew, as PyTorch's functions."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil, floor
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812  # its usual name

from dovetail.gpu.library.given import Given
from dovetail.gpu.library.pointwise import Compute
from dovetail.ir import Array


def resize(g: Given) -> Any:
    """Resize, axis by axis: every value is a weighted sum of a few of the axis (nearest: of one)."""
    x = g.x()
    axes = [a % x.ndim for a in (g.attr("axes") or range(x.ndim))]
    scales = [float(v) for v in g.array(2).reshape(-1)] if g.has(2) else []
    sizes = g.ints(3) if g.has(3) else []
    if not scales and sizes:
        scales = _scales(g, sizes, [x.shape[a] for a in axes])
    if not scales:
        raise g.unsupported("neither scales nor sizes of a Resize are known")
    whole = bool(sizes) and g.attr("keep_aspect_ratio_policy", "stretch") == "stretch"
    wanted = sizes if whole else [_size(g, x.shape[a], s, bool(sizes)) for a, s in zip(axes, scales, strict=True)]
    if _as_torch(g, x, axes, scales, wanted):
        corners = g.attr("coordinate_transformation_mode", "half_pixel") == "align_corners"
        return F.interpolate(x, size=tuple(wanted[axes.index(a)] for a in (2, 3)), mode="bilinear", align_corners=corners)
    region = [float(v) for v in g.array(1).reshape(-1)] if g.has(1) and g.array(1).size else []
    outside = np.zeros(0, bool)
    for i, (axis, scale, size) in enumerate(zip(axes, scales, wanted, strict=True)):
        crop = (region[i], region[i + len(axes)]) if region else (0.0, 1.0)
        if size != x.shape[axis] or scale != 1.0 or crop != (0.0, 1.0):
            x, outside = _along(g, x, axis, scale, size, crop)
            if outside.any():
                beyond = g.on_device(outside).reshape([-1 if d == axis else 1 for d in range(x.ndim)])
                x = torch.where(beyond, g.attr("extrapolation_value", 0.0), x)
    return x


def _scales(g: Given, sizes: list[int], own: list[int]) -> list[float]:
    ratios = [s / n for s, n in zip(sizes, own, strict=True)]
    policy = g.attr("keep_aspect_ratio_policy", "stretch")
    if policy == "stretch":
        return ratios
    return [min(ratios) if policy == "not_larger" else max(ratios)] * len(sizes)


def _size(g: Given, own: int, scale: float, rounds: bool) -> int:
    return floor(own * scale + 0.5) if rounds else floor(own * scale)


def _as_torch(g: Given, x: Any, axes: list[int], scales: list[float], wanted: list[int]) -> bool:
    """Whether PyTorch's own bilinear enlargement is this one."""
    linear = g.attr("mode", "nearest") == "linear" and not g.attr("antialias", 0) and not g.attr("exclude_outside", 0)
    mode = g.attr("coordinate_transformation_mode", "half_pixel")
    still = all(scales[axes.index(a)] == 1.0 for a in (0, 1) if a in axes)
    exact = all(abs(n * s - w) < 1e-6 for n, s, w in zip((x.shape[a] for a in axes), scales, wanted, strict=True))
    enlarges = mode != "pytorch_half_pixel" or min(wanted) > 1
    return linear and mode in ("half_pixel", "pytorch_half_pixel", "align_corners") and x.ndim == 4 and still and exact \
        and enlarges and {2, 3} <= set(axes) and x.is_floating_point()


def _along(g: Given, x: Any, axis: int, scale: float, size: int, crop: tuple[float, float]) -> tuple[Any, Array]:
    places, weights, outside = taps(g, x.shape[axis], scale, size, crop)
    if places.shape[1] == 1 and (weights == 1).all():
        return torch.index_select(x, axis, g.on_device(places[:, 0])), outside
    along = [-1 if d == axis else 1 for d in range(x.ndim)]
    wide = x.float() if x.is_floating_point() else x.double()
    kind = np.float32 if wide.dtype == torch.float32 else np.float64
    total: Any = 0.0
    for place, weight in zip(places.T, weights.T.astype(kind), strict=True):
        own = g.on_device(weight.copy(), as_is=True).reshape(along)
        total = total + torch.index_select(wide, axis, g.on_device(place.copy())) * own
    return (total if x.is_floating_point() else torch.trunc(total)).to(x.dtype), outside


def taps(g: Given, own: int, scale: float, size: int, crop: tuple[float, float]) -> tuple[Array, Array, Array]:
    """Of every result along an axis: the values it is made of, their weights, and whether it lies outside."""
    mode, how = g.attr("mode", "nearest"), g.attr("coordinate_transformation_mode", "half_pixel")
    at = np.array([coordinate(i, scale, own, size, how, crop) for i in range(size)])
    outside = (at < 0) | (at > own - 1) if how == "tf_crop_and_resize" else np.zeros(size, bool)
    if mode == "nearest":
        places = np.clip([[nearest(v, g.attr("nearest_mode", "round_prefer_floor"))] for v in at], 0, own - 1)
        return places.astype(np.int64), np.ones((size, 1)), outside
    stretched = min(scale, 1.0) if g.attr("antialias", 0) else 1.0
    reach = (1 if mode == "linear" else 2) / stretched
    width = ceil(2 * reach) + 1
    first = np.floor(at - reach).astype(int) + (0 if stretched < 1 else 1)
    width = width if stretched < 1 else int(2 * reach)
    places = first[:, None] + np.arange(width)
    distance = np.abs(places - at[:, None]) * stretched
    weights = np.maximum(1 - distance, 0) if mode == "linear" else cubic(distance, g.attr("cubic_coeff_a", -0.75))
    if g.attr("exclude_outside", 0):
        weights = np.where((places < 0) | (places >= own), 0, weights)
    if g.attr("exclude_outside", 0) or stretched < 1:
        weights = weights / weights.sum(1, keepdims=True)
    return np.clip(places, 0, own - 1), weights, outside


def coordinate(i: int, scale: float, own: int, size: int, how: str, crop: tuple[float, float]) -> float:
    """Where a result lies in what it is made of; source: ONNX's description of Resize."""
    if how == "align_corners":
        return i * (own - 1) / (size - 1) if size > 1 else 0.0
    if how == "asymmetric":
        return i / scale
    if how == "pytorch_half_pixel" and size == 1:
        return 0.0
    if how == "tf_half_pixel_for_nn":
        return (i + 0.5) / scale
    if how == "tf_crop_and_resize":
        step = (crop[1] - crop[0]) * (own - 1)
        return crop[0] * (own - 1) + i * step / (size - 1) if size > 1 else 0.5 * (crop[0] + crop[1]) * (own - 1)
    middle = own / 2 * (1 - size / (scale * own)) if how == "half_pixel_symmetric" else 0.0
    return middle + (i + 0.5) / scale - 0.5


def nearest(at: float, how: str) -> int:
    if how == "floor":
        return floor(at)
    if how == "ceil":
        return ceil(at)
    return ceil(at - 0.5) if how == "round_prefer_floor" else floor(at + 0.5)


def cubic(distance: Array, a: float) -> Array:
    """The kernel of Keys 1981."""
    near = ((a + 2) * distance - (a + 3)) * distance**2 + 1
    far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
    result: Array = np.where(distance <= 1, near, np.where(distance < 2, far, 0.0))
    return result


def grid_sampled(g: Given) -> Any:
    modes = {"bilinear": "bilinear", "linear": "bilinear", "nearest": "nearest", "bicubic": "bicubic", "cubic": "bicubic"}
    x, grid = g.typed(0), g.x(1)
    return F.grid_sample(x.float(), grid.float(), modes[g.attr("mode", "bilinear")], g.attr("padding_mode", "zeros"),
                         bool(g.attr("align_corners", 0))).to(x.dtype)


def affine_grid(g: Given) -> Any:
    return F.affine_grid(g.wide(0), g.ints(1), bool(g.attr("align_corners", 0)))


def upsampled(g: Given) -> Any:
    """Upsample of opset 9: asymmetric, nearest or linear."""
    scales = g.array(1) if g.has(1) else np.array(g.attr("scales"), np.float32)
    asked = {"mode": g.attr("mode", "nearest"), "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    return resize(Given(g.where, (g.values[0], None, scales), asked, g.real, g.device, g.constants, g.opset, g.shapes))


RESIZING: Mapping[str, Compute] = {"Resize": resize, "Upsample": upsampled, "GridSample": grid_sampled, "AffineGrid": affine_grid}
