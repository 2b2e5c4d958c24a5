"""How many adders survive sharing, and how wide they are: `subexpressions.minimize` in a formula, for whole columns of slices.

The search starts from D signed digits in R filters of C inputs, which plain trees would add with D - R adders. The part of
them that remains falls with every chance of a repeated pair: more filters, more inputs, more digits per weight. It is a
quadratic of log R, log C and log(D / RC), fitted with the widths to random matrices of every shape that layers have
(`python bench/engines.py --part sharing` draws them, runs the search, fits, and prints the errors on matrices left out).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dovetail.hardware.adders.graph import AdderGraph
from dovetail.hardware.adders.subexpressions import MAX_PAIRS
from dovetail.hardware.shares import Floats

SHARING = (0.06835, -0.2387, -0.01102, -0.2596, 0.01106, -0.01271, -0.0008517, 0.02514, 0.02371, -0.009528)
"""Log of the part of the adders that remains: 1, r, c, d, r*r, c*c, d*d, r*c, r*d, c*d of the three logarithms."""
CARRY_WIDTH = (1.256, 1.024, -0.02131, 0.2919, 0.174, -0.2187)
"""Mean bits of an adder's carry chain: 1, bits of the inputs, bit length of the weights, that of a filter's sum, r, c."""
SUM_WIDTH = (1.036, 1.295, 0.06055, 0.4578, 0.1004, -0.3049)
"""Mean register bits of an adder with the delays of its operands, by the same six."""


@dataclass(frozen=True, slots=True)
class Matrices:
    """What is known of constant matrices, one entry each: signed digits, filters and inputs.

    `length` is the mean bit length of the weights, `growth` that of the sums of a filter's magnitudes, `bits` the inputs';
    plain numbers hold for all of them.
    """

    digits: Floats
    filters: Floats
    columns: Floats
    bits: Floats | float
    length: Floats | float
    growth: Floats | float


def summed(found: Matrices) -> tuple[Floats, Floats, Floats]:
    """Adders of matrices, the bits of their carry chains, and their registers."""
    r, c, d = logarithms(found)
    adders = _left(found, r, c, d)
    return adders, adders * _width(found, CARRY_WIDTH, r, c), adders * _width(found, SUM_WIDTH, r, c)


def logarithms(found: Matrices) -> tuple[Floats, Floats, Floats]:
    """Logarithms of filters, of the inputs that are searched together, and of digits per weight."""
    filters, columns = np.maximum(found.filters, 1.0), np.maximum(found.columns, 1.0)
    density = np.maximum(found.digits, 1.0) / (filters * columns)
    block = np.sqrt(2.0 * MAX_PAIRS / filters) / density
    return np.log(filters), np.log(np.clip(columns, 1.0, np.maximum(block, 1.0))), np.log(density)


def terms_of(r: Floats, c: Floats, d: Floats) -> list[Floats]:
    """What the `SHARING` coefficients multiply."""
    return [np.ones_like(r), r, c, d, r * r, c * c, d * d, r * c, r * d, c * d]


def _left(found: Matrices, r: Floats, c: Floats, d: Floats) -> Floats:
    """Added term by term: a product of matrices rounds otherwise when there are more rows, and prices must not."""
    plain = np.maximum(found.digits - found.filters, 0.0)
    shared = np.full(r.shape, SHARING[0])
    for weight, term in zip(SHARING[1:], terms_of(r, c, d)[1:], strict=True):
        shared += weight * term
    return np.asarray(np.minimum(plain, plain * np.exp(shared)), dtype=np.float64)


def _width(found: Matrices, weights: tuple[float, ...], r: Floats, c: Floats) -> Floats:
    fixed = weights[0] + weights[1] * found.bits + weights[2] * found.length + weights[3] * found.growth
    return np.asarray(fixed + weights[4] * r + weights[5] * c, dtype=np.float64)


def graph_bits(graph: AdderGraph, input_bits: int) -> tuple[int, int]:
    """Carry bits and register bits of a graph as it is built: what the two widths above estimate.

    Bits of an operand below the other's shift pass an adder unchanged: they are no part of its carry chain, and their
    register is the same for all adders they pass at one stage, and for the operand's own delay.
    """
    carry = registers = 0
    widths = [input_bits] * graph.inputs + [range_bits(a.lo, a.hi) for a in graph.adders]
    waits, passed = dict[int, int](), dict[tuple[int, int], int]()
    for adder in graph.adders:
        for node in (adder.left, adder.right):
            waits[node] = max(waits.get(node, 0), adder.stage - 1 - graph.stage(node))
        node, below = (adder.left, adder.right_shift)
        if adder.left_shift:
            node, below = adder.right, 0 if adder.minus else adder.left_shift
        width = range_bits(adder.lo, adder.hi)
        below = min(below, widths[node], width)
        carry += width - below
        registers += width - below
        passed[node, adder.stage] = max(passed.get((node, adder.stage), 0), below)
    delays = sum(widths[node] * wait for node, wait in waits.items())
    alone = sum(bits for (node, stage), bits in passed.items() if stage - graph.stage(node) > waits[node])
    return carry, registers + delays + alone


def range_bits(lo: int, hi: int) -> int:
    """Bits that hold every integer of [lo, hi]."""
    return max((-lo - 1).bit_length(), max(hi, 0).bit_length()) + 1 if lo < 0 else max(1, hi.bit_length())
