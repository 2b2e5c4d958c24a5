"""Accelerators for whole networks on one FPGA: dedicated, reusable, both, against each other and against what is built.

`python bench/fibha.py --json FILE [--board zcu102 ...] [--network mobilenet-v2 ...] [--size 224] [--simulate] [--synthesize]`
fills board -> network -> architecture with `fps_200mhz` (steady state, at an assumed clock of 200 MHz), `batch1_ms` (one frame by
itself, of the accelerator that is best at that), `cycles_per_frame` (simulated; null without `--simulate`), `model_cycles`,
`dsp`, `lut`, `bram36` (by the model), `offchip_bytes`, `bound_fps`, energies of a frame on the whole board, and the accelerator
itself. `--synthesize` counts every part of the whole top with Yosys: `synthesized`, by how much the model is off, and what the
shell adds. What does not fit has the reason instead. Entries are written as they are known; with `--resume` those of FILE are
kept and accelerators found before are simulated or synthesized without a search. `firb`: inverted residuals as one engine beside
plain pipelining. `--described` and `--maps` fill in only what their help says.
`--quick` does one small network on one board, simulated.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from dovetail.errors import InfeasibleError
from dovetail.files import replace_text
from dovetail.fpga.accelerator import build_accelerator
from dovetail.fpga.axi.shell import build_shell
from dovetail.fpga.design import Design
from dovetail.fpga.packing import as_pixels
from dovetail.fpga.toolchain.simulate import simulate
from dovetail.fpga.toolchain.synthesize import synthesize
from dovetail.ir import Graph
from dovetail.numerics.reference import run_integer
from dovetail.partition.accelerator.architecture import search_of
from dovetail.partition.accelerator.blocks import Blocks
from dovetail.platform.accelerator import Architecture, from_entries
from dovetail.platform.device import Device, Platform
from dovetail.reproduce.compact_2024.fibha import (
    BOARDS,
    CLOCK_HZ,
    GPUS,
    KINDS,
    NETWORKS,
    board_of,
    figures,
    fpga_of,
    heuristic,
    on_gpu,
    region,
    single_frame,
    steady_ms,
    utilisation_of,
)
from lib.engines.firb import blocks_of
from lib.fibha.described import DESCRIBED_NETWORKS, described, meml, powers_of_two
from lib.fibha.maps import map_figures

FIRB_PACE = 150_000
"""Clocks per frame of inverted residuals, as `bench/engines.py --part firb` has them. Chosen, not measured."""
FRAMES, SMALL_FRAMES = 6, 12
"""Through an empty design the first few follow each other a little slower, until FIFOs are filled to where they settle: after
three frames at 224 x 224, after seven at 96 x 96 (`--quick`)."""


UNIT_BYTES = 2000
"""Verilog text from which a module is synthesized on its own: most engines of an accelerator are small."""
COUNTED = ("dsp", "lut", "bram36", "register")


def simulated(graph: Graph, design: Design, entry: Mapping[str, Any], frames: int) -> dict[str, Any]:
    """What Verilator says of the generated accelerator."""
    inputs, start = frames_of(graph, frames), _children_cpu_s()
    result = simulate(design, {p.tensor: as_pixels(p, inputs[p.tensor]) for p in design.inputs})
    expected = run_integer(graph, inputs)
    cycles = int(np.diff(result.frame_cycles)[-1])
    same = all(np.array_equal(result.outputs[t].reshape(expected[t].shape), expected[t]) for t in graph.outputs)
    return {"bit_exact": same, "cycles_per_frame": cycles, "first_frame_cycles": result.frame_cycles[0],
            "frame_cycles": list(result.frame_cycles), "model_error": entry["model_cycles"] / cycles - 1,
            "simulated_fps_200mhz": CLOCK_HZ / cycles, "simulation_wall_s": result.wall_s, "simulation_run_s": result.run_s,
            "simulation_cpu_s": _children_cpu_s() - start}


def _children_cpu_s() -> float:
    """Processor time of everything that was started and has ended: Verilator, compiler, simulation."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def synthesized(graph: Graph, design: Design, device: Device, entry: Mapping[str, Any]) -> dict[str, Any]:
    """What Yosys counts in the whole accelerator, how far the model is off, and what its shell (AXI ports) adds."""
    assert device.family is not None, "every FPGA has a family"
    found = synthesize(design, device.family, lambda done, every: print(f"{done} of {every} parts", flush=True),
                       unit_bytes=UNIT_BYTES)
    whole = synthesize(build_shell(design, graph).design, device.family, unit_bytes=UNIT_BYTES)
    counted = {name: found.resources[name] for name in COUNTED}
    shell = {name: whole.resources[name] - counted[name] for name in COUNTED}
    errors = {name: entry[name] / counted[name] - 1 for name in COUNTED if counted[name]}
    fits = all(whole.resources[name] <= device.resources[name] for name in COUNTED)
    for name in COUNTED:
        off = f", model {entry[name]:,.0f} ({errors[name]:+.1%})" if name in errors else ""
        print(f"{name}: {counted[name]:,.1f} of {device.resources[name]:,.0f}{off}, shell {shell[name]:,.1f}", flush=True)
    return {"synthesized": {**counted, "shell": shell, "fits": fits, "model_error": errors,
                            "tool": f"{found.tool} {found.version}", "wall_s": found.wall_s,
                            "cells": dict(found.cells), "notes": list(found.notes),
                            "parts": [{"module": p.module, "instances": p.instances, **p.resources} for p in found.parts]}}


