"""Triton kernel of pointwise layers with few pixels, where waiting is all the time there is: weights are held before they begin.

Conventions as in `gpu/triton/conv.py`.
"""

import triton
import triton.language as tl

from dovetail.gpu.triton.conv import begin
from dovetail.gpu.triton.finishing import averaged, constants, exchanged, finished, to_store, with_other


@triton.jit
def deep(x, w, bias, multiplier, shift, table, other, y, images, SPACE: tl.constexpr, K: tl.constexpr, N: tl.constexpr, XP: tl.constexpr,
         WK: tl.constexpr, WN: tl.constexpr, YP: tl.constexpr, OP: tl.constexpr, LO: tl.constexpr, HI: tl.constexpr,
         ZERO: tl.constexpr, ACT: tl.constexpr, INTEGER: tl.constexpr, ROUND: tl.constexpr, ADD: tl.constexpr,
         A_FACTOR: tl.constexpr, O_FACTOR: tl.constexpr, A_ZERO: tl.constexpr, O_ZERO: tl.constexpr, A_SHIFT: tl.constexpr,
         ALO: tl.constexpr, AHI: tl.constexpr, AZERO: tl.constexpr, MEAN: tl.constexpr, M_FACTOR: tl.constexpr,
         M_SHIFT: tl.constexpr, M_FROM: tl.constexpr, M_ZERO: tl.constexpr, M_LO: tl.constexpr, M_HI: tl.constexpr,
         PRECISION: tl.constexpr,
         PARTS: tl.constexpr, BP: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PDL: tl.constexpr):
    """A pointwise layer of few pixels (SPACE per image) and many input channels: each of PARTS warps sums a part of them.

    All weights of a program are in registers before the layer in front is done, all its inputs are asked for at once, and no
    product waits for more than a part of the others.
    """
    kind: tl.constexpr = tl.int32 if INTEGER else tl.float32
    STEPS: tl.constexpr = (K + PARTS * BK - 1) // (PARTS * BK)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    own = n < N
    place = tl.arange(0, BP)
    if MEAN:
        m = (tl.program_id(0) * SPACE + place).to(tl.int64)
        alive = place < SPACE
    else:
        m = (tl.program_id(0) * BP + place).to(tl.int64)
        alive = m < images * SPACE
    keep = alive[:, None] & own[None, :]
    part = tl.arange(0, PARTS)[:, None] * BK + tl.arange(0, BK)[None, :]
    weights = ()
    for step in tl.static_range(STEPS):
        k = part + step * PARTS * BK
        weights = weights + (tl.load(w + k[:, :, None] * WK + n[None, None, :] * WN, mask=(k < K)[:, :, None] & own[None, None, :], other=0),)  # noqa: RUF005 - Triton has no unpacking
    offset, factor, by = constants(n, own, bias, multiplier, shift, INTEGER, ROUND)
    begin(PDL)
    if ADD:
        beside = tl.load(other + m[:, None] * OP + n[None, :], mask=keep, other=0)
    inputs = ()
    for step in tl.static_range(STEPS):
        k = part + step * PARTS * BK
        inputs = inputs + (tl.load(x + m[None, :, None] * XP + k[:, None, :], mask=alive[None, :, None] & (k < K)[:, None, :], other=0),)  # noqa: RUF005
    if PARTS == 1:
        total = tl.zeros((BP, BN), kind)
        for step in tl.static_range(STEPS):
            total = tl.dot(tl.reshape(inputs[step], (BP, BK)), tl.reshape(weights[step], (BK, BN)), total,
                           input_precision=PRECISION, out_dtype=kind)
    else:
        acc = tl.zeros((PARTS, BP, BN), kind)
        for step in tl.static_range(STEPS):
            acc = tl.dot(inputs[step], weights[step], acc, input_precision=PRECISION, out_dtype=kind)
        total = tl.sum(acc, 0)
    if MEAN:
        total = finished(total, offset, factor, by, LO, HI, ZERO, ACT, INTEGER, ROUND)
        total = tl.sum(tl.where(alive[:, None], total, 0), 0)
        total = averaged(total, SPACE, M_FACTOR, M_SHIFT, M_FROM, M_ZERO, M_LO, M_HI, INTEGER)
        tl.store(y + tl.program_id(0) * YP + n, total.to(y.dtype.element_ty), mask=own)
    else:
        if ADD:
            done = with_other(total, beside, offset, factor, by, LO, HI, ZERO, ACT, A_FACTOR, O_FACTOR, A_ZERO, O_ZERO, A_SHIFT,
                              ALO, AHI, AZERO, INTEGER, ROUND, y.dtype.element_ty)
        else:
            done = exchanged(to_store(total, offset, factor, by, LO, HI, ZERO, ACT, INTEGER, ROUND, y.dtype.element_ty), table, ACT)
        tl.store(y + m[:, None] * YP + n[None, :], done, mask=keep)
