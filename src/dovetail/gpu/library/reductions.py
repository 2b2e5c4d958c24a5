"""ONNX reductions, softmax and normalizations, as PyTorch's functions; sums of narrow floats in float32."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812  # its usual name

from dovetail.gpu.library.given import Given
from dovetail.gpu.library.pointwise import Compute


def reduced(function: Callable[[Any, tuple[int, ...], bool], Any]) -> Compute:
    """A reduction along axes that an input or an attribute states."""
    def compute(g: Given) -> Any:
        x, axes = g.wide(), g.ints(1, "axes")
        if not axes:
            if g.attr("noop_with_empty_axes", 0):
                return function(x.unsqueeze(0), (0,), False)
            axes = list(range(x.ndim))
        found = function(x, tuple(a % x.ndim for a in axes), bool(g.attr("keepdims", 1))) if x.ndim else function(
            x.reshape(1), (0,), False)
        return found.to(x.dtype)
    return compute


def multiplied(x: Any, axes: tuple[int, ...], keep: bool) -> Any:
    for axis in sorted(axes, reverse=True):
        x = torch.prod(x, axis, keepdim=keep)
    return x


def averaged(x: Any, axes: tuple[int, ...], keep: bool) -> Any:
    if x.is_floating_point():
        return torch.mean(x, axes, keepdim=keep)
    count = 1
    for a in axes:
        count *= x.shape[a]
    return torch.div(torch.sum(x, axes, keepdim=keep), count, rounding_mode="trunc")


def position(largest: bool) -> Compute:
    """Where the largest or smallest value along an axis is: the first of equal ones, or the last."""
    def compute(g: Given) -> Any:
        x, axis, keep = g.x(), g.attr("axis", 0), bool(g.attr("keepdims", 1))
        function = torch.argmax if largest else torch.argmin
        if g.attr("select_last_index", 0):
            return x.shape[axis] - 1 - function(x.flip(axis), axis, keepdim=keep)
        best = torch.amax(x, axis, keepdim=True) if largest else torch.amin(x, axis, keepdim=True)
        return torch.argmax((x == best).to(torch.int8), axis, keepdim=keep)  # the first one, which argmax alone need not find
    return compute


def soft(function: Callable[[Any, int], Any]) -> Compute:
    """Softmax along one axis; before opset 13 along all from that one on."""
    def compute(g: Given) -> Any:
        x = g.wide() if g.x().dtype == torch.bfloat16 else g.x()
        if g.opset >= 13:
            return function(x, g.attr("axis", -1))
        axis = g.attr("axis", 1) % max(x.ndim, 1)
        return function(x.reshape(*x.shape[:axis], -1), axis).reshape(x.shape)
    return compute


def hard(x: Any, axis: int) -> Any:
    best = torch.argmax((x == torch.amax(x, axis, keepdim=True)).to(torch.int8), axis, keepdim=True)
    return torch.zeros_like(x).scatter(axis, best, torch.ones_like(x))


def layer_normalized(g: Given) -> Any:
    x, axis = g.x(0), g.attr("axis", -1) % g.x(0).ndim
    own, eps = tuple(x.shape[axis:]), g.attr("epsilon", 1e-5)
    weight, bias = (None if (w := g.optional(i)) is None else w.to(x.dtype).broadcast_to(own) for i in (1, 2))
    found = F.layer_norm(x, own, weight, bias, eps)
    if len(g.shapes) < 2:
        return found
    axes = tuple(range(axis, x.ndim))
    mean = g.wide(0).mean(axes, keepdim=True)
    return found, mean, torch.rsqrt(((g.wide(0) - mean) ** 2).mean(axes, keepdim=True) + eps)


def root_normalized(g: Given) -> Any:
    x, axis = g.wide(0), g.attr("axis", -1) % g.x(0).ndim
    axes = tuple(range(axis, x.ndim))
    return (x * torch.rsqrt((x * x).mean(axes, keepdim=True) + g.attr("epsilon", 1e-5))).to(g.x(0).dtype) * g.x(1)


def skip_normalized(g: Given) -> Any:
    """ONNX Runtime's SkipLayerNormalization: input, skip, gamma, beta, bias."""
    total = g.x(0) + g.x(1)
    total = total + g.x(4) if g.has(4) else total
    weight, bias = (None if (w := g.optional(i)) is None else w.to(total.dtype) for i in (2, 3))
    found = F.layer_norm(total, (total.shape[-1],), weight, bias, g.attr("epsilon", 1e-12))
    return (found, None, None, total)[:max(len(g.shapes), 1)] if len(g.shapes) > 1 else found


