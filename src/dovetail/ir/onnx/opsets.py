"""Models of old opsets brought up to the one we write; what the converter of the onnx package gets wrong is put right here."""

from __future__ import annotations

from typing import Any

from onnx import helper, version_converter

from dovetail.ir.onnx.file import OPSET

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
        converted = version_converter.convert_version(model, OPSET)
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
