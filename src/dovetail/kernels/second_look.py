"""Which of the most promising tiles comes first: trees and a surface look again at tiles which the costs rank close together.

Costs (`estimator.py`) are few and physical: they find the fast tiles among hundreds, and state times that plans rely on. Of the
best of them one is to be taken first, and there a few per cent decide: pipelines that just fit, registers that spill, edges of
maps. Two ways to learn from tiles that were timed err in different places, so their scores are averaged: trees, which divide
tiles by one number after another, and a surface (a Gaussian process), on which tiles that look alike, of layers that look alike,
lie close together. Both were fitted to times of tiles on the GPU the costs were fitted on (`forests.json`, written by
bench/gpu_estimator.py), in float16, or in int8 of kernels for bytes. They change the order of the first tiles and no estimate,
and have no say on other GPUs. They may praise what nobody timed, so every other tile stays that of the costs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.kernels.estimator import FITTED_KIND, FITTED_ON, Flags, Floats, Tiles
from dovetail.kernels.looks import LOOKED, look_at
from dovetail.kernels.shape import KernelShape, stacked
from dovetail.platform.gpu_specification import Gpu, specification

OF_BYTES = ("bytewise",)
"""Kernels whose times are those of int8."""
LOOKED_AT = 32
"""Tiles that are looked at again, the best estimates."""
UNIT = 1e-5
"""What a value of one in forests.json stands for."""
FINE = 1e-3
"""The same of logarithms of estimates."""
FARTHEST = 4.0
"""How many standard deviations from the mean of what was timed a tile may seem to be."""
WIDER, SHARE = 2.0, 0.3
"""Of a surface, what tiles have in common whatever the layer: how many times as far it reaches, and how much of it there is."""


@dataclass(frozen=True, slots=True)
class Forest:
    """Complete binary trees, all of one depth: node by node, level by level, a feature and a threshold; a value per leaf.

    A score is the sum of the trees' values and `lean` times the logarithm of the estimate; the lowest is the best tile.
    """

    names: tuple[str, ...]
    lean: float
    features: NDArray[np.int64]
    thresholds: Floats
    values: Floats

    def scores(self, known: Mapping[str, Floats], estimates: Floats) -> Floats:
        """Of every tile, from what is known of it."""
        columns = _columns(known, self.names, len(estimates))
        tiles, trees = np.arange(len(estimates))[:, None], np.arange(len(self.features))
        at = np.zeros((len(estimates), len(trees)), dtype=np.int64)
        inner = self.features.shape[1]
        while at.size and at[0, 0] < inner:
            at = 2 * at + 1 + (columns[tiles, self.features[trees, at]] > self.thresholds[trees, at])
        return np.asarray(self.lean * np.log(estimates) + self.values[trees, at - inner].sum(1), dtype=np.float64)


@dataclass(frozen=True, slots=True)
class FeatureScale:
    """What is known of tiles as places: in deviations from a centre, times a factor; `of_layer`: what tiles of a kernel share."""

    names: tuple[str, ...]
    centre: Floats
    deviation: Floats
    factor: Floats
    of_layer: Flags

    def places(self, columns: Floats) -> Floats:
        return np.asarray(np.clip((columns - self.centre) / self.deviation, -FARTHEST, FARTHEST) * self.factor, dtype=np.float64)


@dataclass(frozen=True, slots=True)
class Surface:
    """Through timed tiles, the smoother the farther they are apart: a score is the sum of their weights, each by its nearness."""

    scale: FeatureScale
    places: Floats
    weights: Floats

    def scores(self, known: Mapping[str, Floats], count: int) -> Floats:
        """Of every tile, from what is known of it."""
        own = self.scale.places(_columns(known, self.scale.names, count))
        return np.asarray(nearness(self.scale.of_layer, own, self.places) @ self.weights, dtype=np.float64)


@dataclass(frozen=True, slots=True)
class SecondLook:
    """What is averaged; where too few layers were timed for trees, the logarithm of the estimate stands for them."""

    forest: Forest | None
    surface: Surface

    def scores(self, known: Mapping[str, Floats], estimates: Floats) -> Floats:
        first = np.log(estimates) if self.forest is None else self.forest.scores(known, estimates)
        return (first + self.surface.scores(known, len(estimates))) / 2


def _columns(known: Mapping[str, Floats], names: tuple[str, ...], count: int) -> Floats:
    return np.stack([known.get(name, np.zeros(count)) for name in names], axis=1)


def nearness(of_layer: Flags, some: Floats, others: Floats) -> Floats:
    """How much tiles have to say about each other: by their own sizes, and by those of their layers too."""
    tiles, layers = (squared(some[:, own], others[:, own]) for own in (~of_layer, of_layer))
    return np.asarray(SHARE * falling(tiles / WIDER**2) + falling(tiles) * falling(layers), dtype=np.float64)


def squared(some: Floats, others: Floats) -> Floats:
    """Squares of distances."""
    sums = np.square(some).sum(1)[:, None] + np.square(others).sum(1)[None]
    return np.asarray(np.maximum(sums - 2 * some @ others.T, 0.0), dtype=np.float64)


def falling(squared: Floats) -> Floats:
    """Matérn's covariance of smoothness 3/2."""
    far = np.sqrt(3 * squared)
    return np.asarray((1 + far) * np.exp(-far), dtype=np.float64)


