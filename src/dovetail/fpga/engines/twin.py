"""Two filters in one lane: their weights side by side in one wide multiplicand, so that one multiplier makes both products.

For an activation x and weights a and b, (a * 2**18 + b) * x is a*x * 2**18 + b*x: the lower 18 bits are b*x, the upper ones
a*x less one where b*x is negative (Xilinx WP486 packs two 8-bit products into a DSP48E2 like this). As many such products are
added as the lower field bears, then both are taken apart and summed on by themselves.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dovetail.fpga.engines.lane import FilterConstants, Lane, Range, Ranges, accumulated, finished, given_fields, tree
from dovetail.fpga.engines.layers import Rescale
from dovetail.fpga.engines.stream import Pipeline, Staged
from dovetail.fpga.rtl.expressions import Bits, Expr, Signal, bit_width, pack
from dovetail.fpga.rtl.modules import Module
from dovetail.hardware.adders.graph import IntMatrix
from dovetail.hardware.folds import TWIN_FIELD_BITS, twin_sums

UPPER_BITS = 9
"""Of the upper weight, of which one is taken where the lower one is negative: eight bits would not hold -129."""


def twin_module(name: str, taps: int, x: Range, w: Range, ranges: Ranges, sums: int, constants: FilterConstants,
                rescale: Rescale) -> Lane:
    """A lane of two filters: `w` holds (lower, upper) fields tap by tap, every other port the lower filter's value first."""
    m = Module(name, (f"Two lanes of {taps} products each, two products in a multiplier.",), shared=True)
    pipeline = Pipeline(m)
    width, narrow = bit_width(*x), bit_width(*w)
    wide = bit_width(w[0] - 1, w[1])
    data, weights = m.input("x", taps * width), m.input("w", taps * (narrow + wide))
    products = []
    for i in range(taps):
        column = m.wire(f"x_{i}", data.field(i * width, *x))
        lower = weights.field(i * (narrow + wide), *w)
        upper = weights.field(i * (narrow + wide) + narrow, w[0] - 1, w[1])
        products.append(pipeline.register(f"product_{i}", pair_of(m, f"w_{i}", lower, upper, w) * column, 0))
    apart = taken_apart(pipeline, products, twin_sums(x, w), x, w)
    totals = [tree(pipeline, side, ranges.part, f"{label}_") for label, side in zip(SIDES, apart, strict=True)]
    sum_stage = totals[0].stage
    if sums:
        starts, works = m.input("starts"), m.input("works")
        totals = [accumulated(m, total, ranges.so_far, starts, works, f"{label}_", sums)
                  for label, total in zip(SIDES, totals, strict=True)]
    entering = totals[0].stage
    results = []
    for label, total in zip(SIDES, totals, strict=True):
        given = given_fields(m, constants, entering, f"{label}_")
        results.append(finished(pipeline, total, given, ranges, constants, rescale, f"{label}_"))
    last = max(entering, *(r.stage for r in results))
    values = [pipeline.at(r, last) for r in results]
    one = values[0].width
    m.output("y", pack([(value, one) for value in values]))
    return Lane(m, sum_stage, entering, last, Staged(values[0], last))


SIDES = ("lower", "upper")


def pair_of(m: Module, name: str, lower: Expr, upper: Expr, w: Range) -> Signal:
    """A pair of weights, the upper one as `twin_rows` says, read as the integer it is."""
    both = pack([(lower, TWIN_FIELD_BITS), (upper, UPPER_BITS)])
    bounds = ((w[0] << TWIN_FIELD_BITS) + w[0], (w[1] << TWIN_FIELD_BITS) + w[1])
    assert bit_width(*bounds) <= TWIN_FIELD_BITS + UPPER_BITS
    return m.wire(name, Bits(*bounds, m.wire(f"{name}_pair", both), 0, TWIN_FIELD_BITS + UPPER_BITS), bounds)


def taken_apart(pipeline: Pipeline, products: Sequence[Staged], most: int, x: Range, w: Range,
                prefix: str = "") -> tuple[list[Staged], list[Staged]]:
    """Sums of up to `most` packed products, each taken apart: lower and upper ones, all at one stage."""
    count = -(-len(products) // most)
    groups = [products[i::count] for i in range(count)]
    corners = [a * b for a in x for b in w]
    joined = [tree(pipeline, group, None, f"{prefix}pair_{i}_") for i, group in enumerate(groups)]
    stage = max(total.stage for total in joined)
    lowers, uppers = [], []
    for i, (group, total) in enumerate(zip(groups, joined, strict=True)):
        bounds = min(corners) * len(group), max(corners) * len(group)
        value = pipeline.signal_at(total, stage)
        lower = Bits(*bounds, value, 0, TWIN_FIELD_BITS)
        carry = value.bit(TWIN_FIELD_BITS - 1)
        lowers.append(pipeline.register(f"{prefix}lower_part_{i}", lower, stage, bounds))
        upper = (value >> TWIN_FIELD_BITS) + carry
        uppers.append(pipeline.register(f"{prefix}upper_part_{i}", upper, stage, bounds))
    return lowers, uppers


def twin_rows(lanes: IntMatrix) -> IntMatrix:
    """Weights of an even number of lanes (lanes x taps) as pairs (pairs x taps x (lower, upper)) of fields."""
    lower, upper = lanes[0::2], lanes[1::2]
    return np.stack([lower, upper - (lower < 0)], axis=-1)
