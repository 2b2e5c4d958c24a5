"""Networks whose layers have different bits: int8, int4, or codes over learned bases, chosen layer by layer after training.

`int8` and `int4` give a layer's weights and the tensor it reads so many bits; `lq2` makes it a layer of codes, weights and input
of 2 bits (1 to 4), bases fitted to the weights and to calibration samples, the mean shift of its outputs taken up by its bias.
A tensor has the bits of the reader that asks for most; what enters the network, or is joined with others, keeps 8. A layer that
reads numbers below zero, or the network's input, reads it as bytes and has coded weights alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from dovetail.errors import ModelError, UnsupportedError, UsageError
from dovetail.ir import RELU, Array, Constant, Conv, Gemm, Graph, Node, Real, Scheme, Tensor
from dovetail.numerics import lq
from dovetail.numerics.calibration import Samples
from dovetail.numerics.equalize import Equalise
from dovetail.numerics.kernels import channel_means, weighted_sum
from dovetail.numerics.lq import LearnedLayer, boundaries_of, coded_node, levels_of, ranked, threshold_node, weight_values
from dovetail.numerics.observe import chunks, float_values
from dovetail.numerics.quantize import quantize_network
from dovetail.numerics.tables import tabulate
from dovetail.progress import Progress

WHOLE = "int8"
KINDS = (WHOLE, "int4", "lq2")
PRODUCT_BITS = 8
"""Of a basis's products: post-training codes are far coarser than what more would say."""
SEEN = 64
"""Samples, the first ones, from which bases of activations and mean shifts are taken."""


def bits_of(kind: str) -> tuple[bool, int]:
    """Whether a kind means codes, and its bits.

    Raises:
        UsageError: it is none.
    """
    found = re.fullmatch(r"(int|lq)(\d)", kind)
    if found is not None:
        codes, bits = found[1] == "lq", int(found[2])
        if (1 <= bits <= 4) if codes else (2 <= bits <= 8):
            return codes, bits
    raise UsageError(f"bits {kind!r}: unknown; int2 to int8 and lq1 to lq4 exist")


