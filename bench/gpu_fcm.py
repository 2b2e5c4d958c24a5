"""GPU networks beside PyTorch's: ours, cuDNN (BatchNorm folded, channels_last, CUDA graph), eager, and torch.compile on request.

`PYTHONPATH=src python bench/gpu_fcm.py --json FILE [--network NAME ...] [--kind KIND ...] [--batch N ...] [--compile]
[--energy]`. Needs torch, triton, onnx and NumPy alone. All in one run on one GPU: medians of rounds with their spread, relative
error against float64, and the floor: weights, input and output of every kernel moved once at the copy bandwidth measured here,
plus one launch each. Caches are warm; `cold_us` is ours with the second-level cache flushed before every run. int8 has no peer
in PyTorch (null); its results are compared with the integer reference, bit for bit, on one image. The file is written after
every measurement; a second call with the same file continues it.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
import triton

from dovetail.errors import DovetailError
from dovetail.files import replace_text
from dovetail.gpu.executor import Compiled, compile_graph
from dovetail.gpu.tuning import captured
from dovetail.ir import Graph
from dovetail.kernels.place import ELEMENT, Place
from dovetail.measure.energy import gpu_counter
from dovetail.numerics.calibration import synthetic
from dovetail.numerics.quantize import quantize_graph
from dovetail.numerics.reference import run_integer
from gpu_peers import TorchNetwork
from zoo_graph import network

NETWORKS = ("mobilenet-v2", "mobilenet-v1", "proxylessnas-mobile", "efficientnet-lite0", "mnasnet", "shufflenet-v2",
            "squeezenet1.1", "xception")
KINDS = {"fp16": "float16", "fp32": "float32", "tf32": "tf32", "int8": "int8"}
BATCHES = (1, 8, 64)
ROUNDS, ROUND_S, ENERGY_S = 9, 0.02, 2.0
CHECKED = 8
"""Images whose results are compared with float64."""
FLUSHED_BYTES = 256 << 20


def timed_us(run: Callable[[], object]) -> tuple[float, float]:
    """Median time of a run and the spread of rounds (half the distance of the quartiles)."""
    def block(count: int) -> float:
        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize()
        start.record()
        for _ in range(count):
            run()
        stop.record()
        torch.cuda.synchronize()
        return float(start.elapsed_time(stop)) * 1e3 / count
    count = max(3, int(ROUND_S * 1e6 / max(block(3), 1.0)))
    rounds = sorted(block(count) for _ in range(ROUNDS))
    return median(rounds), (rounds[-3] - rounds[2]) / 2


def cold_us(run: Callable[[], object]) -> float:
    """Median time of a run after everything else was thrown out of the caches."""
    junk, times = torch.empty(FLUSHED_BYTES, dtype=torch.int8, device="cuda"), []
    for _ in range(15):
        junk.zero_()
        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        run()
        stop.record()
        torch.cuda.synchronize()
        times.append(float(start.elapsed_time(stop)) * 1e3)
    return median(times)


def millijoules(run: Callable[[], object], images: int, run_us: float) -> float | None:
    """Energy per image of the whole card, over two seconds of runs."""
    counter = gpu_counter()
    if counter is None:
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
    a = torch.empty(1 << 30, dtype=torch.int8, device="cuda")
    b = torch.empty_like(a)
    return 2 * a.numel() / (timed_us(lambda: b.copy_(a))[0] * 1e-6)


def floor_us(made: Compiled, bandwidth: float) -> float:
    """Every kernel's operands moved once, and its launch."""
    element = ELEMENT[made.lowered.kind]
    moved = sum(o.pixels * o.channels * element if isinstance(o, Place) else o.size * element
                for call, _ in made.calls for o in call.operands if not isinstance(o, int))
    return moved / bandwidth * 1e6 + len(made.calls) * made.lowered.gpu.launch_s * 1e6


def relative(found: np.ndarray[Any, Any], wanted: np.ndarray[Any, Any]) -> float:
    return float(np.linalg.norm(found - wanted) / np.linalg.norm(wanted))


