"""Learned quantization (LQ-Nets): products of coded weights with coded activations, and the thresholds that make codes.

A weight of `weight_bits` bits is a sum of ±v_i, one basis v per filter; an activation of `input_bits` bits is a sum of a_j
over the set bits of its pattern, one basis a per layer. All products v_i·a_j are rounded to integers once, when a network is
exported; from then on every form of the sum (tables, conditionals, popcounts of bit planes) is the same integer.
Codes are ranks: a larger code means a larger value, so that a maximum of codes is the code of the maximum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from dovetail.errors import ModelError
from dovetail.ir.graph import Graph
from dovetail.ir.operators.base import Axis, Op, OperatorShare
from dovetail.ir.operators.convolution import Conv
from dovetail.ir.operators.linear import Gemm
from dovetail.ir.operators.pointwise import Pointwise
from dovetail.ir.tensor import Array, Constant, Real, Region, Scheme, Shape, whole

MOST_BITS = 4
"""Bits of a code: 16 levels, 15 thresholds."""
STORED = Scheme(8, False, (0,))
"""How a file stores codes: a byte each, meaning itself; `narrow_codes` gives them the bits that thresholds make."""


def steps_of(bits: int) -> int:
    """Thresholds between the codes of so many bits."""
    return (1 << bits) - 1


def count_steps(total: Array, thresholds: Array) -> Array:
    """The code of every integer: how many of its channel's thresholds it reaches. Thresholds: (steps) or (channels, steps)."""
    along = (1, -1) + (1,) * (total.ndim - 2)
    code = np.zeros(total.shape, dtype=np.uint8)
    for k in range(thresholds.shape[-1]):
        limit = thresholds[..., k]
        code += total >= (limit.reshape(along) if thresholds.ndim == 2 else limit)
    return code


def check_bits(what: str, bits: int) -> None:
    if not 0 <= bits <= MOST_BITS:
        raise ModelError(f"{what}: codes of {bits} bits; 1 to {MOST_BITS} are possible, 0 for plain integers")


@dataclass(frozen=True, slots=True)
class Coded(Op):
    """A convolution or fully connected layer over codes.

    `weight_bits` 0 means plain int8 weights, `input_bits` 0 plain integers in; either then counts as one plane, the integer
    itself. `output_bits` 0 means that the sum plus bias is rounded to the output's scheme like any convolution's, otherwise
    the output is the code that thresholds on the sum give. `patterns` says which bits a code of the input stands for, where
    that is not the code's own binary number.

    Constants: codes (as the weights of `body`), products (filters, weight planes, input planes) as integers with a scale per
    filter, steps (thresholds (filters, 2**output_bits - 1), ascending, or bias (filters)), the basis of the weights (filters,
    weight planes) and that of the input (input planes) as the floats they were learned as.
    """

    coded: ClassVar[bool] = True
    learned: ClassVar[bool] = True

    body: Conv | Gemm = field()
    weight_bits: int = field()
    input_bits: int = field()
    output_bits: int = 0
    patterns: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for what, bits in (("weights", self.weight_bits), ("input", self.input_bits), ("output", self.output_bits)):
            check_bits(f"{self.kind}: {what}", bits)
        if self.body.partial or self.body.clamp is not None:
            raise ModelError(f"{self.kind}: a partial or clamped body; thresholds and schemes limit what is written")
        if self.patterns and sorted(self.patterns) != list(range(1 << self.input_bits)):
            raise ModelError(f"{self.kind}: patterns {list(self.patterns)}; a permutation of {1 << self.input_bits} is needed")
        if self.patterns and self.patterns[0]:
            raise ModelError(f"{self.kind}: code 0 has pattern {self.patterns[0]}; code 0 is zero, as padding is")

    @property
    def kind(self) -> str:
        return f"Lq{type(self.body).__name__}"

    @property
    def filters(self) -> int:
        return self.body.filters

    @property
    def code_bits(self) -> int:
        return self.output_bits

    @property
    def weight_planes(self) -> int:
        return max(1, self.weight_bits)

    @property
    def input_planes(self) -> int:
        return max(1, self.input_bits)

    def infer(self, inputs: tuple[Shape, ...]) -> Shape:
        return self.body.infer(inputs)

    def param_shapes(self, inputs: tuple[Shape, ...]) -> tuple[Shape, ...]:
        filters = self.filters
        steps = (filters, steps_of(self.output_bits)) if self.output_bits else (filters,)
        return (self.body.param_shapes(inputs)[0], (filters, self.weight_planes, self.input_planes), steps,
                (filters, self.weight_planes), (self.input_planes,))

    def macs(self, inputs: tuple[Shape, ...]) -> int:
        return self.body.macs(inputs)

    def plane(self, x: Array, j: int) -> Array:
        """Plane `j` of an input: a bit of each code's pattern, or plain integers as they are."""
        if not self.input_bits:
            return x
        patterns = np.asarray(self.patterns or range(1 << self.input_bits))
        bits: Array = (patterns >> j & 1).astype(x.dtype)[x.astype(np.int64)]
        return bits

    def signs(self, codes: Array, i: int) -> Array:
        """Plane `i` of the weights: ±1, or plain integers as they are."""
        return codes if not self.weight_bits else (codes.astype(np.int64) >> i & 1) * 2 - 1

    def weights(self, codes: Array, products: Array, j: int) -> Real:
        """What plane `j` of the input is multiplied with: integers in the shape of the codes."""
        along = (-1,) + (1,) * (codes.ndim - 1)
        total = np.zeros(codes.shape)
        for i in range(self.weight_planes):
            total += self.signs(codes, i) * products[:, i, j].astype(np.float64).reshape(along)
        return total

    def accumulate(self, inputs: Sequence[Real], params: Sequence[Real]) -> Real:
        """The exact sum over all planes, plus bias where there is one; thresholds are `count_steps`."""
        codes, products, steps = params[:3]
        body = replace(self.body, partial=True)
        total = sum(body.accumulate([self.plane(inputs[0], j)], [self.weights(codes, products, j)])
                    for j in range(self.input_planes))
        assert isinstance(total, np.ndarray)
        return total if self.output_bits else total + steps.reshape((1, -1) + (1,) * (total.ndim - 2))

    def bound(self, codes: Array, products: Array, reach: int) -> int:
        """The largest |sum| any input whose plain integers stay within ±`reach` can lead to, bias aside."""
        rows = sum(np.abs(self.weights(codes, products, j)).reshape(len(codes), -1).sum(axis=1) for j in range(self.input_planes))
        return int(np.max(rows)) * (1 if self.input_bits else reach)

    def extent(self, axis: Axis, inputs: tuple[Shape, ...]) -> int:
        return 0 if axis is Axis.INPUT_CHANNELS else self.body.extent(axis, inputs)

    def share(self, axis: Axis, start: int, stop: int, inputs: tuple[Shape, ...]) -> OperatorShare:
        if self.extent(axis, inputs) < 1:
            return Op.share(self, axis, start, stop, inputs)
        part = self.body.share(axis, start, stop, inputs)
        assert isinstance(part.op, Conv | Gemm)
        codes, (filters,) = part.params
        rest: list[Region] = [(filters, *whole(s)[1:]) for s in self.param_shapes(inputs)[1:4]]
        return OperatorShare(replace(self, body=part.op), part.inputs, (codes, *rest, ((0, self.input_planes),)), part.output)

    def attributes(self) -> str:
        sides = [f"{what}{bits}" if bits else f"{what}int" for what, bits in (("w", self.weight_bits), ("a", self.input_bits))]
        return f"{self.body.attributes()} {' '.join(sides)}" + (f" to codes of {self.output_bits}" if self.output_bits else "")


