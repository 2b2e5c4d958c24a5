"""ONNX products of matrices, convolutions, pooling and quantizers, as PyTorch's functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf, prod
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812  # its usual name

from dovetail.gpu.library.given import Given
from dovetail.gpu.library.pointwise import Compute

CONVOLUTIONS = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
TRANSPOSED = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}
MAXIMA = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
MEANS = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}


def product(g: Given) -> Any:
    a, b = g.typed(0), g.typed(1)
    if not a.is_floating_point():
        return torch.matmul(a.double(), b.double()).to(a.dtype)  # no library multiplies integers; exact below 2**53
    return torch.matmul(a, b)


def general_product(g: Given) -> Any:
    a, b = g.typed(0), g.typed(1)
    a, b = a.T if g.attr("transA", 0) else a, b.T if g.attr("transB", 0) else b
    alpha, beta = g.attr("alpha", 1.0), g.attr("beta", 1.0)
    if not a.is_floating_point():
        found = torch.matmul(a.double(), b.double()) * alpha
        return (found + beta * g.x(2) if g.has(2) else found).to(g.x(0).dtype)
    if g.has(2) and beta:
        return torch.addmm(g.typed(2), a, b, beta=beta, alpha=alpha)
    return torch.matmul(a, b) * alpha if alpha != 1.0 else torch.matmul(a, b)


def fused_product(g: Given) -> Any:
    """ONNX Runtime's FusedMatMul."""
    a, b = g.typed(0), g.typed(1)
    a, b = a.mT if g.attr("transA", 0) else a, b.mT if g.attr("transB", 0) else b
    return torch.matmul(a, b) * g.attr("alpha", 1.0)


def contracted(g: Given) -> Any:
    return torch.einsum(g.attr("equation").replace(" ", ""), *(g.typed(i) for i in range(g.count)))


