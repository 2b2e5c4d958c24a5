"""`python bench/engines.py --part sharing`: fit the constants of `hardware.adders.sharing` to what the search finds.

Random matrices of every shape that layers have (normal, heavy-tailed, sparse and uniform weights of 3 to 8 bits) go through
`subexpressions.minimize`; each fifth is predicted by a fit of the others.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from dovetail.hardware.adders import sharing
from dovetail.hardware.adders.graph import IntMatrix, digit_counts
from dovetail.hardware.adders.sharing import Matrices, graph_bits
from dovetail.hardware.adders.subexpressions import minimize
from dovetail.hardware.shares import Floats

MATRICES = 500
FOLDS = 5
FEWEST = 4
"""Adders of plain trees below which a matrix says nothing about sharing."""


def drawn_matrices(count: int, seed: int = 5) -> Iterator[tuple[IntMatrix, tuple[int, int]]]:
    """Weights with the range of their inputs."""
    rng = np.random.default_rng(seed)
    for number in range(count):
        weights = int(np.exp(rng.uniform(np.log(6), np.log(900 if number % 8 else 2500))))
        columns = int(rng.choice([max(1, int(weights ** rng.uniform(0.15, 0.9))), 9, 25]))
        rows = max(1, round(weights / columns)) if rng.random() < 0.85 else 1
        if rows == 1:
            columns = int(rng.choice([4, 9, 9, 9, 25, 49, 64, 128]))
        bits, wide = int(rng.choice([8, 8, 8, 8, 6, 5, 4, 3])), int(rng.choice([8, 8, 6, 4]))
        low = 1 << (wide - 1) if rng.random() < 0.4 else 0
        yield _integers(_weights(rng, (rows, columns)), bits), (-low, (1 << wide) - 1 - low)


def _weights(rng: Generator, shape: tuple[int, int]) -> NDArray[np.float64]:
    kind = str(rng.choice(["normal", "laplace", "sparse", "sparse", "uniform"]))
    if kind == "normal":
        return rng.normal(size=shape)
    found = rng.laplace(size=shape) if kind != "uniform" else rng.uniform(-1, 1, size=shape)
    return found * (rng.random(shape) >= rng.uniform(0.2, 0.8)) if kind == "sparse" else found


def _integers(weights: NDArray[np.float64], bits: int) -> IntMatrix:
    """Rounded with a power of two per filter, as layers are."""
    most, peak = 2 ** (bits - 1) - 1, np.abs(weights).max(axis=1, keepdims=True)
    scale = np.exp2(np.ceil(np.log2(np.where(peak > 0, peak, 1.0) / most)))
    found: IntMatrix = np.clip(np.rint(weights / scale), -most, most).astype(np.int64)
    return found


def observed(matrix: IntMatrix, bounds: tuple[int, int]) -> tuple[Matrices, tuple[int, int, int]] | None:
    """What the formulas know of a matrix, and what the search makes of it: adders, carry bits, register bits."""
    sizes = np.abs(matrix)
    digits = digit_counts(sizes).astype(np.int64)
    rows, columns = int(digits.any(axis=1).sum()), int(digits.any(axis=0).sum())
    if digits.sum() - rows < FEWEST:
        return None
    bits = sharing.range_bits(*bounds)
    used = sizes[sizes > 0]
    length = float(np.floor(np.log2(used)).mean()) + 1
    sums = sizes.sum(axis=1)
    known = Matrices(np.array([float(digits.sum())]), np.array([float(rows)]), np.array([float(columns)]), bits, length,
                     float(np.log2(1.0 + sums[sums > 0]).mean()))
    graph = minimize(matrix, [bounds] * matrix.shape[1])
    return known, (graph.count, *graph_bits(graph, bits))


def fit(features: Floats, target: Floats) -> tuple[Floats, Floats]:
    """Coefficients of least squared error of features @ x = target, and every row as predicted without its fold."""
    rows = np.arange(len(target))
    without = np.empty(len(target))
    for fold in range(FOLDS):
        out = rows % FOLDS == fold
        without[out] = features[out] @ np.linalg.lstsq(features[~out], target[~out], rcond=None)[0]
    return np.asarray(np.linalg.lstsq(features, target, rcond=None)[0], dtype=np.float64), without


def main(asked: Sequence[str]) -> None:
    argparse.ArgumentParser(prog="engines.py --part sharing", description=__doc__).parse_args(asked)
    found = []
    for number, (matrix, bounds) in enumerate(drawn_matrices(MATRICES)):
        print(f"\r{number + 1} of {MATRICES} matrices", end="", file=sys.stderr, flush=True)
        seen = observed(matrix, bounds)
        found += [seen] if seen is not None else []
    print(file=sys.stderr)
    adders, carry, registers = (np.array([made[i] for _, made in found], dtype=np.float64) for i in range(3))
    adders = np.maximum(adders, 1.0)
    plain = np.array([float(m.digits[0] - m.filters[0]) for m, _ in found])
    terms = np.concatenate([np.stack(sharing.terms_of(*sharing.logarithms(m)), axis=-1) for m, _ in found])
    say("SHARING", *fit(terms, np.log(adders / plain)), np.log(adders / plain), logarithm=True)
    wide = np.array([[1.0, m.bits, m.length, m.growth, *(float(v[0]) for v in sharing.logarithms(m)[:2])] for m, _ in found])
    for name, bits in (("CARRY_WIDTH", carry), ("SUM_WIDTH", registers)):
        mean = np.maximum(bits, 1.0) / adders
        say(name, *fit(wide / mean[:, None], np.ones(len(mean))), np.ones(len(mean)))


def say(name: str, coefficients: Floats, without: Floats, target: Floats, logarithm: bool = False) -> None:
    """A constant as Python text, with its errors on matrices left out of the fit."""
    error = np.abs(np.exp(without - target) - 1 if logarithm else without / target - 1)
    print(f"{name} = ({', '.join(f'{c:.4g}' for c in coefficients)})")
    print(f"# {len(target)} matrices, left out: median {np.median(error):.1%}, p90 {np.quantile(error, 0.9):.1%}")
