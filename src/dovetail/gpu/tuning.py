"""Which tile a kernel gets: the estimate's best few, compiled side by side and timed, remembered on disk per GPU."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import torch
import triton

from dovetail.files import replace_text
from dovetail.gpu.calls import Call
from dovetail.gpu.configs import Config
from dovetail.gpu.precompile import precompile

if TYPE_CHECKING:
    from dovetail.gpu.executor import Launcher

CANDIDATES = 6
"""Tiles timed per kernel."""
REPEATS, REPLAYS, ROUNDS = 20, 5, 5


class Tuner:
    """Times calls; without `timing` the estimate decides."""

    def __init__(self, launcher: Launcher, timing: bool, candidates: int = CANDIDATES, cache: Path | None = None) -> None:
        self.launcher, self.timing, self.candidates = launcher, timing, candidates
        self.cache = cache
        self.known: dict[str, tuple[Config, float]] = {}
        self.all: dict[str, list[tuple[float, float, Config]]] = {}
        """Per key (estimate, time, tile) of everything timed."""
        if cache is not None and cache.is_file():
            try:
                self.known = {k: (c, t) for k, (c, t) in json.loads(cache.read_text(encoding="utf-8")).items()}
            except ValueError:
                self.known = {}  # a damaged cache is made anew

    def prepare(self, calls: Iterable[Call]) -> None:
        """Compile the candidates of all calls that are not known yet, on all processors."""
        fresh = {c.key: c for c in calls if c.key not in self.known}
        if not self.timing or not fresh:
            return
        precompile([self.launcher.described(call, config) for call in fresh.values()
                    for config in call.configs[:self.candidates]])

    @staticmethod
    def _tried(launch: Callable[[], None]) -> bool:
        try:
            launch()
        except (triton.runtime.errors.OutOfResources, triton.compiler.errors.CompilationError, RuntimeError):
            return False
        return True

    def best(self, call: Call) -> tuple[Call, Config, float]:
        """The call, its best tile and that tile's time in seconds."""
        if not self.timing:
            return call, call.configs[0], call.estimates_s[0]
        if call.key not in self.known:
            timed = [(self.timed(call, c), i, c) for i, c in enumerate(call.configs[:self.candidates])]
            self.all[call.key] = [(call.estimates_s[i], t, c) for t, i, c in timed]
            time, _, config = min(timed, key=lambda x: x[:2])
            self.known[call.key] = (dict(config), time)
            if self.cache is not None:
                replace_text(self.cache, json.dumps(self.known, indent=1) + "\n")
        config, time = self.known[call.key]
        return call, config, time

    def timed(self, call: Call, config: Config) -> float:
        """Seconds of one launch among many in a CUDA graph; infinite where it does not fit."""
        launch = self.launcher.bound(call, config)
        if not self._tried(launch):
            return float("inf")
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(REPEATS):
                launch()
        graph.replay()
        rounds = []
        for _ in range(ROUNDS):
            start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            for _ in range(REPLAYS):
                graph.replay()
            stop.record()
            torch.cuda.synchronize()
            rounds.append(start.elapsed_time(stop) / REPLAYS / REPEATS * 1e-3)
        return float(median(rounds))
