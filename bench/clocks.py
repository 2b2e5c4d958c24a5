"""Clocks of accelerators are those that models state: model, Verilator, and the bound that none of the kind goes below.

`python bench/clocks.py --json FILE [--only NAME ...] [--minutes 25] [--again]` takes the four MLPerf Tiny networks
(`bench/mlperf_tiny`) and seeded random networks, finds an accelerator of every architecture and a folded plan, builds and
simulates each, and writes `cases`, `designs` (distinct ones), `bound_violations` (must be 0), `model_error_max` for one frame
and the interval, `outside` (rows whose clocks leave the stated interval; must be 0), the same by architecture, and a row for
every design. Simulations are kept in FILE by the digest of the Verilog: another run continues where the last one ended, and with
`--again` asks model and search anew without simulating anything twice. The record is `bench/records/clocks.json`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

from dovetail.cost.clocks import ClockEstimate, accelerator_clocks, segment_clocks
from dovetail.cost.folded import folds_of
from dovetail.errors import InfeasibleError
from dovetail.files import replace_text
from dovetail.fpga.accelerator import build_accelerator
from dovetail.fpga.assemble import build_design
from dovetail.fpga.design import Design
from dovetail.fpga.packing import as_pixels
from dovetail.fpga.toolchain.simulate import simulate_many
from dovetail.ir import Add, AvgPool, Constant, Conv, Gemm, GlobalAvgPool, Graph, MaxPool, Node, Op, Reshape, Tensor, Window
from dovetail.ir.operators.base import RELU
from dovetail.numerics.calibration import synthetic
from dovetail.numerics.quantize import quantize_graph
from dovetail.numerics.reference import run_integer
from dovetail.partition.accelerator.architecture import accelerated_device, judged, pinned, region_of, search_of
from dovetail.partition.accelerator.architecture import judge as judge_best
from dovetail.partition.plan import Goal
from dovetail.pipeline import decide_numbers
from dovetail.platform.accelerator import Architecture
from dovetail.platform.device import Device, Platform
from dovetail.platform.load import load_platform
from dovetail.space import cut_out
from fibha import frames_of

HERE = Path(__file__).parent / "mlperf_tiny"
PUBLISHED = (("kws", "zedboard"), ("ic", "zc706"), ("ad", "zedboard"), ("vww", "zc706"))
SEEDS, FRAMES = 17, 8
KINDS = (Architecture.DHM, Architecture.SESL, Architecture.SEML, Architecture.MONOLITHIC, Architecture.FIBHA, Architecture.AUTO)
FOLDED = "folds"
"""The row of a plan whose layers share multipliers at a pace, without an accelerator (`--fold`)."""
SHARES = {Architecture.DHM: 1.0, FOLDED: 1.0}
"""Of the board: direct mapping needs all of it, the others get what the network leaves no room to spare in."""


@dataclass(frozen=True, slots=True)
class Case:
    """A network on a board: what is placed on its FPGA, and the architectures that are tried."""

    name: str
    board: str
    graph: Graph
    device: Device
    kinds: tuple[Architecture | str, ...]
    goal: Goal


@dataclass(frozen=True, slots=True)
class Made:
    """A design with its estimate and bound; the bound is of the goal, None where there is none."""

    case: Case
    kind: str
    design: Design
    estimate: ClockEstimate
    bound: float | None


class Net:
    """A graph under construction with seeded weights."""

    def __init__(self, seed: int) -> None:
        self.rng, self.nodes = np.random.default_rng(seed), list[Node]()
        self.tensors, self.constants = dict[str, Tensor](), dict[str, Constant]()

    def pick(self, *choices: Any) -> Any:
        return choices[int(self.rng.integers(len(choices)))]

    def add(self, op: Op, *inputs: str) -> str:
        name = f"n{len(self.nodes)}"
        shapes, params = tuple(self.tensors[i].shape for i in inputs), list[str]()
        for role, shape in zip(("weight", "bias"), op.param_shapes(shapes), strict=False):
            values = self.rng.standard_normal(shape) * (1.0 if role == "weight" else 0.3)
            self.constants[f"{name}_{role}"] = Constant(f"{name}_{role}", values.astype(np.float32))
            params.append(f"{name}_{role}")
        self.tensors[f"{name}_out"] = Tensor(f"{name}_out", op.infer(shapes))
        self.nodes.append(Node(name, op, inputs, tuple(params), f"{name}_out"))
        return f"{name}_out"

    def conv(self, x: str, filters: int, kernel: int, stride: int = 1, pad: int | None = None, groups: int = 1) -> str:
        side = kernel // 2 if pad is None else pad
        return self.add(Conv(filters, Window((kernel, kernel), (stride, stride), (side,) * 4), groups, RELU), x)


def random_network(seed: int) -> Graph:
    """Convolutions, depthwise layers, additions, pools and a head, of all strides and paddings, small enough to compile soon."""
    net = Net(seed)
    side, channels = net.pick(7, 9, 10, 12), net.pick(3, 4, 6, 8)
    net.tensors["x"] = Tensor("x", (1, net.pick(1, 2, 3), side, side))
    x = net.conv("x", channels, 3, net.pick(1, 2), net.pick(0, 1, 1))
    for _ in range(net.pick(1, 2, 2)):
        match net.pick("residual", "depthwise", "plain", "pool"):
            case "residual":
                y = net.conv(x, 2 * channels, 1)
                y = net.conv(y, 2 * channels, 3, groups=2 * channels)
                x = net.add(Add(), x, net.conv(y, channels, 1))
            case "depthwise":
                x = net.conv(net.conv(x, channels, 3, groups=channels), channels, 1)
            case "plain":
                channels = channels + 2
                x = net.conv(x, channels, net.pick(1, 3))
            case "pool" if net.tensors[x].shape[2] >= 4:
                x = net.add(MaxPool(Window((2, 2), (2, 2))), x)
    head = net.pick("global", "flat", "average", "map")
    if head == "global":
        x = net.add(GlobalAvgPool(), x)
    elif head == "average":
        x = net.add(AvgPool(Window(net.tensors[x].shape[2:])), x)
    if head in ("flat", "global") and np.prod(net.tensors[x].shape) <= 256:
        x = net.add(Gemm(net.pick(5, 10)), net.add(Reshape((1, int(np.prod(net.tensors[x].shape)))), x))
    graph = Graph(f"random{seed}", ("x",), (x,), tuple(net.nodes), net.tensors, net.constants)
    return quantize_graph(graph, synthetic(graph, 4, seed))


def cases(only: Sequence[str]) -> Iterator[Case]:
    """Every network with its board."""
    for seed in range(SEEDS):
        if not only or f"random{seed}" in only:
            goal = (Goal.LATENCY, Goal.THROUGHPUT)[seed % 2]
            share = (0.05, 0.08, 0.15)[seed % 3]
            yield Case(f"random{seed}", f"zc706, {share:.0%} of it", random_network(seed), _part(load_platform("zc706"), share),
                       (*KINDS, FOLDED), goal)
    for name, board in PUBLISHED:
        if not only or name in only:
            platform = load_platform(str(HERE / f"{board}.toml") if board == "zedboard" else board)
            device, graph = accelerated_device(platform), decide_numbers(HERE / f"{name}.onnx").graph
            pins = pinned(graph, region_of(graph, device, Architecture.AUTO), device.name)
            yield Case(name, board, cut_out(graph, pins, platform.host, device.name), device, (Architecture.AUTO,), Goal.LATENCY)


def _part(platform: Platform, share: float) -> Device:
    device = accelerated_device(platform)
    return replace(device, resources={name: amount * share for name, amount in device.resources.items()})


def made(case: Case, kind: Architecture | str) -> Made | None:
    """The design of a kind; None where none fits."""
    device = case.device if kind not in SHARES else _part(load_platform("zc706"), SHARES[kind])
    top = f"{case.name}_{kind}"
    if isinstance(kind, Architecture):
        try:
            search = None if kind is Architecture.AUTO else search_of(case.graph, device, kind)
            found = judge_best(case.graph, device, kind, case.goal) if search is None else judged(search, kind, case.goal)
        except InfeasibleError:
            return None
        design = build_accelerator(case.graph, top, found.accelerator)
        return Made(case, str(kind), design, accelerator_clocks(case.graph, found.accelerator), found.bound)
    paced = device.at_pace(4 * max(1, int(np.prod(case.graph.shape(case.graph.inputs[0])[2:]))))
    design = build_design(case.graph, top, folds=folds_of(case.graph, paced))
    return Made(case, kind, design, segment_clocks(case.graph, paced), None)


def digest(design: Design) -> str:
    """Of a design's Verilog, whatever its top is called."""
    text = json.dumps(sorted((name.replace(design.top, "top"), source.replace(design.top, "top"))
                             for name, source in design.files.items()))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def simulate_missing(case: Case, designs: Sequence[Design], known: dict[str, Any]) -> None:
    """One program for all designs of a case that were not simulated yet; every one must equal the reference."""
    missing = {digest(d): d for d in designs if digest(d) not in known}
    inputs, (target,) = frames_of(case.graph, FRAMES), case.graph.outputs
    expected = run_integer(case.graph, inputs)[target]
    jobs = [(d, {p.tensor: as_pixels(p, inputs[p.tensor]) for p in d.inputs}) for d in missing.values()]
    for key, result in zip(missing, simulate_many(jobs), strict=True):
        same = bool(np.array_equal(result.outputs[target].reshape(expected.shape), expected))
        known[key] = {"one_frame": result.frame_cycles[0], "interval": result.frame_cycles[-1] - result.frame_cycles[-2],
                      "bit_exact": same}


