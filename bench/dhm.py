"""Directly mapped layers: area, adders, clock, simulation, compile time, and other people's generators beside ours.

`python bench/dhm.py --json FILE [--part NAME ...]`. Weights are Gaussian int8, every filter scaled to 127, seed 0. Areas are
Yosys counts before place and route; only the ECP5 clock is a router's. `layers` (area of 16 layers against the model) and
proofs (bench/lib/proofs) run when named: random networks, the same in a second simulator, modules of compact networks at
their sizes, the example over 200 images, toggles, a folded design in synthesis. Syntheses are kept in the cache of
`dovetail`. Times are of the clock, and of the processor where that says more on a busy machine. A part that lacks a tool says
which and ends with 2.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import dovetail as dt
from dovetail import zoo
from dovetail.errors import DovetailError
from dovetail.files import replace_text
from dovetail.fpga.assemble import build_design
from dovetail.fpga.toolchain.ecp5 import ECP5
from dovetail.fpga.toolchain.place import place_design
from dovetail.fpga.toolchain.synthesize import synthesize
from dovetail.hardware.adders.graph import IntMatrix
from dovetail.hardware.adders.subexpressions import _minimized, minimize
from dovetail.ir import Array, Constant, Conv, Graph, Window
from dovetail.ir.onnx.read import read_onnx
from lib.dhm_layers import layer_areas
from lib.dhm_multipliers import multipliers
from lib.peers.adder_graph_rtl import GENERATORS
from lib.peers.compare import compare_all
from lib.peers.layers import SAME, gaussian, integer_network
from lib.peers.measured import missing
from lib.peers.simulation import simulation_figures
from lib.proofs.activity import activity
from lib.proofs.coverage import coverage
from lib.proofs.folded_area import folded_area
from lib.proofs.images import example_images
from lib.proofs.modules import modules
from lib.proofs.random_networks import random_networks, two_simulators

FASHION = Path(__file__).parents[1] / "examples" / "fashion"
ALM_TARGETS = {"alm_3_64_3x3": (64, 16_000.0, 53_610.0), "alm_3_32_3x3": (32, 8_000.0, 21_147.0)}
"""Key to filters, target and what the authors of Heterogeneity 2021 report from Quartus."""
SHAPES: dict[str, tuple[Conv, tuple[int, int, int]]] = {
    "3 to 8, 3x3": (Conv(8, Window((3, 3), pads=SAME)), (3, 224, 224)),
    "16 to 32, 1x1": (Conv(32, Window((1, 1))), (16, 56, 56)),
    "depthwise 32, 3x3": (Conv(32, Window((3, 3), pads=SAME), 32), (32, 112, 112)),
    "1 to 8, 5x5": (Conv(8, Window((5, 5), pads=(2, 2, 2, 2))), (1, 28, 28)),
}
MATRICES = {"3 to 8, 3x3": (8, 3, 3, 3), "16 to 32, 1x1": (32, 16, 1, 1), "3 to 64, 3x3": (64, 3, 3, 3)}
FMAX_TARGET_MHZ, FMAX_ASKED_MHZ, FMAX_SEEDS = 200.0, 250.0, (1, 2, 3, 4, 5)
COMPILE_TARGET_S, SPEED_TARGET = 60.0, 1e6
MODEL_TARGETS, MODEL_FAMILIES = {"median": 0.05, "p90": 0.10}, ("ecp5", "xcu")


def at_most(value: float, target: float) -> dict[str, Any]:
    return {"value": value, "target": target, "status": "ok" if value <= target else "missed"}


def at_least(value: float, target: float) -> dict[str, Any]:
    return {"value": value, "target": target, "status": "ok" if value >= target else "missed"}


def layer(op: Conv, shape: tuple[int, int, int]) -> Graph:
    return integer_network((op,), shape)


def counted_alm(graph: Graph) -> dict[str, float]:
    """ALMs of a layer on Cyclone 10 GX: ALUT6 + 0.8 of smaller ones + half of arithmetic ones, by Yosys 0.23 of Debian."""
    design = build_design(graph, "layer")
    found = synthesize(design, "cyclone10gx", progress=lambda done, of: print(f"  part {done} of {of}", flush=True))
    return {"alm": found.resources["alm"], "alm_low": found.resources["alm_low"], "register": found.resources["register"],
            "m20k": found.resources["m20k"], "adders": design.adders}


def area() -> dict[str, Any]:
    entries: dict[str, Any] = {}
    for key, (filters, target, quartus) in reversed(ALM_TARGETS.items()):
        counts = counted_alm(layer(Conv(filters, Window((3, 3), pads=SAME)), (3, 224, 224)))
        entries[key] = {**at_most(counts["alm"], target), **counts, "count": "Yosys", "authors_quartus_alm": quartus}
        print(f"{key:18} {counts['alm']:9.0f} ALM by Yosys (target {target:g}; the authors' own by Quartus {quartus:g}), "
              f"{counts['adders']:.0f} adders", flush=True)
    return entries


def vgg16() -> dict[str, Any]:
    """The first layer of the zoo's VGG16, weights seeded as the zoo's are, quantized per filter as here."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "m.onnx"
        path.write_bytes(zoo.build("vgg16", size=32))
        graph = read_onnx(path).graph
    node = next(n for n in graph.nodes if isinstance(n.op, Conv))
    weights = np.asarray(graph.constants[node.params[0]].array, dtype=np.float64)
    peaks = np.abs(weights).max(axis=(1, 2, 3), keepdims=True)
    exponents = np.ceil(np.log2(peaks.reshape(-1) / 127)).astype(int)
    integers = np.rint(weights * 2.0 ** -exponents[:, None, None, None]).astype(np.int8)
    counts = counted_alm(with_weights(layer(Conv(64, Window((3, 3), pads=SAME)), (3, 224, 224)), integers))
    print(f"alm_vgg16_first    {counts['alm']:9.0f} ALM by Yosys, {counts['adders']:.0f} adders", flush=True)
    return {"alm_vgg16_first": {**at_most(counts["alm"], ALM_TARGETS["alm_3_64_3x3"][1]), **counts, "count": "Yosys",
                                "weights": "seeded as the zoo's are"}}


