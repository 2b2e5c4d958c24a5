"""Hypothesis strategies: random small networks, float and quantized, with every operator and odd shapes."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from hypothesis import strategies as st

from dovetail.errors import ModelError
from dovetail.ir import (
    RELU,
    Add,
    Array,
    AvgPool,
    Clamp,
    Clip,
    Concat,
    Constant,
    Conv,
    Function,
    Gemm,
    GlobalAvgPool,
    Graph,
    MaxPool,
    Mul,
    Node,
    Op,
    Reshape,
    Select,
    Tensor,
    Window,
)
from dovetail.numerics.calibration import synthetic
from dovetail.numerics.quantize import quantize_graph
from tests.formulas import function


@dataclass
class Net:
    """A graph under construction with seeded weights."""

    seed: int
    name: str = "net"
    nodes: list[Node] = field(default_factory=list)
    tensors: dict[str, Tensor] = field(default_factory=dict)
    constants: dict[str, Constant] = field(default_factory=dict)
    inputs: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)

    def input(self, shape: tuple[int, ...], name: str = "x") -> str:
        self.tensors[name] = Tensor(name, shape)
        self.inputs.append(name)
        return name

    def add(self, op: Op, *inputs: str, name: str | None = None) -> str:
        name = name or f"n{len(self.nodes)}"
        shapes = tuple(self.tensors[i].shape for i in inputs)
        output = f"{name}_out"
        roles = ("p0", "p1") if isinstance(op, Function) else ("weight", "bias")
        params = []
        for role, shape in zip(roles, op.param_shapes(shapes), strict=False):
            values = self.rng.standard_normal(shape) * (1.0 if role == "weight" else 0.3)
            self.constants[f"{name}_{role}"] = Constant(f"{name}_{role}", values.astype(np.float32))
            params.append(f"{name}_{role}")
        self.tensors[output] = Tensor(output, op.infer(shapes))
        self.nodes.append(Node(name, op, inputs, tuple(params), output))
        return output

    def shape(self, tensor: str) -> tuple[int, ...]:
        return self.tensors[tensor].shape

    def graph(self, *outputs: str) -> Graph:
        return Graph(self.name, tuple(self.inputs), outputs, tuple(self.nodes), self.tensors, self.constants)


def quantized(graph: Graph, seed: int = 0) -> Graph:
    return quantize_graph(graph, synthetic(graph, 4, seed))


def stored_inputs(graph: Graph, frames: int, seed: int = 0) -> dict[str, Array]:
    """Frames of any integers that a quantized network's inputs hold."""
    rng = np.random.default_rng(seed)
    found: dict[str, Array] = {}
    for name in graph.inputs:
        scheme = graph.tensors[name].scheme
        assert scheme is not None
        found[name] = rng.integers(scheme.lo, scheme.hi + 1, (frames, *graph.shape(name)[1:])).astype(scheme.dtype)
    return found


clamps = st.sampled_from([None, RELU, Clamp(0.0, 6.0), Clamp(-1.0, 1.5)])


@st.composite
def windows(draw: st.DrawFn, height: int, width: int, pool: bool = False) -> Window:
    kernel = (draw(st.integers(1, 3)), draw(st.integers(1, 3)))
    stride = (draw(st.integers(1, 3)), draw(st.integers(1, 3)))
    dilation = (1, 1) if pool else (draw(st.integers(1, 2)), draw(st.integers(1, 2)))
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    limit = [k - 1 for k in kernel] if pool else [r - 1 for r in reach]
    pads = tuple(draw(st.integers(0, limit[i % 2])) for i in range(4))
    window = Window(kernel, stride, pads, dilation)
    try:
        window.output_size(height, width)
    except ModelError:
        return Window((1, 1))
    return window


@st.composite
def convolutions(draw: st.DrawFn, channels: int, height: int, width: int) -> Conv:
    groups = draw(st.sampled_from([g for g in range(1, channels + 1) if channels % g == 0]))
    filters = groups * draw(st.integers(1, 3))
    return Conv(filters, draw(windows(height, width)), groups, draw(clamps))


