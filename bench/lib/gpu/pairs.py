"""Pairs of depthwise and pointwise layers of a network: fused, our layers apart, and cuDNN's, each alone in a CUDA graph.

The items `pairs` of bench/gpu_fcm.py (MobileNetV2) and bench/fused_pairs.py (the paper's networks). Of every distinct pair
`fused_us`, `apart_us`, `cudnn_us` in the same arithmetic (TF32 against TF32, float32 against float32; cuDNN has no int8), which
module it is, which kernel was fastest, and both times by our estimate. Additions that follow a pair are left out on both sides.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from math import inf, isfinite, nan
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dovetail.gpu.executor import gpu_here
from dovetail.gpu.launcher import TYPES, launcher_here
from dovetail.gpu.tuning import Tuner
from dovetail.ir import Graph
from dovetail.kernels.calls import Call, Lowered, call_of
from dovetail.kernels.items import Item, form_of
from dovetail.kernels.lower import lower
from dovetail.kernels.ranking import best_seconds
from dovetail.kernels.table import part_shapes
from dovetail.measure.cuda import apply_node
from lib.gpu.cases import NETWORK
from lib.gpu.networks import KINDS, save
from lib.gpu.timing import captured, device, gpu_is_here, timed_us

COPIES = 10
"""Pairs one after another in a CUDA graph."""
Pair = tuple[Item, Item]
MODULES = {"dp": "DWPW", "pd": "PWDW", "pp": "PWPW"}
"""The paper's fused modules by the letters of `form_of`; its PWDW_R is a PWDW whose areas overlap (our kernel `fused`)."""


def cudnn_us(graph: Graph, pair: Pair, kind: str, x: torch.Tensor) -> float:
    """The pair in PyTorch, channels last, biases and activations as the graph has them."""
    dtype = TYPES[KINDS[kind]]
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = kind == "tf32"
    weights = [[torch.from_numpy(graph.constants[c].array.copy()).to(device()).to(dtype) for c in item.node.params]
               for item in pair]
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
    kind = f"dw{item.window.kernel[0]}" if item.depthwise else "pw"
    return f"{item.x.height}x{item.x.width}x{item.x.channels} {kind}"


def pairs_of(lowered: Lowered) -> dict[str, Pair]:
    """The distinct pairs of depthwise and pointwise layers that one kernel can compute."""
    found: dict[str, Pair] = {}
    for run in lowered.runs:
        for a, b in pairwise(run) if not isinstance(run, Call) else ():
            pair = (a.shortened(1), b.shortened(1))
            if form_of(pair) in MODULES and a.other is None and part_shapes(lowered.kind, pair):
                found.setdefault(f"{told(a)} {told(b)} {b.y.height}x{b.y.width}x{b.y.channels}", pair)
    return found


def ways_of(kind: str, part: tuple[Item, ...]) -> list[Call]:
    return [call_of(gpu_here(), kind, part, shape) for shape in part_shapes(kind, part)]


def calls_of(kind: str, pairs: Iterable[Pair]) -> Iterator[Call]:
    """Every kernel that measuring pairs launches."""
    for pair in pairs:
        for part in (pair[:1], pair[1:], pair):
            yield from ways_of(KINDS[kind], part)


def layers_of(pair: Pair) -> list[dict[str, int | bool]]:
    """A pair as FuseEstimator (kernels/fuse_estimator.py) takes it."""
    return [{"depthwise": item.depthwise, "height": item.y.height, "width": item.y.width, "channels": item.x.channels,
             "filters": item.y.channels, "window": item.window.kernel[0], "stride": item.window.stride[0]} for item in pair]


def measured(graph: Graph, pair: Pair, kind: str, images: int, tuner: Tuner) -> dict[str, Any]:
    """One pair: the fastest of every way to compute it, with the best tile of each."""
    arithmetic, launcher = KINDS[kind], tuner.launcher

    def best(part: tuple[Item, ...]) -> tuple[Callable[[], None], str] | None:
        ranked = [(*tuner.ranked(call)[0], call) for call in ways_of(arithmetic, part)]
        took, config, call = min(ranked, key=lambda r: r[0])
        return (launcher.bound(call, config), call.kernel) if isfinite(took) else None

    def estimated_us(part: tuple[Item, ...]) -> float:
        return 1e6 * float(best_seconds(gpu_here(), arithmetic, part_shapes(arithmetic, part)).min())

    launcher.buffers.clear()
    first, second, fused = best(pair[:1]), best(pair[1:]), best(pair)
    assert first is not None, "every layer has a kernel that fits"
    assert second is not None, "every layer has a kernel that fits"
    found: dict[str, Any] = {
        "module": MODULES[form_of(pair)], "kernel": fused[1] if fused is not None else None, "layers": layers_of(pair),
        "fused_us": timed_us(captured([fused[0]] * COPIES))[0] / COPIES if fused is not None else None,
        "apart_us": timed_us(captured([first[0], second[0]] * COPIES))[0] / COPIES,
        "fused_estimated_us": estimated_us(pair), "apart_estimated_us": estimated_us(pair[:1]) + estimated_us(pair[1:])}
    if kind == "int8":
        return found
    x = pair[0].x
    frames = np.random.default_rng(0).standard_normal((images, x.channels, x.height, x.width)).astype(np.float32)
    with torch.inference_mode():
        return {**found, "cudnn_us": cudnn_us(graph, pair, kind, torch.from_numpy(frames).to(device()))}


def measure_pairs(found: dict[str, Any], path: Path, graph: Graph, kind: str, images: int, until: float = inf,
                  network: str = NETWORK) -> bool:
    """All pairs of a network into a file's content, after each of which it is saved; whether all were done by then."""
    lowered = lower(graph, KINDS[kind], gpu_here(), images)
    tuner = Tuner(launcher_here(KINDS[kind]), timing=gpu_is_here())
    place = found.setdefault("pairs", {}).setdefault(kind, {}).setdefault(f"b{images}", {"pairs": {}})
    pairs = pairs_of(lowered)
    for held in (place["pairs"][name] for name in pairs if name in place["pairs"]):
        held["networks"] = sorted({*held.get("networks", ()), network})
    tuner.look_at(list(calls_of(kind, [pair for name, pair in pairs.items() if name not in place["pairs"]])))  # side by side
    for name, pair in pairs.items():
        if time.perf_counter() > until:
            return False
        if name in place["pairs"]:
            continue
        one = place["pairs"][name] = {**measured(graph, pair, kind, images, tuner), "networks": [network]}
        print(f"{kind} b{images} {name:45} fused {one['fused_us'] or nan:7.2f}  apart {one['apart_us']:7.2f}  "
              f"cudnn {one.get('cudnn_us', nan):7.2f} us", flush=True)
        save(path, found)
    return True
