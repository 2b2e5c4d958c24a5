"""What looking at promising tiles again is worth: networks tuned on a GPU with and without `kernels/second_look.py`.

`PYTHONPATH=src:bench python bench/gpu_second_look.py --json FILE [--seconds 560]`. Needs torch, triton, onnx and NumPy alone.
A row is a network, an arithmetic and a batch. It is tuned as users get it by default, from cold (no remembered choices, no
compiled kernels), once with the second look and once without, each in a process of its own; rows begin with either in turn. The
file is written after each; a second call does what is missing. `--repeats 2` tunes each row twice: how far two tunings of one
row are apart is noise. Without a GPU `--rehearse` does one small network in Triton's interpreter: figures of no worth.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

if "--rehearse" in sys.argv or "--rehearsed" in sys.argv:
    os.environ["TRITON_INTERPRET"] = "1"  # before Triton is imported

import torch
import triton

from dovetail.files import replace_text
from dovetail.gpu.executor import compile_graph
from dovetail.kernels import ranking
from gpu_networks import KINDS
from gpu_timing import gpu_is_here, timed_us
from zoo_graph import network

ROWS = (("mobilenet-v2", "fp16", 1), ("resnet50", "fp16", 64), ("shufflenet-v2", "fp16", 1), ("efficientnet-lite0", "fp16", 64),
        ("squeezenet1.1", "fp16", 1), ("mobilenet-v2", "fp16", 64), ("resnet50", "fp16", 1), ("mnasnet", "fp16", 1),
        ("squeezenet1.1", "fp16", 64), ("mobilenet-v2", "fp32", 1))
"""float32 has no second look: its row shows the noise."""
TIMED = 3
"""Times that a network is timed after tuning; the median counts."""


def tuned_and_timed(name: str, kind: str, images: int, again: bool) -> dict[str, Any]:
    """Seconds that tuning takes, and microseconds of the network's CUDA graph."""
    if not again:
        ranking.look_for = lambda gpu, kernel, kind: None  # type: ignore[assignment]
    graph, begun = network(name), time.perf_counter()
    made = compile_graph(graph, KINDS[kind], images)
    tuning_s = time.perf_counter() - begun
    times = sorted(timed_us(made.replay)[0] for _ in range(TIMED))
    return {"us": median(times), "least_us": times[0], "most_us": times[-1], "tuning_s": tuning_s, "kernels": len(made.calls),
            "calls": [" ".join((call.kernel, *(f"{n}={v}" for n, v in tile.items()))) for call, tile in made.calls]}


def apart(name: str, kind: str, images: int, again: bool, rehearsed: bool) -> dict[str, Any]:
    """The same in a process of its own, with empty caches."""
    with tempfile.TemporaryDirectory() as folder:
        places = {"TRITON_CACHE_DIR": f"{folder}/triton", "DOVETAIL_CACHE": f"{folder}/dovetail"}
        words = [sys.executable, __file__, "--json", f"{folder}/one.json", "--one", name, kind, str(images), str(int(again))]
        ended = subprocess.run([*words, *["--rehearsed"] * rehearsed], env={**os.environ, **places}, check=False,
                               capture_output=True, text=True)
        if ended.returncode:
            return {"reason": ended.stderr.strip().splitlines()[-1:] or [f"ended with {ended.returncode}"]}
        one: dict[str, Any] = json.loads(Path(folder, "one.json").read_text())
        return one


def summary(rows: dict[str, Any]) -> list[str]:
    """How much longer networks take without the second look, row by row, and in the median."""
    lines, gains, tuning = list[str](), list[float](), list[float]()
    for row, found in rows.items():
        sides = [[one for key, one in found.items() if key.startswith(side) and "us" in one] for side in ("with ", "without ")]
        if all(sides):
            ours, plain = (median(one["us"] for one in side) for side in sides)
            seconds = [median(one["tuning_s"] for one in side) for side in sides]
            if row.split()[1] != "fp32":
                gains.append(plain / ours - 1)
                tuning.append(seconds[1] - seconds[0])
            lines.append(f"{row:28} with {ours:8.1f} us, without {plain:8.1f} us: {plain / ours - 1:+.2%}; "
                         f"tuned in {seconds[0]:.0f} s and {seconds[1]:.0f} s")
    if gains:
        lines.append(f"median gain of {len(gains)} networks in float16: {median(gains):+.2%}, from {min(gains):+.2%} to "
                     f"{max(gains):+.2%}; tuning without takes {median(tuning):+.1f} s")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=560.0, help="begin nothing that may end later (default: 560)")
    parser.add_argument("--repeats", type=int, default=1, help="tunings of each row and side (default: 1)")
    parser.add_argument("--rehearse", action="store_true", help="one small network without a GPU")
    parser.add_argument("--one", nargs=4, metavar=("NAME", "KIND", "IMAGES", "AGAIN"), help=argparse.SUPPRESS)
    parser.add_argument("--rehearsed", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        name, kind, images, again = options.one
        options.json.write_text(json.dumps(tuned_and_timed(name, kind, int(images), again == "1")))
        return
    if not gpu_is_here() and not options.rehearse:
        raise SystemExit("bench/gpu_second_look.py: PyTorch finds no CUDA GPU; run it on a machine with one, or --rehearse")
    begun, longest = time.perf_counter(), 0.0
    found: dict[str, Any] = json.loads(options.json.read_text()) if options.json.is_file() else {"rows": {}}
    found |= {"gpu": torch.cuda.get_device_name() if gpu_is_here() else "none", "torch": torch.__version__,
              "triton": triton.__version__}
    rows = (("mobilenet-v2@32", "fp16", 1),) if options.rehearse else ROWS
    for repeat in range(options.repeats):
        for number, row in enumerate(rows):
            held = found["rows"].setdefault(" ".join(map(str, row)), {})
            for again in (True, False) if (number + repeat) % 2 == 0 else (False, True):
                key, start = f"{'with' if again else 'without'} {repeat}", time.perf_counter()
                if "us" in held.get(key, {}) or start - begun + longest > options.seconds:
                    continue
                held[key] = one = apart(*row, again, options.rehearse)
                longest = max(longest, time.perf_counter() - start)
                replace_text(options.json, json.dumps(found, indent=1) + "\n")
                told = f"{one['us']:9.1f} us, tuned in {one['tuning_s']:.0f} s" if "us" in one else one["reason"]
                print(f"{' '.join(map(str, row)):28} {key:10} {told} ({time.perf_counter() - begun:.0f} s)", flush=True)
    found["summary"] = summary(found["rows"])
    replace_text(options.json, json.dumps(found, indent=1) + "\n")
    print("\n".join(found["summary"]))


if __name__ == "__main__":
    main()
