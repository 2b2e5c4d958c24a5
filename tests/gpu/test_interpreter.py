"""The interpreter with less work around its operations finds what Triton's own does, and fails where it fails."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl

COUNT = 16


@triton.jit
def sums(x, y, found, COUNT: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    at = tl.arange(0, COUNT)
    rows = tl.load(x + at)[:, None] + tl.load(y + at)[None, :]
    tl.store(found + at[:, None] * COUNT + at[None, :], rows * 2 - tl.load(y + at)[:, None])


def test_results_are_those_of_whole_numbers() -> None:
    x, y = torch.arange(COUNT, dtype=torch.int32), torch.arange(COUNT, dtype=torch.int32) * -5
    found = torch.zeros((COUNT, COUNT), dtype=torch.int32)
    sums[(1,)](x, y, found, COUNT)
    assert torch.equal(found, (x[:, None] + y[None, :]) * 2 - y[:, None])


@pytest.mark.parametrize(("x", "y"), [(2**31 - 1, 1), (-2**31, -1), (2**30, 0)])
def test_a_sum_or_product_beyond_its_type_fails(x: int, y: int) -> None:
    values = [torch.full((COUNT,), value, dtype=torch.int32) for value in (x, y)]
    with pytest.raises(triton.runtime.errors.InterpreterError, match="int32 overflow"):
        sums[(1,)](*values, torch.zeros((COUNT, COUNT), dtype=torch.int32), COUNT)
