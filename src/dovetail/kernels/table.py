"""All kernels: adding one is a file like `kernels/conv.py`, its line here, and its code of the same name in `gpu/triton/`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from dovetail.kernels import banded, bridged, conv, deep, depthwise, depthwise_bytes, fused, inverted_residual, moves, vector
from dovetail.kernels.estimator import KernelWork, Tiles
from dovetail.kernels.items import Item
from dovetail.kernels.launch import Given
from dovetail.kernels.layers import LOOKED_UP
from dovetail.kernels.shape import KernelShape
from dovetail.platform.gpu_specification import Gpu


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel: its name in records and costs.toml, its shape, and what its file says of it."""

    name: str
    shape: type
    work: Callable[..., KernelWork]
    """What tiles ask of a GPU."""
    shapes_of: Callable[[str, Sequence[Item]], Sequence[KernelShape]] = lambda kind, part: ()
    """The shape with which the kernel computes layers in an arithmetic, if it has tiles; none where it does not."""
    operands: Callable[[str, Sequence[Item]], Given] = lambda kind, part: ((), {})
    """What a launch for such layers is given."""
    most_tiles: int | None = None
    """Tiles kept, where Triton takes seconds to translate each, and costs say which of them are fast."""


KERNELS = (
    Kernel("conv", conv.ConvShape, conv.work, conv.shapes_of, conv.operands),
    Kernel("deep", deep.DeepShape, deep.work, deep.shapes_of, deep.operands),
    Kernel("vector", vector.VectorShape, vector.work, vector.shapes_of, vector.operands),
    Kernel("bytewise", depthwise_bytes.DepthwiseBytesShape, depthwise_bytes.work, depthwise_bytes.shapes_of,
           depthwise_bytes.operands),
    Kernel("depthwise", depthwise.DepthwiseShape, depthwise.work, depthwise.shapes_of, depthwise.operands),
    Kernel("fused", fused.FusedShape, fused.work, fused.shapes_of, fused.operands),
    Kernel("banded", banded.BandedShape, banded.work, banded.shapes_of, banded.operands),
    Kernel("walked", inverted_residual.InvertedResidualShape, inverted_residual.work, inverted_residual.shapes_of,
           inverted_residual.operands),
    Kernel("walked_bytes", inverted_residual.InvertedResidualBytesShape, inverted_residual.work,
           inverted_residual.byte_shapes_of, inverted_residual.byte_operands),
    Kernel("bridged", bridged.BridgedShape, bridged.work, bridged.shapes_of, bridged.operands, most_tiles=4),
    Kernel("moved", moves.MovedShape, moves.work),
)
BY_SHAPE: Mapping[type, Kernel] = {kernel.shape: kernel for kernel in KERNELS}


def kernel_of(shape: KernelShape) -> Kernel:
    """The kernel that has a shape."""
    return BY_SHAPE[type(shape)]


def work_of(gpu: Gpu, shape: KernelShape, tiles: Tiles) -> KernelWork:
    """What tiles of a kernel ask of a GPU."""
    return kernel_of(shape).work(gpu, tiles, shape)


def part_shapes(kind: str, part: Sequence[Item]) -> list[KernelShape]:
    """The kernels that compute a part of a run, each by its shape; none where no kernel does."""
    if len(part) > 1 and part[-1].activation == LOOKED_UP:
        return []
    return [shape for kernel in KERNELS for shape in kernel.shapes_of(kind, part) if shape.tiles()]
