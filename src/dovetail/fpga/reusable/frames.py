"""Simulate blocks, and hold every layer's words against the reference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from dovetail.errors import MismatchError
from dovetail.fpga.packing import Integers
from dovetail.fpga.reusable.array import own_jobs
from dovetail.fpga.reusable.assembly import NAMES
from dovetail.fpga.reusable.block import ArrayBlock
from dovetail.fpga.toolchain.simulate import Simulation, simulate_many
from dovetail.hardware.arrays.jobs import ARRAY, DEPTHWISE
from dovetail.ir import Array, Graph
from dovetail.numerics.reference import run_integer


def simulate_blocks(runs: Sequence[tuple[ArrayBlock, Integers]], stall_seed: int | None = None) -> list[Simulation]:
    """Simulate several blocks with one build, each with its frames of stored integers, shaped as its entry tensor."""
    return simulate_many([(block.design, {block.program.layers.entry: values}) for block, values in runs], stall_seed)


def written_maps(block: ArrayBlock, simulation: Simulation, frame: int) -> dict[str, Integers]:
    """Every layer's output of a frame of a watched block, from the order in which its words were written."""
    program, found = block.program, dict[str, Integers]()
    size = program.config.inputs
    for engine in (ARRAY, DEPTHWISE):
        jobs = own_jobs(program, engine)
        if not jobs:
            continue
        words = simulation.outputs[f"{NAMES[engine]} words"][frame, :, 0].T
        at = 0
        for job in jobs:
            layer = program.layers.layers[job.layer]
            shape = layer.writes
            full = program.config.words(shape.channels) * size
            target = found.setdefault(layer.target, np.zeros((shape.pixels, full), dtype=np.int64))
            pixels, start = job.part.writes.pixels, job.write_row * shape.width
            count = pixels * job.words
            part = words[at:at + count].reshape(pixels, -1)
            target[start:start + pixels, job.first * size:(job.first + job.words) * size] = part
            at += count
    return {t: values[:, :program.layers.maps[t].channels] for t, values in found.items()}


def check_layers(graph: Graph, block: ArrayBlock, simulation: Simulation, inputs: Mapping[str, Array]) -> None:
    """Compare every layer's words of every frame with the reference on the whole graph's `inputs`.

    Raises MismatchError that names the first wrong layer in the order of the program, with pixel and channel.
    """
    expected = run_integer(graph, inputs, keep=True)
    frames, mask = len(next(iter(inputs.values()))), (1 << block.program.config.value_bits) - 1
    for frame in range(frames):
        found = written_maps(block, simulation, frame)
        for layer in block.program.layers.layers:
            shape = layer.writes
            ours = np.asarray(expected[layer.target])[frame].astype(np.int64).reshape(shape.channels, shape.pixels).T & mask
            wrong = np.argwhere(found[layer.target] != ours)
            if len(wrong):
                pixel, channel = (int(i) for i in wrong[0])
                raise MismatchError(f"{block.design.top}: layer {layer.node} frame {frame}, row {pixel // shape.width}, "
                                    f"column {pixel % shape.width}, channel {channel} is {found[layer.target][pixel, channel]}, "
                                    f"expected {ours[pixel, channel]} (as bytes); {len(wrong)} of {ours.size} are wrong")
