"""What one kernel for a whole network would save: a barrier over the whole GPU beside the start of the next kernel.

`PYTHONPATH=src python bench/gpu_barrier.py --json FILE` on a machine with an NVIDIA GPU of compute capability 9.0 or newer. A
chain of stages, each of which reads what another program wrote in the stage before, is computed twice: by one kernel with a
barrier between stages, and by one kernel per stage in a CUDA graph, each started while the one before ends (programmatic
dependent launch). Results of both are compared. What a stage takes is the slope between a short and a long chain, so that the
start of a graph counts for neither.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from dovetail.files import replace_text
from lib.gpu.timing import captured, timed_us

STAGES = 28, 280
"""Kernels that MobileNetV2 has in float16 at batch 1, and ten times as many."""
WARPS = 4, 8
WORDS = 128, 2048
"""Values that a program moves in a stage: next to nothing, and about what a program of MobileNetV2's later layers writes."""
APART = 37
"""How far away the program is whose values are read: on another multiprocessor."""


@triton.jit
def one_stage(read, write, programs, apart: tl.constexpr, words: tl.constexpr):
    """A stage as a kernel of its own."""
    at = tl.arange(0, words)
    own, other = tl.program_id(0), (tl.program_id(0) + apart) % programs
    gdc_wait()
    gdc_launch_dependents()
    tl.store(write + own * words + at, tl.load(read + other * words + at) + 1)


@triton.jit
def all_stages(even, odd, arrived, stages, programs, apart: tl.constexpr, words: tl.constexpr):
    """All stages in one kernel; all its programs must be resident. One word counts programs that have arrived."""
    at = tl.arange(0, words)
    own, other = tl.program_id(0), (tl.program_id(0) + apart) % programs
    read, write = even, odd
    for stage in range(stages):
        tl.store(write + own * words + at, tl.load(read + other * words + at, cache_modifier=".cg") + 1)
        tl.debug_barrier()
        tl.atomic_add(arrived, 1, sem="release", scope="gpu")
        here = 0
        while here < (stage + 1) * programs:
            here = tl.inline_asm_elementwise("ld.acquire.gpu.global.s32 $0, [$1];", "=r,l", [arrived], dtype=tl.int32,
                                             is_pure=False, pack=1)
        tl.debug_barrier()
        read, write = write, read


def chain(kernel: str, stages: int, warps: int, words: int) -> tuple[Callable[[], None], Callable[[], torch.Tensor]]:
    """A chain ready to run, and what it leaves."""
    programs = torch.cuda.get_device_properties(0).multi_processor_count
    buffers = [torch.arange(programs * words, dtype=torch.int32, device="cuda") for _ in range(2)]
    arrived, fixed = torch.zeros(1, dtype=torch.int32, device="cuda"), {"apart": APART, "words": words, "num_warps": warps}
    launches: list[Callable[[], object]] = [partial(one_stage[(programs,)], buffers[k % 2], buffers[1 - k % 2], programs, **fixed,
                                                    launch_pdl=True) for k in range(stages)]
    if kernel == "barriers":
        launches = [arrived.zero_, partial(all_stages[(programs,)], *buffers, arrived, stages, programs, **fixed)]
    return captured(launches), lambda: buffers[stages % 2].clone()


def compared(warps: int, words: int) -> dict[str, Any]:
    """What a stage takes either way."""
    row: dict[str, Any] = {"warps": warps, "words": words}
    left = dict[tuple[str, int], torch.Tensor]()
    for kernel in ("launches", "barriers"):
        for stages in STAGES:
            replay, result = chain(kernel, stages, warps, words)
            replay()
            left[kernel, stages] = result()
            row[f"{kernel}_{stages}_us"] = timed_us(replay)[0]
        short, long = (row[f"{kernel}_{stages}_us"] for stages in STAGES)
        row[f"{kernel}_us_per_stage"] = (long - short) / (STAGES[1] - STAGES[0])
    row["equal"] = all(bool((left["launches", s] == left["barriers", s]).all()) for s in STAGES)
    row["saved_us_in_28"] = STAGES[0] * (row["launches_us_per_stage"] - row["barriers_us_per_stage"])
    return row


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, required=True)
    options = parser.parse_args()
    if not torch.cuda.is_available() or torch.cuda.get_device_capability() < (9, 0):
        raise SystemExit("gpu_barrier: needs an NVIDIA GPU of compute capability 9.0 or newer")
    record = {"command": "PYTHONPATH=src python bench/gpu_barrier.py --json FILE",
              "date": time.strftime("%Y-%m-%d", time.gmtime()), "gpu": torch.cuda.get_device_name(),
              "versions": f"torch {torch.__version__}, triton {triton.__version__}",
              "rows": [compared(w, n) for w, n in product(WARPS, WORDS)]}
    replace_text(options.json, json.dumps(record, indent=1) + "\n")
    print(json.dumps(record["rows"], indent=1))
    return 0 if all(row["equal"] for row in record["rows"]) else 1


if __name__ == "__main__":
    sys.exit(main())
