"""Clocks of FPGAs are those that plans state: model, Verilator, and the bound that none goes below.

`python bench/clocks.py --json FILE [--part designs|plans|zoo ...] [--only NAME ...] [--minutes 25] [--again]` simulates

- `designs`: the four MLPerf Tiny networks (`bench/mlperf_tiny`) and seeded random networks, each as an accelerator of every
  architecture and as a folded plan, which searches find;
- `plans`: 40 random legal plans for other random networks on random boards (`lib/clocks/plans.py`): direct, folded, hybrids,
  arrays, arrays with external maps, nodes divided between devices, two FPGAs, and default plans;
- `zoo`: default plans and accelerators of twelve networks of the zoo.

For each it writes `cases`, `designs` (distinct ones), `bound_violations` (must be 0), `model_error_max` for one frame and the
interval, `outside` (rows whose clocks leave the stated interval; must be 0), `wrong` (not the reference's numbers; must be 0),
and a row for every design; `designs` stand at the top level. Simulations are kept in FILE by the digest of the Verilog: another
run continues where the last one ended, and with `--again` asks model and search anew without simulating anything twice. The
record is `bench/records/clocks.json`.
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
from dovetail.ir import Graph
from dovetail.numerics.reference import run_integer
from dovetail.partition.accelerator.architecture import ARRAYS_ALONE, accelerated_device, judged, pinned, region_of, search_of
from dovetail.partition.accelerator.architecture import judge as judge_best
from dovetail.partition.plan import Goal
from dovetail.pipeline import decide_numbers
from dovetail.platform.accelerator import Architecture
from dovetail.platform.device import Device, Platform
from dovetail.platform.load import load_platform
from dovetail.space import cut_out
from fibha import frames_of
from lib.clocks.networks import random_network
from lib.clocks.plans import PLANS, ZOO, Planned, parts_of, random_plan, zoo_plan

HERE = Path(__file__).parent / "mlperf_tiny"
PUBLISHED = (("kws", "zedboard"), ("ic", "zc706"), ("ad", "zedboard"), ("vww", "zc706"))
SEEDS, FRAMES = 17, 8
KINDS = (Architecture.DHM, Architecture.SESL, Architecture.SEML, Architecture.MONOLITHIC, Architecture.FIBHA, Architecture.AUTO)
PARTS = ("designs", "plans", "zoo")
BATCH = 4
"""Random plans whose designs are compiled into one program."""
ARRAY_FRAMES = 4
"""Frames of large networks on arrays alone, which follow each other evenly from the second on."""
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


def simulate_missing(designs: Sequence[tuple[Graph, Design]], known: dict[str, Any], frames: int = FRAMES) -> None:
    """One program for all designs that were not simulated yet; every one must equal the reference of its graph."""
    missing = {digest(design): (graph, design) for graph, design in designs if digest(design) not in known}
    inputs = {key: frames_of(graph, frames) for key, (graph, _) in missing.items()}
    jobs = [(design, {p.tensor: as_pixels(p, inputs[key][p.tensor]) for p in design.inputs})
            for key, (_, design) in missing.items()]
    for (key, (graph, _)), result in zip(missing.items(), simulate_many(jobs), strict=True):
        expected = run_integer(graph, inputs[key])
        same = all(np.array_equal(result.outputs[t].reshape(expected[t].shape), expected[t]) for t in graph.outputs)
        known[key] = {"one_frame": result.frame_cycles[0], "interval": result.frame_cycles[-1] - result.frame_cycles[-2],
                      "bit_exact": same}


def row(found: Made, design: str, simulated: Mapping[str, Any]) -> dict[str, Any]:
    """What is known of one design."""
    case, goal = found.case, "interval" if found.case.goal is Goal.THROUGHPUT else "one_frame"
    return {"network": case.name, "board": case.board if found.kind not in SHARES else "zc706", "architecture": found.kind,
            "goal": goal, "bound": found.bound, "bound_holds": found.bound is None or found.bound <= simulated[goal],
            **compared(found.estimate, simulated), "reusable": found.design.memory is not None, "design": design}


def compared(estimate: ClockEstimate, simulated: Mapping[str, Any]) -> dict[str, Any]:
    """Stated clocks beside simulated ones."""
    modelled = {"one_frame": estimate.one_frame, "interval": estimate.interval}
    return {"modelled": modelled, "simulated": {k: simulated[k] for k in modelled},
            "error": {k: modelled[k] / simulated[k] - 1 for k in modelled},
            "off_clocks": {k: modelled[k] - simulated[k] for k in modelled}, "stated_error": estimate.error,
            "within": estimate.one_frame_holds(simulated["one_frame"]) and estimate.interval_holds(simulated["interval"]),
            "bit_exact": simulated["bit_exact"]}


def plan_rows(planned: Planned, designs: Mapping[str, Design], simulations: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Of every segment of a plan on an FPGA; bounds are of both, where one segment holds all nodes that they are of."""
    bounds, found = planned.bounds if len(designs) == 1 else {}, dict[str, dict[str, Any]]()
    for segment, design in designs.items():
        simulated = simulations[key := digest(design)]
        found[f"{planned.name} {segment}"] = {
            "network": planned.name, "board": planned.platform.name, "architecture": planned.kind,
            "goal": planned.plan.goal.value, "bound": bounds,
            "bound_holds": all(bound <= simulated[k] for k, bound in bounds.items()),
            **compared(planned.plan.clocks[segment], simulated), "reusable": design.memory is not None, "design": key,
            "plan": {"objective": planned.plan.objective, "lower_bound": planned.plan.lower_bound,
                     "priced_clocks": planned.priced(segment)}}
    return found


def summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Counts over rows, and the largest errors."""
    worst = {k: max((abs(r["error"][k]) for r in rows), default=0.0) for k in ("one_frame", "interval")}
    return {"cases": len(rows), "designs": len({r["design"] for r in rows}),
            "bound_violations": sum(not r["bound_holds"] for r in rows), "model_error_max": worst,
            "outside": sum(not r["within"] for r in rows), "wrong": sum(not r["bit_exact"] for r in rows)}


class Record:
    """The file: rows by part, and simulations by digest."""

    def __init__(self, path: Path, again: Sequence[str]) -> None:
        self.path, kept = path, json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        self.simulations: dict[str, Any] = kept.get("simulations", {})
        parts = {"designs": kept, **{part: kept.get(part, {}) for part in ("plans", "zoo")}}
        self.rows: dict[str, dict[str, Any]] = {part: {} if part in again else old.get("rows", {}) for part, old in parts.items()}
        self.dates: dict[str, str] = {part: old.get("date", "") for part, old in parts.items()}

    def part(self, part: str) -> dict[str, Any]:
        """What is said of a part."""
        rows = self.rows[part]
        kinds = sorted({r["architecture"] for r in rows.values()})
        return {"command": f"python bench/clocks.py --json FILE --part {part}", "date": self.dates[part],
                **summary([*rows.values()]),
                "architectures": {k: summary([r for r in rows.values() if r["architecture"] == k]) for k in kinds}, "rows": rows}

    def write(self, part: str) -> None:
        """The file as far as it is known, after rows of a part were added."""
        self.dates[part] = date.today().isoformat()
        found = {**self.part("designs"), **{p: self.part(p) for p in ("plans", "zoo")}, "simulations": self.simulations}
        replace_text(self.path, json.dumps(found, indent=1) + "\n")

    def add(self, part: str, rows: Mapping[str, dict[str, Any]], count: str) -> None:
        """Rows of a part, told and kept."""
        for name, one in rows.items():
            found = {"OUTSIDE": not one["within"], "BOUND BEATEN": not one["bound_holds"], "WRONG": not one["bit_exact"]}
            print(f"{count} {name} {one['architecture']}: modelled {one['modelled']}, simulated {one['simulated']}, "
                  f"bound {one['bound']}, {', '.join(k for k, holds in found.items() if holds) or 'within'}", flush=True)
        self.rows[part].update(rows)
        self.write(part)


def simulate_designs(record: Record, only: Sequence[str]) -> Iterator[None]:
    """Accelerators of every architecture."""
    every = SEEDS + len(PUBLISHED)
    for number, case in enumerate(cases(only), 1):
        wanted = [kind for kind in case.kinds if f"{case.name} {kind}" not in record.rows["designs"]]
        designs = [m for kind in wanted if (m := made(case, kind)) is not None]
        simulate_missing([(case.graph, m.design) for m in designs], record.simulations)
        rows = {f"{case.name} {m.kind}": row(m, key := digest(m.design), record.simulations[key]) for m in designs}
        record.add("designs", rows, f"{number} of {every}")
        yield


def simulate_plans(record: Record, part: str, only: Sequence[str]) -> Iterator[None]:
    """Random plans, a few in one program, or networks of the zoo, one by one."""
    names = [f"plan {n}" for n in range(PLANS)] if part == "plans" else list(ZOO)
    together = BATCH if part == "plans" else 1
    known = {r["network"] for r in record.rows[part].values()}
    wanted = [name for name in names if name not in known and (not only or name in only)]
    for start in range(0, len(wanted), together):
        some = wanted[start : start + together]
        planned = [random_plan(int(name.removeprefix("plan "))) if part == "plans" else zoo_plan(name) for name in some]
        designs = {p.name: parts_of(p) for p in planned}
        few = part == "zoo" and planned[0].kind in ARRAYS_ALONE
        simulate_missing([job for own in designs.values() for job in own.values()], record.simulations,
                         ARRAY_FRAMES if few else FRAMES)
        for p in planned:
            record.add(part, plan_rows(p, {s: design for s, (_, design) in designs[p.name].items()}, record.simulations),
                       f"{names.index(p.name) + 1} of {len(names)}")
        yield


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--part", action="append", choices=PARTS, help="repeatable (default: all)")
    parser.add_argument("--only", action="append", default=[], help="a network (random0 ... or kws, ic, ad, vww), a plan "
                        "(plan 0 ...) or a network of the zoo; repeatable")
    parser.add_argument("--minutes", type=float, default=25.0, help="nothing further is begun after that; run again to go on")
    parser.add_argument("--again", action="store_true", help="model and search anew, keep the simulations of FILE")
    options = parser.parse_args()
    began, parts = time.monotonic(), options.part or PARTS
    record = Record(options.json, parts if options.again else ())
    for part in parts:
        steps = simulate_designs(record, options.only) if part == "designs" else simulate_plans(record, part, options.only)
        for _ in steps:
            if time.monotonic() - began > 60 * options.minutes:
                print("time is over; run the same command again to go on", flush=True)
                return
        told = ("cases", "designs", "bound_violations", "model_error_max", "outside", "wrong")
        print(part, json.dumps({k: record.part(part)[k] for k in told}), flush=True)


if __name__ == "__main__":
    main()