def row(found: Made, design: str, simulated: Mapping[str, Any]) -> dict[str, Any]:
    """What is known of one design."""
    case, estimate, goal = found.case, found.estimate, "interval" if found.case.goal is Goal.THROUGHPUT else "one_frame"
    modelled = {"one_frame": estimate.one_frame, "interval": estimate.interval}
    return {"network": case.name, "board": case.board if found.kind not in SHARES else "zc706", "architecture": found.kind,
            "goal": goal, "modelled": modelled, "simulated": {k: simulated[k] for k in modelled},
            "bound": found.bound, "bound_holds": found.bound is None or found.bound <= simulated[goal],
            "error": {k: modelled[k] / simulated[k] - 1 for k in modelled},
            "off_clocks": {k: modelled[k] - simulated[k] for k in modelled}, "stated_error": estimate.error,
            "within": estimate.one_frame_holds(simulated["one_frame"]) and estimate.interval_holds(simulated["interval"]),
            "bit_exact": simulated["bit_exact"], "reusable": found.design.memory is not None, "design": design}


def summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Counts over rows, and the largest errors."""
    worst = {k: max((abs(r["error"][k]) for r in rows), default=0.0) for k in ("one_frame", "interval")}
    return {"cases": len(rows), "designs": len({r["design"] for r in rows}),
            "bound_violations": sum(not r["bound_holds"] for r in rows), "model_error_max": worst,
            "outside": sum(not r["within"] for r in rows), "wrong": sum(not r["bit_exact"] for r in rows)}


def write(path: Path, rows: Mapping[str, Any], simulations: Mapping[str, Any]) -> dict[str, Any]:
    """The file as far as it is known."""
    every = list(rows.values())
    kinds = sorted({r["architecture"] for r in every})
    found = {"command": "python bench/clocks.py --json FILE", "date": date.today().isoformat(), **summary(every),
             "architectures": {k: summary([r for r in every if r["architecture"] == k]) for k in kinds},
             "rows": dict(rows), "simulations": dict(simulations)}
    replace_text(path, json.dumps(found, indent=1) + "\n")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--only", action="append", default=[], help="a network (random0 ... or kws, ic, ad, vww); repeatable")
    parser.add_argument("--minutes", type=float, default=25.0, help="no further network is begun after that; run again to go on")
    parser.add_argument("--again", action="store_true", help="model and search anew, keep the simulations of FILE")
    options = parser.parse_args()
    began = time.monotonic()
    kept = json.loads(options.json.read_text(encoding="utf-8")) if options.json.exists() else {}
    rows, simulations = {} if options.again else kept.get("rows", {}), kept.get("simulations", {})
    found = write(options.json, rows, simulations)
    for case in cases(options.only):
        if time.monotonic() - began > 60 * options.minutes:
            print("time is over; run the same command again to go on", flush=True)
            break
        wanted = [kind for kind in case.kinds if f"{case.name} {kind}" not in rows]
        designs = [m for kind in wanted if (m := made(case, kind)) is not None]
        if designs:
            simulate_missing(case, [m.design for m in designs], simulations)
        for m in designs:
            one = rows[f"{case.name} {m.kind}"] = row(m, key := digest(m.design), simulations[key])
            print(f"{case.name} {m.kind}: modelled {one['modelled']}, simulated {one['simulated']}, bound {one['bound']}, "
                  f"{'within' if one['within'] else 'OUTSIDE'}, {'' if one['bound_holds'] else 'BOUND BEATEN'}", flush=True)
        found = write(options.json, rows, simulations)
    told = ("cases", "designs", "bound_violations", "model_error_max", "outside", "wrong")
    print(json.dumps({k: found[k] for k in told}), flush=True)


if __name__ == "__main__":
    main()
