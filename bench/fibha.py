"""Accelerators for whole networks on one FPGA: dedicated, reusable, both, against each other and against what is built.

`python bench/fibha.py --json FILE [--board zcu102 ...] [--network mobilenet-v2 ...] [--size 224] [--simulate] [--synthesize]`
fills board -> network -> architecture with `fps_200mhz` (steady state, at an assumed clock of 200 MHz), `batch1_ms` (one frame by
itself, of the accelerator that is best at that), `cycles_per_frame` (simulated; null without `--simulate`), `model_cycles`,
`dsp`, `lut`, `bram36` (by the model; `synthesized` beside them with `--synthesize`), `offchip_bytes`, `bound_fps`. `--quick` does
one small network on one board, simulated. What does not fit has the reason instead. Entries are written as they are known.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from dovetail.errors import DovetailError
from dovetail.files import replace_text
from dovetail.fpga.accelerator import build_accelerator
from dovetail.fpga.packing import as_pixels
from dovetail.fpga.simulate import simulate
from dovetail.fpga.synthesize import synthesize
from dovetail.ir import Graph
from dovetail.numerics.equalize import Equalise
from dovetail.numerics.reference import run_integer
from dovetail.partition.hybrid.architecture import Judged, judge, pinned, region_of
from dovetail.partition.hybrid.blocks import Blocks
from dovetail.partition.hybrid.cuts import cut_points
from dovetail.partition.hybrid.search import Search
from dovetail.partition.hybrid.splitcnn import split_cnn
from dovetail.partition.plan import Goal
from dovetail.pipeline import decide_numbers
from dovetail.planning import cut_out
from dovetail.platform.accelerator import Architecture
from dovetail.platform.device import Device, Kind
from dovetail.platform.load import load_platform
from dovetail.zoo import build

BOARDS = ("zc706", "kcu105", "zcu102")
NETWORKS = ("mobilenet-v1", "mobilenet-v2", "proxylessnas", "mnasnet", "xception", "resnet50")
KINDS = (Architecture.FIBHA, Architecture.SESL, Architecture.SEML, Architecture.MONOLITHIC)
CLOCK_HZ = 200e6
"""Assumed for every board, as by MCCM, the analytic model of FiBHA's authors; no open tool routes these parts."""
FRAMES = 3


def region(network: str, size: int | None, device: Device) -> Graph:
    """The part of a zoo network that the FPGA takes over."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        path.write_bytes(build(network, size=size))
        graph = decide_numbers(path, equalise=Equalise.OFF).graph
    return cut_out(graph, pinned(graph, region_of(graph, device), device.name), "cpu", device.name)


def fpga_of(board: str) -> Device:
    """A board's FPGA at the assumed clock, its memory delivering the same bytes per second."""
    (device,) = load_platform(board).of_kind(Kind.FPGA)
    return replace(device, clock_hz=CLOCK_HZ)


def figures(graph: Graph, device: Device, kind: Architecture, simulated: bool, synthesized: bool) -> dict[str, Any]:
    """One architecture on one board."""
    start = time.process_time()
    try:
        steady, single = (judge(graph, device, kind, goal) for goal in (Goal.THROUGHPUT, Goal.LATENCY))
    except DovetailError as reason:
        return {"fps_200mhz": None, "reason": str(reason)}
    needs, block = steady.found.needs, steady.found.block
    found: dict[str, Any] = {
        "fps_200mhz": CLOCK_HZ / steady.clocks, "bound_fps": CLOCK_HZ / steady.bound,
        "batch1_ms": single.clocks / CLOCK_HZ * 1e3, "batch1_bound_ms": single.bound / CLOCK_HZ * 1e3,
        "steady_batch1_ms": steady.found.latency / CLOCK_HZ * 1e3, "model_cycles": steady.clocks, "cycles_per_frame": None,
        "dsp": needs.get("dsp"), "lut": needs.get("lut"), "bram36": needs.get("bram36"), "register": needs.get("register"),
        "offchip_bytes": block.offchip_bytes if block else 0.0, "dedicated": steady.found.cut, "nodes": len(graph.nodes),
        "arrays": str(block.configuration) if block else None, "search_cpu_s": time.process_time() - start}
    if simulated or synthesized:
        found |= built(graph, device, steady, simulated, synthesized)
    return found


