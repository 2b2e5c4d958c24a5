"""Inverted residuals in bands of rows: a pointwise, a depthwise and a pointwise layer in one Triton kernel, all in registers.

Conventions as in `gpu/triton/conv.py`. The layer in front is made anew for every column of taps, by a product of matrices whose
result is already where the next one wants it: a value costs one instruction to finish, none to move. Of every column of taps
one value serves all rows of outputs that reach it, so R rows of outputs under 3 x 3 taps need 3 (R + 2) / R values each, not 9.

The front's and the middle's bounds cost nothing where they are 0 and a number: taps and biases are scaled so that they become 0 and
1 (`kernels/layers.py`), which a multiplication keeps by itself.

Of bytes, four rows of values are in a word. Sums of the layer in front begin, as integers, at the bits of a power of two of floats,
so they are floats. One multiplication takes them to float32's least numbers, whose bits count ones from nothing up, and rounds them
there; the instruction that packs bytes keeps their bounds. Four rows of a column are one word of bytes without sign, and one
instruction (`dp4a`) multiplies them with the taps of a row of outputs, which lie one byte further on for rows at odd places.
The last layer is computed in float16, whose products and sums of bytes are exact as long as float32 holds them.
"""

import triton
import triton.language as tl

from dovetail.gpu.triton.conv import begin
from dovetail.gpu.triton.depthwise import may_leave, reaches
from dovetail.gpu.triton.depthwise_bytes import byte, combined
from dovetail.gpu.triton.finishing import (
    INTERPRETED,
    MAGIC,
    ONE,
    activated,
    added_in_floats,
    adds_in_floats,
    as_bytes,
    joined,
    least,
    limited,
)

STEPS = tl.constexpr(256.0)
"""Bytes between bounds of 0 and 1."""


@triton.constexpr_function
def in_vectors(channels):
    """Whether channels are read eight at a time."""
    return channels % 8 == 0


@triton.jit
def band(images, OH: tl.constexpr, OW: tl.constexpr, R: tl.constexpr, BP: tl.constexpr):
    """A program's first output row, its columns counted over all images, and which of these there are; others stand for the last."""
    bands: tl.constexpr = (OH + R - 1) // R
    q = tl.program_id(0) // bands * BP + tl.arange(0, BP)
    return tl.program_id(0) % bands * R, tl.minimum(q, images * OW - 1), q < images * OW


@triton.jit
def places_of(image, left, c, H: tl.constexpr, W: tl.constexpr, KW: tl.constexpr, XP: tl.constexpr, CI: tl.constexpr,
              BC: tl.constexpr):
    """Where each column of taps reads, from the first pixel of a row on: within the row, and channels of the pixel alone."""
    reads = c
    if (CI < BC) and in_vectors(CI):  # others have no weight, so they may be any of the pixel's own: no load is masked
        reads = tl.max_contiguous(tl.multiple_of(tl.where(c < CI, c, c % 8), 8), 8)
    places = ()
    for j in tl.static_range(KW):
        column = tl.minimum(tl.maximum(left + j, 0), W - 1)
        places = places + (((image * (H * W) + column) * XP)[:, None] + reads[None, :],)  # noqa: RUF005 - Triton has no unpacking
    return places


@triton.jit
def inputs_of(x, row, places, c, H: tl.constexpr, W: tl.constexpr, XP: tl.constexpr, CI: tl.constexpr, BC: tl.constexpr):
    """Pixels of a row, of the nearest one where it lies beyond an edge."""
    start = x + tl.minimum(tl.maximum(row, 0), H - 1) * (W * XP)
    if (CI < BC) and not in_vectors(CI):
        v = tl.load(start + places, mask=(c < CI)[None, :], other=0)
    else:
        v = tl.load(start + places)
    return v


@triton.jit
def kept(value, factor, offset):
    """value * factor + offset, between 0 and 1."""
    if INTERPRETED:
        between = tl.minimum(tl.maximum(value * factor + offset, 0.0), 1.0)
    else:
        between = tl.inline_asm_elementwise("fma.rn.sat.f32 $0, $1, $2, $3;", "=f,f,f,f", [value, factor, offset], tl.float32,
                                            is_pure=True, pack=1)
    return between


@triton.jit
def in_front(v, weight, begun, seen, LO: tl.constexpr, HI: tl.constexpr, ACT: tl.constexpr, SAT: tl.constexpr,
             LEAVES: tl.constexpr, PRECISION: tl.constexpr):
    """Values of the layer in front; zero where a pixel is not `seen`, if any may not be (`LEAVES`)."""
    a = tl.dot(v, weight, begun, input_precision=PRECISION, out_dtype=tl.float32)
    if SAT:
        done = kept(a, tl.where(seen, 1.0 / HI, 0.0) if LEAVES else 1.0 / HI, 0.0)
    else:
        done = activated(limited(a, LO, HI), ACT)
        if LEAVES:
            done = tl.where(seen, done, 0.0)
    return done


@triton.jit
def in_middle(total, LO: tl.constexpr, HI: tl.constexpr, ACT: tl.constexpr, SAT: tl.constexpr, BACK: tl.constexpr):
    """Sums of the depthwise layer as they are stored, or, before the product behind them, scaled as they are."""
    if SAT:
        done = kept(total, 1.0, 0.0)
        if not BACK:
            done = done * HI
    else:
        done = activated(limited(total, LO, HI), ACT)
    return done


