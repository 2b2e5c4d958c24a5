"""Synthetic worlds for the solver's tests: random platforms, graphs and cost models with awkward shapes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dovetail.cost.estimate import ShareCosts
from dovetail.hardware.shares import Ints
from dovetail.ir import Add, Axis, Concat, Constant, Conv, Gemm, GlobalAvgPool, Graph, MaxPool, Node, Op, Reshape, Tensor, Window
from dovetail.partition.cost_model import Rates
from dovetail.platform.device import Device, Kind, Link, Platform

FPGA_KEYS = ("alm", "m20k")


def seeded(*parts: object) -> np.random.Generator:
    """The same numbers for the same names, whatever is asked in between."""
    return np.random.default_rng([sum(ord(c) * (i + 1) for i, c in enumerate(str(p))) for p in parts])


@dataclass(frozen=True)
class Synthetic:
    """Costs with fixed overheads, stairs and luck: nothing a solver could exploit by accident."""

    seed: int
    refuse: float = 0.0
    area: float = 1.0

    def costs_of(self, graph: Graph, node: Node, axis: Axis | None, starts: Ints, stops: Ints,
                 device: Device) -> ShareCosts | None:
        rng = seeded(self.seed, node.name, device.name)
        speed, start, power, luck = rng.uniform(0.2, 2.0), rng.uniform(0.0, 0.3), rng.uniform(0.5, 3.0), rng.uniform()
        if device.kind is not Kind.CPU and luck < self.refuse:
            return None
        if axis is None:
            share = np.ones(len(starts))
        else:
            extent = node.op.extent(axis, graph.input_shapes(node))
            share = (stops - starts) / extent
            share = np.ceil(share * 8) / 8 if rng.uniform() < 0.5 else share
        fpga = device.kind is Kind.FPGA
        alone = 1e-3 * (start + share * speed * (0.5 if fpga else 1.0))
        fused = alone * (0.3 if fpga else self._joined(node, axis, device))
        resources = {k: np.rint(share * rng.uniform(5, 40) * self.area) for k in FPGA_KEYS} if fpga else {}
        return ShareCosts(alone, fused, alone * 0.9, alone * 1.1, alone * power, resources,
                          np.zeros(len(starts), dtype=np.bool_), f"synthetic {device.name}")

    def _joined(self, node: Node, axis: Axis | None, device: Device) -> float:
        """What a node adds behind its producers on a GPU: undivided, some nodes share a kernel with them."""
        rng = seeded(self.seed, node.name, device.name, "kernel")
        return float(rng.uniform()) if device.kind is Kind.GPU and axis is None and rng.uniform() < 0.4 else 1.0

    def by_shape(self, device: Device) -> bool:
        return False

    def why_not(self, graph: Graph, node: Node, device: Device) -> str | None:
        whole = self.costs_of(graph, node, None, np.zeros(1, dtype=np.int64), np.ones(1, dtype=np.int64), device)
        return None if whole is not None else f"{node.op.kind} has no engine"

    def reduce_costs(self, graph: Graph, node: Node, parts: int, device: Device) -> ShareCosts | None:
        seconds = np.array([1e-5 * parts])
        resources = {k: np.array([1.0]) for k in FPGA_KEYS} if device.kind is Kind.FPGA else {}
        return ShareCosts(seconds, seconds, seconds, seconds, seconds * 2.0, resources, np.zeros(1, dtype=np.bool_), "sum")

    def rates(self, platform: Platform, source: str, target: str) -> Rates:
        route = platform.route(source, target)
        return (sum(link.latency_s for link in route), sum(1 / link.bandwidth_bytes_per_s for link in route),
                sum(link.energy_j_per_byte for link in route))


def platform(seed: int, kinds: tuple[Kind, ...] = (Kind.CPU, Kind.GPU, Kind.FPGA), budget: float = 60.0) -> Platform:
    """Devices in a star around the host, with random links; the FPGA has two budgets."""
    rng = seeded(seed, "platform")
    devices = tuple(Device(k.value, k, k.value, "synthetic", float(rng.uniform(0.1, 1.0)), float(rng.uniform(1, 5)),
                           resources=dict.fromkeys(FPGA_KEYS, budget) if k is Kind.FPGA else {}) for k in kinds)
    links = tuple(Link(f"link{i}", (kinds[0].value, k.value), float(10 ** rng.uniform(4.5, 6.5)), float(rng.uniform(0, 1e-4)),
                       float(rng.uniform(0, 1e-6)), full_duplex=bool(rng.uniform() < 0.7)) for i, k in enumerate(kinds[1:]))
    return Platform("world", "a synthetic world", kinds[0].value, devices, links)


class Builder:
    """Grows a graph node by node."""

    def __init__(self, channels: int = 2, size: int = 4) -> None:
        self.tensors = {"x": Tensor("x", (1, channels, size, size))}
        self.nodes: list[Node] = []
        self.constants: dict[str, Constant] = {}

    def add(self, op: Op, *inputs: str) -> str:
        name = f"n{len(self.nodes)}"
        shapes = tuple(self.tensors[t].shape for t in inputs)
        params = []
        for i, shape in enumerate(op.param_shapes(shapes)):
            constant = Constant(f"{name}.{i}", np.ones(shape, dtype=np.float32))
            self.constants[constant.name] = constant
            params.append(constant.name)
        self.tensors[f"t{len(self.nodes)}"] = Tensor(f"t{len(self.nodes)}", op.infer(shapes))
        self.nodes.append(Node(name, op, inputs, tuple(params), f"t{len(self.nodes)}"))
        return self.nodes[-1].output

    def conv(self, source: str, filters: int, kernel: int = 3, groups: int = 1) -> str:
        pad = kernel // 2
        return self.add(Conv(filters, Window((kernel, kernel), pads=(pad, pad, pad, pad)), groups), source)

    def graph(self, *outputs: str) -> Graph:
        return Graph("world", ("x",), outputs or (self.nodes[-1].output,), tuple(self.nodes), self.tensors, self.constants)


def chain(length: int, channels: int = 2, size: int = 4) -> Graph:
    b = Builder(channels, size)
    at = "x"
    for i in range(length):
        at = b.conv(at, channels, 1 if i % 2 else 3)
    return b.graph()


def residual(seed: int) -> Graph:
    """A convolution, a branch of one or two nodes, and their sum."""
    b = Builder(2, 3)
    skip = b.conv("x", 2)
    inner = b.conv(skip, 2, 1)
    return b.graph(b.add(Add(), skip, inner))


def fork(seed: int) -> Graph:
    """Two branches that meet in a concatenation."""
    b = Builder(2, 2)
    stem = b.conv("x", 2, 1)
    return b.graph(b.add(Concat(1), b.conv(stem, 2, 1), b.conv(stem, 1, 3)))


def depthwise(seed: int) -> Graph:
    """Depthwise, pooling, flatten, a fully connected end."""
    b = Builder(2, 4)
    at = b.conv("x", 2, 3, groups=2)
    at = b.add(MaxPool(Window((2, 2), (2, 2))), at)
    at = b.add(Reshape((1, 8)), at)
    return b.graph(b.add(Gemm(3), at))


def pooled(seed: int) -> Graph:
    b = Builder(3, 3)
    at = b.conv("x", 3)
    return b.graph(b.add(GlobalAvgPool(), at), at)


def resnet18_like() -> Graph:
    """ResNet18's nodes at its real sizes."""
    b = Builder(3, 224)
    at = b.add(Conv(64, Window((7, 7), (2, 2), (3, 3, 3, 3))), "x")
    at = b.add(MaxPool(Window((3, 3), (2, 2), (1, 1, 1, 1))), at)
    for width, stride in ((64, 1), (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), (512, 1)):
        skip = at if stride == 1 else b.add(Conv(width, Window((1, 1), (stride, stride))), at)
        inner = b.add(Conv(width, Window((3, 3), (stride, stride), (1, 1, 1, 1))), at)
        inner = b.add(Conv(width, Window((3, 3), (1, 1), (1, 1, 1, 1))), inner)
        at = b.add(Add(), skip, inner)
    at = b.add(GlobalAvgPool(), at)
    return b.graph(b.add(Gemm(1000), b.add(Reshape((1, 512)), at)))
