"""A pointwise layer and the depthwise layer behind it in one Triton kernel, in bands of output rows.

Conventions as in `gpu/triton/conv.py`.
"""

import triton
import triton.language as tl

from dovetail.gpu.triton.conv import begin
from dovetail.gpu.triton.finishing import constants, to_store


@triton.jit
def banded(x, w1, b1, m1, s1, wd, bd, md, sd, y,
           H: tl.constexpr, W: tl.constexpr, OH: tl.constexpr, OW: tl.constexpr, CI: tl.constexpr, E: tl.constexpr,
           KH: tl.constexpr, KW: tl.constexpr, SH: tl.constexpr, SW: tl.constexpr, PH: tl.constexpr, PW: tl.constexpr,
           W1K: tl.constexpr, W1N: tl.constexpr, XP: tl.constexpr, YP: tl.constexpr, LO1: tl.constexpr, HI1: tl.constexpr,
           ZERO1: tl.constexpr, LOD: tl.constexpr, HID: tl.constexpr, ZEROD: tl.constexpr, ACT1: tl.constexpr,
           ACTD: tl.constexpr, PADE: tl.constexpr,
           INTEGER: tl.constexpr, ROUND: tl.constexpr, PRECISION: tl.constexpr, BAND: tl.constexpr, BR: tl.constexpr,
           BO: tl.constexpr, BE: tl.constexpr, BC: tl.constexpr, PDL: tl.constexpr):
    """A pointwise layer and the depthwise layer behind it: BAND output rows x BE channels per program.

    The pointwise layer's output for the band is made once (but for rows that two bands need) in BR registers per channel; every
    tap fetches its BO values from there (`tl.gather`), between lanes of a warp.
    """
    kind: tl.constexpr = tl.int32 if INTEGER else tl.float32
    stored: tl.constexpr = x.dtype.element_ty
    BANDS: tl.constexpr = (OH + BAND - 1) // BAND
    image = (tl.program_id(0) // BANDS).to(tl.int64)
    first = tl.program_id(0) % BANDS * BAND
    e = tl.program_id(1) * BE + tl.arange(0, BE)
    own = e < E
    c = tl.arange(0, BC)
    weight = tl.load(w1 + c[:, None] * W1K + e[None, :] * W1N, mask=(c < CI)[:, None] & own[None, :], other=0)
    o1, f1, y1 = constants(e, own, b1, m1, s1, INTEGER, ROUND)
    od, fd, yd = constants(e, own, bd, md, sd, INTEGER, ROUND)
    taps = ()
    for t in tl.static_range(KH * KW):
        taps = taps + (tl.load(wd + t * E + e, mask=own, other=0).to(kind)[None, :],)  # noqa: RUF005 - Triton has no unpacking
    p = tl.arange(0, BR)
    row = first * SH - PH + p // W
    seen = (p < ((BAND - 1) * SH + KH) * W) & (row >= 0) & (row < H)
    begin(PDL)
    v = tl.load(x + ((image * H + row) * W + p % W)[:, None] * XP + c[None, :], mask=seen[:, None] & (c < CI)[None, :], other=0)
    a = tl.dot(v, weight, input_precision=PRECISION, out_dtype=kind)
    a = to_store(a, o1, f1, y1, LO1, HI1, ZERO1, ACT1, INTEGER, ROUND, stored)
    a = tl.where(seen[:, None], a, PADE).to(stored)
    o = tl.arange(0, BO)
    below = o // OW
    across = o % OW * SW - PW
    d = tl.zeros((BO, BE), kind)
    for t in tl.static_range(KH * KW):
        column = across + t % KW
        inside = (column >= 0) & (column < W)
        place = tl.where(inside, (below * SH + t // KW) * W + column, 0)
        fetched = tl.gather(a, tl.minimum(place, BR - 1)[:, None] + (e * 0)[None, :], 0).to(kind)
        d += tl.where(inside[:, None], fetched, PADE) * taps[t]
    d = to_store(d, od, fd, yd, LOD, HID, ZEROD, ACTD, INTEGER, ROUND, stored)
    keep = ((o < BAND * OW) & (first + below < OH))[:, None] & own[None, :]
    at = (image * OH + first + below) * OW + o % OW
    tl.store(y + at[:, None] * YP + e[None, :], d, mask=keep)
