"""Any float ONNX network as one to train: its graph walked node by node in torch, layers quantized, and back to exact integers.

Every convolution and matrix product reads its input through a quantizer (one per tensor, shared by all that read it), has coded
weights and a BatchNorm of its own, which begins with the statistics that the layer had in floats: what quantizing shifts and
shrinks is made up for before the first step. All else computes in floats and is stored in 8 bits on export, as
`numerics/mixed.py` has it. First and last layer keep 8 bits unless told otherwise, as do layers that read numbers below zero.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from dovetail import ir
from dovetail.errors import UnsupportedError, UsageError
from dovetail.ir.onnx.read import read_onnx
from dovetail.numerics.calibration import Samples
from dovetail.numerics.mixed import BitChoices
from dovetail.train.export import trained_codes, trained_reader
from dovetail.train.networks import Precision, activation_of, affine_of, weight_quantizer
from dovetail.words import counted

Tensor = Any


def _bounded(x: Tensor, clamp: ir.Clamp | None) -> Tensor:
    if clamp is None:
        return x
    return functional.relu(x) if clamp.lo == 0 and clamp.hi == np.inf else x.clamp(clamp.lo, clamp.hi)


def _padded(x: Tensor, window: ir.Window, value: float) -> Tensor:
    top, left, bottom, right = window.pads
    return functional.pad(x, (left, right, top, bottom), value=value) if any(window.pads) else x


def _maximum(op: ir.MaxPool, x: Tensor) -> Tensor:
    padded = _padded(x, op.window, float("-inf"))
    return functional.max_pool2d(padded, op.window.kernel, op.window.stride, dilation=op.window.dilation)


def _average(op: ir.AvgPool, x: Tensor) -> Tensor:
    if op.window.dilation != (1, 1):
        raise UnsupportedError("AvgPool with dilation: not trained; choose bits after training with `dovetail bits`")
    total, ones = (functional.avg_pool2d(_padded(v, op.window, 0.0), op.window.kernel, op.window.stride)
                   for v in (x, torch.ones_like(x[:1, :1])))
    return total if op.count_pads else total / ones


def _pixels_shuffled(op: ir.PixelShuffle, x: Tensor) -> Tensor:
    batch, depth, rows, columns = op.infer((tuple(x.shape),))
    apart = x.reshape(batch, *op.inner(depth), *x.shape[2:]).permute(op.order)
    return apart.reshape(batch, depth, x.shape[2] * op.rows, x.shape[3] * op.columns)[:, :, :rows, :columns]


MOVES: dict[type[ir.Op], Callable[..., Tensor]] = {
    ir.Add: lambda op, *x: _bounded(x[0] + x[1], op.clamp),
    ir.Mul: lambda op, *x: _bounded(x[0] * x[1], op.clamp),
    ir.Clip: lambda op, x: _bounded(x, op.clamp),
    ir.Concat: lambda op, *x: torch.cat(x, dim=op.axis),
    ir.Reshape: lambda op, x: x.reshape(x.shape[0], *op.shape[1:]),
    ir.PixelShuffle: _pixels_shuffled,
    ir.Select: lambda op, x: x[:, list(op.indices)],
    ir.Transpose: lambda op, x: x.permute(op.perm),
    ir.Upsample: lambda op, x: x.repeat_interleave(op.rows, dim=2).repeat_interleave(op.columns, dim=3),
    ir.MaxPool: _maximum,
    ir.AvgPool: _average,
    ir.GlobalAvgPool: lambda op, x: x.mean(dim=(2, 3), keepdim=True),
}
"""How torch computes what has no weights; gradients come with it."""
KEEP_SIGN = tuple(op for op in MOVES if op is not ir.Clip)


def not_negative(graph: ir.Graph) -> set[str]:
    """Tensors that cannot fall below zero, whatever the images are."""
    found: set[str] = set()
    for node in graph.nodes:
        bounds = node.op.bounds
        if (bounds is not None and bounds.lo >= 0) or (isinstance(node.op, KEEP_SIGN) and found.issuperset(node.inputs)):
            found.add(node.output)
    return found


class Tuned(nn.Module):
    """A layer of the file: its weights, a norm that begins where the floats were, and a quantizer."""

    def __init__(self, node: ir.Node, weight: ir.Array, bias: ir.Array, quantizer: Any) -> None:
        super().__init__()
        assert isinstance(node.op, ir.Conv | ir.Gemm)
        self.op, self.ready = node.op, False
        self.weight = nn.Parameter(torch.from_numpy(weight.astype(np.float32)))
        self.register_buffer("begun", torch.zeros(()))
        self.norm = (nn.BatchNorm2d if isinstance(node.op, ir.Conv) else nn.BatchNorm1d)(len(weight))
        with torch.no_grad():  # means of zero and deviations of one: until it is trained, the layer is the file's
            self.norm.bias.copy_(torch.from_numpy(bias.astype(np.float32)))
        self.quantizer = quantizer

    def product(self, x: Tensor, weight: Tensor) -> Tensor:
        if isinstance(self.op, ir.Gemm):
            return functional.linear(x, weight)
        window = self.op.window
        return functional.conv2d(_padded(x, window, 0.0), weight, None, window.stride, 0, window.dilation, self.op.groups)

    @torch.no_grad()
    def begin(self, x: Tensor) -> None:
        """Once: outputs of the float layer, on what it reads now, give the norm its gains and offsets."""
        self.ready = True
        if not bool(self.begun):
            y = self.product(x.float(), self.weight)
            over = [d for d in range(y.ndim) if d != 1]
            mean, variance = y.mean(dim=over), y.var(dim=over).clamp(min=1e-8)
            self.norm.weight.copy_(variance.sqrt())
            self.norm.bias.add_(mean)
            self.norm.running_mean.copy_(mean)
            self.norm.running_var.copy_(variance)
            self.begun.fill_(1.0)

    def forward(self, x: Tensor, read: Tensor) -> Tensor:
        """`read` is x as the layer's quantizer lets it through."""
        if self.training and not self.ready:
            self.begin(x)
        return _bounded(self.norm(self.product(read, self.quantizer(self.weight))), self.op.clamp)