def frames_of(graph: Graph, frames: int) -> dict[str, Any]:
    """Random integers over the range of every input."""
    rng, found = np.random.default_rng(0), {}
    for name in graph.inputs:
        scheme = graph.tensors[name].scheme
        assert scheme is not None
        found[name] = rng.integers(scheme.lo, scheme.hi + 1, (frames, *graph.shape(name)[1:])).astype(scheme.dtype)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--board", action="append", choices=BOARDS, help="repeatable (default: all)")
    parser.add_argument("--network", action="append", help="a zoo network; repeatable (default: the paper's six)")
    parser.add_argument("--architecture", action="append", choices=[k.value for k in KINDS], help="repeatable (default: all)")
    parser.add_argument("--lut", type=float, default=1.0, metavar="PART", help="part of the board's LUTs (default: all)")
    parser.add_argument("--size", type=int, help="side of the image (default: the network's own)")
    parser.add_argument("--simulate", action="store_true", help="run six frames in Verilator, compared with the reference")
    parser.add_argument("--synthesize", action="store_true", help="count the whole accelerator with Yosys")
    parser.add_argument("--quick", action="store_true", help="MobileNetV2 at 96 x 96 on one board, simulated")
    parser.add_argument("--described", action="store_true",
                        help="only: SEML, SESL and hybrid as the thesis describes them, and MEML, by models (default: its)")
    parser.add_argument("--maps", action="store_true", help="only: memories of maps and their traffic, of accelerators in FILE")
    parser.add_argument("--resume", action="store_true", help="keep what FILE has, do what is missing")
    options = parser.parse_args()
    if options.quick:
        options.board, options.network, options.size = ["zcu102"], ["mobilenet-v2"], 96
        options.architecture, options.simulate = [Architecture.FIBHA.value], True
    kept = json.loads(options.json.read_text(encoding="utf-8")) if options.resume and options.json.exists() else {}
    result: dict[str, Any] = {"clock": "200 MHz, assumed", **kept}
    if options.maps:
        for board, network in product(options.board or BOARDS, options.network or NETWORKS):
            for kind, one in result.get(board, {}).get(network, {}).items():
                if one.get("accelerator") and "map_buffer_bytes" not in one:
                    device = fpga_of(board_of(board))
                    one |= map_figures(region(network, None, device), from_entries(one["accelerator"], str(options.json)), device)
                    print(board, network, kind, {k: one[k] for k in one if "map" in k or "weight" in k}, flush=True)
                    replace_text(options.json, json.dumps(result, indent=1) + "\n")
        return
    if options.described:
        for board, network in product(options.board or BOARDS, options.network or DESCRIBED_NETWORKS):
            known = result.setdefault("described", {}).setdefault(board, {})
            if network not in known:
                known[network] = described_on(board, network)
                print(board, network, known[network], flush=True)
                replace_text(options.json, json.dumps(result, indent=1) + "\n")
        return
    if "firb" not in result:
        result["firb"] = blocks_of("mobilenet-v2", "zcu102", FIRB_PACE, None)
    for board, network in product(options.board or BOARDS, options.network or NETWORKS):
        label = network + (f", {options.size} x {options.size}" if options.size else "")
        label += f", {options.lut:g} of the LUTs" if options.lut < 1 else ""
        of_network: dict[str, Any] = result.setdefault(board, {}).setdefault(label, {})
        for name, entry in entries(board, network, options, of_network):
            of_network[name] = entry
            tell(board, network, name, entry)
            replace_text(options.json, json.dumps(result, indent=1) + "\n")


