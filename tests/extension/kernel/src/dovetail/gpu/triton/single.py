"""Triton kernel of layers with one pixel per image: one output per program."""

import triton
import triton.language as tl

from dovetail.gpu.triton.conv import begin
from dovetail.gpu.triton.finishing import constants, exchanged, finished


@triton.jit
def single(x, w, bias, multiplier, shift, table, y, K: tl.constexpr, N: tl.constexpr, XP: tl.constexpr, YP: tl.constexpr,
           LO: tl.constexpr, HI: tl.constexpr, ZERO: tl.constexpr, ACT: tl.constexpr, INTEGER: tl.constexpr,
           ROUND: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PDL: tl.constexpr):
    """A fully connected layer: every program multiplies the pixel with the weights of its output."""
    kind: tl.constexpr = tl.int32 if INTEGER else tl.float32
    n = tl.program_id(0) + tl.arange(0, BN)
    k = tl.arange(0, BK)
    own = n < N
    weight = tl.load(w + n[:, None] * K + k[None, :], mask=own[:, None] & (k < K)[None, :], other=0)
    offset, factor, by = constants(n, own, bias, multiplier, shift, INTEGER, ROUND)
    begin(PDL)
    v = tl.load(x + tl.program_id(1) * XP + k, mask=k < K, other=0)
    total = tl.sum(weight.to(kind) * v.to(kind)[None, :], 1)[None, :]
    total = exchanged(finished(total, offset, factor, by, LO, HI, ZERO, ACT, INTEGER, ROUND), table, ACT)
    tl.store(y + tl.program_id(1) * YP + n[None, :], total.to(y.dtype.element_ty), mask=own[None, :])
