"""How well tiles are chosen of layers that took no part in fitting: `python bench/gpu_estimator.py --hold-out FILE`.

Layers are held out at all batches and in every network, a sixth of them at a time. Which layers share a sixth moves results by
several points, so several divisions are made (`--divisions N`) and all of them counted. A kernel that several networks have is
one kernel here, and a tile timed more than once counts with its median.

Readings, since "for so many layers" can be read in several ways: `all` kernels with tiles to choose from, fused modules too;
those of one layer (`layers`), each once, or once for every place in a network it could be in (`layers_by_place`); of every place
only the fastest of its kernels, which is the one that runs (`layers_run`); and the kernel and tile that the estimate takes for a
place, against the fastest tile of all its kernels (`layers_any_kernel`).
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from dovetail.kernels.calls import Call
from dovetail.kernels.estimator import FITTED_KIND, FITTED_ON, Costs, costs_from, seconds, tiles_of
from dovetail.kernels.table import work_of
from dovetail.platform.gpu_specification import specification
from lib.gpu.estimate import CLOSE, LAYERS, LEAST_TILES, fit_kernel
from lib.gpu.tiles import Placed, by_kernel, once

FOLDS, DIVISIONS = 6, 2
Place = tuple[str, int, tuple[str, ...], int]
"""A network, a batch, the first nodes that a kernel computes there, and how many others are alike."""


@dataclass(frozen=True)
class Kernel:
    """A kernel with the times of its tiles, and where it could be."""

    call: Call
    times: tuple[tuple[float, Mapping[str, int]], ...]
    places: tuple[Place, ...]


@dataclass(frozen=True)
class Choice:
    """Seconds of the tile that comes first, and of the fastest; and what the first one was estimated."""

    kernel: str
    chosen: float
    best: float
    estimated: float
    places: tuple[Place, ...]
    division: int = 0


def different(found: Iterable[Placed]) -> list[Kernel]:
    """Kernels of one kind, each once."""
    held: dict[Any, Kernel] = {}
    for call, times, (network, images, count) in found:
        own = held.setdefault(call.shape, Kernel(call, (), ()))
        held[call.shape] = replace(own, times=(*own.times, *((t, c) for t, c in times)),
                                   places=(*own.places, (network, images, call.nodes, count)))
    return [replace(kernel, times=tuple(once(kernel.times))) for kernel in held.values()]


def alike(call: Call) -> str:
    """A layer whatever its batch and arithmetic: what is held out together."""
    held = {n: v for n, v in zip(call.shape._fields, call.shape, strict=True) if n not in ("images", "element", "moved_bytes")}
    if "pixels" in held:
        held["pixels"] /= call.output.images
    return str(sorted(held.items()))


def choices(kernel: str, found: Sequence[Placed], division: int = 0) -> list[Choice]:
    """What is chosen of every kernel by costs that know nothing of its layer."""
    made = list[Choice]()
    every, layers = different(found), sorted({alike(call) for call, *_ in found})
    random.Random(division).shuffle(layers)
    for fold in range(FOLDS):
        out = set(layers[fold::FOLDS])
        kept = [(call, times) for call, times, _ in found if alike(call) not in out]
        judged = [k for k in every if alike(k.call) in out and len(k.times) >= LEAST_TILES]
        if not kept or not judged:
            continue
        own = costs_from(fit_kernel(kernel, kept))
        made += [replace(choice(k, own), division=division) for k in judged]
    return made


def choice(kernel: Kernel, own: Costs) -> Choice:
    gpu, call, times = specification(FITTED_ON), kernel.call, kernel.times
    tiles = tiles_of([c for _, c in times])
    each = seconds(gpu, call.kernel, FITTED_KIND, work_of(gpu, call.shape, tiles), own)
    return Choice(call.kernel, times[int(np.argmin(each))][0], min(t for t, _ in times), float(each.min()), kernel.places)


def hold_out(paths: Sequence[Path], divisions: int = DIVISIONS) -> dict[str, Any]:
    """All readings, and every kind of kernel by itself; `kernels` counts every division."""
    made, apart = list[Choice](), dict[str, list[float]]()
    for kernel, found in by_kernel(paths).items():
        for division in range(divisions):
            own = choices(kernel, found, division)
            made += own
            if own:
                apart.setdefault(kernel, []).append(shown(own)["first_within_5_percent"])
                print(f"{kernel}, division {division}: {shown(own)}", flush=True)
    return {"divisions": divisions, **readings(made),
            **{k: {**shown([c for c in made if c.kernel == k]), "by_division": shares} for k, shares in apart.items()}}


def readings(made: Sequence[Choice]) -> dict[str, Any]:
    layers = [c for c in made if c.kernel in LAYERS]
    places: dict[tuple[int, str, int, tuple[str, ...]], list[tuple[Choice, int]]] = {}
    for own in layers:
        for network, images, nodes, count in own.places:
            places.setdefault((own.division, network, images, nodes), []).append((own, count))
    run, any_kernel = list[Choice](), list[Choice]()
    for ways in places.values():
        fastest, count = min(ways, key=lambda way: way[0].best)
        taken, _ = min(ways, key=lambda way: way[0].estimated)
        run += [fastest] * count
        any_kernel += [replace(taken, best=fastest.best)] * count
    return {"all": shown(made), "layers": shown(layers), "layers_by_place": shown([c for c in layers for *_, n in c.places
                                                                                     for _ in range(n)]),
            "layers_run": shown(run), "layers_any_kernel": shown(any_kernel)}


def shown(found: Sequence[Choice]) -> dict[str, float]:
    """What first choices lose against the fastest tile."""
    lost = np.array([c.chosen / c.best - 1 for c in found])
    return {"kernels": len(lost), "first_within_5_percent": float(np.mean(lost <= CLOSE - 1)),
            "lost_median": float(np.median(lost)), "lost_90": float(np.percentile(lost, 90)), "lost_mean": float(lost.mean())}
