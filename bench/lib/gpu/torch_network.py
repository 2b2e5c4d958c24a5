"""The same network in PyTorch, with BatchNorm folded as we fold it: what cuDNN, eager PyTorch and torch.compile are timed on."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch

from dovetail.ir import Function, Graph, Mul
from dovetail.measure.cuda import apply_node

FUNCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "HardSwish": torch.nn.functional.hardswish, "HardSigmoid": torch.nn.functional.hardsigmoid, "SiLU": torch.nn.functional.silu,
    "GELU": torch.nn.functional.gelu, "GELU (tanh)": partial(torch.nn.functional.gelu, approximate="tanh"),
    "Sigmoid": torch.sigmoid, "Tanh": torch.tanh}


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
            weights, inputs = [self.values[self.names[c]] for c in node.params], [values[t] for t in node.inputs]
            if isinstance(node.op, Function):
                values[node.output] = FUNCTIONS[node.op.name](inputs[0])
            elif isinstance(node.op, Mul):
                values[node.output] = inputs[0] * inputs[1]
            else:
                values[node.output] = apply_node(torch, node, inputs, weights)
        return values[self.graph.outputs[0]]
