"""How fast generated hardware simulates: 3 -> 8 filters of 3x3 at 224x224, the core alone and behind its AXI ports.

`python bench/simulation.py --json FILE [--frames 16]` prints clock cycles and frames per second, of wall time and of processor
time: on a busy machine the second tells what the first would be on a quiet one. Results are compared with the reference.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from pathlib import Path

import numpy as np

from dovetail.files import replace_text
from dovetail.fpga.assemble import build_design
from dovetail.fpga.axi.model import ShellModel
from dovetail.fpga.axi.shell import Shell, build_shell
from dovetail.fpga.design import Design
from dovetail.fpga.packing import from_packets, to_packets
from dovetail.fpga.simulate import simulate
from dovetail.ir import Array, Constant, Conv, Graph, Node, Scheme, Tensor, Window
from dovetail.numerics.reference import run_integer

SIZE, CHANNELS, FILTERS, KERNEL = 224, 3, 8, 3


def layer() -> Graph:
    """Gaussian int8 weights, every filter normalised to its largest, seed 0."""
    weights = np.random.default_rng(0).normal(size=(FILTERS, CHANNELS, KERNEL, KERNEL))
    integers = np.rint(weights * 127 / np.abs(weights).max(axis=(1, 2, 3), keepdims=True)).astype(np.int8)
    constants = (Constant("weights", integers, Scheme(8, True, (-7,))), Constant("bias", np.zeros(FILTERS, np.int32),
                                                                                Scheme(32, True, (-14,))))
    op = Conv(FILTERS, Window((KERNEL, KERNEL), pads=(1, 1, 1, 1)))
    tensors = {"x": Tensor("x", (1, CHANNELS, SIZE, SIZE), Scheme(8, True, (-7,))),
               "y": Tensor("y", (1, FILTERS, SIZE, SIZE), Scheme(8, True, (-5,)))}
    return Graph("layer", ("x",), ("y",), (Node("conv", op, ("x",), ("weights", "bias"), "y"),), tensors,
                 {c.name: c for c in constants})


def of_core(design: Design, frames: Array, expected: Array) -> dict[str, float | bool]:
    """The core's streams in a program of their own: its time alone, without packing."""
    simulate(design, {"x": frames[:1]})  # builds it
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    found = simulate(design, {"x": frames})
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    processor_s = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return figures(found.cycles, len(frames), found.run_s, processor_s, np.array_equal(found.outputs["y"], expected))


def of_shell(shell: Shell, frames: Array, expected: Array) -> dict[str, float | bool]:
    """The shell as a shared library: the time its clock runs."""
    source, sink = shell.core.inputs[0], shell.core.outputs[0]
    with ShellModel(shell) as model:
        for packet in to_packets(source, frames, shell.bus_bits):
            model.push(0, packet)
        wall, processor = time.monotonic(), time.thread_time()
        finished = model.run([len(frames)], 1 << 40)
        wall, processor = time.monotonic() - wall, time.thread_time() - processor
        packets = [model.pull(0) for _ in frames]
        words = np.stack([p.words for p in packets if p is not None])
        right = finished and np.array_equal(from_packets(sink, words, shell.bus_bits), expected)
        return figures(model.cycles, len(frames), wall, processor, right)


def figures(cycles: int, frames: int, wall_s: float, processor_s: float, equal: bool) -> dict[str, float | bool]:
    return {"cycles_per_s": cycles / wall_s, "cycles_per_processor_s": cycles / processor_s, "frames_per_s": frames / wall_s,
            "equal": bool(equal)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="where to write the figures")
    parser.add_argument("--frames", type=int, default=16)
    options = parser.parse_args()
    graph = layer()
    design = build_design(graph, "layer")
    frames = np.random.default_rng(1).integers(-128, 128, (options.frames, CHANNELS, SIZE, SIZE)).astype(np.int8)
    expected = run_integer(graph, {"x": frames})["y"]
    found = {"layer": f"{CHANNELS} -> {FILTERS} {KERNEL}x{KERNEL} at {SIZE}x{SIZE}", "adders": design.adders,
             "frames": options.frames, "core": of_core(design, frames, expected),
             "behind_axi": of_shell(build_shell(design, graph), frames, expected)}
    text = json.dumps(found, indent=1)
    print(text)
    if options.json is not None:
        replace_text(options.json, text + "\n")


if __name__ == "__main__":
    main()
