"""Plans tested by execution on a CPU and a GPU: calibrate on some networks, predict others, then run and compare them.

`PYTHONPATH=src python bench/execution.py --json FILE [--budget SECONDS]` on a machine with a GPU (torch, triton, onnxruntime,
onnx, SciPy). What is drawn and what is predicted stands in the record before anything of it is measured. The record is written
after every step, and a run goes on from it. With TRITON_INTERPRET=1 and `--quick` everything runs on a CPU, on small networks,
and ONNX Runtime takes the GPU's part: figures of no worth, which show that the script works. `--tunings` takes over the choice
of kernels of an earlier run, but for kernels that `--changed` names.

| step | what it measures |
|---|---|
| machine | imports, devices, and one layer on the GPU bit for bit: what can fail fails here |
| numbers | networks in 8-bit integers |
| draw | three of seven networks to calibrate on, four to judge; those judged besides, which no model was mended on; others |
| copies, dispatch | copies both ways by size; a part that does next to nothing, on either device |
| contention | a part on the GPU in turn with one on the CPU, by threads and how they wait |
| cpu NAME, gpu NAME | the three networks to calibrate on |
| cpu layers, sessions | designed layers on the CPU; kernels of sessions, fitted to networks that calibrate |
| board, predicted NAME | the fitted board; plans and times of networks, alone on each device and as planned |
| judged NAME, ... | the same measured |
| divided NAME, ... | plans that were predicted to be worse than one device alone |
| shared NAME xBATCH | frames divided between CPU and GPU beside either alone |
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
import triton

from dovetail import zoo
from dovetail.errors import DovetailError
from dovetail.files import replace_bytes, replace_text
from dovetail.gpu import tuning
from dovetail.gpu.executor import Compiled
from dovetail.gpu.remembered import for_gpu, load
from dovetail.ir import Array, Graph
from dovetail.ir.onnx.read import read_onnx
from dovetail.ir.onnx.write import to_onnx
from dovetail.measure.processor import processor_name
from dovetail.numbers import decide_numbers
from dovetail.numerics.equalize import Equalise
from dovetail.numerics.reference import run_integer
from dovetail.partition.plan_json import plan_from_json
from dovetail.platform.load import platform_from_dict, platform_to_dict
from dovetail.schedule.program import lower
from lib.execution import calibration, sessions
from lib.execution.parts import FORMS, Manner, Runner, cpu_runner, differing, gpu_network, gpu_terms, noise, pretended, stream_s
from lib.execution.predictions import ALONE, PLANS, STREAMED, Machine, predicted
from lib.execution.programs import Execution
from lib.execution.sharing import shared
from lib.execution.timing import Effort, interval, spread

NETWORKS = ("mobilenet-v2", "resnet50", "squeezenet1.1", "googlenet", "efficientnet-b0", "unet-small", "ceit-t")
FURTHER = ("mobilenet-v1", "proxylessnas-mobile", "efficientnet-lite0", "shufflenet-v2-0.5")
"""Judged besides: models were mended after tries with those above and below, so these are the ones they have not seen."""
SEEN = ("resnet18", "shufflenet-v2", "mnasnet", "mobilenet-v3-small")
"""Judged first in the second run, and mended on since then."""
KINDS = ("mobilenet-v3-large", "cvt-13@96")
"""Networks whose kernels on the CPU are timed besides, since the three have no gates, tables and attention."""
FURTHER_SMALL = ("mobilenet-v3-small@32",)
KINDS_SMALL = ("efficientnet-b0@32",)
SMALL = ("squeezenet1.1@32", "unet-small@32", "mobilenet-v2-0.5@32", "shufflenet-v2-0.5@32")
SEED = 32
CALIBRATED = 3
"""Networks that are drawn to calibrate on; the others are judged."""
SHARED = (("mobilenet-v2-0.5@64", 1), ("mobilenet-v2", 64))
"""Networks and batches beyond those that are compiled anyway: small frames, and a large batch."""
SHARED_SMALL = (("squeezenet1.1@32", 2),)
COMPILING_S = 12.0
"""Seconds of tuning after which no more tiles are begun to be compiled; a tuner by itself takes 35."""
LEAST_COMPILING_S = 5.0
IN_PLACE_S = 4.0
"""Seconds of choosing kernels anew inside the network; a tuner by itself takes 12."""
KEPT_THREADS = 2
"""Threads left to the GPU's part of the host (chosen: one that starts kernels, one of the driver)."""
PROFILED = 12
"""Runs of a profile at most (chosen)."""
SESSION = Effort(0.3, 4, 200)
"""How long a session is timed, and profiled (chosen)."""
PLAN_S = 4.0
"""Seconds that a plan's streams take at most, about (chosen)."""
FEW_PARTS = 4
"""Parts of a plan up to which it is run although it is predicted to be worse than one device alone."""
SEGMENT_S = 20.0
"""Seconds that must be left for tuning one more segment."""
PACKAGES = ("numpy", "scipy", "onnx", "onnxruntime", "torch", "triton")


