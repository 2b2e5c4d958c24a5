"""The tiles of kernels by estimated time: all of one kernel in order, or the best of each of many at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dovetail.kernels.conv import ConvShape
from dovetail.kernels.depthwise import DepthwiseShape
from dovetail.kernels.estimator import WITHOUT_UNITS, Config, Floats, Tiles, seconds
from dovetail.kernels.products import measured, sizes_of
from dovetail.kernels.shape import KernelShape, stacked
from dovetail.kernels.table import kernel_of, work_of
from dovetail.platform.gpu_specification import Gpu

SAME = 0.001
"""Share of a time by which estimates that mean the same may differ: chosen far below the error of estimates."""
FEW_RESULTS = 16
"""Results of a thread up to which sums apart are worth a look of their own (chosen)."""
AT_ONCE = 1 << 16
"""Tiles judged together: chosen few enough for a processor's cache; changes no result."""


def ranked(gpu: Gpu, kind: str, shape: KernelShape) -> tuple[tuple[Config, ...], tuple[float, ...]]:
    """The tiles of a kernel, the most promising first, and estimated times in order; where none fits, the first with no end."""
    tiles = shape.tiles()
    if not tiles:
        return (), ()
    kernel = kernel_of(shape)
    times = seconds(gpu, kernel.name, kind, work_of(gpu, shape, tiles))
    order = np.argsort(times, kind="stable")
    order = order[np.isfinite(times[order])] if np.isfinite(times).any() else order[:1]
    order = order[:kernel.most_tiles]
    found = tuple(times[order].tolist())
    if kind == "int8" and isinstance(shape, DepthwiseShape):
        # costs are those of halves, where several columns of a thread save conversions; with one, bytes load more at once
        order = both_in_turn(order, tiles["SIDE"][order] == 1)
    elif kind in WITHOUT_UNITS and isinstance(shape, ConvShape):
        # what was measured of tiles' sizes is extrapolated to others
        order = sizes_apart(order, times, tiles)
        order = both_in_turn(order, measured(kernel.name, tiles)[order])
    one_by_one = zip(*(values[order] for values in tiles.values()), strict=True)
    return tuple(dict(zip(tiles, map(int, each), strict=True)) for each in one_by_one), found


def both_in_turn(order: NDArray[np.int64], some: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Tiles of two sorts in turn, each in their order, that of the first one first: some of each are timed."""
    first = some == some[0]
    these, others = order[first], order[~first]
    both = min(len(these), len(others))
    return np.concatenate([np.stack([these[:both], others[:both]], axis=1).ravel(), these[both:], others[both:]])


def sizes_apart(order: NDArray[np.int64], times: Floats, tiles: Tiles) -> NDArray[np.int64]:
    """Tiles in order, but behind the others those of a size that another one of takes as long by estimate.

    Where products take all the time, how many loads are ahead does not count, and one of each size says more than all of one; nor
    do sums apart, unless threads have few results and nothing else to do.
    """
    few = tiles["BP"] * tiles["BN"] <= FEW_RESULTS * 32 * tiles["num_warps"]
    sizes = list(zip(sizes_of(tiles), np.where(few, tiles.get("SUMS", np.ones(1)), 0.0).tolist(), strict=True))
    known, again = dict[tuple[str, float], float](), np.zeros(len(order), dtype=bool)
    for i, tile in enumerate(order):
        again[i] = times[tile] <= (1 + SAME) * known.get(sizes[tile], -1.0)
        known.setdefault(sizes[tile], float(times[tile]))
    return np.concatenate([order[~again], order[again]])


def best_seconds(gpu: Gpu, kind: str, shapes: Sequence[KernelShape]) -> Floats:
    """Estimated time of every kernel with its best tile; infinite where none fits."""
    found = np.full(len(shapes), np.inf)
    numbers: dict[KernelShape, list[int]] = {}
    for i, shape in enumerate(shapes):
        numbers.setdefault(shape, []).append(i)
    kinds: dict[type, list[KernelShape]] = {}
    for shape in numbers:
        if shape.tiles():
            kinds.setdefault(type(shape), []).append(shape)
    for own in kinds.values():
        for shape, least in zip(own, _best(gpu, kind, own), strict=True):
            found[numbers[shape]] = least
    return found


def _best(gpu: Gpu, kind: str, shapes: Sequence[KernelShape]) -> list[float]:
    """The same for different kernels of one kind, some at once."""
    found: list[float] = []
    counts = [len(next(iter(shape.tiles().values()))) for shape in shapes]
    start = 0
    while start < len(shapes):
        stop = start + max(1, int(np.searchsorted(np.cumsum(counts[start:]), AT_ONCE, side="right")))
        some, own = shapes[start:stop], counts[start:stop]
        tiles = {name: np.concatenate([s.tiles()[name] for s in some]) for name in some[0].tiles()}
        times = seconds(gpu, kernel_of(some[0]).name, kind, work_of(gpu, stacked(some, own), tiles))
        found += np.minimum.reduceat(times, np.cumsum([0, *own[:-1]])).tolist()
        start = stop
    return found
