"""A whole network with shared multipliers on one FPGA: what the plan promises, what its design takes, what simulation finds.

`python bench/engines.py --part network --json FILE [--network mobilenet-v2] [--size 96] [--board zcu102] [--pace 262144]
[--dedicated] [--simulate] [--synthesize]` places as much of a zoo network as pays on the board's FPGA, or, with `--dedicated`,
everything before the first fully connected layer, whose weights alone would fill a third of a ZCU102's RAM blocks. Clocks of
every FPGA segment: by the cost model, by the closed forms of the design, and with `--simulate` by Verilator over random integers,
compared with the reference. Resources: by the cost model and with `--synthesize` by Yosys.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from dovetail.cost import costs_of
from dovetail.cost.budget import estimate
from dovetail.cost.folded import folds_of
from dovetail.fpga.assemble import build_design
from dovetail.fpga.part import as_pixels
from dovetail.fpga.toolchain.simulate import simulate
from dovetail.fpga.toolchain.synthesize import synthesize
from dovetail.ir import Array, Gemm, Graph, Reshape
from dovetail.numerics.equalize import Equalise
from dovetail.numerics.reference import run_integer
from dovetail.partition.plan import Split, whole_on
from dovetail.pipeline import decide_numbers
from dovetail.planning import Options, make_plan
from dovetail.platform.device import Device, Kind
from dovetail.platform.load import load_platform
from dovetail.schedule.program import lower
from dovetail.zoo import build

FRAMES = 2
ASSUMED_CLOCK_HZ = 200e6
UNIT_BYTES = 3500
"""Verilog text from which a module is synthesized on its own: most engines of a folded network are small."""


def on_fpga_until_classifier(graph: Graph) -> dict[str, Split]:
    """Every node before the first fully connected layer on the FPGA, the others on the processor."""
    first = next((i for i, n in enumerate(graph.nodes) if isinstance(n.op, Gemm)), len(graph.nodes))
    return {n.name: whole_on("fpga" if i < first else "cpu") for i, n in enumerate(graph.nodes)}


def planned_clocks(graph: Graph, device: Device) -> float:
    """What the cost model says of a segment: its first node alone, the others behind it."""
    one, total = (np.array([0]), np.array([1])), 0.0
    nodes = [n for n in graph.nodes if not isinstance(n.op, Reshape)]
    assert device.clock_hz is not None
    for index, node in enumerate(nodes):
        costs = costs_of(graph, node, None, *one, device)
        assert costs is not None
        total += float((costs.fused_s if index else costs.alone_s)[0]) * device.clock_hz
    return total


def random_inputs(graph: Graph) -> dict[str, Array]:
    rng, found = np.random.default_rng(0), {}
    for name in graph.inputs:
        scheme = graph.tensors[name].scheme
        assert scheme is not None
        lo, hi = (scheme.lo, scheme.hi) if scheme.bits <= 8 else (-(1 << 20), 1 << 20)
        found[name] = rng.integers(lo, hi + 1, (FRAMES, *graph.shape(name)[1:])).astype(scheme.dtype)
    return found


def segment_figures(graph: Graph, device: Device, simulated: bool, family: str | None) -> dict[str, object]:
    folds = folds_of(graph, device)
    start = time.process_time()
    design = build_design(graph, "segment", folds=folds)
    figures: dict[str, object] = {
        "nodes": len(graph.nodes), "folded": len(folds), "planned_clocks": planned_clocks(graph, device),
        "latency_cycles": design.latency_cycles, "interval_cycles": design.interval_cycles,
        "fps_200mhz": ASSUMED_CLOCK_HZ / design.interval_cycles, "estimated": estimate([graph], device),
        "available": dict(device.resources), "folds": {name: str(fold) for name, fold in folds.items()},
        "fifo_bits": sum(f.depth * f.width_bits for f in design.fifos), "generate_cpu_s": time.process_time() - start}
    if family is not None:
        counted = synthesize(design, family, lambda done, every: print(f"{done} of {every} parts", flush=True),
                             unit_bytes=UNIT_BYTES)
        figures |= {"counted": dict(counted.resources), "synthesis_wall_s": counted.wall_s}
    if simulated:
        inputs, begin = random_inputs(graph), time.monotonic()
        result = simulate(design, {p.tensor: as_pixels(p, inputs[p.tensor]) for p in design.inputs})
        expected = run_integer(graph, inputs)
        same = all(np.array_equal(result.outputs[t].reshape(expected[t].shape), expected[t]) for t in graph.outputs)
        figures |= {"bit_exact": same, "simulated_cycles": list(result.frame_cycles),
                    "simulation_wall_s": time.monotonic() - begin}
    return figures


def main(asked: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--network", default="mobilenet-v2")
    parser.add_argument("--size", type=int, help="side of the image (default: the network's own)")
    parser.add_argument("--board", default="zcu102")
    parser.add_argument("--pace", type=int, default=262_144)
    parser.add_argument("--dedicated", action="store_true")
    parser.add_argument("--simulate", action="store_true")
    parser.add_argument("--synthesize", action="store_true")
    options = parser.parse_args(asked)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        path.write_bytes(build(options.network, size=options.size))
        graph = decide_numbers(path, equalise=Equalise.OFF).graph
    board = load_platform(options.board).with_pace(options.pace)
    result: dict[str, object] = {}
    if options.dedicated:
        assignment = on_fpga_until_classifier(graph)
    else:
        plan, _ = make_plan(graph, board, Options())
        assignment = dict(plan.assignment)
        result |= {"latency_s": plan.latency_s, "lower_bound_s": plan.lower_bound,
                   "resources": {d: dict(used) for d, used in plan.resources.items()}}
    for segment in lower(graph, assignment).segments:
        device = board.device(segment.device)
        if device.kind is Kind.FPGA:
            family = device.model.removeprefix("dhm-") if options.synthesize else None
            result[segment.name] = segment_figures(segment.graph, device, options.simulate, family)
            print(segment.name, json.dumps(result[segment.name]), flush=True)
    options.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")