def batch_normalized(g: Given) -> Any:
    x, along = g.x(0), (1, -1) + (1,) * (g.x(0).ndim - 2)
    scale, bias, mean, variance = (g.x(i).float() for i in range(1, 5))
    factor = scale * torch.rsqrt(variance + g.attr("epsilon", 1e-5))
    return (x.float() * factor.reshape(along) + (bias - mean * factor).reshape(along)).to(x.dtype)


def instance_normalized(g: Given) -> Any:
    x = g.wide(0)
    axes, along = tuple(range(2, x.ndim)), (1, -1) + (1,) * (x.ndim - 2)
    centred = x - x.mean(axes, keepdim=True)
    found = centred * torch.rsqrt((centred * centred).mean(axes, keepdim=True) + g.attr("epsilon", 1e-5))
    return (found * g.x(1).reshape(along) + g.x(2).reshape(along)).to(g.x(0).dtype)


def group_normalized(g: Given) -> Any:
    x, count = g.wide(0), g.attr("num_groups")
    apart = x.reshape(x.shape[0], count, -1)
    centred = apart - apart.mean(2, keepdim=True)
    found = (centred * torch.rsqrt((centred * centred).mean(2, keepdim=True) + g.attr("epsilon", 1e-5))).reshape(x.shape)
    weights = [g.x(1), g.x(2)]
    if weights[0].numel() == count and g.opset < 21:  # of groups; from opset 21 on of channels
        weights = [w.repeat_interleave(x.shape[1] // count) for w in weights]
    along = (1, -1) + (1,) * (x.ndim - 2)
    return (found * weights[0].reshape(along) + weights[1].reshape(along)).to(g.x(0).dtype)


def to_unit(g: Given) -> Any:
    x, axis, order = g.wide(), g.attr("axis", -1), g.attr("p", 2)
    norm = torch.linalg.vector_norm(x, order, axis, keepdim=True)
    return torch.where(norm == 0, torch.zeros_like(x), x / norm).to(g.x().dtype)


def locally_normalized(g: Given) -> Any:
    x, size = g.wide(), g.attr("size")
    squares, low = x * x, (size - 1) // 2
    padded = F.pad(squares, [0, 0] * (x.ndim - 2) + [low, size - 1 - low])
    total = sum(padded.narrow(1, i, x.shape[1]) for i in range(size))
    return (x / torch.pow(g.attr("bias", 1.0) + g.attr("alpha", 1e-4) / size * total, g.attr("beta", 0.75))).to(g.x().dtype)


def whitened(g: Given) -> Any:
    x, axes = g.wide(), tuple(g.attr("axes") or (0, 2, 3))
    mean = x.mean(axes, keepdim=True)
    deviation = torch.sqrt((x * x).mean(axes, keepdim=True) - mean * mean)
    return ((x - mean) / (deviation + 1e-9)).to(g.x().dtype)


REDUCTIONS: Mapping[str, Compute] = {
    "ReduceSum": reduced(lambda x, axes, keep: torch.sum(x, axes, keepdim=keep)), "ReduceMean": reduced(averaged),
    "ReduceMax": reduced(lambda x, axes, keep: torch.amax(x, axes, keepdim=keep)),
    "ReduceMin": reduced(lambda x, axes, keep: torch.amin(x, axes, keepdim=keep)), "ReduceProd": reduced(multiplied),
    "ReduceL1": reduced(lambda x, axes, keep: torch.sum(torch.abs(x), axes, keepdim=keep)),
    "ReduceL2": reduced(lambda x, axes, keep: torch.sqrt(torch.sum(x * x, axes, keepdim=keep))),
    "ReduceLogSum": reduced(lambda x, axes, keep: torch.log(torch.sum(x, axes, keepdim=keep))),
    "ReduceLogSumExp": reduced(lambda x, axes, keep: torch.logsumexp(x, axes, keepdim=keep)),
    "ReduceSumSquare": reduced(lambda x, axes, keep: torch.sum(x * x, axes, keepdim=keep)),
    "ArgMax": position(True), "ArgMin": position(False), "Softmax": soft(torch.softmax),
    "LogSoftmax": soft(torch.log_softmax), "Hardmax": soft(hard), "LayerNormalization": layer_normalized,
    "RMSNormalization": root_normalized, "BatchNormalization": batch_normalized, "InstanceNormalization": instance_normalized,
    "GroupNormalization": group_normalized, "LpNormalization": to_unit, "LRN": locally_normalized,
    "MeanVarianceNormalization": whitened,
}

CONTRIBUTED: Mapping[str, Compute] = {"SkipLayerNormalization": skip_normalized, "LayerNormalization": layer_normalized}
