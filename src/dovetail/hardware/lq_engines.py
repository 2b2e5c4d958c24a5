"""Area and depth of engines for layers of codes: counters of bits, sums of counts, thresholds.

Between codes a closed form over the weights' codes, not fitted. Where one side is plain integers, an adder graph over the
window's numbers or bits like any convolution's, by the same formula (`sharing`); what is particular to codes is held against
graphs as they are built by `python bench/engines.py --part codes`. docs/method/lq-hardware.md holds both against syntheses,
and plans mark what they say as extrapolated.
"""

from __future__ import annotations

from functools import lru_cache
from math import ceil, log
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dovetail.hardware.adders.digits import Digits, Once, count_digits
from dovetail.hardware.adders.graph import digit_counts
from dovetail.hardware.adders.slices import Arithmetic, Slices
from dovetail.hardware.rounding import input_bits, output_bits
from dovetail.hardware.scans import Parts
from dovetail.hardware.shares import Floats, Segments
from dovetail.ir import Coded, Constant, Graph, Node
from dovetail.ir.operators.lq import steps_of

SOURCE = "area of codes: bits counted and digits added, a formula that was not fitted to syntheses"
Ints = NDArray[np.int64]

COUNT_STAGES_BASE = 6 / 3
"""By how much one level of counters shortens a column."""
DIGIT_BITS = 0.4
"""Adder bits per digit of a filter's constants, of its sum's width: adders are narrower than sums, and half of them shared."""
FEW_WEIGHTS = {0: 1.0, 1: 0.34, 2: 0.48, 3: 0.66, 4: 0.79}
"""Part of the adders that weights of so many bits take of numbers, of those that any weights take: few values repeat often."""
SINGLE_BITS = 0.87
SINGLE_BITS_KEPT = 0.67
"""Carry and register bits over single bits, of those that the widths of numbers say."""


def adds_integers(node: Node) -> bool:
    """Whether a layer of codes has plain integers on one side, so that it is an adder graph."""
    return node.op.coded and not (node.op.weight_bits and node.op.input_bits)


def coded_slices(graph: Graph, node: Node, segments: Segments) -> Slices:
    """Slices of the adder graph of a layer with plain integers on one side."""
    op = node.op
    assert isinstance(op, Coded)
    codes, products = graph.params(node)[:2]
    bits = 1 if op.input_bits else input_bits(graph, node)
    return Slices(_plane_digits(Once(codes), Once(products), op), op.body.groups, segments, bits)


@lru_cache(maxsize=64)
def _plane_digits(codes: Once[Constant], products: Once[Constant], op: Coded) -> Digits:
    return count_digits(plane_matrix(codes.value, products.value, op))


def plane_matrix(codes: Constant, products: Constant, op: Coded) -> NDArray[np.int32]:
    """What every plane of the input is multiplied with, plane by plane, as one matrix."""
    flat, factors = codes.array.reshape(len(codes.array), -1), products.array.astype(np.int64)
    return np.concatenate([op.weights(flat, factors, j).astype(np.int32) for j in range(op.input_planes)], axis=1)


def coded_parts(graph: Graph, node: Node, engine: Parts, sums: Arithmetic | None = None) -> Parts:
    """What the engine of a layer of codes has beyond its stream; every share has as many filters as it writes.

    `sums` are the adders of its `coded_slices`, where it has plain integers on one side.
    """
    outputs: Floats = engine["output_bits"] / output_bits(graph, node)
    if not isinstance(node.op, Coded):
        steps, bits = steps_of(node.op.code_bits), node.op.code_bits
        return engine | {"comparison_bits": outputs * steps * input_bits(graph, node), "sum_bits": outputs * (steps + bits)}
    codes, products = graph.params(node)[:2]
    reach = input_bits(graph, node)
    parts = _added(node.op, engine, sums) if sums is not None else _counted(node.op, engine, outputs, Once(codes), Once(products))
    width = float(max(1, _bound(Once(codes), Once(products), node.op, reach)).bit_length() + 1)
    if node.op.output_bits:
        steps = steps_of(node.op.output_bits)
        return engine | parts | {"comparison_bits": outputs * steps * width}
    return engine | parts | {"accumulator_bits": outputs * width, "clamped_bits": engine["output_bits"]}


@lru_cache(maxsize=1024)
def _bound(codes: Once[Constant], products: Once[Constant], op: Coded, reach: int) -> int:
    return op.bound(codes.value.array, products.value.array.astype(np.int64), (1 << reach) - 1)


def _added(op: Coded, engine: Parts, sums: Arithmetic) -> Parts:
    """An adder graph: of numbers with few different weights, or of single bits."""
    part, kept = (SINGLE_BITS, SINGLE_BITS_KEPT) if op.input_bits else (FEW_WEIGHTS[op.weight_bits],) * 2
    adders = sums.adders if op.input_bits else sums.adders * part
    return {"adder_bits": sums.bits * part, "sum_bits": sums.registers * kept, "adders": adders,
            "stages": engine["stages"] + sums.levels}


def _counted(op: Coded, engine: Parts, outputs: Floats, codes: Once[Constant], products: Once[Constant]) -> Parts:
    """Counters of bits, and the few multiples of their counts."""
    own, digits, width, taps, shared = _sizes(codes, products, op)
    added = outputs / op.filters * (own.added + digits * width * DIGIT_BITS) + shared.added
    levels = ceil(log(max(2.0, taps), COUNT_STAGES_BASE)) + ceil(np.log2(max(2.0, digits / op.filters)))
    return {"adder_bits": added, "sum_bits": added, "counted_bits": outputs / op.filters * own.counted + shared.counted,
            "adders": outputs / op.filters * digits, "stages": engine["stages"] + levels}


class Counts(NamedTuple):
    """What counting takes: bits that counters remove, and bits of the adders that end or join counts."""

    counted: float
    added: float


def _counting(ones: Ints) -> tuple[Ints, Ints]:
    """Of counts of so many ones: bits that counters remove until two rows are left, and bits of adding these."""
    widths: Ints = np.ceil(np.log2(ones + 1)).astype(np.int64)
    return np.maximum(0, ones - 2 * widths), widths


@lru_cache(maxsize=1024)
def _sizes(codes: Once[Constant], products: Once[Constant], op: Coded) -> tuple[Counts, float, float, float, Counts]:
    """Counts for single filters, and digits added, over all of them; the widest sum; values seen; counts for all filters."""
    weights, factors = codes.value.array, products.value.array.astype(np.int64)
    flat = weights.reshape(len(weights), -1)
    taps, groups = flat.shape[1], op.body.groups
    width = float(max(1, op.bound(weights, factors, 1)).bit_length() + 1)
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
