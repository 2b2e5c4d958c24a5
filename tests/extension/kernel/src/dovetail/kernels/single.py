"""The kernel of layers with one pixel per image that computes one output per program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from dovetail.kernels import vector
from dovetail.kernels.estimator import KernelWork, Number, Tiles, power, tiles_of
from dovetail.kernels.items import Item
from dovetail.kernels.launch import Given
from dovetail.kernels.shape import Grid
from dovetail.platform.gpu_specification import Gpu


class SingleShape(NamedTuple):
    """A layer of one pixel per image."""

    element: Number
    moved_bytes: Number
    images: Number
    filters: Number
    depth: Number

    def grid(self, c: Tiles) -> Grid:
        return self.filters, self.images, 1

    def tiles(self) -> Tiles:
        return tiles_of([{"BN": 1, "BK": power(self.depth), "num_warps": 4, "num_stages": 1}])


def work(gpu: Gpu, c: Tiles, s: SingleShape) -> KernelWork:
    return vector.work(gpu, c, vector.VectorShape(*s))


def shapes_of(kind: str, part: Sequence[Item]) -> list[SingleShape]:
    return [SingleShape(*shape) for shape in vector.shapes_of(kind, part)]


def operands(kind: str, part: Sequence[Item]) -> Given:
    return vector.operands(kind, part)
