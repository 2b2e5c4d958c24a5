"""GPU kernels in Triton's interpreter against the reference: odd shapes, every kernel and tile, all kinds of numbers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from dovetail.errors import UnsupportedError
from dovetail.gpu.calls import Call
from dovetail.gpu.estimator import specification
from dovetail.gpu.executor import Compiled, compile_graph
from dovetail.gpu.lower import lower
from dovetail.ir import (
    RELU,
    Add,
    Array,
    AvgPool,
    Clamp,
    Clip,
    Concat,
    Conv,
    Gemm,
    GlobalAvgPool,
    Graph,
    MaxPool,
    Mul,
    Reshape,
    Select,
    Window,
)
from dovetail.numerics.reference import run_float, run_integer
from tests.strategies import Net, quantized

RELU6 = Clamp(0.0, 6.0)
SAME = (1, 1, 1, 1)


def stem(net: Net, size: tuple[int, int] = (9, 7), filters: int = 12) -> str:
    x = net.input((1, 3, *size))
    return net.add(Conv(filters, Window((3, 3), (2, 2), SAME), clamp=RELU6), x)


def inverted(stride: int = 1, kernel: int = 3, residual: bool = True, size: tuple[int, int] = (9, 7)) -> Graph:
    """A stem and one inverted residual."""
    net = Net(stride + 10 * kernel)
    x = stem(net, size)
    wide = net.add(Conv(20, Window((1, 1)), clamp=RELU6), x)
    deep = net.add(Conv(20, Window((kernel, kernel), (stride, stride), (kernel // 2,) * 4), groups=20, clamp=RELU6), wide)
    out = net.add(Conv(12, Window((1, 1))), deep)
    return net.graph(net.add(Add(), out, x) if residual and stride == 1 else out)


def classifier() -> Graph:
    """Pooling, a pointwise layer that ends in a mean, and a fully connected one."""
    net = Net(1)
    x = net.add(MaxPool(Window((3, 3), (2, 2), SAME)), stem(net, (17, 9)))
    x = net.add(Conv(37, Window((1, 1)), clamp=RELU), x)
    x = net.add(GlobalAvgPool(), x)
    return net.graph(net.add(Gemm(5), net.add(Reshape((1, 37)), x)))


def flattened() -> Graph:
    """A fully connected layer over a map, as in AlexNet and VGG."""
    net = Net(2)
    x = net.add(Conv(6, Window((3, 3)), clamp=RELU), stem(net))
    shape = net.shape(x)
    return net.graph(net.add(Gemm(11, RELU), net.add(Reshape((1, int(np.prod(shape)))), x)))


def fire() -> Graph:
    """Two arms side by side, written where they are concatenated, then shuffled, and one half taken."""
    net = Net(3)
    x = stem(net)
    one = net.add(Conv(8, Window((1, 1)), clamp=RELU), x)
    three = net.add(Conv(8, Window((3, 3), pads=SAME), clamp=RELU), x)
    both = net.add(Concat(), one, three)
    mixed = net.add(Select(tuple(i // 2 + 8 * (i % 2) for i in range(16))), both)
    half = net.add(Select(tuple(range(8, 16))), mixed)
    again = net.add(Concat(), half, net.add(Conv(8, Window((1, 1))), half))
    return net.graph(net.add(Conv(4, Window((1, 1))), again))


def grouped() -> Graph:
    """Grouped, dilated and uneven windows."""
    net = Net(4)
    x = stem(net, (11, 13), 12)
    x = net.add(Conv(24, Window((3, 3), (1, 1), SAME), groups=3, clamp=RELU), x)
    x = net.add(Conv(24, Window((3, 3), (1, 2), (2, 2, 2, 2), (2, 2)), groups=24), x)
    return net.graph(net.add(Conv(8, Window((1, 5), (2, 1), (0, 2, 0, 2))), x))


def deep_pointwise() -> Graph:
    """Many input channels over few pixels, twice."""
    net = Net(5)
    x = net.add(Conv(160, Window((1, 1)), clamp=RELU6), stem(net, (5, 5)))
    return net.graph(net.add(Conv(18, Window((1, 1)), clamp=RELU), x))


def tiny() -> Graph:
    """One pixel, one channel."""
    net = Net(6)
    x = net.add(Conv(1, Window((1, 1))), net.input((1, 1, 1, 1)))
    return net.graph(net.add(Conv(1, Window((3, 3), pads=SAME)), x))


def two_sums() -> Graph:
    """An addition that joins a layer, and one that stands alone, each with an activation."""
    net = Net(7)
    x = stem(net)
    a = net.add(Conv(12, Window((3, 3), pads=SAME)), x)
    s = net.add(Add(RELU), a, x)
    p = net.add(MaxPool(Window((3, 3), pads=SAME)), s)
    return net.graph(net.add(Add(RELU), p, s))


def shuffled() -> Graph:
    """Halves of channels, one through a layer, the other past it, then mixed; choices before 3x3 layers, one repeats channels."""
    net = Net(9)
    x = stem(net, (5, 6))
    left, right = net.add(Select(tuple(range(6))), x), net.add(Select(tuple(range(6, 12))), x)
    both = net.add(Concat(), left, net.add(Conv(6, Window((1, 1)), clamp=RELU), right))
    mixed = net.add(Select(tuple(i // 2 + 6 * (i % 2) for i in range(12))), both)
    some, twice = net.add(Select((11, 3, 4, 0)), mixed), net.add(Select((2, 3, 2)), mixed)
    ends = [net.add(Conv(5, Window((3, 3), pads=SAME)), chosen) for chosen in (some, twice)]
    return net.graph(net.add(Add(), *ends))


GRAPHS: dict[str, Callable[[], Graph]] = {
    "inverted": inverted, "inverted stride 2": lambda: inverted(2), "inverted 5x5": lambda: inverted(1, 5),
    "inverted one row": lambda: inverted(1, 3, True, (1, 9)), "classifier": classifier, "flattened": flattened, "fire": fire,
    "grouped": grouped, "deep": deep_pointwise, "tiny": tiny, "sums": two_sums, "shuffled": shuffled}
TOLERANCE = {"float32": 2e-6, "tf32": 2e-3, "float16": 4e-3}


def compiled(name: str, kind: str, images: int = 2) -> tuple[Compiled, dict[str, Array], dict[str, Array]]:
    graph = GRAPHS[name]()
    rng = np.random.default_rng(0)
    if kind == "int8":
        graph = quantized(graph)
        scheme = graph.tensors["x"].scheme
        assert scheme is not None
        inputs: dict[str, Array] = {"x": rng.integers(scheme.lo, scheme.hi + 1, (3, *graph.shape("x")[1:])).astype(scheme.dtype)}
        return compile_graph(graph, kind, images), inputs, run_integer(graph, inputs)
    inputs = {"x": rng.normal(size=(3, *graph.shape("x")[1:])).astype(np.float32)}
    return compile_graph(graph, kind, images), inputs, dict(run_float(graph, inputs))


@pytest.mark.parametrize("kind", ["float32", "float16", "int8"])
@pytest.mark.parametrize("name", GRAPHS)
def test_a_network_computes_what_the_reference_does(name: str, kind: str) -> None:
    made, inputs, wanted = compiled(name, kind)
    found = made.run(inputs)
    assert list(found) == list(wanted)
    for tensor, value in wanted.items():
        assert found[tensor].shape == value.shape
        if kind == "int8":
            assert found[tensor].dtype == value.dtype
            assert np.array_equal(found[tensor], value)
        else:
            assert np.linalg.norm(found[tensor] - value) <= TOLERANCE[kind] * np.linalg.norm(value)


@pytest.mark.parametrize("kind", ["float32", "int8"])
@pytest.mark.parametrize("name", ["inverted", "inverted stride 2", "inverted 5x5", "deep", "grouped", "classifier"])
def test_every_kernel_and_tile_computes_the_same(name: str, kind: str) -> None:
    made, inputs, _ = compiled(name, kind)
    launcher, kernels = made.launcher, set()
    launcher.buffers.clear()  # a place of its own for every tensor: kernels run in any order here
    for tensor, place in made.lowered.inputs.items():
        made.load(tensor, inputs[tensor][:place.images], place)
    for run in made.lowered.runs:
        options = () if isinstance(run, Call) else tuple(made.lowered.options(run, float("inf")))
        for first, last, call in options:  # layer by layer, so that every tensor exists
            if first == last and call.kernel != "vector":
                launcher.bound(call, call.configs[0])()
        for _, _, call in options:
            after = launcher.place(call.output)
            before = after.clone()
            halved = [c for c in call.configs if c.get("SUMS") == 2][:1]
            for config in (call.configs[0], call.configs[len(call.configs) // 2], call.configs[-1], *halved):
                after.fill_(7)
                launcher.bound(call, config)()
                kernels |= {f"{call.kernel}{len(call.nodes)}", *(["halved"] if config.get("SUMS") == 2 else [])}
                assert bool(((after - before).abs() <= (0 if kind == "int8" else 1e-4)).all()), (call.nodes, dict(config))
    assert {"inverted": {"conv1", "fused4", "fused3", "conv2", "banded2"}, "deep": {"halved", "fused2"},
            "classifier": {"vector1"}}.get(name, set()) <= kernels


def test_what_has_no_kernel_is_named() -> None:
    net = Net(8)
    x = stem(net)
    graph = net.graph(net.add(Mul(), x, net.add(Conv(12, Window((1, 1))), x)))
    with pytest.raises(UnsupportedError, match="n2: GPU kernels have no Mul"):
        lower(graph, "float16", specification("h200"))


def test_integers_and_floats_are_not_confused() -> None:
    with pytest.raises(UnsupportedError, match="int8 arithmetic needs a quantized graph"):
        lower(tiny(), "int8", specification("h200"))


def test_a_mean_of_windows_stays_out_of_integer_kernels() -> None:
    net = Net(9)
    graph = net.graph(net.add(AvgPool(Window((2, 2), (2, 2))), stem(net)))
    assert lower(graph, "float16", specification("h200"))
    with pytest.raises(UnsupportedError, match="pooling that rounds integers"):
        lower(quantized(graph), "int8", specification("h200"))


def test_an_activation_alone_is_a_kernel() -> None:
    net = Net(10)
    x = net.add(Conv(4, Window((1, 1))), net.input((1, 3, 4, 4)))
    graph = net.graph(x, net.add(Clip(RELU), x))
    inputs = {"x": np.random.default_rng(0).normal(size=(1, 3, 4, 4)).astype(np.float32)}
    found, wanted = compile_graph(graph, "float32").run(inputs), run_float(graph, inputs)
    for tensor, value in wanted.items():
        assert np.allclose(found[tensor], value, atol=1e-5)
