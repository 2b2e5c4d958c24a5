"""Modules of compact networks at the sizes they have in 224x224 networks, folded by the optimiser where they do not fit.

Each module is cut out of its quantized network, placed whole on the Cyclone 10 GX of `tx2-c10gx`, given the folds with which
its plan is fastest, generated, and simulated against the integer reference.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from dovetail import zoo
from dovetail.cost.folded import folds_of, pace_of
from dovetail.fpga.assemble import build_design
from dovetail.fpga.part import as_pixels
from dovetail.fpga.toolchain.simulate import simulate
from dovetail.ir import Array, Graph
from dovetail.numerics.equalize import Equalise
from dovetail.numerics.reference import run_integer
from dovetail.partition.options import AUTO
from dovetail.partition.plan import whole_on
from dovetail.pipeline import decide_numbers
from dovetail.planning import Options, decide
from dovetail.platform.load import load_platform
from dovetail.schedule.program import lower

BOARD, FPGA = "tx2-c10gx", "fpga"


@dataclass(frozen=True, slots=True)
class Cut:
    """A module: its network of the zoo, and what the names of its nodes begin with."""

    network: str
    stems: tuple[str, ...]

    @property
    def name(self) -> str:
        ends = self.stems if len(self.stems) < 3 else (self.stems[0], self.stems[-1])
        return f"{self.network} {' to '.join(stem.rstrip('._') for stem in ends)}"


def _each(network: str, *stems: str) -> tuple[Cut, ...]:
    return tuple(Cut(network, (stem,)) for stem in stems)


MODULES = (
    *_each("squeezenet1.1", *(f"fire{i}_" for i in range(2, 10))),
    *_each("mobilenet-v2-0.5", "features.2.", "features.3.", "features.4.", "features.14.", "features.15."),
    *_each("shufflenet-v2-0.5", "stage2.0.", "stage2.1.", "stage3.0.", "stage3.1.", "stage4.0.", "stage4.1."),
)
PREFIX = Cut("mobilenet-v2-0.5", tuple(f"features.{i}." for i in range(6)))
"""The first convolution and five bottlenecks of MobileNetV2 as one design."""


@cache
def quantized(network: str, size: int | None = None) -> Graph:
    """A zoo network in integers, from seeded images."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        path.write_bytes(zoo.build(network, size=size))
        return decide_numbers(path, equalise=Equalise.OFF).graph


def cut_out(graph: Graph, stems: Sequence[str]) -> Graph:
    """The nodes whose names begin with one of the stems, as a graph of their own."""
    inside = {n.name: n.name.startswith(tuple(stems)) for n in graph.nodes}
    program = lower(graph, {name: whole_on(FPGA if own else "cpu") for name, own in inside.items()})
    (segment,) = (s for s in program.segments if s.device == FPGA)
    return segment.graph


def random_frames(graph: Graph, frames: int) -> dict[str, Array]:
    rng, found = np.random.default_rng(0), dict[str, Array]()
    for name in graph.inputs:
        scheme = graph.tensors[name].scheme
        assert scheme is not None
        found[name] = rng.integers(scheme.lo, scheme.hi + 1, (frames, *graph.shape(name)[1:])).astype(scheme.dtype)
    return found


def module_figures(graph: Graph, frames: int = 1) -> dict[str, Any]:
    """What the optimiser makes of a module on the FPGA, and whether its hardware computes what the reference does."""
    placed = {n.name: whole_on(FPGA) for n in graph.nodes}
    plan, _, board = decide(graph, load_platform(BOARD), Options(fold=AUTO), placed)
    device = board.device(FPGA)
    folds = folds_of(graph, device)
    design = build_design(graph, "unit", folds=folds)
    inputs, start = random_frames(graph, frames), time.process_time()
    result = simulate(design, {p.tensor: as_pixels(p, inputs[p.tensor]) for p in design.inputs})
    expected = run_integer(graph, inputs)
    exact = all(np.array_equal(result.outputs[t].reshape(expected[t].shape), expected[t]) for t in graph.outputs)
    area = plan.resources[FPGA]
    return {"inputs": ["x".join(map(str, graph.shape(t)[1:])) for t in graph.inputs], "nodes": len(graph.nodes),
            "bit_exact": exact, "pace_clocks": pace_of(device) if folds else None,
            "folds": {name: str(fold) for name, fold in folds.items()},
            "adders": design.adders, "latency_cycles": design.latency_cycles, "interval_cycles": design.interval_cycles,
            "simulated_cycles": list(result.frame_cycles), "area_estimate": {r: round(used, 1) for r, (used, _) in area.items()},
            "area_share": {r: round(used / limit, 4) for r, (used, limit) in area.items()},
            "clock_hz": device.clock_hz, "run_s": result.run_s, "processor_s": time.process_time() - start}


def judged(name: str, graph: Graph, frames: int = 1) -> dict[str, Any]:
    """A module's figures with their status, printed."""
    found = module_figures(graph, frames)
    promised = found["simulated_cycles"][0] == found["latency_cycles"]
    area = found["area_estimate"]
    print(f"{name:38} {found['inputs'][0]:>11} {len(found['folds'])} of {found['nodes']} folded, {area['alm']:.0f} ALM, "
          f"{area['m20k']:.0f} M20K, {area['dsp']:.0f} DSP (estimate), {found['latency_cycles']} cycles, "
          f"{'exact' if found['bit_exact'] else 'NOT EXACT'}", flush=True)
    return {**found, "status": "ok" if found["bit_exact"] and promised else "missed"}


def modules() -> dict[str, Any]:
    """Every module at its size, then five bottlenecks of MobileNetV2 as one design."""
    entries = {cut.name: judged(cut.name, cut_out(quantized(cut.network), cut.stems)) for cut in (*MODULES, PREFIX)}
    fine = all(entry["status"] == "ok" for entry in entries.values())
    return {"modules": {**entries, "board": BOARD, "status": "ok" if fine else "missed"}}
