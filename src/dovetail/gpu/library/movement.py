"""ONNX operators that move values, as PyTorch's functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812  # its usual name

from dovetail.gpu.library.given import Given
from dovetail.gpu.library.pointwise import ELEMENTS, Compute


def indices(g: Given, values: Any, axis: int, x: Any) -> Any:
    """Indices on the device, none below zero."""
    held = g.on_device(values) if isinstance(values, np.ndarray) else values
    held = held.long()
    return torch.where(held < 0, held + x.shape[axis], held)


def reshape(g: Given) -> Any:
    x, shape = g.x(), g.ints(1, "shape")
    if not g.attr("allowzero", 0):
        shape = [x.shape[i] if n == 0 else n for i, n in enumerate(shape)]
    return x.reshape(shape)


def flatten(g: Given) -> Any:
    x, axis = g.x(), g.attr("axis", 1)
    axis = axis + x.ndim if axis < 0 else axis
    return x.reshape(int(np.prod(x.shape[:axis])), -1)


def squeeze(g: Given) -> Any:
    x, axes = g.x(), g.ints(1, "axes")
    return x.squeeze() if axes is None else x.squeeze(tuple(axes))


def unsqueeze(g: Given) -> Any:
    x, axes = g.x(), g.ints(1, "axes")
    for axis in sorted(a + x.ndim + len(axes) if a < 0 else a for a in axes):
        x = x.unsqueeze(axis)
    return x


def transpose(g: Given) -> Any:
    x = g.x()
    return x.permute(g.attr("perm") or tuple(reversed(range(x.ndim))))


def concat(g: Given) -> Any:
    parts = [g.x(i) for i in range(g.count)]
    kinds = {p.dtype for p in parts}
    if len(kinds) > 1:
        parts = [p.to(torch.float32) if p.is_floating_point() else p for p in parts]
    return torch.cat(parts, g.attr("axis"))


def split(g: Given) -> Any:
    x, axis, sizes = g.x(), g.attr("axis", 0), g.ints(1, "split")
    if sizes is None:
        count = g.attr("num_outputs") or len(g.shapes)
        share = -(-x.shape[axis] // count)
        sizes = [share] * (count - 1) + [x.shape[axis] - share * (count - 1)]
    return torch.split(x, sizes, axis)


def slice_(g: Given) -> Any:
    x = g.x()
    starts, stops = g.ints(1, "starts"), g.ints(2, "ends")
    axes = g.ints(3, "axes") or list(range(len(starts)))
    steps = g.ints(4) or [1] * len(starts)
    for axis, start, stop, step in zip(axes, starts, stops, steps, strict=True):
        size = x.shape[axis]
        kept = list(range(size))[_bounded(start, stop, step, size)]
        if step > 0:
            x = torch.narrow(x, axis, kept[0] if kept else 0, kept[-1] - kept[0] + 1 if kept else 0)
            x = x if step == 1 else x[(slice(None),) * (axis % x.ndim) + (slice(None, None, step),)]
        else:
            x = torch.index_select(x, axis, g.on_device(np.array(kept, np.int64)))
    return x


def _bounded(start: int, stop: int, step: int, size: int) -> slice:
    """ONNX's bounds as Python's: far beyond either end means that end."""
    if step < 0 and stop < -size:
        return slice(min(start, size - 1), None, step)
    return slice(max(start, -size), max(stop, -size), step)


def gather(g: Given) -> Any:
    x, axis = g.x(0), g.attr("axis", 0)
    axis = axis + x.ndim if axis < 0 else axis
    chosen = g.values[1]
    if isinstance(chosen, np.ndarray) and chosen.ndim == 0:
        return x.select(axis, int(chosen))
    index = indices(g, chosen, axis, x)
    found = torch.index_select(x, axis, index.reshape(-1))
    return found.reshape(*x.shape[:axis], *index.shape, *x.shape[axis + 1:])


def gather_elements(g: Given) -> Any:
    x, axis = g.x(0), g.attr("axis", 0)
    return torch.gather(x, axis, indices(g, g.values[1], axis, x))


def gather_nd(g: Given) -> Any:
    x, index, batch = g.x(0), g.x(1).long(), g.attr("batch_dims", 0)
    depth = index.shape[-1]
    lead = [torch.arange(n, device=x.device).reshape([-1 if i == j else 1 for j in range(index.ndim - 1)])
            for i, n in enumerate(x.shape[:batch])]
    own = [index[..., i] for i in range(depth)]
    own = [torch.where(i < 0, i + x.shape[batch + d], i) for d, i in enumerate(own)]
    return x[(*lead, *own)]


SCATTERS = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}


def scatter_elements(g: Given) -> Any:
    x, axis = g.x(0), g.attr("axis", 0)
    index, updates, how = indices(g, g.values[1], axis, x), g.x(2).to(x.dtype), g.attr("reduction", "none")
    if how == "none":
        return x.scatter(axis, index, updates)
    return x.scatter_reduce(axis, index, updates, SCATTERS[how])


def scatter_nd(g: Given) -> Any:
    x, index, updates, how = g.x(0), g.x(1).long(), g.x(2).to(g.x(0).dtype), g.attr("reduction", "none")
    depth = index.shape[-1]
    sizes = x.shape[:depth]
    flat = torch.zeros(index.shape[:-1], dtype=torch.int64, device=x.device)
    for d, n in enumerate(sizes):
        one = index[..., d]
        flat = flat * n + torch.where(one < 0, one + n, one)
    rows, count = x.reshape(int(np.prod(sizes)), -1), flat.numel()
    own = updates.reshape(count, -1)
    where = flat.reshape(-1, 1).expand(count, rows.shape[1])
    found = rows.scatter(0, where, own) if how == "none" else rows.scatter_reduce(0, where, own, SCATTERS[how])
    return found.reshape(x.shape)


def expand(g: Given) -> Any:
    x, shape = g.x(), g.ints(1)
    return x.expand(torch.broadcast_shapes(x.shape, tuple(shape)))


def pad(g: Given) -> Any:
    x, amounts, mode = g.x(), g.ints(1, "pads"), g.attr("mode", "constant")
    axes = [a % x.ndim for a in (g.ints(3) or range(x.ndim))]
    before = {a: n for a, n in zip(axes, amounts[:len(axes)], strict=True)}
    after = {a: n for a, n in zip(axes, amounts[len(axes):], strict=True)}
    if mode == "constant":
        value = g.array(2).item() if g.has(2) else g.attr("value", 0.0)
        flat = [n for a in reversed(range(x.ndim)) for n in (before.get(a, 0), after.get(a, 0))]
        return F.pad(x, flat, value=value)
    for axis in axes:  # the other modes choose values
        size, lo, hi = x.shape[axis], before[axis], after[axis]
        if lo or hi:
            x = torch.index_select(x, axis, g.on_device(np.array([_padded(i, size, mode) for i in range(-lo, size + hi)])))
    return x


def _padded(index: int, size: int, mode: str) -> int:
    """Which value stands beyond an edge."""
    if mode == "edge":
        return min(max(index, 0), size - 1)
    if mode == "wrap":
        return index % size
    turn = 2 * (size - 1)
    return 0 if turn == 0 else (size - 1) - abs((index % turn) - (size - 1))


def depth_to_space(g: Given) -> Any:
    x, b = g.x(), g.attr("blocksize")
    n, c, h, w = x.shape
    if g.attr("mode", "DCR") == "CRD":
        return x.reshape(n, c // b**2, b, b, h, w).permute(0, 1, 4, 2, 5, 3).reshape(n, c // b**2, h * b, w * b)
    return x.reshape(n, b, b, c // b**2, h, w).permute(0, 3, 4, 1, 5, 2).reshape(n, c // b**2, h * b, w * b)


def space_to_depth(g: Given) -> Any:
    x, b = g.x(), g.attr("blocksize")
    n, c, h, w = x.shape
    return x.reshape(n, c, h // b, b, w // b, b).permute(0, 3, 5, 1, 2, 4).reshape(n, c * b**2, h // b, w // b)


def triangle(g: Given) -> Any:
    k = int(g.array(1).item()) if g.has(1) else 0
    return torch.triu(g.x(), k) if g.attr("upper", 1) else torch.tril(g.x(), k)


def one_hot(g: Given) -> Any:
    depth, axis, values = int(np.asarray(g.array(1)).reshape(-1)[0]), g.attr("axis", -1), g.x(2)
    index = g.x(0).long()
    index = torch.where(index < 0, index + depth, index)
    steps = torch.arange(depth, device=index.device)
    hot = (index.unsqueeze(-1) == steps).movedim(-1, axis)
    return torch.where(hot, values[1], values[0])


def cumulated(g: Given) -> Any:
    x, axis = g.wide(0), int(np.asarray(g.array(1)).reshape(-1)[0])
    x = x.flip(axis) if g.attr("reverse", 0) else x
    total = torch.cumsum(x, axis).to(x.dtype)
    total = total - x if g.attr("exclusive", 0) else total
    return total.flip(axis) if g.attr("reverse", 0) else total


def top(g: Given) -> Any:
    k = int(np.asarray(g.array(1)).reshape(-1)[0])
    values, index = torch.sort(g.x(0), dim=g.attr("axis", -1), descending=bool(g.attr("largest", 1)), stable=True)
    axis = g.attr("axis", -1)
    return values.narrow(axis, 0, k), index.narrow(axis, 0, k)


def reverse_sequence(g: Given) -> Any:
    x, lengths = g.x(0), g.x(1).long()
    time, batch = g.attr("time_axis", 0), g.attr("batch_axis", 1)
    steps = torch.arange(x.shape[time], device=x.device).reshape([-1 if d == time else 1 for d in range(2)])
    own = lengths.reshape([-1 if d == batch else 1 for d in range(2)])
    index = torch.where(steps < own, own - 1 - steps, steps)
    return torch.gather(x, time, index.reshape(*index.shape, *(1,) * (x.ndim - 2)).expand(x.shape))


def filled(g: Given) -> Any:
    value = g.attr("value")
    value = np.zeros(1, np.float32) if value is None else value
    return g.on_device(np.broadcast_to(value, g.ints(0)).copy())


def diagonal(g: Given) -> Any:
    rows, columns = g.x().shape
    kind = ELEMENTS.get(g.attr("dtype")) or g.x().dtype
    return torch.diag_embed(torch.ones(max(rows, columns), device=g.x().device), g.attr("k", 0))[:rows, :columns].to(kind)


def cropped(g: Given) -> Any:
    x, wanted = g.x(), g.ints(1)
    axes = [a % x.ndim for a in (g.attr("axes") or range(x.ndim))]
    for axis, size in zip(axes, wanted, strict=True):
        spare = x.shape[axis] - size
        if spare >= 0:
            x = torch.narrow(x, axis, spare // 2, size)
        else:
            low = -spare // 2
            x = F.pad(x, [0, 0] * (x.ndim - 1 - axis) + [low, -spare - low])
    return x


def folded(g: Given) -> Any:
    """Col2Im over two dimensions."""
    x, size, block, pads = g.x(), g.ints(1), g.ints(2), g.attr("pads") or [0] * 4
    if len(size) != 2:
        raise g.unsupported(f"Col2Im over {len(size)} dimensions")
    whole = [size[0] + pads[0] + pads[2], size[1] + pads[1] + pads[3]]
    made = F.fold(x, whole, block, g.attr("dilations") or 1, 0, g.attr("strides") or 1)
    return made[..., pads[0]:pads[0] + size[0], pads[1]:pads[1] + size[1]]


MOVEMENT: Mapping[str, Compute] = {
    "Reshape": reshape, "Flatten": flatten, "Squeeze": squeeze, "Unsqueeze": unsqueeze, "Transpose": transpose,
    "Concat": concat, "Split": split, "Slice": slice_, "Gather": gather, "GatherElements": gather_elements,
    "GatherND": gather_nd, "ScatterElements": scatter_elements, "ScatterND": scatter_nd, "Expand": expand,
    "Tile": lambda g: g.x().repeat(g.ints(1)), "Pad": pad, "DepthToSpace": depth_to_space, "SpaceToDepth": space_to_depth,
    "Trilu": triangle, "OneHot": one_hot, "CumSum": cumulated, "TopK": top, "ReverseSequence": reverse_sequence,
    "ConstantOfShape": filled, "EyeLike": diagonal, "CenterCropPad": cropped, "Col2Im": folded,
    "Constant": lambda g: g.on_device(np.asarray(next(iter(g.attributes.values())))),
    "Shape": lambda g: g.on_device(np.array(g.x().shape[g.attr("start", 0):g.attr("end")], np.int64)),
    "Size": lambda g: g.on_device(np.array(g.x().numel(), np.int64)),
    "Range": lambda g: g.on_device(np.arange(g.array(0).item(), g.array(1).item(), g.array(2).item(), dtype=g.array(0).dtype)),
}
