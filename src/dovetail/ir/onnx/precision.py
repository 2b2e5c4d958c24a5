"""Half, bfloat16 and double precision models read as single precision: one float type inside, said in a note.

Quantization decides the numbers anyway; what a cast between two float types rounds is far below one step of them.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from dovetail.ir.onnx import file as onnx_file
from dovetail.ir.onnx.prepare import subgraphs
from dovetail.words import counted, plural

OTHER_FLOATS = {TensorProto.FLOAT16: "float16", TensorProto.DOUBLE: "float64", TensorProto.BFLOAT16: "bfloat16"}
TYPE_ATTRIBUTES = ("to", "dtype", "output_dtype")
"""Attributes that name an element type by its number."""


def read_as_single(model: Any, where: str) -> tuple[str, ...]:
    """Make every float of another width a float32, in place; returns a note where the model had such inputs or weights."""
    seen: Counter[str] = Counter()
    _widen_graph(model.graph, where, seen)
    return tuple(f"{counted(count, 'input or constant', 'inputs and constants')} of {name} {plural(count, 'is', 'are')} read as "
                 "float32" for name, count in sorted(seen.items()))


def _widen_graph(graph: Any, where: str, seen: Counter[str]) -> None:
    seen.update(OTHER_FLOATS[k] for v in graph.input if (k := v.type.tensor_type.elem_type) in OTHER_FLOATS)
    for value in (*graph.input, *graph.output, *graph.value_info):
        if value.type.tensor_type.elem_type in OTHER_FLOATS:
            value.type.tensor_type.elem_type = TensorProto.FLOAT
    for tensor in (*graph.initializer, *(sparse.values for sparse in graph.sparse_initializer)):
        if tensor.data_type in OTHER_FLOATS:
            seen[OTHER_FLOATS[tensor.data_type]] += 1
            _widen(tensor, where)
    for node in graph.node:
        for inner in subgraphs(node):
            _widen_graph(inner, where, seen)
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.TENSOR and attribute.t.data_type in OTHER_FLOATS:
                seen[OTHER_FLOATS[attribute.t.data_type]] += 1
                _widen(attribute.t, where)
            elif attribute.name in TYPE_ATTRIBUTES and attribute.i in OTHER_FLOATS:
                attribute.i = TensorProto.FLOAT


def _widen(tensor: Any, where: str) -> None:
    """The tensor's values as float32; what is beyond becomes infinite, which weights are checked for."""
    name = tensor.name
    with np.errstate(over="ignore"):
        array = onnx_file.array_of(tensor, where).astype(np.float32)
    tensor.CopyFrom(numpy_helper.from_array(array, name))
