"""The same network in PyTorch, with BatchNorm folded as we fold it: what cuDNN, eager PyTorch and torch.compile are timed on."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812

from dovetail.ir import Add, AvgPool, Clip, Concat, Conv, Gemm, GlobalAvgPool, Graph, MaxPool, Node, Reshape, Select


class TorchNetwork(torch.nn.Module):
    """A float graph, node by node."""

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self.graph = graph
        self.params = torch.nn.ParameterDict()
        self.names: dict[str, str] = {}
        for i, (name, constant) in enumerate(graph.constants.items()):
            self.names[name] = f"p{i}"
            self.params[f"p{i}"] = torch.nn.Parameter(torch.from_numpy(constant.array.copy()), requires_grad=False)
        for node in graph.nodes:
            if isinstance(node.op, Select):
                self.register_buffer(f"select_{node.name}".replace(".", "_"), torch.tensor(node.op.indices), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        values = {self.graph.inputs[0]: x}
        for node in self.graph.nodes:
            values[node.output] = self._node(node, [values[t] for t in node.inputs])
        return values[self.graph.outputs[0]]

    def _node(self, node: Node, xs: list[torch.Tensor]) -> torch.Tensor:
        op, params = node.op, [self.params[self.names[p]] for p in node.params]
        if isinstance(op, Conv):
            top, left, bottom, right = op.window.pads
            x = xs[0]
            pads: tuple[int, int] = (top, left)
            if (top, left) != (bottom, right):
                x, pads = F.pad(x, (left, right, top, bottom)), (0, 0)
            y = F.conv2d(x, params[0], params[1], op.window.stride, pads, op.window.dilation, op.groups)
        elif isinstance(op, Gemm):
            y = F.linear(xs[0], params[0], params[1])
        elif isinstance(op, Add):
            y = xs[0] + xs[1]
        elif isinstance(op, GlobalAvgPool):
            y = xs[0].mean((2, 3), keepdim=True)
        elif isinstance(op, Reshape):
            y = xs[0].reshape(xs[0].shape[0], *op.infer(((1, *xs[0].shape[1:]),))[1:])
        elif isinstance(op, MaxPool):
            y = _pooled(xs[0], op)
        elif isinstance(op, AvgPool):
            y = F.avg_pool2d(xs[0], op.window.kernel, op.window.stride, op.window.pads[:2], count_include_pad=op.count_pads)
        elif isinstance(op, Concat):
            y = torch.cat(xs, op.axis)
        elif isinstance(op, Select):
            y = xs[0].index_select(1, getattr(self, f"select_{node.name}".replace(".", "_")))
        elif isinstance(op, Clip):
            y = xs[0]
        else:
            raise NotImplementedError(f"node {node.name}: {op.kind} has no PyTorch form here")
        bounds = op.bounds
        if bounds is None:
            return y
        return F.relu(y) if bounds.lo == 0 and bounds.hi == float("inf") else y.clamp(bounds.lo, bounds.hi)


def _pooled(x: torch.Tensor, op: MaxPool) -> torch.Tensor:
    top, left, bottom, right = op.window.pads
    if (top, left) != (bottom, right):
        return F.max_pool2d(F.pad(x, (left, right, top, bottom), value=float("-inf")), op.window.kernel, op.window.stride,
                            dilation=op.window.dilation)
    return F.max_pool2d(x, op.window.kernel, op.window.stride, (top, left), op.window.dilation)