def measure_floats(graph: Graph, kind: str, images: int, bandwidth: float, compiled: bool, energy: bool) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((images, *graph.shape(graph.inputs[0])[1:])).astype(np.float32)
    start = time.perf_counter()
    made = compile_graph(graph, KINDS[kind], images)
    tuned = time.perf_counter() - start
    found = made.run({graph.inputs[0]: x})[graph.outputs[0]][:CHECKED]
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = kind == "tf32"
    with torch.inference_mode():
        frames = torch.from_numpy(x).cuda()
        exact = TorchNetwork(graph).cuda().double()(frames[:CHECKED].double()).cpu().numpy()
        dtype = torch.float16 if kind == "fp16" else torch.float32
        peer = TorchNetwork(graph).cuda().to(dtype).to(memory_format=torch.channels_last)
        frames = frames.to(dtype).to(memory_format=torch.channels_last)
        for _ in range(3):
            peer(frames)
        results: list[torch.Tensor] = []
        replay = captured([lambda: results.append(peer(frames))])
        ours, spread = timed_us(made.replay)
        cudnn, cudnn_spread = timed_us(replay)
        outcome: dict[str, Any] = {
            "ours_us": ours, "ours_spread_us": spread, "cudnn_us": cudnn, "cudnn_spread_us": cudnn_spread, "compile_us": None,
            "eager_us": timed_us(lambda: peer(frames))[0], "floor_us": floor_us(made, bandwidth), "cold_us": cold_us(made.replay),
            "rel_err": relative(found, exact), "cudnn_rel_err": relative(results[-1][:CHECKED].double().cpu().numpy(), exact),
            "ours_mj": None, "compile_mj": None, "cudnn_mj": None, "kernels": len(made.calls),
            "fused": sum(call.kernel == "fused" for call, _ in made.calls), "tuning_s": tuned}
        if energy:
            outcome |= {"ours_mj": millijoules(made.replay, images, ours), "cudnn_mj": millijoules(replay, images, cudnn)}
        if compiled:
            fast = torch.compile(peer, mode="max-autotune", fullgraph=True)
            for _ in range(3):
                fast(frames)
            outcome["compile_us"] = timed_us(lambda: fast(frames))[0]
            outcome["compile_mj"] = millijoules(lambda: fast(frames), images, outcome["compile_us"]) if energy else None
    return outcome


def measure_integers(graph: Graph, images: int, bandwidth: float, energy: bool) -> dict[str, Any]:
    quantized = quantize_graph(graph, synthetic(graph, 4))
    scheme = quantized.tensors[quantized.inputs[0]].scheme
    assert scheme is not None
    rng = np.random.default_rng(0)
    shape = (images, *graph.shape(graph.inputs[0])[1:])
    x = {graph.inputs[0]: rng.integers(scheme.lo, scheme.hi + 1, shape).astype(scheme.dtype)}
    start = time.perf_counter()
    made = compile_graph(quantized, "int8", images)
    tuned = time.perf_counter() - start
    found, wanted = made.run(x), run_integer(quantized, {n: v[:1] for n, v in x.items()})
    if not all(np.array_equal(found[n][:1], wanted[n]) for n in wanted):
        raise SystemExit(f"{graph.name}: int8 results differ from the integer reference")
    ours, spread = timed_us(made.replay)
    return {"ours_us": ours, "ours_spread_us": spread, "cudnn_us": None, "compile_us": None, "eager_us": None,
            "floor_us": floor_us(made, bandwidth), "cold_us": cold_us(made.replay), "rel_err": 0.0, "cudnn_rel_err": None,
            "ours_mj": millijoules(made.replay, images, ours) if energy else None, "compile_mj": None, "kernels": len(made.calls),
            "fused": sum(call.kernel == "fused" for call, _ in made.calls), "tuning_s": tuned}


def told(one: dict[str, Any]) -> str:
    """One measurement in a line."""
    beside = "" if one["cudnn_us"] is None else (
        f"cudnn {one['cudnn_us']:8.1f} us ({one['cudnn_us'] / one['ours_us']:.2f}x)  "
        f"error {one['rel_err']:.1e} against {one['cudnn_rel_err']:.1e}  ")
    return (f"ours {one['ours_us']:8.1f} us  {beside}floor {one['floor_us']:.1f} us  cold {one['cold_us']:.1f} us  "
            f"{one['kernels']} kernels ({one['fused']} fused), tuned in {one['tuning_s']:.0f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--network", action="append", help="repeatable; all if none is named")
    parser.add_argument("--kind", action="append", choices=list(KINDS), help="repeatable; all if none is named")
    parser.add_argument("--batch", action="append", type=int, help=f"repeatable; {BATCHES} if none is named")
    parser.add_argument("--compile", action="store_true", help="torch.compile(mode='max-autotune') too: minutes per network")
    parser.add_argument("--energy", action="store_true", help="millijoules per image by NVML: two seconds each")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("bench/gpu_fcm.py: PyTorch finds no CUDA GPU; run it on a machine with one")
    found: dict[str, Any] = json.loads(options.json.read_text()) if options.json.is_file() else {"networks": {}}
    bandwidth = copy_bandwidth()
    found |= {"gpu": torch.cuda.get_device_name(), "date": date.today().isoformat(), "torch": torch.__version__,
              "triton": triton.__version__, "cudnn": torch.backends.cudnn.version(), "copy_bytes_per_s": bandwidth,
              "command": "PYTHONPATH=src python bench/gpu_fcm.py " + " ".join(sys.argv[1:])}
    for name in options.network or NETWORKS:
        graph = network(name)
        for kind in options.kind or KINDS:
            for images in options.batch or BATCHES:
                place = found["networks"].setdefault(name.replace("-", "_"), {}).setdefault(kind, {})
                if f"b{images}" in place:
                    continue
                try:
                    place[f"b{images}"] = one = (measure_integers(graph, images, bandwidth, options.energy) if kind == "int8" else
                                                 measure_floats(graph, kind, images, bandwidth, options.compile, options.energy))
                except DovetailError as reason:
                    place[f"b{images}"] = {"ours_us": None, "reason": str(reason)}
                    print(f"{name:20} {kind} b{images:<3} {reason}", flush=True)
                    continue
                print(f"{name:20} {kind} b{images:<3} {told(one)}", flush=True)
                replace_text(options.json, json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
