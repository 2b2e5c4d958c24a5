"""One dialect for all files: the opset we write, and single precision, said in a note.

What the converter of the onnx package gets wrong is put right here. Half, bfloat16 and double precision become float32:
quantization decides the numbers anyway, and what a cast between two float types rounds is far below one step of them.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper, version_converter

from dovetail.ir.onnx import file as onnx_file
from dovetail.ir.onnx.prepare import subgraphs
from dovetail.words import counted, plural

OTHER_FLOATS = {TensorProto.FLOAT16: "float16", TensorProto.DOUBLE: "float64", TensorProto.BFLOAT16: "bfloat16"}
TYPE_ATTRIBUTES = ("to", "dtype", "output_dtype")
"""Attributes that name an element type by its number."""
ALONG_ONE_AXIS = 13
"""The opset since which Hardmax works along its axis alone; before, on everything behind it."""
STATED_COORDINATES = 11
"""The opset since which Resize states its coordinates; before, output pixel x is at x / scale and the one below is nearest."""


def modernised(model: Any, where: str) -> Any:
    """A model of an old opset brought up to the one we write, where the converter of the onnx package can."""
    versions = [o.version for o in model.opset_import if o.domain in ("", "ai.onnx")]
    if not versions or min(versions) >= ALONG_ONE_AXIS:
        return model
    _drop_unused_values(model.graph)
    _flatten_hardmax(model.graph)
    try:
        converted = version_converter.convert_version(model, onnx_file.OPSET)
    except Exception:  # the package raises several families, rooted in Exception only
        return model  # operators of ours read old opsets as they are; a foreign one will be refused by name
    if min(versions) < STATED_COORDINATES:
        for node in (n for n in converted.graph.node if n.op_type == "Resize"):
            node.attribute.extend((helper.make_attribute("coordinate_transformation_mode", "asymmetric"),
                                   helper.make_attribute("nearest_mode", "floor")))
    return converted


def _drop_unused_values(graph: Any) -> None:
    """Pad's value, where the mode is another than constant: the converter leaves it where it is no longer allowed."""
    for node in (n for n in graph.node if n.op_type == "Pad"):
        given = {a.name: i for i, a in enumerate(node.attribute)}
        if "mode" in given and "value" in given and node.attribute[given["mode"]].s != b"constant":
            del node.attribute[given["value"]]


def _flatten_hardmax(graph: Any) -> None:
    """Hardmax → Flatten, Hardmax of rows, Reshape: the same before and after the change of its meaning."""
    if not any(n.op_type == "Hardmax" for n in graph.node):
        return
    nodes: list[Any] = []
    for node in graph.node:
        if node.op_type != "Hardmax":
            nodes.append(node)
            continue
        (source,), (output,) = node.input, node.output
        axis = next((int(a.i) for a in node.attribute if a.name == "axis"), 1)
        nodes += [helper.make_node("Flatten", [source], [f"{output}/rows"], axis=axis),
                  helper.make_node("Hardmax", [f"{output}/rows"], [f"{output}/largest"], node.name, axis=1),
                  helper.make_node("Shape", [source], [f"{output}/shape"]),
                  helper.make_node("Reshape", [f"{output}/largest", f"{output}/shape"], [output])]
    copies = [type(n).FromString(n.SerializeToString()) for n in nodes]
    del graph.node[:]
    graph.node.extend(copies)


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
