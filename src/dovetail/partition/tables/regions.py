"""What many shares of one operator read and write, as arrays: the same regions as `Op.share`, all at once."""

from __future__ import annotations

import numpy as np

from dovetail.hardware.shares import Ints
from dovetail.ir import Axis, Conv, Op, Region, WindowPool, whole

Shapes = tuple[tuple[int, ...], ...]


Ends = list[tuple[int, Ints, Ints]]
"""Dimensions along which regions of shares are not the whole tensor, and where each share starts and stops there."""


def share_ends(op: Op, axis: Axis, starts: Ints, stops: Ints, shapes: Shapes, output: tuple[int, ...]) -> list[Ends]:
    """Regions of shares [start, stop) in each input and, last, in the output: along other dimensions they are whole.

    Rows of a window and channels of a convolution follow their closed forms. Along any other axis a region moves in even steps
    with its share; the first and the last unit tell which, and a share between them is compared, so that an operator of another
    kind is asked one by one.
    """
    if axis is not Axis.ROWS and isinstance(op, Conv):
        read, kept = (shapes[0][1] // op.groups, op.filters // op.groups) if axis is Axis.GROUPS else (1, 1)
        return [[] if axis is Axis.OUTPUT_CHANNELS else [(1, starts * read, stops * read)],
                [] if axis is Axis.INPUT_CHANNELS else [(1, starts * kept, stops * kept)]]
    if axis is Axis.ROWS and isinstance(op, Conv | WindowPool):
        first, last = starts * op.window.stride[0] - op.window.pads[0], (stops - 1) * op.window.stride[0] - op.window.pads[0]
        return [[(2, np.maximum(first, 0), np.minimum(last + op.window.reach[0], shapes[0][2]))], [(2, starts, stops)]]
    extent, entire = op.extent(axis, shapes), [whole(s) for s in (*shapes, output)]
    between = extent // 3, max(extent // 3 + 1, 2 * extent // 3)
    one, other = _regions(op, axis, 0, 1, shapes), _regions(op, axis, extent - 1, extent, shapes)
    starts, stops = np.append(starts, between[0]), np.append(stops, between[1])
    found = [_between(own, a, b, starts, stops, extent) for own, a, b in zip(entire, one, other, strict=True)]
    middle = _regions(op, axis, *between, shapes)
    if all(_last(region, ends) == m for region, ends, m in zip(entire, found, middle, strict=True)):
        return [[(i, low[:-1], high[:-1]) for i, low, high in ends] for ends in found]
    every = [_regions(op, axis, a, b, shapes) for a, b in zip(starts[:-1].tolist(), stops[:-1].tolist(), strict=True)]
    return [[(i, *np.array(own, dtype=np.int64).T) for i, own in enumerate(zip(*regions, strict=True))]
            for regions in zip(*every, strict=True)]


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
    if isinstance(op, Conv | WindowPool) and axis is Axis.ROWS:
        x, made, window = whole(shapes[0]), whole(output), op.window
        first, last = (row * window.stride[0] - window.pads[0] for row in (start, stop - 1))
        rows = (max(first, 0), min(last + window.reach[0], shapes[0][2]))
        return ((x[0], x[1], rows, *x[3:]),), (made[0], made[1], (start, stop), *made[3:])
    share = op.share(axis, start, stop, shapes)
    return share.inputs, share.output


def _regions(op: Op, axis: Axis, start: int, stop: int, shapes: Shapes) -> tuple[Region, ...]:
    share = op.share(axis, start, stop, shapes)
    return (*share.inputs, share.output)


def _last(region: Region, ends: Ends) -> Region:
    """The region of the last share."""
    found = list(region)
    for i, low, high in ends:
        found[i] = int(low[-1]), int(high[-1])
    return tuple(found)


def _between(entire: Region, first: Region, last: Region, starts: Ints, stops: Ints, extent: int) -> Ends:
    """Ends of shares, given the regions of the first and of the last unit."""
    steps = max(1, extent - 1)
    return [(i, a[0] + (b[0] - a[0]) * starts // steps, a[1] + (b[1] - a[1]) * (stops - 1) // steps)
            for i, (every, a, b) in enumerate(zip(entire, first, last, strict=True)) if not a == b == every]
