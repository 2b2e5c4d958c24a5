"""From learned quantizers to exact integers: products rounded once, BatchNorm and the next quantizer folded into thresholds.

Every number here comes from the floats of training; what comes out is a node of integers and nothing is rounded again. The
fixed-point step is one unit in the last place of the products: with `PRODUCT_BITS` bits each product v_i·a_j of a filter is
off by at most 2**-(PRODUCT_BITS + 1) of that filter's largest.

A layer also comes in single precision, as *LQ multi-FPGA 2020* computes it: products of floats, added in floats (`FloatLayer`).
These are the numbers of two baselines, a multiply-add in FP32 and a table of float products; both round the same products once
and add them in the same order, so their sums agree bit for bit. They are not the integers of `Coded`: those are exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import frexp

import numpy as np
from numpy.typing import NDArray

from dovetail.errors import ModelError, UnsupportedError
from dovetail.ir import Array, Coded, Constant, Conv, Gemm, Node, Real, Scheme, Thresholds
from dovetail.ir.operators.lq import MOST_BITS, check_constants, steps_of

PRODUCT_BITS = 12
EVEN = 1e-6
"""Relative difference up to which products of float32 bases count as multiples of their least."""
MOST_MULTIPLE = 64
"""Of the least product, the others: two bases of four powers of two have so many."""
LARGEST_SUM = 1 << 31
LARGEST_BIAS_BITS = 30
DEAD_BIAS_BITS = 20
"""Steps of a filter whose products are all zero: its bias alone needs them."""
ROUNDS = 50
"""Of fitting, at most: nearest levels and least squares take turns, neither raises the squared error, so that it settles."""
STARTS = (0.5, 0.75, 1.0)
"""Times the range of the numbers: where bases of activations start; the best of the results is kept."""
MOST_VALUES = 1 << 16
"""Numbers that a basis of activations is fitted to, evenly spread over those given."""
LEAST_PRODUCT = 2.0**-100
MOST_SUM = 2.0**126
"""Between these neither products nor their sums are subnormal or overflow: all are multiples of the least product's last bit."""

Floats = NDArray[np.float32]


def levels_of(basis: Real) -> Real:
    """Values of all 0/1 patterns of a basis of activations, in the order of the patterns' binary numbers."""
    return np.asarray([sum(v for j, v in enumerate(basis) if p >> j & 1) for p in range(1 << len(basis))], dtype=np.float64)


def ranked(basis: Real) -> tuple[Real, tuple[int, ...]]:
    """Levels in ascending order, and the pattern of each; patterns are () where the order is that of binary numbers.

    The basis must ascend from 0 or more: then code 0 is zero. With one or two bits the order is always the binary one.
    """
    if np.any(basis < 0) or np.any(np.diff(basis) < 0):
        raise ModelError(f"activation basis {basis.tolist()}: negative or unsorted values; sort it in ascending order, from 0")
    levels = levels_of(basis)
    patterns = np.argsort(levels, kind="stable")
    own = tuple(int(p) for p in patterns)
    return levels[patterns], () if own == tuple(range(len(own))) else own


def boundaries_of(levels: Real) -> Real:
    """Values from which on the next level is nearer, halfway between neighbours."""
    return (levels[1:] + levels[:-1]) / 2


def weight_values(codes: Array, basis: Real) -> Real:
    """The numbers that codes mean: sums of ± each filter's basis."""
    along = (-1,) + (1,) * (codes.ndim - 1)
    total = np.zeros(codes.shape)
    for i in range(basis.shape[1]):
        total += ((codes.astype(np.int64) >> i & 1) * 2 - 1) * basis[:, i].reshape(along)
    return total


def canonical(codes: Array, basis: Real) -> tuple[NDArray[np.uint8], Real]:
    """The same weights with every filter's basis positive and ascending: planes change sign and place."""
    along = (-1,) + (1,) * (codes.ndim - 1)
    bits = [codes.astype(np.int64) >> i & 1 for i in range(basis.shape[1])]
    bits = [np.where((basis[:, i] < 0).reshape(along), 1 - b, b) for i, b in enumerate(bits)]
    order = np.argsort(np.abs(basis), axis=1, kind="stable")
    stacked = np.stack(bits, axis=1)
    chosen = np.take_along_axis(stacked, order.reshape(*order.shape, *[1] * (codes.ndim - 1)), axis=1)
    places = (1 << np.arange(basis.shape[1])).reshape(1, -1, *[1] * (codes.ndim - 1))
    return (chosen * places).sum(axis=1).astype(np.uint8), np.take_along_axis(np.abs(basis), order, axis=1)


