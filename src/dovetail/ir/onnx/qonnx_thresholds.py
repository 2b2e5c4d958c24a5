"""QONNX's MultiThreshold: behind a quantized layer it makes a layer of codes, behind stored integers thresholds of their own.

Scales become integers times powers of two, thresholds the least integers that reach them: the codes are those of the file
exactly. What has no such form (scales of too many digits, outputs that are not 0, 1, 2, …) is computed in floats.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import frexp
from typing import Any

import numpy as np

from dovetail.errors import UnsupportedError
from dovetail.ir import Array, Constant, Conv, Gemm, Node, Real, Scheme
from dovetail.ir.onnx.state import Attributes, Reader
from dovetail.ir.operators.lq import MOST_BITS, STORED, Coded, Thresholds, steps_of

LARGEST_SUM = 1 << 30
PRODUCT_BITS = 16
"""Digits that a scale may have beside its power of two."""
FINER = 12
"""Bits by which a bias may be finer than its sums."""


def multi_threshold(reader: Reader, proto: Any, a: Attributes) -> None:
    """A node of codes, typed where that is exact."""
    given = reader.constant(proto.input[1], proto.name, "thresholds").array
    limits = np.atleast_2d(given.astype(np.float64))
    bits = (limits.shape[1] + 1).bit_length() - 1
    if float(a.get("out_scale", 1.0)) != 1.0 or float(a.get("out_bias", 0.0)) != 0.0 or limits.shape[1] != steps_of(bits) \
            or not 1 <= bits <= MOST_BITS or np.any(np.diff(limits, axis=1) < 0):
        raise reader.unsupported(proto, f"MultiThreshold of {limits.shape[1]} steps; ascending ones to codes 0, 1, … of 1 to "
                                        f"{MOST_BITS} bits are typed")
    source = reader.tensor(proto.input[0])
    maker = reader.producer(source)
    if maker is not None and maker.op.product and not reader.is_stored(proto.input[0]):
        _layer(reader, proto, maker, limits, bits)
        return
    scheme = reader.schemes.get(source)
    if scheme is None or not reader.is_stored(proto.input[0]):
        raise reader.unsupported(proto, "MultiThreshold of values that are neither stored nor sums of a quantized layer")
    steps = np.clip(np.ceil(limits / scheme.scale) + scheme.zero, scheme.lo, scheme.hi + 1).astype(np.int32)
    own = steps if len(steps) > 1 else steps[0]
    reader.add(proto, Thresholds(bits, len(steps) > 1), params={"steps": (own, None)})
    reader.store(proto.output[0], STORED)


def code_layers(reader: Reader) -> None:
    """Layers that read codes and are rounded to a scheme: their bias keeps its own digits, which a plain layer's does not."""
    for node in list(reader.nodes.values()):
        if node.op.product and node.output in reader.schemes and _code_bits(reader, node.inputs[0]) \
                and len(node.params) == 2 and reader.owned[node.params[0]].scheme is not None:
            try:
                made = _integers(reader, node, 0, node)
            except UnsupportedError:
                continue  # a plain layer, then
            bias = reader.owned[node.params[1]].real.astype(np.float64)
            finer = np.asarray([min(FINER, max(0, int(e) - _odd(abs(float(b)))[1])) if b else 0
                                for e, b in zip(made.exponents, bias, strict=True)], dtype=np.int64)
            made = replace(made, products=made.products << finer[:, None, None], exponents=made.exponents - finer)
            steps = np.rint(np.ldexp(bias, -made.exponents))
            if made.bound(reader) + np.abs(steps).max() <= LARGEST_SUM:
                _replaced(reader, node, made, steps.astype(np.int32), made.scheme)


@dataclass(frozen=True, slots=True)
class _Integers:
    """A layer's weights and input as `Coded` has them; what a step of each filter's sum means is a power of two."""

    op: Coded
    codes: Array
    products: Array
    exponents: Array
    basis: Real
    source: Scheme

    @property
    def scheme(self) -> Scheme:
        return Scheme(32, True, tuple(int(e) for e in self.exponents), 0)

    def bound(self, reader: Reader) -> int:
        return self.op.bound(self.codes, self.products, max(-self.source.lo, self.source.hi))


