"""Depthwise convolution of bytes, four at a time.

Matrix units do nothing for a filter per channel, and a byte of its own costs as many instructions as a float. Here a 32-bit word
holds four channels of a pixel; four words, of four pixels side by side, are turned into four words of one channel each, and one
instruction (`dp4a`) multiplies the four pixels with four taps and adds up. Conventions as in `gpu/kernels.py`.
"""

import triton
import triton.language as tl

from dovetail.gpu.kernels import begin, strip
from dovetail.gpu.kernels_finishing import INTERPRETED, finished, shifted


@triton.jit
def byte(word, at: tl.constexpr):
    """One byte of a word, with its sign."""
    return (word << (24 - 8 * at)) >> 24


@triton.jit
def permuted(a, b, INSTRUCTION: tl.constexpr):
    """A word of bytes of two words, chosen by an instruction."""
    return tl.inline_asm_elementwise(INSTRUCTION, "=r,r,r", [a, b], tl.int32, is_pure=True, pack=1)


@triton.jit
def combined(a, b, c, d):
    """Four numbers' lowest bytes as one word."""
    if INTERPRETED:
        word = (a & 255) | ((b & 255) << 8) | ((c & 255) << 16) | (d << 24)
    else:
        low = permuted(a, b, "prmt.b32 $0, $1, $2, 0x0040;")
        high = permuted(c, d, "prmt.b32 $0, $1, $2, 0x0040;")
        word = permuted(low, high, "prmt.b32 $0, $1, $2, 0x5410;")
    return word


@triton.jit
def turned(a, b, c, d):
    """Four words of four channels as four words of four pixels."""
    if INTERPRETED:
        first = combined(a, b, c, d)
        second = combined(a >> 8, b >> 8, c >> 8, d >> 8)
        third = combined(a >> 16, b >> 16, c >> 16, d >> 16)
        fourth = combined(a >> 24, b >> 24, c >> 24, d >> 24)
    else:
        p = permuted(a, b, "prmt.b32 $0, $1, $2, 0x5140;")
        q = permuted(a, b, "prmt.b32 $0, $1, $2, 0x7362;")
        r = permuted(c, d, "prmt.b32 $0, $1, $2, 0x5140;")
        s = permuted(c, d, "prmt.b32 $0, $1, $2, 0x7362;")
        first = permuted(p, r, "prmt.b32 $0, $1, $2, 0x5410;")
        second = permuted(p, r, "prmt.b32 $0, $1, $2, 0x7632;")
        third = permuted(q, s, "prmt.b32 $0, $1, $2, 0x5410;")
        fourth = permuted(q, s, "prmt.b32 $0, $1, $2, 0x7632;")
    return first, second, third, fourth


@triton.jit
def summed(total, pixels, taps):
    """A sum plus four products."""
    if INTERPRETED:
        total = (total + byte(pixels, 0) * byte(taps, 0) + byte(pixels, 1) * byte(taps, 1) + byte(pixels, 2) * byte(taps, 2)
                 + byte(pixels, 3) * byte(taps, 3))
    else:
        total = tl.inline_asm_elementwise("dp4a.s32.s32 $0, $1, $2, $3;", "=r,r,r,r", [pixels, taps, total], tl.int32,
                                          is_pure=True, pack=1)
    return total


@triton.jit
def saturated(a, b, c, d):
    """Four numbers as one word of bytes, what lies beyond bytes as the nearest."""
    if INTERPRETED:
        word = combined(tl.minimum(tl.maximum(a, -128), 127), tl.minimum(tl.maximum(b, -128), 127),
                        tl.minimum(tl.maximum(c, -128), 127), tl.minimum(tl.maximum(d, -128), 127))
    else:
        word = tl.inline_asm_elementwise("{ .reg .b32 high; cvt.pack.sat.s8.s32.b32 high, $4, $3, 0; "
                                         "cvt.pack.sat.s8.s32.b32 $0, $2, $1, high; }", "=r,r,r,r,r", [a, b, c, d], tl.int32,
                                         is_pure=True, pack=1)
    return word


@triton.jit
def constants_of(at, own, bias, multiplier, shift, ROUND: tl.constexpr):
    """Bias, multiplier and shift of one channel of each word."""
    offset = tl.load(bias + at, mask=own, other=0)
    factor = tl.load(multiplier + at, mask=own, other=0) if ROUND == 1 else offset
    return offset, factor, tl.load(shift + at, mask=own, other=0)


@triton.jit
def taps_of(at, own, q: tl.constexpr, C: tl.constexpr, KH: tl.constexpr, SIDE: tl.constexpr, WORDS: tl.constexpr):
    """All words of four taps of one of the columns side by side: rows x words x four channels."""
    taps = ()
    for i in tl.static_range(KH):
        for t in tl.static_range(4 * WORDS):
            taps = taps + (tl.load(at + ((i * SIDE + q) * WORDS * 4 + t) * C, mask=own, other=0),)  # noqa: RUF005
    return taps


