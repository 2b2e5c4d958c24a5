"""A graph as text: one line per node, stable, made for goldens and for reading."""

from __future__ import annotations

from hashlib import sha256

import numpy as np

from dovetail.ir.graph import Graph
from dovetail.ir.tensor import Tensor


def _declare(tensor: Tensor) -> str:
    kind = "f32" if tensor.scheme is None else str(tensor.scheme)
    return f"{tensor.name}: {kind}[{','.join(map(str, tensor.shape))}]"


def to_text(graph: Graph) -> str:
    """Inputs, nodes in order with shapes and schemes, constants by digest, outputs."""
    lines = [f"graph {graph.name}"]
    lines += [f"  input {_declare(graph.tensors[name])}" for name in graph.inputs]
    for node in graph.nodes:
        details = node.op.attributes()
        lines.append(f"  {_declare(graph.tensors[node.output])} = {node.name}: {node.op.kind}({', '.join(node.inputs)})"
                     + (f" {details}" if details else ""))
        for name in node.params:
            constant = graph.constants[name]
            digest = sha256(np.ascontiguousarray(constant.array).tobytes()).hexdigest()[:12]
            kind = str(constant.array.dtype) if constant.scheme is None else str(constant.scheme)
            lines.append(f"    {name}: {kind}[{','.join(map(str, constant.array.shape))}] #{digest}")
    lines.append(f"  output {', '.join(graph.outputs)}")
    return "\n".join(lines) + "\n"