def _integers(reader: Reader, maker: Node, output_bits: int, proto: Any) -> _Integers:
    """A quantized layer as integers; UnsupportedError where its scales have too many digits."""
    weight, source = reader.owned[maker.params[0]], reader.schemes.get(_root(reader, maker.inputs[0]))
    if weight.scheme is None or source is None or source.zero or weight.scheme.axis not in (None, 0):
        raise reader.unsupported(proto, f"MultiThreshold behind {maker.name}, which has floats")
    codes, weight_bits = _codes(weight.array)
    scales = np.broadcast_to(np.asarray(weight.scheme.scales), (len(codes),))
    parts = [_odd(float(s)) for s in scales * source.scale]
    assert isinstance(maker.op, Conv | Gemm)
    op = Coded(replace(maker.op, clamp=None), weight_bits, _code_bits(reader, maker.inputs[0]), output_bits)
    if max(m for m, _ in parts) >> PRODUCT_BITS:
        raise reader.unsupported(proto, f"scales of {maker.name} have too many digits for products of integers")
    powers = (1 << np.arange(op.weight_planes))[:, None] * (1 << np.arange(op.input_planes))[None, :]
    products = np.asarray([m for m, _ in parts], dtype=np.int64)[:, None, None] * powers
    found = _Integers(op, codes, products, np.asarray([e for _, e in parts], dtype=np.int64),
                      scales[:, None] * (1 << np.arange(op.weight_planes)), source)
    if found.bound(reader) > LARGEST_SUM:
        raise reader.unsupported(proto, f"sums of {maker.name} exceed 31 bits")
    return found


def _layer(reader: Reader, proto: Any, maker: Node, limits: Real, bits: int) -> None:
    """The layer in front becomes one of codes and takes the thresholds in."""
    if reader.users.get(maker.output, set()) != {proto.op_type} or maker.op.bounds is not None:
        raise reader.unsupported(proto, f"MultiThreshold behind {maker.name}, which others read too")
    made = _integers(reader, maker, bits, proto)
    real = limits - reader.owned[maker.params[1]].real.astype(np.float64).reshape(-1, 1)
    bound = made.bound(reader)
    steps = np.clip(np.ceil(np.ldexp(real, -made.exponents[:, None])), -bound, bound + 1).astype(np.int32)
    _replaced(reader, maker, made, steps, None)
    reader.alias[proto.output[0]] = maker.output
    reader.store(maker.output, STORED)
    reader.stored.add(proto.output[0])


def _replaced(reader: Reader, node: Node, made: _Integers, steps: Array, scheme: Scheme | None) -> None:
    """A node's place taken by a layer of codes; its constants too."""
    own = {"codes": (made.codes, None), "products": (made.products.astype(np.int32), made.scheme), "steps": (steps, scheme),
           "basis": (made.basis.astype(np.float32), None),
           "input_basis": ((made.source.scale * (1 << np.arange(made.op.input_planes))).astype(np.float32), None)}
    for name in node.params:
        del reader.owned[name]
    reader.owned |= {f"{node.name}_{role}": Constant(f"{node.name}_{role}", *value) for role, value in own.items()}
    coded = replace(node, op=made.op, params=tuple(f"{node.name}_{role}" for role in own))
    reader.nodes[node.output] = coded


def _codes(weights: Array) -> tuple[Array, int]:
    """Codes of ± powers of two where all weights are such sums, of the fewest bits; else the integers themselves, of 0."""
    whole = weights.astype(np.int64)
    for bits in range(1, MOST_BITS + 1):
        if np.all(whole % 2 == 1) and int(np.abs(whole).max(initial=0)) < 1 << bits:
            return ((whole + (1 << bits) - 1) // 2).astype(np.uint8), bits
    return weights.astype(np.int8), 0


def _root(reader: Reader, tensor: str) -> str:
    """Where values come from that have only moved since."""
    maker = reader.producer(tensor)
    while tensor not in reader.schemes and maker is not None and maker.op.commutes:
        tensor = maker.inputs[0]
        maker = reader.producer(tensor)
    return tensor


def _code_bits(reader: Reader, tensor: str) -> int:
    """Bits of the codes that a tensor holds: thresholds made them and since then they have only moved; 0 of plain integers."""
    maker = reader.producer(_root(reader, tensor))
    return 0 if maker is None else maker.op.code_bits


def _odd(value: float) -> tuple[int, int]:
    """A positive number as an odd integer times a power of two."""
    mantissa, exponent = frexp(value)
    whole, exponent = int(mantissa * 2**53), exponent - 53
    twos = (whole & -whole).bit_length() - 1
    return whole >> twos, exponent + twos
