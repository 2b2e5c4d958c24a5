"""FuseEstimator of Compact DNNs 2024, paper III: bytes of global memory that two layers move, one after the other or fused.

A tile of a layer's output is computed by one program, which holds what the tile needs in shared memory; what programs load and
store is what is counted. Of all tilings that fit and give every multiprocessor a program, the one that moves least counts. Where
no tiling gives every multiprocessor one, those with most programs do. The thesis gives the inputs (multiprocessors, shared
memory, layers) and outputs of the model, not its formulas: these are ours, and the counts are of values, times their bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from math import ceil, inf

from dovetail.platform.gpu_specification import Gpu


@dataclass(frozen=True, slots=True)
class FusedLayer:
    """A depthwise or pointwise convolution: the output's size, channels in and out, window and stride."""

    depthwise: bool
    height: int
    width: int
    channels: int
    filters: int
    window: int = 1
    stride: int = 1

    @property
    def pixels(self) -> int:
        return self.height * self.width

    @property
    def weights(self) -> int:
        return self.window ** 2 * self.channels if self.depthwise else self.channels * self.filters


@dataclass(frozen=True, slots=True)
class Tiling:
    """What a kernel moves with some tiles (values), what a program holds (values), and how many programs there are."""

    module: str
    tiles: tuple[int, ...]
    moved: int
    held: int
    programs: int


def best(tilings: Iterator[Tiling], gpu: Gpu, element: int) -> Tiling | None:
    """The tiling that moves least of those that fit and occupy the GPU; None where none fits."""
    fitting = [t for t in tilings if t.held * element <= gpu.shared_bytes]
    if not fitting:
        return None
    wanted = min(gpu.multiprocessors, max(t.programs for t in fitting))
    return min((t for t in fitting if t.programs >= wanted), key=lambda t: (t.moved, t.held, t.programs))


def alone(layer: FusedLayer, images: int) -> Iterator[Tiling]:
    """Tilings of one layer."""
    if not layer.depthwise:
        pixels = layer.pixels * images
        for tile, filters in product(_sizes(pixels), _sizes(layer.filters)):
            rows, columns = ceil(pixels / tile), ceil(layer.filters / filters)
            yield Tiling("PW", (tile, filters), columns * pixels * layer.channels + rows * layer.weights + pixels * layer.filters,
                         tile * layer.channels + filters * layer.channels + tile * filters, rows * columns)
        return
    for high, wide, channels in product(_sizes(layer.height), _sizes(layer.width), _sizes(layer.channels)):
        areas, read = _areas(layer, high, wide)
        yield Tiling("DW", (high, wide, channels),
                     images * (areas * (layer.channels * read + layer.weights) + layer.pixels * layer.channels),
                     channels * (read + layer.window ** 2 + high * wide), images * areas * ceil(layer.channels / channels))


def fused(first: FusedLayer, second: FusedLayer, images: int) -> Iterator[Tiling]:
    """Tilings of two layers in one kernel: DWPW, PWDW, PWDW_R (areas overlap and are computed again) or PWPW."""
    inner = first.filters
    if first.depthwise and not second.depthwise:
        for high, wide, filters in product(_sizes(first.height), _sizes(first.width), _sizes(second.filters)):
            areas, read = _areas(first, high, wide)
            columns = ceil(second.filters / filters)
            yield Tiling("DWPW", (high, wide, filters),
                         images * (areas * (columns * (inner * read + first.weights) + second.weights)
                                   + second.pixels * second.filters),
                         inner * (read + first.window ** 2 + high * wide + filters) + high * wide * filters,
                         images * areas * columns)
    elif second.depthwise and not first.depthwise:
        for high, wide, channels in product(_sizes(second.height), _sizes(second.width), _sizes(inner)):
            areas, read = _areas(second, high, wide)
            columns = ceil(inner / channels)
            yield Tiling("PWDW" if areas == 1 else "PWDW_R", (high, wide, channels),
                         images * (areas * (columns * first.channels * read + first.weights + second.weights)
                                   + second.pixels * inner),
                         first.channels * (read + channels) + channels * (read + second.window ** 2 + high * wide),
                         images * areas * columns)
    elif not first.depthwise:
        pixels = first.pixels * images
        for tile, channels in product(_sizes(pixels), _sizes(inner)):
            rows = ceil(pixels / tile)
            yield Tiling("PWPW", (tile, channels),
                         pixels * (first.channels + second.filters) + rows * (first.weights + second.weights),
                         tile * (first.channels + channels + second.filters) + channels * (first.channels + second.filters), rows)


@dataclass(frozen=True, slots=True)
class FuseEstimate:
    """Bytes that two layers move apart and fused, and the fused module; infinite where no tiling fits."""

    apart_bytes: float
    fused_bytes: float
    module: str

    @property
    def fuses(self) -> bool:
        """Whether the estimator fuses the pair."""
        return self.fused_bytes < self.apart_bytes


def estimate(pair: tuple[FusedLayer, FusedLayer], gpu: Gpu, element: int, images: int = 1) -> FuseEstimate:
    """What a pair of layers moves of `element` bytes per value."""
    apart = sum(_bytes(best(alone(layer, images), gpu, element), element) for layer in pair)
    joined = best(fused(*pair, images), gpu, element)
    return FuseEstimate(apart, _bytes(joined, element), joined.module if joined is not None else "none fits")


def chosen(chain: Sequence[FusedLayer], gpu: Gpu, element: int, images: int = 1) -> tuple[float, float, list[int]]:
    """Bytes of a chain of layers one by one, and with the pairs fused that make it least; where these begin."""
    singles = [_bytes(best(alone(layer, images), gpu, element), element) for layer in chain]
    pairs = [estimate((a, b), gpu, element, images).fused_bytes for a, b in pairwise(chain)]
    least, taken = [0.0], list[list[int]]([[]])
    for i, own in enumerate(singles):
        after = least[i - 1] + pairs[i - 1] if i else inf
        fuse = after < least[i] + own
        least.append(after if fuse else least[i] + own)
        taken.append([*taken[i - 1], i - 1] if fuse else taken[i])
    return sum(singles), least[-1], taken[-1]


def _bytes(tiling: Tiling | None, element: int) -> float:
    return inf if tiling is None else float(tiling.moved * element)


def _sizes(extent: int) -> list[int]:
    """Sizes of tiles along an extent: powers of two below it, and all of it."""
    return [*(1 << i for i in range((extent - 1).bit_length())), extent]


def _areas(layer: FusedLayer, high: int, wide: int) -> tuple[int, int]:
    """Of a depthwise layer's output in tiles: how many there are, and the pixels of input that one reads, padding left out."""
    tall, broad = ((n - 1) * layer.stride + layer.window for n in (high, wide))
    return (ceil(layer.height / high) * ceil(layer.width / wide),
            min(tall, layer.height * layer.stride) * min(broad, layer.width * layer.stride))
