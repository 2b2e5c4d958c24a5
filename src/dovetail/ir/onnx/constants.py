"""Constants computed first: exporters leave weights behind transposes, reshapes and arithmetic that no input reaches."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import numpy_helper

from dovetail.ir.onnx import file as onnx_file
from dovetail.ir.onnx.foreign import KNOWN_DOMAINS, RANDOM, fold, target_opset
from dovetail.ir.onnx.prepare import ordered, subgraphs
from dovetail.ir.tensor import Array

MEANT = ("Constant", "DequantizeLinear", "Identity", "QuantizeLinear", *RANDOM)
"""Operators that say something about a constant beside its value, or that have none; the reader looks at them."""


def compute_constants(model: Any, where: str) -> None:
    """Write the value of every node that reads constants alone as an initializer, in place of the node."""
    if model.producer_name == onnx_file.PRODUCER:
        return
    opset, known, folded = target_opset(model), {i.name: i for i in model.graph.initializer}, set()
    same: dict[str, str] = {}
    for node in ordered(model.graph, where):
        node.input[:] = [same.get(i, i) for i in node.input]
        if node.op_type == "Constant" and (value := _stated(node, where)) is not None:
            known[node.output[0]] = value
        if node.op_type == "Identity" and node.input[0] in known:
            same[node.output[0]] = node.input[0]
        inputs = [i for i in node.input if i]
        if not inputs or node.op_type in MEANT or node.domain not in KNOWN_DOMAINS or subgraphs(node) \
                or any(i not in known for i in inputs):
            continue
        for name, value in zip(node.output, fold(node, [_array(known[i], where) for i in inputs], opset, where), strict=True):
            if name and value is not None:
                known[name] = numpy_helper.from_array(np.ascontiguousarray(value).reshape(value.shape), name)
                folded.add(name)
    if folded:
        kept = [n for n in model.graph.node if folded.isdisjoint(n.output)]
        del model.graph.node[:]
        model.graph.node.extend(kept)
        model.graph.initializer.extend(known[name] for name in sorted(folded))


def _stated(node: Any, where: str) -> Array | None:
    """What a Constant node holds, where that is numbers."""
    given = onnx_file.attributes_of(node, where)
    found = [given[k] for k in ("value", "value_float", "value_int", "value_floats", "value_ints") if k in given]
    array = np.asarray(found[0]) if found else None
    return array.astype(np.float32) if array is not None and array.dtype == np.float64 else array


def _array(value: Any, where: str) -> Array:
    return value if isinstance(value, np.ndarray) else onnx_file.array_of(value, where)
