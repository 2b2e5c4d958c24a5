"""Area and depth of engines for layers of codes: counters of bits, sums of counts, thresholds.

A closed form over the weights' codes, not fitted: docs/lq.md holds it against syntheses, and plans mark what it says as
extrapolated.
"""

from __future__ import annotations

from functools import lru_cache
from math import ceil, log
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dovetail.cost.adder_graph import digit_counts
from dovetail.cost.adders import Once
from dovetail.cost.estimate import Floats
from dovetail.cost.rounding import input_bits, output_bits
from dovetail.cost.scans import Parts
from dovetail.ir import Coded, Constant, Conv, Graph, Node, Thresholds
from dovetail.ir.lq import steps_of

SOURCE = "area of codes: bits counted and digits added, a formula that was not fitted"
Ints = NDArray[np.int64]

COUNT_STAGES_BASE = 6 / 3
"""By how much one level of counters shortens a column."""
DIGIT_BITS = 0.4
"""Adder bits per digit of a filter's constants, of its sum's width: adders are narrower than sums, and half of them shared."""
THRESHOLD_STAGES = 2


def coded_parts(graph: Graph, node: Node, engine: Parts) -> Parts:
    """What the engine of a layer of codes has beyond its stream; every share has as many filters as it writes."""
    outputs: Floats = engine["output_bits"] / output_bits(graph, node)
    if isinstance(node.op, Thresholds):
        compared = outputs * steps_of(node.op.bits) * input_bits(graph, node)
        return engine | {"comparison_bits": compared, "sum_bits": outputs * (steps_of(node.op.bits) + node.op.bits)}
    assert isinstance(node.op, Coded)
    codes, products = graph.params(node)[:2]
    reach = input_bits(graph, node)
    own, digits, width, taps, shared = _sizes(Once(codes), Once(products), node.op, reach)
    whole = node.op.filters
    sums = outputs / whole * (own.added + digits * width * DIGIT_BITS) + shared.added
    counted = outputs / whole * own.counted + shared.counted
    levels = ceil(log(max(2.0, taps), COUNT_STAGES_BASE)) + ceil(np.log2(max(2.0, digits / whole)))
    parts = {"adder_bits": sums, "sum_bits": sums, "counted_bits": counted, "adders": outputs / whole * digits,
             "stages": engine["stages"] + levels}
    if node.op.output_bits:
        steps = steps_of(node.op.output_bits)
        return engine | parts | {"comparison_bits": outputs * steps * width, "stages": parts["stages"] + THRESHOLD_STAGES - 2}
    return engine | parts | {"accumulator_bits": outputs * width, "clamped_bits": engine["output_bits"]}


class Counts(NamedTuple):
    """What counting takes: bits that counters remove, and bits of the adders that end or join counts."""

    counted: float
    added: float


def _counting(ones: Ints) -> tuple[Ints, Ints]:
    """Of counts of so many ones: bits that counters remove until two rows are left, and bits of adding these."""
    widths: Ints = np.ceil(np.log2(ones + 1)).astype(np.int64)
    return np.maximum(0, ones - 2 * widths), widths


@lru_cache(maxsize=1024)
def _sizes(codes: Once[Constant], products: Once[Constant], op: Coded, reach: int) -> tuple[Counts, float, float, float, Counts]:
    """Counts for single filters, and digits added, over all of them; the widest sum; values seen; counts for all filters."""
    weights, factors = codes.value.array, products.value.array.astype(np.int64)
    flat = weights.reshape(len(weights), -1)
    taps, groups = flat.shape[1], op.body.groups if isinstance(op.body, Conv) else 1
    width = float(max(1, op.bound(weights, factors, (1 << reach) - 1)).bit_length() + 1)
    if not (op.weight_bits and op.input_bits):
        planes = [op.weights(flat, factors, j).astype(np.int64) for j in range(op.input_planes)]
        digits = float(sum(int(digit_counts(np.abs(p)).sum()) for p in planes))
        return Counts(0.0, 0.0), digits, width, float(taps), Counts(0.0, 0.0)
    present = np.stack([(flat == code).sum(axis=1) for code in range(1 << op.weight_bits)], axis=1)
    removed, ends = _counting(present)
    usual = present.argmax(axis=1)[:, None]
    per_bit = len(flat) * op.weight_bits * ((1 << op.weight_bits - 1) - 1) * taps.bit_length()  # counts of codes, per weight bit
    counted, added = (int(a.sum() - np.take_along_axis(a, usual, axis=1).sum()) for a in (removed, ends))
    own = Counts(float(counted * op.input_bits), float((added + per_bit) * op.input_bits))
    signs = np.stack([op.signs(np.arange(1 << op.weight_bits), i) for i in range(op.weight_bits)], axis=1)
    values = np.einsum("ci,fij->fjc", signs, factors)
    left_out = np.take_along_axis(values, usual[:, None], axis=2)
    digits = float(digit_counts(np.abs(factors)).sum() + digit_counts(np.abs(left_out)).sum())
    return own, digits, width, float(taps * groups), _of_all(present[0], taps, groups * op.input_bits)


def _of_all(present: Ints, taps: int, times: int) -> Counts:
    """The ones of all taps: counted by themselves, or the sum of the first filter's counts, whichever takes less."""
    alone, first = _counting(np.asarray([taps])), _counting(present)
    usual, joined = int(present.argmax()), (int(np.count_nonzero(present)) - 1) * taps.bit_length()
    ways = [(int(alone[0][0]), int(alone[1][0])), (int(first[0][usual]), int(first[1][usual]) + joined)]
    counted, added = min(ways, key=lambda way: way[0] + way[1])
    return Counts(float(counted * times), float(added * times))
