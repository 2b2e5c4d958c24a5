"""What becomes of sums: bias, rounding to the next layer's integers, activation, another tensor added, a mean over pixels.

Conventions as in `gpu/triton/conv.py`. Integers that float32 holds are rounded by it: where its mantissa ends, an addition or a
multiplication rounds half to even, in one instruction, and every step before that is exact.
"""

import triton
import triton.language as tl

from dovetail.kernels.layers import FLOATS_BEGIN, FLOATS_BITS, LEAST_BITS, LOOKED_UP

INTERPRETED = tl.constexpr(triton.knobs.runtime.interpret)
"""Triton's interpreter knows no instructions: there, the same is computed by what it knows."""
MAGIC = tl.constexpr(FLOATS_BITS)
"""Bits of float32's 1.5 * 2**23, `ONE`: its mantissa counts ones, from there up and down."""
ONE = tl.constexpr(FLOATS_BEGIN)
ABOVE = tl.constexpr(8388608.0 + 128.0)
"""What a stored byte is added to where its bits become a float's: 2**23, whose mantissa counts ones, and 128, so that none is below."""


@triton.jit
def rounded(total, multiplier, shift, ROUND: tl.constexpr):
    """total * multiplier / 2**shift, half to even, no shift below zero; unless `ROUND` is WIDE (64 bits), without multipliers."""
    left = total
    by = shift
    if ROUND == 1:
        left = total.to(tl.int64) * multiplier.to(tl.int64)
        by = shift.to(tl.int64)
    some = (by > 0).to(by.dtype)
    below = (some << (by - some)) - some  # just less than a half: an odd quotient adds what is missing
    return (left + below + ((left >> by) & some)) >> by


@triton.jit
def quotient(total, offset, shift):
    """(total + offset) / 2**shift, half to even, beside float32's 1.5 * 2**23: it rounds where its mantissa ends.

    Sums below 2**22 and shifts up to 22 make every step but that rounding exact.
    """
    scale = ((127 - shift) << 23).to(tl.float32, bitcast=True)
    return (total + (offset + MAGIC)).to(tl.float32, bitcast=True) * scale + (ONE - ONE * scale)


@triton.jit
def rounded_between(total, offset, shift, LO: tl.constexpr, HI: tl.constexpr):
    """(total + offset) / 2**shift, half to even, between bounds."""
    value = tl.minimum(tl.maximum(quotient(total, offset, shift), ONE + LO), ONE + HI)
    return value.to(tl.int32, bitcast=True) - MAGIC


LEAST = tl.constexpr(LEAST_BITS)
"""Bits of 1.5 * 2**-77: a sum beside them is a float that one multiplication takes to float32's least numbers."""
ONES = tl.constexpr(int(FLOATS_BEGIN))


@triton.jit
def least_constants(offset, shift, ZERO: tl.constexpr):
    """Where sums of bytes begin as floats, and what one multiplication and addition makes bytes without sign of them with.

    Sums below 2**22 and shifts up to 22 make every step but the last rounding exact.
    """
    below = (ONES >> shift) - (ZERO + 128)
    negative = -2147483648
    ones = tl.where(below >= 0, below | negative, -below)  # the bits of the least numbers count ones
    return offset + LEAST, ((78 - shift) << 23).to(tl.float32, bitcast=True), ones.to(tl.float32, bitcast=True)


@triton.jit
def least(total, factor, ones):
    """A sum that is the bits of a float as an integer above its zero point, without sign; what is below nothing is far below."""
    value = total.to(tl.float32, bitcast=True)
    if INTERPRETED:  # which has no multiplication and addition in one
        done = (value.to(tl.float64) * factor.to(tl.float64) + ones.to(tl.float64)).to(tl.float32)
    else:
        done = tl.inline_asm_elementwise("fma.rn.f32 $0, $1, $2, $3;", "=f,f,f,f", [value, factor, ones], tl.float32,
                                         is_pure=True, pack=1)
    return done.to(tl.int32, bitcast=True)


