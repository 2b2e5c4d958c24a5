"""Formulas as tables: every code of a quantized input, through ONNX Runtime once, to the code of the output."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from dovetail.ir import Array, Constant, Function, Graph, Lookup, Node, Scheme
from dovetail.ir.operators.pointwise import TABLE_ENTRIES
from dovetail.ir.schemes import foreign
from dovetail.numerics.fixed import dequantize, quantize
from dovetail.numerics.oracle import run_function

TABLE_BITS = 8
"""Wider integers would need tables of 65,536 entries and more; such functions stay in floats."""


def tabulate(graph: Graph) -> Graph:
    """Functions between integers become tables, stored in the graph; all others become foreign nodes, in floats.

    The table is what defines the numbers from here on: whoever looks up computes exactly that.
    """
    if not graph.quantized or not any(n.op.formula for n in graph.nodes):
        return graph
    nodes, tables = [], []
    for node in graph.nodes:
        if isinstance(node.op, Function):
            schemes = [graph.tensors[t].scheme for t in (*node.inputs, node.output)]
            if all(s is not None and s.bits <= TABLE_BITS and s.axis is None for s in schemes):
                node, table = _tabulated(graph, node, node.op)
                tables.append(table)
            else:
                node = foreign(graph, node)
        nodes.append(node)
    return graph.with_nodes(nodes, constants=tables)


def _tabulated(graph: Graph, node: Node, formula: Function) -> tuple[Node, Constant]:
    source, target = graph.scheme(node.inputs[0]), graph.scheme(node.output)
    op = Lookup(formula.name, source.signed, formula.per_channel)
    entries = table_of(formula, [c.array for c in graph.params(node)], op.lo, source, target)
    table = Constant(f"{node.name}_table", entries if op.per_channel else entries[0])
    return replace(node, op=op, params=(table.name,)), table


def table_of(op: Function, params: Sequence[Array], lo: int, source: Scheme, target: Scheme) -> Array:
    """(channels or 1, 256) output codes for the input codes lo, lo + 1, …; NaN, where a formula has no value, becomes zero.

    Codes outside a narrow scheme read as its ends.
    """
    codes = np.clip(np.arange(lo, lo + TABLE_ENTRIES, dtype=np.float64), source.lo, source.hi)
    reals = dequantize(codes, source).astype(np.float32)
    rows = len(params[0]) if params else 1
    found = run_function(op, np.broadcast_to(reals[:, None], (TABLE_ENTRIES, rows)), params)
    values = found.astype(np.float64).T
    return quantize(np.where(np.isnan(values), 0.0, values), target).astype(target.dtype)
