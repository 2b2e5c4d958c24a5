"""One kernel launch each: what it reads and writes, its constants, its grid and its possible tiles, best estimate first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dovetail.kernels import launch
from dovetail.kernels.estimator import Config, tiles_of
from dovetail.kernels.items import Item
from dovetail.kernels.layout import TensorLayout
from dovetail.kernels.moves import MoveLaunch
from dovetail.kernels.ranking import ranked
from dovetail.kernels.shape import KernelShape
from dovetail.kernels.table import kernel_of
from dovetail.platform.gpu_specification import Gpu


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """A launch: operands in the kernel's order are places, constant arrays or numbers."""

    kernel: str
    nodes: tuple[str, ...]
    operands: launch.Operands
    constants: launch.Constants
    shape: KernelShape
    configs: tuple[Config, ...]
    estimates_s: tuple[float, ...]
    output: TensorLayout
    key: str = ""

    def grid(self, config: Config) -> tuple[int, int, int]:
        """Programs of a launch with a tile."""
        x, y, z = (int(np.asarray(n).item()) for n in self.shape.grid(tiles_of([config])))
        return x, y, z


def call_of(gpu: Gpu, kind: str, part: Sequence[Item], shape: KernelShape) -> Call:
    """The launch that computes a part of a run with one of its kernels."""
    kernel = kernel_of(shape)
    operands, constants = kernel.operands(kind, part)
    copied = [item.along.node for item in part if item.along is not None]
    return _keyed(gpu, kind, kernel.name, (*(n for item in part for n in item.names), *copied), operands, constants, shape,
                  part[-1].output)


def moved_call(gpu: Gpu, kind: str, node: str, move: MoveLaunch, y: TensorLayout) -> Call:
    """The launch of a kernel that computes next to nothing."""
    return _keyed(gpu, kind, move.kernel, (node,), move.operands, move.constants, move.shape(kind, y), y)


def _keyed(gpu: Gpu, kind: str, kernel: str, nodes: tuple[str, ...], operands: launch.Operands, constants: launch.Constants,
           shape: KernelShape, output: TensorLayout) -> Call:
    """The call with a name under which its best tile is remembered: everything that decides its time."""
    best, times = ranked(gpu, kind, shape)
    shapes = [(o.images, o.pitch) if isinstance(o, TensorLayout) else o if isinstance(o, int) else o.shape for o in operands]
    return Call(kernel, nodes, operands, constants, shape, best, times, output,
                f"{kernel} {kind} {sorted(constants.items())} {shapes}")
