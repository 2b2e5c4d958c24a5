"""Networks of the zoo as the import reads them, and the convolutional blocks of two that have others too.

Needs onnx and NumPy alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from dovetail import zoo
from dovetail.ir import Constant, Conv, Graph, Node, Tensor, Window
from dovetail.ir.onnx.read import read_onnx


def network(name: str) -> Graph:
    """A network of the zoo, BatchNorm folded by the import, or one of BLOCKS; `mobilenet-v2@32`: images of 32 x 32 pixels."""
    name, _, size = name.partition("@")
    if name in BLOCKS:
        return BLOCKS[name](size)
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"{name}.onnx"
        path.write_bytes(zoo.build(name, size=int(size)) if size else zoo.build(name))
        return read_onnx(path).graph


def _sized(name: str, size: str) -> Graph:
    return network(f"{name}@{size}" if size else name)


def _chained(name: str, graph: Graph, nodes: Sequence[Node]) -> Graph:
    """Some nodes of a graph one after another, whatever stood between them; each makes what the next one reads."""
    before, found = graph.inputs[0], list[Node]()
    for node in nodes:
        found.append(replace(node, inputs=(before,)))
        before = node.output
    return Graph(name, graph.inputs, (before,), tuple(found),
                 {t: graph.tensors[t] for t in (graph.inputs[0], *(n.output for n in found))},
                 {c: graph.constants[c] for n in found for c in n.params})


def ceit_blocks(size: str) -> Graph:
    """CeiT-T's image-to-tokens stem and its twelve feed-forward blocks: pointwise, GELU, depthwise, GELU, pointwise."""
    graph = _sized("ceit-t", size)
    kept = [n for n in graph.nodes if n.op.kind in ("Conv", "MaxPool", "GELU") and ("i2t." in n.name or ".leff." in n.name)]
    return _chained("ceit-blocks", graph, kept)


def cvt_blocks(size: str) -> Graph:
    """CvT-13's embeddings and query projections: depthwise as the zoo has them, pointwise behind them (seeded weights)."""
    graph, rng = _sized("cvt-13", size), np.random.default_rng(0)
    kept = [n for n in graph.nodes if isinstance(n.op, Conv) and n.name.endswith(("patch_embed.proj", "conv_proj_q.conv"))]
    nodes, tensors, constants = list[Node](), dict(graph.tensors), dict(graph.constants)
    for node in kept:
        nodes.append(node)
        if node.name.endswith("q.conv"):
            shape, width = graph.shape(node.output), graph.shape(node.output)[1]
            name = node.name.replace("conv_proj_q.conv", "proj_q")
            weights = rng.normal(size=(width, width, 1, 1), scale=width**-0.5).astype(np.float32)
            for key, array in ((f"{name}.w", weights), (f"{name}.b", np.zeros(width, np.float32))):
                constants[key] = Constant(key, array)
            tensors[name] = Tensor(name, shape)
            nodes.append(Node(name, Conv(width, Window((1, 1))), (node.output,), (f"{name}.w", f"{name}.b"), name))
    return _chained("cvt-blocks", replace(graph, nodes=(), tensors=tensors, constants=constants, outputs=graph.inputs), nodes)


BLOCKS: dict[str, Callable[[str], Graph]] = {"ceit-blocks": ceit_blocks, "cvt-blocks": cvt_blocks}
