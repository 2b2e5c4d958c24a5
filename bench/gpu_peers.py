"""The same network in PyTorch, with BatchNorm folded as we fold it: what cuDNN, eager PyTorch and torch.compile are timed on."""

from __future__ import annotations

import torch

from dovetail.ir import Graph
from dovetail.measure.cuda import apply_node


class TorchNetwork(torch.nn.Module):
    """A float graph of one input and one output, node by node."""

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self.graph = graph
        self.names = {name: f"p{i}" for i, name in enumerate(graph.constants)}
        arrays = {self.names[n]: torch.from_numpy(c.array.copy()) for n, c in graph.constants.items()}
        self.values = torch.nn.ParameterDict({n: torch.nn.Parameter(a, requires_grad=False) for n, a in arrays.items()})

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        values = {self.graph.inputs[0]: x}
        for node in self.graph.nodes:
            weights = [self.values[self.names[c]] for c in node.params]
            values[node.output] = apply_node(torch, node, [values[t] for t in node.inputs], weights)
        return values[self.graph.outputs[0]]
