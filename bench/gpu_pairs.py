"""Pairs of a depthwise and a pointwise layer of MobileNetV2: fused, our layers apart, and cuDNN's, each alone in a CUDA graph.

`PYTHONPATH=src python bench/gpu_pairs.py --json FILE [--kind fp32 --kind fp16 ...] [--batch N]`, on a GPU with torch, triton,
onnx and NumPy alone. Writes `pairs` into the file bench/gpu_fcm.py writes: of every distinct pair `fused_us`, `apart_us`,
`ours_us` (the better one), `cudnn_us` in the same arithmetic (TF32 against TF32, float32 against float32).
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

from dovetail.files import replace_text
from dovetail.gpu.executor import TYPES, gpu_here, launcher_here
from dovetail.gpu.tuning import Tuner, captured
from dovetail.ir import Graph
from dovetail.kernels.calls import Call
from dovetail.kernels.items import Item
from dovetail.kernels.lower import lower
from dovetail.measure.cuda import apply_node
from gpu_fcm import KINDS, timed_us
from zoo_graph import network

NETWORK = "mobilenet-v2"
COPIES = 10
"""Pairs one after another in a CUDA graph."""


def cudnn_us(graph: Graph, pair: tuple[Item, Item], kind: str, x: torch.Tensor) -> float:
    """The pair in PyTorch, channels last, biases and activations as the graph has them."""
    dtype = TYPES[KINDS[kind]]
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = kind == "tf32"
    weights = [[torch.from_numpy(graph.constants[c].array.copy()).cuda().to(dtype) for c in item.node.params] for item in pair]
    weights = [[w.to(memory_format=torch.channels_last) if w.ndim == 4 else w for w in each] for each in weights]
    frames = x.to(dtype).to(memory_format=torch.channels_last)

    def run() -> None:
        value = frames
        for item, each in zip(pair, weights, strict=True):
            value = apply_node(torch, item.node, [value], each)
    for _ in range(3):
        run()
    return timed_us(captured([run] * COPIES))[0] / COPIES


def told(item: Item) -> str:
    """What a layer reads and what it is."""
    return f"{item.x.height}x{item.x.width}x{item.x.channels} {'dw' if item.depthwise else 'pw'}"


def measured(graph: Graph, kind: str, images: int) -> dict[str, Any]:
    lowered, launcher = lower(graph, KINDS[kind], gpu_here(), images), launcher_here(KINDS[kind])
    tuner, found = Tuner(launcher, timing=True), {}
    wanted: list[tuple[str, tuple[Item, Item], list[Call]]] = []
    for run in lowered.runs:
        if isinstance(run, Call):
            continue
        options = {(first, last): call for first, last, call in lowered.options(run, hopeless=float("inf"))}
        for first in range(len(run) - 1):
            a, b = run[first], run[first + 1]
            fused = options.get((first, first + 1))
            if fused is None or a.depthwise == b.depthwise or b.other is not None:
                continue
            name = f"{told(a)} {told(b)} {b.y.height}x{b.y.width}x{b.y.channels}"
            if all(name != other for other, *_ in wanted):
                wanted.append((name, (a, b), [options[first, first], options[first + 1, first + 1], fused]))
    tuner.prepare(call for *_, calls in wanted for call in calls)
    for name, pair, (first_call, second_call, fused_call) in wanted:
        bound = [launcher.bound(call, tuner.ranked(call)[0][1]) for call in (first_call, second_call, fused_call)]
        apart = timed_us(captured(bound[:2] * COPIES))[0] / COPIES
        fused_us = timed_us(captured(bound[2:] * COPIES))[0] / COPIES
        shape = (images, pair[0].x.channels, pair[0].x.height, pair[0].x.width)
        x = torch.from_numpy(np.random.default_rng(0).standard_normal(shape).astype(np.float32)).cuda()
        with torch.inference_mode():
            peer = cudnn_us(graph, pair, kind, x)
        ours = min(apart, fused_us)
        found[name] = {"fused_us": fused_us, "apart_us": apart, "ours_us": ours, "cudnn_us": peer, "ratio": peer / ours,
                       "fused_over_apart": apart / fused_us}
        print(f"{kind} b{images} {name:45} fused {fused_us:7.2f}  apart {apart:7.2f}  cudnn {peer:7.2f} us  ({peer / ours:.2f}x)",
              flush=True)
    ratios = [one["ratio"] for one in found.values()]
    return {"pairs": found, "ratio_median": median(ratios), "ratio_best": max(ratios),
            "fused_over_apart_best": max(one["fused_over_apart"] for one in found.values())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--kind", action="append", choices=[k for k in KINDS if k != "int8"],
                        help="repeatable; fp32 if none is named")
    parser.add_argument("--batch", type=int, default=1)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("bench/gpu_pairs.py: PyTorch finds no CUDA GPU; run it on a machine with one")
    found: dict[str, Any] = json.loads(options.json.read_text()) if options.json.is_file() else {"networks": {}}
    graph = network(NETWORK)
    for kind in options.kind or ["fp32"]:
        found.setdefault("pairs", {}).setdefault(kind, {})[f"b{options.batch}"] = measured(graph, kind, options.batch)
        replace_text(options.json, json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
