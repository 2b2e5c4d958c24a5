"""A trained network as a graph: integers for quantized ones, floats for the others; BatchNorm is folded either way.

Quantized layers become `Coded` nodes whose products are rounded once. Residual sums travel as 16-bit fixed point, thresholds
turn them into codes where a layer reads them; a shortcut that changes shape is a convolution with ones, which rounds nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import ceil, log2
from typing import Any

import numpy as np
import torch
from torch import nn

from dovetail import ir
from dovetail.numerics.lq import PRODUCT_BITS, LearnedLayer, boundaries_of, coded_node, ranked, threshold_node
from dovetail.train.levels import ScaledActivation, ScaledWeight
from dovetail.train.networks import Chain, Residual, ResidualBlock, TrainedLayer, affine_of
from dovetail.train.quantizers import ByteActivation, ByteWeight

IMAGE = ir.Scheme(8, False, (-8,))
"""Bytes over 256, as the networks are trained on."""
HEADROOM = 2.0
"""Times the largest value seen that a fixed-point tensor holds."""


@dataclass(frozen=True, slots=True)
class TrainedTensor:
    """What a layer's input means: codes over a basis, or plain integers (`bits` 0) over one scale up to `reach`.

    A basis of integers counts units, each of which is `unit`: it goes into gains, so that products stay integers.
    """

    tensor: str
    bits: int
    basis: ir.Real
    reach: int = 1
    unit: float = 1.0


@dataclass(slots=True)
class _Exporter:
    largest: Mapping[int, float]
    """The largest magnitude that each module was seen to write."""
    product_bits: int
    floating: bool
    nodes: list[ir.Node] = field(default_factory=list)
    tensors: dict[str, ir.Tensor] = field(default_factory=dict)
    constants: list[ir.Constant] = field(default_factory=list)

    def add(self, node: ir.Node, constants: tuple[ir.Constant, ...], scheme: ir.Scheme | None) -> str:
        shapes = tuple(self.tensors[t].shape for t in node.inputs)
        self.nodes.append(node)
        self.constants += constants
        self.tensors[node.output] = ir.Tensor(node.output, node.op.infer(shapes), scheme)
        return node.output

    def plain(self, name: str, op: ir.Op, inputs: tuple[str, ...], scheme: ir.Scheme | None) -> str:
        """A node without constants."""
        return self.add(ir.Node(name, op, inputs, (), f"{name}_out"), (), scheme)

    def fixed(self, largest: float, signed: bool) -> ir.Scheme:
        """Sixteen bits that hold values up to `largest` with room to spare."""
        return ir.Scheme(16, signed, (ceil(log2(max(largest, 1e-6) * HEADROOM)) - (15 if signed else 16),))

    def layer(self, name: str, layer: Any, source: TrainedTensor, scheme: ir.Scheme | None, clamp: bool = False) -> TrainedTensor:
        """A layer and its pool; `scheme` is that of its output where it has no quantizer of its own."""
        body = _body(layer)
        if not layer.kernel and len(self.tensors[source.tensor].shape) == 4:
            shape = self.tensors[source.tensor].shape
            flat = self.plain(f"{name}_flatten", ir.Reshape((shape[0], int(np.prod(shape[1:])))), (source.tensor,),
                              self.tensors[source.tensor].scheme)
            source = replace(source, tensor=flat)
        result = self._floats(name, layer, body, source, clamp) if self.floating \
            else self._coded(name, layer, body, source, scheme)
        if layer.pool is None:
            return result
        size, stride = layer.pool
        pooled = self.plain(f"{name}_pool", ir.MaxPool(ir.Window((size, size), (stride, stride))), (result.tensor,),
                            self.tensors[result.tensor].scheme)
        return replace(result, tensor=pooled)

    def _floats(self, name: str, layer: Any, body: ir.Conv | ir.Gemm, source: TrainedTensor, clamp: bool) -> TrainedTensor:
        gain, offset = _affine(layer)
        weight = _array(layer.weight) * gain.reshape(-1, *[1] * (layer.weight.ndim - 1))
        own = (ir.Constant(f"{name}_weight", weight.astype(np.float32)), ir.Constant(f"{name}_bias", offset.astype(np.float32)))
        limit = ir.RELU if clamp or layer.activation is not None else None
        op = replace(body, clamp=limit)
        node = ir.Node(name, op, (source.tensor,), tuple(c.name for c in own), f"{name}_out")
        return TrainedTensor(self.add(node, own, None), 0, np.ones(1))

    def _coded(self, name: str, layer: Any, body: ir.Conv | ir.Gemm, source: TrainedTensor,
               scheme: ir.Scheme | None) -> TrainedTensor:
        weights, bits, basis, unit = _weights(layer)
        gain, offset = _affine(layer)
        learned = LearnedLayer(body, weights, bits, basis, source.bits, source.basis, gain * unit * source.unit, offset)
        activation = layer.activation
        if activation is None or isinstance(activation, ByteActivation):
            if activation is not None:
                scheme = ir.Scheme(8, False, (int(activation.exponent()),))
            assert scheme is not None
            node, own = coded_node(name, learned, source.tensor, f"{name}_out", None, source.reach, self.product_bits)
            return TrainedTensor(self.add(node, own, scheme), 0, np.asarray([scheme.scale]), scheme.hi)
        read = trained_reader(activation)
        node, own = coded_node(name, learned, source.tensor, f"{name}_out", read.boundaries, source.reach, self.product_bits)
        return read.of(self.add(node, own, ir.Scheme(len(read.basis), False, (0,))))

    def chain(self, network: Any, image: TrainedTensor) -> str:
        source = image
        for i, layer in enumerate(network.layers):
            source = self.layer(f"layer{i + 1}", layer, source, self.logits(layer) if layer.activation is None else None)
        return source.tensor

    def logits(self, layer: Any) -> ir.Scheme | None:
        return None if self.floating else self.fixed(self.largest[id(layer)], True)

    def residual(self, network: Any, image: TrainedTensor) -> str:
        """One scheme for all residual sums, so that additions only add."""
        sums = [self.largest[id(m)] for m in network.modules() if isinstance(m, ResidualBlock) or m is network.first
                or any(m is b.second for b in network.blocks)]
        wide = None if self.floating else self.fixed(max(sums), False)
        signed = None if self.floating else self.fixed(max(sums), True)
        stream = self.layer("first", network.first, image, wide, clamp=True)
        for i, block in enumerate(network.blocks):
            stream = self._block(f"block{i + 1}", block, stream, wide, signed)
        mean = self.plain("average", ir.GlobalAvgPool(), (stream.tensor,), wide)
        averaged = TrainedTensor(mean, 0, stream.basis, stream.reach)
        return self.layer("last", network.last, averaged, self.logits(network.last)).tensor

    def _block(self, name: str, block: Any, stream: TrainedTensor, wide: ir.Scheme | None,
               signed: ir.Scheme | None) -> TrainedTensor:
        inner = self.layer(f"{name}_first", block.first, self._entry(name, block, stream, wide), None)
        branch = self.layer(f"{name}_second", block.second, inner, signed)
        shortcut = self._shortcut(name, block, stream.tensor, wide)
        total = self.plain(f"{name}_add", ir.Add(ir.RELU), (branch.tensor, shortcut), wide)
        return TrainedTensor(total, 0, stream.basis, stream.reach)

    def _entry(self, name: str, block: Any, stream: TrainedTensor, wide: ir.Scheme | None) -> TrainedTensor:
        if wide is None:
            return stream
        activation = block.entry.activation
        if isinstance(activation, ByteActivation):
            scheme = ir.Scheme(8, False, (int(activation.exponent()),))
            stored = self.plain(f"{name}_entry", ir.Clip(), (stream.tensor,), scheme)
            return TrainedTensor(stored, 0, np.asarray([scheme.scale]), scheme.hi)
        read = trained_reader(activation)
        gain, offset = affine_of(block.entry.norm)
        node, steps = threshold_node(f"{name}_entry", stream.tensor, f"{name}_entry_out", wide, read.boundaries, gain, offset)
        return read.of(self.add(node, (steps,), ir.Scheme(len(read.basis), False, (0,))))

    def _shortcut(self, name: str, block: Any, tensor: str, wide: ir.Scheme | None) -> str:
        stride, grow = block.shortcut.stride, block.shortcut.grow
        if stride == 1 and not grow:
            return tensor
        channels = self.tensors[tensor].shape[1]
        ones = np.eye(channels + grow, channels).reshape(channels + grow, channels, 1, 1)
        weight, bias = (ir.Constant(f"{name}_shortcut_weight", ones.astype(np.float32)),
                        ir.Constant(f"{name}_shortcut_bias", np.zeros(channels + grow, dtype=np.float32)))
        if wide is not None:
            weight = ir.Constant(weight.name, ones.astype(np.int8), ir.Scheme(8, True, (0,) * (channels + grow), 0))
            bias = ir.Constant(bias.name, bias.array.astype(np.int32), ir.Scheme(32, True, wide.exponents * (channels + grow), 0))
        op = ir.Conv(channels + grow, ir.Window((1, 1), (stride, stride)))
        return self.add(ir.Node(f"{name}_shortcut", op, (tensor,), (weight.name, bias.name), f"{name}_shortcut_out"),
                        (weight, bias), wide)


def _array(tensor: Any) -> ir.Real:
    found: ir.Real = tensor.detach().cpu().double().numpy()
    return found


def _body(layer: Any) -> ir.Conv | ir.Gemm:
    filters = int(layer.weight.shape[0])
    if not layer.kernel:
        return ir.Gemm(filters)
    return ir.Conv(filters, ir.Window((layer.kernel, layer.kernel), (layer.stride, layer.stride), (layer.pad,) * 4))


def _affine(layer: Any) -> tuple[ir.Real, ir.Real]:
    """Gain and offset of BatchNorm as it evaluates, or one and the bias."""
    if layer.norm is None:
        return np.ones(len(layer.weight)), _array(layer.bias)
    return affine_of(layer.norm)


def _weights(layer: Any) -> tuple[ir.Array, int, ir.Real, float]:
    """Codes with their basis, or plain bytes with their scale; then what one of the basis or scale counts."""
    weight, quantizer = layer.weight.detach(), layer.quantizer
    flat = weight.reshape(weight.shape[0], -1)
    if isinstance(quantizer, ByteWeight):
        integers, scale = quantizer.scaled(flat)
        return _array(integers).astype(np.int8).reshape(weight.shape), 0, _array(scale)[:, None], 1.0
    codes, basis, unit = trained_codes(quantizer, flat)
    return codes.reshape(weight.shape), quantizer.bits, basis, unit


def trained_codes(quantizer: Any, flat: Any) -> tuple[ir.Array, ir.Real, float]:
    """Codes of weights (filters, n) with each filter's basis, or int8 where codes have too few bits; what one of these counts."""
    codes = quantizer.coded(flat)[0].cpu().numpy()
    if not isinstance(quantizer, ScaledWeight):
        return codes.astype(np.uint8), _array(quantizer.basis), 1.0
    basis = quantizer.basis if quantizer.bits else [1.0]
    kind = np.uint8 if quantizer.bits else np.int8
    return codes.astype(kind), np.tile(np.asarray(basis), (len(codes), 1)), quantizer.size(flat)