def products_of(basis: Real, input_basis: Real, bits: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """v_i·a_j of every filter as integers, and the power of two that one step of each filter means.

    The largest of a filter has `bits` bits. Where all are multiples of the smallest (evenly spaced levels, sums of few powers of
    two) the smallest has, and the others are its multiples: rounding must not make them uneven.
    """
    exact = basis[:, :, None] * input_basis[None, None, :]
    size = np.abs(exact).reshape(len(exact), -1)
    least = np.where(size > 0, size, np.inf).min(axis=1)
    least = np.where(np.isfinite(least), least, 1.0)[:, None, None]
    multiples = np.rint(np.minimum(np.abs(exact) / least, MOST_MULTIPLE + 1)) * np.sign(exact)
    even = np.all((np.abs(exact - least * multiples) <= EVEN * np.abs(exact)) & (np.abs(multiples) <= MOST_MULTIPLE), axis=(1, 2))
    largest = np.where(even & size.any(axis=1), least[:, 0, 0], size.max(axis=1))
    exponents = np.asarray([frexp(v)[1] - bits if v else 0 for v in largest], dtype=np.int64)
    scaled = -exponents[:, None, None].astype(np.int32)
    found = np.where(even[:, None, None], np.rint(np.ldexp(least, scaled)) * multiples, np.rint(np.ldexp(exact, scaled)))
    found = found.astype(np.int64)
    for f, row in enumerate(found):  # powers of two belong into the scale: plain weights then multiply by one
        common = int(np.bitwise_or.reduce(np.abs(row), axis=None))
        spare = (common & -common).bit_length() - 1 if common else 0
        found[f], exponents[f] = row >> spare, exponents[f] + spare
    return found, exponents


@dataclass(frozen=True, slots=True)
class LearnedLayer:
    """A trained layer: what its weights and its input mean, and the affine map (BatchNorm, bias) of its sums.

    `weights` are codes with a basis (filters, bits), or plain int8 with one scale per filter in `basis` (filters, 1) and
    `weight_bits` 0. `input_basis` ascends; for plain integers (`input_bits` 0) it is their one scale. The layer's result is
    gain·sum + offset, both per filter.
    """

    body: Conv | Gemm
    weights: Array
    weight_bits: int
    basis: Real
    input_bits: int
    input_basis: Real
    gain: Real
    offset: Real

    def signed(self) -> tuple[Array, Real]:
        """Weights and basis with each filter's sign of gain in them, so that thresholds always ascend."""
        along = (-1,) + (1,) * (self.weights.ndim - 1)
        signs = np.where(self.gain < 0, -1, 1)
        if self.weight_bits:
            return canonical(self.weights, self.basis * signs[:, None])
        return np.clip(self.weights.astype(np.int64) * signs.reshape(along), -127, 127).astype(np.int8), self.basis


def coded_node(name: str, layer: LearnedLayer, source: str, output: str, boundaries: Sequence[float] | None,
               reach: int = 255, product_bits: int = PRODUCT_BITS) -> tuple[Node, tuple[Constant, ...]]:
    """A trained layer as a node of integers: to codes between `boundaries` of the next quantizer, or (None) to sums with bias.

    `reach` is the largest plain integer that comes in. Fewer product bits are taken where 32-bit sums need it.
    """
    weights, basis = layer.signed()
    if boundaries is None:
        basis = basis * np.abs(layer.gain)[:, None]
    bits_out = 0 if boundaries is None else (len(boundaries) + 1).bit_length() - 1
    if boundaries is not None and (len(boundaries) != steps_of(bits_out) or not 1 <= bits_out <= MOST_BITS):
        raise ModelError(f"{name}: {len(boundaries)} boundaries; codes of 1 to {MOST_BITS} bits have 1, 3, 7 or 15")
    _, patterns = ranked(layer.input_basis) if layer.input_bits else (None, ())
    op = Coded(layer.body, layer.weight_bits, layer.input_bits, bits_out, patterns)
    products, exponents = _fitting(name, op, weights, basis, layer, reach, product_bits)
    scheme = Scheme(32, True, tuple(int(e) for e in exponents), 0)
    if boundaries is None:
        steps, steps_scheme = np.rint(np.ldexp(layer.offset, -exponents.astype(np.int32))).astype(np.int32), scheme
    else:
        bound = op.bound(weights, products, reach)
        steps, steps_scheme = thresholds_of(np.asarray(boundaries), layer.gain, layer.offset, exponents, bound), None
    roles = {"codes": (weights, None), "products": (products.astype(np.int32), scheme), "steps": (steps, steps_scheme),
             "basis": (basis.astype(np.float32), None), "input_basis": (layer.input_basis.astype(np.float32), None)}
    constants = tuple(Constant(f"{name}_{role}", *value) for role, value in roles.items())
    check_constants(name, op, *constants[:3])
    return Node(name, op, (source,), tuple(c.name for c in constants), output), constants


def _fitting(name: str, op: Coded, weights: Array, basis: Real, layer: LearnedLayer, reach: int,
             bits: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Products of as many bits as are wanted, or as 32-bit sums and biases allow."""
    for width in range(bits, 0, -1):
        products, exponents = products_of(basis, layer.input_basis, width)
        if not op.output_bits:
            products, exponents = _with_room(products, exponents, layer.offset)
        if op.bound(weights, products, reach) < LARGEST_SUM // 2:
            return products, exponents
    raise ModelError(f"{name}: sums of {weights[0].size} products exceed 32 bits; divide the layer")


def _with_room(products: NDArray[np.int64], exponents: NDArray[np.int64],
               offset: Real) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Steps coarse enough that every bias fits beside its sums, and fine enough for it where nothing else is summed."""
    wanted = np.asarray([frexp(b)[1] for b in offset], dtype=np.int64)
    dead = ~products.any(axis=(1, 2))
    least = np.where(dead, wanted - DEAD_BIAS_BITS, np.maximum(exponents, wanted - LARGEST_BIAS_BITS))
    coarser = (least - exponents)[:, None, None].astype(np.int32)
    return np.rint(np.ldexp(products.astype(np.float64), -coarser)).astype(np.int64), least


def thresholds_of(boundaries: Real, gain: Real, offset: Real, exponents: NDArray[np.int64], bound: int) -> NDArray[np.int32]:
    """The least sum of each filter, in its own steps, at which |gain|·sum + offset reaches each boundary.

    The sign of the gain is in the weights already. A filter without gain is constant: its thresholds are below or above all
    sums. `bound` limits |sum|, and with it every threshold.
    """
    above = boundaries[None, :] - offset[:, None]
    size = np.abs(gain)[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        sums = np.where(size > 0, above / size, np.where(above > 0, np.inf, -np.inf))
    found = np.ceil(np.ldexp(sums, -exponents[:, None].astype(np.int32)))
    return np.clip(found, -bound, bound + 1).astype(np.int32)


def threshold_node(name: str, source: str, output: str, scheme: Scheme, boundaries: Sequence[float], gain: Real | None = None,
                   offset: Real | None = None) -> tuple[Node, Constant]:
    """The codes of fixed-point numbers, between a quantizer's boundaries; where gains (none negative) and offsets by channel are
    given, the codes of gain·number + offset."""
    bits = (len(boundaries) + 1).bit_length() - 1
    real = np.asarray(boundaries, dtype=np.float64)
    if gain is not None and offset is not None:
        if np.any(gain < 0):
            raise ValueError(f"{name}: a negative gain would turn thresholds round")
        with np.errstate(divide="ignore", invalid="ignore"):  # a gain of zero: every number has the offset's code
            real = np.where(gain[:, None] > 0, (real - offset[:, None]) / gain[:, None],
                            np.where(offset[:, None] >= real, -np.inf, np.inf))
    least = np.clip(np.ceil(real / scheme.scale) + scheme.zero, scheme.lo, scheme.hi + 1)
    steps = Constant(f"{name}_steps", least.astype(np.int32))
    return Node(name, Thresholds(bits, gain is not None), (source,), (steps.name,), output), steps


def fit_weights(weights: Array, bits: int) -> tuple[NDArray[np.uint8], Real]:
    """Codes and a basis per filter (filters, bits) of weights (filters, …), without training: LQ-Nets, algorithm 1."""
    flat = np.asarray(weights, dtype=np.float64).reshape(len(weights), -1)
    count = 1 << bits
    spread = flat.std(axis=1) + np.abs(flat).mean(axis=1) * 1e-9
    basis = np.outer(spread, 2.0 ** (np.arange(bits) - bits + 1))
    every, codes = np.broadcast_to(np.arange(count), (len(flat), count)), np.zeros(flat.shape, dtype=np.int64)
    for _ in range(ROUNDS):
        before = codes
        codes = np.abs(flat[:, :, None] - weight_values(every, basis)[:, None, :]).argmin(axis=2)
        for f, row in enumerate(codes):
            planes = np.stack([(row >> i & 1) * 2.0 - 1 for i in range(bits)], axis=1)
            basis[f] = np.linalg.lstsq(planes, flat[f], rcond=None)[0]
        if np.array_equal(before, codes):
            break
    return codes.reshape(np.shape(weights)).astype(np.uint8), basis


def fit_levels(values: Array, bits: int) -> Real:
    """An ascending basis of so many bits for numbers that are not negative."""
    flat = np.asarray(values, dtype=np.float64).reshape(-1)
    flat = flat[:: max(1, len(flat) // MOST_VALUES)]
    best, least = np.zeros(bits), np.inf
    for start in STARTS:
        basis = start * float(flat.max(initial=0.0)) * 2.0 ** np.arange(bits) / ((1 << bits) - 1)
        for _ in range(ROUNDS):
            codes = np.abs(flat[:, None] - levels_of(basis)[None, :]).argmin(axis=1)
            planes = np.stack([(codes >> j & 1).astype(np.float64) for j in range(bits)], axis=1)
            found = np.sort(np.maximum(np.linalg.lstsq(planes, flat, rcond=None)[0], 0.0))
            settled = np.allclose(found, basis, rtol=1e-6)
            basis = found
            if settled:
                break
        error = float(np.square(np.abs(flat[:, None] - levels_of(basis)[None, :]).min(axis=1)).sum())
        if error < least:
            best, least = basis, error
    return best


@dataclass(frozen=True, slots=True)
class FloatLayer:
    """Weights as `Coded` shapes them, levels by input code, thresholds (filters, steps): all float32."""

    weights: Floats
    levels: Floats
    steps: Floats

    def product(self, filter_: int, place: int) -> Floats:
        """What every input code contributes at a place of a filter, rounded once."""
        found: Floats = self.weights.reshape(len(self.weights), -1)[filter_, place] * self.levels
        return found


def float_layer(name: str, op: Coded, params: Sequence[Constant]) -> FloatLayer:
    """A layer's numbers from its bases and thresholds; UnsupportedError where it has none or they leave single precision."""
    if not (op.weight_bits and op.input_bits and op.output_bits):
        raise UnsupportedError(f"{name}: plain integers on one side; the float baselines take layers from codes to codes")
    codes, products, steps, basis, input_basis = (c.array for c in params)
    scheme = params[1].scheme
    assert scheme is not None
    own = np.broadcast_to(np.asarray(scheme.exponents), (len(products),))
    weights = weight_values(codes, basis.astype(np.float64)).astype(np.float32)
    order = list(op.patterns or range(1 << op.input_bits))
    levels = levels_of(input_basis.astype(np.float64))[order].astype(np.float32)
    sizes = np.abs(weights)[..., None].astype(np.float64) * levels
    if (sizes[sizes > 0] < LEAST_PRODUCT).any() or sizes.max(axis=-1).reshape(len(weights), -1).sum(axis=1).max() > MOST_SUM:
        raise UnsupportedError(f"{name}: products from {sizes[sizes > 0].min():.3g} up to {sizes.max():.3g}; single precision "
                               f"without subnormal numbers needs {LEAST_PRODUCT:.3g} to {MOST_SUM:.3g} of a sum")
    return FloatLayer(weights, levels, np.ldexp(steps.astype(np.float64), own[:, None]).astype(np.float32))
