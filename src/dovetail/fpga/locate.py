"""Which engine of a wrong design is wrong: each one alone, fed with the reference's values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from dovetail.cost.firb import bottlenecks
from dovetail.errors import MismatchError
from dovetail.fpga.assemble import build_design
from dovetail.fpga.design import Design
from dovetail.fpga.engines.lq import Datapath
from dovetail.fpga.mapping import identifiers
from dovetail.fpga.packing import as_pixels
from dovetail.fpga.toolchain.simulate import simulate
from dovetail.hardware.folds import Fold
from dovetail.ir import Array, Graph, Node
from dovetail.numerics.reference import run_integer

FRAMES = 8


def wrong_engine(graph: Graph, design: Design, inputs: Mapping[str, Array]) -> str | None:
    """The first node whose engine, taken from `design`'s own files, differs from the reference on these inputs.

    Each is tried with free streams and with stalling ones. None when every engine is right alone: then streams or
    FIFOs between them are to blame.
    """
    few = {name: np.asarray(x)[:FRAMES] for name, x in inputs.items()}
    values, labels = run_integer(graph, few, keep=True), identifiers(n.name for n in graph.nodes)
    for nodes in _units(graph, design):
        if not _right_alone(graph, nodes, design, values, labels):
            return nodes[-1].name
    return None


def _units(graph: Graph, design: Design) -> Iterator[tuple[Node, ...]]:
    """Nodes of one engine each: mostly one, or those of an inverted residual."""
    blocks = [tuple(n for n in (*b.layers, b.join) if n is not None) for b in bottlenecks(graph)
              if b.depthwise.name in design.fused]
    inside = {node.name: block for block in blocks for node in block}
    for node in graph.nodes:
        block = inside.get(node.name, (node,))
        if node is block[-1] and not node.op.still:
            yield block


def _right_alone(graph: Graph, nodes: tuple[Node, ...], design: Design, values: Mapping[str, Array],
                 labels: Mapping[str, str]) -> bool:
    node, made = nodes[-1], {n.output for n in nodes}
    names = tuple(dict.fromkeys(t for n in nodes for t in n.inputs if t not in made))
    alone = Graph(graph.name, names, (node.output,), nodes, {t: graph.tensors[t] for t in (*names, *made)},
                  {c: graph.constants[c] for n in nodes for c in n.params})
    folds = {name: Fold(*sizes) for name, sizes in design.folds.items() if name in {n.name for n in nodes}}
    expected = build_design(alone, design.top, labels, folds, design.words, fused=design.fused,
                            datapath=Datapath(design.datapath))
    found = {name: design.files.get(name, text) if name != f"{design.top}.v" else text for name, text in expected.files.items()}
    bench = replace(expected, files=found)
    streams = {port.tensor: as_pixels(port, values[port.tensor]) for port in bench.inputs}
    try:
        results = [simulate(bench, streams, stall_seed=seed).outputs[node.output] for seed in (None, 1)]
    except MismatchError:
        return False  # stuck, chatty or unstable: as wrong as a wrong number
    return all(np.array_equal(found.reshape(values[node.output].shape), values[node.output]) for found in results)
