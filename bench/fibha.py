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
from pathlib import Path
from typing import Any

import numpy as np

from dovetail.files import replace_text
from dovetail.fpga.accelerator import build_accelerator
from dovetail.fpga.packing import as_pixels
from dovetail.fpga.simulate import simulate
from dovetail.fpga.synthesize import synthesize
from dovetail.ir import Graph
from dovetail.numerics.reference import run_integer
from dovetail.partition.hybrid.architecture import Judged
from dovetail.platform.accelerator import Architecture
from dovetail.platform.device import Device
from dovetail.reproduce.compact_2024_fibha import BOARDS, KINDS, NETWORKS, figures, fpga_of, heuristic, region

FRAMES = 6
"""Through an empty design the first few follow each other a little slower, until FIFOs are filled to where they settle."""


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--board", action="append", choices=BOARDS, help="repeatable (default: all)")
    parser.add_argument("--network", action="append", help="a zoo network; repeatable (default: the paper's six)")
    parser.add_argument("--architecture", action="append", choices=[k.value for k in KINDS], help="repeatable (default: all)")
    parser.add_argument("--size", type=int, help="side of the image (default: the network's own)")
    parser.add_argument("--simulate", action="store_true", help="run six frames in Verilator, compared with the reference")
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
                start = time.process_time()
                found, judged = figures(graph, device, kind)
                found["search_cpu_s"] = time.process_time() - start
                if judged is not None and (options.simulate or options.quick or options.synthesize):
                    found |= built(graph, device, judged, options.simulate or options.quick, options.synthesize)
                of_network[kind.value] = found
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
