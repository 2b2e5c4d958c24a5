"""Nodes of a graph as functions of PyTorch's tensors, for one batch of the model's own size."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812  # its usual name

from dovetail import ir
from dovetail.errors import UnsupportedError
from dovetail.gpu.library.given import Given
from dovetail.gpu.library.table import OPERATORS
from dovetail.ir import Graph, Node
from dovetail.ir.foreign_steps import OnnxStep, OnnxSteps, steps_of

Evaluate = Callable[[Sequence[Any], Sequence[Any]], Any]
"""What an operator makes of tensors and its own weights."""


@dataclass(slots=True, eq=False)
class LibraryNode:
    """One node of a float graph; `real` is the type of its floats."""

    graph: Graph
    node: Node
    real: Any
    device: Any
    function: Callable[[Sequence[Any]], Any] | None = None
    """What computes it, where it comes from PyTorch."""
    constants: dict[Any, tuple[Any, Any]] = field(default_factory=dict)
    """On the device, for as long as anything runs the node."""
    content: OnnxSteps | None = None
    on_host: bool = False
    """Whether ONNX Runtime computes it, since PyTorch cannot."""

    def __post_init__(self) -> None:
        op = self.node.op
        if self.function is None and isinstance(op, ir.Opaque | ir.Function):
            self.content = steps_of(op.content)
        self.on_host = not (self.only_moves if self.graph.quantized else self.known)

    def __call__(self, inputs: Sequence[Any]) -> Any:
        op = self.node.op
        if self.function is not None:
            return self.function(inputs)
        if self.content is not None and isinstance(op, ir.Opaque):
            given = {f"x{i}": x for i, x in enumerate(inputs)}
            return self.computed(self.content, given)[f"y{op.index}"]
        if self.content is not None:
            along = (1, -1) + (1,) * (inputs[0].ndim - 2)
            weights = {f"p{i}": self.weight(i).reshape(along) for i in range(len(self.node.params))}
            return self.computed(self.content, {"x0": inputs[0], **weights})["y0"]
        evaluate = TYPED.get(type(op))
        if evaluate is None:
            raise UnsupportedError(f"node {self.node.name}: no operator of PyTorch stands for {op.kind}")
        found = evaluate(op, inputs, [self.weight(i) for i in range(len(self.node.params))])
        bounds = op.bounds
        return found if bounds is None else torch.clamp(found, None if bounds.lo == -inf else bounds.lo,
                                                        None if bounds.hi == inf else bounds.hi)

    @property
    def only_moves(self) -> bool:
        """Whether it moves integers that stay as they are; all other integers are the reference's, whatever computes them."""
        op, schemes = self.node.op, {self.graph.tensors[t].scheme for t in (*self.node.inputs, self.node.output)}
        return (op.moves or isinstance(op, ir.Concat)) and type(op) in TYPED and len(schemes) == 1 and op.bounds is None

    @property
    def known(self) -> bool:
        """Whether PyTorch has its operators, as far as their names say."""
        op = self.node.op
        if self.content is not None:
            return all((s.domain, s.operator) in OPERATORS for s in self.content.steps)
        return self.function is not None or type(op) in TYPED

    def weight(self, index: int) -> Any:
        """One of its constants on the device, in the network's floats."""
        name = self.node.params[index]
        if name not in self.constants:
            array = self.graph.constants[name].array
            tensor = torch.from_numpy(np.array(array, order="C")).to(self.device)
            self.constants[name] = (array, tensor.to(self.real) if tensor.is_floating_point() else tensor)
        return self.constants[name][1]

    def computed(self, content: OnnxSteps, given: Mapping[str, Any]) -> dict[str, Any]:
        """All values of a small model."""
        values: dict[str, Any] = {**content.constants, **given}
        for step in content.steps:
            made = self.step(step, [values[i] if i else None for i in step.inputs], content.opset)
            values |= {name: one for name, one in zip(step.outputs, made, strict=False) if name}
        return values

    def step(self, step: OnnxStep, values: Sequence[Any], opset: int) -> Sequence[Any]:
        compute = OPERATORS.get((step.domain, step.operator))
        where = f"node {self.node.name}: {step.operator}"
        if compute is None:
            raise UnsupportedError(f"{where}: PyTorch has no such operator")
        made = compute(Given(where, values, step.attributes, self.real, self.device, self.constants, opset, step.result_shapes))
        return made if isinstance(made, tuple | list) else (made,)


def _convolved(op: Any, inputs: Sequence[Any], weights: Sequence[Any]) -> Any:
    weight = weights[0]
    x, (top, left, bottom, right) = inputs[0].to(weight.dtype), op.window.pads
    before = (top, left)
    if before != (bottom, right):
        x, before = F.pad(x, (left, right, top, bottom)), (0, 0)
    return F.conv2d(x, weight, weights[1] if len(weights) > 1 else None, op.window.stride, before, op.window.dilation, op.groups)