def with_weights(graph: Graph, weights: Array) -> Graph:
    """The same layer with other integers for weights."""
    name = graph.nodes[0].params[0]
    changed = Constant(name, weights, graph.constants[name].scheme)
    return Graph(graph.name, graph.inputs, graph.outputs, graph.nodes, graph.tensors, {**graph.constants, name: changed})


def shapes() -> dict[str, Any]:
    """LUTs per multiply-accumulate of popular layers; a multiplier of 8 by 8 bits in LUTs alone takes about 70."""
    found: dict[str, Any] = {}
    for name, (op, shape) in SHAPES.items():
        graph = layer(op, shape)
        counts = synthesize(build_design(graph, "layer"), "xcup").resources
        macs = int(np.prod(graph.constants[graph.nodes[0].params[0]].array.shape))
        found[name] = {"lut": counts["lut"], "register": counts["register"], "bram36": counts["bram36"], "macs": macs,
                       "lut_per_mac": counts["lut"] / macs}
        print(f"{name:18} {counts['lut']:7.0f} LUT, {macs} MAC per clock: {counts['lut'] / macs:.1f} LUT per MAC", flush=True)
    return {"lut_per_mac": {**found, "family": "xcup", "count": "Yosys", "status": "ok"}}


def adders() -> dict[str, Any]:
    """Adders of ours and of every installed peer's for the same matrices, all warm: the second of two runs is timed."""
    installed = {peer: generator for peer, generator in GENERATORS.items() if generator.available()}
    if not installed:
        raise missing(" and ".join(GENERATORS))
    found: dict[str, Any] = {}
    for name, shape in MATRICES.items():
        matrix = gaussian(shape).reshape(shape[0], -1).astype(np.int64)
        counts = {"ours": timed(fresh_adders, matrix),
                  **{peer: timed(generator.adder_count, matrix) for peer, generator in installed.items()}}
        found[name] = {key: value for who, (count, seconds, busy_s) in counts.items()
                       for key, value in ((who, count), (f"{who}_s", seconds), (f"{who}_processor_s", busy_s))}
        print(f"adders {name:14} " + ", ".join(f"{who} {count} in {busy_s:.2f} s of the processor"
                                               for who, (count, _, busy_s) in counts.items()), flush=True)
    slower = [f"{name}: {peer}" for name, entry in found.items() for peer in installed
              if entry["ours_processor_s"] > entry[f"{peer}_processor_s"]]
    worst = max(entry["ours"] / entry[peer] for entry in found.values() for peer in installed)
    return {"adders": {**found, "target": "at most the processor time of every peer", "slower_than": slower,
                       "versions": {peer: generator.version for peer, generator in installed.items()},
                       "not_installed": [peer for peer in GENERATORS if peer not in installed],
                       "date": date.today().isoformat(), "machine": platform.machine(),
                       "command": "python bench/dhm.py --part adders --json FILE", "status": "missed" if slower else "ok"},
            "adders_ratio_max": at_most(worst, 1.0)}


def fresh_adders(matrix: IntMatrix) -> int:
    """Our adders, counted anew: results are remembered within a process."""
    _minimized.cache_clear()
    return minimize(matrix, [(-128, 127)] * matrix.shape[1]).count


def timed(work: Callable[[IntMatrix], int], matrix: IntMatrix) -> tuple[int, float, float]:
    """A count, and the seconds of the second of two runs: of the clock, and of the processors over all threads and children."""
    work(matrix)
    start, busy = time.perf_counter(), processor_s()
    result = work(matrix)
    return result, time.perf_counter() - start, processor_s() - busy


