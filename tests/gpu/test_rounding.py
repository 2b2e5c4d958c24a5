"""Sums become integers by one rounding, half to even, whichever way a kernel takes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from dovetail.gpu.triton.finishing import finished, to_store, with_other
from dovetail.kernels.layers import FLOATING, LARGEST_FLOATING, MOST_FLOATING_SHIFT, PLAIN, WIDE

COUNT = 1024


@triton.jit
def once(sums, offsets, multipliers, shifts, y, stored, LO: tl.constexpr, HI: tl.constexpr, ZERO: tl.constexpr,  # type: ignore[no-untyped-def]  # noqa: N803
         ROUND: tl.constexpr, COUNT: tl.constexpr):  # noqa: N803
    at = tl.arange(0, COUNT)[None, :]
    total, offset, multiplier, shift = tl.load(sums + at), tl.load(offsets + at), tl.load(multipliers + at), tl.load(shifts + at)
    tl.store(y + at, finished(total, offset, multiplier, shift, LO, HI, ZERO, 0, True, ROUND))
    tl.store(stored + at, to_store(total, offset, multiplier, shift, LO, HI, ZERO, 0, True, ROUND, tl.int8))


def expected(total: int, multiplier: int, shift: int) -> int:
    whole, rest = divmod(total * multiplier, 1 << shift)
    return whole + (2 * rest > 1 << shift or (2 * rest == 1 << shift and whole % 2 == 1))


@pytest.mark.parametrize(("rounding", "largest", "deepest"), [
    (FLOATING, LARGEST_FLOATING - 1, MOST_FLOATING_SHIFT), (PLAIN, 1 << 29, 30), (WIDE, (1 << 31) - 1, 62)])
@pytest.mark.parametrize(("lo", "hi", "zero"), [(-128, 127, -128), (-128, 127, 0), (-100, 90, 3)])
def test_sums_are_rounded_half_to_even(rounding: int, largest: int, deepest: int, lo: int, hi: int, zero: int) -> None:
    rng = np.random.default_rng(rounding)
    shifts = rng.integers(0, deepest + 1, COUNT)
    multipliers = rng.integers(1, 1 << 31, COUNT) if rounding == WIDE else np.ones(COUNT, np.int64)
    halves = (2 * rng.integers(-300, 300, COUNT) + 1) * (1 << np.maximum(shifts - 1, 0))  # ties, where there are any
    totals = np.where(np.arange(COUNT) % 2 == 0, halves, rng.integers(-largest, largest + 1, COUNT))
    totals = np.clip(totals, -largest, largest)
    totals[:4], shifts[:4] = (largest, -largest, largest, -largest), (0, 0, deepest, deepest)
    offsets = rng.integers(-50, 50, COUNT)
    sums = np.clip(totals - offsets, -largest, largest)
    offsets = totals - sums
    y, stored = torch.zeros(COUNT, dtype=torch.int32), torch.zeros(COUNT, dtype=torch.int8)
    given = [sums.astype(np.int32), offsets.astype(np.int32), multipliers, shifts.astype(np.int32)]
    once[(1,)](*map(torch.from_numpy, given), y, stored, lo, hi, zero, rounding, COUNT)
    every = zip(totals.tolist(), multipliers.tolist(), shifts.tolist(), strict=True)
    wanted = [min(max(expected(total, multiplier, shift) + zero, lo), hi) for total, multiplier, shift in every]
    assert y.tolist() == stored.tolist() == wanted


@triton.jit
def plus(sums, offsets, shifts, others, y, LO: tl.constexpr, HI: tl.constexpr, ZERO: tl.constexpr, OWN: tl.constexpr,  # type: ignore[no-untyped-def]  # noqa: N803
         OTHER: tl.constexpr, OWN_ZERO: tl.constexpr, OTHER_ZERO: tl.constexpr, SHIFT: tl.constexpr,  # noqa: N803
         ALO: tl.constexpr, AHI: tl.constexpr, AZERO: tl.constexpr, COUNT: tl.constexpr):  # noqa: N803
    at = tl.arange(0, COUNT)[None, :]
    offset = tl.load(offsets + at)
    done = with_other(tl.load(sums + at), tl.load(others + at), offset, offset, tl.load(shifts + at), LO, HI, ZERO, 0, OWN, OTHER,
                      OWN_ZERO, OTHER_ZERO, SHIFT, ALO, AHI, AZERO, True, 2, tl.int8)
    tl.store(y + at, done)


@pytest.mark.parametrize(("factors", "zeros", "shift", "bounds", "zero"), [
    ((2, 1), (0, 0), 1, (-128, 127), 0), ((1, 1), (-128, -128), 0, (-128, 127), -128), ((3, 640), (5, -9), 9, (-100, 90), 7),
    ((1, 8), (0, 3), 4, (-20, 127), -20), ((1 << 13, 1 << 14), (0, 0), 14, (-128, 127), 0)])
def test_another_tensor_is_added_with_one_rounding(factors: tuple[int, int], zeros: tuple[int, int], shift: int,
                                                   bounds: tuple[int, int], zero: int) -> None:
    rng = np.random.default_rng(shift)
    shifts, others = rng.integers(0, 9, COUNT), rng.integers(-128, 128, COUNT)
    totals = rng.integers(-40000, 40000, COUNT)
    y = torch.zeros(COUNT, dtype=torch.int8)
    given = [totals.astype(np.int32), np.zeros(COUNT, np.int32), shifts.astype(np.int32), others.astype(np.int8)]
    plus[(1,)](*map(torch.from_numpy, given), y, -128, 120, 3, *factors, *zeros, shift, *bounds, zero, COUNT)
    own = [min(max(expected(t, 1, s) + 3, -128), 120) for t, s in zip(totals.tolist(), shifts.tolist(), strict=True)]
    sums = [(a - zeros[0]) * factors[0] + (b - zeros[1]) * factors[1] for a, b in zip(own, others.tolist(), strict=True)]
    assert y.tolist() == [min(max(expected(total, 1, shift) + zero, bounds[0]), bounds[1]) for total in sums]