STORED = tl.constexpr("{ .reg .b32 word; cvt.pack.sat.u8.s32.b32 word, $4, $3, 0; "
                      "cvt.pack.sat.u8.s32.b32 word, $2, $1, word; xor.b32 $0, word, 0x80808080; }")
"""Four numbers without sign as a word of stored bytes."""


@triton.jit
def as_bytes(values):
    """Integers without sign as stored bytes, what lies beyond them as the nearest: one instruction packs two of them."""
    if INTERPRETED:
        packed = (tl.minimum(tl.maximum(values, 0), 255) - 128).to(tl.int8)
    else:
        packed = tl.inline_asm_elementwise(STORED, "=r,r,r,r,r", [values], tl.int8, is_pure=True, pack=4)
    return packed


TABLE = tl.constexpr(LOOKED_UP)


@triton.jit
def exchanged(values, table, ACT: tl.constexpr):
    """Stored bytes, or what a table of 256 has in the place of each, from the lowest on."""
    if ACT == TABLE:
        values = tl.load(table + (values.to(tl.int32) + 128))
    return values


@triton.jit
def constants(channel, inside, bias, multiplier, shift, INTEGER: tl.constexpr, ROUND: tl.constexpr):
    """Bias, multiplier and shift of channels, loaded early: a load behind the last sum would be waited for.

    Pixels are the axis before the last.
    """
    PIXELS: tl.constexpr = len(channel.shape) - 1
    offset = tl.expand_dims(tl.load(bias + channel, mask=inside, other=0), PIXELS)
    by = offset
    factor = offset
    if INTEGER:
        by = tl.expand_dims(tl.load(shift + channel, mask=inside, other=0), PIXELS)
        if ROUND == 1:
            factor = tl.expand_dims(tl.load(multiplier + channel, mask=inside, other=0), PIXELS)
    else:
        offset = offset.to(tl.float32)
    return offset, factor, by


@triton.jit
def finished(acc, offset, factor, by, LO: tl.constexpr, HI: tl.constexpr, ZERO: tl.constexpr, ACT: tl.constexpr,
             INTEGER: tl.constexpr, ROUND: tl.constexpr):
    """Bias, rounding (integers only) and activation of sums."""
    if not INTEGER:
        done = activated(limited(acc + offset, LO, HI), ACT)
    elif ROUND == 2:
        done = rounded_between(acc, offset, by, LO - ZERO, HI - ZERO) + ZERO
    else:
        done = tl.minimum(tl.maximum(rounded(acc + offset, factor, by, ROUND) + ZERO, LO), HI).to(tl.int32)
    return done


@triton.constexpr_function
def packs(rounding, lo, hi):
    """Whether the instruction that packs bytes keeps bounds, and one multiplication rounds (`packs_to_bytes` of a layer)."""
    return rounding == 2 and lo == -128 and hi == 127


@triton.jit
def to_store(acc, offset, factor, by, LO: tl.constexpr, HI: tl.constexpr, ZERO: tl.constexpr, ACT: tl.constexpr,
             INTEGER: tl.constexpr, ROUND: tl.constexpr, kind: tl.constexpr):
    """The same in the type they are stored in; bounds that are those of bytes cost nothing of their own. Of a multiple of four sums."""
    if INTEGER and packs(ROUND, LO, HI):
        start, scale, ones = least_constants(offset, by, ZERO)
        done = as_bytes(least(acc + start, scale, ones))
    else:
        done = finished(acc, offset, factor, by, LO, HI, ZERO, ACT, INTEGER, ROUND).to(kind)
    return done


@triton.jit
def logistic(v):
    """1 / (1 + exp(-v)), without an infinity on its way to nothing."""
    return 1.0 / (1.0 + tl.exp(-tl.maximum(v, -80.0)))


