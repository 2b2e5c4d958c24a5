"""Convolution of a few planes, as networks begin with: inputs lie plane by plane, as frames arrive.

Conventions as in `gpu/kernels.py`. Value by value, such inputs cost more instructions than their products. Here some output columns
side by side are one row of the product: together they read whole words of every input row, of which each column's filters weigh
what it needs and nothing else, and a row of results is as many channels of neighbouring pixels, which lie side by side as well.
"""

import triton
import triton.language as tl

from dovetail.gpu.kernels import begin, padded
from dovetail.gpu.kernels_finishing import INTERPRETED, constants, to_store


@triton.jit
def padded_words(at, seen, PAD: tl.constexpr, PAD4: tl.constexpr):
    """As `padded`, of bytes whose words of four are seen as one: one choice for all of them."""
    if INTERPRETED:
        v = padded(at, seen, PAD)
    else:
        v = tl.inline_asm_elementwise("{ .reg .pred seen; setp.ne.s32 seen, $2, 0; selp.b32 $0, $1, $6, seen; }",
                                      "=r,r,r,r,r,r,r,r,r,r", [tl.load(at, mask=seen, other=0), seen.to(tl.int32), PAD4], tl.int8,
                                      is_pure=True, pack=4)
    return v


@triton.jit
def planes(x, w, bias, multiplier, shift, y, images,
           H: tl.constexpr, W: tl.constexpr, OH: tl.constexpr, OW: tl.constexpr, CI: tl.constexpr, N: tl.constexpr,
           KH: tl.constexpr, SH: tl.constexpr, PH: tl.constexpr, SIDE: tl.constexpr, STEP: tl.constexpr, FIRST: tl.constexpr,
           WIDE: tl.constexpr, WK: tl.constexpr, WN: tl.constexpr, YP: tl.constexpr, LO: tl.constexpr, HI: tl.constexpr,
           ZERO: tl.constexpr, ACT: tl.constexpr, PAD: tl.constexpr, PAD4: tl.constexpr, INTEGER: tl.constexpr,
           ROUND: tl.constexpr, PRECISION: tl.constexpr, BP: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PDL: tl.constexpr):
    """BP times SIDE columns x BN of their channels per program; WIDE columns are read, STEP further on for every SIDE columns.

    Weights lie (planes x rows and columns that are read, filled up to BK) x (columns side by side x channels).
    """
    ACROSS: tl.constexpr = (OW + SIDE - 1) // SIDE
    m = tl.program_id(0) * BP + tl.arange(0, BP)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    own = n < SIDE * N
    image = (m // (OH * ACROSS)).to(tl.int64)
    q = m % (OH * ACROSS)
    row = (q // ACROSS * SH - PH)[:, None] + (k // WIDE)[None, :]
    column = (q % ACROSS * STEP + FIRST)[:, None] + (k % WIDE)[None, :]
    column = tl.max_contiguous(tl.multiple_of(column, (1, 4)), (1, 4))
    seen = (image < images)[:, None] & (row >= 0) & (row < H) & (column >= 0) & (column < W) & (k < KH * WIDE)[None, :]
    at = x + (image * (CI * H * W))[:, None] + row * W + column
    offset, factor, by = constants(n % N, own, bias, multiplier, shift, INTEGER, ROUND)
    weights = ()
    for c in tl.static_range(CI):
        weights = weights + (tl.load(w + (c * BK + k)[:, None] * WK + n[None, :] * WN, mask=own[None, :], other=0),)  # noqa: RUF005 - Triton has no unpacking
    kind: tl.constexpr = tl.int32 if INTEGER else tl.float32
    acc = tl.zeros((BP, BN), kind)
    begin(PDL)
    for c in tl.static_range(CI):
        if PAD != 0:
            v = padded_words(at + c * (H * W), seen, PAD, PAD4)
        else:
            v = tl.load(at + c * (H * W), mask=seen, other=0)
        acc = tl.dot(v, weights[c], acc, input_precision=PRECISION, out_dtype=kind)
    done = to_store(acc, offset, factor, by, LO, HI, ZERO, ACT, INTEGER, ROUND, y.dtype.element_ty)
    beyond = (q % ACROSS * SIDE)[:, None] + (n // N)[None, :]
    pixel = ((image * OH + q // ACROSS) * OW)[:, None] + beyond
    keep = (image < images)[:, None] & own[None, :]
    if OW % SIDE != 0:
        keep = keep & (beyond < OW)
    tl.store(y + pixel * YP + (n % N)[None, :], done, mask=keep)
