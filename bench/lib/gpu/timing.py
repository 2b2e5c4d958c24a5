"""How GPU benches measure: medians of rounds between CUDA events, cold caches, energy of the card, the copy bandwidth.

Without a GPU everything runs on the CPU, in Triton's interpreter, timed by the clock: figures of no worth, which show that a
bench works before it costs time on a GPU.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from statistics import median

import torch

from dovetail.gpu.tuning import captured as captured_graph
from dovetail.gpu.tuning import launch_all
from dovetail.measure.energy import gpu_counter

ROUNDS, ROUND_S, ENERGY_S = 9, 0.02, 2.0
FLUSHED_BYTES = 256 << 20
COPIED_BYTES = 1 << 30


def gpu_is_here() -> bool:
    return torch.cuda.is_available()


def device() -> str:
    return "cuda" if gpu_is_here() else "cpu"


def synchronize() -> None:
    if gpu_is_here():
        torch.cuda.synchronize()


def captured(launches: Sequence[Callable[[], object]]) -> Callable[[], None]:
    """All launches as one CUDA graph, or one after another."""
    return captured_graph(launches) if gpu_is_here() else lambda: launch_all(launches)


def block_us(run: Callable[[], object], count: int) -> float:
    """Time of each of several runs in a row."""
    if not gpu_is_here():
        begun = time.perf_counter()
        for _ in range(count):
            run()
        return (time.perf_counter() - begun) * 1e6 / count
    start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize()
    start.record()
    for _ in range(count):
        run()
    stop.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(stop)) * 1e3 / count


def timed_us(run: Callable[[], object]) -> tuple[float, float]:
    """Median time of a run and the spread of rounds (half the distance of the quartiles)."""
    rounds = ROUNDS if gpu_is_here() else 1
    count = max(3, int(ROUND_S * 1e6 / max(block_us(run, 3), 1.0))) if gpu_is_here() else 1
    found = sorted(block_us(run, count) for _ in range(rounds))
    return median(found), (found[-1 - rounds // 4] - found[rounds // 4]) / 2


def cold_us(run: Callable[[], object]) -> float:
    """Median time of a run after everything else was thrown out of the caches."""
    if not gpu_is_here():
        return block_us(run, 1)
    junk, times = torch.empty(FLUSHED_BYTES, dtype=torch.int8, device="cuda"), []
    for _ in range(15):
        junk.zero_()
        times.append(block_us(run, 1))
    return median(times)


def millijoules(run: Callable[[], object], images: int, run_us: float) -> float | None:
    """Energy per image of the whole card, over two seconds of runs."""
    counter = gpu_counter()
    if counter is None or not gpu_is_here():
        return None
    block, runs = max(1, int(5e4 / run_us)), 0
    for _ in range(8 * block):
        run()
    torch.cuda.synchronize()
    before, start = counter.joules(), time.perf_counter()
    while time.perf_counter() - start < ENERGY_S:
        for _ in range(block):
            run()
        torch.cuda.synchronize()
        runs += block
    return (counter.joules() - before) / runs / images * 1e3


def copy_bandwidth() -> float:
    """Bytes per second of a large copy, read and written."""
    a = torch.empty(COPIED_BYTES if gpu_is_here() else 1 << 20, dtype=torch.int8, device=device())
    b = torch.empty_like(a)
    return 2 * a.numel() / (timed_us(lambda: b.copy_(a))[0] * 1e-6)