class OutOfTimeError(Exception):
    """The budget is spent; the record holds what was done."""


@dataclass(slots=True)
class Bench:
    """A run: its record, how long it may take, and what was loaded so far."""

    path: Path
    folder: Path
    budget_s: float
    quick: bool
    record: dict[str, Any]
    begun: float = field(default_factory=time.perf_counter)
    names: tuple[str, ...] = NETWORKS
    further: tuple[str, ...] = FURTHER
    seen: tuple[str, ...] = SEEN
    kinds: tuple[str, ...] = KINDS
    graphs: dict[str, Graph] = field(default_factory=dict)
    references: dict[str, dict[str, Array]] = field(default_factory=dict)
    compiled: dict[tuple[str, int], Compiled | str] = field(default_factory=dict)

    @property
    def effort(self) -> Effort:
        return Effort(0.0, 1, 1) if self.quick else Effort()

    @property
    def layer_effort(self) -> Effort:
        return Effort(0.0, 1, 1) if self.quick else Effort(0.06, 12, 400)

    @property
    def streamed(self) -> int:
        """Frames of a stream on the CPU."""
        return 2 if self.quick else STREAMED

    @property
    def threads(self) -> int:
        return os.cpu_count() or 1

    def left_s(self) -> float:
        return self.budget_s - (time.perf_counter() - self.begun)

    def step(self, name: str, work: Callable[[], Any], expected_s: float = 0.0, optional: bool = False) -> Any:
        """What a step found, now or in an earlier run; an `optional` one that fails is noted, and tried again by the next run."""
        steps = self.record.setdefault("steps", {})
        if name in steps and not steps[name].get("failed"):
            return steps[name]["found"]
        if self.left_s() < expected_s:
            raise OutOfTimeError(name)
        print(f"[{time.perf_counter() - self.begun:6.1f} s] {name} ...", end=" ", flush=True)
        begun, failed = time.perf_counter(), False
        try:
            found = work()
        except (RuntimeError, DovetailError, AssertionError, ValueError, KeyError) as reason:
            if not optional or "illegal" in str(reason) or "CUDA error" in str(reason):  # after such nothing runs in this process
                raise
            traceback.print_exc()
            found, failed = {"not possible": f"failed: {type(reason).__name__}: {reason}"}, True
        steps[name] = {"seconds": time.perf_counter() - begun, "found": found, **({"failed": True} if failed else {})}
        replace_text(self.path, json.dumps(self.record, indent=1) + "\n")
        print(f"{steps[name]['seconds']:.1f} s", flush=True)
        return found

    def graph(self, name: str) -> Graph:
        """A network in integers; quantized once, then read."""
        if name not in self.graphs:
            path = self.folder / f"{name}.onnx"
            if not path.exists():
                own, _, size = name.partition("@")
                source = self.folder / f"{name}.float.onnx"
                source.write_bytes(zoo.build(own, size=int(size)) if size else zoo.build(own))
                replace_bytes(path, to_onnx(decide_numbers(source, equalise=Equalise.OFF).graph))
                source.unlink()
            self.graphs[name] = read_onnx(path).graph
        return self.graphs[name]

    def wanted(self, name: str) -> dict[str, Array]:
        """The reference's results of one frame of noise."""
        if name not in self.references:
            self.references[name] = dict(run_integer(self.graph(name), noise(self.graph(name), 1)))
        return self.references[name]

    def on_gpu(self, name: str, images: int = 1, graph: Graph | None = None) -> Compiled | str:
        """A network's kernels, or why there are none; tuned once."""
        if (name, images) not in self.compiled:
            own = graph or self.graph(name)
            self.compiled[name, images] = pretended(own, images) if self.quick else gpu_network(own, images, IN_PLACE_S)
        return self.compiled[name, images]


