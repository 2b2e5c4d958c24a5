"""Triton kernels that move and join: pooling, addition, concatenation and choice of channels, tables."""

import triton
import triton.language as tl

from dovetail.gpu.triton.conv import begin, corner, unbounded
from dovetail.gpu.triton.finishing import activated, averaged, changed, divided, joined, limited


@triton.jit
def pool(x, y, images, H: tl.constexpr, W: tl.constexpr, OH: tl.constexpr, OW: tl.constexpr, C: tl.constexpr,
         KH: tl.constexpr, KW: tl.constexpr, SH: tl.constexpr, SW: tl.constexpr, PH: tl.constexpr, PW: tl.constexpr,
         DH: tl.constexpr, DW: tl.constexpr, XP: tl.constexpr, YP: tl.constexpr, LARGEST: tl.constexpr, PADS_COUNT: tl.constexpr,
         LOWEST: tl.constexpr, FACTOR: tl.constexpr, SHIFT: tl.constexpr, FROM: tl.constexpr, ZERO: tl.constexpr,
         LO: tl.constexpr, HI: tl.constexpr, SAME: tl.constexpr, INTEGER: tl.constexpr, BP: tl.constexpr, BC: tl.constexpr,
         PDL: tl.constexpr):
    """Maximum or mean over windows, of integers brought to the target's unless they stay the `SAME`.

    BP pixels x BC channels per program. Sums of bytes are exact in float32.
    """
    m = tl.program_id(0) * BP + tl.arange(0, BP)
    alive = m < images * OH * OW
    image, top, left = corner(m, OH, OW, SH, SW, PH, PW)
    top, left = unbounded(top), unbounded(left)
    c = tl.program_id(1) * BC + tl.arange(0, BC)
    own = c < C
    begin(PDL)
    best = tl.full((BP, BC), LOWEST, tl.float32)
    count = tl.zeros((BP,), tl.float32)
    for t in range(KH * KW):
        row = top + t // KW * DH
        column = left + t % KW * DW
        seen = alive & (row >= 0) & (row < H) & (column >= 0) & (column < W)
        v = tl.load(x + ((image * H + row) * W + column)[:, None] * XP + c[None, :], mask=seen[:, None] & own[None, :], other=0)
        if LARGEST:
            best = tl.where(seen[:, None], tl.maximum(best, v.to(tl.float32)), best)
        else:
            best += v.to(tl.float32)
            count += seen.to(tl.float32)
    if INTEGER:
        best = pooled(best.to(tl.int32), count.to(tl.int32), KH * KW, LARGEST, PADS_COUNT, FACTOR, SHIFT, FROM, ZERO, LO, HI, SAME)
    elif not LARGEST:
        best /= KH * KW if PADS_COUNT else tl.maximum(count, 1.0)[:, None]
    tl.store(y + m.to(tl.int64)[:, None] * YP + c[None, :], best.to(y.dtype.element_ty), mask=alive[:, None] & own[None, :])


@triton.jit
def pooled(best, count, TAPS: tl.constexpr, LARGEST: tl.constexpr, PADS_COUNT: tl.constexpr, FACTOR: tl.constexpr,
           SHIFT: tl.constexpr, FROM: tl.constexpr, ZERO: tl.constexpr, LO: tl.constexpr, HI: tl.constexpr, SAME: tl.constexpr):
    """The largest stored integers of windows, or sums of so many of them, as the target's; padding is the stored form of zero."""
    if not LARGEST:
        by = TAPS if PADS_COUNT else tl.maximum(count, 1)[:, None]
        best = divided(best - (count * FROM)[:, None], by, TAPS, FACTOR, SHIFT, ZERO, LO, HI)
    elif not SAME:
        best = changed(best - FROM, 255, FACTOR, SHIFT, ZERO, LO, HI)
    return best


@triton.jit
def mean(x, y, PIXELS: tl.constexpr, C: tl.constexpr, XP: tl.constexpr, YP: tl.constexpr, M_FACTOR: tl.constexpr,
         M_SHIFT: tl.constexpr, M_FROM: tl.constexpr, M_ZERO: tl.constexpr, M_LO: tl.constexpr, M_HI: tl.constexpr,
         INTEGER: tl.constexpr, BP: tl.constexpr, BC: tl.constexpr, PDL: tl.constexpr):
    """Mean over all pixels of an image."""
    image = tl.program_id(0).to(tl.int64)
    c = tl.program_id(1) * BC + tl.arange(0, BC)
    own = c < C
    begin(PDL)
    kind: tl.constexpr = tl.int32 if INTEGER else tl.float32
    total = tl.zeros((BP, BC), kind)
    for p in range(0, PIXELS, BP):
        m = p + tl.arange(0, BP)
        total += tl.load(x + (image * PIXELS + m)[:, None] * XP + c[None, :], mask=(m < PIXELS)[:, None] & own[None, :],
                         other=0).to(kind)
    out = averaged(tl.sum(total, 0), PIXELS, M_FACTOR, M_SHIFT, M_FROM, M_ZERO, M_LO, M_HI, INTEGER)
    tl.store(y + image * YP + c, out.to(y.dtype.element_ty), mask=own)


