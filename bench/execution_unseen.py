"""Networks that no model was fitted to, on a CPU and a GPU: predicted from layers unseen and from layers seen, then measured.

`PYTHONPATH=src python bench/execution_unseen.py --json FILE [--budget SECONDS]` on a machine with a GPU (torch, triton,
onnxruntime, onnx, SciPy). The record is written after every step, and a run goes on from it. What is drawn, and what is
predicted of a network, stands in the record before the network is measured. `--quick` and `--tunings` are those of
`bench/execution.py`.

| step | what it does |
|---|---|
| machine, draw, numbers | what runs here; which networks calibrate and which are judged; all of them in 8-bit integers |
| host | parts that do next to nothing on the GPU, from every core of the host; threads of the CPU |
| calibrate NAME | kernels alone and in place, frames and streams on either device, pieces on the CPU |
| sessions | kernels of ONNX Runtime, fitted to the networks that calibrate |
| predicted NAME, layers unseen | from fits to other networks alone |
| layers NAME | its kernels tuned and timed alone on the GPU; its distinct pieces of some nodes timed on the CPU |
| predicted NAME, layers seen | from these, and from how those of other networks add up |
| judged NAME, round N | frames and streams; rounds lie apart in time; before each, a yardstick on either device |
| shared NAME | frames of a stream divided between the devices, beside either alone |

Tuning a network also times it whole on the GPU, to choose among kernels. No prediction reads those times.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import product
from math import exp, log
from pathlib import Path
from statistics import median
from typing import Any

import torch
import triton

from dovetail.errors import UnsupportedError
from dovetail.files import replace_text
from dovetail.gpu import tuning
from dovetail.gpu.executor import Compiled, gpu_here
from dovetail.gpu.remembered import Tiles, for_gpu
from dovetail.ir import Graph
from dovetail.kernels.lower import lower
from dovetail.numerics.reference import fixes_batch
from execution import (
    COMPILING_S,
    LEAST_COMPILING_S,
    Bench,
    OutOfTimeError,
    errors_of,
    exact_form,
    machine,
    sessions_of,
    share,
    take_over,
)
from lib.execution import calibration, kernels, pieces, sessions
from lib.execution.networks import write_all
from lib.execution.parts import Manner, cpu_runner, differing, gpu_network, noise, pretended, stream_s
from lib.execution.predictions import session_s
from lib.execution.timing import Effort, device_s, spread

CALIBRATE = ("mobilenet-v2", "resnet18", "squeezenet1.1", "googlenet", "shufflenet-v2", "mnasnet", "mobilenet-v3-small")
"""Judged or calibrated on in earlier runs, so that they judge no more."""
JUDGED = ("squeezenet1.0", "shufflenet-v1", "mobilenet-v2-0.5", "xception", "googlenet@160", "resnet50@192", "mobilenet-v2@192",
          "mobilenet-v2@160")
"""Judged in the fourth run and mended on since then: judged by no further one."""
NEW = ("mobilenet-v3-large@192", "shufflenet-v1@160", "squeezenet1.0@192")
"""Judged besides those drawn, since they have gates and tables, shuffles, and no depthwise layers."""
SIZES = tuple(f"{name}@{size}" for name, size in product(("mobilenet-v2", "resnet18", "resnet50", "googlenet", "mnasnet",
                                                         "shufflenet-v2", "efficientnet-lite0", "mobilenet-v1"), (160, 192)))
"""Known architectures at sizes that none was measured at, until they are judged; three of those left are drawn."""
DRAWN = 3
SEED = 2026_11_19
ROUNDS = 3
YARDSTICK = "squeezenet1.1"
"""The network whose frames say how fast the CPU is just now (chosen: short)."""
QUICK = ("squeezenet1.1@32", "mobilenet-v2-0.5@32"), ("shufflenet-v2-0.5@32",), ("squeezenet1.0@32",)
VISIT = Effort(0.2, 8, 1000)
PIECES_S = 0.5
"""Seconds that pieces of a network are timed for, about (chosen)."""
LANES = 2
"""Batches that a compiled network has under way (`gpu.executor.compile_graph`)."""
SHARED_S = 14.0
UNSEEN, SEEN = "layers unseen", "layers seen"
TERMS = "latency_s", "stream_s"


@contextmanager
def pinned(core: int | None) -> Iterator[None]:
    """This thread on one core, while GPU parts are started; threads begun meanwhile would inherit it."""
    if core is None or not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


class Execution:
    """A run: what it keeps loaded between steps."""

    def __init__(self, bench: Bench) -> None:
        self.bench, self.threads = bench, bench.threads
        self.parts = dict[str, Compiled]()

    def effort(self) -> Effort:
        return Effort(0.0, 1, 1) if self.bench.quick else VISIT

    def part(self, name: str) -> Compiled:
        """A part on the GPU that does next to nothing: given a few bytes, or a frame's."""
        if name not in self.parts:
            graph = calibration.frame_sized() if name == "frame" else calibration.smallest()
            made = pretended(graph) if self.bench.quick else gpu_network(graph)
            assert not isinstance(made, str), made
            self.parts[name] = made
        return self.parts[name]

    def manner(self, form: str) -> Manner:
        return Manner(form, self.threads)

    def tiles(self) -> Mapping[str, Tiles]:
        """Kernels that were timed alone on this GPU."""
        if self.bench.quick:
            return {}
        return for_gpu(torch.cuda.get_device_name(), (triton.__version__, torch.__version__)).tiles

    def yardsticks(self) -> dict[int | None, float]:
        """Seconds of a part that does next to nothing on the GPU, started from each core in turn."""
        made, found = self.part("frame"), dict[int | None, float]()
        frame = noise(made.graph, 1)
        for core in sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [None]:
            with pinned(core):
                found[core] = spread(partial(made.run, frame), Effort(0.0, 1, 1) if self.bench.quick else Effort(0.0, 50, 50))[
                    "median_s"]
        return found

    def gpu_visit(self, name: str) -> dict[str, Any]:
        """A network on the GPU once, from the core that is fastest just now: the yardstick, a frame, per frame of a stream."""
        made, bench = self.bench.on_gpu(name), self.bench
        assert not isinstance(made, str), made
        frame = noise(bench.graph(name), 1)
        found = self.yardsticks()
        core = min(found, key=lambda c: found[c])
        with pinned(core):
            return {"yardstick_s": found[core], "core": core, "slowest_core_s": max(found.values()),
                    **spread(partial(made.run, frame), self.effort()),
                    "stream_s": stream_s(made, frame, 2 if bench.quick else calibration.STREAMED)}

    def cpu_visit(self, name: str, form: str) -> dict[str, Any]:
        """The same on the CPU; one session after the other, since threads of one that wait by spinning would hold the cores."""
        own = self.session(self.bench.names[0] if self.bench.quick else YARDSTICK, "int8")
        return {"yardstick_s": own["median_s"], "yardstick_stream_s": own["stream_s"], **self.session(name, form)}

    def session(self, name: str, form: str) -> dict[str, float]:
        """A session's frame, and per frame of a stream."""
        graph = self.bench.graph(name)
        runner, frame = cpu_runner(graph, self.manner(form)), noise(graph, 1)
        return {**spread(partial(runner.run, frame), self.effort()), "stream_s": stream_s(runner, frame, self.bench.streamed)}

    def cut(self, name: str, form: str) -> dict[str, Any]:
        """A network's distinct pieces on the CPU, one frame and many at once."""
        graph = self.bench.graph(name)
        parted, seconds = pieces.cut(graph), 0.0 if self.bench.quick else PIECES_S
        many = 1 if fixes_batch(graph) else self.bench.streamed
        return {f"x{n}": pieces.to_json(parted, pieces.timed(parted, self.manner(form), n, seconds)) for n in {1, many}}