@triton.jit
def activated(v, ACT: tl.constexpr):
    """A function of floats by its number in `kernels/layers.py`; 0 is none."""
    if ACT == 1:
        v = v * tl.minimum(tl.maximum(v + 3.0, 0.0), 6.0) * (1.0 / 6.0)
    elif ACT == 2:
        v = tl.minimum(tl.maximum(v + 3.0, 0.0), 6.0) * (1.0 / 6.0)
    elif ACT == 3:
        v = 0.5 * v * (1.0 + tl.erf(v * 0.7071067811865476))
    elif ACT == 4:
        v = v * logistic(1.5957691216057308 * (v + 0.044715 * v * v * v))
    elif ACT == 5:
        v = v * logistic(v)
    elif ACT == 6:
        v = logistic(v)
    elif ACT == 7:
        v = 2.0 * logistic(2.0 * v) - 1.0
    return v


@triton.jit
def limited(acc, LO: tl.constexpr, HI: tl.constexpr):
    if float("-inf") < LO:
        acc = tl.maximum(acc, LO)
    if float("inf") > HI:
        acc = tl.minimum(acc, HI)
    return acc


@triton.constexpr_function
def fits_words(most, divisor):
    """Whether integers up to `most`, divided by another, need no more than 32 bits on their way."""
    return max(most, 2 * divisor) < 1 << 31


@triton.jit
def shifted(total, SHIFT: tl.constexpr):
    """Integers of 32 or 64 bits / 2**SHIFT, half to even."""
    return rounded(total, total, tl.full((1, 1), SHIFT, total.dtype), 0)


@triton.jit
def joined(acc, other, own_factor: tl.constexpr, other_factor: tl.constexpr, own_zero: tl.constexpr, other_zero: tl.constexpr,
           shift: tl.constexpr, LO: tl.constexpr, HI: tl.constexpr, ZERO: tl.constexpr, INTEGER: tl.constexpr):
    """A finished value plus another tensor's, as an addition of its own would be."""
    if INTEGER:
        wide: tl.constexpr = tl.int32 if fits_words(255 * (own_factor + other_factor), 1 << shift) else tl.int64
        total = (acc - own_zero).to(wide) * own_factor + (other.to(tl.int32) - other_zero).to(wide) * other_factor
        done = tl.minimum(tl.maximum(shifted(total, shift) + ZERO, LO), HI).to(tl.int32)
    else:
        done = limited(acc + other.to(tl.float32), LO, HI)
    return done


@triton.constexpr_function
def adds_in_floats(own_factor, other_factor):
    """Whether bytes times these factors, added up, are integers that float32 rounds by itself."""
    return own_factor + other_factor < 1 << 14


@triton.jit
def as_floats(bytes_of):
    """Bytes as floats above 2**23 + 128: their bits, behind those of 2**23, need no conversion."""
    if INTERPRETED:
        values = bytes_of.to(tl.float32) + ABOVE
    else:
        values = tl.inline_asm_elementwise(
            "{ .reg .b32 above; xor.b32 above, $4, 0x80808080; prmt.b32 $0, above, 0x4B000000, 0x7440; "
            "prmt.b32 $1, above, 0x4B000000, 0x7441; prmt.b32 $2, above, 0x4B000000, 0x7442; "
            "prmt.b32 $3, above, 0x4B000000, 0x7443; }", "=f,=f,=f,=f,r", [bytes_of], tl.float32, is_pure=True, pack=4)
    return values


@triton.jit
def added_in_floats(value, other, LO: tl.constexpr, HI: tl.constexpr, ZERO: tl.constexpr, own_factor: tl.constexpr,
                    other_factor: tl.constexpr, own_zero: tl.constexpr, other_zero: tl.constexpr, shift: tl.constexpr,
                    ALO: tl.constexpr, AHI: tl.constexpr, AZERO: tl.constexpr):
    """A layer's value, beside `ONE` and not yet between bounds, plus another tensor's bytes, as bytes: `joined`, in floats."""
    own = tl.minimum(tl.maximum(value, ONE + (LO - ZERO)), ONE + (HI - ZERO)) - (ONE + (own_zero - ZERO))
    beside = as_floats(other) - (ABOVE + other_zero)
    total = own * (own_factor / (1 << shift)) + beside * (other_factor / (1 << shift)) + ONE
    if (ALO > -128) or (AHI < 127):
        total = tl.minimum(tl.maximum(total, ONE + (ALO - AZERO)), ONE + (AHI - AZERO))
    return as_bytes(total.to(tl.int32, bitcast=True) + (AZERO + 128 - MAGIC))


