"""Which parts of tensors the columns of a node read and make, as arrays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dovetail.hardware.shares import Flags, Ints
from dovetail.ir import Axis, Node, whole
from dovetail.partition.candidates import Candidates
from dovetail.partition.problem import Problem
from dovetail.partition.tables.regions import Ends, share_ends


@dataclass(frozen=True, slots=True)
class Boxes:
    """Regions of a tensor by column and device (columns, devices, dimension, 2), and the dimensions along which any is cut."""

    shape: tuple[int, ...]
    regions: Ints
    cut: Flags

    def write(self, rows: Ints, devices: Ints, ends: Ends) -> None:
        """Cut the regions of some columns on some devices."""
        for i, low, high in ends:
            self.regions[rows, devices, i, 0], self.regions[rows, devices, i, 1] = low, high
            self.cut[i] |= bool(np.count_nonzero(low) or np.count_nonzero(high != self.shape[i]))


def boxes_of(problem: Problem, node: Node, own: Candidates) -> tuple[list[Boxes], Boxes]:
    """What each column's pieces read of each input, and where they leave the output."""
    shapes, output = problem.graph.input_shapes(node), problem.graph.shape(node.output)
    has, summed = own.has, own.reducer >= 0
    reads = [_whole_boxes(s, has) for s in shapes]
    held = _whole_boxes(output, has if not np.count_nonzero(summed) else has & ~summed[:, None])
    held.regions[summed, own.reducer[summed]] = whole(output) or ((0, 1),)
    for number, axis in enumerate(own.axes):
        of_axis = (own.axis == number).nonzero()[0]
        rows, devices = has[of_axis].nonzero()
        rows = of_axis[rows]
        if axis is None or not len(rows):
            continue
        ends = share_ends(node.op, axis, own.start[rows, devices], own.stop[rows, devices], shapes, output)
        for tensor, cut in zip([*reads, *([held] if axis is not Axis.INPUT_CHANNELS else [])], ends, strict=False):
            tensor.write(rows, devices, cut)
    return reads, held


def _whole_boxes(shape: tuple[int, ...], has: Flags) -> Boxes:
    """The whole tensor wherever there is a piece; one without dimensions has one of size one."""
    regions = has.astype(np.int64)[:, :, None, None] * np.array(whole(shape) or ((0, 1),), dtype=np.int64)
    return Boxes(shape or (1,), regions, np.zeros(max(len(shape), 1), dtype=np.bool_))