def moved_bytes(graph: Graph) -> int:
    return sum(graph.tensors[t].size for t in (*graph.inputs, *graph.outputs))


def drawn(bench: Bench) -> dict[str, Any]:
    """Which networks calibrate and which are judged."""
    chosen = random.Random(SEED).sample(bench.further, min(DRAWN, len(bench.further)))
    return {"seed": SEED, "of": list(bench.further), "drawn": chosen, "calibrate": list(bench.names),
            "judge": [*bench.seen, *chosen]}


def host(run: Execution) -> dict[str, Any]:
    """A part that does next to nothing on the GPU, started from every core; the least time per frame of a stream; copies."""
    found, small = run.yardsticks(), run.part("small")
    with pinned(min(found, key=lambda c: found[c])):
        floor = stream_s(small, noise(small.graph, 1), 2 if run.bench.quick else calibration.STREAMED)
        copied = calibration.copies(run.bench.layer_effort)
    less, more = ({r["bytes"]: sum(r[f"{k}_s"] for k in ("to", "fill")) for r in copied}[size] for size in (2**14, 2**20))
    return {"cores": [[core, seconds] for core, seconds in found.items()], "least_stream_s": floor, "copies": copied,
            "s_per_byte": max(0.0, more - less) / (2**20 - 2**14)}


