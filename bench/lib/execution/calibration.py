"""A board from what was measured on one machine: CPU layers, kernels, copies and what starting a part costs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from math import exp, log
from statistics import median
from typing import Any

import numpy as np
import torch

from dovetail.cost.fitting.layers import fit_layers
from dovetail.cost.fitting.link import fit_line
from dovetail.ir import Graph
from dovetail.measure.layers import MeasuredLayer, designed_layers, graph_of, shape_of
from dovetail.numerics.calibration import synthetic
from dovetail.numerics.equalize import Equalise
from dovetail.numerics.quantize import quantize_graph
from dovetail.partition.device_costs import DeviceCosts
from dovetail.partition.evaluate import Evaluation, evaluate
from dovetail.partition.plan import Assignment, whole_on
from dovetail.partition.problem import Problem
from dovetail.platform.device import Platform
from dovetail.platform.load import load_platform, platform_from_dict, platform_to_dict
from lib.execution.parts import Manner, cpu_runner, gpu_network, gpu_terms, noise, pretended, stream_s
from lib.execution.timing import Effort, spread

BOARD = "h200"
EVERY = 3
"""Of the designed layers, one of so many is timed on the CPU (chosen: some twenty seconds)."""
COPIED_BYTES = tuple(1024 * 4**i for i in range(8))
STREAMED = 256
"""Frames of a stream (chosen: more than a hundred times what is under way)."""


def layer_numbers(layer: MeasuredLayer) -> Graph:
    """A designed layer in integers."""
    graph = graph_of(layer)
    return quantize_graph(graph, synthetic(graph, 2), equalise=Equalise.OFF)


def smallest() -> Graph:
    """A part that does next to nothing: what it takes is what starting a part takes."""
    return layer_numbers(MeasuredLayer("conv", 16, 4, 16, activation="relu"))


def frame_sized() -> Graph:
    """The same with as many bytes given as a frame of 3 x 224 x 224 pixels, about."""
    return layer_numbers(MeasuredLayer("conv", 16, 96, 4, activation="relu"))


def copies(effort: Effort) -> list[dict[str, Any]]:
    """Copies as parts make them: from memory to pinned memory to the GPU, and back; and the bus alone, by the clock."""
    found, here = [], "cuda" if torch.cuda.is_available() else "cpu"
    for size in COPIED_BYTES:
        memory = np.zeros(size, dtype=np.uint8)
        pinned = torch.zeros(size, dtype=torch.uint8, pin_memory=here == "cuda")
        device = torch.zeros(size, dtype=torch.uint8, device=here)

        def wait() -> None:
            if here == "cuda":
                torch.cuda.synchronize()

        def enter(pinned: Any = pinned, device: Any = device) -> None:
            device.copy_(pinned, non_blocking=True)
            wait()

        def leave(pinned: Any = pinned, device: Any = device) -> None:
            pinned.copy_(device, non_blocking=True)
            wait()

        def fill(pinned: Any = pinned, memory: Any = memory) -> None:
            pinned.numpy()[...] = memory

        def take(pinned: Any = pinned) -> None:
            pinned.numpy().copy()
        steps: Mapping[str, Callable[[], None]] = {"to": enter, "from": leave, "fill": fill, "take": take}
        found.append({"bytes": size, **{f"{name}_s": spread(step, effort)["median_s"] for name, step in steps.items()}})
    return found


def dispatch(form: str, threads: int, effort: Effort) -> dict[str, Any]:
    """What a part takes that does next to nothing, on either device: one frame, and per frame of a stream."""
    graph = smallest()
    frame, found = noise(graph, 1), dict[str, Any]()
    cpu = cpu_runner(graph, Manner(form, threads))
    found["cpu"] = {"wall": spread(lambda: cpu.run(frame), effort), "stream_s": stream_s(cpu, frame, STREAMED)}
    for name, part in (("gpu", graph), ("gpu, a frame", frame_sized())):
        made, given = gpu_network(part) if torch.cuda.is_available() else pretended(part), noise(part, 1)
        assert not isinstance(made, str), made
        found[name] = {**gpu_terms(made, given, effort),
                       "stream_s": stream_s(made, given, STREAMED if torch.cuda.is_available() else 4)}
    return found


def cpu_layers(form: str, threads: int, effort: Effort, every: int, left: Callable[[], float]) -> list[dict[str, Any]]:
    """Designed layers on the CPU, as many as there is time for; of every kind, since they are taken in steps."""
    found = []
    for layer in designed_layers()[::every]:
        if left() < 0:
            break
        graph = layer_numbers(layer)
        runner, frame = cpu_runner(graph, Manner(form, threads)), noise(graph, 1)
        found.append({**asdict(layer), "seconds": spread(lambda r=runner, f=frame: r.run(f), effort)["median_s"]})
    return found


def mean_ratio(measured: Sequence[float], predicted: Sequence[float]) -> float:
    """Geometric mean of ratios; one where nothing was measured."""
    ratios = [log(m / p) for m, p in zip(measured, predicted, strict=True)]
    return exp(sum(ratios) / len(ratios)) if ratios else 1.0


def calibrated(layers: Sequence[Mapping[str, Any]], copied: Sequence[Mapping[str, Any]], started: Mapping[str, Any],
               threads: int, parts: Sequence[Mapping[str, Any]]) -> Platform:
    """The board by layers and copies; what starting a part on the GPU takes is the median of parts that were measured."""
    board, source = load_platform(BOARD), "measured: bench/execution.py"
    cpu, gpu, (link,) = board.device("cpu"), board.device("gpu"), board.links
    overhead = started["cpu"]["wall"]["median_s"]
    designs = [MeasuredLayer(**{k: v for k, v in one.items() if k != "seconds"}) for one in layers]
    fit = fit_layers([shape_of(d) for d in designs],
                     np.array([max(one["seconds"] - overhead, 0.02 * one["seconds"]) for one in layers]))
    terms = {f"{group}_{term}": value for group, own in fit.coefficients.items() for term, value in own.items()}
    widths = {f"{group}_interval_fraction": min(e.p90, 10.0) for group, e in fit.errors.items()}
    added = fit.coefficients.get("add", {})
    moved = max(added.get("s_per_read", 0.0), added.get("s_per_write", 0.0), 1e-12)
    parameters = {"launch_s": added.get("launch_s", 1e-6), "bandwidth_bytes_per_s": min(1 / moved, 1e13), "overhead_s": overhead,
                  "interval_fraction": min(fit.total.p90, 10.0), **terms, **widths}
    sizes = np.array([one["bytes"] for one in copied] * 2, dtype=np.float64)
    seconds = np.array([one["to_s"] + one["fill_s"] for one in copied] + [one["from_s"] + one["take_s"] for one in copied])
    start, per_byte = fit_line(sizes, seconds)
    beside = median(p["wall"]["median_s"] - p["kernels_s"] - per_byte * (p["bytes_in"] + p["bytes_out"]) for p in parts)
    devices = (replace(cpu, model="calibrated", description=f"host of the GPU, {threads} threads of ONNX Runtime",
                       parameters=parameters, sources={**{k: v for k, v in cpu.sources.items() if "parameters" not in k},
                                                       **{f"parameters.{k}": source for k in parameters}}),
               replace(gpu, dispatch_s=max(0.0, beside - 2 * start), sources={**gpu.sources, "dispatch_s": source}))
    measured = replace(link, latency_s=start, bandwidth_bytes_per_s=1 / max(per_byte, 1e-13),
                       sources={**link.sources, "latency_s": source, "bandwidth_bytes_per_s": source})
    return platform_from_dict(platform_to_dict(replace(board, devices=devices, links=(measured,))))


def scaled(board: Platform, gpu_factor: float) -> Platform:
    """The board with what kernels of whole networks took over what they were estimated to."""
    gpu = board.device("gpu")
    slower = replace(gpu, parameters={**gpu.parameters, "kernel_factor": gpu_factor},
                     sources={**gpu.sources, "parameters.kernel_factor": "measured: three networks, bench/execution.py"})
    devices = tuple(slower if d.name == gpu.name else d for d in board.devices)
    return platform_from_dict(platform_to_dict(replace(board, devices=devices)))


def judged(graph: Graph, board: Platform, assignment: Assignment) -> Evaluation:
    """What the model says of an assignment."""
    return evaluate(Problem(graph, board, DeviceCosts()), assignment)


def everything_on(graph: Graph, device: str) -> Assignment:
    return {node.name: whole_on(device) for node in graph.nodes}


def said(found: Evaluation) -> dict[str, Any]:
    """An evaluation's terms."""
    return {"latency_s": found.latency_s, "interval_s": found.interval_s, "compute_s": sum(n.compute_s for n in found.nodes),
            "transfer_s": sum(n.transfer_s for n in found.nodes) + found.delivery_s, "busy_s": dict(found.busy_s)}