@triton.jit
def with_other(acc, other, offset, factor, by, LO: tl.constexpr, HI: tl.constexpr, ZERO: tl.constexpr, ACT: tl.constexpr,
               own_factor: tl.constexpr, other_factor: tl.constexpr, own_zero: tl.constexpr, other_zero: tl.constexpr,
               shift: tl.constexpr, ALO: tl.constexpr, AHI: tl.constexpr, AZERO: tl.constexpr, INTEGER: tl.constexpr,
               ROUND: tl.constexpr, kind: tl.constexpr):
    """Sums finished, and another tensor added to them, in the type they are stored in. Of a multiple of four sums."""
    if INTEGER and (ROUND == 2) and adds_in_floats(own_factor, other_factor):
        done = added_in_floats(quotient(acc, offset, by), other, LO, HI, ZERO, own_factor, other_factor, own_zero, other_zero,
                               shift, ALO, AHI, AZERO)
    else:
        own = finished(acc, offset, factor, by, LO, HI, ZERO, ACT, INTEGER, ROUND)
        done = joined(own, other, own_factor, other_factor, own_zero, other_zero, shift, ALO, AHI, AZERO, INTEGER).to(kind)
    return done


@triton.jit
def changed(total, MOST: tl.constexpr, FACTOR: tl.constexpr, SHIFT: tl.constexpr, ZERO: tl.constexpr, LO: tl.constexpr,
            HI: tl.constexpr):
    """Integers up to `MOST` times FACTOR / 2**SHIFT, half to even, above a zero point and between bounds."""
    wide: tl.constexpr = tl.int32 if fits_words(MOST * FACTOR, 1 << SHIFT) else tl.int64
    return tl.minimum(tl.maximum(shifted(total.to(wide) * FACTOR, SHIFT) + ZERO, LO), HI).to(tl.int32)


@triton.jit
def divided(total, by, MOST: tl.constexpr, FACTOR: tl.constexpr, SHIFT: tl.constexpr, ZERO: tl.constexpr, LO: tl.constexpr,
            HI: tl.constexpr):
    """The same of sums of `MOST` bytes or fewer, divided by their number: the exact quotient, rounded half to even once."""
    wide: tl.constexpr = tl.int32 if fits_words(255 * MOST * FACTOR, MOST << SHIFT) else tl.int64
    whole = tl.cast(by, wide) << SHIFT
    product = total.to(wide) * FACTOR
    # Division rounds towards zero; the quotient below is the floor.
    quotient = product // whole
    quotient -= (quotient * whole > product).to(wide)
    rest = product - quotient * whole
    up = (2 * rest > whole) | ((2 * rest == whole) & ((quotient & 1) == 1))
    return tl.minimum(tl.maximum(quotient + up.to(wide) + ZERO, LO), HI).to(tl.int32)


@triton.jit
def averaged(total, PIXELS: tl.constexpr, FACTOR: tl.constexpr, SHIFT: tl.constexpr, FROM: tl.constexpr, ZERO: tl.constexpr,
             LO: tl.constexpr, HI: tl.constexpr, INTEGER: tl.constexpr):
    """Sums over all pixels of an image as their mean."""
    if INTEGER:
        done = divided(total - PIXELS * FROM, PIXELS, PIXELS, FACTOR, SHIFT, ZERO, LO, HI)
    else:
        done = total / PIXELS
    return done