def threads(run: Execution, names: Sequence[str]) -> dict[str, Any]:
    """Frames of networks that calibrate on all threads and on half of them: how many to take."""
    found: dict[str, dict[str, float]] = {}
    for count in sorted({run.bench.threads, max(1, run.bench.threads // 2)}):
        for name in names:
            runner = cpu_runner(run.bench.graph(name), Manner("int8", count))
            frame = noise(runner.graph, 1)
            found.setdefault(str(count), {})[name] = spread(partial(runner.run, frame), run.effort())["median_s"]
    means = {count: exp(sum(log(s) for s in own.values()) / len(own)) for count, own in found.items()}
    return {"seconds": found, "chosen": int(min(means, key=lambda c: means[c]))}


def calibrated(run: Execution, name: str) -> dict[str, Any]:
    """A network that calibrates: all that is asked of others later, and its kernels in place."""
    form = exact_form(run.bench, name, "int8")
    made, found = run.bench.on_gpu(name), dict[str, Any]()
    if isinstance(made, Compiled):
        found["gpu"] = {"alone_s": kernels.chosen_s(made.calls, run.tiles()), "kernels_s": device_s(made.replay, run.effort()),
                        "graph_s": device_s(made.lanes[0].replay, run.effort()), "launches": len(made.calls),
                        "wrong": differing(made.run(noise(made.graph, 1)), run.bench.wanted(name)),
                        "bytes": moved_bytes(made.graph), "visits": [run.gpu_visit(name) for _ in range(2)]}
    return {"form": form, **found, "cpu": [run.cpu_visit(name, form) for _ in range(2)], "pieces": run.cut(name, form)}


def fit(run: Execution, found: Mapping[str, Mapping[str, Any]], s_per_byte: float) -> dict[str, Any]:
    """What networks that calibrate say of others: factors of kernels, the host's share of a frame, streams, pieces."""
    gpu = {n: f["gpu"] for n, f in found.items() if "gpu" in f}
    timed = [k for n in gpu for k in kernels.timed_kernels(lower(run.bench.graph(n), "int8", gpu_here()), run.tiles())]
    factors = kernels.fitted(timed, [g["kernels_s"] / g["alone_s"] for g in gpu.values() if g["alone_s"]] or [1.0])
    visits = [(g, v) for g in gpu.values() for v in g["visits"]]
    own = {"by_class": dict(factors.by_class), "copied_s": factors.copied_s, "in_place": factors.in_place,
           "host_s": median(v["median_s"] - g["kernels_s"] - s_per_byte * g["bytes"] for g, v in visits),
           "pace": median(v["stream_s"] * LANES / v["median_s"] for _, v in visits),
           "overlap": min([1.0, *(v["stream_s"] / g["kernels_s"] for g, v in visits)]),
           "gpu_yardstick_s": median(v["yardstick_s"] for _, v in visits)}
    cpu = [v for f in found.values() for v in f["cpu"]]
    for images, term, key in ((1, "median_s", "yardstick_s"), (run.bench.streamed, "stream_s", "yardstick_stream_s")):
        rows = [(pieces.cut(run.bench.graph(n)), f["pieces"][f"x{images}"]["seconds"], images * median(v[term] for v in f["cpu"]))
                for n, f in found.items() if f"x{images}" in f["pieces"]]
        own |= {f"start_x{images}_s": pieces.start_s(rows), f"cpu_{key}": median(v[key] for v in cpu),
                f"pieces_x{images}": [[pieces.whole_s(p, t, 0.0), whole, p.number] for p, t, whole in rows]}
    return own


def gpu_said(run: Execution, name: str, kernels_s: float, fitted: Mapping[str, Any], at: Mapping[str, Any]) -> dict[str, Any]:
    """A network on the GPU: kernels, what the host takes; in a stream two batches under way, whose kernels overlap so far."""
    moved = at["s_per_byte"] * moved_bytes(run.bench.graph(name))
    latency = kernels_s + fitted["host_s"] + moved
    return {"kernels_s": kernels_s, "host_s": fitted["host_s"] + moved, "latency_s": latency,
            "stream_s": max(fitted["pace"] * latency / LANES, fitted["overlap"] * kernels_s, at["least_stream_s"] + moved)}


def unseen(run: Execution, name: str, form: str, fitted: Mapping[str, Any], at: Mapping[str, Any],
           models: Sequence[sessions.Sessions]) -> dict[str, Any]:
    """Predictions from fits to other networks."""
    graph, own = run.bench.graph(name), dict[str, Any]()
    many = 1 if fixes_batch(graph) else run.bench.streamed
    one = session_s(graph, (run.manner(form), models[0]))["seconds"]
    batch = one if many == 1 else session_s(graph, (run.manner(form), models[1]), many)["seconds"] / many
    own["cpu"] = {"latency_s": one, "stream_s": batch}
    factors = kernels.Factors(fitted["by_class"], fitted["copied_s"], fitted["in_place"])
    try:
        lowered = lower(graph, "int8", gpu_here())
    except UnsupportedError:
        return own
    return {**own, "gpu": gpu_said(run, name, factors.network_s(lowered), fitted, at)}


def layers(run: Execution, name: str, form: str) -> dict[str, Any]:
    """A network's own kernels alone, and its pieces."""
    made, begun = run.bench.on_gpu(name), time.perf_counter()
    gpu = {"not possible": made} if isinstance(made, str) else {"alone_s": kernels.chosen_s(made.calls, run.tiles()),
                                                                "launches": len(made.calls)}
    return {"gpu": gpu, "pieces": run.cut(name, form), "pieces_s": time.perf_counter() - begun}


def seen(run: Execution, name: str, fitted: Mapping[str, Any], at: Mapping[str, Any], found: Mapping[str, Any]) -> dict[str, Any]:
    """Predictions from a network's own layers."""
    parted, own = pieces.cut(run.bench.graph(name)), dict[str, Any]()
    images = max(int(key[1:]) for key in found["pieces"])
    one, many = (pieces.whole_s(parted, found["pieces"][f"x{n}"]["seconds"], fitted[f"start_x{n}_s"]) / n for n in (1, images))
    own["cpu"] = {"latency_s": one, "stream_s": many}
    if "alone_s" in found["gpu"]:
        own["gpu"] = gpu_said(run, name, fitted["in_place"] * found["gpu"]["alone_s"], fitted, at)
    return own


def judged(run: Execution, name: str, form: str) -> dict[str, Any]:
    """A network measured once on either device; whether its results are the reference's."""
    bench, made = run.bench, run.bench.on_gpu(name)
    frame, wanted = noise(bench.graph(name), 1), bench.wanted(name)
    found: dict[str, Any] = {"cpu": run.cpu_visit(name, form), "cpu_wrong": differing(
        cpu_runner(bench.graph(name), run.manner(form)).run(frame), wanted)}
    if isinstance(made, Compiled):
        found |= {"gpu": run.gpu_visit(name), "gpu_wrong": differing(made.run(frame), wanted),
                  "kernels_s": device_s(made.replay, run.effort()), "graph_s": device_s(made.lanes[0].replay, run.effort())}
    return found


def at_speed(said: Mapping[str, Any], visit: Mapping[str, Any], fitted: Mapping[str, Any], device: str, term: str) -> float:
    """A prediction at the speed that the yardstick showed before the visit."""
    if device == "cpu":
        key = "yardstick_s" if term == "latency_s" else "yardstick_stream_s"
        return float(said[term] * visit[key] / fitted[f"cpu_{key}"])
    faster = said["latency_s"] + said["host_s"] * (visit["yardstick_s"] / fitted["gpu_yardstick_s"] - 1)
    return float(faster if term == "latency_s" else said[term] * faster / said["latency_s"])


def summary(bench: Bench) -> None:
    """Predicted against measured: the median of rounds; and each round at the speed that its yardstick showed."""
    steps, rows = bench.record["steps"], list[dict[str, Any]]()
    if "fit" not in steps:
        return
    fitted = steps["fit"]["found"]
    for name, device, kind in product(steps["draw"]["found"]["judge"], ("gpu", "cpu"), (UNSEEN, SEEN)):
        said = steps.get(f"predicted {name}, {kind}", {"found": {}})["found"].get(device)
        rounds = [s["found"][device] for key, s in steps.items()
                  if key.startswith(f"judged {name}, round") and device in s["found"]]
        if said is None or not rounds:
            continue
        row: dict[str, Any] = {"network": name, "device": device, "kind": kind, "rounds": len(rounds)}
        for term in TERMS:
            taken = [r["median_s" if term == "latency_s" else term] for r in rounds]
            now = [at_speed(said, r, fitted, device, term) / t for r, t in zip(rounds, taken, strict=True)]
            row |= {f"{term}_predicted": said[term], f"{term}_rounds": taken,
                    f"{term}_error_percent": 100 * (said[term] / median(taken) - 1),
                    f"{term}_at_speed_error_percent": 100 * (median(now) - 1)}
        rows.append(row)
        print(f"{name:22} {device} {kind:14}" + "; ".join(
            f"{term[:-2]} {row[f'{term}_predicted'] * 1e6:8.1f} -> {median(row[f'{term}_rounds']) * 1e6:8.1f} us "
            f"({row[f'{term}_error_percent']:+6.1f} %, at speed {row[f'{term}_at_speed_error_percent']:+6.1f} %)"
            for term in TERMS))
    errors = {f"{device} {term[:-2]}, {kind}{' at speed' if speed else ''}": errors_of(
        [r for r in rows if (r["device"], r["kind"]) == (device, kind)], term + speed)
        for device, term, kind, speed in product(("gpu", "cpu"), TERMS, (UNSEEN, SEEN), ("", "_at_speed"))}
    bench.record["compared"] = {"rows": rows, "errors": errors}
    replace_text(bench.path, json.dumps(bench.record, indent=1) + "\n")
    for key, own in errors.items():
        print(f"{key:45}", own)
    for key, step in steps.items():
        if key.startswith("shared ") and "gain" in step["found"]:
            own = step["found"]
            print(f"{key[7:]:24} frames/s: GPU {own['gpu_alone']:9.0f}, CPU {own['cpu_alone']:8.0f}, together "
                  f"{own['together']:9.0f} ({100 * own['gain']:+.1f} %; {own['division']})")


def run_all(bench: Bench) -> None:
    """All steps, each once."""
    run, quick = Execution(bench), bench.quick
    bench.step("machine", lambda: machine(bench))
    draw = bench.step("draw", lambda: drawn(bench))
    stopped = bench.step("numbers", lambda: write_all(bench.folder, [*draw["calibrate"], *draw["judge"]], 2 if quick else 8))
    judge = [n for n in draw["judge"] if not stopped[n]]
    print(f"calibrate on {', '.join(draw['calibrate'])}; judge {', '.join(judge)}", flush=True)
    run.threads = bench.step("threads", lambda: threads(run, draw["calibrate"][:4]))["chosen"]
    at = bench.step("host", lambda: host(run))
    found = {n: bench.step(f"calibrate {n}", lambda n=n: calibrated(run, n)) for n in draw["calibrate"]}
    fitted = bench.step("fit", lambda: fit(run, found, at["s_per_byte"]))
    models = [sessions.from_json(bench.step(f"sessions x{n}", lambda n=n: sessions_of(
        bench, draw["calibrate"], run.manner("int8"), n))["model"]) for n in (1, bench.streamed)]
    forms = bench.step("forms", lambda: {n: exact_form(bench, n, "int8") for n in judge})
    for name in judge:
        bench.step(f"predicted {name}, {UNSEEN}", lambda n=name: unseen(run, n, forms[n], fitted, at, models))
    for name in judge:
        own = bench.step(f"layers {name}", lambda n=name: layers(run, n, forms[n]), 0 if quick else 40, True)
        if "pieces" in own:
            bench.step(f"predicted {name}, {SEEN}", lambda n=name, f=own: seen(run, n, fitted, at, f))
        bench.step(f"judged {name}, round 1", lambda n=name: judged(run, n, forms[n]), optional=True)
    for number, name in product(range(2, ROUNDS + 1), judge):
        bench.step(f"judged {name}, round {number}", lambda n=name: judged(run, n, forms[n]), 0 if quick else 8, True)
    summary(bench)
    for name in judge:
        bench.step(f"shared {name}", lambda n=name: share(bench, n, 1, forms[n]), 0 if quick else SHARED_S, True)
    summary(bench)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, required=True, help="the record to write, or to go on from")
    parser.add_argument("--networks", type=Path, help="folder for networks in integers (default: beside the record)")
    parser.add_argument("--budget", type=float, default=500.0, help="seconds (default: 500)")
    parser.add_argument("--tunings", type=Path, help="choices of kernels that an earlier run on the same GPU made")
    parser.add_argument("--quick", action="store_true", help="small networks, once each: shows that the script works")
    options = parser.parse_args()
    folder = options.networks or options.json.parent / "networks"
    folder.mkdir(parents=True, exist_ok=True)
    tuning.COMPILING_S, tuning.LEAST_COMPILING_S = COMPILING_S, LEAST_COMPILING_S
    record = json.loads(options.json.read_text(encoding="utf-8")) if options.json.exists() else {}
    record["command"] = " ".join(["PYTHONPATH=src python", *sys.argv])
    names, new, sizes = QUICK if options.quick else (CALIBRATE, NEW, tuple(n for n in SIZES if n not in JUDGED))
    bench = Bench(options.json, folder, options.budget, options.quick, record, names=names, further=sizes, seen=new, kinds=())
    if options.tunings and torch.cuda.is_available():
        take_over(options.tunings, ())
    try:
        run_all(bench)
    except OutOfTimeError as step:
        print(f"no time left for {step}; the same command goes on from {options.json}")
        summary(bench)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
