"""The sum of a coded product in the forms that hardware computes it in: look-up table, popcounts of bit planes, and floats.

The first two are exact in int64 and equal to the reference, `Coded.accumulate`, for every input; tests prove it over bit
widths, signs and shapes. The reference multiplies planes by integer weights because matrix products are what NumPy is fast at.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from dovetail.ir import Array, Coded
from dovetail.numerics.lq import FloatLayer, Floats

Whole = NDArray[np.int64]


def windows(op: Coded, x: Array) -> Array:
    """What every filter sees: (frames, groups, values of a window, pixels), in the order of a filter's weights."""
    body, window, (frames, channels) = op.body, op.body.window, x.shape[:2]
    if window is None:
        return x[:, None, :, None]
    padded = np.pad(x, ((0, 0), (0, 0), window.pads[0::2], window.pads[1::2]))
    taps = [tap.reshape(frames, body.groups, channels // body.groups, 1, -1) for _, _, tap in window.taps(padded)]
    seen = np.concatenate(taps, axis=3)
    return seen.reshape(frames, body.groups, -1, seen.shape[-1])


def placed(op: Coded, x: Array, sums: Array) -> Array:
    """(frames, groups, filters of a group, pixels) as the output's shape."""
    return sums.reshape(len(x), *op.infer((x.shape,))[1:])


def grouped(op: Coded, codes: Array) -> Array:
    """Weights as (groups, filters of a group, values of a window)."""
    return codes.reshape(op.body.groups, len(codes) // op.body.groups, -1)


def product_table(op: Coded, products: Array) -> Whole:
    """(filters, weight codes, input codes): the integer that each pair contributes to a sum of its filter.

    Entries of plain integers follow their bytes: 0 to 127, then -128 to -1 for signed ones, as unsigned bytes index them.
    """
    byte = np.arange(256)
    signs = byte[:, None] if not op.weight_bits else np.stack(
        [op.signs(np.arange(1 << op.weight_bits), i) for i in range(op.weight_bits)], axis=1)
    planes = byte[:, None] if not op.input_bits else np.stack(
        [op.plane(np.arange(1 << op.input_bits), j) for j in range(op.input_bits)], axis=1)
    if not op.weight_bits:
        signs = signs.astype(np.int8)
    table: Whole = np.einsum("wi,fij,aj->fwa", signs.astype(np.int64), products.astype(np.int64), planes.astype(np.int64))
    return table


def table_sum(op: Coded, x: Array, codes: Array, products: Array) -> Whole:
    """One look-up per weight and window value. Plain inputs must be unsigned bytes, as images are."""
    table = product_table(op, products)
    table = table.reshape(*grouped(op, table.reshape(len(table), -1)).shape[:2], *table.shape[1:])
    seen, weights = windows(op, x).astype(np.uint8), grouped(op, codes).astype(np.uint8)
    group, filter_ = np.arange(weights.shape[0])[:, None], np.arange(weights.shape[1])[None, :]
    total = np.zeros((len(x), *weights.shape[:2], seen.shape[-1]), dtype=np.int64)
    for k in range(weights.shape[2]):
        rows = table[group, filter_, weights[:, :, k]]
        for g in range(len(rows)):
            total[:, g] += rows[g][:, seen[:, g, k]].transpose(1, 0, 2)
    return placed(op, x, total)


def _weight_planes(op: Coded, codes: Array) -> Iterator[tuple[Array, int, int]]:
    """Bits of the weights, which row of the products they belong to, and their factor; 0 stands for ± planes."""
    for i in range(op.weight_bits):
        yield codes >> i & 1, i, 0
    for bit in range(0 if op.weight_bits else 8):
        yield codes.astype(np.int64) >> bit & 1, 0, -128 if bit == 7 else 1 << bit


def _input_planes(op: Coded, x: Array) -> Iterator[tuple[Array, int, int]]:
    """Bits of the input, which column of the products they belong to, and their factor."""
    for j in range(op.input_bits):
        yield op.plane(x, j), j, 1
    width = x.dtype.itemsize * 8
    for bit in range(0 if op.input_bits else width):
        yield x.astype(np.int64) >> bit & 1, 0, -(1 << bit) if x.dtype.kind == "i" and bit == width - 1 else 1 << bit


def popcount_sum(op: Coded, x: Array, codes: Array, products: Array) -> Whole:
    """Counts of set bits: 2·popcount(w ∧ a) - popcount(a) for planes of ±1 and 0/1, popcount(w ∧ a) for plain bits.

    AND alone would be wrong for ± weights: a cleared weight bit subtracts.
    """
    factors = grouped(op, products.astype(np.int64).reshape(len(products), -1)).reshape(
        *grouped(op, codes).shape[:2], *products.shape[1:])
    total: Whole = np.zeros((1,), dtype=np.int64)
    for a, j, factor in _input_planes(op, x):
        seen = np.packbits(windows(op, a).astype(np.uint8), axis=2)[:, :, None]
        every = np.bitwise_count(seen).sum(axis=3, dtype=np.int64)
        for w, i, weight in _weight_planes(op, codes):
            bits = np.packbits(grouped(op, w).astype(np.uint8), axis=2)[None, ..., None]
            both = np.bitwise_count(bits & seen).sum(axis=3, dtype=np.int64)
            counted = weight * both if weight else 2 * both - every
            total = total + factor * factors[None, :, :, i, j, None] * counted
    return placed(op, x, total)


def paired(values: Floats) -> Floats:
    """The sum over the first axis, neighbours first, as a tree of adders sums: what is left over waits for the next round."""
    while len(values) > 1:
        sums = values[:-1:2] + values[1::2]
        values = np.concatenate([sums, values[-1:]]) if len(values) % 2 else sums
    found: Floats = values[0]
    return found


def float_sum(op: Coded, x: Array, layer: FloatLayer) -> Floats:
    """Sums of all products in float32, in the order of `paired`."""
    seen, weights = layer.levels[windows(op, x).astype(np.int64)], grouped(op, layer.weights)
    total = np.zeros((len(x), *weights.shape[:2], seen.shape[-1]), dtype=np.float32)
    for group, rows in enumerate(weights):
        for f, row in enumerate(rows):
            total[:, group, f] = paired(row[:, None, None] * seen[:, group].transpose(1, 0, 2))
    return placed(op, x, total)