class ImportedNetwork(nn.Module):
    """The graph of a file; images come as bytes over 256, which `mean` and `deviation` by channel turn into what it reads."""

    def __init__(self, graph: ir.Graph, precision: Precision, mean: tuple[float, ...] = (),
                 deviation: tuple[float, ...] = ()) -> None:
        super().__init__()
        self.graph, self.precision = graph, precision
        _check(graph)
        if not precision.floating and precision.activations not in (precision.weights, 8):
            raise UnsupportedError(f"{precision}: networks from files have as many bits for activations as for weights, or 8: "
                                   f"w{precision.weights}a{precision.weights} or w{precision.weights}a8")
        self.shape = graph.shape(graph.inputs[0])[1:]
        layers = [n for n in graph.nodes if isinstance(n.op, ir.Conv | ir.Gemm)]
        ends = {n.name for n in (*(n for n in layers if n.inputs[0] in graph.inputs), *layers[-1:])} if precision.ends else set()
        positive = not_negative(graph)
        self.kinds = {n.name: "int8" if precision.weights == 8 or n.name in ends
                      or n.op.bounds not in (None, ir.Clamp(0.0, np.inf)) else f"lq{precision.weights}" for n in layers}
        self.coded = {n.inputs[0] for n in layers if self.kinds[n.name] != "int8" and n.inputs[0] in positive
                      and precision.activations <= 4}
        self.tuned = nn.ModuleDict({_key(n.name): self._tuned(n) for n in layers})
        self.entries = nn.ModuleDict({_key(t): activation_of(precision) for t in sorted(self.coded)})
        channels = self.shape[0]
        for name, values, plain in (("mean", mean, 0.0), ("deviation", deviation, 1.0)):
            if len(values) not in (0, 1, channels):
                raise UsageError(f"{name}: {counted(len(values), 'number')}; one, or one for each of "
                                 f"{counted(channels, 'channel')}, is needed")
            whole = np.broadcast_to(np.asarray(values or (plain,), dtype=np.float32), (channels,)).reshape(-1, 1, 1)
            self.register_buffer(name, torch.from_numpy(whole.copy()), persistent=False)

    def _tuned(self, node: ir.Node) -> Tuned:
        weight, bias = (self.graph.constants[name].array for name in node.params)
        fan = int(np.prod(weight.shape[1:]))
        return Tuned(node, weight, bias, weight_quantizer(self.precision, len(weight), fan, self.kinds[node.name] == "int8"))

    def forward(self, x: Tensor) -> Tensor:
        graph = self.graph
        values: dict[str, Tensor] = {graph.inputs[0]: (x - self.mean) / self.deviation}
        read: dict[str, Tensor] = {}
        for node in graph.nodes:
            inputs = [values[t] for t in node.inputs]
            if _key(node.name) not in self.tuned:
                values[node.output] = MOVES[type(node.op)](node.op, *inputs)
                continue
            source = node.inputs[0]
            codes = self.kinds[node.name] != "int8" and source in self.coded
            if codes and source not in read:
                read[source] = self.entries[_key(source)](inputs[0])
            values[node.output] = self.tuned[_key(node.name)](inputs[0], read[source] if codes else inputs[0])
        return values[graph.outputs[0]].flatten(1)


