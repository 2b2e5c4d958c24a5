"""Small networks of odd shapes that reach every kernel."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from onnx import TensorProto, helper

from dovetail.ir import (
    RELU,
    Add,
    AvgPool,
    Clamp,
    Clip,
    Concat,
    Conv,
    Function,
    Gemm,
    GlobalAvgPool,
    Graph,
    MaxPool,
    Mul,
    Reshape,
    Select,
    Window,
)
from tests.strategies import Net

RELU6 = Clamp(0.0, 6.0)
SAME = (1, 1, 1, 1)


def stem(net: Net, size: tuple[int, int] = (9, 7), filters: int = 12) -> str:
    x = net.input((1, 3, *size))
    return net.add(Conv(filters, Window((3, 3), (2, 2), SAME), clamp=RELU6), x)


def wide_stem() -> Graph:
    """The first layer of CeiT: every output gathers 147 values of an image, more than one product of matrices takes at once."""
    net = Net(0)
    return net.graph(net.add(Conv(64, Window((7, 7), (2, 2), (3,) * 4)), net.input((1, 3, 224, 224))))


def inverted(stride: int = 1, kernel: int = 3, residual: bool = True, size: tuple[int, int] = (9, 7),
             clamp: Clamp = RELU6, channels: int = 12) -> Graph:
    """A stem and one inverted residual."""
    net = Net(stride + 10 * kernel)
    x = stem(net, size, channels)
    wide = net.add(Conv(20, Window((1, 1)), clamp=clamp), x)
    deep = net.add(Conv(20, Window((kernel, kernel), (stride, stride), (kernel // 2,) * 4), groups=20, clamp=clamp), wide)
    out = net.add(Conv(channels, Window((1, 1))), deep)
    return net.graph(net.add(Add(), out, x) if residual and stride == 1 else out)


def blocks(size: tuple[int, int] = (5, 9), kernel: int = 3, stride: int = 1, adds: bool = True, kept: bool = True,
           inner: int = 50) -> Graph:
    """A block and the next one, which, where it is `kept`, adds what the first one made; no size is that of a tile."""
    net = Net(kernel + 10 * stride + adds)
    x = net.add(Conv(12, Window((1, 1)), clamp=RELU), net.input((1, 3, *size)))
    wide = net.add(Conv(inner, Window((1, 1)), clamp=RELU6), x)
    pads = (kernel // 2,) * 4
    deep = net.add(Conv(inner, Window((kernel, kernel), (stride, stride), pads), groups=inner, clamp=RELU6), wide)
    end = net.add(Conv(12, Window((1, 1))), deep)
    if adds:
        end = net.add(Add(), end, x)
    wide = net.add(Conv(41, Window((1, 1)), clamp=RELU), end)
    last = net.add(Conv(12, Window((1, 1))), net.add(Conv(41, Window((3, 3), pads=SAME), groups=41, clamp=RELU), wide))
    return net.graph(net.add(Add(), last, end) if kept else last)


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


def dense() -> Graph:
    """A 3x3 layer of many pixels, whose products of bytes are Hopper's matrix instructions of four warps."""
    net = Net(0)
    x = net.add(Conv(32, Window((1, 1)), clamp=RELU), net.input((1, 16, 56, 56)))
    return net.graph(net.add(Conv(64, Window((3, 3), pads=SAME), clamp=RELU), x))


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


