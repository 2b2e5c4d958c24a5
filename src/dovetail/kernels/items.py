"""Layers as kernels see them, with what joined them, and the shapes of the kernels that compute one or several of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import inf

from dovetail.ir import Array, Node, Window
from dovetail.kernels.estimator import power
from dovetail.kernels.layers import FLOATING, LOOKED_UP, Change, Layer, Sum, finished_in_floats, packs_to_bytes
from dovetail.kernels.place import ELEMENT, Place
from dovetail.kernels.shapes import (
    BandedShape,
    BridgedShape,
    BytewiseShape,
    ConvShape,
    DeepShape,
    DepthwiseShape,
    FusedShape,
    KernelShape,
    VectorShape,
    WalkedBytesShape,
    WalkedShape,
)
from dovetail.kernels.tiles import MOST_VECTOR

MOST_HALVED = 4096
"""Pixels up to which chains of products are what a pointwise layer waits for."""
LEAST_DEEP = 32
"""Input channels from which a pointwise layer's weights may be held."""
MOST_VECTOR_IMAGES = 4
"""Images up to which every image may read all weights anew."""
MOST_FRONT = 256
"""Input channels a front may have, and output channels a back: all of them are held at once."""
LONGEST = 3
"""Layers that one kernel computes at most."""


@dataclass(frozen=True, slots=True)
class Along:
    """Channels of another tensor that a layer's kernel copies for its pixels: what a split passes on beside the layer."""

    node: str
    source: Place
    target: Place
    channels: tuple[int, ...]


@dataclass(slots=True, eq=False)
class Item:
    """One layer with what joined it; its weights are arranged when they are first asked for."""

    node: Node
    x: Place
    y: Place
    window: Window
    groups: int
    depthwise: bool
    arrange: Callable[[], Layer]
    other: Place | None = None
    total: Sum | None = None
    mean: Place | None = None
    average: Change | None = None
    activation: int = 0
    table: Array | None = None
    """What an activation of bytes makes of each, from the lowest on."""
    names: list[str] = field(default_factory=list)
    joins: list[str] = field(default_factory=list)
    """What joined the layer, in order: `other`, `mean` or `activation`."""
    along: Along | None = None
    kept: bool = False
    """Whether others read its output besides the layer behind it in its run."""
    arranged: list[Layer] = field(default_factory=list)

    @property
    def layer(self) -> Layer:
        if not self.arranged:
            self.arranged.append(self.arrange())
        return self.arranged[0]

    @property
    def pointwise(self) -> bool:
        return self.window.kernel == (1, 1) and self.window.stride == (1, 1) and not any(self.window.pads) and self.groups == 1

    @property
    def output(self) -> Place:
        return self.mean if self.mean is not None else self.y

    @property
    def ends(self) -> bool:
        """Whether no other layer can follow in the same kernel."""
        return self.joined or self.kept or self.activation == LOOKED_UP

    @property
    def joined(self) -> bool:
        """Whether the layer's kernel does more than the layer and its activation."""
        return self.other is not None or self.mean is not None or self.along is not None

    @property
    def bare(self) -> Item:
        """The layer without what joined it."""
        return self.shortened(1)

    def shortened(self, count: int) -> Item:
        """The layer with only the first of its nodes."""
        kept = self.joins[:count - 1]
        return replace(self, other=self.other if "other" in kept else None, total=self.total if "other" in kept else None,
                       mean=self.mean if "mean" in kept else None, activation=self.activation if "activation" in kept else 0,
                       names=self.names[:count], joins=kept)

    @property
    def taps(self) -> int:
        return self.window.kernel[0] * self.window.kernel[1]


def part_shapes(kind: str, part: Sequence[Item]) -> list[KernelShape]:
    """The kernels that compute a part of a run, each by its shape; none where no kernel does."""
    first, last = part[0], part[-1]
    if len(part) > 1 and last.activation == LOOKED_UP:
        return []
    if len(part) == 1:
        if first.depthwise:
            bytewise = [bytewise_shape(first)] if kind == "int8" and is_bytewise(first) else []
            return [s for s in bytewise if s.tiles()] or [depthwise_shape(kind, first)]
        others = [deep_shape(kind, first)] if _is_deep(first) else []
        return [conv_shape(kind, first), *(o for o in others if o.tiles()),
                *([vector_shape(kind, first)] if _is_vector(first) else [])]
    found: list[KernelShape] = [fused_shape(kind, part)] if _is_module(part) else []
    if len(part) == 2 and first.pointwise and not first.ends and last.depthwise and not first.x.planar \
            and first.x.channels <= MOST_FRONT and last.window.dilation == (1, 1):
        found.append(banded_shape(kind, first, last))
    if _is_walked(kind, part):
        found.append(walked_shape(kind, part))
    if _is_bridged(kind, part):
        found.append(bridged_shape(kind, part))
    return [shape for shape in found if shape.tiles()]


