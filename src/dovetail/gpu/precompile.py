"""Kernels compiled side by side: Triton compiles under one lock per process, so several processes fill its cache on disk."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import triton

from dovetail.gpu import kernels, kernels_bytes, kernels_fused, kernels_held, kernels_moves

KERNELS: Mapping[str, Any] = {
    "conv": kernels.conv, "deep": kernels_held.deep, "vector": kernels_held.vector, "depthwise": kernels.depthwise,
    "bytewise": kernels_bytes.bytewise, "fused": kernels_fused.fused,
    "banded": kernels_fused.banded, "pool": kernels_moves.pool, "mean": kernels_moves.mean, "add": kernels_moves.add,
    "chosen": kernels_moves.chosen, "looked_up": kernels_moves.looked_up,
    "multiplied": kernels_moves.multiplied}
FEWEST = 8
"""Jobs below which starting processes takes longer than compiling."""


@dataclass(frozen=True, slots=True)
class Job:
    """A kernel to compile: element types (or numbers) of its operands, constants and tile."""

    kernel: str
    operands: tuple[str | int, ...]
    constants: Mapping[str, int | float | bool | str]
    config: Mapping[str, int]
    pdl: bool

    def run(self) -> None:
        """Compile; what does not fit is left for the one who launches it to find out."""
        operands = [o if isinstance(o, int) else getattr(torch, o) for o in self.operands]
        options = {**self.config, **({"launch_pdl": True} if self.pdl else {})}
        try:
            KERNELS[self.kernel].warmup(*operands, grid=(1, 1, 1), **self.constants, **options, PDL=self.pdl)
        except (triton.runtime.errors.OutOfResources, triton.compiler.errors.CompilationError, RuntimeError):
            return


def precompile(jobs: Sequence[Job]) -> None:
    """Compile all jobs into Triton's cache, on all processors."""
    workers = min(os.cpu_count() or 1, len(jobs) // 4)
    if len(jobs) < FEWEST or workers < 2:
        return
    command = [sys.executable, "-m", "dovetail.gpu.precompile"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    running = []
    for shard in range(workers):
        process = subprocess.Popen(command, stdin=subprocess.PIPE, env=environment)
        assert process.stdin is not None
        process.stdin.write(pickle.dumps(list(jobs[shard::workers])))
        process.stdin.close()
        running.append(process)
    for process in running:
        process.wait()


if __name__ == "__main__":
    for job in pickle.load(sys.stdin.buffer):
        job.run()
