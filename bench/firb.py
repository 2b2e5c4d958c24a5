"""Inverted residual blocks three ways: as one fine-grained pipeline (FIRB), every layer folded by itself, whole rows between.

`python bench/firb.py --json FILE [--network mobilenet-v2] [--board zcu102] [--pace 150000] [--simulate] [--synthesize BLOCK]`:
for every block of the network alone, bits of all buffers of the generated design (line, window and word memories, FIFOs, held
words), latency, interval and estimated area, with the folds of `cost/firb.py` and with those each layer would get by itself. The
third way is counted, not built: between two layers lie the rows the next one reads and one that is being written (or two frames),
as in plain pipelining of FiBHA's papers. `--simulate` runs both designs of every block in Verilator against the reference,
`--synthesize` counts both designs of one block with Yosys.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from dovetail.cost.firb import Bottleneck, bottlenecks, firb_folds
from dovetail.cost.folded import folded_cost, folds_of, shape_of
from dovetail.cost.folds import Fold
from dovetail.fpga.assemble import build_design, design_modules
from dovetail.fpga.packing import as_pixels
from dovetail.fpga.simulate import simulate
from dovetail.fpga.synthesize import synthesize
from dovetail.ir import Conv, Graph
from dovetail.numerics.equalize import Equalise
from dovetail.numerics.reference import run_integer
from dovetail.pipeline import decide_numbers
from dovetail.platform.device import Device, Kind
from dovetail.platform.fitted import dhm_model
from dovetail.platform.load import load_platform
from dovetail.zoo import build

BITS = 8


def alone(graph: Graph, block: Bottleneck) -> Graph:
    """A block as a graph of its own."""
    nodes = (*block.layers, *([block.join] if block.join else []))
    tensors = dict.fromkeys(t for n in nodes for t in (*n.inputs, n.output))
    return Graph("block", (block.expand.inputs[0],), (nodes[-1].output,), nodes, {t: graph.tensors[t] for t in tensors},
                 {c: graph.constants[c] for n in nodes for c in n.params})


def buffer_bits(graph: Graph, folds: Mapping[str, Fold]) -> int:
    """Bits of all memories that are written, and of what pixels cut anew hold; ports of the block's own are left out."""
    total = 0
    for module in design_modules(graph, "block", folds):
        if any(f"_words_{end}" in module.name for end in ("x", "y")):
            continue
        total += sum(m.width * m.depth for m in module.memories)
        total += sum(r.target.width for r in module.registers if r.target.name.startswith(("held_", "line", "row")))
    return total


def row_buffer_bits(graph: Graph, frames: bool) -> int:
    """Plain pipelining: in front of every layer the rows it reads and one being written, or two frames; the skip likewise."""
    total = 0
    for node in graph.nodes:
        _, channels, height, width = graph.shape(node.inputs[0])
        rows = node.op.window.kernel[0] + 1 if isinstance(node.op, Conv) else 2
        total += channels * width * BITS * (2 * height if frames else rows)
    if len(graph.nodes) > 3:  # the block's input waits until it is added
        _, channels, height, width = graph.shape(graph.inputs[0])
        total += channels * width * BITS * (2 * height if frames else 4)
    return total


def figures(graph: Graph, folds: Mapping[str, Fold], device: Device, simulated: bool, family: str | None) -> dict[str, object]:
    design, model = build_design(graph, "block", folds=folds), dhm_model(device.model)
    area: dict[str, float] = {}
    for name, fold in folds.items():
        for resource, amount in folded_cost(shape_of(graph, graph.node(name)), fold, model).resources:
            area[resource] = area.get(resource, 0.0) + amount
    found: dict[str, object] = {
        "folds": {n: str(f) for n, f in folds.items()}, "buffer_bits": buffer_bits(graph, folds),
        "latency_cycles": design.latency_cycles, "interval_cycles": design.interval_cycles,
        "cut_anew": sum("_words_" in f and not f.endswith("_fifo.v") for f in design.files),
        "estimated": {r: round(v, 1) for r, v in area.items()}}
    if simulated:
        (port,), rng = design.inputs, np.random.default_rng(0)
        scheme = graph.tensors[port.tensor].scheme
        assert scheme is not None
        values = rng.integers(scheme.lo, scheme.hi + 1, (3, *graph.shape(port.tensor)[1:])).astype(scheme.dtype)
        result, expected = simulate(design, {port.tensor: as_pixels(port, values)}), run_integer(graph, {port.tensor: values})
        found |= {"simulated_cycles": list(result.frame_cycles), "bit_exact": all(
            np.array_equal(result.outputs[t].reshape(expected[t].shape), expected[t]) for t in graph.outputs)}
    if family is not None:
        found["counted"] = dict(synthesize(design, family).resources)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--network", default="mobilenet-v2")
    parser.add_argument("--board", default="zcu102")
    parser.add_argument("--pace", type=int, default=150_000)
    parser.add_argument("--only", help="one block, by the name of its depthwise layer")
    parser.add_argument("--simulate", action="store_true")
    parser.add_argument("--synthesize", metavar="BLOCK", help="the block to count with Yosys, by the name of its depthwise layer")
    options = parser.parse_args()
    with TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        path.write_bytes(build(options.network))
        graph = decide_numbers(path, equalise=Equalise.OFF).graph
    device = next(d for d in load_platform(options.board).with_pace(options.pace).devices if d.kind is Kind.FPGA)
    result: dict[str, object] = {}
    for block in bottlenecks(graph):
        name = block.depthwise.name
        folds = firb_folds(graph, block, device.model, device.resources, options.pace)
        if not folds or (options.only and name != options.only):
            continue
        part, family = alone(graph, block), device.model.removeprefix("dhm-") if options.synthesize == name else None
        firb, plain = (figures(part, f, device, options.simulate, family) for f in (folds, folds_of(part, device)))
        rows, frames = row_buffer_bits(part, False), row_buffer_bits(part, True)
        result[name] = {"firb": firb, "plain": plain, "row_buffer_bits": rows, "frame_buffer_bits": frames}
        print(f"{name:28s} buffers {firb['buffer_bits']:9,} plain {plain['buffer_bits']:9,} rows {rows:9,} frames {frames:11,} "
              f"bits; latency {firb['latency_cycles']:8,} plain {plain['latency_cycles']:8,}; {firb['estimated']} plain "
              f"{plain['estimated']}", flush=True)
    options.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