KINDS = ["conv", "conv", "conv", "max", "avg", "residual", "concat", "clip", "select", "formula", "gate", "excite"]
FORMULAS = ["SiLU", "HardSwish", "Tanh", "PReLU", "pointwise per channel"]
"""Those that differ between channels last: one channel has nothing to differ from."""


@st.composite
def selections(draw: st.DrawFn, net: Net, x: str) -> str:
    """Some channels of `x` in some order; a convolution where a choice would change nothing or follow another one."""
    channels = net.shape(x)[1]
    chosen = draw(st.one_of(st.permutations(range(channels)), st.lists(st.integers(0, channels - 1), min_size=1, max_size=6)))
    # reading makes one of two, and a network that only moves data has nothing to quantize
    useless = not net.nodes or isinstance(net.nodes[-1].op, Select) or list(chosen) == list(range(channels))
    return net.add(Conv(2, Window((1, 1))) if useless else Select(tuple(chosen)), x)


@st.composite
def networks(draw: st.DrawFn, max_nodes: int = 6) -> Graph:
    """Chains with residual additions, concatenations and an optional classifier."""
    net = Net(draw(st.integers(0, 2**16)))
    shape = (1, draw(st.integers(1, 4)), draw(st.integers(1, 9)), draw(st.integers(1, 9)))
    x = net.input(shape)
    for _ in range(draw(st.integers(1, max_nodes))):
        _, channels, height, width = net.shape(x)
        kind = draw(st.sampled_from(KINDS))
        if kind == "conv":
            x = net.add(draw(convolutions(channels, height, width)), x)
        elif kind == "max":
            x = net.add(MaxPool(draw(windows(height, width, pool=True))), x)
        elif kind == "avg":
            window = draw(windows(height, width, pool=True))
            x = net.add(AvgPool(window, any(window.pads) and draw(st.booleans())), x)
        elif kind == "residual":
            branch = net.add(Conv(channels, Window((3, 3), pads=(1, 1, 1, 1)), 1, draw(clamps)), x)
            x = net.add(Add(draw(clamps)), x, branch)
        elif kind == "concat":
            left = net.add(Conv(2, Window((1, 1)), 1, RELU), x)
            right = net.add(Conv(3, Window((3, 3), pads=(1, 1, 1, 1)), 1, RELU), x)
            x = net.add(Concat(1), left, right)
        elif kind == "select":
            x = draw(selections(net, x))
        elif kind == "formula":
            x = net.add(Conv(channels, Window((1, 1)), 1, draw(clamps)), x)
            x = net.add(function(draw(st.sampled_from(FORMULAS if channels > 1 else FORMULAS[:3]))), x)
            x = net.add(Conv(draw(st.integers(1, 3)), Window((1, 1)), 1), x)
        elif kind == "gate":
            branch = net.add(Conv(channels if draw(st.booleans()) else 1, Window((3, 3), pads=(1, 1, 1, 1)), 1), x)
            x = net.add(Mul(draw(clamps)), *draw(st.permutations([x, branch])))
        elif kind == "excite":
            squeezed = net.add(Conv(channels, Window((1, 1)), 1, RELU), net.add(GlobalAvgPool(), x))
            factors = net.add(function("HardSigmoid"), squeezed)
            x = net.add(draw(st.sampled_from([Mul(), Add(RELU)])), *draw(st.permutations([x, factors])))
        else:
            x = net.add(Clip(draw(clamps.filter(lambda c: c is not None))), x)
    if draw(st.booleans()):
        if draw(st.booleans()):
            x = net.add(GlobalAvgPool(), x)
        shape = net.shape(x)
        x = net.add(Reshape((shape[0], int(np.prod(shape[1:])))), x)
        x = net.add(Gemm(draw(st.integers(1, 5)), draw(clamps)), x)
    return net.graph(x)
