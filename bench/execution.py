"""Plans tested by execution on a CPU and a GPU: calibrate on three networks, predict four others, then run and compare them.

`PYTHONPATH=src python bench/execution.py --json FILE [--budget SECONDS]` on a machine with a GPU (torch, triton, onnxruntime,
onnx, SciPy). What is drawn and what is predicted stands in the record before anything of it is measured. The record is written
after every step, and a run goes on from it. With TRITON_INTERPRET=1 and `--quick` everything runs on a CPU, on small networks,
and ONNX Runtime takes the GPU's part: figures of no worth, which show that the script works.

| step | what it measures |
|---|---|
| machine | imports, devices, and one layer on the GPU bit for bit: what can fail fails here |
| numbers | seven networks in 8-bit integers, and the reference's results of one frame |
| copies, dispatch | copies both ways by size; a part that does next to nothing, on either device |
| cpu NAME, gpu NAME | the three networks to calibrate on |
| cpu layers | designed layers on the CPU |
| board, predictions | the fitted board; plans and times of the other four, alone on each device and as planned |
| judged NAME, ... | the same measured, plans for throughput last |
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
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from typing import Any

import torch

from dovetail import zoo
from dovetail.cost.gpu_kernels import kernels_of
from dovetail.errors import DovetailError
from dovetail.files import replace_bytes, replace_text
from dovetail.gpu import tuning
from dovetail.gpu.executor import Compiled
from dovetail.ir import Array, Graph
from dovetail.ir.onnx.read import read_onnx
from dovetail.ir.onnx.write import to_onnx
from dovetail.measure.processor import processor_name
from dovetail.numbers import decide_numbers
from dovetail.numerics.equalize import Equalise
from dovetail.numerics.reference import run_integer
from dovetail.partition.options import Options
from dovetail.partition.plan import Goal, whole_on
from dovetail.partition.plan_json import plan_from_json, plan_to_json
from dovetail.planning import make_plan
from dovetail.platform.device import Platform
from dovetail.platform.load import platform_from_dict, platform_to_dict
from dovetail.schedule.program import lower
from lib.execution import calibration
from lib.execution.parts import FORMS, Runner, cpu_runner, differing, gpu_network, gpu_terms, noise, pretended, stream_s
from lib.execution.programs import Execution
from lib.execution.sharing import shared
from lib.execution.timing import Effort, interval, spread

NETWORKS = ("mobilenet-v2", "resnet50", "squeezenet1.1", "googlenet", "efficientnet-b0", "unet-small", "ceit-t")
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
SEGMENT_S = 20.0
"""Seconds that must be left for tuning one more segment."""
ALONE = ("cpu", "gpu")
PLANS = tuple(f"plan {goal}" for goal in (Goal.LATENCY, Goal.THROUGHPUT))
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
        runner = cpu_runner(graph, form, bench.threads)
        found[form] = {"wrong": differing(runner.run(frame), wanted), **spread(lambda r=runner: r.run(frame), bench.effort),
                       "stream_s": stream_s(runner, frame, 2 if bench.quick else 32)}
    return found


def exact_on_cpu(bench: Bench, name: str, first: str) -> dict[str, Any]:
    """A network on the CPU in the form that layers were measured in, or the first other one that is exact on it."""
    for form in (first, *(f for f in FORMS if f != first)):
        found = on_cpu(bench, name, (form,))[form]
        if not found["wrong"]:
            return {"form": form, **found}
    raise SystemExit(f"cpu: no form of ONNX Runtime gives the reference's integers of {name}")


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


def board_of(bench: Bench, form: str, calibrate: list[str], steps: Mapping[str, Any]) -> dict[str, Any]:
    """The board by layers alone, then scaled by what the three networks took."""
    found = {key: steps[key]["found"] for key in ("cpu layers", "copies", "dispatch")}
    board = calibration.calibrated(found["cpu layers"], found["copies"], found["dispatch"], bench.threads)
    cpu, gpu, layouts = list[tuple[float, float]](), list[tuple[float, float]](), list[float]()
    for name in calibrate:
        graph, overhead = bench.graph(name), board.device("cpu").parameters["overhead_s"]
        predicted = calibration.judged(graph, board, calibration.everything_on(graph, "cpu")).latency_s
        cpu.append((steps[f"cpu {name}"]["found"][form]["median_s"] - overhead, predicted))
        measured = steps[f"gpu {name}"]["found"]
        if "kernels_s" in measured:
            estimated = calibration.judged(graph, board, calibration.everything_on(graph, "gpu"))
            gpu.append((measured["kernels_s"], sum(n.compute_s for n in estimated.nodes)))
            layouts.append(measured["graph_s"] - measured["kernels_s"])
    factors = [min(calibration.mean_ratio([m for m, _ in rows], [p for _, p in rows]), 100.0) for rows in (cpu, gpu)]
    scaled = calibration.scaled(board, *factors)
    return {"layers_alone": platform_to_dict(board), "platform": platform_to_dict(scaled), "cpu_factor": factors[0],
            "gpu_factor": factors[1], "cpu_measured_predicted_s": cpu, "gpu_measured_predicted_s": gpu, "layouts_s": layouts}


def predicted(bench: Bench, name: str, board: Platform, started: Mapping[str, Any], copied: list[Any]) -> dict[str, Any]:
    """What the model says of a network alone on either device and of the plans, before it is measured."""
    graph, found = bench.graph(name), dict[str, Any]()
    overhead = board.device("cpu").parameters["overhead_s"]
    able = kernels_of(graph, board.device("gpu")).prices
    without = [n for n in graph.nodes if n.name not in able]
    cpu = calibration.said(calibration.judged(graph, board, calibration.everything_on(graph, "cpu")))
    found["cpu"] = {**cpu, "latency_s": cpu["latency_s"] + overhead, "stream_s": cpu["interval_s"] + overhead}
    if not without:
        gpu = calibration.said(calibration.judged(graph, board, calibration.everything_on(graph, "gpu")))
        found["gpu"] = {**gpu, "stream_s": max(gpu["interval_s"], host_s(graph, started, copied))}
    else:
        found["gpu"] = {"not possible": f"no kernel for {len(without)} nodes, the first {without[0].name} ({without[0].op.kind})"}
    for key, goal in zip(PLANS, (Goal.LATENCY, Goal.THROUGHPUT), strict=True):
        pins = {n.name: whole_on("cpu") for n in without}
        begun = time.perf_counter()
        plan, _ = make_plan(graph, board, Options(goal=goal, explained=False, rivals=False), pins)
        program = lower(graph, plan.assignment)
        parts = {device: [s.name for s in program.segments if s.device == device] for device in ("cpu", "gpu")}
        own = calibration.said(calibration.judged(graph, board, plan.assignment))
        waits = overhead * len(parts["cpu"])
        found[key] = {**own, "latency_s": own["latency_s"] + waits, "planning_s": time.perf_counter() - begun,
                      "stream_s": max(own["interval_s"], own["busy_s"].get("cpu", 0.0) + waits,
                                      host_s(graph, started, copied) if not parts["cpu"] else 0.0),
                      "segments": {d: len(s) for d, s in parts.items()}, "lower_bound_s": plan.lower_bound,
                      "alone_on": next((d for d, s in parts.items() if len(s) == len(program.segments) == 1), None),
                      "plan": plan_to_json(plan, board)}
    return found


def host_s(graph: Graph, started: Mapping[str, Any], copied: list[Any]) -> float:
    """Seconds that the host itself spends on a frame of a stream: starting it, and copies within its memory."""
    per_byte = {key: copied[-1][key] / copied[-1]["bytes"] for key in ("fill_s", "take_s")}
    bytes_in, bytes_out = (sum(graph.tensors[t].size for t in tensors) for tensors in (graph.inputs, graph.outputs))
    return float(started["gpu"]["stream_s"] + bytes_in * per_byte["fill_s"] + bytes_out * per_byte["take_s"])


def executed(bench: Bench, name: str, form: str, planned: Mapping[str, Any]) -> dict[str, Any]:
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
            runners[segment.name] = cpu_runner(segment.graph, form, bench.threads)
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
    count = 3 if bench.quick else 128
    streamed = interval(lambda n: execution.stream(frame, n), count)
    wrong += sum(differing(one, wanted) for one in execution.stream(frame, min(count, 16)))
    return {"tuned_s": tuned_s, "wrong": wrong, "latency": latency, "stream_s": streamed, "segments": segments, "notes": notes}


def as_planned(bench: Bench, name: str, form: str, said: Mapping[str, Any], key: str) -> dict[str, Any]:
    """A plan run, unless it is one device alone or a plan that is run already."""
    own = plan_from_json(said[key]["plan"]).assignment
    before = [k for k in PLANS[:PLANS.index(key)] if plan_from_json(said[k]["plan"]).assignment == own]
    same = said[key]["alone_on"] or next(iter(before), None)
    return {"same as": same} if same else executed(bench, name, form, said[key])


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
    for name in draw["judge"]:
        found = {key: steps[f"judged {name}, {key}"]["found"] for key in (*ALONE, *PLANS) if f"judged {name}, {key}" in steps}
        if found:
            table[name] = compared(steps["predictions"]["found"][name], found)
            for row in table[name]:
                print(f"{name:20} {row['what']:16} latency {row['latency_predicted_s'] * 1e6:9.1f} us predicted, "
                      f"{row['latency_measured_s'] * 1e6:9.1f} measured ({row['latency_error_percent']:+6.1f} %); stream "
                      f"{row['stream_predicted_s'] * 1e6:9.1f}, {row['stream_measured_s'] * 1e6:9.1f} "
                      f"({row['stream_error_percent']:+6.1f} %)")
    errors = {term: [abs(row[f"{term}_error_percent"]) for rows in table.values() for row in rows]
              for term in ("latency", "stream")}
    bench.record["first_try"] = {"networks": table, **{f"{term}_{what}_percent": f(own) for term, own in errors.items() if own
                                                      for what, f in (("median", median), ("worst", max))}}
    for key, one in steps.items():
        if key.startswith("shared ") and "gain" in one["found"]:
            own = one["found"]
            print(f"{key[7:]:28} frames/s: GPU {own['gpu_alone']:9.0f}, CPU {own['cpu_alone']:8.0f}, together "
                  f"{own['together']:9.0f} ({100 * own['gain']:+.1f} %; {own['division']})")
    replace_text(bench.path, json.dumps(bench.record, indent=1) + "\n")
    print({k: round(v, 1) for k, v in bench.record["first_try"].items() if k != "networks"})


def numbers(bench: Bench) -> dict[str, Any]:
    """Networks in integers, and those that cannot be."""
    found = dict[str, Any]()
    for name in bench.names:
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

    def form_of(name: str) -> str:
        """The form in which a network is exact."""
        return str(steps[f"judged {name}, cpu"]["found"]["form"]) if f"judged {name}, cpu" in steps else form
    bench.step("machine", lambda: machine(bench))
    able = bench.step("numbers", lambda: numbers(bench))
    draw = bench.step("draw", lambda: drawn(tuple(n for n in bench.names if "nodes" in able[n])))
    print(f"calibrate on {', '.join(draw['calibrate'])}; judge {', '.join(draw['judge'])}", flush=True)
    copied = bench.step("copies", lambda: calibration.copies(bench.layer_effort))
    for name in draw["calibrate"]:
        bench.step(f"cpu {name}", lambda n=name: on_cpu(bench, n))
    form = bench.step("cpu form", lambda: chosen_form({n: steps[f"cpu {n}"]["found"] for n in draw["calibrate"]}))
    started = bench.step("dispatch", lambda: calibration.dispatch(form, bench.threads, bench.effort))
    bench.step("cpu layers", lambda: calibration.cpu_layers(form, bench.threads, bench.layer_effort, 20 if bench.quick else
                                                            calibration.EVERY, lambda: bench.left_s() - 60), 60)
    for name in draw["calibrate"]:
        bench.step(f"gpu {name}", lambda n=name: on_gpu(bench, n), 0 if bench.quick else 60, True)
    fitted = bench.step("board", lambda: board_of(bench, form, draw["calibrate"], steps))
    board = platform_from_dict(fitted["platform"])
    said = bench.step("predictions", lambda: {n: predicted(bench, n, board, started, copied) for n in draw["judge"]})
    for name in draw["judge"]:
        bench.step(f"judged {name}, cpu", lambda n=name: exact_on_cpu(bench, n, form))
        bench.step(f"judged {name}, gpu", lambda n=name: on_gpu(bench, n), 0 if bench.quick else 45, True)
        bench.step(f"judged {name}, {PLANS[0]}", lambda n=name: as_planned(bench, n, form_of(n), said[n], PLANS[0]), 0, True)
    summary(bench, draw)
    for name in able:
        if "nodes" in able[name]:
            bench.step(f"shared {name} x1", lambda n=name: share(bench, n, 1, form_of(n)), 0 if bench.quick else 15, True)
    for name, images in SHARED_SMALL if bench.quick else SHARED:
        bench.step(f"shared {name} x{images}", lambda n=name, i=images: share(bench, n, i, form), 0 if bench.quick else 50, True)
    for name in draw["judge"]:
        bench.step(f"judged {name}, {PLANS[1]}", lambda n=name: as_planned(bench, n, form_of(n), said[n], PLANS[1]), 0, True)
    summary(bench, draw)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, required=True, help="the record to write, or to go on from")
    parser.add_argument("--networks", type=Path, help="folder for networks in integers (default: beside the record)")
    parser.add_argument("--network", action="append", help=f"repeatable; default: {', '.join(NETWORKS)}")
    parser.add_argument("--budget", type=float, default=540.0, help="seconds (default: 540)")
    parser.add_argument("--quick", action="store_true", help="small networks, once each: shows that the script works")
    options = parser.parse_args()
    folder = options.networks or options.json.parent / "networks"
    folder.mkdir(parents=True, exist_ok=True)
    tuning.COMPILING_S, tuning.LEAST_COMPILING_S = COMPILING_S, LEAST_COMPILING_S
    record = json.loads(options.json.read_text(encoding="utf-8")) if options.json.exists() else {}
    record["command"] = " ".join(["PYTHONPATH=src python", *sys.argv])
    bench = Bench(options.json, folder, options.budget, options.quick, record,
                  names=tuple(options.network or (SMALL if options.quick else NETWORKS)))
    try:
        run(bench)
    except OutOfTimeError as step:
        print(f"no time left for {step}; the same command goes on from {options.json}")
        if "predictions" in record.get("steps", {}):
            summary(bench, record["steps"]["draw"]["found"])
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