def known_of(gpu: Gpu, shape: KernelShape, tiles: Tiles, estimates: Floats, least: Floats | float) -> dict[str, Floats]:
    """Logarithms of what there is to see of tiles, and of their estimates over `least`, the best of all."""
    return {name: np.log2(np.maximum(np.broadcast_to(np.asarray(value, dtype=np.float64), len(estimates)), 1e-9))
            for name, value in {**look_at(gpu, shape, tiles), "estimate": estimates / least}.items()}


def in_turn(by_costs: NDArray[np.int64], by_look: NDArray[np.int64]) -> NDArray[np.int64]:
    """The second look's first tile, then that of the costs, and so on: of the few that are timed, half are the costs' choice."""
    return np.array(list(dict.fromkeys(np.stack([by_look, by_costs], axis=1).ravel().tolist())), dtype=np.int64)


def forest_from(held: Mapping[str, Any]) -> Forest:
    """A forest as forests.json has it: thresholds by their number among `edges`, values in UNIT."""
    return Forest(tuple(held["names"]), float(held["lean"]), np.array(held["features"], dtype=np.int64),
                  np.array(held["edges"], dtype=np.float64)[np.array(held["thresholds"], dtype=np.int64)],
                  UNIT * np.array(held["values"], dtype=np.float64))


def surface_from(kernel: str, held: Mapping[str, Any]) -> Surface:
    """A surface as forests.json has it: shapes, how many tiles of each were timed, which of `tiles`, and their estimates."""
    centre, deviation, factor = (np.array(held[name], dtype=np.float64) for name in ("centre", "deviation", "factor"))
    scale = FeatureScale(tuple(held["names"]), centre, deviation, factor, np.array(held["of_layer"], dtype=np.bool_))
    shapes = [LOOKED[kernel](*shape) for shape in held["shapes"]]
    sizes = np.array(held["tiles"], dtype=np.float64)[np.array(held["timed"], dtype=np.int64)]
    known = known_of(specification(FITTED_ON), stacked(shapes, held["counts"]), dict(zip(held["sizes"], sizes.T, strict=True)),
                     np.exp2(FINE * np.array(held["estimates"], dtype=np.float64)), 1.0)
    weights = UNIT * np.array(held["weights"], dtype=np.float64)
    return Surface(scale, scale.places(_columns(known, scale.names, len(sizes))), weights)


@cache
def looks() -> Mapping[str, SecondLook]:
    """Of every kernel whose tiles are looked at again."""
    held = json.loads(resources.files("dovetail.kernels").joinpath("forests.json").read_text("utf-8"))
    trees = {kernel: forest_from(own) for kernel, own in held["forests"].items()}
    return {kernel: SecondLook(trees.get(kernel), surface_from(kernel, own)) for kernel, own in held.get("surfaces", {}).items()}


def look_for(gpu: Gpu, kernel: str, kind: str) -> SecondLook | None:
    """What was fitted on such a GPU in such an arithmetic, if anything."""
    asked = gpu.name == specification(FITTED_ON).name and kind == ("int8" if kernel in OF_BYTES else FITTED_KIND)
    return looks().get(kernel) if asked else None
