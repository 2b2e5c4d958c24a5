"""GPU networks beside PyTorch's: ours, cuDNN (BatchNorm folded, channels_last, CUDA graph), eager, and torch.compile on request.

What bench/gpu_fcm.py measures of a network, an arithmetic and a batch, in one process on one GPU: medians of rounds with their
spread, relative error against float64, and the floor: weights, input and output of every kernel moved once at the copy bandwidth
measured here, plus one launch each. Caches are warm; `cold_us` is ours with the second-level cache flushed before every run.
int8 has no peer in PyTorch (null); its results are compared with the integer reference (`different` counts integers, 0 is right).
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from datetime import date
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
import triton

from dovetail.errors import DovetailError
from dovetail.files import replace_text
from dovetail.gpu.executor import Compiled, compile_graph
from dovetail.gpu.tuning import IN_PLACE_S
from dovetail.ir import Graph
from dovetail.ir.onnx.read import read_onnx
from dovetail.ir.onnx.write import to_onnx
from dovetail.ir.onnx.writer import Boundary
from dovetail.kernels.calls import Call
from dovetail.kernels.estimator import Config, seconds, tiles_of
from dovetail.kernels.items import ELEMENT, TensorLayout
from dovetail.kernels.table import kernel_of, work_of
from dovetail.platform.gpu_specification import Gpu
from lib.gpu.record import mistaken
from lib.gpu.timing import captured, cold_us, copy_bandwidth, device, gpu_is_here, millijoules, timed_us
from lib.gpu.torch_network import TorchNetwork
from lib.zoo_graph import network

KINDS = {"fp16": "float16", "fp32": "float32", "tf32": "tf32", "int8": "int8"}
FUSED = ("fused", "banded", "walked", "walked_bytes", "bridged")
"""Kernels of several layers."""
CHECKED = 8
"""Images whose results are compared with float64."""


def floor_us(made: Compiled, bandwidth: float) -> float:
    """Every kernel's operands moved once, and its launch."""
    element = ELEMENT[made.lowered.kind]
    moved = sum(o.pixels * o.channels * element if isinstance(o, TensorLayout) else o.size * element
                for call, _ in made.calls for o in call.operands if not isinstance(o, int))
    return moved / bandwidth * 1e6 + len(made.calls) * made.lowered.gpu.launch_s * 1e6


def relative(found: np.ndarray[Any, Any], wanted: np.ndarray[Any, Any]) -> float:
    return float(np.linalg.norm(found - wanted) / np.linalg.norm(wanted))


