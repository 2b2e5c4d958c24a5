"""LQ AlexNet at full width over boards of FiC, simulated: every board, its layers and the links between them at once.

`python bench/lq.py --part pair --json FILE`: conv3 and conv4 over two boards, conv4 divided over both. `--part cut`: conv1 to fc6
of 227x227 images, which is what two XCKU095 hold; conv4 and fc6 are divided over both. `--part network`: all layers over three
boards, fc6 divided over all of them; `--part reduced`: that for 99x99 images, with an eighth of the channels. One frame each,
every layer folded, the links with latency, jitter, checksums and credits. Every stream of every board is held against the
reference, and the block RAM of every board by the model stands beside its limit.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from dovetail import cost
from dovetail.cost.folded import folds_of
from dovetail.fpga.design import Design
from dovetail.fpga.links.bench import Keeping, SystemRun, build_bench, simulate_system
from dovetail.fpga.links.system import System, build_system, systems_of
from dovetail.fpga.probes import Watch, probed_design
from dovetail.hardware.folds import Fold
from dovetail.ir import Array, Axis, Graph, slices
from dovetail.numerics.lq_alexnet import lq_alexnet
from dovetail.numerics.reference import run_integer
from dovetail.partition.plan import Assignment, Piece, Split, whole_on
from dovetail.platform.device import Device, Platform
from dovetail.platform.load import load_platform
from dovetail.schedule.program import Segment, lower

PACE = 412_232
"""Clocks per frame: eight for every pixel of the image, so that conv1 needs 364 of a board's 768 multipliers."""
PACES = {"conv1": PACE, "conv": PACE // 2, "fc": PACE // 16}
"""Of the whole network, by how a layer's name begins: those that wait for a whole map are faster, so that a frame is soon out."""
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
    return {"conv3": whole_on("fpga0"), "conv4": _in_parts(graph, "conv4", (1, 1))}


def over_two(graph: Graph) -> Assignment:
    """conv1 to conv3 on the first board, conv5 on the second, conv4 and fc6 on both."""
    on = {n.name: whole_on("fpga1" if n.name.startswith("conv5") else "fpga0") for n in graph.nodes}
    return {**on, **{name: _in_parts(graph, name, (1, 1)) for name in ("conv4", "fc6")}}


def over_three(graph: Graph) -> Assignment:
    """Convolutions on the first board, but conv5, which with fc8 is on the third; fc7 is on the second, fc6 on all."""
    on = {n.name: whole_on("fpga2" if n.name.startswith(("conv5", "fc8")) else "fpga0") for n in graph.nodes}
    halves, parts = (_in_parts(graph, name, parts) for name, parts in (("conv4", (1, 1)), ("fc6", (18, 7, 7))))
    return {**on, "conv4": halves, "fc7": whole_on("fpga1"), "fc6": parts}


def _in_parts(graph: Graph, name: str, parts: tuple[int, ...]) -> Split:
    """A layer whose filters are divided in proportion to such parts over the first boards."""
    node = graph.node(name)
    filters, whole = node.op.extent(Axis.OUTPUT_CHANNELS, graph.input_shapes(node)), sum(parts)
    edges = [round(filters * sum(parts[:i]) / whole) for i in range(len(parts) + 1)]
    return shared(*((f"fpga{i}", stop - start) for i, (start, stop) in enumerate(pairwise(edges))))


def device_at(paces: Mapping[str, int], board: Platform, device: str, layer: str) -> Device:
    """An FPGA at the pace of a layer."""
    return board.with_pace(next(clocks for begin, clocks in paces.items() if layer.startswith(begin))).device(device)


def folds_at(paces: Mapping[str, int], board: Platform, segment: Segment) -> dict[str, Fold]:
    """The fold of every layer of a segment, each at its own pace."""
    found = {clocks: folds_of(segment.graph, board.with_pace(clocks).device(segment.device)) for clocks in set(paces.values())}
    chosen = {n.name: found[next(c for begin, c in paces.items() if n.name.startswith(begin))].get(n.name)
              for n in segment.graph.nodes}
    return {name: fold for name, fold in chosen.items() if fold is not None}


def blocks_of(segments: tuple[Segment, ...], board: Platform, paces: Mapping[str, int]) -> dict[str, dict[str, float]]:
    """What each board has, and what its layers and the ends of its links take of it by the model."""
    found = {}
    for device in sorted({s.device for s in segments}):
        used = dict(board.link_logic(device))
        for segment in (s for s in segments if s.device == device):
            for node in segment.graph.nodes:
                at = device_at(paces, board, device, node.name)
                share = cost.costs_of(segment.graph, node, None, np.asarray([0]), np.asarray([1]), at)
                for name, amount in ({} if share is None else share.resources).items():
                    used[name] = used.get(name, 0.0) + float(amount[0])
        limits = board.device(device).resources
        found[device] = {f"{name}_part": used.get(name, 0.0) / limits[name] for name in ("bram36", "lut", "dsp")}
    return found


def expected_of(segment: Segment, values: Mapping[str, Array]) -> Mapping[str, Array]:
    """Every tensor of a segment by the reference, from what it reads; what it writes is held against the whole network's."""
    part = {b.name: values[b.tensor][(slice(None), *slices(b.region)[1:])] for b in segment.reads}
    found = run_integer(segment.graph, part, keep=True)
    for b in segment.writes:
        assert (found[b.name] == values[b.tensor][(slice(None), *slices(b.region)[1:])]).all(), f"{b.name}: a share is a slice"
    return found


def simulated(what: str, graph: Graph, board: Platform, on: Assignment, paces: Mapping[str, int], state: Path) -> dict[str, Any]:
    """One frame through all boards at once; it goes on where an earlier run of it was stopped."""
    program = lower(graph, on)
    ((name, segments),) = systems_of(program, board).items()
    parts = blocks_of(segments, board, paces)
    assert all(v <= 1.0 for row in parts.values() for v in row.values()), f"boards hold what they simulate: {parts}"
    print(f"{what}: parts of each board {parts}", flush=True)
    (given,) = (graph.tensors[name] for name in graph.inputs)
    x = {given.name: np.random.default_rng(3).integers(0, 1 << given.scheme.bits, (1, *given.shape[1:])).astype(np.uint8)}
    values, watch, cores = run_integer(graph, x, keep=True), Watch(), dict[str, Design]()
    for segment in segments:
        cores[segment.name], streams = probed_design(segment.graph, segment.name, folds_at(paces, board, segment))
        watch.add(segment.name, streams, expected_of(segment, values))
    system = build_system(name, segments, cores, program, board)
    began = time.monotonic()
    build_bench(system, 1, savable=True)
    built = time.monotonic() - began
    print(f"{what}: {len(system.boards)} boards built in {built:.0f} s; circuits {system.circuits}", flush=True)
    run = simulate_system(system, x, timeout_s=TIMEOUT_S, keeping=Keeping(state), on_line=lambda line: heard(what, watch, line))
    row = {**judged(graph, run.outputs, values), **watched(watch, segments), "layers": [n.name for n in graph.nodes], "frames": 1,
           "boards": parts, "frame_cycles": list(run.frame_cycles), "cycles": run.cycles,
           "build_s": round(built, 1), "run_s": round(run.run_s, 1), "simulated_cycles_per_s": round(run.cycles / run.run_s, 1),
           "circuits": list(system.circuits), "traffic": traffic_of(system, run), "on": {s.name: s.device for s in segments},
           "folds": {k: list(v) for c in cores.values() for k, v in c.folds.items()},
           "divided": sorted(n for n, s in on.items() if s.axis is not None)}
    print(f"{what}: {row}", flush=True)
    return row


def heard(what: str, watch: Watch, line: str) -> None:
    """Hold what a probe says against the reference, and say where the simulation is."""
    known = watch.first_wrong
    watch.hear(line)
    if watch.first_wrong is not None and known is None:
        print(f"{what}: WRONG, {watch.first_wrong}", flush=True)
    if line.startswith(("checkpoint", "resumed")):
        done = sum(s.right for s in watch.streams.values())
        print(f"{what}: {line}; {done} of {len(watch.streams)} streams are complete and right", flush=True)


def watched(watch: Watch, segments: tuple[Segment, ...]) -> dict[str, Any]:
    """What probes saw of every stream, and of which tensor of the network it is, or is a share."""
    whole = {(s.name, b.name): b.tensor for s in segments for b in (*s.reads, *s.writes)}
    rows = {f"{top}.{name}": {
        "tensor": s.stream.tensor, "of": whole.get((top, s.stream.tensor), s.stream.tensor), "beats": s.taken,
        "expected_beats": len(s.expected), "wrong": s.wrong, "values": s.stream.channels * s.stream.height * s.stream.width,
        "clocks": [s.first_clock, s.last_clock]} for (top, name), s in watch.streams.items()}
    return {"streams": rows, "streams_right": sum(s.right for s in watch.streams.values()), "first_wrong": watch.first_wrong,
            "values_compared": sum(row["values"] for row in rows.values())}


def traffic_of(system: System, run: SystemRun) -> list[dict[str, Any]]:
    """Cells over every direction of a link, and those of them that carried data."""
    return [{"link": w.link, "from": system.devices[w.source], "to": system.devices[w.target], "cells": cells, "data_cells": data,
             "busy": data / run.cycles}
            for w, (cells, data) in zip(system.wires, run.carried, strict=True)]


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


def pair(state: Path) -> dict[str, Any]:
    """Two neighbouring layers, the second divided."""
    graph = layers_of(lq_alexnet(), "conv3", "conv4")
    return {"full_pair": simulated("pair", graph, load_platform("fic:2"), pair_over_two(graph), {"": PACE}, state)}


def cut(state: Path) -> dict[str, Any]:
    """As many layers as two boards hold."""
    graph = layers_of(lq_alexnet(), "conv1", "fc6")
    return {"full_cut": simulated("cut", graph, load_platform("fic:2"), over_two(graph), {"": PACE}, state)}


def reduced(state: Path) -> dict[str, Any]:
    """All layers over three boards for 99x99 images, with an eighth of the channels: the same divisions, a tenth of the paces."""
    graph = lq_alexnet(99, 12, 48, 10)
    paces = {begin: clocks // 10 for begin, clocks in PACES.items()}
    return {"reduced_network": simulated("reduced network", graph, load_platform("fic:3"), over_three(graph), paces, state)}


def network(state: Path) -> dict[str, Any]:
    """The whole network over three boards."""
    graph = lq_alexnet()
    return {"full_network": simulated("network", graph, load_platform("fic:3"), over_three(graph), PACES, state)}