@triton.jit
def as_word(d, o, f, b, LO: tl.constexpr, HI: tl.constexpr, ZERO: tl.constexpr, ACT: tl.constexpr, ROUND: tl.constexpr):
    """Sums of four channels, finished, as one word."""
    if (ROUND == 2) and (LO == -128) and (HI == 127):
        word = saturated(shifted(d[0], o[0], b[0], ZERO), shifted(d[1], o[1], b[1], ZERO),
                         shifted(d[2], o[2], b[2], ZERO), shifted(d[3], o[3], b[3], ZERO))
    else:
        word = combined(finished(d[0], o[0], f[0], b[0], LO, HI, ZERO, ACT, True, ROUND),
                        finished(d[1], o[1], f[1], b[1], LO, HI, ZERO, ACT, True, ROUND),
                        finished(d[2], o[2], f[2], b[2], LO, HI, ZERO, ACT, True, ROUND),
                        finished(d[3], o[3], f[3], b[3], LO, HI, ZERO, ACT, True, ROUND))
    return word


@triton.jit
def bytewise(x, w, bias, multiplier, shift, y,
             H: tl.constexpr, W: tl.constexpr, OH: tl.constexpr, OW: tl.constexpr, C: tl.constexpr,
             KH: tl.constexpr, KW: tl.constexpr, SH: tl.constexpr, SW: tl.constexpr, PH: tl.constexpr, PW: tl.constexpr,
             XP: tl.constexpr, YP: tl.constexpr, LO: tl.constexpr, HI: tl.constexpr, ZERO: tl.constexpr, ACT: tl.constexpr,
             PAD: tl.constexpr, ROUND: tl.constexpr, SIDE: tl.constexpr, WORDS: tl.constexpr,
             R: tl.constexpr, TW: tl.constexpr, BC: tl.constexpr, EARLY: tl.constexpr, PDL: tl.constexpr):
    """A depthwise layer: R output rows x (TW x SIDE) columns x BC words of four channels per program.

    C, XP and YP count words, PAD is a word of four. SIDE columns side by side are computed from the same WORDS words of four
    pixels per row; weights lie (rows x SIDE x WORDS x four channels) x C, each four taps as those pixels need them, biases and shifts four channels x C.
    `EARLY`: taps are held in registers before the layer in front is done.
    """
    image, first, column, c, own = strip(OH, OW, C, R, TW, SIDE, BC)
    source = x.to(tl.pointer_type(tl.int32), bitcast=True)
    target = y.to(tl.pointer_type(tl.int32), bitcast=True)
    mine = own[None, :]
    lane = tl.broadcast_to(c[None, :], (TW, BC))  # every thread loads for its own channels: those of others pass shared memory
    o0, f0, b0 = constants_of(lane, mine, bias, multiplier, shift, ROUND)
    o1, f1, b1 = constants_of(lane + C, mine, bias, multiplier, shift, ROUND)
    o2, f2, b2 = constants_of(lane + 2 * C, mine, bias, multiplier, shift, ROUND)
    o3, f3, b3 = constants_of(lane + 3 * C, mine, bias, multiplier, shift, ROUND)
    early = ()
    if EARLY:
        for q in tl.static_range(SIDE):
            early = early + (taps_of(w + lane, mine, q, C, KH, SIDE, WORDS),)  # noqa: RUF005 - Triton has no unpacking
    nothing = tl.zeros((TW, BC), tl.int32)
    begin(PDL)
    rows = ()
    for i in tl.static_range((R - 1) * SH + KH):
        row = column * 0 + first * SH + i - PH
        for u in tl.static_range(WORDS):
            four = ()
            for j in tl.static_range(4):
                if u * 4 + j < (SIDE - 1) * SW + KW:
                    at = column * SW + u * 4 + j - PW
                    seen = (row >= 0) & (row < H) & (at >= 0) & (at < W)
                    word = tl.load(source + ((image * H + row) * W + at)[:, None] * XP + c[None, :], mask=seen[:, None] & own[None, :], other=0)
                    if PAD != 0:
                        word = tl.where(seen[:, None], word, PAD)
                else:
                    word = nothing
                four = four + (word,)  # noqa: RUF005 - Triton has no unpacking
            rows = rows + turned(four[0], four[1], four[2], four[3])
    for q in tl.static_range(SIDE):
        if EARLY:
            taps = early[q]
        else:
            taps = taps_of(w + lane, mine, q, C, KH, SIDE, WORDS)
        for r in tl.static_range(R):
            d0 = nothing
            d1 = nothing
            d2 = nothing
            d3 = nothing
            for t in tl.static_range(KH * WORDS):
                d0 = summed(d0, rows[(r * SH * WORDS + t) * 4], taps[4 * t])
                d1 = summed(d1, rows[(r * SH * WORDS + t) * 4 + 1], taps[4 * t + 1])
                d2 = summed(d2, rows[(r * SH * WORDS + t) * 4 + 2], taps[4 * t + 2])
                d3 = summed(d3, rows[(r * SH * WORDS + t) * 4 + 3], taps[4 * t + 3])
            word = as_word((d0, d1, d2, d3), (o0, o1, o2, o3), (f0, f1, f2, f3), (b0, b1, b2, b3), LO, HI, ZERO, ACT, ROUND)
            below = column * 0 + first + r
            keep = ((column + q < OW) & (below < OH))[:, None] & own[None, :]
            tl.store(target + ((image * OH + below) * OW + column + q)[:, None] * YP + c[None, :], word, mask=keep)
