"""Area and depth of engines for layers of codes: counters of bits, sums of counts, thresholds.

A closed form over the weights' codes, not fitted: docs/lq.md holds it against syntheses, and plans mark what it says as
extrapolated.
"""

from __future__ import annotations

from functools import lru_cache
from math import ceil, log

import numpy as np

from dovetail.cost.adder_graph import digit_counts
from dovetail.cost.adders import Once
from dovetail.cost.estimate import Floats
from dovetail.cost.rounding import input_bits, output_bits
from dovetail.cost.scans import Parts
from dovetail.ir import Coded, Constant, Conv, Graph, Node, Thresholds
from dovetail.ir.lq import steps_of

SOURCE = "area of codes: bits counted and digits added, a formula that was not fitted"
COUNTER_BITS = 1.0
"""Adder bits that removing one bit from a sum costs: a counter of six is three look-up tables and leaves three bits."""
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
    counted, digits, width, taps, shared = _sizes(Once(codes), Once(products), node.op, reach)
    whole = node.op.filters
    sums = outputs / whole * (counted * COUNTER_BITS + digits * width * DIGIT_BITS) + shared * COUNTER_BITS
    levels = ceil(log(max(2.0, taps), COUNT_STAGES_BASE)) + ceil(np.log2(max(2.0, digits / whole)))
    parts = {"adder_bits": sums, "sum_bits": sums, "adders": outputs / whole * digits, "stages": engine["stages"] + levels}
    if node.op.output_bits:
        steps = steps_of(node.op.output_bits)
        return engine | parts | {"comparison_bits": outputs * steps * width, "stages": parts["stages"] + THRESHOLD_STAGES - 2}
    return engine | parts | {"accumulator_bits": outputs * width, "clamped_bits": engine["output_bits"]}


@lru_cache(maxsize=1024)
def _sizes(codes: Once[Constant], products: Once[Constant], op: Coded, reach: int) -> tuple[float, float, float, float, float]:
    """Bits counted for single filters, and digits added, over all of them; the widest sum; values seen; bits counted for all."""
    weights, factors = codes.value.array, products.value.array.astype(np.int64)
    flat = weights.reshape(len(weights), -1)
    taps, groups = flat.shape[1], op.body.groups if isinstance(op.body, Conv) else 1
    width = float(max(1, op.bound(weights, factors, (1 << reach) - 1)).bit_length() + 1)
    if not (op.weight_bits and op.input_bits):
        planes = [op.weights(flat, factors, j).astype(np.int64) for j in range(op.input_planes)]
        return 0.0, float(sum(int(digit_counts(np.abs(p)).sum()) for p in planes)), width, float(taps), 0.0
    present = np.stack([(flat == code).sum(axis=1) for code in range(1 << op.weight_bits)], axis=1)
    added = op.weight_bits * ((1 << op.weight_bits - 1) - 1) * taps.bit_length()  # counts of codes, summed per weight bit
    counted = float((taps - present.max(axis=1) + added).sum()) * op.input_bits
    joined = (np.count_nonzero(present[0]) - 1) * taps.bit_length()
    shared = min(float(taps), float(present[0].max() + joined)) * groups * op.input_bits
    signs = np.stack([op.signs(np.arange(1 << op.weight_bits), i) for i in range(op.weight_bits)], axis=1)
    values = np.einsum("ci,fij->fjc", signs, factors)
    left_out = np.take_along_axis(values, present.argmax(axis=1)[:, None, None], axis=2)
    digits = digit_counts(np.abs(factors)).sum() + digit_counts(np.abs(left_out)).sum()
    return counted, float(digits), width, float(taps * groups), shared
