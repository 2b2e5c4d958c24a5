"""Depthwise convolution of bytes, four at a time.

Matrix units do nothing for a filter per channel, and a byte of its own costs as many instructions as a float. Here a 32-bit word
holds four channels of a pixel; four words, of four pixels side by side, are turned into four words of one channel each, and one
instruction (`dp4a`) multiplies the four pixels with four taps and adds up. Conventions as in `gpu/triton/conv.py`.
"""

import triton
import triton.language as tl

from dovetail.gpu.triton.conv import begin, strip
from dovetail.gpu.triton.depthwise import may_leave, reaches
from dovetail.gpu.triton.finishing import INTERPRETED, STORED, TABLE, exchanged, finished, least, least_constants, packs


@triton.constexpr_function
def leaves(pixel, side, taps, stride, pad, columns, size):
    """Whether a pixel of the words of some columns side by side is beyond an edge for one of them that has a tap there.

    `q` of the columns side by side is last in the map where it is still a column: not always beside the map's last.
    """
    reading = [q for q in range(min(side, columns)) if 0 <= pixel - q * stride < taps]
    return any(pixel < pad or (columns - 1 - q) // side * side * stride + pixel - pad >= size for q in reading)


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


TURNED = tl.constexpr("""{
.reg .b32 p, q, r, s;
prmt.b32 p, $4, $5, 0x5140;
prmt.b32 q, $4, $5, 0x7362;
prmt.b32 r, $6, $7, 0x5140;
prmt.b32 s, $6, $7, 0x7362;
prmt.b32 $0, p, r, 0x5410;
prmt.b32 $1, p, r, 0x7632;
prmt.b32 $2, q, s, 0x5410;
prmt.b32 $3, q, s, 0x7632;
}""")
"""Four words of four channels as four words of four pixels; few long pieces of code compile faster than many short ones."""
SUMMED = tl.constexpr("""{
dp4a.s32.s32 $0, $4, $8, $12;
dp4a.s32.s32 $1, $5, $9, $13;
dp4a.s32.s32 $2, $6, $10, $14;
dp4a.s32.s32 $3, $7, $11, $15;
}""")
"""Of four channels, a sum plus four products."""


@triton.jit
def turned(a, b, c, d):
    """Four words of four channels as four words of four pixels."""
    if INTERPRETED:
        words = (combined(a, b, c, d), combined(a >> 8, b >> 8, c >> 8, d >> 8), combined(a >> 16, b >> 16, c >> 16, d >> 16),
                 combined(a >> 24, b >> 24, c >> 24, d >> 24))
    else:
        words = tl.inline_asm_elementwise(TURNED, "=&r,=&r,=&r,=&r,r,r,r,r", [a, b, c, d],
                                          (tl.int32, tl.int32, tl.int32, tl.int32), is_pure=True, pack=1)
    return words


@triton.jit
def multiplied(pixels, taps):
    """The sum of four products."""
    return (byte(pixels, 0) * byte(taps, 0) + byte(pixels, 1) * byte(taps, 1) + byte(pixels, 2) * byte(taps, 2)
            + byte(pixels, 3) * byte(taps, 3))


@triton.jit
def summed(d, x, w, word: tl.constexpr, tap: tl.constexpr):
    """Sums of four channels plus four products each: of words of pixels from `word` on, and words of taps from `tap` on."""
    if INTERPRETED:
        sums = (d[0] + multiplied(x[word], w[tap]), d[1] + multiplied(x[word + 1], w[tap + 1]),
                d[2] + multiplied(x[word + 2], w[tap + 2]), d[3] + multiplied(x[word + 3], w[tap + 3]))
    else:
        sums = tl.inline_asm_elementwise(
            SUMMED, "=&r,=&r,=&r,=&r,r,r,r,r,r,r,r,r,r,r,r,r",
            [x[word], x[word + 1], x[word + 2], x[word + 3], w[tap], w[tap + 1], w[tap + 2], w[tap + 3],
             d[0], d[1], d[2], d[3]], (tl.int32, tl.int32, tl.int32, tl.int32), is_pure=True, pack=1)
    return sums


@triton.jit
def stored(a, b, c, d):
    """Four numbers without sign as one word of stored bytes, what lies beyond bytes as the nearest."""
    if INTERPRETED:
        word = combined(tl.minimum(tl.maximum(a, 0), 255) - 128, tl.minimum(tl.maximum(b, 0), 255) - 128,
                        tl.minimum(tl.maximum(c, 0), 255) - 128, tl.minimum(tl.maximum(d, 0), 255) - 128)
    else:
        word = tl.inline_asm_elementwise(STORED, "=r,r,r,r,r", [a, b, c, d], tl.int32, is_pure=True, pack=1)
    return word


@triton.jit
def constants_of(at, own, bias, multiplier, shift, ZERO: tl.constexpr, ROUND: tl.constexpr, BYTES: tl.constexpr):
    """Of one channel of each word: where its sums begin, and what finishes them, for `BYTES` that keep their bounds or others."""
    offset = tl.load(bias + at, mask=own, other=0)
    by = tl.load(shift + at, mask=own, other=0)
    if BYTES:
        held = least_constants(offset, by, ZERO)
    else:
        held = offset, tl.load(multiplier + at, mask=own, other=0) if ROUND == 1 else offset, by
    return held


@triton.constexpr_function
def four_loaded(distance):
    """The instruction that loads four words so many bytes behind an address; as constants (`.nc`) ptxas would load them late."""
    return f"ld.global.v4.b32 {{$0, $1, $2, $3}}, [$4+{distance}];"


@triton.jit
def four_words(at, distance: tl.constexpr):
    """Four constant words side by side, so many words behind an address that sixteen divides.

    In one instruction, of which Triton knows nothing: for loads of its own it looks for the best layout among all that a kernel
    has, each with each, which takes it most of the time where they are hundreds.
    """
    if INTERPRETED:
        words = (tl.load(at + distance), tl.load(at + distance + 1), tl.load(at + distance + 2), tl.load(at + distance + 3))
    else:
        words = tl.inline_asm_elementwise(four_loaded(4 * distance), "=r,=r,=r,=r,l", [at.to(tl.int64)],
                                          (tl.int32, tl.int32, tl.int32, tl.int32), is_pure=False, pack=1)
    return words


@triton.constexpr_function
def one_loaded(distance):
    """The instruction that loads a word so many bytes behind an address where that is to be, and takes another word elsewhere."""
    return f"mov.b32 $0, $3;\n@$2 ld.global.b32 $0, [$1+{distance}];"


@triton.jit
def one_word(at, distance: tl.constexpr, keep, other: tl.constexpr):
    """A word so many words behind an address where `keep` says so, else another; Triton does not know that it is loaded either."""
    if INTERPRETED:
        word = tl.load(at + distance, mask=keep, other=other)
    else:
        word = tl.inline_asm_elementwise(one_loaded(4 * distance), "=&r,l,b,r", [at.to(tl.int64), keep, other], tl.int32,
                                         is_pure=False, pack=1)
    return word


@triton.jit
def taps_of(at, row: tl.constexpr, C: tl.constexpr, SIDE: tl.constexpr, WORDS: tl.constexpr):
    """All words of four taps of a row: columns side by side x words x four channels."""
    taps = ()
    for t in tl.static_range(SIDE * WORDS):
        taps = taps + four_words(at, (row * SIDE * WORDS + t) * C * 4)
    return taps


@triton.jit
def ended(total, factor, by, LO: tl.constexpr, HI: tl.constexpr, ZERO: tl.constexpr, ACT: tl.constexpr, ROUND: tl.constexpr,
          BYTES: tl.constexpr):
    """Sums of one channel, finished: without sign and not yet between bounds where they are `BYTES`."""
    if BYTES:
        done = least(total, factor, by)
    else:
        done = finished(total, 0, factor, by, LO, HI, ZERO, ACT, True, ROUND)
    return done


@triton.jit
def entry(value, table, BYTES: tl.constexpr):
    """What a table has in the place of what `ended` gives."""
    if BYTES:
        value = tl.minimum(tl.maximum(value, 0), 255) - 128
    return exchanged(value, table, TABLE).to(tl.int32)


@triton.jit
def as_word(d, f, b, table, LO: tl.constexpr, HI: tl.constexpr, ZERO: tl.constexpr, ACT: tl.constexpr, ROUND: tl.constexpr,
            BYTES: tl.constexpr):
    """Sums of four channels, finished, as one word."""
    v0 = ended(d[0], f[0], b[0], LO, HI, ZERO, ACT, ROUND, BYTES)
    v1 = ended(d[1], f[1], b[1], LO, HI, ZERO, ACT, ROUND, BYTES)
    v2 = ended(d[2], f[2], b[2], LO, HI, ZERO, ACT, ROUND, BYTES)
    v3 = ended(d[3], f[3], b[3], LO, HI, ZERO, ACT, ROUND, BYTES)
    if ACT == TABLE:
        word = combined(entry(v0, table, BYTES), entry(v1, table, BYTES), entry(v2, table, BYTES), entry(v3, table, BYTES))
    elif BYTES:
        word = stored(v0, v1, v2, v3)
    else:
        word = combined(v0, v1, v2, v3)
    return word


@triton.jit
def fourfold(lane, own, bias, multiplier, shift, C: tl.constexpr, ZERO: tl.constexpr, ROUND: tl.constexpr, BYTES: tl.constexpr):
    """Of all four channels of each word the same, as tuples."""
    begins = ()
    factors = ()
    ends = ()
    for ch in tl.static_range(4):
        begin_at, factor, by = constants_of(lane + ch * C, own, bias, multiplier, shift, ZERO, ROUND, BYTES)
        begins = begins + (begin_at,)  # noqa: RUF005 - Triton has no unpacking
        factors = factors + (factor,)  # noqa: RUF005
        ends = ends + (by,)  # noqa: RUF005
    return begins, factors, ends


@triton.jit
def all_taps(at, KH: tl.constexpr, C: tl.constexpr, SIDE: tl.constexpr, WORDS: tl.constexpr):
    """Taps of all rows, row by row."""
    taps = ()
    for i in tl.static_range(KH):
        taps = taps + (taps_of(at, i, C, SIDE, WORDS),)  # noqa: RUF005
    return taps


@triton.jit
def sums_by_words(corner, first, column, own, early, taken, begins,
                  H: tl.constexpr, W: tl.constexpr, OH: tl.constexpr, OW: tl.constexpr, C: tl.constexpr,
                  KH: tl.constexpr, KW: tl.constexpr, SH: tl.constexpr, SW: tl.constexpr, PH: tl.constexpr, PW: tl.constexpr,
                  XP: tl.constexpr, PAD: tl.constexpr, SIDE: tl.constexpr, WORDS: tl.constexpr, R: tl.constexpr, EARLY: tl.constexpr):
    """Sums of R rows x SIDE columns side by side x four channels, input row by input row; `corner` is where windows begin."""
    sums = ()
    for _ in tl.static_range(R * SIDE):
        sums = sums + begins
    nothing = begins[0] * 0
    for i in tl.static_range((R - 1) * SH + KH):
        row = column * 0 + first * SH + i - PH
        turned_words = ()
        for u in tl.static_range(WORDS):
            four = ()
            for j in tl.static_range(4):
                if u * 4 + j < (SIDE - 1) * SW + KW:
                    at = column * SW + u * 4 + j - PW
                    seen = (row >= 0) & (row < H) & (at >= 0) & (at < W)
                    word = one_word(corner, (i * W + u * 4 + j) * XP, seen[:, None] & own[None, :], PAD if may_leave(
                        i, PH, (OH - 1) // R * R * SH, H) or leaves(u * 4 + j, SIDE, KW, SW, PW, OW, W) else 0)
                else:
                    word = nothing
                four = four + (word,)  # noqa: RUF005
            turned_words = turned_words + turned(four[0], four[1], four[2], four[3])
        added = ()
        for r in tl.static_range(R):
            if reaches(i - r * SH, 1, KH):
                taps = early[i - r * SH] if EARLY else taps_of(taken, i - r * SH, C, SIDE, WORDS)
            for q in tl.static_range(SIDE):
                four = (sums[(r * SIDE + q) * 4], sums[(r * SIDE + q) * 4 + 1], sums[(r * SIDE + q) * 4 + 2],
                        sums[(r * SIDE + q) * 4 + 3])
                if reaches(i - r * SH, 1, KH):
                    for u in tl.static_range(WORDS):
                        four = summed(four, turned_words, taps, u * 4, (q * WORDS + u) * 4)
                added = added + four
        sums = added
    return sums


@triton.jit
def depthwise_bytes(x, w, bias, multiplier, shift, table, y,
             H: tl.constexpr, W: tl.constexpr, OH: tl.constexpr, OW: tl.constexpr, C: tl.constexpr,
             KH: tl.constexpr, KW: tl.constexpr, SH: tl.constexpr, SW: tl.constexpr, PH: tl.constexpr, PW: tl.constexpr,
             XP: tl.constexpr, YP: tl.constexpr, LO: tl.constexpr, HI: tl.constexpr, ZERO: tl.constexpr, ACT: tl.constexpr,
             PAD: tl.constexpr, ROUND: tl.constexpr, SIDE: tl.constexpr, WORDS: tl.constexpr,
             R: tl.constexpr, TW: tl.constexpr, BC: tl.constexpr, EARLY: tl.constexpr, PDL: tl.constexpr):
    """A depthwise layer: R output rows x (TW x SIDE) columns x BC words of four channels per program, input row by input row.

    C, XP and YP count words, PAD is a word of four. SIDE columns side by side are computed from the same WORDS words of four
    pixels per row; weights lie (rows x SIDE x WORDS) x C x four channels, each four taps as those pixels need them, biases and
    shifts four channels x C. `EARLY`: taps are held in registers before the layer in front is done.
    """
    image, first, column, c, own = strip(OH, OW, C, R, TW, SIDE, BC)
    source = x.to(tl.pointer_type(tl.int32), bitcast=True)
    target = y.to(tl.pointer_type(tl.int32), bitcast=True)
    BYTES: tl.constexpr = packs(ROUND, LO, HI)
    lane = tl.broadcast_to(c[None, :], (TW, BC))  # every thread loads for its own channels: those of others pass shared memory
    taken = w + 4 * tl.minimum(lane, C - 1)
    o, f, b = fourfold(lane, own[None, :], bias, multiplier, shift, C, ZERO, ROUND, BYTES)
    early = all_taps(taken, KH, C, SIDE, WORDS) if EARLY else ()
    corner = source + ((image * H + first * SH - PH) * W + column * SW - PW)[:, None] * XP + c[None, :]
    begin(PDL)
    sums = sums_by_words(corner, first, column, own, early, taken, o, H, W, OH, OW, C, KH, KW, SH, SW, PH, PW, XP, PAD, SIDE,
                         WORDS, R, EARLY)
    for r in tl.static_range(R):
        for q in tl.static_range(SIDE):
            word = as_word((sums[(r * SIDE + q) * 4], sums[(r * SIDE + q) * 4 + 1], sums[(r * SIDE + q) * 4 + 2],
                            sums[(r * SIDE + q) * 4 + 3]), f, b, table, LO, HI, ZERO, ACT, ROUND, BYTES)
            below = column * 0 + first + r
            keep = ((column + q < OW) & (below < OH))[:, None] & own[None, :]
            tl.store(target + ((image * OH + below) * OW + column + q)[:, None] * YP + c[None, :], word, mask=keep)