def amounts(g: Given, sizes: Sequence[int], reach: Sequence[int], strides: Sequence[int]) -> tuple[list[int], list[int]]:
    """Padding before and after each dimension, as stated or for outputs of the size of inputs over strides."""
    given, automatic = g.attr("pads"), g.attr("auto_pad", "NOTSET")
    if automatic in ("SAME_UPPER", "SAME_LOWER"):
        total = [max((-(-n // s) - 1) * s + r - n, 0) for n, s, r in zip(sizes, strides, reach, strict=True)]
        small, large = [t // 2 for t in total], [t - t // 2 for t in total]
        return (small, large) if automatic == "SAME_UPPER" else (large, small)
    given = given if given and automatic == "NOTSET" else [0] * 2 * len(sizes)
    return list(given[:len(sizes)]), list(given[len(sizes):])


def padded(x: Any, before: Sequence[int], after: Sequence[int], value: float = 0.0) -> Any:
    if not any((*before, *after)):
        return x
    return F.pad(x, [n for pair in reversed(list(zip(before, after, strict=True))) for n in pair], value=value)


def window(g: Given, kernel: Sequence[int]) -> tuple[list[int], list[int], list[int]]:
    """Strides, dilations, and what a dilated kernel covers."""
    rank = len(kernel)
    strides, dilations = g.attr("strides") or [1] * rank, g.attr("dilations") or [1] * rank
    return list(strides), list(dilations), [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]


def convolved(g: Given) -> Any:
    x, weight, bias = g.typed(0), g.typed(1), g.typed(2) if g.has(2) else None
    rank = x.ndim - 2
    strides, dilations, reach = window(g, weight.shape[2:])
    before, after = amounts(g, x.shape[2:], reach, strides)
    if before != after:
        x, before = padded(x, before, after), [0] * rank
    return CONVOLUTIONS[rank](x, weight, bias, strides, before, dilations, g.attr("group", 1))


def transposed(g: Given) -> Any:
    x, weight, bias = g.typed(0), g.typed(1), g.typed(2) if g.has(2) else None
    rank, groups = x.ndim - 2, g.attr("group", 1)
    strides, dilations, reach = window(g, weight.shape[2:])
    extra = g.attr("output_padding") or [0] * rank
    full = [(n - 1) * s + r for n, s, r in zip(x.shape[2:], strides, reach, strict=True)]
    before, after = _cut(g, full, extra, x.shape[2:], strides)
    if before == after and all(b <= r - 1 for b, r in zip(before, reach, strict=True)) and all(
            e < max(s, d) for e, s, d in zip(extra, strides, dilations, strict=True)):
        return TRANSPOSED[rank](x, weight, bias, strides, before, extra, groups, dilations)
    made = TRANSPOSED[rank](x, weight, None, strides, 0, 0, groups, dilations)
    made = padded(made, [-b for b in before], [e - a for e, a in zip(extra, after, strict=True)])
    return made if bias is None else made + bias.reshape(-1, *(1,) * rank)


def _cut(g: Given, full: Sequence[int], extra: Sequence[int], sizes: Sequence[int],
         strides: Sequence[int]) -> tuple[list[int], list[int]]:
    """What is cut off before and after each dimension of a transposed convolution."""
    automatic, wanted = g.attr("auto_pad", "NOTSET"), g.attr("output_shape")
    if automatic in ("SAME_UPPER", "SAME_LOWER") and not wanted:
        wanted = [n * s for n, s in zip(sizes, strides, strict=True)]
    if wanted:
        total = [max(f + e - w, 0) for f, e, w in zip(full, extra, list(wanted)[-len(full):], strict=True)]
        small, large = [t // 2 for t in total], [t - t // 2 for t in total]
        return (small, large) if automatic == "SAME_UPPER" else (large, small)
    given = g.attr("pads") if automatic == "NOTSET" else None
    given = given or [0] * 2 * len(full)
    return list(given[:len(full)]), list(given[len(full):])


def _pooling(g: Given) -> tuple[list[int], list[int], list[int], list[int], list[int], list[int]]:
    """Kernel, strides, dilations, padding before, stated padding after, and that with what rounding up adds."""
    kernel, sizes = list(g.attr("kernel_shape")), list(g.x().shape[2:])
    strides, dilations, reach = window(g, kernel)
    before, after = amounts(g, sizes, reach, strides)
    whole = [n + b + a for n, b, a in zip(sizes, before, after, strict=True)]
    counts = [-(-(w - r) // s) + 1 if g.attr("ceil_mode", 0) else (w - r) // s + 1
              for w, r, s in zip(whole, reach, strides, strict=True)]
    counts = [c - ((c - 1) * s >= n + b) for c, s, n, b in zip(counts, strides, sizes, before, strict=True)]
    rounded = [a + max((c - 1) * s + r - w, 0) for a, c, s, r, w in zip(after, counts, strides, reach, whole, strict=True)]
    return kernel, strides, dilations, before, after, rounded


def largest(g: Given) -> Any:
    x, rank = g.x(), g.x().ndim - 2
    if len(g.shapes) > 1:
        return _largest_with_places(g)
    kernel, strides, dilations, before, _, after = _pooling(g)
    lowest = -inf if x.is_floating_point() else torch.iinfo(x.dtype).min
    if not x.is_floating_point():
        return MAXIMA[rank](padded(x.float(), before, after, lowest), kernel, strides, 0, dilations).to(x.dtype)
    if before == after and all(2 * b <= k for b, k in zip(before, kernel, strict=True)):
        return MAXIMA[rank](x, kernel, strides, before, dilations)
    return MAXIMA[rank](padded(x, before, after, lowest), kernel, strides, 0, dilations)


def _largest_with_places(g: Given) -> Any:
    x, rank = g.x(), g.x().ndim - 2
    kernel, strides, dilations, before, _, after = _pooling(g)
    if before != after or any(2 * b > k for b, k in zip(before, kernel, strict=True)) or g.attr("storage_order", 0):
        raise g.unsupported("MaxPool with indices, of uneven padding or columns first")
    values, places = MAXIMA[rank](x, kernel, strides, before, dilations, return_indices=True)
    maps = torch.arange(prod(x.shape[:2]), device=x.device).reshape(*x.shape[:2], *(1,) * rank) * prod(x.shape[2:])
    return values, places + maps


def averaged(g: Given) -> Any:
    x, rank = g.x(), g.x().ndim - 2
    kernel, strides, dilations, before, after, rounded = _pooling(g)
    counts_pads = bool(g.attr("count_include_pad", 0))
    plain = rounded == after == before and all(d == 1 for d in dilations) and all(
        2 * b <= k for b, k in zip(before, kernel, strict=True))
    if plain:
        return MEANS[rank](x, kernel, strides, before, False, counts_pads)
    values = padded(x, before, rounded)
    if any(d != 1 for d in dilations):
        ones = torch.ones((x.shape[1], 1, *kernel), dtype=x.dtype, device=x.device)
        total = CONVOLUTIONS[rank](values, ones, None, strides, 0, dilations, x.shape[1])
    else:
        total = MEANS[rank](values, kernel, strides) * prod(kernel)
    own = np.pad(np.ones(tuple(x.shape[2:])), list(zip(before, after, strict=True)), constant_values=float(counts_pads))
    own = np.pad(own, [(0, r - a) for r, a in zip(rounded, after, strict=True)])
    counted = CONVOLUTIONS[rank](torch.from_numpy(own)[None, None], torch.ones((1, 1, *kernel), dtype=torch.float64), None,
                                 strides, 0, dilations)
    return (total.float() / g.on_device(counted[0, 0].float().numpy(), as_is=True)).to(x.dtype)


def normed(g: Given) -> Any:
    """LpPool."""
    order, x, rank = g.attr("p", 2), g.wide(), g.x().ndim - 2
    kernel, strides, dilations, before, _, after = _pooling(g)
    powers = padded(torch.abs(x) ** order, before, after)
    ones = torch.ones((x.shape[1], 1, *kernel), dtype=x.dtype, device=x.device)
    return torch.pow(CONVOLUTIONS[rank](powers, ones, None, strides, 0, dilations, x.shape[1]), 1 / order).to(g.x().dtype)


def over_maps(g: Given) -> tuple[int, ...]:
    return tuple(range(2, g.x().ndim))


def along(values: Any, axis: int, rank: int) -> Any:
    """One scale for all, or one for each index of an axis."""
    return values if values.numel() == 1 else values.reshape([-1 if d == axis % rank else 1 for d in range(rank)])


def dequantized(g: Given) -> Any:
    x, axis = g.x(0), g.attr("axis", 1)
    scale = along(g.x(1).float(), axis, x.ndim)
    zero = along(g.x(2), axis, x.ndim).float() if g.has(2) else 0.0
    return (x.float() - zero) * scale


def quantized(g: Given) -> Any:
    x, axis = g.wide(0), g.attr("axis", 1)
    scale = along(g.x(1).float(), axis, x.ndim)
    zero = along(g.x(2), axis, x.ndim) if g.has(2) else torch.zeros((), dtype=torch.uint8, device=x.device)
    held = torch.iinfo(zero.dtype)
    return torch.clamp(torch.round(x / scale) + zero.float(), held.min, held.max).to(zero.dtype)


def quantized_anew(g: Given) -> Any:
    """DynamicQuantizeLinear."""
    x = g.x().float()
    low, high = torch.clamp(x.amin(), max=0.0), torch.clamp(x.amax(), min=0.0)
    scale = (high - low) / 255
    zero = torch.clamp(torch.round(-low / torch.where(scale == 0, 1.0, scale)), 0, 255)
    codes = torch.clamp(torch.round(x / torch.where(scale == 0, 1.0, scale)) + zero, 0, 255).to(torch.uint8)
    return codes, scale, zero.to(torch.uint8)


def integer_product(g: Given) -> Any:
    a, b = (g.x(i).double() - (g.x(i + 2).double() if g.has(i + 2) else 0.0) for i in range(2))
    return torch.matmul(a, b).to(torch.int32)


def integer_convolution(g: Given) -> Any:
    x, weight = (g.x(i).double() - (g.x(i + 2).double() if g.has(i + 2) else 0.0) for i in range(2))
    strides, dilations, reach = window(g, weight.shape[2:])
    before, after = amounts(g, x.shape[2:], reach, strides)
    total = CONVOLUTIONS[x.ndim - 2](padded(x, before, after), weight, None, strides, 0, dilations, g.attr("group", 1))
    return total.to(torch.int32)


PRODUCTS: Mapping[str, Compute] = {
    "MatMul": product, "Gemm": general_product, "Einsum": contracted, "Conv": convolved, "ConvTranspose": transposed,
    "MaxPool": largest, "AveragePool": averaged, "LpPool": normed,
    "GlobalAveragePool": lambda g: g.wide().mean(over_maps(g), keepdim=True).to(g.x().dtype),
    "GlobalMaxPool": lambda g: g.x().amax(over_maps(g), keepdim=True),
    "GlobalLpPool": lambda g: torch.linalg.vector_norm(g.wide(), g.attr("p", 2), over_maps(g), keepdim=True).to(g.x().dtype),
    "DequantizeLinear": dequantized, "QuantizeLinear": quantized, "DynamicQuantizeLinear": quantized_anew,
    "MatMulInteger": integer_product, "ConvInteger": integer_convolution,
}

CONTRIBUTED: Mapping[str, Compute] = {"FusedMatMul": fused_product, "DequantizeLinear": dequantized, "QuantizeLinear": quantized}
