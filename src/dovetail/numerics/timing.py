"""How long ONNX Runtime takes: whole runs by the clock, single kernels by its own profile.

Optimisations are on here, as anybody would run a float model; the judge in `oracle` runs without them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnxruntime

from dovetail.ir import Array
from dovetail.numerics.oracle import session

KERNEL = "_kernel_time"
MICROSECOND = 1e-6

VERSION = str(onnxruntime.__version__)


def timed_session(content: bytes, threads: int, profile: str | None = None) -> Any:
    """A session as a user would open it; with `profile`, it records its kernels in files of that prefix."""
    return session(content, threads, optimised=True, profile=profile)


def run_seconds(runner: Any, inputs: Mapping[str, Array], runs: int, between: Callable[[], None] | None = None,
                clock: Callable[[], float] = time.perf_counter) -> list[float]:
    """Seconds of each of so many runs of a session; `between` is done before each and not counted."""
    names, feed, times = [o.name for o in runner.get_outputs()], dict(inputs), []
    for _ in range(runs):
        if between is not None:
            between()
        start = clock()
        runner.run(names, feed)
        times.append(clock() - start)
    return times


def kernel_seconds(content: bytes, inputs: Mapping[str, Array], threads: int, runs: int,
                   between: Callable[[], None] | None = None) -> list[tuple[str, list[float]]]:
    """Kernels in the order they run, each with its seconds in every run but the first few."""
    with TemporaryDirectory() as folder:
        runner = timed_session(content, threads, str(Path(folder) / "profile"))
        run_seconds(runner, inputs, runs, between)
        events = json.loads(Path(runner.end_profiling()).read_text(encoding="utf-8"))
    found: dict[str, list[float]] = {}
    for event in sorted((e for e in events if e.get("cat") == "Node" and e["name"].endswith(KERNEL)), key=lambda e: e["ts"]):
        found.setdefault(event["name"].removesuffix(KERNEL), []).append(event["dur"] * MICROSECOND)
    warm = min(3, runs - 1)
    return [(name, times[warm:]) for name, times in found.items()]


def seeded_inputs(runner: Any) -> dict[str, Array]:
    """Random inputs of the session's shapes; a free dimension is 1."""
    random = np.random.default_rng(0)
    return {i.name: random.standard_normal([d if isinstance(d, int) else 1 for d in i.shape]).astype(np.float32)
            for i in runner.get_inputs()}