@dataclass(slots=True)
class BitChoices:
    """A float network and everything of its choices that does not depend on each other, worked out once."""

    network: Graph
    samples: Samples
    progress: Progress
    uniform: dict[int, Graph] = field(default_factory=dict)
    """The network with all layers of so many bits."""
    reads: dict[str, Array] = field(default_factory=dict)
    """What calibration samples bring to every layer, by tensor."""
    fitted: dict[tuple[str, int], tuple[Array, Real]] = field(default_factory=dict)
    levels: dict[tuple[str, int], Real] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.network.quantized:
            raise ModelError(f"{self.network.name}: came quantized; bits are chosen for a float model")
        wanted = {n.inputs[0] for n in self.layers}
        few = {name: x[:SEEN] for name, x in self.samples.values.items()}
        parts: dict[str, list[Array]] = {name: [] for name in wanted}
        for _, chunk in chunks(self.network, few):
            for name, x in float_values(self.network, chunk):
                if name in wanted:
                    parts[name].append(x)
        self.reads = {name: np.concatenate(found) for name, found in parts.items()}

    @property
    def layers(self) -> tuple[Node, ...]:
        """Nodes whose bits are chosen."""
        return tuple(n for n in self.network.nodes if n.op.product)

    def offers(self, node: Node, kind: str) -> bool:
        """Whether a layer can have a kind: codes are limited by their schemes, so other bounds than ReLU's need integers."""
        return not bits_of(kind)[0] or node.op.bounds in (None, RELU)

    def whole(self, bits: int) -> Graph:
        """All layers of so many bits, as integers."""
        if bits not in self.uniform:
            self.uniform[bits] = quantize_network(self.network, self.samples, bits, self.progress, Equalise.OFF).graph
        return self.uniform[bits]

    def graph(self, kinds: Mapping[str, str]) -> Graph:
        """The integer graph with the kind of every layer that is named; the others are int8."""
        for node in self.layers:
            if not self.offers(node, kinds.get(node.name, WHOLE)):
                raise UnsupportedError(f"{node.name}: {kinds[node.name]} for a layer with a bound above; int8 or int4 keep it")
        asked = self._asked(kinds)
        schemes = {t: self.whole(asked.get(t, 8)).tensors[t].scheme if t in self.whole(8).tensors else None
                   for t in self.network.tensors}
        graph = replace(self.network, tensors={n: replace(t, scheme=schemes[n]) for n, t in self.network.tensors.items()})
        nodes, tensors, constants = list[Node](), dict(graph.tensors), dict[str, Constant]()
        codes: dict[tuple[str, int], str] = {}
        for node in self.network.nodes:
            coded, bits = bits_of(kinds.get(node.name, WHOLE))
            if not node.op.product:
                nodes.append(node)
                constants |= {name: self.network.constants[name] for name in node.params}
            elif not coded:
                nodes.append(node)
                constants |= self._integers(node, bits, graph)
            else:
                made, own = self._coded(node, bits, graph, codes, tensors)
                nodes += made
                constants |= {c.name: c for c in own}
        return tabulate(replace(graph, nodes=tuple(nodes), tensors=tensors, constants=constants))

    def _asked(self, kinds: Mapping[str, str]) -> dict[str, int]:
        """Bits of every tensor: the most that a reader asks for; whatever only moves asks what its own readers do."""
        found: dict[str, int] = {}
        for node in reversed(self.network.nodes):
            coded, bits = bits_of(kinds.get(node.name, WHOLE))
            wanted = found.get(node.output, 8) if node.op.commutes else 8 if coded or not node.op.product else bits
            for tensor in node.inputs:
                found[tensor] = max(found.get(tensor, 0), wanted)
        ends = {*self.network.inputs, *self.network.outputs}
        moved = {n.output for n in self.network.nodes if n.op.commutes}
        found |= dict.fromkeys(ends, 8)
        for node in self.network.nodes:  # moved values keep the bits of where they come from
            if node.output in moved:
                found[node.output] = found[node.inputs[0]]
        return found

    def _integers(self, node: Node, bits: int, graph: Graph) -> dict[str, Constant]:
        """Weights of so many bits, and the bias over the scale that the input has here."""
        own = self.whole(bits)
        weight, bias = own.constants[node.params[0]], own.constants[node.params[1]]
        source = graph.scheme(node.inputs[0])
        assert weight.scheme is not None
        assert bias.scheme is not None
        exponents = tuple(source.exponent + e for e in weight.scheme.exponents)
        steps = np.ldexp(bias.array.astype(np.float64), np.asarray(bias.scheme.exponents) - np.asarray(exponents))
        limit = float((1 << 31) - 1)
        moved = np.clip(np.rint(steps), -limit, limit).astype(np.int32)
        return {weight.name: weight, bias.name: Constant(bias.name, moved, Scheme(32, True, exponents, 0))}

    def _coded(self, node: Node, bits: int, graph: Graph, codes: dict[tuple[str, int], str],
               tensors: dict[str, Tensor]) -> tuple[list[Node], list[Constant]]:
        """A layer of codes, behind thresholds where its input is coded too."""
        assert isinstance(node.op, Conv | Gemm)
        (source,), scheme = node.inputs, graph.scheme(node.inputs[0])
        made, own = list[Node](), list[Constant]()
        plain = self.is_plain(source, scheme.signed)
        basis = np.asarray([scheme.scale]) if plain else self.basis_of(source, bits)
        planes = 0 if plain else len(basis)
        if not plain and (source, bits) not in codes:
            codes[source, bits] = f"{source}_codes{bits}"
            entry, steps = threshold_node(f"{node.name}_entry", source, codes[source, bits], scheme,
                                          self.boundaries_of(source, basis))
            made.append(entry)
            own.append(steps)
            tensors[codes[source, bits]] = Tensor(codes[source, bits], graph.shape(source), Scheme(planes, False, (0,)))
        weights, fitted = self.codes_of(node, bits)
        affine = self.affine_of(node, weights, fitted, None if plain else basis, scheme)
        coded_bits = 0 if weights.dtype == np.int8 else fitted.shape[1]
        layer = LearnedLayer(replace(node.op, clamp=None), weights, coded_bits, fitted, planes, basis, *affine)
        coded, constants = coded_node(node.name, layer, source if plain else codes[source, bits], node.output, None,
                                      max(-scheme.lo, scheme.hi), PRODUCT_BITS)
        return [*made, coded], [*own, *constants]

    def is_plain(self, tensor: str, signed: bool) -> bool:
        """Whether a layer of codes reads a tensor as the integers it is stored in."""
        return signed or tensor in self.network.inputs

    def basis_of(self, tensor: str, bits: int) -> Real:
        """The basis over which a tensor is read."""
        if (tensor, bits) not in self.levels:
            self.levels[tensor, bits] = lq.fit_levels(self.reads[tensor], bits)
        return self.levels[tensor, bits]

    def boundaries_of(self, tensor: str, basis: Real) -> list[float]:
        """From which numbers on the codes over a tensor's basis are reached."""
        found: list[float] = boundaries_of(ranked(basis)[0]).tolist()
        return found

    def codes_of(self, node: Node, bits: int) -> tuple[Array, Real]:
        """A layer's weights as codes with the basis of each filter, or as plain int8 with its scale."""
        key = (node.name, bits)
        if key not in self.fitted:
            self.fitted[key] = lq.fit_weights(self.network.constants[node.params[0]].array, bits)
        return self.fitted[key]

    def affine_of(self, node: Node, codes: Array, fitted: Real, basis: Real | None, scheme: Scheme) -> tuple[Real, Real]:
        """Gains of one; the bias, and what coding weights and input takes from the mean of every output."""
        assert isinstance(node.op, Conv | Gemm)
        weight, *bias = (self.network.constants[p].array for p in node.params)
        x = self.reads[node.inputs[0]]
        seen = _nearest(x, np.sort(levels_of(basis))) if basis is not None else \
            (np.clip(np.rint(x / scheme.scale), scheme.lo, scheme.hi) * scheme.scale).astype(np.float32)
        lost = channel_means(weighted_sum(node.op, x, weight.astype(np.float32))) \
            - channel_means(weighted_sum(node.op, seen, weight_values(codes, fitted).astype(np.float32)))
        return np.ones(len(codes)), sum((b.astype(np.float64) for b in bias), lost)


def _nearest(x: Array, levels: Real) -> Array:
    found: Array = levels[np.searchsorted(boundaries_of(levels), x, side="right")].astype(np.float32)
    return found


def named(layers: Sequence[Node], kinds: Sequence[str]) -> dict[str, str]:
    """Kinds by layer."""
    return {n.name: k for n, k in zip(layers, kinds, strict=True)}