def built(graph: Graph, device: Device, judged: Judged, simulated: bool, synthesized: bool) -> dict[str, Any]:
    """What simulation and synthesis of the generated accelerator say."""
    start = time.process_time()
    design = build_accelerator(graph, "accelerator", judged.accelerator)
    found: dict[str, Any] = {"generate_cpu_s": time.process_time() - start, "closed_form_cycles": design.interval_cycles}
    if simulated:
        inputs = frames_of(graph)
        result = simulate(design, {p.tensor: as_pixels(p, inputs[p.tensor]) for p in design.inputs})
        expected = run_integer(graph, inputs)
        cycles = int(np.diff(result.frame_cycles)[-1])
        same = all(np.array_equal(result.outputs[t].reshape(expected[t].shape), expected[t]) for t in graph.outputs)
        found |= {"bit_exact": same, "cycles_per_frame": cycles, "first_frame_cycles": result.frame_cycles[0],
                  "model_error": judged.clocks / cycles - 1, "simulation_wall_s": result.wall_s, "simulation_run_s": result.run_s}
    if synthesized:
        assert device.family is not None, "every FPGA has a family"
        result_of = synthesize(design, device.family)
        found["synthesized"] = {**result_of.resources, "tool": f"{result_of.tool} {result_of.version}"}
    return found


def frames_of(graph: Graph) -> dict[str, Any]:
    """Random integers over the range of every input."""
    rng, found = np.random.default_rng(0), {}
    for name in graph.inputs:
        scheme = graph.tensors[name].scheme
        assert scheme is not None
        found[name] = rng.integers(scheme.lo, scheme.hi + 1, (FRAMES, *graph.shape(name)[1:])).astype(scheme.dtype)
    return found


def heuristic(graph: Graph, device: Device) -> dict[str, Any]:
    """SplitCNN as the paper describes it, beside the exact search."""
    try:
        split = split_cnn(Search(graph, device, cut_points(graph), Blocks(graph, device)))
    except DovetailError as reason:
        return {"batch1_ms": None, "reason": str(reason)}
    return {"batch1_ms": split.found.latency / CLOCK_HZ * 1e3, "fps_200mhz": CLOCK_HZ / split.found.interval,
            "dedicated": split.found.cut, "steps": [[s.cut, s.latency] for s in split.steps]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--board", action="append", choices=BOARDS, help="repeatable (default: all)")
    parser.add_argument("--network", action="append", help="a zoo network; repeatable (default: the paper's six)")
    parser.add_argument("--architecture", action="append", choices=[k.value for k in KINDS], help="repeatable (default: all)")
    parser.add_argument("--size", type=int, help="side of the image (default: the network's own)")
    parser.add_argument("--simulate", action="store_true", help="run three frames in Verilator, compared with the reference")
    parser.add_argument("--synthesize", action="store_true", help="count the whole accelerator with Yosys")
    parser.add_argument("--quick", action="store_true", help="MobileNetV2 at 96 x 96 on one board, simulated")
    options = parser.parse_args()
    boards, networks, size = options.board or BOARDS, options.network or NETWORKS, options.size
    kinds = [Architecture(k) for k in options.architecture or KINDS]
    if options.quick:
        boards, networks, size, kinds = ("zcu102",), ("mobilenet-v2",), 96, [Architecture.FIBHA]
    result: dict[str, Any] = {"clock": "200 MHz, assumed"}
    for board in boards:
        device = fpga_of(board)
        of_board: dict[str, Any] = result.setdefault(board, {})
        for network in networks:
            graph = region(network, size, device)
            of_network: dict[str, Any] = of_board.setdefault(network, {})
            for kind in kinds:
                of_network[kind.value] = figures(graph, device, kind, options.simulate or options.quick, options.synthesize)
                tell(board, network, kind.value, of_network[kind.value])
                replace_text(options.json, json.dumps(result, indent=1) + "\n")
            of_network["splitcnn"] = heuristic(graph, device)
            tell(board, network, "splitcnn", of_network["splitcnn"])
            replace_text(options.json, json.dumps(result, indent=1) + "\n")


def tell(board: str, network: str, kind: str, found: Mapping[str, Any]) -> None:
    """One line per entry."""
    if found.get("batch1_ms") is None:
        print(f"{board} {network} {kind}: {found['reason']}", flush=True)
        return
    exact = "" if "bit_exact" not in found else f", simulated {found['cycles_per_frame']:,} clocks, exact {found['bit_exact']}"
    rates = f"{found['fps_200mhz']:.0f} frames/s, one frame in {found['batch1_ms']:.2f} ms"
    print(f"{board} {network} {kind}: {rates}{exact}", flush=True)


if __name__ == "__main__":
    main()
