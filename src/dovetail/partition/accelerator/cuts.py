"""Places at which a network can be handed from one kind of engine to another: where a single tensor is alive."""

from __future__ import annotations

from dovetail.ir import Graph


def cut_points(graph: Graph) -> tuple[int, ...]:
    """Counts k, rising from 0 to all nodes, such that nodes[:k] hand exactly one tensor to nodes[k:].

    At the ends the tensor is the graph's only input or output; a graph with several of them is not cut there.
    """
    born = {tensor: 0 for tensor in graph.inputs}
    dies: dict[str, int] = {}
    for index, node in enumerate(graph.nodes):
        born[node.output] = index + 1
        for tensor in node.inputs:
            dies[tensor] = index
    count = len(graph.nodes)
    for tensor in graph.outputs:
        dies[tensor] = count
    alive = [0] * (count + 1)
    for tensor, start in born.items():
        for k in range(start, dies.get(tensor, start - 1) + 1):
            alive[k] += 1
    return tuple(k for k in range(count + 1) if alive[k] == 1)
