"""Inverted residual blocks six ways: one engine (FIRB), that in passes or of least energy, three engines, by themselves, rows.

`python bench/engines.py --part firb --json FILE [--network mobilenet-v2] [--board zcu102] [--pace 150000] [--only BLOCK]
[--simulate] [--synthesize BLOCK]`: for every block of the network alone, bits of all buffers of the generated design (line,
window and word memories, FIFOs, held words), latency, interval and estimated area: `engine` is FIRB as one engine
(`fpga/engines/firb.py`), `folded` the cheapest one whose projection shares multipliers, `thrifty` the one of least energy above
idle for a frame of those that the device holds, `firb` the folds of `engine` in three engines, `plain` the folds each layer would
get by itself. The last way is counted, not built: between two layers lie the rows the next one reads and one that is being
written (or two frames), as in plain pipelining of FiBHA's papers. `--simulate` runs the designs of every block in Verilator
against the reference, `--synthesize` counts those of one block with Yosys.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from dovetail.cost.firb import Bottleneck, bottlenecks, firb_cost, firb_options
from dovetail.cost.folded import folds_of, pace_of, shape_of, sum_of_parts, twins_allowed
from dovetail.cost.folded_area import folded_cost
from dovetail.cost.power import power_w
from dovetail.fpga.assemble import build_design
from dovetail.fpga.packing import as_pixels
from dovetail.fpga.toolchain.simulate import simulate
from dovetail.fpga.toolchain.synthesize import synthesize
from dovetail.hardware.folds import Fold
from dovetail.ir import Conv, Graph
from dovetail.numerics.equalize import Equalise
from dovetail.numerics.reference import run_integer
from dovetail.pipeline import decide_numbers
from dovetail.platform.device import Device, Kind
from dovetail.platform.fitted import dhm_model
from dovetail.platform.load import load_platform
from dovetail.zoo import build
from lib.fibha.maps import buffer_bits

BITS = 8


def alone(graph: Graph, block: Bottleneck) -> Graph:
    """A block as a graph of its own."""
    nodes = (*block.layers, *([block.join] if block.join else []))
    tensors = dict.fromkeys(t for n in nodes for t in (*n.inputs, n.output))
    return Graph("block", (block.expand.inputs[0],), (nodes[-1].output,), nodes, {t: graph.tensors[t] for t in tensors},
                 {c: graph.constants[c] for n in nodes for c in n.params})


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


def figures(graph: Graph, folds: Mapping[str, Fold], device: Device, simulated: bool, family: str | None,
            fused: Sequence[str] = ()) -> dict[str, Any]:
    design, model = build_design(graph, "block", folds=folds, fused=fused), dhm_model(device.model)
    area: dict[str, float] = {}
    if fused:
        (block,) = bottlenecks(graph)
        first, middle, last = (shape_of(graph, n) for n in block.layers)
        own = folds[block.expand.name], folds[block.depthwise.name], folds[block.project.name]
        area = dict(firb_cost((first, middle, last), own, block.join is not None, device.model).resources)
    else:
        for name, fold in folds.items():
            for resource, amount in folded_cost(shape_of(graph, graph.node(name)), fold, model).resources:
                area[resource] = area.get(resource, 0.0) + amount
    found: dict[str, Any] = {
        "folds": {n: str(f) for n, f in folds.items()}, "buffer_bits": buffer_bits(graph, folds, fused),
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


def compared(part: Graph, folds: Mapping[str, Fold], device: Device, simulated: bool, family: str | None,
             name: str) -> dict[str, Any]:
    """All ways of one block."""
    return {"engine": figures(part, folds, device, simulated, family, (name,)),
            **_folded(part, device, simulated, family, name), **_thrifty(part, device, simulated, family, name),
            "firb": figures(part, folds, device, simulated, family),
            "plain": figures(part, folds_of(part, device), device, simulated, family),
            "row_buffer_bits": row_buffer_bits(part, False), "frame_buffer_bits": row_buffer_bits(part, True)}


def _folded(part: Graph, device: Device, simulated: bool, family: str | None, name: str) -> dict[str, Any]:
    """The engine of the smallest parts of the device among those whose projection shares multipliers; nothing without one."""
    (block,) = bottlenecks(part)
    pace = pace_of(device)
    assert pace is not None
    filters = part.shape(block.project.output)[1]
    every = firb_options(part, block, device.model, twins_allowed(device), pace)
    options = [o for o in every if o.folds[2].outputs < filters]
    if not options:
        return {}
    best = min(options, key=lambda o: sum_of_parts(dict(o.resources), device.resources))
    folds = {node.name: fold for node, fold in zip(block.layers, best.folds, strict=True)}
    return {"folded": figures(part, folds, device, simulated, family, (name,))}


def _thrifty(part: Graph, device: Device, simulated: bool, family: str | None, name: str) -> dict[str, Any]:
    """The engine of least energy above idle among those that the device holds."""
    (block,), pace = bottlenecks(part), pace_of(device)
    assert pace is not None
    options = [o for o in firb_options(part, block, device.model, twins_allowed(device), pace)
               if all(amount <= device.resources.get(r, 0.0) for r, amount in o.resources)]
    best = min(options, key=lambda o: power_w(dict(o.resources), device) * o.steps)
    folds = {node.name: fold for node, fold in zip(block.layers, best.folds, strict=True)}
    return {"thrifty": figures(part, folds, device, simulated, family, (name,))}


def tell(name: str, found: Mapping[str, Any]) -> None:
    kinds = [way for way in ("engine", "folded", "thrifty", "firb", "plain") if way in found]
    ways = "; ".join(f"{way} {found[way]['buffer_bits']:,} bits, {found[way]['latency_cycles']:,} clocks, "
                     f"{found[way].get('counted', found[way]['estimated'])}" for way in kinds)
    print(f"{name}: {ways}; rows {found['row_buffer_bits']:,} frames {found['frame_buffer_bits']:,} bits", flush=True)


def blocks_of(network: str, board: str, pace: int, only: Sequence[str] | None, simulated: bool = False,
              synthesized: str | None = None) -> dict[str, Any]:
    """The blocks of a network, or some of them by the names of their depthwise layers."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        path.write_bytes(build(network))
        graph = decide_numbers(path, equalise=Equalise.OFF).graph
    device = next(d for d in load_platform(board).with_pace(pace).devices if d.kind is Kind.FPGA)
    result: dict[str, Any] = {}
    for block in bottlenecks(graph):
        name = block.depthwise.name
        options = firb_options(graph, block, device.model, True, pace)
        if not options or (only is not None and name not in only):
            continue
        best = min(options, key=lambda option: sum_of_parts(dict(option.resources), device.resources))
        folds = {node.name: fold for node, fold in zip(block.layers, best.folds, strict=True)}
        part, family = alone(graph, block), device.model.removeprefix("dhm-") if synthesized == name else None
        result[name] = compared(part, folds, device, simulated, family, name)
        tell(name, result[name])
    return result


def main(asked: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--network", default="mobilenet-v2")
    parser.add_argument("--board", default="zcu102")
    parser.add_argument("--pace", type=int, default=150_000)
    parser.add_argument("--only", help="one block, by the name of its depthwise layer")
    parser.add_argument("--simulate", action="store_true")
    parser.add_argument("--synthesize", metavar="BLOCK", help="the block to count with Yosys, by the name of its depthwise layer")
    options = parser.parse_args(asked)
    result = blocks_of(options.network, options.board, options.pace, [options.only] if options.only else None, options.simulate,
                       options.synthesize)
    options.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")

