"""Which signed digits to write a weight with: among its shortest forms, those whose pairs of digits other filters share.

3 is 4 - 1 as well as 2 + 1, 11 is 16 - 4 - 1, 8 + 4 - 1 or 8 + 2 + 1: a constant of n canonical signed digits often has
more forms of n digits. Canonical forms differ needlessly from filter to filter; the sums that filters have in common are
found only where both are written alike (Park and Kang, "Digital Filter Synthesis Based on Minimal Signed Digit
Representation", DAC 2001). Here every weight in turn takes the form whose pairs with the rest of its filter are most
frequent in the whole matrix, for a few rounds.

A term is an integer: its node times `STRIDE` plus its shift plus `ORIGIN`; its sign is kept beside it.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dovetail.hardware.adders.graph import IntMatrix, signed_digits

Ints = NDArray[np.int64]
Row = dict[int, int]
"""Terms of one filter with their signs, 1 where negative."""

STRIDE_BITS = 6
STRIDE = 1 << STRIDE_BITS
"""More than twice the largest difference of two shifts, so that the difference of two terms tells nodes and shifts apart."""
ORIGIN = 16
ROUNDS = 3
SHARPNESS = 8
"""Power of a pair's frequency in a form's score: the greedy search takes the most frequent pairs first."""
MAX_DENSE = 30_000_000
"""Entries of the table of frequencies; canonical forms are kept where it would be larger."""
FEW = 16
"""Terms whose pairs are kept; a weight has no more."""
INT8 = 256
"""Weights below this have their forms searched; larger ones keep the canonical form."""


@lru_cache(maxsize=INT8)
def shortest_forms(value: int) -> tuple[tuple[tuple[int, int], ...], ...]:
    """All forms of a positive integer with the fewest digits: tuples of (±1, exponent), the canonical one among them."""
    fewest, highest = len(signed_digits(value)), value.bit_length()
    found: list[tuple[tuple[int, int], ...]] = []

    def extend(rest: int, exponent: int, digits: tuple[tuple[int, int], ...]) -> None:
        if rest == 0:
            found.append(digits)
        elif exponent <= highest and rest % 2 == 0:
            extend(rest // 2, exponent + 1, digits)
        elif exponent <= highest and len(digits) < fewest:
            for digit in (1, -1):
                extend((rest - digit) // 2, exponent + 1, (*digits, (digit, exponent)))

    extend(value, 0, ())
    return tuple(found)


def pair_keys(a: Ints, a_sign: Ints, b: Ints, b_sign: Ints, span: int) -> Ints:
    """One number per pair of terms, the same in every order, common shift and common sign; `span` exceeds every b - a."""
    keys: Ints = (((np.minimum(a, b) >> STRIDE_BITS) * span + np.abs(a - b)) << 1) | (a_sign ^ b_sign)
    return keys


def row_keys(terms: Ints, signs: Ints, span: int) -> Ints:
    """Keys of all pairs of one filter's terms."""
    i, j = _of_few(len(terms)) if len(terms) <= FEW else np.triu_indices(len(terms), 1)
    return pair_keys(terms[i], signs[i], terms[j], signs[j], span)


@lru_cache(maxsize=FEW + 1)
def _of_few(count: int) -> tuple[Ints, Ints]:
    """Both terms of every pair of a few: making them takes as long as the rest for the digits of a weight."""
    i, j = np.triu_indices(count, 1)
    return i, j


class Filter:
    """One filter's terms, in one array, and where each weight's lie in it."""

    def __init__(self, weights: IntMatrix) -> None:
        terms: list[int] = []
        signs: list[int] = []
        self.where: list[tuple[int, int, int]] = []
        for column in np.flatnonzero(weights).tolist():
            weight, start = int(weights[column]), len(terms)
            for digit, shift in signed_digits(abs(weight)):
                terms.append((column << STRIDE_BITS) + shift + ORIGIN)
                signs.append(int((digit < 0) != (weight < 0)))
            if abs(weight) < INT8 and len(shortest_forms(abs(weight))) > 1:
                self.where.append((weight, start, len(terms)))
        self.terms, self.signs = np.array(terms, dtype=np.int64), np.array(signs, dtype=np.int64)

    def row(self) -> Row:
        return dict(zip(self.terms.tolist(), self.signs.tolist(), strict=True))


def digit_rows(matrix: IntMatrix) -> list[Row]:
    """Every filter's terms in well chosen forms."""
    filters = [Filter(weights) for weights in matrix]
    columns = matrix.shape[1]
    span = (columns + 1) * STRIDE
    if 2 * columns * span > MAX_DENSE:
        return [f.row() for f in filters]
    count = np.zeros(2 * columns * span, dtype=np.int32)
    for f in filters:
        np.add.at(count, row_keys(f.terms, f.signs, span), 1)
    for _ in range(ROUNDS):
        changes = [_rewrite(f, where, count, span) for f in filters for where in f.where]
        if not any(changes):
            break
    return [f.row() for f in filters]


@lru_cache(maxsize=2 * INT8)
def _terms(weight: int) -> tuple[tuple[Ints, Ints], ...]:
    """A weight's shortest forms: their shifts, `ORIGIN` added, and signs."""
    return tuple((np.array([exponent + ORIGIN for _, exponent in form], dtype=np.int64),
                  np.array([int((digit < 0) != (weight < 0)) for digit, _ in form], dtype=np.int64))
                 for form in shortest_forms(abs(weight)))


def _rewrite(filter_: Filter, where: tuple[int, int, int], count: NDArray[np.int32], span: int) -> bool:
    """Give one weight the form whose pairs are most frequent elsewhere; whether that changed it."""
    weight, start, stop = where
    terms, signs = filter_.terms, filter_.signs
    base = int(terms[start]) >> STRIDE_BITS << STRIDE_BITS
    mine, mine_signs = terms[start:stop].copy(), signs[start:stop].copy()
    rest = np.concatenate([terms[:start], terms[stop:]]), np.concatenate([signs[:start], signs[stop:]])

    def keys(own: Ints, own_signs: Ints) -> Ints:
        across = pair_keys(own[:, None], own_signs[:, None], rest[0], rest[1], span).ravel()
        return np.concatenate([across, row_keys(own, own_signs, span)])

    before = keys(mine, mine_signs)
    np.subtract.at(count, before, 1)
    best, best_score = (mine, mine_signs, before), float((count[before].astype(np.float64) ** SHARPNESS).sum())
    for shifts, own_signs in _terms(weight):
        own = base + shifts
        found = keys(own, own_signs)
        score = float((count[found].astype(np.float64) ** SHARPNESS).sum())
        if score > best_score:
            best, best_score = (own, own_signs, found), score
    terms[start:stop], signs[start:stop], after = best
    np.add.at(count, after, 1)
    return after is not before