def _key(name: str) -> str:
    """A name that torch takes for a module's."""
    return "layer_" + name.replace(".", "·")


def _check(graph: ir.Graph) -> None:
    for node in graph.nodes:
        if not isinstance(node.op, ir.Conv | ir.Gemm) and type(node.op) not in MOVES:
            raise UnsupportedError(f"{graph.name}: {node.name} ({type(node.op).__name__}) is not trained here; "
                                   "choose bits after training with `dovetail bits`, which takes any network")
    if len(graph.inputs) != 1 or len(graph.outputs) != 1 or len(graph.shape(graph.inputs[0])) != 4:
        raise UnsupportedError(f"{graph.name}: {counted(len(graph.inputs), 'input')} and "
                               f"{counted(len(graph.outputs), 'output')}; one image and one vector of scores are trained")
    if graph.quantized or not any(isinstance(n.op, ir.Conv | ir.Gemm) for n in graph.nodes):
        raise UsageError(f"{graph.name}: came quantized, or without a layer to train; give the float network")


def load_network(path: str | Path, precision: Precision, shape: tuple[int, int, int], classes: int, mean: str = "",
                 deviation: str = "") -> ImportedNetwork:
    """The network of a float ONNX file, ready to train on images of a shape."""
    network = ImportedNetwork(read_onnx(path).graph, precision, *(_numbers(text) for text in (mean, deviation)))
    if tuple(network.shape) != tuple(shape):
        raise UsageError(f"{path}: takes images of {list(network.shape)}, the data set's are {list(shape)}; they must agree")
    scores = int(np.prod(network.graph.shape(network.graph.outputs[0])[1:]))
    if scores < classes:
        raise UsageError(f"{path}: gives {counted(scores, 'score')}, the data set has {counted(classes, 'class', 'classes')}; "
                         "replace its last layer first")
    return network


def _numbers(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(",") if part.strip())
    except ValueError:
        raise UsageError(f"{text!r}: numbers with commas between them are needed, such as 0.49,0.48,0.45") from None


@dataclass(slots=True)
class _Trained(BitChoices):
    """A menu whose bases, codes and norms were learned."""

    origin: ImportedNetwork = field(kw_only=True)

    def is_plain(self, tensor: str, signed: bool) -> bool:
        return tensor not in self.origin.coded

    def basis_of(self, tensor: str, bits: int) -> ir.Real:
        reader = trained_reader(self.origin.entries[_key(tensor)])
        return reader.basis * reader.unit

    def boundaries_of(self, tensor: str, basis: ir.Real) -> list[float]:
        return trained_reader(self.origin.entries[_key(tensor)]).boundaries

    def codes_of(self, node: ir.Node, bits: int) -> tuple[ir.Array, ir.Real]:
        layer = self.origin.tuned[_key(node.name)]
        codes, basis, unit = trained_codes(layer.quantizer, layer.weight.detach().reshape(len(layer.weight), -1))
        return codes.reshape(tuple(layer.weight.shape)), basis * unit

    def affine_of(self, node: ir.Node, codes: ir.Array, fitted: ir.Real, basis: ir.Real | None,
                  scheme: ir.Scheme) -> tuple[ir.Real, ir.Real]:
        return affine_of(self.origin.tuned[_key(node.name)].norm)


def to_graph(network: ImportedNetwork, images: ir.Array, name: str) -> ir.Graph:
    """The trained network as a graph: floats where nothing was quantized, else exact integers of the chosen bits.

    `images` (bytes) show how large the tensors between layers become.
    """
    graph = replace(network.graph, name=name)
    constants = dict(graph.constants)
    for node in graph.nodes:
        if _key(node.name) in network.tuned:
            layer = network.tuned[_key(node.name)]
            gain, offset = affine_of(layer.norm)
            weight = layer.quantizer(layer.weight).detach().cpu().double().numpy()
            whole = weight * gain.reshape(-1, *[1] * (weight.ndim - 1))
            constants[node.params[0]] = replace(constants[node.params[0]], array=whole.astype(np.float32))
            constants[node.params[1]] = replace(constants[node.params[1]], array=offset.astype(np.float32))
    folded = replace(graph, constants=constants)
    if network.precision.floating:
        return folded
    values = as_read(network, images)
    samples = Samples({graph.inputs[0]: values}, counted(len(values), "training image"))
    menu = _Trained(folded, samples, lambda *_: None, origin=network)
    return menu.graph(network.kinds)


def as_read(network: ImportedNetwork, images: ir.Array) -> ir.Array:
    """Bytes as the numbers that the file's input stands for."""
    mean, deviation = (v.detach().cpu().numpy() for v in (network.mean, network.deviation))
    values: ir.Array = ((images.astype(np.float32) / 256 - mean) / deviation).astype(np.float32)
    return values
