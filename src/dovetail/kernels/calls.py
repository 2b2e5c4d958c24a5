"""Kernel launches: what each reads and writes, its constants, grid and possible tiles, and which compute a lowered graph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dovetail.ir import Node
from dovetail.kernels import launch
from dovetail.kernels.estimator import Config, tiles_of
from dovetail.kernels.inverted_residual import InvertedResidualShape
from dovetail.kernels.items import LONGEST, Item, TensorLayout
from dovetail.kernels.moves import MoveLaunch
from dovetail.kernels.ranking import best_seconds, ranked
from dovetail.kernels.shape import KernelShape
from dovetail.kernels.table import kernel_of, part_shapes
from dovetail.platform.gpu_specification import Gpu

HOPELESS = 1.5
"""How much dearer than its layers apart a fused module may look and still be timed (chosen: more takes tuning longer)."""


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


@dataclass(frozen=True, slots=True, eq=False)
class LibraryPart:
    """Consecutive nodes without kernels, for a library: what it reads from kernels, and what it puts where they read."""

    nodes: tuple[Node, ...]
    reads: Mapping[str, TensorLayout]
    writes: Mapping[str, TensorLayout]

    @property
    def operands(self) -> tuple[TensorLayout, ...]:
        return (*self.reads.values(), *self.writes.values())


@dataclass(frozen=True, slots=True)
class Lowered:
    """A network as groups of calls: each group is a run of layers with the ways to divide it, or one call that is as it is.

    Inputs and outputs that no kernel reads or writes have no place.
    """

    inputs: Mapping[str, TensorLayout]
    outputs: Mapping[str, TensorLayout]
    runs: tuple[tuple[Item, ...] | Call | LibraryPart, ...]
    kind: str
    gpu: Gpu
    images: int

    @property
    def library(self) -> tuple[LibraryPart, ...]:
        """Parts without kernels."""
        return tuple(run for run in self.runs if isinstance(run, LibraryPart))

    def options(self, run: tuple[Item, ...], hopeless: float = HOPELESS) -> Iterator[tuple[int, int, Call]]:
        """(first, last, call) of every part of a run that one kernel can compute, unless it looks hopeless.

        That is a module `hopeless` times as dear as its layers apart. Kernels of a single layer never are: what the costs of one
        say against the other may have been fitted in another arithmetic.
        """
        found = ways(self.gpu, self.kind, run)
        alone = {first: seconds for first, last, _, seconds in reversed(found) if first == last}
        for first, last, shape, seconds in found:
            if first == last or seconds <= hopeless * sum(alone[i] for i in range(first, last + 1)):
                yield first, last, call_of(self.gpu, self.kind, run[first:last + 1], shape)


def ways(gpu: Gpu, kind: str, run: Sequence[Item]) -> list[tuple[int, int, KernelShape, float]]:
    """(first, last, shape, estimated seconds) of every kernel that computes some layers of a run, by its first layer.

    Where the kernel of inverted residuals takes the layer behind as well, what it stores without it is hardly worth a look.
    """
    found = [(first, last, shape) for first in range(len(run)) for last in range(first, min(first + LONGEST, len(run)))
             for shape in part_shapes(kind, run[first:last + 1])]
    whole = {first for first, _, shape in found if isinstance(shape, InvertedResidualShape) and shape.back}
    found = [way for way in found if not (isinstance(way[2], InvertedResidualShape) and not way[2].back and way[0] in whole)]
    return [(*way, float(s)) for way, s in zip(found, best_seconds(gpu, kind, [shape for *_, shape in found]), strict=True)]
