"""Inverted residuals of bytes in bands of rows: as `gpu/triton/inverted_residual.py`, with four rows of values in a word.

Conventions as in `gpu/triton/conv.py`. Sums of the layer in front begin, as integers, at the bits of a power of two of floats, so they
are floats. One multiplication takes them to float32's least numbers, whose bits count ones from nothing up, and rounds them there;
the instruction that packs bytes keeps their bounds. Four rows of a column are one word of bytes without sign, and one instruction
(`dp4a`) multiplies them with the taps of a row of outputs, which lie one byte further on for rows at odd places.
The last layer is computed in float16, whose products and sums of bytes are exact as long as float32 holds them.
"""

import triton
import triton.language as tl

from dovetail.gpu.triton.conv import begin
from dovetail.gpu.triton.depthwise import may_leave
from dovetail.gpu.triton.depthwise_bytes import byte, combined
from dovetail.gpu.triton.finishing import INTERPRETED, MAGIC, ONE, added_in_floats, adds_in_floats, joined, least, saturated
from dovetail.gpu.triton.inverted_residual import band, inputs_of, kept, places_of

STEPS = tl.constexpr(256.0)
"""Bytes between bounds of 0 and 1."""


@triton.constexpr_function
def words_of(taps, place):
    """Words that hold the taps of a row of outputs, which begins at a place."""
    return (taps + place % 2 + 3) // 4


@triton.constexpr_function
def begins(place):
    """Where the first word of such a row begins."""
    return place // 2 * 2


@triton.constexpr_function
def is_used(start, rows, stride, taps):
    """Whether the word that begins at a row of inputs is one of any of `rows` of outputs."""
    return any(start == begins(r * stride) + 4 * m for r in range(rows) for m in range(words_of(taps, r * stride)))


@triton.constexpr_function
def at_most(place, last):
    return min(place, last)


@triton.jit
def to_byte(value, factor, offset, LO: tl.constexpr, HI: tl.constexpr, ZERO: tl.constexpr):
    """A sum as the next layer's integer, stored form, as a float: bounds first, so that rounding comes last."""
    between = kept(value, factor, offset) * STEPS + (ONE + (LO - ZERO))
    return tl.minimum(between, ONE + (HI - ZERO)) + (ZERO - ONE)


@triton.jit
def packed(a, b, c, d):
    """Four numbers as one word of bytes without sign, what lies beyond them as the nearest."""
    if INTERPRETED:
        word = combined(tl.minimum(tl.maximum(a, 0), 255), tl.minimum(tl.maximum(b, 0), 255),
                        tl.minimum(tl.maximum(c, 0), 255), tl.minimum(tl.maximum(d, 0), 255))
    else:
        word = tl.inline_asm_elementwise("{ .reg .b32 high; cvt.pack.sat.u8.s32.b32 high, $4, $3, 0; "
                                         "cvt.pack.sat.u8.s32.b32 $0, $2, $1, high; }", "=r,r,r,r,r", [a, b, c, d], tl.int32,
                                         is_pure=True, pack=1)
    return word


@triton.jit
def summed(total, pixels, taps):
    """A sum plus four products of bytes without sign and bytes with one."""
    if INTERPRETED:
        for at in tl.static_range(4):
            total += ((pixels >> (8 * at)) & 255) * byte(taps, at)
    else:
        total = tl.inline_asm_elementwise("dp4a.u32.s32 $0, $1, $2, $3;", "=r,r,r,r", [pixels, taps, total], tl.int32,
                                          is_pure=True, pack=1)
    return total