@triton.jit
def inverted_residual(x, w1, b1, wd, bd, w2, b2, other, y, images,
           H: tl.constexpr, W: tl.constexpr, OH: tl.constexpr, OW: tl.constexpr, CI: tl.constexpr, E: tl.constexpr, N: tl.constexpr,
           KH: tl.constexpr, KW: tl.constexpr, SH: tl.constexpr, SW: tl.constexpr, PH: tl.constexpr, PW: tl.constexpr,
           XP: tl.constexpr, YP: tl.constexpr, OP: tl.constexpr,
           LO1: tl.constexpr, HI1: tl.constexpr, ACT1: tl.constexpr, SAT1: tl.constexpr,
           LOD: tl.constexpr, HID: tl.constexpr, ACTD: tl.constexpr, SATD: tl.constexpr,
           LO2: tl.constexpr, HI2: tl.constexpr, ACT2: tl.constexpr, ADD: tl.constexpr, ALO: tl.constexpr, AHI: tl.constexpr,
           BACK: tl.constexpr, PRECISION: tl.constexpr,
           R: tl.constexpr, BP: tl.constexpr, BE: tl.constexpr, BC: tl.constexpr, BN: tl.constexpr, PDL: tl.constexpr):
    """R output rows x BP columns of one image after another; all middle channels (`BACK`), BE at a time, or BE of them.

    Pixels beyond edges are read where the map ends, so that no load asks where it is, and put to zero afterwards, which where
    bounds are scaled is but another factor.
    """
    stored: tl.constexpr = x.dtype.element_ty
    BANDS: tl.constexpr = (OH + R - 1) // R
    first, q, alive = band(images, OH, OW, R, BP)
    image = q // OW
    left = q % OW * SW - PW
    top = first * SH - PH
    n = tl.arange(0, BN)
    c = tl.arange(0, BC)
    acc = ()
    for _ in tl.static_range(R):
        acc = acc + (tl.zeros((BP, BN), tl.float32),)  # noqa: RUF005 - Triton has no unpacking
    places = places_of(image, left, c, H, W, KW, XP, CI, BC)
    begin(PDL)
    for block in range(0, (E + BE - 1) // BE if BACK else 1):
        e = (block if BACK else tl.program_id(1)) * BE + tl.arange(0, BE)
        own = e < E
        weight = tl.load(w1 + c[:, None] * E + e[None, :], mask=(c < CI)[:, None] & own[None, :], other=0)
        begun = tl.broadcast_to(tl.load(b1 + e, mask=own, other=0)[None, :], (BP, BE))
        middle = tl.broadcast_to(tl.load(bd + e, mask=own, other=0)[None, :], (BP, BE))
        sums = ()
        for _ in tl.static_range(R):
            sums = sums + (middle,)  # noqa: RUF005
        for j in tl.static_range(KW):
            inside = ((left + j >= 0) & (left + j < W))[:, None]
            taps = ()
            for t in tl.static_range(KH):
                taps = taps + (tl.load(wd + (t * KW + j) * E + e, mask=own, other=0)[None, :],)  # noqa: RUF005
            for i in tl.static_range((R - 1) * SH + KH):
                seen = inside & (top + i >= 0) & (top + i < H)
                v = inputs_of(x, top + i, places[j], c, H, W, XP, CI, BC)
                a = in_front(v, weight, begun, seen, LO1, HI1, ACT1, SAT1,
                             may_leave(j, PW, (OW - 1) * SW, W) or may_leave(i, PH, (BANDS - 1) * R * SH, H), PRECISION)
                added = ()
                for r in tl.static_range(R):
                    if reaches(i - r * SH, 1, KH):
                        added = added + (sums[r] + a * taps[i - r * SH],)  # noqa: RUF005
                    else:
                        added = added + (sums[r],)  # noqa: RUF005
                sums = added
        if BACK:
            weight = tl.load(w2 + e[:, None] * N + n[None, :], mask=own[:, None] & (n < N)[None, :], other=0)
            added = ()
            for r in tl.static_range(R):
                d = in_middle(sums[r], LOD, HID, ACTD, SATD, BACK).to(stored)
                added = added + (tl.dot(d, weight, acc[r], input_precision=PRECISION, out_dtype=tl.float32),)  # noqa: RUF005
            acc = added
        else:
            for r in tl.static_range(R):
                if first + r < OH:
                    d = in_middle(sums[r], LOD, HID, ACTD, SATD, BACK).to(stored)
                    at = (image.to(tl.int64) * OH + first + r) * OW + q % OW
                    tl.store(y + at[:, None] * YP + e[None, :], d, mask=alive[:, None] & own[None, :])
    if BACK:
        offset = tl.load(b2 + n, mask=n < N, other=0)[None, :]
        keep = alive[:, None] & (n < N)[None, :]
        for r in tl.static_range(R):
            if first + r < OH:
                at = (image.to(tl.int64) * OH + first + r) * OW + q % OW
                total = acc[r] * HID if SATD else acc[r]
                done = activated(limited(total + offset, LO2, HI2), ACT2)
                if ADD:
                    done = limited(done + tl.load(other + at[:, None] * OP + n[None, :], mask=keep, other=0).to(tl.float32), ALO, AHI)
                tl.store(y + at[:, None] * YP + n[None, :], done.to(stored), mask=keep)


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
                done = as_bytes(total + 128)
            tl.store(y + at[:, None] * YP + n[None, :], done, mask=keep)
