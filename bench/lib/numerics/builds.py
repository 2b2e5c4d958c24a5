"""Zoo networks at reduced size, all the way: planned, generated, simulated, compared with the reference bit for bit.

`python bench/numerics.py --part builds --json FILE [--network NAME=SIZE ...] [--board NAME] [--frames N] [--resume]`;
seconds include Verilator. Ends with 1 where a build differs from the reference.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import dovetail as dt
from dovetail import zoo
from dovetail.files import replace_text
from lib.parts import held

NETWORKS = {"squeezenet1.1": 48, "mobilenet-v2-0.5": 32, "shufflenet-v2-0.5": 64, "resnet18": 32, "mnasnet": 32,
            "efficientnet-lite0": 32}


def measure(name: str, size: int, board: str, frames: int, folder: Path) -> dict[str, Any]:
    model = folder / f"{name}.onnx"
    model.write_bytes(zoo.build(name, size=size))
    start = time.perf_counter()
    build = dt.compile(model, board, folder / name, verify=False)
    compiled = time.perf_counter()
    outcome = dt.verify(build, frames)
    return {"size": size, "equal": outcome.equal, "frames": outcome.frames, "tensors_compared": outcome.tensors_compared,
            "elements_compared": outcome.elements_compared, "compile_s": compiled - start,
            "verify_s": time.perf_counter() - compiled, "gap": build.plan.gap,
            "backends": {s["name"]: s["backend"] for s in outcome.segments},
            "first_mismatch": None if outcome.first_mismatch is None else str(outcome.first_mismatch)}


def main(asked: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--network", action="append", metavar="NAME=SIZE")
    parser.add_argument("--board", default="tx2-c10gx")
    parser.add_argument("--frames", type=int, default=2)
    parser.add_argument("--resume", action="store_true", help="keep the networks that FILE holds, and do the others")
    options = parser.parse_args(asked)
    chosen = {n: int(s) for n, _, s in (text.partition("=") for text in options.network)} if options.network else NETWORKS
    found = held(options.json, options.resume)
    with tempfile.TemporaryDirectory() as folder:
        for name, size in chosen.items():
            if name in found:
                continue
            result = found[name] = measure(name, size, options.board, options.frames, Path(folder))
            simulated = sum(b == "verilator" for b in result["backends"].values())
            print(f"{name:20} {size:3} px  {'bit-exact' if result['equal'] else result['first_mismatch']}  "
                  f"{result['tensors_compared']} boundary tensors, {simulated} designs simulated, "
                  f"compile {result['compile_s']:.0f} s, verify {result['verify_s']:.0f} s", flush=True)
            if options.json:
                replace_text(options.json, json.dumps(found, indent=1) + "\n")
    return 0 if all(result["equal"] for result in found.values()) else 1