@triton.jit
def inverted_residual_bytes(x, w1, c1, f1, o1, wd, cd, fd, od, w2, b2, f2, other, y, images,
                 H: tl.constexpr, W: tl.constexpr, OH: tl.constexpr, OW: tl.constexpr, CI: tl.constexpr, E: tl.constexpr, N: tl.constexpr,
                 KH: tl.constexpr, KW: tl.constexpr, SH: tl.constexpr, SW: tl.constexpr, PH: tl.constexpr, PW: tl.constexpr,
                 W1K: tl.constexpr, W1N: tl.constexpr, XP: tl.constexpr, YP: tl.constexpr, OP: tl.constexpr,
                 LOD: tl.constexpr, HID: tl.constexpr, ZEROD: tl.constexpr, LO2: tl.constexpr, HI2: tl.constexpr,
                 ZERO2: tl.constexpr, PADE: tl.constexpr, PAD4: tl.constexpr, WORDS: tl.constexpr,
                 ADD: tl.constexpr, A_FACTOR: tl.constexpr, O_FACTOR: tl.constexpr, A_ZERO: tl.constexpr, O_ZERO: tl.constexpr,
                 A_SHIFT: tl.constexpr, ALO: tl.constexpr, AHI: tl.constexpr, AZERO: tl.constexpr,
                 R: tl.constexpr, BP: tl.constexpr, BE: tl.constexpr, BC: tl.constexpr, BN: tl.constexpr, PDL: tl.constexpr):
    """R output rows x BP columns of one image after another, all middle channels, BE at a time."""
    BANDS: tl.constexpr = (OH + R - 1) // R
    ROWS: tl.constexpr = (R - 1) * SH + KH
    first, q, alive = band(images, OH, OW, R, BP)
    image = q // OW
    left = q % OW * SW - PW
    top = first * SH - PH
    n = tl.arange(0, BN)
    c = tl.arange(0, BC)
    behind = tl.broadcast_to(tl.load(b2 + n, mask=n < N, other=0)[None, :], (BP, BN))
    acc = ()
    for _ in tl.static_range(R):
        acc = acc + (behind,)  # noqa: RUF005 - Triton has no unpacking
    places = places_of(image, left, c, H, W, KW, XP, CI, BC)
    begin(PDL)
    for block in range(0, (E + BE - 1) // BE):
        e = block * BE + tl.arange(0, BE)
        own = e < E
        weight = tl.load(w1 + c[:, None] * W1K + e[None, :] * W1N, mask=(c < CI)[:, None] & own[None, :], other=0)
        begun = tl.broadcast_to(tl.load(c1 + e, mask=own, other=0)[None, :], (BP, BE))
        factor = tl.load(f1 + e, mask=own, other=0)[None, :]
        offset = tl.load(o1 + e, mask=own, other=0)[None, :]
        middle = tl.broadcast_to(tl.load(cd + e, mask=own, other=0)[None, :], (BP, BE))
        sums = ()
        for _ in tl.static_range(R):
            sums = sums + (middle,)  # noqa: RUF005
        for j in tl.static_range(KW):
            inside = ((left + j >= 0) & (left + j < W))[:, None]
            taps = ()
            for t in tl.static_range((1 + SH % 2) * WORDS):
                taps = taps + (tl.load(wd + (j * (1 + SH % 2) * WORDS + t) * E + e, mask=own, other=0)[None, :],)  # noqa: RUF005
            values = ()
            for i in tl.static_range(ROWS):
                v = inputs_of(x, top + i, places[j], c, H, W, XP, CI, BC)
                a = least(tl.dot(v, weight, begun, out_dtype=tl.int32), factor, offset)
                if may_leave(i, PH, (BANDS - 1) * R * SH, H):
                    a = tl.where((left * 0 + top + i >= 0)[:, None] & (left * 0 + top + i < H)[:, None], a, PADE)
                values = values + (a,)  # noqa: RUF005
            words = ()
            for s in tl.static_range((ROWS + 1) // 2):
                if is_used(2 * s, R, SH, KH):
                    word = packed(values[2 * s], values[at_most(2 * s + 1, ROWS - 1)], values[at_most(2 * s + 2, ROWS - 1)],
                                  values[at_most(2 * s + 3, ROWS - 1)])
                    if may_leave(j, PW, (OW - 1) * SW, W):
                        word = tl.where(inside, word, PAD4)
                    words = words + (word,)  # noqa: RUF005
                else:
                    words = words + (values[0],)  # noqa: RUF005 - stands for what no row needs
            added = ()
            for r in tl.static_range(R):
                total = sums[r]
                for m in tl.static_range(words_of(KH, r * SH)):
                    total = summed(total, words[begins(r * SH) // 2 + 2 * m], taps[r * SH % 2 * WORDS + m])
                added = added + (total,)  # noqa: RUF005
            sums = added
        factor = tl.load(fd + e, mask=own, other=0)[None, :]
        offset = tl.load(od + e, mask=own, other=0)[None, :]
        last = tl.load(w2 + e[:, None] * N + n[None, :], mask=own[:, None] & (n < N)[None, :], other=0)
        added = ()
        for r in tl.static_range(R):
            d = to_byte(sums[r].to(tl.float32, bitcast=True), factor, offset, LOD, HID, ZEROD)
            added = added + (tl.dot(d.to(tl.float16), last, acc[r], out_dtype=tl.float32),)  # noqa: RUF005
        acc = added
    scale = tl.load(f2 + n, mask=n < N, other=0)[None, :]
    keep = alive[:, None] & (n < N)[None, :]
    for r in tl.static_range(R):
        if first + r < OH:
            at = (image.to(tl.int64) * OH + first + r) * OW + q % OW
            value = acc[r] * scale + ONE
            if ADD:
                beside = tl.load(other + at[:, None] * OP + n[None, :], mask=keep, other=0)
            if ADD and adds_in_floats(A_FACTOR, O_FACTOR):
                done = added_in_floats(value, beside, LO2, HI2, ZERO2, A_FACTOR, O_FACTOR, A_ZERO, O_ZERO, A_SHIFT, ALO, AHI, AZERO)
            else:
                total = tl.minimum(tl.maximum(value.to(tl.int32, bitcast=True) + (ZERO2 - MAGIC), LO2), HI2)
                if ADD:
                    total = joined(total, beside, A_FACTOR, O_FACTOR, A_ZERO, O_ZERO, A_SHIFT, ALO, AHI, AZERO, True)
                done = saturated(total)
            tl.store(y + at[:, None] * YP + n[None, :], done, mask=keep)
