"""Fused convolutional modules: pointwise, depthwise and pointwise layers in one Triton kernel, without their tensors in between.

One template (conventions as in `gpu/triton/conv.py`) has three stages, of which a module uses two or all: a pointwise layer in
front, a depthwise layer in the middle, a pointwise layer at the back, and an addition behind it. DWPW, PWDW and PWPW are the
modules of Compact DNNs 2024, paper III; PWDWPW is a whole inverted residual.
"""

import triton
import triton.language as tl

from dovetail.gpu.triton.conv import begin, corner, padded, settled, taken_along
from dovetail.gpu.triton.finishing import constants, to_store, with_other


@triton.jit
def fused(x, w1, b1, m1, s1, wd, bd, md, sd, w2, b2, m2, s2, other, y, source, target, picked, images,
          H: tl.constexpr, W: tl.constexpr, OH: tl.constexpr, OW: tl.constexpr,
          CI: tl.constexpr, E: tl.constexpr, N: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr, SH: tl.constexpr,
          SW: tl.constexpr, PH: tl.constexpr, PW: tl.constexpr, W1K: tl.constexpr, W1N: tl.constexpr,
          W2K: tl.constexpr, W2N: tl.constexpr, XP: tl.constexpr, YP: tl.constexpr, OP: tl.constexpr,
          LO1: tl.constexpr, HI1: tl.constexpr, ZERO1: tl.constexpr, LOD: tl.constexpr, HID: tl.constexpr, ZEROD: tl.constexpr,
          LO2: tl.constexpr, HI2: tl.constexpr, ZERO2: tl.constexpr, ACT1: tl.constexpr, ACTD: tl.constexpr, ACT2: tl.constexpr,
          PAD: tl.constexpr, PADE: tl.constexpr,
          INTEGER: tl.constexpr, ROUND: tl.constexpr, ADD: tl.constexpr, A_FACTOR: tl.constexpr, O_FACTOR: tl.constexpr,
          A_ZERO: tl.constexpr, O_ZERO: tl.constexpr, A_SHIFT: tl.constexpr, ALO: tl.constexpr, AHI: tl.constexpr,
          AZERO: tl.constexpr, AC: tl.constexpr, AXP: tl.constexpr, AYP: tl.constexpr, FRONT: tl.constexpr, MIDDLE: tl.constexpr, BACK: tl.constexpr, PRECISION: tl.constexpr,
          T: tl.constexpr, BP: tl.constexpr, BE: tl.constexpr, BC: tl.constexpr, BN: tl.constexpr, PDL: tl.constexpr):
    """BP output pixels per program, and all middle channels (`BACK`) or BE of them.

    With a front, its output is made anew at all T >= KH * KW taps of every pixel by one product of matrices: on tensor cores
    that costs less than sharing it between pixels would.
    """
    kind: tl.constexpr = tl.int32 if INTEGER else tl.float32
    stored: tl.constexpr = x.dtype.element_ty
    m = tl.program_id(0) * BP + tl.arange(0, BP)
    alive = m < images * OH * OW
    image, top, left = corner(m, OH, OW, SH, SW, PH, PW)
    n = tl.arange(0, BN)
    acc = tl.zeros((BP, BN), kind)
    if BACK:
        o2, f2, y2 = constants(n, n < N, b2, m2, s2, INTEGER, ROUND)
        keep = alive[:, None] & (n < N)[None, :]
    begin(PDL)
    if ADD:
        beside = tl.load(other + m.to(tl.int64)[:, None] * OP + n[None, :], mask=keep, other=0)
    if FRONT:
        c = tl.arange(0, BC)
        if MIDDLE:
            tap = tl.arange(0, T)
            row = top[:, None] + (tap // KW)[None, :]
            column = left[:, None] + (tap % KW)[None, :]
            inside = (alive[:, None] & (tap < KH * KW)[None, :] & (row >= 0) & (row < H) & (column >= 0) & (column < W))
            pixel = tl.reshape((image[:, None] * H + row) * W + column, (BP * T,))
            seen = tl.reshape(inside, (BP * T,))
        else:
            pixel = m.to(tl.int64)
            seen = alive
        v = tl.load(x + pixel[:, None] * XP + c[None, :], mask=seen[:, None] & (c < CI)[None, :], other=0)
    for block in range(0, (E + BE - 1) // BE if BACK else 1):
        e = (block if BACK else tl.program_id(1)) * BE + tl.arange(0, BE)
        own = e < E
        if FRONT:
            weight = tl.load(w1 + c[:, None] * W1K + e[None, :] * W1N, mask=(c < CI)[:, None] & own[None, :], other=0)
            a = tl.dot(v, weight, input_precision=PRECISION, out_dtype=kind)
            o1, f1, y1 = constants(e, own, b1, m1, s1, INTEGER, ROUND)
            a = to_store(a, o1, f1, y1, LO1, HI1, ZERO1, ACT1, INTEGER, ROUND, stored)
        if MIDDLE:
            if FRONT:
                a = tl.where(seen[:, None], a.to(kind), PADE)
                k = tl.load(wd + tap[:, None] * E + e[None, :], mask=(tap < KH * KW)[:, None] & own[None, :], other=0).to(kind)
                a = tl.sum(tl.reshape(a, (BP, T, BE)) * k[None, :, :], 1)
            else:
                a = tl.zeros((BP, BE), kind)
                for t in tl.static_range(KH * KW):
                    row = top + t // KW
                    column = left + t % KW
                    seen = alive & (row >= 0) & (row < H) & (column >= 0) & (column < W)
                    v = padded(x + ((image * H + row) * W + column)[:, None] * XP + e[None, :], seen[:, None] & own[None, :],
                               PAD).to(kind)
                    a += v * tl.load(wd + t * E + e, mask=own, other=0).to(kind)[None, :]
            od, fd, yd = constants(e, own, bd, md, sd, INTEGER, ROUND)
            a = to_store(a, od, fd, yd, LOD, HID, ZEROD, ACTD, INTEGER, ROUND, stored)
        if BACK:
            weight = tl.load(w2 + e[:, None] * W2K + n[None, :] * W2N, mask=own[:, None] & (n < N)[None, :], other=0)
            acc = tl.dot(settled(a), weight, acc, input_precision=PRECISION, out_dtype=kind)
        else:
            tl.store(y + m.to(tl.int64)[:, None] * YP + e[None, :], a, mask=alive[:, None] & own[None, :])
    if BACK:
        if ADD:
            done = with_other(acc, beside, o2, f2, y2, LO2, HI2, ZERO2, ACT2, A_FACTOR, O_FACTOR, A_ZERO, O_ZERO, A_SHIFT, ALO, AHI,
                              AZERO, INTEGER, ROUND, stored)
        else:
            done = to_store(acc, o2, f2, y2, LO2, HI2, ZERO2, ACT2, INTEGER, ROUND, stored)
        tl.store(y + m.to(tl.int64)[:, None] * YP + n[None, :], done, mask=keep)
        if AC > 0:
            taken_along(source, target, picked, m, alive, AC, AXP, AYP)
