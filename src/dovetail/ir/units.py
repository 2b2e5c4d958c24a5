"""What one step of a node's sum means."""

from __future__ import annotations

from dovetail.ir.graph import Graph, Node


def accumulator_scales(graph: Graph, node: Node) -> tuple[float, ...]:
    """What one step of a node's sum (or product) means: one per filter of a weighted sum, else one, or one per channel."""
    first = graph.scheme(node.inputs[0])
    if node.op.multiplies:
        return (first.scale * graph.scheme(node.inputs[1]).scale,)
    if node.op.coded:
        products = graph.constants[node.params[1]].scheme
        assert products is not None
        return products.scales
    if not node.op.product:
        return first.scales
    weights = graph.constants[node.params[0]].scheme
    assert weights is not None
    channels = graph.shape(node.output)[1]
    steps = weights.scales if weights.axis is not None else weights.scales * channels
    return tuple(first.scale * s for s in steps)