@triton.jit
def add(x, other, y, pixels, C: tl.constexpr, XP: tl.constexpr, OP: tl.constexpr, YP: tl.constexpr, A_FACTOR: tl.constexpr,
        O_FACTOR: tl.constexpr, A_ZERO: tl.constexpr, O_ZERO: tl.constexpr, A_SHIFT: tl.constexpr, ALO: tl.constexpr,
        AHI: tl.constexpr, AZERO: tl.constexpr, INTEGER: tl.constexpr, BP: tl.constexpr, BC: tl.constexpr, PDL: tl.constexpr):
    """The sum of two tensors."""
    kind: tl.constexpr = tl.int32 if INTEGER else tl.float32
    m = tl.program_id(0) * BP + tl.arange(0, BP)
    c = tl.program_id(1) * BC + tl.arange(0, BC)
    keep = (m < pixels)[:, None] & (c < C)[None, :]
    at = m.to(tl.int64)[:, None]
    begin(PDL)
    a = tl.load(x + at * XP + c[None, :], mask=keep, other=0).to(kind)
    b = tl.load(other + at * OP + c[None, :], mask=keep, other=0)
    out = joined(a, b, A_FACTOR, O_FACTOR, A_ZERO, O_ZERO, A_SHIFT, ALO, AHI, AZERO, INTEGER)
    tl.store(y + at * YP + c[None, :], out.to(y.dtype.element_ty), mask=keep)


@triton.jit
def chosen(x, y, indices, pixels, C: tl.constexpr, XP: tl.constexpr, YP: tl.constexpr, FACTOR: tl.constexpr,
           SHIFT: tl.constexpr, FROM: tl.constexpr, ZERO: tl.constexpr, LO: tl.constexpr, HI: tl.constexpr,
           SAME: tl.constexpr, ACT: tl.constexpr, INTEGER: tl.constexpr, BP: tl.constexpr, BC: tl.constexpr, PDL: tl.constexpr):
    """Channels in another order or number; unless they stay the `SAME`, limited, activated, and brought to the target's integers."""
    m = tl.program_id(0) * BP + tl.arange(0, BP)
    c = tl.program_id(1) * BC + tl.arange(0, BC)
    own = c < C
    keep = (m < pixels)[:, None] & own[None, :]
    at = m.to(tl.int64)[:, None]
    source = tl.load(indices + c, mask=own, other=0)
    begin(PDL)
    v = tl.load(x + at * XP + source[None, :], mask=keep, other=0)
    if not SAME:
        if INTEGER:
            v = changed(v.to(tl.int32) - FROM, 255, FACTOR, SHIFT, ZERO, LO, HI)
        else:
            v = activated(limited(v.to(tl.float32), LO, HI), ACT)
    tl.store(y + at * YP + c[None, :], v.to(y.dtype.element_ty), mask=keep)


@triton.jit
def looked_up(x, table, y, pixels, C: tl.constexpr, XP: tl.constexpr, YP: tl.constexpr, BY_CHANNEL: tl.constexpr,
              BP: tl.constexpr, BC: tl.constexpr, PDL: tl.constexpr):
    """A table of 256 entries per value, or per channel, by stored integers from -128 on."""
    m = tl.program_id(0) * BP + tl.arange(0, BP)
    c = tl.program_id(1) * BC + tl.arange(0, BC)
    keep = (m < pixels)[:, None] & (c < C)[None, :]
    at = m.to(tl.int64)[:, None]
    begin(PDL)
    v = tl.load(x + at * XP + c[None, :], mask=keep, other=0).to(tl.int32) + 128
    if BY_CHANNEL:
        v += (c * 256)[None, :]
    tl.store(y + at * YP + c[None, :], tl.load(table + v, mask=keep, other=0), mask=keep)


@triton.jit
def multiplied(x, other, y, pixels, AREA: tl.constexpr, C: tl.constexpr, XP: tl.constexpr, OP: tl.constexpr, YP: tl.constexpr,
               GATE: tl.constexpr, FACTOR: tl.constexpr, SHIFT: tl.constexpr, FROM: tl.constexpr, O_FROM: tl.constexpr,
               ZERO: tl.constexpr, LO: tl.constexpr, HI: tl.constexpr, INTEGER: tl.constexpr, BP: tl.constexpr, BC: tl.constexpr,
               PDL: tl.constexpr):
    """The product of two tensors, limited; of a `GATE` one value per image and channel is read."""
    kind: tl.constexpr = tl.int32 if INTEGER else tl.float32
    m = tl.program_id(0) * BP + tl.arange(0, BP)
    c = tl.program_id(1) * BC + tl.arange(0, BC)
    keep = (m < pixels)[:, None] & (c < C)[None, :]
    at = m.to(tl.int64)[:, None]
    begin(PDL)
    a = tl.load(x + at * XP + c[None, :], mask=keep, other=0).to(kind)
    b = tl.load(other + (at // AREA if GATE else at) * OP + c[None, :], mask=keep, other=0).to(kind)
    if INTEGER:
        out = changed((a - FROM) * (b - O_FROM), 255 * 255, FACTOR, SHIFT, ZERO, LO, HI)
    else:
        out = limited(a * b, LO, HI)
    tl.store(y + at * YP + c[None, :], out.to(y.dtype.element_ty), mask=keep)