@dataclass(frozen=True, slots=True)
class TrainedReader:
    """An activation quantizer: the basis of its codes in units, and from which numbers on each code is reached."""

    basis: ir.Real
    boundaries: list[float]
    unit: float = 1.0

    def of(self, tensor: str) -> TrainedTensor:
        """A tensor of its codes."""
        return TrainedTensor(tensor, len(self.basis), self.basis, unit=self.unit)


def trained_reader(activation: Any) -> TrainedReader:
    """An activation quantizer, computed in double precision from its float32 basis or unit."""
    if isinstance(activation, ScaledActivation):
        unit = activation.scale()
        powers = np.ldexp(np.ones(activation.planes), np.arange(activation.planes))
        return TrainedReader(powers, [b * unit for b in activation.boundaries()], unit)
    basis = _array(activation.basis)
    return TrainedReader(basis, boundaries_of(ranked(basis)[0]).tolist())


@torch.no_grad()
def largest_outputs(network: Any, images: ir.Array) -> dict[int, float]:
    """The largest magnitude every layer and block writes for some images."""
    found: dict[int, float] = {}

    def note(module: Any, _: Any, output: Any) -> None:
        found[id(module)] = float(output.abs().max())

    watched = [m.register_forward_hook(note) for m in network.modules() if isinstance(m, TrainedLayer | ResidualBlock)]
    device = next(network.parameters()).device
    network.eval()
    network(torch.as_tensor(images.copy(), device=device).float() / 256)
    for hook in watched:
        hook.remove()
    return found


def to_graph(network: Any, images: ir.Array, name: str = "network", product_bits: int = PRODUCT_BITS) -> ir.Graph:
    """The graph of a trained network; `images` (bytes) show how large its fixed-point tensors become."""
    assert isinstance(network, Chain | Residual), "chains and residual networks are exported"
    floating = all(isinstance(m.quantizer, nn.Identity) for m in network.modules() if isinstance(m, TrainedLayer))
    exporter = _Exporter(largest_outputs(network, images), product_bits, floating)
    exporter.tensors["image"] = ir.Tensor("image", (1, *network.shape), None if floating else IMAGE)
    image = TrainedTensor("image", 0, np.asarray([IMAGE.scale]), IMAGE.hi)
    last = exporter.chain(network, image) if isinstance(network, Chain) else exporter.residual(network, image)
    return ir.Graph(name, ("image",), (last,), tuple(exporter.nodes), exporter.tensors, {c.name: c for c in exporter.constants})
