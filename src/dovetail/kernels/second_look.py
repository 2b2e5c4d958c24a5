"""Which of the most promising tiles comes first: trees that look again at tiles which the costs rank close together.

Costs (`estimator.py`) are few and physical: they find the fast tiles among hundreds, and state times that plans rely on. Of the
best of them one is to be taken first, and there a few per cent decide: pipelines that just fit, registers that spill, edges of
maps. Trees were fitted to times of tiles on the GPU the costs were fitted on (`forests.json`, written by bench/gpu_estimator.py),
in float16. They change the order of the first tiles and no estimate, and have no say on other GPUs. Trees may praise what nobody
timed, so every other tile stays that of the costs.
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

from dovetail.kernels.estimator import FITTED_KIND, FITTED_ON, Floats, Tiles
from dovetail.kernels.looks import look_at
from dovetail.kernels.shapes import KernelShape
from dovetail.platform.gpu_specification import Gpu, specification

LOOKED_AT = 32
"""Tiles that are looked at again, the best estimates."""
UNIT = 1e-5
"""What a value of one in forests.json stands for."""


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
        columns = np.stack([known.get(name, np.zeros(len(estimates))) for name in self.names], axis=1)
        tiles, trees = np.arange(len(estimates))[:, None], np.arange(len(self.features))
        at = np.zeros((len(estimates), len(trees)), dtype=np.int64)
        inner = self.features.shape[1]
        while at.size and at[0, 0] < inner:
            at = 2 * at + 1 + (columns[tiles, self.features[trees, at]] > self.thresholds[trees, at])
        return np.asarray(self.lean * np.log(estimates) + self.values[trees, at - inner].sum(1), dtype=np.float64)


def known_of(gpu: Gpu, shape: KernelShape, tiles: Tiles, estimates: Floats, least: float) -> dict[str, Floats]:
    """Logarithms of what there is to see of tiles, and of their estimates over `least`, the best of all."""
    return {name: np.log2(np.maximum(np.broadcast_to(np.asarray(value, dtype=np.float64), len(estimates)), 1e-9))
            for name, value in {**look_at(gpu, shape, tiles), "estimate": estimates / least}.items()}


def in_turn(by_costs: NDArray[np.int64], by_trees: NDArray[np.int64]) -> NDArray[np.int64]:
    """The trees' first tile, then that of the costs, and so on: of the few that are timed, half are not the trees' to choose."""
    return np.array(list(dict.fromkeys(np.stack([by_trees, by_costs], axis=1).ravel().tolist())), dtype=np.int64)


def forest_from(held: Mapping[str, Any]) -> Forest:
    """A forest as forests.json has it: thresholds by their number among `edges`, values in UNIT."""
    return Forest(tuple(held["names"]), float(held["lean"]), np.array(held["features"], dtype=np.int64),
                  np.array(held["edges"], dtype=np.float64)[np.array(held["thresholds"], dtype=np.int64)],
                  UNIT * np.array(held["values"], dtype=np.float64))


@cache
def forests() -> Mapping[str, Forest]:
    """Of every kernel whose tiles are looked at again."""
    text = resources.files("dovetail.kernels").joinpath("forests.json").read_text("utf-8")
    return {kernel: forest_from(held) for kernel, held in json.loads(text)["forests"].items()}


def forest_for(gpu: Gpu, kernel: str, kind: str) -> Forest | None:
    """The trees that were fitted on such a GPU in such an arithmetic, if any."""
    asked = gpu.name == specification(FITTED_ON).name and kind == FITTED_KIND
    return forests().get(kernel) if asked else None
