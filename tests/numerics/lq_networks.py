"""Small networks of learned quantization with seeded weights, for tests."""

from __future__ import annotations

import numpy as np

from dovetail.ir import Array, Coded, Constant, Conv, Gemm, Graph, MaxPool, Node, Reshape, Scheme, Tensor, Window
from dovetail.numerics.lq import LearnedLayer, boundaries_of, coded_node, ranked

IMAGE = Scheme(8, False, (-8,))


def learned(rng: np.random.Generator, body: Conv | Gemm, shape: tuple[int, ...], weight_bits: int,
            input_bits: int) -> LearnedLayer:
    """A layer whose weights, bases, gains (of both signs) and offsets are drawn."""
    filters = shape[0]
    if weight_bits:
        weights = rng.integers(0, 1 << weight_bits, shape).astype(np.uint8)
        basis = rng.normal(0, 1, (filters, weight_bits)) / np.sqrt(np.prod(shape[1:]))
    else:
        weights = rng.integers(-127, 128, shape).astype(np.int8)
        basis = np.exp2(rng.integers(-9, -6, (filters, 1)).astype(np.float64))
    input_basis = np.sort(rng.uniform(0.2, 1.0, input_bits)) if input_bits else np.asarray([IMAGE.scale])
    return LearnedLayer(body, weights, weight_bits, basis, input_bits, input_basis, rng.normal(0, 1, filters),
                        rng.normal(0.3, 0.5, filters))


def conv_of(shape: tuple[int, ...], groups: int = 1, stride: int = 1, pad: int = 1) -> Conv:
    return Conv(shape[0], Window((shape[2], shape[3]), (stride, stride), (pad,) * 4), groups)


def network(seed: int, weight_bits: int, input_bits: int, product_bits: int = 9, last: str = "fixed") -> Graph:
    """Image → 8-bit convolution to codes → coded convolution → maximum → coded convolution → fully connected."""
    rng = np.random.default_rng(seed)
    basis = np.sort(rng.uniform(0.2, 1.0, input_bits))
    boundaries = boundaries_of(ranked(basis)[0]).tolist()
    codes = Scheme(input_bits, False, (0,))
    tensors = [Tensor("x", (1, 3, 8, 8), IMAGE)]
    nodes: list[Node] = []
    constants: list[Constant] = []

    def add(name: str, body: Conv | Gemm, shape: tuple[int, ...], source: str, wbits: int, abits: int,
            fixed: Scheme | None) -> None:
        layer = learned(rng, body, shape, wbits, abits)
        if abits:
            layer = LearnedLayer(*(basis if f == "input_basis" else getattr(layer, f) for f in layer.__dataclass_fields__))
        node, own = coded_node(name, layer, source, f"{name}_y", None if fixed else boundaries, 255, product_bits)
        nodes.append(node)
        constants.extend(own)
        given = next(t.shape for t in tensors if t.name == source)
        tensors.append(Tensor(f"{name}_y", node.op.infer((given,)), fixed or codes))

    add("first", conv_of((8, 3, 3, 3)), (8, 3, 3, 3), "x", 0, 0, None)
    add("second", conv_of((8, 8, 3, 3)), (8, 8, 3, 3), "first_y", weight_bits, input_bits, None)
    nodes.append(Node("pool", MaxPool(Window((2, 2), (2, 2))), ("second_y",), (), "pool_y"))
    tensors.append(Tensor("pool_y", (1, 8, 4, 4), codes))
    add("third", conv_of((8, 4, 3, 3), 2), (8, 4, 3, 3), "pool_y", weight_bits, input_bits, None)
    nodes.append(Node("flatten", Reshape((1, 128)), ("third_y",), (), "flat"))
    tensors.append(Tensor("flat", (1, 128), codes))
    add("last", Gemm(10), (10, 128), "flat", weight_bits, input_bits, Scheme(16, True, (-8,)) if last == "fixed" else None)
    return Graph("lq", ("x",), ("last_y",), tuple(nodes), {t.name: t for t in tensors}, {c.name: c for c in constants})


def images(seed: int, count: int) -> dict[str, Array]:
    return {"x": np.random.default_rng(seed).integers(0, 256, (count, 3, 8, 8)).astype(np.uint8)}


def coded(graph: Graph) -> list[Node]:
    return [n for n in graph.nodes if isinstance(n.op, Coded)]