def unit() -> Graph:
    """A ShuffleNetV2 unit: half of the shuffled channels past three layers, then once more shuffled and read."""
    net = Net(12)
    x = stem(net, (5, 6), 24)
    low, high = tuple(i // 2 + 12 * (i % 2) for i in range(12)), tuple(i // 2 + 12 * (i % 2) for i in range(12, 24))
    past, taken = net.add(Select(low), x), net.add(Select(high), x)
    wide = net.add(Conv(12, Window((1, 1)), clamp=RELU), taken)
    out = net.add(Conv(12, Window((1, 1)), clamp=RELU), net.add(Conv(12, Window((3, 3), pads=SAME), groups=12), wide))
    return net.graph(net.add(Conv(7, Window((1, 1))), net.add(Select(high), net.add(Concat(), past, out))))


def pooled() -> Graph:
    """Means and maxima of windows, with padding that counts and that does not; limits that stand alone."""
    net = Net(21)
    x = stem(net, (17, 13))
    means = [net.add(AvgPool(Window((3, 3), (2, 2), SAME), count_pads=counted), x) for counted in (False, True)]
    largest = net.add(MaxPool(Window((3, 2), (2, 2), (1, 0, 1, 1))), x)
    return net.graph(net.add(Concat(), *means, net.add(Clip(RELU), largest)), net.add(AvgPool(Window((2, 2), (2, 2))), x))


def gated() -> Graph:
    """A product with one value per channel, as in squeeze-and-excitation, and one of two maps."""
    net = Net(22)
    x = stem(net)
    gate = net.add(Conv(12, Window((1, 1)), clamp=RELU), net.add(GlobalAvgPool(), x))
    y = net.add(Mul(), net.add(Conv(12, Window((1, 1))), x), gate)
    return net.graph(net.add(Mul(RELU), y, x), net.add(Add(), y, net.add(Select(tuple(range(11, -1, -1))), x)))


def narrow_pool() -> Graph:
    """The last pooling of Xception: rows and columns of maps so small fit sixteen bits."""
    net = Net(0)
    return net.graph(net.add(MaxPool(Window((3, 3), (2, 2), SAME)), net.add(Conv(64, Window((1, 1))), net.input((1, 4, 19, 19)))))


GRAPHS: dict[str, Callable[[], Graph]] = {
    "inverted": inverted, "inverted stride 2": lambda: inverted(2), "inverted 5x5": lambda: inverted(1, 5),
    "inverted one row": lambda: inverted(1, 3, True, (1, 9)), "classifier": classifier, "flattened": flattened, "fire": fire,
    "grouped": grouped, "deep": deep_pointwise, "tiny": tiny, "sums": two_sums, "shuffled": shuffled, "unit": unit,
    "pooled": pooled, "gated": gated}


FORMULAS: dict[str, tuple[tuple[str, ...], dict[str, float]]] = {
    "HardSwish": (("HardSwish",), {}), "HardSigmoid": (("HardSigmoid",), {"alpha": 1 / 6, "beta": 0.5}),
    "Sigmoid": (("Sigmoid",), {}), "Tanh": (("Tanh",), {}), "SiLU": (("Sigmoid", "Mul"), {}),
    "GELU": (("Gelu",), {}), "GELU (tanh)": (("Gelu tanh",), {})}


def function(name: str) -> Function:
    """An activation as reading a model gives it."""
    kinds, numbers = FORMULAS[name]
    nodes = [helper.make_node(kinds[0].split()[0], ["x0"], ["t" if len(kinds) > 1 else "y0"], **numbers,
                              **({"approximate": "tanh"} if kinds[0].endswith("tanh") else {}))]
    nodes += [helper.make_node("Mul", ["x0", "t"], ["y0"])] if len(kinds) > 1 else []
    ends = [helper.make_tensor_value_info(end, TensorProto.FLOAT, None) for end in ("x0", "y0")]
    model = helper.make_model(helper.make_graph(nodes, "function", ends[:1], ends[1:]),
                              opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    return Function(name, model.SerializeToString(), 20)


def activated(name: str) -> Graph:
    """Every layer of an inverted residual with an activation behind it, one behind an addition, and a gate of channels."""
    net = Net(11)
    x = net.add(function(name), net.add(Conv(12, Window((3, 3), (2, 2), SAME)), net.input((1, 3, 9, 7))))
    wide = net.add(function(name), net.add(Conv(20, Window((1, 1))), x))
    deep = net.add(function(name), net.add(Conv(20, Window((3, 3), pads=SAME), groups=20), wide))
    out = net.add(function(name), net.add(Conv(12, Window((1, 1))), deep))
    total = net.add(function(name), net.add(Add(), out, x))
    gate = net.add(function(name), net.add(Conv(12, Window((1, 1))), net.add(GlobalAvgPool(), total)))
    return net.graph(net.add(Mul(), total, gate))
