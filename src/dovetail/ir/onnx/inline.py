"""Formulas and tables written out as standard ONNX nodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto

from dovetail.ir.graph import Node
from dovetail.ir.onnx.prepare import domains, rename_inside
from dovetail.ir.onnx.writer import Writer
from dovetail.ir.operators.pointwise import TABLE_ENTRIES, Lookup


def inline(writer: Writer, node: Node, content: bytes, given: Mapping[str, str], results: Mapping[str, str]) -> None:
    """The nodes of a small model, with its own constants; `results` name the outputs that are used."""
    alone = onnx.load_model_from_string(content).graph
    names, (output, *_) = {"": "", **given, **results}, results.values()
    for weight in alone.initializer:
        names[weight.name] = f"{node.name}{writer.sep}{weight.name}"
        copy = TensorProto()
        copy.CopyFrom(weight)
        copy.name = names[weight.name]
        writer.initializers[copy.name] = copy
    for i, original in enumerate(alone.node):
        proto: Any = onnx.NodeProto()
        proto.CopyFrom(original)
        proto.name = original.name or (node.name if i == len(alone.node) - 1 else f"{node.name}{writer.sep}{i}")
        del proto.input[:], proto.output[:]
        proto.input.extend(names[i] for i in original.input)
        proto.output.extend(names.setdefault(o, f"{output}{writer.sep}inner_{o}") for o in original.output)
        rename_inside(proto, names, lambda inner: f"{output}{writer.sep}inner_{inner}")
        writer.domains |= domains(proto)
        writer.nodes.append(proto)


def lookup(writer: Writer, node: Node, op: Lookup, codes: str, output: str) -> None:
    """A table in integers only: Cast, an offset (per channel where tables differ), Gather."""
    stem = f"{node.name}{writer.sep}"
    table = writer.graph.constants[node.params[0]].array
    shape = writer.graph.shape(node.output)
    offset = np.asarray(-op.lo, dtype=np.int32)
    if op.by_channel:
        offset = (np.arange(shape[1], dtype=np.int32) * TABLE_ENTRIES - op.lo).reshape((1, -1) + (1,) * (len(shape) - 2))
    wide = writer.emit("Cast", [codes], f"{stem}codes", f"{stem}cast", to=TensorProto.INT32)
    index = writer.emit("Add", [wide, writer.constant(f"{stem}offset", offset.astype(np.int32))], f"{stem}index", f"{stem}shift")
    entries = writer.constant(node.params[0], table.reshape(-1))
    writer.emit("Gather", [entries, index], output, node.name, axis=0, doc_string=op.name)
