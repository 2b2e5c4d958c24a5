"""Small quantized networks that blocks of reusable engines compute, of every kind of layer, reproducible from a seed."""

from __future__ import annotations

import numpy as np

from dovetail.cost.array import Config
from dovetail.ir import AvgPool, Constant, GlobalAvgPool, Graph, Lookup, MaxPool, Scheme, Window
from tests.fpga.random_graphs import Sketch, same_window

Case = tuple[Graph, Config]


def layer(seed: int, shape: tuple[int, int, int], filters: int, window: Window, groups: int = 1) -> Graph:
    """One convolution."""
    s = Sketch(np.random.default_rng(seed))
    return s.graph((s.conv(s.input((1, *shape), signed=bool(seed % 2), exponent=-6), filters, window, groups),))


def inverted_residual(s: Sketch, x: str, expanded: int, channels: int, kernel: int, stride: int) -> str:
    """Expand, filter, project; an addition where shapes allow it."""
    pads = (kernel // 2,) * 4
    y = s.conv(x, expanded, Window((1, 1)))
    y = s.conv(y, expanded, Window((kernel, kernel), (stride, stride), pads), expanded)
    y = s.conv(y, channels, Window((1, 1)))
    return s.add(y, x) if stride == 1 and channels == s.tensors[x].shape[1] else y


def compact(seed: int, shape: tuple[int, int, int], classes: int) -> Graph:
    """A compact network in small: a standard convolution, bottlenecks of both strides, an average, a classifier."""
    s = Sketch(np.random.default_rng(seed))
    x = s.conv(s.input((1, *shape), signed=bool(seed % 2), exponent=-6), 7, same_window(3))
    x = inverted_residual(s, x, 18, 7, 3, 1)
    x = inverted_residual(s, x, 21, 10, 3, 2)
    x = inverted_residual(s, x, 13, 10, 3, 1)
    return s.graph((s.gemm(s.pool(GlobalAvgPool(), x), classes),))


def residual(seed: int, shape: tuple[int, int, int]) -> Graph:
    """Two residual blocks of standard convolutions, the second with a convolution on its shortcut."""
    s = Sketch(np.random.default_rng(seed))
    x = s.input((1, *shape), signed=bool(seed % 2), exponent=-6)
    x = s.add(s.conv(s.conv(x, 6, same_window(3)), shape[0], same_window(3)), x)
    short = s.conv(x, 9, Window((1, 1), (2, 2)))
    inner = s.conv(s.conv(x, 5, Window((3, 3), (2, 2), (1, 1, 1, 1))), 9, same_window(3))
    return s.graph((s.add(short, inner),))


def pooled_sum(seed: int, shape: tuple[int, int, int]) -> Graph:
    """Maxima of a sum: a layer that adds, with one behind it that might overlap with it."""
    s = Sketch(np.random.default_rng(seed))
    x = s.conv(s.input((1, *shape), signed=bool(seed % 2), exponent=-6), 8, same_window(3))
    y = s.conv(s.conv(s.conv(x, 16, same_window(1)), 16, same_window(3), 16), 8, same_window(1))
    return s.graph((s.pool(MaxPool(Window((2, 2), (2, 2))), s.add(x, y)),))


def flattened(seed: int, shape: tuple[int, int, int]) -> Graph:
    """Fully connected layers behind a map."""
    s = Sketch(np.random.default_rng(seed))
    x = s.conv(s.input((1, *shape), signed=bool(seed % 2), exponent=-6), 6, same_window(1))
    return s.graph((s.gemm(s.gemm(x, 11), 5),))


def pooled(seed: int, shape: tuple[int, int, int], window: Window) -> Graph:
    """An average of windows between convolutions."""
    s = Sketch(np.random.default_rng(seed))
    x = s.conv(s.input((1, *shape), signed=bool(seed % 2), exponent=-6), 6, same_window(1))
    x = s.pool(AvgPool(window, count_pads=True), x)
    return s.graph((s.conv(x, 4, same_window(1)),))


def separable(seed: int, shape: tuple[int, int, int], window: Window) -> Graph:
    """A block of separable convolutions in small: activations by themselves, the largest of windows, a shortcut."""
    s = Sketch(np.random.default_rng(seed))
    x = s.conv(s.input((1, *shape), signed=bool(seed % 2), exponent=-6), 6, same_window(1))
    y = s.clip(x)
    y = s.conv(s.conv(y, 6, same_window(3), 6), 9, same_window(1))
    y = s.pool(MaxPool(window), y)
    short = s.conv(x, 9, Window((1, 1), window.stride))
    y = s.add(s.conv(s.clip(y), 9, same_window(1)), short)
    return s.graph((s.clip(s.gemm(y, 5)),))


def excited(s: Sketch, x: str, squeezed: int, first: bool) -> str:
    """A map times one value per channel made of its averages, as either operand."""
    channels = s.tensors[x].shape[1]
    gate = table(s, s.conv(s.pool(GlobalAvgPool(), x), squeezed, Window((1, 1))))
    gate = table(s, s.conv(gate, channels, Window((1, 1))))
    return s.mul(gate, x) if first else s.mul(x, gate)


def table(s: Sketch, x: str, seed: int = 0) -> str:
    """One table for all channels; equal where seeds and schemes are."""
    source = s.tensors[x].scheme
    assert source is not None
    values = np.random.default_rng(seed).integers(-128, 128, 256).astype(np.int8)
    return s.append(Lookup("noise", source.signed), (x,), Scheme(8, True, (source.exponent,)),
                    (Constant(f"table{len(s.constants)}", values),))


def gated(seed: int, shape: tuple[int, int, int], kernel: int = 3) -> Graph:
    """Inverted residuals with tables and gates, tables behind an addition and by themselves, a product of two maps."""
    s = Sketch(np.random.default_rng(seed))
    x = table(s, s.conv(s.input((1, *shape), signed=bool(seed % 2), exponent=-6), 6, same_window(1)))
    y = table(s, s.conv(table(s, s.conv(x, 14, Window((1, 1))), 1), 14, same_window(kernel), 14))
    x = table(s, s.add(s.conv(excited(s, y, 3, bool(seed % 2)), 6, Window((1, 1))), x), 2)
    y = s.conv(table(s, table(s, x, 3)), 6, same_window(1))
    x = s.conv(s.mul(x, y), 9, Window((3, 3), (2, 2), (1, 1, 1, 1)))
    return s.graph((s.gemm(excited(s, x, 2, False), 5),))


def averaged(seed: int, shape: tuple[int, int, int]) -> Graph:
    """An average of the input itself."""
    s = Sketch(np.random.default_rng(seed))
    return s.graph((s.pool(GlobalAvgPool(), s.input((1, *shape), signed=bool(seed % 2), exponent=-6)),))


def standard_chain(seed: int) -> Graph:
    """Convolutions that the array does: uneven windows, padding beyond the kernel, groups, filters that share a channel."""
    s = Sketch(np.random.default_rng(seed))
    x = s.conv(s.input((1, 5, 9, 8), exponent=-6), 9, same_window(3))
    x = s.conv(x, 12, Window((3, 2), (1, 2), (1, 1, 0, 1), (1, 2)))
    x = s.conv(x, 9, same_window(3), 3)
    x = s.conv(x, 18, Window((2, 2), pads=(2, 2, 2, 2)), 9)
    return s.graph((s.conv(x, 7, Window((1, 1), (2, 3))),))


def depthwise_chain(seed: int) -> Graph:
    """Windows that the depthwise array does: sizes, strides, uneven padding, none at all, one row."""
    s = Sketch(np.random.default_rng(seed))
    x = s.input((1, 6, 17, 15), signed=False, exponent=-6)
    for window in (Window((7, 7), (2, 2), (3, 3, 3, 3)), same_window(5), Window((3, 3), (1, 1), (0, 0, 1, 1)), Window((3, 3)),
                   Window((1, 3), pads=(0, 1, 0, 1)), Window((2, 3), (2, 1), (1, 0, 0, 2))):
        x = s.conv(x, 6, window, 6)
    return s.graph((x,))


def cases() -> dict[str, Case]:
    """Blocks by name, with sizes that fit none of the channel counts."""
    small, narrow = Config(4, 8), Config(4, 4, taps=3, latency_clocks=9)
    wide = Config(6, 18, taps=4, port_bytes=8, bandwidth_bytes=8)
    slow = Config(4, 8, bandwidth_bytes=5, latency_clocks=130)
    plain = Config(4, 8, overlap=False, input_buffers=1)
    square, two = same_window(3), Window((3, 3), (2, 2), (1, 1, 1, 1))
    return {
        "two_masters": (compact(21, (4, 6, 6), 9), Config(4, 8, port_bytes=32, bandwidth_bytes=14.375, masters=2)),
        "four_masters": (standard_chain(1), Config(12, 24, taps=3, port_bytes=64, bandwidth_bytes=57.5625, masters=4)),
        "pointwise": (layer(0, (5, 4, 5), 13, Window((1, 1))), small),
        "standard_chain": (standard_chain(1), narrow),
        "depthwise_chain": (depthwise_chain(2), Config(4, 4, taps=10, kernel=7)),
        "depthwise_strided": (layer(7, (9, 7, 6), 9, two, 9), narrow),
        "depthwise_in_the_array": (layer(14, (9, 6, 7), 9, same_window(5), 9), small),
        "depthwise_low": (layer(16, (5, 1, 3), 5, square, 5), small),
        "compact_wide": (compact(19, (3, 8, 7), 21), wide),
        "compact_slow": (compact(21, (4, 6, 6), 9), slow),
        "compact_plain": (compact(22, (3, 9, 8), 9), plain),
        "compact_packed": (compact(37, (3, 8, 8), 9), Config(6, 12, taps=5, packed=True)),
        "compact_soft": (compact(38, (3, 8, 8), 9), Config(4, 12, taps=5, soft=4)),
        "compact_all_soft": (compact(39, (3, 7, 8), 9), Config(6, 6, taps=5, soft=6)),
        "compact_monolithic": (compact(32, (3, 9, 8), 9), Config(4, 8, taps=4, monolithic=True)),
        "compact_one_word": (compact(33, (3, 7, 8), 9), Config(5, 5, taps=5, monolithic=True, overlap=False)),
        "residual": (residual(23, (4, 6, 7)), small),
        "flattened": (flattened(25, (5, 3, 4)), small),
        "pooled": (pooled(26, (5, 6, 7), two), small),
        "pooled_in_the_array": (pooled(27, (5, 6, 7), Window((5, 4), (1, 2))), small),
        "separable_phases": (separable(35, (5, 8, 8), Window((2, 2), (2, 2))), Config(4, 8, taps=3, kernel=4)),
        "separable_monolithic": (separable(36, (5, 9, 7), two), Config(6, 12, taps=5, monolithic=True)),
        "averaged": (averaged(28, (9, 7, 7)), small),
        "gated": (gated(41, (5, 6, 7)), small),
        "gated_wide": (gated(42, (3, 7, 5), 5), Config(6, 18, taps=4, kernel=5, port_bytes=8, bandwidth_bytes=8)),
        "gated_packed": (gated(43, (3, 6, 6)), Config(5, 10, taps=5, packed=True, overlap=False)),
        "gated_monolithic": (gated(44, (3, 6, 6)), Config(4, 8, taps=4, monolithic=True)),
    }


def outside_cases() -> dict[str, Case]:
    """Blocks whose maps lie in external memory: words narrower and wider than a beat, and all kinds of layers in stripes."""
    return {
        "outside_narrow": (compact(18, (3, 12, 9), 9), Config(4, 8, map_bytes=200)),
        "outside_wide": (compact(21, (4, 10, 10), 9), Config(24, 24, bandwidth_bytes=12, latency_clocks=80, map_bytes=1200)),
        "outside_packed": (compact(37, (3, 16, 16), 9), Config(16, 16, taps=5, packed=True, bandwidth_bytes=12, latency_clocks=80,
                                                               map_bytes=1024)),
        "outside_uneven": (compact(22, (3, 9, 8), 9), Config(6, 18, taps=4, port_bytes=8, bandwidth_bytes=5, overlap=False,
                                                             input_buffers=1, map_bytes=240)),
        "outside_monolithic": (separable(35, (5, 12, 8), Window((2, 2), (2, 2))),
                               Config(4, 8, taps=3, kernel=4, monolithic=True, map_bytes=200)),
        "outside_residual": (residual(23, (4, 10, 7)), Config(4, 8, map_bytes=120)),
        "outside_pooled_sum": (pooled_sum(47, (2, 7, 7)), Config(4, 4, taps=5, map_bytes=256)),
        "outside_gated": (gated(45, (5, 12, 8)), Config(4, 8, map_bytes=200)),
        "outside_two_masters": (compact(18, (3, 12, 9), 9), Config(4, 8, port_bytes=32, bandwidth_bytes=28.75, masters=2,
                                                                  map_bytes=600)),
        "striped_ring": (compact(18, (3, 12, 9), 9), Config(4, 16, map_bytes=2200)),
    }