def processor_s() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def fmax() -> dict[str, Any]:
    """Five seeds of nextpnr on an ECP5 85k for 3 to 8 filters of 3x3."""
    design = build_design(layer(Conv(8, Window((3, 3), pads=SAME)), (3, 224, 224)), "layer")
    clocks = []
    for seed in FMAX_SEEDS:
        clocks.append(place_design(design, ECP5, ECP5.largest, seed=seed, freq_mhz=FMAX_ASKED_MHZ).fmax_mhz)
        print(f"ecp5_fmax_mhz      seed {seed}: {clocks[-1]:.1f}", flush=True)
    return {"ecp5_fmax_mhz": {**at_least(median(clocks), FMAX_TARGET_MHZ), "seeds": clocks}}


def simulation() -> dict[str, Any]:
    """Clock cycles of 3 to 8 filters of 3x3 at 224x224 that Verilator simulates per second; the best of three runs."""
    graph = layer(Conv(8, Window((3, 3), pads=SAME)), (3, 224, 224))
    design = build_design(graph, "layer")
    figures = max((simulation_figures(graph, design) for _ in range(3)), key=lambda found: found["core"]["cycles_per_s"])
    core = figures["core"]
    print(f"verilator          {core['cycles_per_s'] / 1e6:.2f} M cycles/s by the clock, "
          f"{core['cycles_per_processor_s'] / 1e6:.2f} M by the processor, {core['frames_per_s']:.1f} frames/s", flush=True)
    entry = {**at_least(core["cycles_per_s"], SPEED_TARGET), **figures}
    if entry["status"] != "ok" and core["cycles_per_processor_s"] >= SPEED_TARGET:
        entry["status"] = "missed by the clock of a busy machine, met by the processor's"
    return {"verilator_cycles_per_s": entry}


def compiled() -> dict[str, Any]:
    """The example from ONNX to verified RTL; run twice, because the second finds the simulation's program in the cache."""
    times: list[tuple[float, float]] = []
    for _ in range(2):
        with TemporaryDirectory() as folder:
            start, busy = time.perf_counter(), time.process_time()
            dt.compile(FASHION / "fashion.onnx", "tx2-c10gx", Path(folder) / "build", calibration=FASHION / "calibration.npz",
                       options=dt.Options(thrift=0.05, fold="none"))
            times.append((time.perf_counter() - start, time.process_time() - busy))
    print(f"compile_s          {times[1][0]:.1f} s warm, {times[0][0]:.1f} s before", flush=True)
    return {"compile_s": {**at_most(times[1][0], COMPILE_TARGET_S), "processor_s": times[1][1], "first_s": times[0][0]}}


def area_model() -> dict[str, Any]:
    """Relative error of the shipped area models on layers that took no part in their fit, by `dovetail campaign area`."""
    if importlib.util.find_spec("dovetail.explore.area_campaign") is None:
        return {"area_model": {"median": None, "p90": None, "target": MODEL_TARGETS,
                               "status": "no command `campaign` in this version"}}
    with TemporaryDirectory() as folder:
        path = Path(folder) / "area.json"
        families = [word for name in MODEL_FAMILIES for word in ("--family", name)]
        subprocess.run([sys.executable, "-m", "dovetail.cli", "campaign", "area", *families, "--json", str(path)], check=True)
        return {"area_model": judged_model(json.loads(path.read_text(encoding="utf-8"))["area_model"])}


def judged_model(families: dict[str, Any]) -> dict[str, Any]:
    """The worst family's figures, which are those of its worse resource, with every family's beside them."""
    worst = {name: max(found[name] for found in families.values()) for name in MODEL_TARGETS}
    met = all(worst[name] <= target for name, target in MODEL_TARGETS.items())
    return {**worst, "target": MODEL_TARGETS, "families": families, "status": "ok" if met else "missed"}


def peers() -> dict[str, Any]:
    return {"peers": compare_all()}


WHEN_NAMED: dict[str, Callable[[], dict[str, Any]]] = {
    "layers": layer_areas, "random": random_networks, "two_simulators": two_simulators, "coverage": coverage,
    "modules": modules, "images": example_images, "activity": activity, "folded": folded_area}
"""Areas of layers, designs against the reference, toggles, a folded design in synthesis: proofs alone take half an hour."""
PARTS: dict[str, Callable[[], dict[str, Any]]] = {
    "area": area, "vgg16": vgg16, "shapes": shapes, "adders": adders, "multipliers": multipliers, "fmax": fmax,
    "simulation": simulation, "compile": compiled, "model": area_model, "peers": peers, **WHEN_NAMED}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--part", action="append", choices=PARTS,
                        help="only this; repeatable; " + ", ".join(WHEN_NAMED) + " run only when named")
    options = parser.parse_args()
    found: dict[str, Any] = {}
    failed = False
    for name in options.part or [name for name in PARTS if name not in WHEN_NAMED]:
        try:
            found |= PARTS[name]()
        except DovetailError as error:
            print(f"{name}: {error}", file=sys.stderr)
            failed = True
        if options.json:
            replace_text(options.json, json.dumps(found, indent=1) + "\n")
    return 2 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
