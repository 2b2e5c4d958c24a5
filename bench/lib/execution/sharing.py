"""Frames shared between CPU and GPU: each device takes the next ones when it is done with its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

import numpy as np

from dovetail.gpu.executor import Compiled
from dovetail.ir import Array, Graph
from lib.execution.parts import CpuRunner, Manner, Runner, cpu_runner, noise

BATCHES = 8
"""Batches that the GPU takes at once, so that its lanes overlap (chosen)."""


def rates(workers: Sequence[tuple[str, Runner, Mapping[str, Array]]], seconds: float) -> dict[str, float]:
    """Frames per second of each device while all workers run side by side; what is begun in time is finished and counts."""
    begin, failed, found = threading.Barrier(len(workers)), list[BaseException](), dict.fromkeys((w[0] for w in workers), 0.0)
    lock = threading.Lock()

    def work(name: str, runner: Runner, frames: Mapping[str, Array]) -> None:
        try:
            runner.run(frames)
            begin.wait()
            begun, count = time.perf_counter(), 0
            while time.perf_counter() - begun < seconds:
                runner.run(frames)
                count += len(next(iter(frames.values())))
            taken = time.perf_counter() - begun
            with lock:
                found[name] += count / taken
        except threading.BrokenBarrierError:
            return
        except BaseException as reason:  # raised below
            failed.append(reason)
            begin.abort()
    threads = [threading.Thread(target=work, args=worker, daemon=True) for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]
    return found


def pool(graph: Graph, form: str, threads: int, sessions: int) -> list[CpuRunner]:
    """So many sessions that share threads."""
    return [cpu_runner(graph, Manner(form, max(1, threads // sessions))) for _ in range(sessions)]


def shared(graph: Graph, made: Compiled, form: str, threads: int, seconds: float, rounds: int = 3) -> dict[str, Any]:
    """Frames per second of the GPU alone, of the CPU alone in its best division into sessions, and of both together."""
    frame = noise(graph, 1)
    many = {name: np.concatenate([x] * made.images * BATCHES) for name, x in frame.items()}
    found: dict[str, Any] = {"batch": made.images}
    divisions = sorted({1, max(1, threads // 4), threads})
    alone = {n: rates([("cpu", r, frame) for r in pool(graph, form, threads, n)], seconds)["cpu"] for n in divisions}
    best = max(alone, key=lambda n: alone[n])
    found["cpu_sessions"] = {str(n): rate for n, rate in alone.items()}
    whole = pool(graph, form, threads, best)
    fewer = [pool(graph, form, max(1, threads - kept), min(best, max(1, threads - kept))) for kept in (2,) if kept < threads]
    gpu = ("gpu", made, many)
    tries: dict[str, list[dict[str, float]]] = {}
    for _ in range(rounds):  # in turn, so that what drifts drifts for all
        tries.setdefault("gpu", []).append(rates([gpu], seconds))
        tries.setdefault("cpu", []).append(rates([("cpu", r, frame) for r in whole], seconds))
        for runners in (whole, *fewer):
            key = f"together, {len(runners)} sessions of {max(1, _threads(runners))} threads"
            tries.setdefault(key, []).append(rates([gpu, *(("cpu", r, frame) for r in runners)], seconds))
    totals = {key: median(sum(one.values()) for one in own) for key, own in tries.items()}
    together = {key: rate for key, rate in totals.items() if key.startswith("together")}
    key = max(together, key=lambda k: together[k])
    either = max(totals["gpu"], totals["cpu"])
    return {**found, "gpu_alone": totals["gpu"], "cpu_alone": totals["cpu"], "together": together[key], "division": key,
            "gain": together[key] / either - 1, "tries": tries}


def _threads(runners: Sequence[CpuRunner]) -> int:
    return int(runners[0].session.get_session_options().intra_op_num_threads)
