"""Reading nodes: each becomes a typed operator where one fits, a folded constant where nothing moves, else stays as it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dovetail.errors import UnsupportedError
from dovetail.ir.onnx import file as onnx_file
from dovetail.ir.onnx import lq as onnx_lq
from dovetail.ir.onnx.branches import decided, made_by_branches, taken
from dovetail.ir.onnx.clusters import Cluster, Item, TableNodes
from dovetail.ir.onnx.integer import expanded, in_floats, is_qonnx
from dovetail.ir.onnx.pointwise import read_alone, read_cluster, read_table
from dovetail.ir.onnx.readers import READERS
from dovetail.ir.onnx.rows import lift, lifts
from dovetail.ir.onnx.state import MALFORMED, Reader, malformed

QUANTIZERS = ("QuantizeLinear", "DequantizeLinear")
ANY_ELEMENT = ("Identity", "Dropout", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Shape", "DequantizeLinear", "Transpose",
               "Split", "Slice", "Gather")
"""Operators that only pass values on, whatever their type."""


def read_items(reader: Reader, items: Sequence[Item]) -> None:
    """Read all nodes of a file in order; one that contradicts itself is named."""
    for item in items:
        node = item.nodes[-1] if isinstance(item, Cluster | TableNodes) else item
        try:
            _read_item(reader, item)
        except MALFORMED as error:
            raise malformed(reader.where, f"node {node.name or node.op_type}", error) from None


def _read_item(reader: Reader, item: Item) -> None:
    """A formula or a table as one operator, everything else node by node."""
    if isinstance(item, TableNodes):
        read_table(reader, item)
    elif not isinstance(item, Cluster):
        read_node(reader, item)
    elif not read_cluster(reader, item):
        for node in item.nodes:
            read_node(reader, node)


def read_node(reader: Reader, node: Any) -> None:
    """A typed operator where one fits, a folded constant where nothing moves, else the node as it is."""
    if node.domain == onnx_lq.DOMAIN:
        onnx_lq.read(reader, node)
        return
    meant = expanded(node, reader.where)
    if meant is not None:
        for part in meant:
            read_node(reader, part)
        return
    if decided(reader, node):
        for inner in taken(reader, node):
            read_node(reader, inner)
        return
    if lifts(reader, node):
        lift(reader, node, read_node)
        return
    inputs = [i for i in node.input if i]
    typed = (node.domain in ("", "ai.onnx") or is_qonnx(node)) and node.op_type in READERS
    moving = [reader.tensors[t] for i in inputs if (t := reader.tensor(i)) in reader.tensors]
    if inputs and not moving and all(i in reader.constants for i in inputs) and not is_qonnx(node) \
            and node.op_type not in (*QUANTIZERS, "Identity"):
        reader.add_foreign(node)
        return
    if typed and (node.op_type in ANY_ELEMENT or all(t.element == "float32" for t in moving)):
        try:
            READERS[node.op_type](reader, node, onnx_file.attributes_of(node, reader.where))
            return
        except UnsupportedError as reason:
            if any(i in reader.padding for i in inputs):
                raise
            reader.reasons[next(o for o in node.output if o)] = str(reason).removeprefix(f"{reader.where}: ")
    if is_qonnx(node):
        for part in in_floats(node, reader.where):
            read_node(reader, part)
        return
    if not read_alone(reader, node):
        reader.add_foreign(node, made_by_branches(reader, node, read_node) if node.op_type == "If" else ())
