"""Tiles of GPU kernels: those of a network, their times measured on a GPU, and the times of a file.

Measuring needs torch and triton, reading neither.
"""

from __future__ import annotations

import json
import random
import shlex
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from functools import lru_cache
from pathlib import Path
from statistics import median
from typing import Any

from dovetail.files import replace_text
from dovetail.kernels.calls import Call
from dovetail.kernels.estimator import CANDIDATES, FITTED_KIND, FITTED_ON, Config
from dovetail.kernels.lower import lower
from dovetail.kernels.moves import MovedShape
from dovetail.platform.gpu_specification import specification
from lib.zoo_graph import network

TILES = 12
"""Tiles timed per kernel."""
PROMISING = CANDIDATES
"""How many of them the estimate chooses."""
LIMIT_S = 200.0
"""When to stop."""
AT_ONCE = 8
"""Kernels whose tiles are compiled together: results are written after them."""
Timed = tuple[Call, Sequence[tuple[float, Mapping[str, int]]]]
Placed = tuple[Call, Sequence[tuple[float, Mapping[str, int]]], tuple[str, int, int]]
"""A call, times of its tiles, and where it could be: a network, a batch, in how many places."""


def tiled(name: str, images: int, kind: str = FITTED_KIND) -> dict[str, Call]:
    """Every kernel with tiles that some part of a network could use."""
    return {key: call for key, (call, _) in counted(name, images, kind).items()}


@lru_cache(maxsize=64)
def counted(name: str, images: int, kind: str = FITTED_KIND) -> dict[str, tuple[Call, int]]:
    """The same with the number of places where it could."""
    if kind == "int8":
        from lib.gpu.networks import quantized
        graph = quantized(name)[0]
    else:
        graph = network(name)
    lowered = lower(graph, kind, specification(FITTED_ON), images)
    found: dict[str, tuple[Call, int]] = {}
    for run in lowered.runs:
        for call in (run,) if isinstance(run, Call) else (c for *_, c in lowered.options(run, float("inf"))):
            if not isinstance(call.shape, MovedShape):
                first, count = found.get(call.key, (call, 0))
                found[call.key] = first, count + 1
    return found


def measure(path: Path, cases: Sequence[tuple[str, int]], kind: str = FITTED_KIND, until: float | None = None,
            kernels: Sequence[str] = (), tiles_each: int = TILES) -> bool:
    """Time tiles of kernels in random order into a file, which is written every few kernels and continued by a second call.

    Whether all were timed before `until` (a time of the process's clock). The fastest tile is timed once more (`again`): how far
    two times of the same launch are apart is what no estimate can beat.
    """
    import torch
    import triton

    from dovetail.gpu.launcher import launcher_here
    from dovetail.gpu.precompile import precompile
    from dovetail.gpu.tuning import Tuner
    until = time.perf_counter() + LIMIT_S if until is None else until
    launcher = launcher_here(kind)
    held: dict[str, Any] = json.loads(path.read_text()) if path.is_file() else {"kernels": []}
    done = {(k["network"], k["images"], k["kernel"], tuple(k["nodes"])) for k in held["kernels"]}
    jobs = [job for job in to_time(cases, kind, kernels, tiles_each)
            if (job[0], job[1], job[2].kernel, job[2].nodes) not in done]
    held |= {"gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else "none", "date": date.today().isoformat(),
             "torch": torch.__version__, "triton": triton.__version__, "kind": kind,
             "command": "PYTHONPATH=src python bench/gpu_estimator.py " + shlex.join(sys.argv[1:])}
    tuner = Tuner(launcher, timing=True)
    batches = [jobs[first:first + AT_ONCE] for first in range(0, len(jobs), AT_ONCE)]

    def compiled(some: Sequence[tuple[str, int, Call, list[Config]]]) -> None:
        precompile([launcher.described(call, config) for *_, call, tiles in some for config in tiles])
    with ThreadPoolExecutor(1) as ahead:  # what comes next is compiled while this is timed
        coming = [ahead.submit(compiled, batches[0])] if batches else []
        for i, some in enumerate(batches):
            if time.perf_counter() > until:
                return False
            coming.pop().result()
            coming += [ahead.submit(compiled, batches[i + 1])] if i + 1 < len(batches) else []
            for name, images, call, tiles in some:
                launcher.buffers.clear()
                times = [(t, dict(c)) for c in tiles if (t := tuner.timed(call, c)) < float("inf")]
                if times:
                    again = tuner.timed(call, min(times, key=lambda t: t[0])[1])
                    held["kernels"].append({"network": name, "images": images, "kernel": call.kernel, "nodes": call.nodes,
                                            "times": times, "again": again})
            replace_text(path, json.dumps(held) + "\n")
            print(f"{len(held['kernels'])} of {len(jobs) + len(done)} kernels timed", flush=True)
    return True


def to_time(cases: Sequence[tuple[str, int]], kind: str, kernels: Sequence[str] = (),
            tiles_each: int = TILES) -> list[tuple[str, int, Call, list[Config]]]:
    """Network, batch, kernel and its tiles, in random order: whatever there is time for stands for all."""
    rng = random.Random(0)
    jobs = [(name, images, call) for name, images in cases for call in tiled(name, images, kind).values()
            if not kernels or call.kernel in kernels]
    rng.shuffle(jobs)
    return [(*job, chosen_tiles(job[2], rng, tiles_each)) for job in jobs]


def chosen_tiles(call: Call, rng: random.Random, count: int) -> list[Config]:
    """The most promising tiles of a kernel, and some others from the better half."""
    promising = min(PROMISING, count)
    rest = call.configs[promising:max(count, len(call.configs) // 2)]
    return [*call.configs[:promising], *rng.sample(rest, max(0, min(count - promising, len(rest))))]


def matched(path: Path) -> Iterator[tuple[Call, list[tuple[float, dict[str, int]]], tuple[str, int, int]]]:
    """Kernels as they are now, the times measured of them, and where they could be."""
    held = json.loads(path.read_text())
    kernels, kind = held["kernels"], held.get("kind", FITTED_KIND)
    calls = {(name, images, call.kernel, call.nodes): (call, count)
             for name, images in {(k["network"], k["images"]) for k in kernels}
             for call, count in counted(name, images, kind).values()}
    for kernel in kernels:
        call, count = calls.get((kernel["network"], kernel["images"], kernel["kernel"], tuple(kernel["nodes"])), (None, 0))
        if call is not None:
            yield call, kernel["times"], (kernel["network"], kernel["images"], count)


def once(times: Sequence[tuple[float, Mapping[str, int]]]) -> list[tuple[float, Mapping[str, int]]]:
    """Times of tiles; that of a tile timed more than once is the median."""
    found: dict[str, tuple[list[float], Mapping[str, int]]] = {}
    for taken, tile in times:
        known = sorted((name, size) for name, size in tile.items() if (name, size) != ("SUMS", 1))
        found.setdefault(str(known), ([], tile))[0].append(taken)
    return [(median(each), tile) for each, tile in found.values()]


def by_kernel(paths: Sequence[Path]) -> dict[str, list[Placed]]:
    """Timed calls of every kernel; files of other arithmetic count for kernels the first lacks."""
    own, found = {k["kernel"] for k in json.loads(paths[0].read_text())["kernels"]}, dict[str, list[Placed]]()
    for call, times, place in (m for i, path in enumerate(paths) for m in matched(path) if not i or m[0].kernel not in own):
        found.setdefault(call.kernel, []).append((call, times, place))
    return found