def installed(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "no metadata"


def machine(bench: Bench) -> dict[str, Any]:
    """What runs here; one layer on the GPU equals the reference."""
    graph = calibration.smallest()
    frame, made = noise(graph, 3), gpu_network(graph)
    if isinstance(made, str):
        raise SystemExit(f"machine: {made}")
    if wrong := differing(made.run(frame), run_integer(graph, frame)):
        raise SystemExit(f"machine: {wrong} elements of a layer on the GPU are wrong")
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "none: Triton's interpreter on the CPU"
    return {"gpu": gpu, "cpu": processor_name(), "threads": bench.threads, "python": platform.python_version(),
            "date": time.strftime("%Y-%m-%d"), "packages": {p: installed(p) for p in PACKAGES}}


def drawn(names: tuple[str, ...]) -> dict[str, Any]:
    """Which networks calibrate and which judge, before any is measured."""
    chosen = random.Random(SEED).sample(names, min(CALIBRATED, len(names) // 2))
    return {"seed": SEED, "of": list(names), "calibrate": chosen, "judge": [n for n in names if n not in chosen]}


def on_cpu(bench: Bench, name: str, forms: tuple[str, ...] = FORMS) -> dict[str, Any]:
    """A network on the CPU in some forms: time, and elements that differ from the reference."""
    graph, found = bench.graph(name), dict[str, Any]()
    frame, wanted = noise(graph, 1), bench.wanted(name)
    for form in forms:
        runner = cpu_runner(graph, Manner(form, bench.threads))
        found[form] = {"wrong": differing(runner.run(frame), wanted), **spread(lambda r=runner: r.run(frame), bench.effort),
                       "stream_s": stream_s(runner, frame, bench.streamed)}
    return found


def exact_form(bench: Bench, name: str, first: str) -> str:
    """The form that the calibrated networks are fastest in, or the first other one that is exact on a network; not timed."""
    graph = bench.graph(name)
    for form in (first, *(f for f in FORMS if f != first)):
        if not differing(cpu_runner(graph, Manner(form, bench.threads)).run(noise(graph, 1)), bench.wanted(name)):
            return form
    raise SystemExit(f"cpu: no form of ONNX Runtime gives the reference's integers of {name}")


def manners(bench: Bench) -> list[Manner]:
    """How CPU parts may run in turn with GPU parts; threads that wait for work by spinning keep cores from the GPU's."""
    fewer = max(1, bench.threads - KEPT_THREADS)
    return [Manner("", threads, spinning) for threads in dict.fromkeys((bench.threads, fewer)) for spinning in (True, False)]


def contention(bench: Bench, name: str, form: str) -> dict[str, Any]:
    """A part on the GPU that copies a frame and does next to nothing, in turn with a network on the CPU: what either takes."""
    graph, small = bench.graph(name), calibration.frame_sized()
    made = pretended(small) if bench.quick else gpu_network(small)
    assert not isinstance(made, str), made
    frame, given, rows = noise(graph, 1), noise(small, 1), list[dict[str, Any]]()
    for manner in manners(bench):
        runner, taken = cpu_runner(graph, replace(manner, form=form)), dict[str, list[float]]()
        for _ in range(3 if bench.quick else 25):
            for device, call in (("cpu_s", partial(runner.run, frame)), ("gpu_s", partial(made.run, given))):
                begun = time.perf_counter()
                call()
                taken.setdefault(device, []).append(time.perf_counter() - begun)
        rows.append({"threads": manner.threads, "spinning": manner.spinning, **{d: median(t) for d, t in taken.items()}})
    alone = spread(partial(made.run, given), bench.effort)["median_s"]
    best = min(rows, key=lambda row: float(row["cpu_s"] + row["gpu_s"]))
    return {"rows": rows, "gpu_alone_s": alone, "best": best, "waking_s": max(0.0, best["gpu_s"] - alone)}


def sessions_of(bench: Bench, names: list[str], manner: Manner, images: int) -> dict[str, Any]:
    """Kernels of sessions fitted to networks that take so many frames at once, and how well they add up to each."""
    rows = dict[str, tuple[list[sessions.Kernel], float]]()
    for name in names:
        graph = bench.graph(name)
        runner = cpu_runner(graph, manner)
        if images == 1 or not runner.one_by_one:
            frames = {n: np.concatenate([x] * images) for n, x in noise(graph, 1).items()}
            wall = spread(partial(runner.run, frames), Effort(0.0, 1, 1) if bench.quick else SESSION, 2)["median_s"]
            runs = 2 if bench.quick else min(PROFILED, max(3, int(SESSION.seconds / wall)))
            rows[name] = sessions.profiled(graph, manner, frames, runs), wall
    model = sessions.fitted(list(rows.values()))
    return {"model": sessions.to_json(model), "measured_predicted_s": {
        name: [wall, model.predicted(kernels)["seconds"]] for name, (kernels, wall) in rows.items()}}


def chosen_form(found: Mapping[str, Mapping[str, Any]]) -> str:
    """The fastest form that is exact on all networks."""
    times = {form: sum(one[form]["median_s"] for one in found.values()) for form in FORMS
             if all(not one[form]["wrong"] for one in found.values())}
    if not times:
        raise SystemExit("cpu: no form of ONNX Runtime gives the reference's integers here")
    return min(times, key=lambda form: times[form])


def on_gpu(bench: Bench, name: str, images: int = 1) -> dict[str, Any]:
    """A network on the GPU: what tuning took, the terms of a batch, its interval, elements that differ from the reference."""
    begun = time.perf_counter()
    made, graph = bench.on_gpu(name, images), bench.graph(name)
    if isinstance(made, str):
        return {"not possible": made}
    tuned_s, frame = time.perf_counter() - begun, noise(graph, images)
    wrong = differing({n: v[:1] for n, v in made.run(noise(graph, 1)).items()}, bench.wanted(name))
    count = 2 * images if bench.quick else max(calibration.STREAMED, 16 * images)
    return {"tuned_s": tuned_s, "wrong": wrong, **gpu_terms(made, frame, bench.effort),
            "stream_s": stream_s(made, frame, count),
            "kernels": [{"kernel": c.kernel, "nodes": len(c.nodes), "estimated_s": c.estimates_s[0]} for c, _ in made.calls]}


def board_of(bench: Bench, calibrate: list[str], steps: Mapping[str, Any]) -> dict[str, Any]:
    """The board by layers alone, its GPU scaled by what the kernels of the three networks took."""
    found = {key: steps[key]["found"] for key in ("cpu layers", "copies", "dispatch")}
    networks = {n: steps[f"gpu {n}"]["found"] for n in calibrate if "kernels_s" in steps[f"gpu {n}"]["found"]}
    parts = [*(found["dispatch"][key] for key in ("gpu", "gpu, a frame")), *networks.values()]
    board = calibration.calibrated(found["cpu layers"], found["copies"], found["dispatch"], bench.threads, parts)
    gpu, layouts = list[tuple[float, float]](), list[float]()
    for name, measured in networks.items():
        graph = bench.graph(name)
        estimated = calibration.judged(graph, board, calibration.everything_on(graph, "gpu"))
        gpu.append((measured["kernels_s"], sum(n.compute_s for n in estimated.nodes)))
        layouts.append(measured["graph_s"] - measured["kernels_s"])
    factor = min(calibration.mean_ratio([m for m, _ in gpu], [p for _, p in gpu]), 100.0)
    return {"platform": platform_to_dict(calibration.scaled(board, factor)), "gpu_factor": factor,
            "gpu_measured_predicted_s": gpu, "layouts_s": layouts,
            "overlap": min([1.0, *(measured["stream_s"] / measured["kernels_s"] for measured in networks.values())])}


def host_s(graph: Graph, started: Mapping[str, Any]) -> float:
    """Seconds that the host itself spends on a frame of a stream: a line by bytes through parts that do next to nothing."""
    (less, low), (more, high) = ((part["bytes_in"] + part["bytes_out"], part["stream_s"])
                                 for part in (started["gpu"], started["gpu, a frame"]))
    moved = sum(graph.tensors[t].size for t in (*graph.inputs, *graph.outputs))
    return float(low + max(0.0, high - low) * (moved - less) / (more - less))


def executed(bench: Bench, name: str, manner: Manner, planned: Mapping[str, Any]) -> dict[str, Any]:
    """A plan of both devices run: latency, interval, seconds of its segments, elements that differ from the reference."""
    graph, runners, notes = bench.graph(name), dict[str, Runner](), list[str]()
    plan = plan_from_json(planned["plan"])
    program = lower(graph, plan.assignment)
    begun = time.perf_counter()
    for segment in program.segments:
        if bench.left_s() < SEGMENT_S and not bench.quick:
            raise OutOfTimeError(f"segment {segment.name} of {name}")
        made = "" if segment.device == "cpu" else bench.on_gpu(f"{name} {segment.name} {segment.nodes}", 1, segment.graph)
        if isinstance(made, str):
            runners[segment.name] = cpu_runner(segment.graph, manner)
            notes += [f"{segment.name} on the CPU: {made}"] if made else []
        else:
            runners[segment.name] = made
    tuned_s, frame, execution = time.perf_counter() - begun, noise(graph, 1), Execution(program, runners)
    wanted = bench.wanted(name)
    wrong = differing(execution.frame(frame), wanted)
    execution.seconds.clear()
    latency = spread(lambda: execution.frame(frame), bench.effort)
    segments = {s.name: {"device": s.device, "seconds": median(execution.seconds[s.name]), "nodes": len(s.nodes)}
                for s in program.segments}
    for segment in program.segments:
        made = runners[segment.name]
        if isinstance(made, Compiled):
            given = noise(segment.graph, 1)
            segments[segment.name] |= gpu_terms(made, given, bench.effort)
    count = 3 if bench.quick else min(128, max(8, int(PLAN_S / 4 / latency["median_s"])))
    streamed = interval(lambda n: execution.stream(frame, n), count)
    wrong += sum(differing(one, wanted) for one in execution.stream(frame, min(count, 16)))
    return {"tuned_s": tuned_s, "wrong": wrong, "latency": latency, "stream_s": streamed, "segments": segments, "notes": notes}


def as_planned(bench: Bench, name: str, manner: Manner, said: Mapping[str, Any], key: str) -> dict[str, Any]:
    """A plan run, unless it is one device alone or a plan that is run already."""
    own = plan_from_json(said[key]["plan"]).assignment
    before = [k for k in PLANS[:PLANS.index(key)] if plan_from_json(said[k]["plan"]).assignment == own]
    same = said[key]["alone_on"] or next(iter(before), None)
    return {"same as": same} if same else executed(bench, name, manner, said[key])


def figures(found: Mapping[str, Any], key: str) -> tuple[float, float] | None:
    """Measured seconds of one frame, and per frame of a stream; None of what was not, or could not be."""
    one = found.get(key, {"not possible": "not measured yet"})
    while "same as" in one:
        one = found[one["same as"]]
    if "not possible" in one:
        return None
    latency = one["latency"] if "latency" in one else one.get("wall", one)
    return latency["median_s"], one["stream_s"]


def compared(said: Mapping[str, Any], found: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Predicted against measured, with the error in percent of what was measured."""
    rows = []
    for key, own in said.items():
        values = None if "not possible" in own else figures(found, key)
        if values is None:
            continue
        row: dict[str, Any] = {"what": key}
        for term, value, predicted_s in zip(("latency", "stream"), values, (own["latency_s"], own["stream_s"]), strict=True):
            row |= {f"{term}_predicted_s": predicted_s, f"{term}_measured_s": value,
                    f"{term}_error_percent": 100 * (predicted_s / value - 1)}
        rows.append(row)
    return rows


def summary(bench: Bench, draw: Mapping[str, Any]) -> None:
    """Print what was found, and put errors into the record."""
    steps, table = bench.record["steps"], dict[str, Any]()
    for name in (*draw["further"], *draw["judge"], *draw["seen"]):
        found = {key: steps[f"judged {name}, {key}"]["found"] for key in (*ALONE, *PLANS) if f"judged {name}, {key}" in steps}
        if found and f"predicted {name}" in steps:
            table[name] = compared(steps[f"predicted {name}"]["found"], found)
            for row in table[name]:
                print(f"{name:20} {row['what']:16} latency {row['latency_predicted_s'] * 1e6:9.1f} us predicted, "
                      f"{row['latency_measured_s'] * 1e6:9.1f} measured ({row['latency_error_percent']:+6.1f} %); stream "
                      f"{row['stream_predicted_s'] * 1e6:9.1f}, {row['stream_measured_s'] * 1e6:9.1f} "
                      f"({row['stream_error_percent']:+6.1f} %)")
    bench.record["compared"] = {"networks": table, **{
        which: {f"{what} {term}": errors_of([row for n in names for row in table.get(n, ()) if row["what"] in rows], term)
                for term in ("latency", "stream") for what, rows in (("cpu", ("cpu",)), ("gpu", ("gpu",)), ("plans", PLANS))}
        for which, names in (("further", draw["further"]), ("mended on", [*draw["judge"], *draw["seen"]]))}}
    for key, one in steps.items():
        if key.startswith("shared ") and "gain" in one["found"]:
            own = one["found"]
            print(f"{key[7:]:28} frames/s: GPU {own['gpu_alone']:9.0f}, CPU {own['cpu_alone']:8.0f}, together "
                  f"{own['together']:9.0f} ({100 * own['gain']:+.1f} %; {own['division']})")
    replace_text(bench.path, json.dumps(bench.record, indent=1) + "\n")
    for which in ("further", "mended on"):
        print(which, bench.record["compared"][which])


def errors_of(rows: Sequence[Mapping[str, Any]], term: str) -> dict[str, float]:
    """Median and worst error of some rows in percent."""
    own = [abs(row[f"{term}_error_percent"]) for row in rows]
    return {"rows": len(own), "median_percent": median(own), "worst_percent": max(own)} if own else {"rows": 0}


def numbers(bench: Bench) -> dict[str, Any]:
    """Networks in integers, and those that cannot be."""
    found = dict[str, Any]()
    for name in dict.fromkeys((*bench.names, *bench.further, *bench.seen, *bench.kinds)):
        try:
            graph = bench.graph(name)
            found[name] = {"nodes": len(graph.nodes), "macs": graph.macs}
        except DovetailError as reason:
            found[name] = {"not possible": str(reason)}
    return found


def share(bench: Bench, name: str, images: int, form: str) -> dict[str, Any]:
    """Frames of a network divided between the devices."""
    made = bench.on_gpu(name, images)
    if isinstance(made, str):
        return {"not possible": made}
    return shared(bench.graph(name), made, form, bench.threads, 0.2 if bench.quick else 0.4, 1 if bench.quick else 2)


def run(bench: Bench) -> None:
    """All steps, each once."""
    steps = bench.record.setdefault("steps", {})
    bench.step("machine", lambda: machine(bench))
    able = bench.step("numbers", lambda: numbers(bench))
    draw = bench.step("draw", lambda: {**drawn(tuple(n for n in bench.names if "nodes" in able[n])),
                                       **{key: [n for n in names if "nodes" in able[n]] for key, names in (
                                           ("further", bench.further), ("seen", bench.seen), ("kinds", bench.kinds))}})
    judged = [*draw["further"], *draw["judge"], *draw["seen"]]
    print(f"calibrate on {', '.join(draw['calibrate'])}; judge {', '.join(judged)}", flush=True)
    bench.step("copies", lambda: calibration.copies(bench.layer_effort))
    for name in draw["calibrate"]:
        bench.step(f"cpu {name}", lambda n=name: on_cpu(bench, n))
    form = bench.step("cpu form", lambda: chosen_form({n: steps[f"cpu {n}"]["found"] for n in draw["calibrate"]}))
    started = bench.step("dispatch", lambda: calibration.dispatch(form, bench.threads, bench.effort))
    beside = bench.step("contention", lambda: contention(bench, draw["calibrate"][0], form))
    bench.step("cpu layers", lambda: calibration.cpu_layers(form, bench.threads, bench.layer_effort, 20 if bench.quick else
                                                            calibration.EVERY, lambda: bench.left_s() - 60), 60)
    forms = bench.step("cpu forms", lambda: {n: exact_form(bench, n, form) for n in judged})
    turns, models = Manner("", beside["best"]["threads"], beside["best"]["spinning"]), dict[str, list[Any]]()
    for own in sorted(set(forms.values())):
        whole = Manner(own, bench.threads)
        for manner, images in ((whole, 1), (whole, bench.streamed if own == form else 1), (replace(turns, form=own), 1)):
            key = f"sessions {own}, {manner.threads} threads{'' if manner.spinning else ' that do not spin'}, x{images}"
            found = bench.step(key, lambda m=manner, i=images: sessions_of(bench, [*draw["calibrate"], *draw["kinds"]], m, i))
            models.setdefault(own, []).append((manner, sessions.from_json(found["model"])))
    for name in draw["calibrate"]:
        bench.step(f"gpu {name}", lambda n=name: on_gpu(bench, n), 0 if bench.quick else 60, True)
    fitted = bench.step("board", lambda: board_of(bench, draw["calibrate"], steps))
    board = platform_from_dict(fitted["platform"])
    said = dict[str, Any]()
    for name in judged:
        known = Machine(board, *models[forms[name]], beside["waking_s"], lambda graph: host_s(graph, started), fitted["overlap"],
                        bench.streamed)
        said[name] = bench.step(f"predicted {name}", lambda n=name, m=known: predicted(bench.graph(n), m))
    for name in judged:
        bench.step(f"judged {name}, cpu", lambda n=name: on_cpu(bench, n, (forms[n],))[forms[n]])
        bench.step(f"judged {name}, gpu", lambda n=name: on_gpu(bench, n), 0 if bench.quick else 45, True)
    for key in PLANS:
        for name in judged:
            bench.step(f"judged {name}, {key}", lambda n=name, k=key: as_planned(bench, n, models[forms[n]][2][0], said[n], k),
                       0 if bench.quick else 30, True)
    summary(bench, draw)
    for name in judged:
        bench.step(f"shared {name} x1", lambda n=name: share(bench, n, 1, forms[n]), 0 if bench.quick else 20, True)
    for name in judged:  # what was predicted to be worse than one device alone
        for key in (k for k in PLANS if "divided" in said[name][k] and sum(said[name][k]["segments"].values()) <= FEW_PARTS):
            bench.step(f"divided {name}, {key}", lambda n=name, k=key: executed(bench, n, models[forms[n]][2][0], said[n][k]),
                       0 if bench.quick else 60, True)
    for name, images in SHARED_SMALL if bench.quick else SHARED:
        bench.step(f"shared {name} x{images}", lambda n=name, i=images: share(bench, n, i, form), 0 if bench.quick else 60, True)
    summary(bench, draw)


def take_over(path: Path, changed: Sequence[str]) -> None:
    """Choices of an earlier run for kernels whose code is the same: all but those named."""
    own, before = for_gpu(torch.cuda.get_device_name(), (triton.__version__, torch.__version__)), load(path)
    own.tiles |= {key: tiles for key, tiles in before.tiles.items() if key.split()[0] not in changed}
    own.networks |= {key: chosen for key, chosen in before.networks.items() if not any(row[3] in changed for row in chosen)}
    own.save()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, required=True, help="the record to write, or to go on from")
    parser.add_argument("--networks", type=Path, help="folder for networks in integers (default: beside the record)")
    parser.add_argument("--network", action="append", help=f"repeatable; default: {', '.join(NETWORKS)}")
    parser.add_argument("--budget", type=float, default=540.0, help="seconds (default: 540)")
    parser.add_argument("--tunings", type=Path, help="choices of kernels that an earlier run on the same GPU made")
    parser.add_argument("--changed", action="append", default=[], help="repeatable; kernels whose code has changed since then")
    parser.add_argument("--quick", action="store_true", help="small networks, once each: shows that the script works")
    options = parser.parse_args()
    folder = options.networks or options.json.parent / "networks"
    folder.mkdir(parents=True, exist_ok=True)
    tuning.COMPILING_S, tuning.LEAST_COMPILING_S = COMPILING_S, LEAST_COMPILING_S
    record = json.loads(options.json.read_text(encoding="utf-8")) if options.json.exists() else {}
    record["command"] = " ".join(["PYTHONPATH=src python", *sys.argv])
    bench = Bench(options.json, folder, options.budget, options.quick, record,
                  names=tuple(options.network or (SMALL if options.quick else NETWORKS)),
                  further=FURTHER_SMALL if options.quick else FURTHER, seen=() if options.quick else SEEN,
                  kinds=KINDS_SMALL if options.quick else KINDS)
    if options.tunings and torch.cuda.is_available():
        take_over(options.tunings, options.changed)
    try:
        run(bench)
    except OutOfTimeError as step:
        print(f"no time left for {step}; the same command goes on from {options.json}")
        if any(name.startswith("predicted ") for name in record.get("steps", {})):
            summary(bench, record["steps"]["draw"]["found"])
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
