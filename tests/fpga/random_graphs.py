"""Random small quantized graphs of every operator the hardware maps, reproducible from a seed."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from dovetail.fpga.mapping import stream_formats
from dovetail.hardware.folds import Fold, channels_of
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
    Gemm,
    GlobalAvgPool,
    Graph,
    Lookup,
    MaxPool,
    Mul,
    Node,
    Op,
    PixelShuffle,
    Reduce,
    Reshape,
    Scheme,
    Select,
    Tensor,
    Upsample,
    Window,
)

POINTWISE_SEEDS = 100
SIZES = ((1, 1), (1, 7), (3, 5), (6, 1), (8, 8), (17, 9), (4, 21))


@dataclass
class Sketch:
    """A quantized graph under construction; every method adds a node and returns its output tensor's name."""

    rng: np.random.Generator
    tensors: dict[str, Tensor] = field(default_factory=dict)
    constants: dict[str, Constant] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)
    inputs: list[str] = field(default_factory=list)

    def pick(self, *choices: object) -> object:
        return choices[self.rng.integers(len(choices))]

    def integer(self, low: int, high: int) -> int:
        """A random integer of [low, high]."""
        return int(self.rng.integers(low, high + 1))

    def input(self, shape: tuple[int, ...], signed: bool = True, bits: int = 8, exponent: int = -7) -> str:
        name = f"x{len(self.inputs)}"
        self.tensors[name] = Tensor(name, shape, Scheme(bits, signed, (exponent,)))
        self.inputs.append(name)
        return name

    def exponent(self, tensor: str) -> int:
        scheme = self.tensors[tensor].scheme
        assert scheme is not None
        return min(scheme.exponents)

    def append(self, op: Op, inputs: tuple[str, ...], scheme: Scheme, params: tuple[Constant, ...] = ()) -> str:
        name = f"{op.kind.lower()}{len(self.nodes)}"
        shape = op.infer(tuple(self.tensors[t].shape for t in inputs))
        self.constants.update({c.name: c for c in params})
        self.tensors[f"{name}_out"] = Tensor(f"{name}_out", shape, scheme)
        self.nodes.append(Node(name, op, inputs, tuple(c.name for c in params), f"{name}_out"))
        return f"{name}_out"

    def scheme(self, exponent: int, clamp: Clamp | None = None) -> Scheme:
        unsigned = clamp is not None and clamp.lo >= 0 and self.rng.random() < 0.7
        return Scheme(8, not unsigned, (exponent,))

    def clamp(self) -> Clamp | None:
        return (None, RELU, Clamp(0.0, 6.0), Clamp(-0.5, 0.75))[self.rng.integers(4)]

    def weights(self, shape: tuple[int, ...]) -> Array:
        """int8 weights; some filters are zero, equal, powers of two or full of extremes."""
        values = np.clip(np.rint(self.rng.normal(0, 40, shape)), -128, 127).astype(np.int64)
        for row in range(shape[0]):
            kind = self.rng.random()
            if kind < 0.06:
                values[row] = 0
            elif kind < 0.12:
                values[row] = values[0]
            elif kind < 0.2:
                values[row] = self.rng.choice([-128, 127, -1, 1, 64, 0, -2], shape[1:])
        return values.astype(np.int8)

    def params(self, tensor: str, weight: Array, partial: bool) -> tuple[tuple[Constant, ...], tuple[int, ...]]:
        filters, stem = weight.shape[0], f"w{len(self.constants)}"
        exponents = tuple(int(e) for e in self.rng.integers(-9, -5, filters))
        total = tuple(e + self.exponent(tensor) for e in exponents)
        made = [Constant(stem, weight, Scheme(8, True, exponents, 0))]
        if not partial:
            bias = self.rng.integers(-3000, 3000, filters) * (self.rng.random(filters) < 0.8)
            made.append(Constant(f"{stem}_bias", bias.astype(np.int32), Scheme(32, True, total, 0)))
        return tuple(made), total

    def output_exponent(self, total: tuple[int, ...], terms: int) -> int:
        """An exponent that keeps most results in range, sometimes far from it (saturation, left shifts)."""
        scale = int(np.log2(max(1, terms)) / 2) + 6 + self.integer(-1, 1)
        return max(total) + int(self.rng.choice([scale, scale, scale, 1, 0, -2]))

    def conv(self, x: str, filters: int, window: Window, groups: int = 1, partial: bool = False) -> str:
        channels = self.tensors[x].shape[1]
        weight = self.weights((filters, channels // groups, *window.kernel))
        params, total = self.params(x, weight, partial)
        clamp = None if partial else self.clamp()
        scheme = (Scheme(32, True, total, 1) if partial
                  else self.scheme(self.output_exponent(total, weight[0].size), clamp))
        return self.append(Conv(filters, window, groups, clamp, partial), (x,), scheme, params)

    def gemm(self, x: str, units: int) -> str:
        if len(self.tensors[x].shape) == 4:
            x = self.flatten(x)
        weight = self.weights((units, self.tensors[x].shape[1]))
        params, total = self.params(x, weight, False)
        clamp = self.clamp()
        return self.append(Gemm(units, clamp), (x,), self.scheme(self.output_exponent(total, weight[0].size), clamp), params)

    def flatten(self, x: str) -> str:
        shape = self.tensors[x].shape
        scheme = self.tensors[x].scheme
        assert scheme is not None
        return self.append(Reshape((1, int(np.prod(shape)))), (x,), scheme)

    def pool(self, op: Op, x: str) -> str:
        scheme = self.tensors[x].scheme
        assert scheme is not None
        shift = 0 if isinstance(op, MaxPool) else int(self.rng.choice([-1, 0, 0, 1]))
        if self.rng.random() < 0.2:
            shift += 1
        return self.append(op, (x,), Scheme(8, scheme.signed or self.rng.random() < 0.2, (scheme.exponent + shift,)))

    def clip(self, x: str) -> str:
        clamp = self.clamp()
        return self.append(Clip(clamp), (x,), self.scheme(self.exponent(x) + self.integer(-2, 3), clamp))

    def add(self, *xs: str) -> str:
        clamp = self.clamp()
        finest = min(self.exponent(x) for x in xs)
        return self.append(Add(clamp), xs, self.scheme(finest + self.integer(-1, 3), clamp))

    def lookup(self, x: str) -> str:
        """A random table: smooth, noise, or constant; one for all channels or one for each."""
        source = self.tensors[x].scheme
        assert source is not None
        op = Lookup("noise", source.signed, bool(self.rng.random() < 0.5))
        (shape,) = op.param_shapes((self.tensors[x].shape,))
        scheme = Scheme(8, bool(self.rng.random() < 0.6), (self.exponent(x),))
        values = self.rng.integers(scheme.lo, scheme.hi + 1, shape)
        kind = self.rng.random()
        if kind < 0.5:
            values = np.sort(values, axis=-1)
        elif kind < 0.6:
            values[:] = 17
        return self.append(op, (x,), scheme, (Constant(f"t{len(self.constants)}", values.astype(scheme.dtype)),))

    def mul(self, x: str, y: str) -> str:
        clamp = self.clamp()
        return self.append(Mul(clamp), (x, y), self.scheme(self.exponent(x) + self.exponent(y) + self.integer(-1, 9), clamp))

    def concat(self, *xs: str) -> str:
        return self.append(Concat(1), xs, Scheme(8, True, (max(self.exponent(x) for x in xs) + self.integer(-1, 1),)))

    def select(self, x: str, *indices: int) -> str:
        """Chosen channels, now and then at another scale."""
        scheme = self.tensors[x].scheme
        assert scheme is not None
        return self.append(Select(indices), (x,), Scheme(8, scheme.signed, (scheme.exponent + int(self.rng.random() < 0.2),)))

    def upsample(self, x: str, rows: int, columns: int) -> str:
        """Repeated pixels, now and then at another scale."""
        scheme = self.tensors[x].scheme
        assert scheme is not None
        moved = Scheme(8, scheme.signed, (scheme.exponent + int(self.rng.random() < 0.2),))
        return self.append(Upsample(rows, columns), (x,), moved)

    def shuffle(self, x: str, op: PixelShuffle) -> str:
        """Shuffled pixels, now and then at another scale."""
        scheme = self.tensors[x].scheme
        assert scheme is not None
        return self.append(op, (x,), Scheme(8, scheme.signed, (scheme.exponent + int(self.rng.random() < 0.2),)))

    def reduce(self, *xs: str) -> str:
        """Partial sums of one layer, added with a bias."""
        scheme = self.tensors[xs[0]].scheme
        assert scheme is not None
        bias = Constant(f"b{len(self.constants)}", self.rng.integers(-3000, 3000, len(scheme.exponents)).astype(np.int32),
                        Scheme(32, True, scheme.exponents, 0))
        clamp = self.clamp()
        return self.append(Reduce(clamp), xs, self.scheme(max(scheme.exponents) + self.integer(5, 9), clamp), (bias,))

    def window(self, height: int, width: int, stride_one: bool = False) -> Window:
        """A random window that fits an input; a tenth has padding beyond its reach."""
        while True:
            kernel = (self.integer(1, 4), self.integer(1, 4))
            dilation = (self.integer(1, 2), self.integer(1, 2)) if self.rng.random() < 0.3 else (1, 1)
            stride = (1, 1) if stride_one or self.rng.random() < 0.5 else (self.integer(1, 3), self.integer(1, 3))
            reach = Window(kernel, dilation=dilation).reach
            above, left, below, right = (self.padding(r) for r in (*reach, *reach))
            if height + above + below >= reach[0] and width + left + right >= reach[1]:
                return Window(kernel, stride, (above, left, below, right), dilation)

    def padding(self, reach: int) -> int:
        if self.rng.random() < 0.3:
            return 0
        return self.integer(0, min(reach, reach // 2 + 1) if self.rng.random() < 0.9 else reach)

    def graph(self, outputs: tuple[str, ...]) -> Graph:
        return Graph("random", tuple(self.inputs), outputs, tuple(self.nodes), self.tensors, self.constants)


def same_window(kernel: int) -> Window:
    """An odd window that keeps the size."""
    return Window((kernel, kernel), pads=(kernel // 2,) * 4)


def random_layer(s: Sketch, x: str) -> str:
    """One random windowed layer on a feature map."""
    _, channels, height, width = s.tensors[x].shape
    kind = s.integer(0, 5)
    window = s.window(height, width)
    if kind == 0:
        return s.conv(x, s.integer(1, 5), window)
    if kind == 1:
        return s.conv(x, channels, window, groups=channels)
    if kind == 2 and channels % 2 == 0:
        return s.conv(x, 4, window, groups=2)
    if kind == 3:
        kernel = (min(window.kernel[0], height), min(window.kernel[1], width))
        above, left, below, right = (min(p, (k - 1) // 2) for p, k in zip(window.pads, kernel * 2, strict=True))
        return s.pool(MaxPool(Window(kernel, window.stride, (above, left, below, right))), x)
    if kind == 4:
        return s.pool(AvgPool(window, count_pads=True), x)
    return s.conv(x, s.integer(1, 6), Window((1, 1), (s.integer(1, 2), s.integer(1, 2))))


def random_graph(seed: int) -> Graph:
    """One of several shapes of network: a layer, a chain, a residual block, branches, a classifier, partial sums.

    From `POINTWISE_SEEDS` on: tables and products.
    """
    rng = np.random.default_rng(seed)
    s = Sketch(rng)
    height, width = SIZES[rng.integers(len(SIZES))]
    x = s.input((1, s.integer(1, 4), height, width), signed=bool(rng.random() < 0.6), exponent=s.integer(-8, -4))
    if seed >= POINTWISE_SEEDS:
        return NETWORKS[8 + seed % 2](s, x)
    return NETWORKS[seed % 8](s, x)


def layer(s: Sketch, x: str) -> Graph:
    return s.graph((random_layer(s, x),))


def chain(s: Sketch, x: str) -> Graph:
    for _ in range(3):
        x = random_layer(s, x)
    return s.graph((x,))


def residual(s: Sketch, x: str) -> Graph:
    channels = s.tensors[x].shape[1]
    inner = s.conv(s.conv(x, 4, same_window(3)), channels, same_window(s.integer(0, 1) * 2 + 1))
    return s.graph((s.add(inner, x),))


def branches(s: Sketch, x: str) -> Graph:
    parts = [s.conv(x, 2, same_window(1)), s.conv(x, 3, same_window(5)), s.pool(MaxPool(same_window(3)), x)]
    if s.rng.random() < 0.5:
        parts.append(x)
    return s.graph((s.conv(s.concat(*parts), 2, same_window(3)),))


def classifier(s: Sketch, x: str) -> Graph:
    x = random_layer(s, x)
    if s.rng.random() < 0.5:
        return s.graph((s.gemm(s.pool(GlobalAvgPool(), x), 5),))
    return s.graph((s.gemm(s.gemm(x, 6), 4),))


def partial_sums(s: Sketch, x: str) -> Graph:
    window = same_window(3)
    first = s.conv(x, 3, window, partial=True)
    other = s.input(s.tensors[first].shape, bits=32)
    scheme = s.tensors[first].scheme
    assert scheme is not None
    s.tensors[other] = Tensor(other, s.tensors[first].shape, scheme)
    return s.graph((s.reduce(first, other), first))


def outputs_of_all_kinds(s: Sketch, x: str) -> Graph:
    """Several outputs: a tensor that is also read, a flattened one, an unconnected part."""
    y = s.clip(x)
    z = s.conv(y, 2, same_window(3))
    lone = s.input((1, 6), exponent=-6)
    return s.graph((y, s.flatten(z), s.gemm(lone, 3), s.add(y, y)))


def shuffled(s: Sketch, x: str) -> Graph:
    """A ShuffleNet unit in small: half the channels go on as they are, half are worked on, then all are mixed."""
    x = s.conv(x, 6, same_window(1))
    kept, worked = s.select(x, 0, 1, 2), s.conv(s.select(x, 5, 3, 4), 3, same_window(3))
    mixed = s.select(s.concat(kept, worked), 0, 3, 1, 4, 2, 5)
    return s.graph((mixed, s.gemm(s.select(s.gemm(mixed, 4), 3, 1, 1), 2)))


def tables(s: Sketch, x: str) -> Graph:
    """Tables of everything: of an input, of a clamped sum, of another table, of a flattened map."""
    y = s.lookup(random_layer(s, s.lookup(x)))
    return s.graph((y, s.gemm(s.lookup(s.lookup(y)), 3)))


def gates(s: Sketch, x: str) -> Graph:
    """Products with a branch, with oneself, with a table of oneself, and with one channel for all."""
    channels = s.tensors[x].shape[1]
    y = s.mul(x, s.conv(x, channels, same_window(3)))
    z = s.mul(s.lookup(y), y)
    return s.graph((s.mul(z, z), s.mul(s.conv(z, 1, same_window(3)), z)))


def enlarged(s: Sketch, x: str) -> Graph:
    """A U-Net in small: a map pooled and enlarged again meets itself; another is enlarged by odd factors, at once and twice."""
    y = s.conv(s.upsample(x, 2, 2), 2, same_window(3))
    half = s.pool(MaxPool(Window((2, 2), (2, 2))), y)
    again = s.upsample(s.conv(half, 3, same_window(3)), 2, 2)
    odd = s.upsample(s.upsample(x, s.integer(1, 3), s.integer(1, 3)), 1, 2)
    return s.graph((s.conv(s.concat(again, y), 2, same_window(1)), odd))


NETWORKS = (layer, chain, residual, branches, classifier, partial_sums, outputs_of_all_kinds, shuffled, tables, gates,
            enlarged)
"""Every shape of network, from a first feature map."""


def random_inputs(graph: Graph, frames: int, seed: int) -> dict[str, Array]:
    """Frames of stored integers for every input; 32-bit ones stay in the range of partial sums."""
    rng = np.random.default_rng(seed)
    found: dict[str, Array] = {}
    for name in graph.inputs:
        scheme = graph.tensors[name].scheme
        assert scheme is not None
        lo, hi = (scheme.lo, scheme.hi) if scheme.bits <= 8 else (-(1 << 20), 1 << 20)
        values = rng.integers(lo, hi + 1, (frames, *graph.shape(name)[1:]))
        extreme = rng.random(values.shape) < 0.1
        values[extreme] = rng.choice([lo, hi], int(extreme.sum()))
        found[name] = values.astype(scheme.dtype)
    return found


def random_folds(graph: Graph, seed: int, share: float = 0.75) -> dict[str, Fold]:
    """A random fold for about three of four layers, or another share of them."""
    rng, formats, found = np.random.default_rng(seed), stream_formats(graph), {}
    for node in graph.nodes:
        if isinstance(node.op, Conv | Gemm) and rng.random() < share:
            has = channels_of(node.op, formats[node.inputs[0]].channels, formats[node.output].channels)
            found[node.name] = Fold(*(int(rng.integers(1, most + 1)) for most in (has.groups, has.inputs, has.outputs)))
    return found
