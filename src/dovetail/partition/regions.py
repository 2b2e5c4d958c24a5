"""What many shares of one operator read and write, as arrays: the same regions as `Op.share`, all at once."""

from __future__ import annotations

import numpy as np

from dovetail.cost.estimate import Ints
from dovetail.ir import Axis, Conv, Op, Pool, Region, whole

Shapes = tuple[tuple[int, ...], ...]


def share_boxes(op: Op, axis: Axis | None, starts: Ints, stops: Ints, shapes: Shapes,
                output: tuple[int, ...]) -> tuple[tuple[Ints, ...], Ints]:
    """Regions of shares [start, stop) in each input and in the output: arrays (share, dimension, start and stop).

    Rows of a window and channels of a convolution follow their closed forms. Along any other axis a region moves in even steps
    with its share; the first and the last unit tell which, and a share between them is compared, so that an operator of another
    kind is asked one by one.
    """
    if axis is None:
        return tuple(_filled(whole(s), len(starts)) for s in shapes), _filled(whole(output), len(starts))
    if axis is not Axis.ROWS and isinstance(op, Conv):
        reads, made = _filled(whole(shapes[0]), len(starts)), _filled(whole(output), len(starts))
        units = np.stack([starts, stops], axis=1)
        if axis is not Axis.OUTPUT_CHANNELS:
            reads[:, 1] = units * (shapes[0][1] // op.groups) if axis is Axis.GROUPS else units
        if axis is not Axis.INPUT_CHANNELS:
            made[:, 1] = units * (op.filters // op.groups) if axis is Axis.GROUPS else units
        return (reads,), made
    if axis is Axis.ROWS and isinstance(op, Conv | Pool):
        reads, made = _filled(whole(shapes[0]), len(starts)), _filled(whole(output), len(starts))
        first, last = starts * op.window.stride[0] - op.window.pads[0], (stops - 1) * op.window.stride[0] - op.window.pads[0]
        reads[:, 2, 0], reads[:, 2, 1] = np.maximum(first, 0), np.minimum(last + op.window.reach[0], shapes[0][2])
        made[:, 2, 0], made[:, 2, 1] = starts, stops
        return (reads,), made
    extent = op.extent(axis, shapes)
    ends = [_regions(op, axis, i, i + 1, shapes) for i in (0, extent - 1)]
    found = [_between(a, b, starts, stops, extent) for a, b in zip(*ends, strict=True)]
    middle = _regions(op, axis, extent // 3, max(extent // 3 + 1, 2 * extent // 3), shapes)
    check = [_between(a, b, np.array([extent // 3]), np.array([max(extent // 3 + 1, 2 * extent // 3)]), extent)[0]
             for a, b in zip(*ends, strict=True)]
    if any(c.tolist() != [list(d) for d in m] for c, m in zip(check, middle, strict=True)):
        every = [_regions(op, axis, a, b, shapes) for a, b in zip(starts.tolist(), stops.tolist(), strict=True)]
        found = [np.array(r, dtype=np.int64) for r in zip(*every, strict=True)]
    return tuple(found[:-1]), found[-1]


def share_regions(op: Op, axis: Axis, start: int, stop: int, shapes: Shapes,
                  output: tuple[int, ...]) -> tuple[tuple[Region, ...], Region]:
    """The same of one share, in plain numbers; an operator of which no closed form is known here is asked for its share."""
    if isinstance(op, Conv) and axis is not Axis.ROWS:
        x, made = whole(shapes[0]), whole(output)
        read, kept = (shapes[0][1] // op.groups, op.filters // op.groups) if axis is Axis.GROUPS else (1, 1)
        if axis is not Axis.OUTPUT_CHANNELS:
            x = (x[0], (start * read, stop * read), *x[2:])
        if axis is not Axis.INPUT_CHANNELS:
            made = (made[0], (start * kept, stop * kept), *made[2:])
        return (x,), made
    if isinstance(op, Conv | Pool) and axis is Axis.ROWS:
        x, made, window = whole(shapes[0]), whole(output), op.window
        first, last = (row * window.stride[0] - window.pads[0] for row in (start, stop - 1))
        rows = (max(first, 0), min(last + window.reach[0], shapes[0][2]))
        return ((x[0], x[1], rows, *x[3:]),), (made[0], made[1], (start, stop), *made[3:])
    share = op.share(axis, start, stop, shapes)
    return share.inputs, share.output


def _regions(op: Op, axis: Axis, start: int, stop: int, shapes: Shapes) -> tuple[Region, ...]:
    share = op.share(axis, start, stop, shapes)
    return (*share.inputs, share.output)


def _filled(region: Region, count: int) -> Ints:
    """The same region for every share; a tensor without dimensions has one of size one."""
    found = np.empty((count, max(len(region), 1), 2), dtype=np.int64)
    found[:] = region or ((0, 1),)
    return found


def _between(first: Region, last: Region, starts: Ints, stops: Ints, extent: int) -> Ints:
    """Regions of shares, given those of the first and of the last unit."""
    found = _filled(first, len(starts))
    for i, ((low, high), (low_last, high_last)) in enumerate(zip(first, last, strict=True)):
        if low_last != low or high_last != high:
            found[:, i, 0] = low + (low_last - low) * starts // (extent - 1)
            found[:, i, 1] = high + (high_last - high) * (stops - 1) // (extent - 1)
    return found
