"""Bases of codes fitted to numbers as they are, without training: quantization error minimisation (LQ-Nets, algorithm 1).

Nearest levels and least squares take turns; neither step raises the squared error, so that it settles.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dovetail.ir import Array, Real
from dovetail.numerics.lq import levels_of, weight_values

ROUNDS = 50
STARTS = (0.5, 0.75, 1.0)
"""Times the range of the numbers: where bases of activations start; the best of the results is kept."""
MOST_VALUES = 1 << 16
"""Numbers that a basis of activations is fitted to, evenly spread over those given."""


def fit_weights(weights: Array, bits: int, rounds: int = ROUNDS) -> tuple[NDArray[np.uint8], Real]:
    """Codes and a basis per filter (filters, bits) of weights (filters, …)."""
    flat = np.asarray(weights, dtype=np.float64).reshape(len(weights), -1)
    count = 1 << bits
    spread = flat.std(axis=1) + np.abs(flat).mean(axis=1) * 1e-9
    basis = np.outer(spread, 2.0 ** (np.arange(bits) - bits + 1))
    every, codes = np.broadcast_to(np.arange(count), (len(flat), count)), np.zeros(flat.shape, dtype=np.int64)
    for _ in range(rounds):
        before = codes
        codes = np.abs(flat[:, :, None] - weight_values(every, basis)[:, None, :]).argmin(axis=2)
        for f, row in enumerate(codes):
            planes = np.stack([(row >> i & 1) * 2.0 - 1 for i in range(bits)], axis=1)
            basis[f] = np.linalg.lstsq(planes, flat[f], rcond=None)[0]
        if np.array_equal(before, codes):
            break
    return codes.reshape(np.shape(weights)).astype(np.uint8), basis


def fit_levels(values: Array, bits: int, rounds: int = ROUNDS) -> Real:
    """An ascending basis of so many bits for numbers that are not negative."""
    flat = np.asarray(values, dtype=np.float64).reshape(-1)
    flat = flat[:: max(1, len(flat) // MOST_VALUES)]
    best, least = np.zeros(bits), np.inf
    for start in STARTS:
        basis = start * float(flat.max(initial=0.0)) * 2.0 ** np.arange(bits) / ((1 << bits) - 1)
        for _ in range(rounds):
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