def conv_shape(kind: str, item: Item) -> ConvShape:
    """A convolution of any kind but depthwise: pixels x channels as a product of matrices."""
    x, y, groups, taps, element = item.x, item.y, item.groups, item.taps, ELEMENT[kind]
    channels, flat = x.channels // groups, taps > 1 and x.channels // groups < 16
    values = x.pixels * x.channels + y.pixels * y.channels * (1 if item.other is None else 2) + taps * channels * y.channels
    values += _copied(item)
    return ConvShape(element, values * element, y.images, y.pixels, y.channels // groups, taps * channels if flat else channels,
                     1 if flat else taps, groups, flat or x.planar,
                     taps == 1 and not any(item.window.pads) and y.pixels <= MOST_HALVED, item.mean is not None)


def _is_deep(item: Item) -> bool:
    """Whether a layer is pointwise with few pixels, and enough channels that waiting for them is what it does."""
    return (item.pointwise and not item.x.planar and item.along is None and item.y.pixels <= MOST_HALVED
            and item.x.channels >= LEAST_DEEP)


def deep_shape(kind: str, item: Item) -> DeepShape:
    """A pointwise layer of few pixels."""
    conv = conv_shape(kind, item)
    return DeepShape(conv.element, conv.moved_bytes, conv.images, conv.pixels, conv.filters, conv.depth, conv.mean)


def _copied(item: Item) -> int:
    """Values that are copied along, read and written."""
    return 2 * item.y.pixels * len(item.along.channels) if item.along is not None else 0


def _is_vector(item: Item) -> bool:
    """Whether a layer has one pixel per image, and few images."""
    return (not item.joined and item.groups == 1 and item.taps == 1 and not item.x.planar
            and item.x.height * item.x.width == 1 and item.y.height * item.y.width == 1
            and 2 * power(item.x.channels) <= MOST_VECTOR and item.y.images <= MOST_VECTOR_IMAGES)


def vector_shape(kind: str, item: Item) -> VectorShape:
    return VectorShape(ELEMENT[kind], item.x.channels * item.y.channels * ELEMENT[kind], item.y.images, item.y.channels,
                       item.x.channels)


def depthwise_shape(kind: str, item: Item) -> DepthwiseShape:
    """One filter per channel."""
    x, y, window = item.x, item.y, item.window
    return DepthwiseShape(ELEMENT[kind], (x.pixels + y.pixels) * x.channels * ELEMENT[kind], y.images, y.height, y.width,
                          x.channels, *window.kernel, window.stride[0], window.reach[0])


QUARTER = 4
"""Bytes of a word."""
MOST_ACROSS = 8
"""Taps in a row up to which bytes are turned."""


def is_bytewise(item: Item) -> bool:
    """Whether pixels are whole words of four channels."""
    whole = all(number % QUARTER == 0 for place in (item.x, item.y) for number in (place.channels, place.pitch, place.offset))
    return whole and item.window.dilation == (1, 1) and item.window.kernel[1] <= MOST_ACROSS