def described_on(board: str, network: str) -> dict[str, Any]:
    """The thesis's kinds and MEML for a network on a board; the reason where no MEML fits."""
    device = fpga_of(board_of(board))
    graph = region(network, None, device)
    try:
        several: dict[str, Any] = meml(graph, device, powers_of_two(graph, device))
    except InfeasibleError as reason:
        several = {"reason": str(reason)}
    return {**described(graph, device), "meml": several}


def entries(board: str, network: str, options: argparse.Namespace, known: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """What is asked for of one network on one board and not known yet, as it becomes known."""
    platform = with_part_of_luts(board_of(board), options.lut)
    device = fpga_of(platform)
    kinds = [Architecture(k) for k in options.architecture or KINDS]
    wanted = [*(k.value for k in kinds), *(() if options.architecture else ("splitcnn", "gpus"))]
    fresh = ("multipliers", "batch1_accelerator", *("bit_exact",) * options.simulate, *("synthesized",) * options.synthesize)
    if all(name in known and (known[name].get("accelerator") is None or all(k in known[name] for k in fresh)) for name in wanted):
        return
    graph = region(network, options.size, device)
    blocks = Blocks(graph, device)
    for kind in kinds:
        start, entry = time.process_time(), dict(known.get(kind.value, {}))
        if not entry:
            entry = figures(graph, platform, kind, blocks)
            entry["search_cpu_s"] = time.process_time() - start
            yield kind.value, entry
        if entry.get("accelerator") is None or all(k in entry for k in fresh):
            continue
        start, accelerator = time.process_time(), from_entries(entry["accelerator"], str(options.json))
        if "multipliers" not in entry:  # of records in which only DSP blocks were counted
            entry |= utilisation_of(graph, accelerator, entry["model_cycles"])
        if "batch1_accelerator" not in entry:  # of records in which a frame was charged a pace and what windows hold
            found = single_frame(search_of(graph, device, kind, blocks), platform, kind)
            entry |= {**found, "steady_batch1_ms": steady_ms(graph, accelerator)}
        if all(k in entry for k in fresh):
            yield kind.value, entry
            continue
        design = build_accelerator(graph, "accelerator", accelerator)
        entry |= {"generate_cpu_s": time.process_time() - start, "closed_form_cycles": design.interval_cycles}
        if options.simulate and "bit_exact" not in entry:
            entry |= simulated(graph, design, entry, SMALL_FRAMES if options.quick else FRAMES)
        if options.synthesize and "synthesized" not in entry:
            entry |= synthesized(graph, design, device, entry)
        yield kind.value, entry
    if "splitcnn" in wanted and "splitcnn" not in known:
        yield "splitcnn", heuristic(graph, device, blocks)
    if "gpus" in wanted and "gpus" not in known:
        yield "gpus", {gpu: on_gpu(graph, gpu) for gpu in GPUS}


def with_part_of_luts(board: Platform, part: float) -> Platform:
    """The board with so many of its FPGA's LUTs."""
    whole = fpga_of(board)
    less = replace(whole, resources={n: v * part if n == "lut" else v for n, v in whole.resources.items()})
    return replace(board, devices=tuple(less if d is whole else d for d in board.devices))


def tell(board: str, network: str, kind: str, found: Mapping[str, Any]) -> None:
    """One line per entry."""
    if kind == "gpus":
        return
    if found.get("batch1_ms") is None:
        print(f"{board} {network} {kind}: {found['reason']}", flush=True)
        return
    exact = "" if "bit_exact" not in found else f", simulated {found['cycles_per_frame']:,} clocks, exact {found['bit_exact']}"
    rates = f"{found['fps_200mhz']:.0f} frames/s, one frame in {found['batch1_ms']:.2f} ms"
    print(f"{board} {network} {kind}: {rates}{exact}", flush=True)


if __name__ == "__main__":
    main()
