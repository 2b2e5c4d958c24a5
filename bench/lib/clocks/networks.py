"""Small random networks, reproducible from a seed."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail.ir import Add, AvgPool, Constant, Conv, Gemm, GlobalAvgPool, Graph, MaxPool, Node, Op, Reshape, Tensor, Window
from dovetail.ir.operators.base import RELU
from dovetail.numerics.calibration import synthetic
from dovetail.numerics.quantize import quantize_graph


class Net:
    """A graph under construction with seeded weights."""

    def __init__(self, seed: int) -> None:
        self.rng, self.nodes = np.random.default_rng(seed), list[Node]()
        self.tensors, self.constants = dict[str, Tensor](), dict[str, Constant]()

    def pick(self, *choices: Any) -> Any:
        return choices[int(self.rng.integers(len(choices)))]

    def add(self, op: Op, *inputs: str) -> str:
        name = f"n{len(self.nodes)}"
        shapes, params = tuple(self.tensors[i].shape for i in inputs), list[str]()
        for role, shape in zip(("weight", "bias"), op.param_shapes(shapes), strict=False):
            values = self.rng.standard_normal(shape) * (1.0 if role == "weight" else 0.3)
            self.constants[f"{name}_{role}"] = Constant(f"{name}_{role}", values.astype(np.float32))
            params.append(f"{name}_{role}")
        self.tensors[f"{name}_out"] = Tensor(f"{name}_out", op.infer(shapes))
        self.nodes.append(Node(name, op, inputs, tuple(params), f"{name}_out"))
        return f"{name}_out"

    def conv(self, x: str, filters: int, kernel: int, stride: int = 1, pad: int | None = None, groups: int = 1) -> str:
        side = kernel // 2 if pad is None else pad
        return self.add(Conv(filters, Window((kernel, kernel), (stride, stride), (side,) * 4), groups, RELU), x)


def random_network(seed: int) -> Graph:
    """Convolutions, depthwise layers, additions, pools and a head, of all strides and paddings, small enough to compile soon."""
    net = Net(seed)
    side, channels = net.pick(7, 9, 10, 12), net.pick(3, 4, 6, 8)
    net.tensors["x"] = Tensor("x", (1, net.pick(1, 2, 3), side, side))
    x = net.conv("x", channels, 3, net.pick(1, 2), net.pick(0, 1, 1))
    for _ in range(net.pick(1, 2, 2)):
        match net.pick("residual", "depthwise", "plain", "pool"):
            case "residual":
                y = net.conv(x, 2 * channels, 1)
                y = net.conv(y, 2 * channels, 3, groups=2 * channels)
                x = net.add(Add(), x, net.conv(y, channels, 1))
            case "depthwise":
                x = net.conv(net.conv(x, channels, 3, groups=channels), channels, 1)
            case "plain":
                channels = channels + 2
                x = net.conv(x, channels, net.pick(1, 3))
            case "pool" if net.tensors[x].shape[2] >= 4:
                x = net.add(MaxPool(Window((2, 2), (2, 2))), x)
    head = net.pick("global", "flat", "average", "map")
    if head == "global":
        x = net.add(GlobalAvgPool(), x)
    elif head == "average":
        x = net.add(AvgPool(Window(net.tensors[x].shape[2:])), x)
    if head in ("flat", "global") and np.prod(net.tensors[x].shape) <= 256:
        x = net.add(Gemm(net.pick(5, 10)), net.add(Reshape((1, int(np.prod(net.tensors[x].shape)))), x))
    graph = Graph(f"random{seed}", ("x",), (x,), tuple(net.nodes), net.tensors, net.constants)
    return quantize_graph(graph, synthetic(graph, 4, seed))
