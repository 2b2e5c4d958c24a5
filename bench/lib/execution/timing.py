"""How execution is timed: medians of repeated calls, by the clock or by CUDA events."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

import numpy as np
import torch


@dataclass(frozen=True, slots=True)
class Effort:
    """How long a figure is measured at least, how often at least, and how often at most."""

    seconds: float = 0.3
    least: int = 10
    most: int = 2000


def spread(call: Callable[[], object], effort: Effort, warm: int = 3) -> dict[str, float]:
    """Median, 10th and 90th percentile of a call's seconds."""
    for _ in range(min(warm, effort.least)):
        call()
    found, begun = list[float](), time.perf_counter()
    while len(found) < effort.most and (len(found) < effort.least or time.perf_counter() - begun < effort.seconds):
        start = time.perf_counter()
        call()
        found.append(time.perf_counter() - start)
    low, high = np.percentile(found, (10, 90))
    return {"median_s": float(median(found)), "p10_s": float(low), "p90_s": float(high), "runs": len(found)}


def device_s(replay: Callable[[], object], effort: Effort, replays: int = 20) -> float:
    """Median seconds of one of several replays in a row on the GPU; by the clock where there is none."""
    if not torch.cuda.is_available():
        return spread(replay, effort, 1)["median_s"]
    replay()
    found = []
    for _ in range(max(5, effort.least)):
        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(replays):
            replay()
        stop.record()
        torch.cuda.synchronize()
        found.append(start.elapsed_time(stop) * 1e-3 / replays)
    return float(median(found))


def interval(run: Callable[[int], object], frames: int, rounds: int = 3) -> float:
    """Median seconds per frame of streams of so many frames, after one that is not timed."""
    run(frames)
    found = []
    for _ in range(rounds):
        begun = time.perf_counter()
        run(frames)
        found.append((time.perf_counter() - begun) / frames)
    return float(median(found))
