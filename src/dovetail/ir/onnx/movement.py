"""Reading ONNX operators that only move data: alone or in a row, they become one `Select`, `Transpose` or `Reshape`.

Exporters spell one movement in many ways (a channel shuffle is three nodes, or five with a Gather behind it), so no
pattern is matched: the reader remembers from which tensor a value's elements come and asks `recognise` what the whole
way is. Nodes in between that nobody else reads disappear with `onnx_read`'s unread nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Any

import numpy as np

from dovetail.ir import Op, Reshape, Shape
from dovetail.ir.onnx.file import copied
from dovetail.ir.onnx.state import Attributes, Reader
from dovetail.ir.operators.movement import LARGEST_TRACED, PixelShuffle, Select, Step, Taken, Transpose, Upsample, recognise


def trace(reader: Reader, source: str, step: Step) -> tuple[str, tuple[Step, ...]]:
    """The tensor a moved value starts from, and all movements up to and with `step`.

    A tensor with a scheme of its own is a new start: a change of scale is no movement.
    """
    tensor = reader.tensor(source)
    root, steps = reader.moved.get(tensor, (tensor, ()))
    if tensor in reader.schemes and reader.schemes[tensor] != reader.schemes.get(root):
        root, steps = tensor, ()
    return root, (*steps, step)


def add_moved(reader: Reader, proto: Any, steps: Sequence[Step], alone: Op | None) -> None:
    """Add what the outputs of a node are, `steps` having one movement per output; `alone` is the node by itself."""
    source = proto.input[0]
    reader.shape(source, proto.name)
    found = []
    for output, step in zip(proto.output, steps, strict=True):
        root, way = reader.moved[output] = trace(reader, source, step)
        op = recognise(reader.shape(root, proto.name), way)
        apart = op is None or (not reader.traces and op.repeats == (1, 1))  # a file of ours splits pixel shuffles alone
        if apart and len(way) > 1:  # perhaps the last movement alone is one of ours
            root, op = reader.tensor(source), recognise(reader.shape(source, proto.name), (step,))
        found.append((output, op, root))
    if any(op is None for _, op, _ in found):
        if alone is None:
            raise reader.unsupported(proto, f"{proto.op_type} moves more than whole channels")
        reader.add(proto, alone)
        return
    several = sum(1 for output, *_ in found if output in reader.users) > 1
    for index, (output, op, root) in enumerate(found):
        if output not in reader.users or op is None:
            continue
        shape = reader.shape(root, proto.name)
        if reader.traces and op in (Reshape(shape), Select(tuple(range(shape[1] if len(shape) > 1 else 1)))):
            reader.alias[output] = root
            continue
        reader.add(with_output(proto, output, f"{proto.name}_{index}" if several and proto.name else proto.name), op, [root])


def with_output(proto: Any, output: str, name: str) -> Any:
    """A node with one output alone."""
    copy = copied(proto)
    copy.output[:] = [output]
    copy.name = name
    return copy


def add_reshaped(reader: Reader, proto: Any, shape: Shape) -> None:
    """A change of shape; behind other movements it may be the last part of one of ours."""
    if shape[:1] != reader.shape(proto.input[0], proto.name)[:1]:
        _remember_reshape(reader, proto, shape)
        raise reader.unsupported(proto, f"{proto.op_type} changes the batch")
    if reader.tensor(proto.input[0]) in reader.moved:
        add_moved(reader, proto, [lambda x: x.reshape(shape)], Reshape(shape))
        return
    reader.add(proto, Reshape(shape))
    _remember_reshape(reader, proto, shape)


def _remember_reshape(reader: Reader, proto: Any, shape: Shape) -> None:
    reader.moved[proto.output[0]] = trace(reader, proto.input[0], lambda x: x.reshape(shape))


def _transpose(reader: Reader, proto: Any, a: Attributes) -> None:
    rank = len(reader.shape(proto.input[0], proto.name))
    perm = tuple(int(i) for i in a.get("perm", range(rank)[::-1]))
    alone = Transpose(perm) if perm[:1] == (0,) else None
    add_moved(reader, proto, [lambda x: x.transpose(perm)], alone)


def _split(reader: Reader, proto: Any, a: Attributes) -> None:
    shape = reader.shape(proto.input[0], proto.name)
    axis, count = int(a.get("axis", 0)) % len(shape), len(proto.output)
    sizes = reader.integers(proto, a, "split", 1)
    if sizes is None:
        each = -(-shape[axis] // count)  # the last part takes what is left
        sizes = [min(each, shape[axis] - i * each) for i in range(count)]
    if sum(sizes) != shape[axis] or min(sizes) < 1 or len(sizes) != count:
        raise reader.unsupported(proto, f"Split of {shape[axis]} into {sizes}")
    edges = np.cumsum([0, *sizes])
    add_moved(reader, proto, [Taken(axis, np.arange(edges[i], edges[i + 1])) for i in range(count)], None)


def _slice(reader: Reader, proto: Any, a: Attributes) -> None:
    shape = reader.shape(proto.input[0], proto.name)
    given = (reader.integers(proto, a, key, i) for i, key in enumerate(("starts", "ends", "axes", "steps"), 1))
    starts, ends, axes, steps = (list[int]() if numbers is None else numbers for numbers in given)
    chosen = [(axis % len(shape), sliced(shape[axis], start, end, step)) for axis, start, end, step
              in zip(axes or range(len(ends)), starts, ends, steps or [1] * len(ends), strict=True)]
    if not chosen or not all(len(r) for _, r in chosen):
        raise reader.unsupported(proto, "Slice keeps nothing")
    cuts = [Taken(axis, np.asarray(r)) for axis, r in chosen if r != range(shape[axis])]
    add_moved(reader, proto, [cuts[0] if len(cuts) == 1 else partial(_take_all, cuts)], None)


def _take_all(cuts: Sequence[Taken], x: Any) -> Any:
    for cut in cuts:
        x = cut(x)
    return x


def sliced(size: int, start: int, end: int, step: int) -> range:
    """The indices ONNX Slice takes of a dimension: negative bounds count from the end, others are cut to what is there."""
    start, end = (v + size if v < 0 else v for v in (start, end))
    if step > 0:
        return range(min(max(start, 0), size), min(max(end, 0), size), step)
    return range(min(max(start, 0), size - 1), min(max(end, -1), size - 1), step)


def _gather(reader: Reader, proto: Any, a: Attributes) -> None:
    shape = reader.shape(proto.input[0], proto.name)
    axis = int(a.get("axis", 0)) % len(shape)
    given = reader.constant(proto.input[1], proto.name, "indices").array.astype(np.int64)
    if given.ndim > 1 or np.any(given < -shape[axis]) or np.any(given >= shape[axis]):
        raise reader.unsupported(proto, f"Gather by indices of shape {list(given.shape)}")
    if prod(shape) // shape[axis] * given.size > max(LARGEST_TRACED, prod(shape)):
        raise reader.unsupported(proto, "Gather makes a large map larger")
    add_moved(reader, proto, [Taken(axis, np.where(given < 0, given + shape[axis], given))], None)


def _resize(reader: Reader, proto: Any, a: Attributes) -> None:
    """Enlargement by whole factors that repeats pixels, in whichever coordinates it is stated."""
    shape = reader.shape(proto.input[0], proto.name)
    given = [reader.constant(i, proto.name, "size").array.astype(np.float64) if i else np.empty(0) for i in proto.input[1:]]
    scales, sizes = ((*given, np.empty(0), np.empty(0), np.empty(0))[i] for i in (1, 2))
    factors = sizes / np.asarray(shape) if sizes.size == len(shape) else scales
    whole = len(shape) == 4 and factors.size == 4 and np.all(factors == np.rint(factors)) and tuple(factors[:2]) == (1, 1)
    if not whole or factors.min() < 1 or a.get("mode", "nearest") != "nearest" \
            or not all(_repeats(int(f), n, a) for f, n in zip(factors[2:], shape[2:], strict=True)):
        raise reader.unsupported(proto, "Resize other than repeating pixels by whole factors")
    reader.add(proto, Upsample(int(factors[2]), int(factors[3])))


def _repeats(factor: int, size: int, a: Attributes) -> bool:
    """Whether the stated coordinates and rounding take pixel x // factor for pixel x."""
    x = np.arange(size * factor, dtype=np.float64)
    match a.get("coordinate_transformation_mode", "half_pixel"):
        case "asymmetric":
            source = x / factor
        case "half_pixel" | "pytorch_half_pixel" | "half_pixel_symmetric":
            source = (x + 0.5) / factor - 0.5
        case _:
            return factor == 1
    match a.get("nearest_mode", "round_prefer_floor"):
        case "floor":
            nearest = np.floor(source)
        case "ceil":
            nearest = np.ceil(source)
        case "round_prefer_ceil":
            nearest = np.floor(source + 0.5)
        case _:
            nearest = np.ceil(source - 0.5)
    return bool(np.array_equal(np.clip(nearest, 0, size - 1), x // factor))


def _depth_to_space(reader: Reader, proto: Any, a: Attributes) -> None:
    block = int(a["blocksize"])
    if block < 2:
        raise reader.unsupported(proto, f"DepthToSpace with blocks of {block}")
    op = PixelShuffle(block, block, a.get("mode", "DCR") == "DCR")
    op.infer((reader.shape(proto.input[0], proto.name),))
    add_moved(reader, proto, [op.moved], op)


def _space_to_depth(reader: Reader, proto: Any, a: Attributes) -> None:
    batch, channels, height, width = reader.shape(proto.input[0], proto.name)
    block = int(a["blocksize"])
    inner = (batch, channels, height // block, block, width // block, block)
    _rearranged(reader, proto, inner, (0, 3, 5, 1, 2, 4), (batch, channels * block**2, height // block, width // block))


def _rearranged(reader: Reader, proto: Any, inner: Shape, perm: tuple[int, ...], shape: Shape) -> None:
    opened, turned = (f"{proto.output[0]}_{what}" for what in ("opened", "turned"))
    for source, output, op in ((proto.input[0], opened, Reshape(inner)), (opened, turned, Transpose(perm)),
                               (turned, proto.output[0], Reshape(shape))):
        reader.add(with_output(proto, output, proto.name), op, [source])


FLOATS = 1
"""ONNX's number for float32."""


def _cast(reader: Reader, proto: Any, a: Attributes) -> None:
    """Floats cast to the floats they are (half and double precision are read as single) are what they were."""
    if int(a["to"]) != FLOATS:
        raise reader.unsupported(proto, "Cast of floats to something else")
    reader.alias[proto.output[0]] = proto.input[0]


MOVERS: dict[str, Callable[[Reader, Any, Attributes], None]] = {
    "Cast": _cast, "DepthToSpace": _depth_to_space, "Gather": _gather, "Resize": _resize, "Slice": _slice,
    "SpaceToDepth": _space_to_depth, "Split": _split, "Transpose": _transpose,
}
