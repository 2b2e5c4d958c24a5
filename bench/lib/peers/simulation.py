"""How fast generated hardware simulates, the core alone and behind its AXI ports; results are compared with the reference."""

from __future__ import annotations

import resource
import time
from typing import Any

import numpy as np

from dovetail.fpga.axi.model import ShellModel
from dovetail.fpga.axi.shell import Shell, build_shell
from dovetail.fpga.design import Design
from dovetail.fpga.packing import from_packets, to_packets
from dovetail.fpga.toolchain.simulate import simulate
from dovetail.ir import Array, Graph
from dovetail.numerics.reference import run_integer
from lib.peers.layers import frames_for

FRAMES = 16


def simulation_figures(graph: Graph, design: Design, count: int = FRAMES) -> dict[str, Any]:
    frames = frames_for(graph, count)
    expected = run_integer(graph, {"x": frames})[graph.outputs[0]]
    return {"frames": count, "adders": design.adders, "core": of_core(design, frames, expected),
            "behind_axi": of_shell(build_shell(design, graph), frames, expected)}


def of_core(design: Design, frames: Array, expected: Array) -> dict[str, float | bool]:
    """The core's streams in a program of their own: its time alone, without packing."""
    (output,) = design.outputs
    simulate(design, {"x": frames[:1]})  # builds it
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    found = simulate(design, {"x": frames})
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    processor_s = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return figures(found.cycles, len(frames), found.run_s, processor_s, np.array_equal(found.outputs[output.tensor], expected))


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
