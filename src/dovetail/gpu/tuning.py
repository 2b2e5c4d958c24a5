"""Which tile a kernel gets: the estimate's best few, compiled side by side and timed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from statistics import median
from typing import TYPE_CHECKING

import torch
import triton

from dovetail.gpu.calls import Call
from dovetail.gpu.configs import Config
from dovetail.gpu.precompile import precompile

if TYPE_CHECKING:
    from dovetail.gpu.executor import Launcher

CANDIDATES = 6
"""Tiles timed per kernel."""
REPEATS, REPLAYS, ROUNDS = 20, 5, 5


def launch_all(launches: Sequence[Callable[[], object]]) -> None:
    for launch in launches:
        launch()


def captured(launches: Sequence[Callable[[], object]]) -> Callable[[], None]:
    """All launches as one CUDA graph."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        launch_all(launches)
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        launch_all(launches)
    replay: Callable[[], None] = graph.replay
    return replay


class Tuner:
    """Times calls; without `timing` the estimate decides."""

    def __init__(self, launcher: Launcher, timing: bool) -> None:
        self.launcher, self.timing = launcher, timing
        self.known: dict[str, tuple[Config, float]] = {}

    def prepare(self, calls: Iterable[Call]) -> None:
        """Compile the candidates of all calls that are not known yet, on all processors."""
        fresh = {c.key: c for c in calls if c.key not in self.known}
        if not self.timing or not fresh:
            return
        precompile([self.launcher.described(call, config) for call in fresh.values()
                    for config in call.configs[:CANDIDATES]])

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
            timed = [(self.timed(call, c), c) for c in call.configs[:CANDIDATES]]
            time, config = min(timed, key=lambda x: x[0])
            self.known[call.key] = (config, time)
        config, time = self.known[call.key]
        return call, config, time

    def timed(self, call: Call, config: Config) -> float:
        """Seconds of one launch among many in a CUDA graph; infinite where it does not fit."""
        launch = self.launcher.bound(call, config)
        if not self._tried(launch):
            return float("inf")
        replay = captured([launch] * REPEATS)
        replay()
        rounds = []
        for _ in range(ROUNDS):
            start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            for _ in range(REPLAYS):
                replay()
            stop.record()
            torch.cuda.synchronize()
            rounds.append(start.elapsed_time(stop) / REPLAYS / REPEATS * 1e-3)
        return float(median(rounds))
