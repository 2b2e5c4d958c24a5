"""The integer reference against ONNX Runtime on every tensor of every zoo network at its native size, bit for bit.

`python bench/numerics.py --json FILE [--network NAME ...] [--resume]`. One frame each, weights and scales seeded. Tensors are
compared part by part: a stretch of the network is exported with all its tensors visible, fed with the reference's
integers and compared, so memory stays bounded. Where the static check of `numerics/ranges.py` cannot prove that float32
sums are exact, ONNX Runtime is no judge: such nodes are counted, and left to the reference alone.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dovetail import zoo
from dovetail.files import replace_text
from dovetail.ir import Graph, Node
from dovetail.numerics.calibration import synthetic
from dovetail.numerics.fast import exact_nodes
from dovetail.numerics.kernels import run_stored_node
from dovetail.numerics.oracle import run_oracle
from dovetail.numerics.quantize import quantize_graph
from dovetail.numerics.reference import run_node
from dovetail.runtime.build import store
from lib.parts import held
from lib.zoo_graph import network

STRETCH_ELEMENTS = 1 << 23
"""Values and weights of one exported stretch, about."""


def stretches(graph: Graph) -> Iterator[tuple[Node, ...]]:
    """The nodes in order, cut where tensors and weights would take too much memory together."""
    taken: list[Node] = []
    size = 0
    for node in graph.nodes:
        own = graph.tensors[node.output].size + sum(graph.constants[c].array.size for c in node.params)
        if taken and size + own > STRETCH_ELEMENTS:
            yield tuple(taken)
            taken, size = [], 0
        taken.append(node)
        size += own
    yield tuple(taken)


def alone(graph: Graph, nodes: tuple[Node, ...]) -> Graph:
    """Some nodes as a graph of their own."""
    made = {n.output for n in nodes}
    inputs = tuple(dict.fromkeys(t for n in nodes for t in n.inputs if t not in made))
    return Graph(graph.name, inputs, tuple(n.output for n in nodes), nodes, {t: graph.tensors[t] for t in (*inputs, *made)},
                 {c: graph.constants[c] for n in nodes for c in n.params})


def compare(graph: Graph, seed: int) -> dict[str, Any]:
    exact = exact_nodes(graph)
    values = dict(store(graph, synthetic(graph, 1, seed).values, "bench"))
    last = {t: i for i, n in enumerate(graph.nodes) for t in n.inputs}
    tensors = elements = done = 0
    differing: list[str] = []
    for nodes in stretches(graph):
        for node in nodes:
            inputs = [values[t] for t in node.inputs]
            values[node.output] = run_node(graph, node, inputs)
            if not np.array_equal(values[node.output], run_stored_node(graph, node, inputs, node.name in exact)):
                differing.append(f"{node.output} (fast)")
        # one inexact sum spoils what follows it: then nodes are judged one by one
        for some in [nodes] if all(n.name in exact for n in nodes) else [(n,) for n in nodes if n.name in exact]:
            part = alone(graph, some)
            for name, found in run_oracle(part, {t: values[t] for t in part.inputs}).items():
                tensors, elements = tensors + 1, elements + found.size
                if not np.array_equal(found, values[name]):
                    differing.append(name)
        done += len(nodes)
        for tensor in [t for t in values if last.get(t, -1) < done]:
            del values[tensor]
    return {"nodes": len(graph.nodes), "provable": len(exact), "tensors": tensors, "elements": elements, "differing": differing}


def measure(name: str) -> dict[str, Any]:
    start = time.perf_counter()
    floats = network(name)
    graph = quantize_graph(floats, synthetic(floats, 2))
    del floats
    found = compare(graph, seed=5)
    return {**found, "seconds": time.perf_counter() - start}


def main(asked: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--network", action="append", choices=zoo.names())
    parser.add_argument("--resume", action="store_true", help="keep the networks that FILE holds, and do the others")
    options = parser.parse_args(asked)
    found: dict[str, Any] = held(options.json, options.resume).get("networks", {})
    for name in options.network or zoo.names():
        if name in found:
            continue
        r = found[name] = measure(name)
        verdict = "equal" if not r["differing"] else f"DIFFER in {', '.join(r['differing'][:3])}"
        print(f"{name:20} {r['tensors']:4} tensors, {r['elements']:11,} integers {verdict}; "
              f"float32 provably exact in {r['provable']} of {r['nodes']} nodes; {r['seconds']:.1f} s", flush=True)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        if options.json:
            replace_text(options.json, json.dumps({"networks": found, "peak_bytes": peak}, indent=1) + "\n")
    print(f"most memory: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9:.2f} GB")
    return 1 if any(r["differing"] for r in found.values()) else 0