def _largest(op: Any, inputs: Sequence[Any], weights: Sequence[Any]) -> Any:
    (x,), (top, left, bottom, right) = inputs, op.window.pads
    padded = F.pad(x, (left, right, top, bottom), value=-inf) if any(op.window.pads) else x
    return F.max_pool2d(padded, op.window.kernel, op.window.stride, 0, op.window.dilation)


def _averaged(op: Any, inputs: Sequence[Any], weights: Sequence[Any]) -> Any:
    (x,), (top, left, bottom, right), (rows, columns) = inputs, op.window.pads, op.window.kernel
    ones = torch.ones((x.shape[1], 1, rows, columns), dtype=torch.float32, device=x.device)
    if (top, left) == (bottom, right) and op.window.dilation == (1, 1) and 2 * top <= rows and 2 * left <= columns:
        return F.avg_pool2d(x, op.window.kernel, op.window.stride, (top, left), False, op.count_pads)
    padded = F.pad(x.float(), (left, right, top, bottom))
    total = F.conv2d(padded, ones, None, op.window.stride, 0, op.window.dilation, x.shape[1])
    own = F.pad(torch.ones((1, 1, *x.shape[-2:]), device=x.device), (left, right, top, bottom), value=float(op.count_pads))
    return (total / F.conv2d(own, ones[:1], None, op.window.stride, 0, op.window.dilation)).to(x.dtype)


def _shuffled(op: ir.PixelShuffle, inputs: Sequence[Any], weights: Sequence[Any]) -> Any:
    batch, channels, height, width = inputs[0].shape
    depth = channels // op.block
    tall = inputs[0].reshape(batch, *op.inner(depth), height, width).permute(op.order)
    tall = tall.reshape(batch, depth, height * op.rows, width * op.columns)
    _, _, rows, columns = op.infer(((batch, channels, height, width),))
    return tall[:, :, :rows, :columns]


def _chosen(op: ir.Select, inputs: Sequence[Any], weights: Sequence[Any]) -> Any:
    if op.step is not None and op.step > 0:
        return inputs[0][:, op.indices[0]:op.indices[-1] + 1:op.step]
    (x,), groups = inputs, op.groups
    if groups is not None and len(op.indices) == x.shape[1]:
        return x.reshape(x.shape[0], groups, -1, *x.shape[2:]).transpose(1, 2).reshape(x.shape)
    return torch.cat([x[:, first:last + 1] for first, last in _stretches(op.indices)], 1)


def _stretches(indices: Sequence[int]) -> list[tuple[int, int]]:
    """Consecutive indices, as the first and the last of each stretch."""
    found: list[tuple[int, int]] = []
    for i in indices:
        if found and found[-1][1] + 1 == i:
            found[-1] = (found[-1][0], i)
        else:
            found.append((i, i))
    return found


def _joined(op: ir.Concat, inputs: Sequence[Any], weights: Sequence[Any]) -> Any:
    kinds = {x.dtype for x in inputs}
    return torch.cat([x.float() if len(kinds) > 1 and x.is_floating_point() else x for x in inputs], op.axis)


TYPED: Mapping[type, Callable[[Any, Sequence[Any], Sequence[Any]], Any]] = {
    ir.Conv: _convolved, ir.MaxPool: _largest, ir.AvgPool: _averaged, ir.PixelShuffle: _shuffled, ir.Select: _chosen,
    ir.Concat: _joined,
    ir.Gemm: lambda op, inputs, weights: F.linear(inputs[0].to(weights[0].dtype), *weights),
    ir.Add: lambda op, inputs, weights: sum(inputs[1:], inputs[0]),
    ir.Mul: lambda op, inputs, weights: inputs[0] * inputs[1],
    ir.Clip: lambda op, inputs, weights: inputs[0],
    ir.GlobalAvgPool: lambda op, inputs, weights: inputs[0].float().mean((2, 3), keepdim=True).to(inputs[0].dtype),
    ir.Reshape: lambda op, inputs, weights: inputs[0].reshape(op.shape),
    ir.Transpose: lambda op, inputs, weights: inputs[0].permute(op.perm),
    ir.Upsample: lambda op, inputs, weights: inputs[0].repeat_interleave(op.rows, 2).repeat_interleave(op.columns, 3),
    ir.Reduce: lambda op, inputs, weights: sum(inputs[1:], inputs[0]) + weights[0].reshape(
        1, -1, *(1,) * (inputs[0].ndim - 2)),
}
"""Operators of our own graph in floats, before their bounds."""
