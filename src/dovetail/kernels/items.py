"""Layers as kernels see them, with what joined them, and where their tensors lie in a GPU's memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from dovetail.ir import Array, Node, Window
from dovetail.kernels.layers import LOOKED_UP, Addition, Change, LayerWeights

ELEMENT = {"float16": 2, "bfloat16": 2, "float32": 4, "tf32": 4, "int8": 1}
"""Bytes of an activation by arithmetic: float16 and bfloat16 with float32 sums, float32, its 19-bit products, 8-bit integers."""
LONGEST = 3
"""Layers that one kernel computes at most: source, the longest modules in kernels/table.py."""


@dataclass(frozen=True, slots=True)
class TensorLayout:
    """Where a tensor lies: channels [offset, offset + channels) of a buffer of images x rows x columns x pitch.

    `planar`: images x channels x rows x columns instead, as inputs arrive that dense layers alone read.
    """

    buffer: str
    images: int
    height: int
    width: int
    channels: int
    pitch: int
    offset: int = 0
    planar: bool = False

    @property
    def strides(self) -> tuple[int, int, int, int]:
        """Of images, rows, columns, channels."""
        if self.planar:
            return (self.channels * self.height * self.width, self.width, 1, self.height * self.width)
        return (self.height * self.width * self.pitch, self.width * self.pitch, self.pitch, 1)

    @property
    def pixels(self) -> int:
        return self.images * self.height * self.width


@dataclass(frozen=True, slots=True)
class CopiedChannels:
    """Channels of another tensor that a layer's kernel copies for its pixels: what a split passes on beside the layer."""

    node: str
    source: TensorLayout
    target: TensorLayout
    channels: tuple[int, ...]


@dataclass(slots=True, eq=False)
class Item:
    """One layer with what joined it; its weights are arranged when they are first asked for."""

    node: Node
    x: TensorLayout
    y: TensorLayout
    window: Window
    groups: int
    depthwise: bool
    arrange: Callable[[], LayerWeights]
    other: TensorLayout | None = None
    total: Addition | None = None
    mean: TensorLayout | None = None
    average: Change | None = None
    activation: int = 0
    table: Array | None = None
    """What an activation of bytes makes of each, from the lowest on."""
    names: list[str] = field(default_factory=list)
    joins: list[str] = field(default_factory=list)
    """What joined the layer, in order: `other`, `mean` or `activation`."""
    along: CopiedChannels | None = None
    kept: bool = False
    """Whether others read its output besides the layer behind it in its run."""
    arranged: list[LayerWeights] = field(default_factory=list)

    @property
    def layer(self) -> LayerWeights:
        if not self.arranged:
            self.arranged.append(self.arrange())
        return self.arranged[0]

    @property
    def pointwise(self) -> bool:
        return self.window.kernel == (1, 1) and self.window.stride == (1, 1) and not any(self.window.pads) and self.groups == 1

    @property
    def output(self) -> TensorLayout:
        return self.mean if self.mean is not None else self.y

    @property
    def ends(self) -> bool:
        """Whether no other layer can follow in the same kernel."""
        return self.joined or self.kept or self.activation == LOOKED_UP

    @property
    def joined(self) -> bool:
        """Whether the layer's kernel does more than the layer and its activation."""
        return self.other is not None or self.mean is not None or self.along is not None

    def shortened(self, count: int) -> Item:
        """The layer with only the first of its nodes."""
        kept = self.joins[:count - 1]
        return replace(self, other=self.other if "other" in kept else None, total=self.total if "other" in kept else None,
                       mean=self.mean if "mean" in kept else None, activation=self.activation if "activation" in kept else 0,
                       names=self.names[:count], joins=kept)

    @property
    def taps(self) -> int:
        return self.window.kernel[0] * self.window.kernel[1]

    @property
    def copied_values(self) -> int:
        """Values that are copied along, read and written."""
        return 2 * self.y.pixels * len(self.along.channels) if self.along is not None else 0


def form_of(part: Sequence[Item]) -> str:
    """Layers by a letter each: depthwise, pointwise, or another."""
    return "".join("d" if item.depthwise else "p" if item.pointwise else "-" for item in part)
