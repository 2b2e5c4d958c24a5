"""A network, or its part from a map size on, on reusable engines: clocks by the model and in Verilator, bit-exact; area if asked.

    python bench/engines.py --part arrays --from-pixels 14 --inputs 16 --outputs 32 --json FILE

Every layer of every frame is compared with the reference. `--map-kib 128` moves maps above 128 KiB to external memory. A network
of codes comes from a file, and its array counts `--planes W A` planes of bits of weights and of inputs at once.
`--synthesize FAMILY` counts the block with Yosys (minutes), beside what the cost model says.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from dovetail import zoo
from dovetail.cost.array import Config, program_cost
from dovetail.fpga.reusable.block import ArrayBlock, build_block
from dovetail.fpga.toolchain.simulate import simulate
from dovetail.fpga.toolchain.synthesize import synthesize
from dovetail.fpga.toolchain.verilate import build
from dovetail.hardware.arrays.layers import counted_values
from dovetail.ir import Graph
from dovetail.ir.onnx.read import read_onnx
from dovetail.numerics.calibration import synthetic
from dovetail.numerics.quantize import quantize_graph
from dovetail.numerics.reference import run_integer
from dovetail.platform.load import load_platform


def quantized(name: str, size: int | None) -> Graph:
    """A network of the zoo, quantized on synthetic samples, or that of a file, which must be quantized."""
    if name.endswith(".onnx"):
        return read_onnx(name).graph
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"{name}.onnx"
        path.write_bytes(zoo.build(name, size=size))
        graph = read_onnx(path).graph
    return quantize_graph(graph, synthetic(graph, 2))


def part_of(graph: Graph, pixels: int | None) -> list[str]:
    """All nodes, or those from the first one on that reads a map of at most so many rows."""
    shapes = [graph.shape(n.inputs[0]) for n in graph.nodes]
    first = 0 if pixels is None else next(i for i, s in enumerate(shapes) if len(s) == 4 and s[2] <= pixels)
    return [n.name for n in graph.nodes[first:]]


def simulated(graph: Graph, block: ArrayBlock, frames: int) -> dict[str, object]:
    """Clocks of frames that follow each other; raises where outputs differ from the reference."""
    started = time.monotonic()
    build([block.design])
    built = time.monotonic() - started
    scheme, (entry,) = graph.tensors[graph.inputs[0]].scheme, graph.inputs
    assert scheme is not None
    rng = np.random.default_rng(0)
    inputs = {entry: rng.integers(scheme.lo, scheme.hi + 1, (frames, *graph.shape(entry)[1:])).astype(scheme.dtype)}
    values = run_integer(graph, inputs, keep=True)
    layers = block.program.layers
    found = simulate(block.design, {layers.entry: np.asarray(values[layers.entry])})
    right = np.asarray(values[layers.exit])
    np.testing.assert_array_equal(found.outputs[layers.exit].reshape(right.shape), right)
    ends = found.frame_cycles
    return {"latency": ends[0], "interval": ends[-1] - ends[-2] if frames > 1 else None,
            "layers": len(layers.layers), "build_s": round(built, 1),
            "cycles_per_s": round(found.cycles / found.run_s)}


def main(words: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", default="mobilenet-v2")
    parser.add_argument("--size", type=int)
    parser.add_argument("--from-pixels", type=int)
    parser.add_argument("--board", default="zc706")
    parser.add_argument("--frames", type=int, default=2)
    parser.add_argument("--inputs", type=int, default=16)
    parser.add_argument("--outputs", type=int, default=32)
    parser.add_argument("--taps", type=int, default=9)
    parser.add_argument("--kernel", type=int, default=3)
    parser.add_argument("--planes", type=int, nargs=2, default=(0, 0), metavar=("W", "A"),
                        help="count bits, so many planes at once")
    parser.add_argument("--monolithic", action="store_true")
    parser.add_argument("--packed", action="store_true", help="two products per multiplier of the array")
    parser.add_argument("--no-overlap", action="store_true")
    parser.add_argument("--map-kib", type=float, default=0, help="memory of a kind of maps; larger ones lie in external memory")
    parser.add_argument("--bandwidth", type=int, default=16, help="bytes a clock")
    parser.add_argument("--synthesize", metavar="FAMILY")
    parser.add_argument("--no-simulation", action="store_true")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args(words)
    graph = quantized(asked.network, asked.size)
    bits, thresholds = counted_values(graph) if any(asked.planes) else (8, 0)
    config = Config(asked.inputs, asked.outputs, asked.taps, asked.kernel, asked.monolithic, not asked.no_overlap,
                    bandwidth_bytes=asked.bandwidth, packed=asked.packed, map_bytes=int(asked.map_kib * 1024),
                    weight_planes=asked.planes[0], input_planes=asked.planes[1], value_bits=bits, thresholds=thresholds)
    block = build_block(graph, part_of(graph, asked.from_pixels), config, "block")
    cost = program_cost(block.program, load_platform(asked.board).device("fpga"))
    result: dict[str, object] = {
        "network": asked.network, "config": str(config), "layers": len(block.program.layers.layers),
        "jobs": len(block.program.jobs),
        "model": {"latency": cost.latency_clocks, "interval": cost.interval_clocks, "offchip_bytes": cost.offchip_bytes,
                  "map_bytes": cost.map_bytes,
                  "buffer_bits": cost.buffer_bits, "utilisation": round(cost.utilisation, 3), **dict(cost.resources)}}
    if not asked.no_simulation:
        result["simulated"] = simulated(graph, block, asked.frames)
    if asked.synthesize:
        result["synthesized"] = dict(synthesize(block.design, asked.synthesize).resources)
    text = json.dumps(result, indent=1)
    print(text)
    if asked.json:
        asked.json.write_text(text + "\n", encoding="utf-8")

