"""AlexNet in learned quantization with drawn weights: the network of *LQ multi-FPGA 2020*, for boards and benches.

One tower, BatchNorm in the place of local response normalisation, 2-bit weights and activations, first and last layer with int8
weights: 149.5 Mbit. Fully connected layers are convolutions whose kernel is the whole map, so that a map never has to be
flattened on its way from one board to another. Weights are drawn, gains such that all codes occur.
"""

from __future__ import annotations

import numpy as np

from dovetail.ir import Array, Constant, Conv, Graph, MaxPool, Node, Scheme, Tensor, Window
from dovetail.numerics.lq import LearnedLayer, boundaries_of, coded_node, ranked

IMAGE = Scheme(8, False, (-8,))
FIXED = Scheme(16, True, (-8,))
BITS = 2
"""Of the codes of inner layers."""
BASIS = np.asarray([0.52, 1.05])
"""Near the best two levels for what BatchNorm and ReLU leave."""
PRODUCT_BITS = 12
POOL = MaxPool(Window((3, 3), (2, 2)))


def lq_alexnet(size: int = 227, width: int = 96, units: int = 4096, classes: int = 1000) -> Graph:
    """The network for images of `size`; 227, 96, 4096 and 1000 are the published ones."""
    built = _Network(size)
    built.layer("conv1", width, 11, 4, 0, plain=True, pool=True)
    built.layer("conv2", width * 8 // 3, 5, 1, 2, pool=True)
    built.layer("conv3", width * 4, 3, 1, 1)
    built.layer("conv4", width * 4, 3, 1, 1)
    built.layer("conv5", width * 8 // 3, 3, 1, 1, pool=True)
    built.layer("fc6", units, built.rows, 1, 0)
    built.layer("fc7", units, 1, 1, 0)
    built.layer("fc8", classes, 1, 1, 0, plain=True, last=True)
    return built.graph()


class _Network:
    """Layers as they are added."""

    def __init__(self, size: int) -> None:
        self.rng, self.boundaries = np.random.default_rng(0), boundaries_of(ranked(BASIS)[0]).tolist()
        self.tensors = [Tensor("image", (1, 3, size, size), IMAGE)]
        self.nodes: list[Node] = []
        self.constants: list[Constant] = []

    @property
    def rows(self) -> int:
        return self.tensors[-1].shape[2]

    def layer(self, name: str, filters: int, kernel: int, stride: int, pad: int, plain: bool = False, pool: bool = False,
              last: bool = False) -> None:
        """A convolution to codes, or to numbers where it is the last, and a maximum pool behind it."""
        source, first = self.tensors[-1], not self.nodes
        body = Conv(filters, Window((kernel, kernel), (stride, stride), (pad,) * 4))
        codes, basis, spread = self._weights((filters, source.shape[1], kernel, kernel), plain)
        inputs = np.asarray([IMAGE.scale]) if first else BASIS
        taps = source.shape[1] * kernel * kernel
        level = 0.29 if first else 0.5 * float(BASIS.sum())
        gain = self.rng.normal(1, 0.2, filters) / (spread * level * np.sqrt(taps))
        layer = LearnedLayer(body, codes, 0 if plain else BITS, basis, 0 if first else BITS, inputs, gain,
                             self.rng.normal(0.4, 0.3, filters))
        node, own = coded_node(name, layer, source.name, f"{name}_y", None if last else self.boundaries, 255, PRODUCT_BITS)
        self.nodes.append(node)
        self.constants += own
        scheme = FIXED if last else Scheme(BITS, False, (0,))
        self.tensors.append(Tensor(f"{name}_y", body.infer((source.shape,)), scheme))
        if pool:
            shape = POOL.infer((self.tensors[-1].shape,))
            self.nodes.append(Node(f"{name}_pool", POOL, (f"{name}_y",), (), f"{name}_pool_y"))
            self.tensors.append(Tensor(f"{name}_pool_y", shape, scheme))

    def _weights(self, shape: tuple[int, ...], plain: bool) -> tuple[Array, Array, float]:
        """Weights as integers or codes, their basis, and how far they spread."""
        if plain:
            weights = np.clip(np.rint(self.rng.normal(0, 32, shape)), -127, 127).astype(np.int8)
            return weights, np.full((shape[0], 1), 2.0**-6), 0.5
        basis = np.outer(self.rng.uniform(0.8, 1.2, shape[0]), 0.5 * 2.0 ** np.arange(BITS))
        return self.rng.integers(0, 1 << BITS, shape).astype(np.uint8), basis, float(basis[:, -1].mean())

    def graph(self) -> Graph:
        return Graph("lq_alexnet", ("image",), (self.tensors[-1].name,), tuple(self.nodes), {t.name: t for t in self.tensors},
                     {c.name: c for c in self.constants})


def weight_bits_of(graph: Graph, *nodes: Node) -> int:
    """Bits of all weights and codes of a network, or of some of its nodes: what memory must hold at least."""
    return sum(graph.params(node)[0].array.size * (getattr(node.op, "weight_bits", 8) or 8)
               for node in nodes or graph.nodes if node.params)
