"""LQ AlexNet at full width over boards of FiC, simulated: every board, its layers and the links between them at once.

`python bench/lq.py --part pair --json FILE`: conv3 and conv4 over two boards, conv4 divided over both. `--part cut`: conv1 to fc6
of 227x227 images, which is what two XCKU095 hold; conv4 and fc6 are divided over both. `--part network`: all layers over three
boards, fc6 divided over all of them. One frame each, every layer folded, the links with latency, jitter, checksums and credits;
what the host gets is held against the reference, and the block RAM of every board by the model stands beside its limit.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from dovetail import cost
from dovetail.cost.folded import folds_of
from dovetail.fpga.assemble import build_design
from dovetail.fpga.links.bench import build_bench, simulate_system
from dovetail.fpga.links.system import build_system, systems_of
from dovetail.ir import Axis, Graph, slices
from dovetail.numerics.lq_alexnet import lq_alexnet
from dovetail.numerics.reference import run_integer
from dovetail.partition.plan import Assignment, Piece, Split, whole_on
from dovetail.platform.device import Platform
from dovetail.platform.load import load_platform
from dovetail.schedule.program import Segment, lower

PACE = 412_232
"""Clocks per frame: eight for every pixel of the image, so that conv1 needs 364 of a board's 768 multipliers."""
TIMEOUT_S = 4 * 3600.0


def layers_of(graph: Graph, first: str, last: str) -> Graph:
    """The network from a layer to another one: what the host gives, and what it gets."""
    names = [n.name for n in graph.nodes]
    nodes = graph.nodes[names.index(first):names.index(last) + 1]
    named = {*nodes[0].inputs, *(n.output for n in nodes)}
    params = {p for n in nodes for p in n.params}
    return replace(graph, nodes=nodes, inputs=nodes[0].inputs, outputs=(nodes[-1].output,),
                   tensors={k: t for k, t in graph.tensors.items() if k in named},
                   constants={k: c for k, c in graph.constants.items() if k in params})


def shared(*shares: tuple[str, int]) -> Split:
    """A layer whose filters are divided: so many for each board."""
    pieces, at = list[Piece](), 0
    for device, count in shares:
        pieces.append(Piece(device, at, at + count))
        at += count
    return Split(Axis.OUTPUT_CHANNELS, tuple(pieces))


def pair_over_two(graph: Graph) -> Assignment:
    """conv3 on the first board, conv4 on both."""
    return {"conv3": whole_on("fpga0"), "conv4": shared(("fpga0", 192), ("fpga1", 192))}


def over_two(graph: Graph) -> Assignment:
    """conv1 to conv3 on the first board, conv5 on the second, conv4 and fc6 on both."""
    on = {n.name: whole_on("fpga1" if n.name.startswith("conv5") else "fpga0") for n in graph.nodes}
    return {**on, "conv4": shared(("fpga0", 192), ("fpga1", 192)), "fc6": shared(("fpga0", 2048), ("fpga1", 2048))}


def over_three(graph: Graph) -> Assignment:
    """Convolutions on the first board, but conv5, which with fc8 is on the third; fc7 is on the second, fc6 on all."""
    on = {n.name: whole_on("fpga2" if n.name.startswith(("conv5", "fc8")) else "fpga0") for n in graph.nodes}
    return {**on, "conv4": shared(("fpga0", 192), ("fpga1", 192)), "fc7": whole_on("fpga1"),
            "fc6": shared(("fpga0", 2304), ("fpga1", 896), ("fpga2", 896))}


def blocks_of(segments: tuple[Segment, ...], board: Platform) -> dict[str, dict[str, float]]:
    """What each board has, and what its layers and the ends of its links take of it by the model."""
    found = {}
    for device in sorted({s.device for s in segments}):
        used = dict(board.link_logic(device))
        for segment in (s for s in segments if s.device == device):
            for node in segment.graph.nodes:
                share = cost.costs_of(segment.graph, node, None, np.asarray([0]), np.asarray([1]), board.device(device))
                for name, amount in ({} if share is None else share.resources).items():
                    used[name] = used.get(name, 0.0) + float(amount[0])
        limits = board.device(device).resources
        found[device] = {f"{name}_part": used.get(name, 0.0) / limits[name] for name in ("bram36", "lut", "dsp")}
    return found


def simulated(what: str, graph: Graph, board: Platform, on: Assignment) -> dict[str, Any]:
    """One frame through all boards at once."""
    program = lower(graph, on)
    ((name, segments),) = systems_of(program, board).items()
    parts = blocks_of(segments, board)
    assert all(v <= 1.0 for row in parts.values() for v in row.values()), f"boards hold what they simulate: {parts}"
    print(f"{what}: parts of each board {parts}", flush=True)
    cores = {s.name: build_design(s.graph, s.name, folds=folds_of(s.graph, board.device(s.device))) for s in segments}
    system = build_system(name, segments, cores, program, board)
    began = time.monotonic()
    build_bench(system, 1)
    built = time.monotonic() - began
    print(f"{what}: {len(system.boards)} boards built in {built:.0f} s; circuits {system.circuits}", flush=True)
    (given,) = (graph.tensors[name] for name in graph.inputs)
    x = {given.name: np.random.default_rng(3).integers(0, 1 << given.scheme.bits, (1, *given.shape[1:])).astype(np.uint8)}
    run = simulate_system(system, x, timeout_s=TIMEOUT_S)
    row = {**judged(graph, run.outputs, run_integer(graph, x)), "layers": [n.name for n in graph.nodes], "frames": 1,
           "boards": parts, "frame_cycles": list(run.frame_cycles), "cycles": run.cycles,
           "build_s": round(built, 1), "run_s": round(run.run_s, 1), "simulated_cycles_per_s": round(run.cycles / run.run_s, 1),
           "circuits": list(system.circuits), "folds": {k: list(v) for c in cores.values() for k, v in c.folds.items()},
           "divided": sorted(n for n, s in on.items() if s.axis is not None)}
    print(f"{what}: {row}", flush=True)
    return row


def judged(graph: Graph, outputs: Mapping[Any, Any], right: Mapping[str, Any]) -> dict[str, Any]:
    """Whether every share that the host took is the reference's, and how many values that were."""
    equal, values = True, 0
    for port, taken in outputs.items():
        expected = right[port.tensor][(slice(None), *slices(port.region)[1:])]
        equal &= bool((taken.reshape(expected.shape) == expected).all())
        values += expected.size
    (output,) = graph.outputs
    return {"bit_exact": equal and values == right[output].size, "values": values,
            "distinct_outputs": len(np.unique(right[output]))}


def pair() -> dict[str, Any]:
    """Two neighbouring layers, the second divided."""
    graph = layers_of(lq_alexnet(), "conv3", "conv4")
    return {"full_pair": simulated("pair", graph, load_platform("fic:2").with_pace(PACE), pair_over_two(graph))}


def cut() -> dict[str, Any]:
    """As many layers as two boards hold."""
    graph = layers_of(lq_alexnet(), "conv1", "fc6")
    return {"full_cut": simulated("cut", graph, load_platform("fic:2").with_pace(PACE), over_two(graph))}


def network() -> dict[str, Any]:
    """The whole network over three boards."""
    graph = lq_alexnet()
    return {"full_network": simulated("network", graph, load_platform("fic:3").with_pace(PACE), over_three(graph))}