def frames_of(graph: Graph, images: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(0).standard_normal((images, *graph.shape(graph.inputs[0])[1:])).astype(np.float32)


def peer_of(graph: Graph, kind: str, x: np.ndarray[Any, Any]) -> tuple[TorchNetwork, torch.Tensor]:
    """The network in PyTorch, channels last and in the arithmetic asked for, and its frames."""
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = kind == "tf32"
    dtype = torch.float16 if kind == "fp16" else torch.float32
    peer = TorchNetwork(graph).to(device()).to(dtype).to(memory_format=torch.channels_last)
    return peer, torch.from_numpy(x).to(device()).to(dtype).to(memory_format=torch.channels_last)


def tuned(graph: Graph, kind: str, images: int, in_place_s: float) -> tuple[Compiled, dict[str, float]]:
    """A network with its kernels chosen; how long that took, and how many kernels had to be compiled for it.

    None were where they lay in Triton's cache, as after `bench/gpu_fcm.py --compile`: such a time is not one from cold.
    """
    before, start = kernels_on_disk(), time.perf_counter()
    made = compile_graph(graph, kind, images, in_place_s=in_place_s)
    return made, {"tuning_s": time.perf_counter() - start, "compiled_kernels": kernels_on_disk() - before}


def kernels_on_disk() -> int:
    """Entries of Triton's cache."""
    folder = Path(os.environ.get("TRITON_CACHE_DIR", Path.home() / ".triton" / "cache"))
    return sum(1 for _ in folder.iterdir()) if folder.is_dir() else 0


def measure_floats(graph: Graph, kind: str, images: int, bandwidth: float, energy: bool, in_place_s: float) -> dict[str, Any]:
    """Ours, cuDNN's and eager PyTorch's times and errors."""
    x = frames_of(graph, images)
    made, tuning = tuned(graph, KINDS[kind], images, in_place_s)
    found = made.run({graph.inputs[0]: x})[graph.outputs[0]][:CHECKED]
    with torch.inference_mode():
        torch.backends.cudnn.benchmark = False  # one run in float64 is not worth a search
        exact = TorchNetwork(graph).to(device()).double()(torch.from_numpy(x[:CHECKED]).to(device()).double()).cpu().numpy()
        peer, frames = peer_of(graph, kind, x)
        for _ in range(3):
            peer(frames)
        results: list[torch.Tensor] = []
        replay = captured([lambda: results.append(peer(frames))])
        ours, spread = timed_us(made.replay)
        cudnn, cudnn_spread = timed_us(replay)
        outcome = shown(made, bandwidth, tuning, ours, spread) | {
            "cudnn_us": cudnn, "cudnn_spread_us": cudnn_spread, "eager_us": timed_us(lambda: peer(frames))[0],
            "rel_err": relative(found, exact), "cudnn_rel_err": relative(results[-1][:CHECKED].double().cpu().numpy(), exact)}
        if energy:
            outcome |= {"ours_mj": millijoules(made.replay, images, ours), "cudnn_mj": millijoules(replay, images, cudnn)}
    return outcome


def estimated_s(gpu: Gpu, kind: str, call: Call, config: Config) -> float:
    """What a call is estimated to take with a tile."""
    work = work_of(gpu, call.shape, tiles_of([config]))
    return float(seconds(gpu, kernel_of(call.shape).name, kind, work)[0])


def shown(made: Compiled, bandwidth: float, tuning: Mapping[str, float], ours: float, spread: float) -> dict[str, Any]:
    """What every measurement says of ours; peers are filled in where there are any."""
    return {"ours_us": ours, "ours_spread_us": spread, "cudnn_us": None, "compile_us": None, "eager_us": None,
            "floor_us": floor_us(made, bandwidth), "cold_us": cold_us(made.replay), "rel_err": 0.0, "cudnn_rel_err": None,
            "ours_mj": None, "compile_mj": None, "cudnn_mj": None, "kernels": len(made.calls),
            "fused": sum(call.kernel in FUSED for call, _ in made.calls), **tuning,
            "estimated_us": sum(estimated_s(made.lowered.gpu, made.lowered.kind, *one) for one in made.calls) * 1e6,
            "calls": [" ".join((call.kernel, *call.nodes)) for call, _ in made.calls]}


def measure_compiled(graph: Graph, kind: str, images: int, energy: bool) -> dict[str, Any]:
    """torch.compile's time and energy: it compiles for minutes.

    Its kernels run in a CUDA graph of ours, as cuDNN's do, so that neither a call from Python nor a copy of the input is timed.
    """
    with torch.inference_mode():
        peer, frames = peer_of(graph, kind, frames_of(graph, images))
        start = time.perf_counter()
        fast = torch.compile(peer, mode="max-autotune-no-cudagraphs", fullgraph=True)
        for _ in range(3):
            fast(frames)
        compiled = time.perf_counter() - start
        replay = captured([lambda: fast(frames)])
        taken = timed_us(replay)[0]
        return {"compile_us": taken, "compiling_s": compiled, "compile_called_us": timed_us(lambda: fast(frames))[0],
                "compile_mj": millijoules(replay, images, taken) if energy else None}


PREPARED = Path("build/gpu_int8")
Quantized = tuple[Graph, dict[str, np.ndarray[Any, Any]], dict[str, np.ndarray[Any, Any]]]
"""A quantized network, one frame, and what the integer reference makes of it."""


@lru_cache(maxsize=2)
def quantized(name: str) -> Quantized:
    """As `prepare` left it in the folder PREPARED, else made here, which needs ONNX Runtime."""
    if (PREPARED / f"{name}.npz").is_file():
        held = np.load(PREPARED / f"{name}.npz")
        graph = read_onnx(PREPARED / f"{name}.onnx").graph
        return graph, {t: held[f"in {t}"] for t in graph.inputs}, {t: held[f"out {t}"] for t in graph.outputs}
    from dovetail.numerics.calibration import synthetic
    from dovetail.numerics.quantize import quantize_graph
    from dovetail.numerics.reference import run_integer
    graph = network(name)
    graph = quantize_graph(graph, synthetic(graph, 4))
    frame = {}
    for tensor in graph.inputs:
        scheme = graph.tensors[tensor].scheme
        assert scheme is not None
        frame[tensor] = np.random.default_rng(0).integers(scheme.lo, scheme.hi + 1, graph.shape(tensor)).astype(scheme.dtype)
    return graph, frame, run_integer(graph, frame)


def prepare(name: str) -> None:
    """Write a quantized network with a frame and its results, for GPU machines without ONNX Runtime."""
    graph, frame, wanted = quantized(name)
    PREPARED.mkdir(parents=True, exist_ok=True)
    (PREPARED / f"{name}.onnx").write_bytes(to_onnx(graph, Boundary.INTEGER))
    np.savez(PREPARED / f"{name}.npz", **{f"in {t}": v for t, v in frame.items()}, **{f"out {t}": v for t, v in wanted.items()})


def measure_integers(given: Quantized, images: int, bandwidth: float, energy: bool, in_place_s: float) -> dict[str, Any]:
    """A quantized graph's time; its results must be the reference's integers."""
    graph, frame, wanted = given
    x = {t: np.repeat(v, images, axis=0) for t, v in frame.items()}
    made, tuning = tuned(graph, "int8", images, in_place_s)
    found = made.run(x)
    different = sum(int((found[n] != wanted[n]).sum()) for n in wanted)
    ours, spread = timed_us(made.replay)
    return shown(made, bandwidth, tuning, ours, spread) | {
        "different": different, "ours_mj": millijoules(made.replay, images, ours) if energy else None}


def told(one: dict[str, Any]) -> str:
    """One measurement in a line."""
    beside = "" if one["cudnn_us"] is None else (
        f"cudnn {one['cudnn_us']:8.1f} us ({one['cudnn_us'] / one['ours_us']:.2f}x)  "
        f"error {one['rel_err']:.1e} against {one['cudnn_rel_err']:.1e}  ")
    wrong = f"{mistaken(one)}  ".lstrip()
    return (f"ours {one['ours_us']:8.1f} us  {wrong}{beside}floor {one['floor_us']:.1f} us  cold {one['cold_us']:.1f} us  "
            f"estimated {one['estimated_us']:.1f} us  "
            f"{one['kernels']} kernels ({one['fused']} fused), tuned in {one['tuning_s']:.0f} s, "
            f"{one['compiled_kernels']} compiled")


def opened(path: Path, command: str) -> dict[str, Any]:
    """A file of measurements to continue, or a new one, with what it is measured on."""
    found: dict[str, Any] = json.loads(path.read_text()) if path.is_file() else {"networks": {}}
    return found | {"gpu": torch.cuda.get_device_name() if gpu_is_here() else "none: Triton's interpreter, figures of no worth",
                    "date": date.today().isoformat(), "torch": torch.__version__, "triton": triton.__version__,
                    "cudnn": torch.backends.cudnn.version(), "copy_bytes_per_s": copy_bandwidth(), "command": command}


def save(path: Path, found: dict[str, Any]) -> None:
    replace_text(path, json.dumps(found, indent=1) + "\n")


def measure(found: dict[str, Any], name: str, kind: str, images: int, energy: bool, in_place_s: float = IN_PLACE_S) -> None:
    """One network, arithmetic and batch, into a file's content; said in a line."""
    place = found["networks"].setdefault(name.replace("-", "_"), {}).setdefault(kind, {})
    try:
        if kind == "int8":
            one = measure_integers(quantized(name), images, found["copy_bytes_per_s"], energy, in_place_s)
        else:
            one = measure_floats(network(name), kind, images, found["copy_bytes_per_s"], energy, in_place_s)
        line = told(one)
    except DovetailError as reason:
        one, line = {"ours_us": None, "reason": str(reason)}, str(reason)
    place[f"b{images}"] = one
    print(f"{name:20} {kind} b{images:<3} {line}", flush=True)