def side_by_side(window: Window) -> tuple[int, int]:
    """How many output columns share words of four pixels, and how many words: with the fewest instructions for each."""
    def cost(side: int) -> tuple[float, int]:
        words = -(-((side - 1) * window.stride[1] + window.kernel[1]) // QUARTER)
        return words * (2.0 + window.kernel[0] * side) / side, side
    side = min((1, 2, 4), key=cost)
    return side, -(-((side - 1) * window.stride[1] + window.kernel[1]) // QUARTER)


def bytewise_shape(item: Item) -> BytewiseShape:
    """One filter per channel, of bytes."""
    x, y, window = item.x, item.y, item.window
    return BytewiseShape(1, (x.pixels + y.pixels) * x.channels, y.images, y.height, y.width, x.channels // QUARTER,
                         window.kernel[0], window.stride[0], *side_by_side(window))


def _is_module(part: Sequence[Item]) -> bool:
    """Whether the fused kernel computes these layers."""
    first, last = part[0], part[-1]
    form = "".join("d" if i.depthwise else "p" if i.pointwise else "-" for i in part)
    if form not in ("dp", "pd", "pp", "pdp") or any(i.ends for i in part[:-1]) \
            or last.mean is not None or first.x.planar or max(i.window.dilation for i in part) > (1, 1):
        return False
    return (form[0] != "p" or first.x.channels <= MOST_FRONT) and (form[-1] != "p" or last.y.channels <= MOST_FRONT)


def stages(part: Sequence[Item]) -> tuple[Item | None, Item | None, Item | None]:
    """Front, middle and back of a module."""
    at = next((i for i, item in enumerate(part) if item.depthwise), None)
    if at is None:
        return part[0], None, part[1]
    return part[0] if at else None, part[at], part[at + 1] if at + 1 < len(part) else None


def fused_shape(kind: str, part: Sequence[Item]) -> FusedShape:
    front, middle, back = stages(part)
    x, y = part[0].x, part[-1].y
    inner = front.y.channels if front is not None else x.channels if back is not None else y.channels
    moved = (x.pixels * x.channels + y.pixels * y.channels + _copied(part[-1])) * ELEMENT[kind]
    return FusedShape(ELEMENT[kind], moved, y.pixels, inner, middle.taps if middle is not None else 1, x.channels, y.channels,
                      front is not None, middle is not None, back is not None)


def banded_shape(kind: str, front: Item, middle: Item) -> BandedShape:
    """A pointwise layer with the depthwise layer behind it, in bands of rows."""
    x, y = front.x, middle.y
    moved = (x.pixels * x.channels + y.pixels * y.channels) * ELEMENT[kind]
    return BandedShape(ELEMENT[kind], moved, y.images, y.height, y.width, x.width, y.channels, x.channels, middle.taps,
                       middle.window.kernel[0], middle.window.stride[0])


MOST_WALKED_CHANNELS = 128
"""Input and output channels of a walked module: all of them are held at once."""
MOST_WALKED_VALUES = 1 << 31
"""Values that its input may have: where they lie is an integer of 32 bits."""


def _is_walked(kind: str, part: Sequence[Item]) -> bool:
    """Whether the walking kernel computes these layers."""
    form = "".join("d" if i.depthwise else "p" if i.pointwise else "-" for i in part)
    if form not in ("pd", "pdp") or any(i.ends for i in part[:-1]) or part[-1].mean is not None or part[-1].along is not None \
            or part[0].x.planar or max(i.window.dilation for i in part) > (1, 1):
        return False
    x, y = part[0].x, part[-1].y
    small = x.pixels * x.pitch < MOST_WALKED_VALUES and x.channels <= MOST_WALKED_CHANNELS \
        and (form == "pd" or y.channels <= MOST_WALKED_CHANNELS)
    return small and (kind != "int8" or (form == "pdp" and packs_to_bytes(part[0].layer) and finished_in_floats(part[1].layer)
                                         and part[2].layer.rounding == FLOATING))


MOST_BRIDGED_PIXELS = 1 << 14
"""Pixels up to which beginning kernels is what a block waits for."""


def _is_bridged(kind: str, part: Sequence[Item]) -> bool:
    """Whether the kernel from one block into the next computes these layers: all but float32's, which take no matrix units."""
    if kind == "float32" or [i.depthwise for i in part] != [True, False, False]:
        return False
    first, between, last = part
    return (between.pointwise and last.pointwise and not first.ends and between.mean is None and between.along is None
            and not last.joined and not first.x.planar and first.window.dilation == (1, 1)
            and last.y.pixels <= MOST_BRIDGED_PIXELS)


def bridged_shape(kind: str, part: Sequence[Item]) -> BridgedShape:
    """A depthwise layer, the pointwise one behind it, and the pointwise one that begins the next block."""
    first, between, last = part
    x, y = first.x, last.y
    moved = x.pixels * x.channels + y.pixels * (y.channels + between.y.channels * (between.kept + (between.other is not None)))
    return BridgedShape(ELEMENT[kind], moved * ELEMENT[kind], y.images, y.height, y.width, x.channels, between.y.channels,
                        y.channels, *first.window.kernel, first.window.stride[1], *words_of(kind, first))


def words_of(kind: str, item: Item) -> tuple[int, int]:
    """Output columns side by side, and words of four pixels they come from; none where channels come one by one."""
    return side_by_side(item.window) if kind == "int8" and is_bytewise(item) else (1, 0)


def is_scaled(item: Item) -> bool:
    """Whether a layer of floats has bounds that become 0 and 1 when it is scaled, and nothing behind them."""
    return item.layer.lo == 0 < item.layer.hi < inf and item.activation == 0


def walked_shape(kind: str, part: Sequence[Item]) -> WalkedShape:
    """A pointwise layer, the depthwise one behind it and perhaps another pointwise one, in bands of rows."""
    x, middle, y = part[0].x, part[1], part[-1].y
    moved = (x.pixels * x.channels + y.pixels * y.channels * (1 if part[-1].other is None else 2)) * ELEMENT[kind]
    form = WalkedBytesShape if kind == "int8" else WalkedShape
    return form(ELEMENT[kind], moved, y.images, y.height, y.width, middle.y.channels, x.channels, y.channels,
                       *middle.window.kernel, middle.window.stride[0], len(part) == 3)
