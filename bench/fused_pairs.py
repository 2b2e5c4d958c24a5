"""Fused modules (DWPW, PWDW, PWPW) of the paper's networks against our own layers apart and cuDNN's, on a GPU.

`PYTHONPATH=src python bench/fused_pairs.py --json FILE [--seconds 500] [--kind fp32 int8] [--batch 1] [--network NAME ...]`.
Needs torch, triton, onnx and NumPy alone; int8 takes networks quantized before (`bench/gpu_fcm.py --prepare`). A pair that
several networks have is measured once and names them. FILE is written after every pair; a second call goes on where it stopped.
`--rehearse` does it without a GPU, in Triton's interpreter, with one small network: figures of no worth.
`dovetail reproduce compact-2024 --part fcm` shows the record, with what FuseEstimator says of every pair.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import time
from pathlib import Path
from typing import Any

if "--rehearse" in sys.argv:
    os.environ["TRITON_INTERPRET"] = "1"  # before Triton is imported

from lib.gpu.networks import opened, quantized, save
from lib.gpu.pairs import measure_pairs
from lib.gpu.timing import gpu_is_here
from lib.zoo_graph import network

NETWORKS = ("mobilenet-v1", "mobilenet-v2", "proxylessnas-mobile", "xception", "mnasnet", "ceit-blocks", "cvt-blocks")
"""Those that paper III draws its pairs from, as our zoo names them; of the two transformers, their blocks of convolutions."""
REHEARSED = ("mobilenet-v1@32",)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=500.0, help="what this sitting may take (default: 500)")
    parser.add_argument("--kind", nargs="+", choices=["fp32", "int8", "fp16"], default=["fp32", "int8"])
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--network", nargs="+", default=None)
    parser.add_argument("--rehearse", action="store_true", help="without a GPU, one small network")
    asked = parser.parse_args()
    if not gpu_is_here() and not asked.rehearse:
        raise SystemExit("bench/fused_pairs.py: PyTorch finds no CUDA GPU; run it on a machine with one, or --rehearse")
    until = time.perf_counter() + asked.seconds
    found: dict[str, Any] = opened(asked.json, "PYTHONPATH=src python bench/fused_pairs.py " + shlex.join(sys.argv[1:]))
    names = asked.network or (REHEARSED if asked.rehearse else NETWORKS)
    done = {f"{kind} {name}": measure_pairs(found, asked.json, quantized(name)[0] if kind == "int8" else network(name), kind,
                                            asked.batch, until, name)
            for name in names for kind in asked.kind if time.perf_counter() < until}
    found.setdefault("complete", {}).update(done)
    save(asked.json, found)
    print(f"{sum(done.values())} of {len(names) * len(asked.kind)} networks and arithmetics complete")


if __name__ == "__main__":
    main()