@dataclass(frozen=True, slots=True)
class Thresholds(Pointwise):
    """Codes of integers, element by element. Constant: thresholds, (steps) or (channels, steps), ascending."""

    learned: ClassVar[bool] = True

    bits: int
    per_channel: bool = False

    def __post_init__(self) -> None:
        check_bits("Thresholds", self.bits)

    @property
    def code_bits(self) -> int:
        return self.bits

    def param_shapes(self, inputs: tuple[Shape, ...]) -> tuple[Shape, ...]:
        steps = steps_of(self.bits)
        return ((inputs[0][1], steps) if self.per_channel else (steps,),)

    def accumulate(self, inputs: Sequence[Real], params: Sequence[Real]) -> Real:
        return count_steps(inputs[0], params[0]).astype(np.float64)

    def attributes(self) -> str:
        return f"to codes of {self.bits}" + (" per channel" if self.per_channel else "")


def holds_codes(graph: Graph, tensor: str) -> bool:
    """Whether a tensor's values are codes: thresholds made them, and since then they have only moved."""
    node = graph.producer(tensor)
    if node is None:
        return False
    if node.op.commutes or node.op.joins:
        schemes = {graph.tensors[t].scheme for t in (*node.inputs, tensor)}
        return len(schemes) == 1 and all(holds_codes(graph, t) for t in node.inputs)
    return node.op.code_bits > 0


def narrow_codes(graph: Graph) -> Graph:
    """Codes that a file stores in bytes take the bits that their thresholds make, and keep them while they only move."""
    if not any(n.op.learned for n in graph.nodes):
        return graph
    schemes = {name: t.scheme for name, t in graph.tensors.items()}
    coded: set[str] = set()
    for node in graph.nodes:
        found = {schemes[t] for t in node.inputs}
        if node.op.code_bits:
            schemes[node.output] = Scheme(node.op.code_bits, False, (0,))
        elif (node.op.commutes or node.op.joins) and coded.issuperset(node.inputs) and len(found) == 1 \
                and schemes[node.output] == STORED:
            schemes[node.output] = found.pop()
        else:
            continue
        coded.add(node.output)
    return replace(graph, tensors={name: replace(t, scheme=schemes[name]) for name, t in graph.tensors.items()})


def check_ascending(where: str, thresholds: Array) -> None:
    """Thresholds, (steps) or (channels, steps), that ascend, or a ModelError that names the first row that does not."""
    rows = np.atleast_2d(thresholds.astype(np.int64))
    wrong = np.argwhere(np.diff(rows, axis=1) < 0)
    if len(wrong):
        row = int(wrong[0, 0])
        raise ModelError(f"{where}: thresholds of row {row} descend, {rows[row].tolist()}; they must ascend")


def check_constants(where: str, op: Coded, codes: Constant, products: Constant, steps: Constant) -> None:
    """Codes within their bits and thresholds that ascend, or a ModelError that names the first that does not."""
    if op.weight_bits and codes.array.size and int(codes.array.max()) >> op.weight_bits:
        raise ModelError(f"{where}: weight code {int(codes.array.max())}; "
                         f"{op.weight_bits} bits hold 0 to {steps_of(op.weight_bits)}")
    if op.output_bits:
        check_ascending(where, steps.array)
    if products.scheme is None or products.scheme.axis != 0 or not products.scheme.fixed_point:
        raise ModelError(f"{where}: products without a power of two per filter; state what one step of each filter's sum means")
