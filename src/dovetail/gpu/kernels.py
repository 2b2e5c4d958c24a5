"""Triton kernels: convolution of any kind, depthwise convolution, fused modules, pooling and moves, in floats and integers.

Activations lie as images x rows x columns x channels with a pitch (channels of the buffer they are part of), so that
concatenations and parts of channels are places, not copies. Weights are (taps x input channels) x output channels, `WK` and
`WN` apart: of floats, output channels lie side by side, of bytes input channels do, as matrix units want them.

Integers: an 8-bit value is stored as int8 (unsigned ones less 128); padding reads `PAD`, the stored form of zero, and biases
have the zero points' share taken off (`kernels/layers.py`), so that `tl.dot` yields the exact sums of docs/numerics.md, which
`rounded` turns into the next layer's integers.

`PDL` (programmatic dependent launch) lets the next kernel of a CUDA graph start while this one ends: every kernel loads
constants, waits for its predecessor before it touches activations, then lets its successor start.
It must be off wherever a GPU older than Hopper, or Triton's interpreter, runs them.
"""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait


@triton.jit
def begin(PDL: tl.constexpr):
    """Wait for the kernel before, then let the next one start: sooner, its waiting programs would take this one's room."""
    if PDL:
        gdc_wait()
        gdc_launch_dependents()


INTERPRETED = tl.constexpr(triton.knobs.runtime.interpret)
"""Triton's interpreter knows no instructions: there, the same is computed by what it knows."""
MAGIC = tl.constexpr(0x4B400000)
"""float32's 1.5 * 2**23: its mantissa counts ones, from there up and down."""


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
    one = 12582912.0
    scale = ((127 - shift) << 23).to(tl.float32, bitcast=True)
    return (total + (offset + MAGIC)).to(tl.float32, bitcast=True) * scale + (one - one * scale)


@triton.jit
def rounded_between(total, offset, shift, LO: tl.constexpr, HI: tl.constexpr):
    """(total + offset) / 2**shift, half to even, between bounds."""
    one = 12582912.0
    value = tl.minimum(tl.maximum(quotient(total, offset, shift), one + LO), one + HI)
    return value.to(tl.int32, bitcast=True) - MAGIC


@triton.jit
def shifted(total, offset, shift, ZERO: tl.constexpr):
    """The same without bounds, as an integer above its zero point."""
    return quotient(total, offset, shift).to(tl.int32, bitcast=True) + (ZERO - MAGIC)


@triton.jit
def saturated(values):
    """Integers as bytes, what lies beyond them as the nearest: one instruction for two of them, which also packs them."""
    if INTERPRETED:
        packed = tl.minimum(tl.maximum(values, -128), 127).to(tl.int8)
    else:
        packed = tl.inline_asm_elementwise("{ .reg .b32 high; cvt.pack.sat.s8.s32.b32 high, $4, $3, 0; "
                                           "cvt.pack.sat.s8.s32.b32 $0, $2, $1, high; }", "=r,r,r,r,r", [values], tl.int8,
                                           is_pure=True, pack=4)
    return packed


@triton.jit
def constants(channel, inside, bias, multiplier, shift, INTEGER: tl.constexpr, ROUND: tl.constexpr):
    """Bias, multiplier and shift of channels, loaded early: a load behind the last sum would be waited for."""
    offset = tl.load(bias + channel, mask=inside, other=0)[None, :]
    by = offset
    factor = offset
    if INTEGER:
        by = tl.load(shift + channel, mask=inside, other=0)[None, :]
        if ROUND == 1:
            factor = tl.load(multiplier + channel, mask=inside, other=0)[None, :]
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


@triton.jit
def to_store(acc, offset, factor, by, LO: tl.constexpr, HI: tl.constexpr, ZERO: tl.constexpr, ACT: tl.constexpr,
             INTEGER: tl.constexpr, ROUND: tl.constexpr, kind: tl.constexpr):
    """The same in the type they are stored in; bounds that are those of bytes cost nothing of their own. Of a multiple of four sums."""
    if INTEGER and (ROUND == 2) and (LO == -128) and (HI == 127):
        done = saturated(shifted(acc, offset, by, ZERO))
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


@triton.jit
def joined(acc, other, own_factor, other_factor, own_zero, other_zero, shift, LO: tl.constexpr, HI: tl.constexpr,
           ZERO: tl.constexpr, INTEGER: tl.constexpr):
    """A finished value plus another tensor's, as an addition of its own would be."""
    if INTEGER:
        total = (acc - own_zero) * own_factor + (other.to(tl.int32) - other_zero) * other_factor
        total = rounded(total, total, tl.full((1, 1), shift, tl.int32), 0) + ZERO
        done = tl.minimum(tl.maximum(total, LO), HI)
    else:
        done = limited(acc + other.to(tl.float32), LO, HI)
    return done


@triton.jit
def averaged(total, PIXELS: tl.constexpr, FACTOR: tl.constexpr, SHIFT: tl.constexpr, FROM: tl.constexpr, ZERO: tl.constexpr,
             LO: tl.constexpr, HI: tl.constexpr, INTEGER: tl.constexpr):
    """Sums over all pixels of an image as their mean; of integers the exact quotient, rounded half to even once."""
    if INTEGER:
        product = (total - PIXELS * FROM).to(tl.int64) * FACTOR
        whole: tl.constexpr = PIXELS << SHIFT
        # Division rounds towards zero; the quotient below is the floor.
        quotient = product // whole
        quotient -= (quotient * whole > product).to(tl.int64)
        rest = product - quotient * whole
        up = (2 * rest > whole) | ((2 * rest == whole) & ((quotient & 1) == 1))
        done = tl.minimum(tl.maximum((quotient + up.to(tl.int64)).to(tl.int32) + ZERO, LO), HI)
    else:
        done = total / PIXELS
    return done


@triton.jit
def _left(a, b):
    return a


@triton.jit
def settled(values):
    """The same values, computed in the layout they were loaded in.

    Without this, Triton moves every operand of a sum into the layout of the product behind it, one trip through shared memory
    and one barrier each, instead of the sum once: a depthwise layer in front of a product then takes three times as long.
    """
    return tl.reduce(tl.join(values, values), 2, _left)


@triton.jit
def padded(at, seen, PAD: tl.constexpr):
    """Values where `seen`, the stored form of zero elsewhere.

    Not `other=PAD`: where Triton (3.6) loads several bytes at once, it fills all but the first with the sign of a constant.
    """
    v = tl.load(at, mask=seen, other=0)
    if PAD != 0:
        v = tl.where(seen, v, PAD).to(v.dtype)
    return v


@triton.jit
def corner(m, OH: tl.constexpr, OW: tl.constexpr, SH: tl.constexpr, SW: tl.constexpr, PH: tl.constexpr, PW: tl.constexpr):
    """Of output pixels over all images: the image, and the row and column where each one's window begins."""
    q = m % (OH * OW)
    return (m // (OH * OW)).to(tl.int64), q // OW * SH - PH, q % OW * SW - PW


@triton.jit
def strip(OH: tl.constexpr, OW: tl.constexpr, C: tl.constexpr, R: tl.constexpr, TW: tl.constexpr, SIDE: tl.constexpr, BC: tl.constexpr):
    """What a program has that computes R rows x TW * SIDE columns x BC channels of an image.

    The image, the first row, every SIDE-th column, the channels and which of these there are.
    """
    TX: tl.constexpr = (OW + TW * SIDE - 1) // (TW * SIDE)
    TY: tl.constexpr = (OH + R - 1) // R
    pid = tl.program_id(0)
    c = tl.program_id(1) * BC + tl.arange(0, BC)
    return (pid // (TX * TY)).to(tl.int64), (pid // TX) % TY * R, (pid % TX * TW + tl.arange(0, TW)) * SIDE, c, c < C


@triton.jit
def taken_along(source, target, picked, m, alive, AC: tl.constexpr, AXP: tl.constexpr, AYP: tl.constexpr):
    """Channels of another tensor copied for the same pixels: what a split passes on beside a layer."""
    at = m.to(tl.int64)[:, None]
    for block in range((AC + 31) // 32):
        a = block * 32 + tl.arange(0, 32)
        own = alive[:, None] & (a < AC)[None, :]
        index = tl.load(picked + a, mask=a < AC, other=0)
        tl.store(target + at * AYP + a[None, :], tl.load(source + at * AXP + index[None, :], mask=own, other=0), mask=own)


@triton.jit
def conv(x, w, bias, multiplier, shift, other, y, source, target, picked, images,
         H: tl.constexpr, W: tl.constexpr, OH: tl.constexpr, OW: tl.constexpr, CI: tl.constexpr, N: tl.constexpr,
         KH: tl.constexpr, KW: tl.constexpr, SH: tl.constexpr, SW: tl.constexpr, PH: tl.constexpr, PW: tl.constexpr,
         DH: tl.constexpr, DW: tl.constexpr, XB: tl.constexpr, XH: tl.constexpr, XW: tl.constexpr, XC: tl.constexpr,
         WK: tl.constexpr, WN: tl.constexpr, YP: tl.constexpr, OP: tl.constexpr, LO: tl.constexpr, HI: tl.constexpr,
         ZERO: tl.constexpr, ACT: tl.constexpr, PAD: tl.constexpr, INTEGER: tl.constexpr, ROUND: tl.constexpr,
         ADD: tl.constexpr, A_FACTOR: tl.constexpr, O_FACTOR: tl.constexpr, A_ZERO: tl.constexpr, O_ZERO: tl.constexpr, A_SHIFT: tl.constexpr, ALO: tl.constexpr, AHI: tl.constexpr,
         AZERO: tl.constexpr, AC: tl.constexpr, AXP: tl.constexpr, AYP: tl.constexpr,
         MEAN: tl.constexpr, M_FACTOR: tl.constexpr, M_SHIFT: tl.constexpr, M_FROM: tl.constexpr, M_ZERO: tl.constexpr,
         M_LO: tl.constexpr, M_HI: tl.constexpr, FLAT: tl.constexpr, PRECISION: tl.constexpr,
         BP: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SUMS: tl.constexpr, PDL: tl.constexpr):
    """Convolution as a product of matrices: BP pixels x BN channels per program, the third axis is the group.

    `FLAT` reads taps and channels of small inputs as one axis. `ADD` adds another tensor; `MEAN` averages over all pixels of an
    image, of which the program then has all. With `AC`, that many channels of another tensor are copied along. `SUMS` = 2 (pointwise layers only) adds up the halves of the channels side by side:
    a product waits for the one before it in its own sum only.
    """
    pixels = images * OH * OW
    group = tl.program_id(2)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    own = n < N
    if MEAN:
        place = tl.arange(0, BP)
        m = tl.program_id(0) * (OH * OW) + place
        alive = place < OH * OW
    else:
        m = tl.program_id(0) * BP + tl.arange(0, BP)
        alive = m < pixels
    PLAIN: tl.constexpr = (KH == 1) and (KW == 1) and (PH == 0) and (PW == 0) and ((OH - 1) * SH < H) and ((OW - 1) * SW < W)
    if PLAIN and (SH == 1) and (SW == 1) and (XH == OW * XW) and (XB == OH * XH):  # pixels lie in the order they are counted in
        start = x + group * CI * XC + m.to(tl.int64) * XW
        top = m * 0
        left = top
    else:
        image, top, left = corner(m, OH, OW, SH, SW, PH, PW)
        start = x + group * CI * XC + image * XB
    w += group * (KH * KW * CI) * N
    kind: tl.constexpr = tl.int32 if INTEGER else tl.float32
    acc = tl.zeros((BP, BN), kind)
    K: tl.constexpr = CI * KH * KW if FLAT else CI
    BLOCKS: tl.constexpr = (K + BK - 1) // BK
    STEPS: tl.constexpr = BLOCKS if FLAT else BLOCKS * KH * KW
    channel = group * N + n
    offset, factor, by = constants(channel, own, bias, multiplier, shift, INTEGER, ROUND)
    keep = alive[:, None] & own[None, :]
    if (STEPS == 1) and not FLAT:
        k = tl.arange(0, BK)
        ww = tl.load(w + k[:, None] * WK + n[None, :] * WN, mask=(k < K)[:, None] & own[None, :], other=0)
    begin(PDL)
    if ADD:
        beside = tl.load(other + m.to(tl.int64)[:, None] * OP + channel[None, :], mask=keep, other=0)
    if (STEPS == 1) and not FLAT:
        at = (start + top * XH + left * XW)[:, None] + (k * XC)[None, :]
        if PLAIN:  # what a pixel that is not there makes is not stored, and what lies beyond the channels has no weight
            v = tl.load(at, mask=alive[:, None] & (k < K)[None, :], other=0)
        else:
            seen = alive & (top >= 0) & (top < H) & (left >= 0) & (left < W)
            v = padded(at, seen[:, None] & (k < K)[None, :], PAD)
        acc = tl.dot(v, ww, acc, input_precision=PRECISION, out_dtype=kind)
    elif SUMS == 2:
        HALF: tl.constexpr = (BLOCKS + 1) // 2
        second = tl.zeros((BP, BN), kind)
        at = (start + top * XH + left * XW)[:, None]
        for step in range(HALF):
            k = step * BK + tl.arange(0, BK)
            far = k + HALF * BK
            v = tl.load(at + (k * XC)[None, :], mask=alive[:, None] & (k < K)[None, :], other=0)
            ww = tl.load(w + k[:, None] * WK + n[None, :] * WN, mask=(k < K)[:, None] & own[None, :], other=0)
            vv = tl.load(at + (far * XC)[None, :], mask=alive[:, None] & (far < K)[None, :], other=0)
            www = tl.load(w + far[:, None] * WK + n[None, :] * WN, mask=(far < K)[:, None] & own[None, :], other=0)
            acc = tl.dot(v, ww, acc, input_precision=PRECISION, out_dtype=kind)
            second = tl.dot(vv, www, second, input_precision=PRECISION, out_dtype=kind)
        acc += second
    else:
        for step in range(STEPS):
            k = (step % BLOCKS) * BK + tl.arange(0, BK)
            inside = k < K
            if FLAT:
                tap = k // CI
                row = top[:, None] + (tap // KW * DH)[None, :]
                column = left[:, None] + (tap % KW * DW)[None, :]
                c = k % CI
                seen = alive[:, None] & (row >= 0) & (row < H) & (column >= 0) & (column < W)
                at = start[:, None] + row * XH + column * XW + (c * XC)[None, :]
                v = padded(at, seen & inside[None, :], PAD)
                weight = w + k[:, None] * WK + n[None, :] * WN
            else:
                tap = step // BLOCKS
                row = top + tap // KW * DH
                column = left + tap % KW * DW
                at = (start + row * XH + column * XW)[:, None] + (k * XC)[None, :]
                if PLAIN:
                    v = tl.load(at, mask=alive[:, None] & inside[None, :], other=0)
                else:
                    seen = alive & (row >= 0) & (row < H) & (column >= 0) & (column < W)
                    v = padded(at, seen[:, None] & inside[None, :], PAD)
                weight = w + (tap * CI + k)[:, None] * WK + n[None, :] * WN
            ww = tl.load(weight, mask=inside[:, None] & own[None, :], other=0)
            acc = tl.dot(v, ww, acc, input_precision=PRECISION, out_dtype=kind)
    if MEAN:
        acc = finished(acc, offset, factor, by, LO, HI, ZERO, ACT, INTEGER, ROUND)
        total = tl.sum(tl.where(alive[:, None], acc, 0), 0)
        total = averaged(total, OH * OW, M_FACTOR, M_SHIFT, M_FROM, M_ZERO, M_LO, M_HI, INTEGER)
        tl.store(y + tl.program_id(0) * YP + channel, total.to(y.dtype.element_ty), mask=own)
    else:
        if ADD:
            acc = finished(acc, offset, factor, by, LO, HI, ZERO, ACT, INTEGER, ROUND)
            acc = joined(acc, beside, A_FACTOR, O_FACTOR, A_ZERO, O_ZERO, A_SHIFT, ALO, AHI, AZERO, INTEGER)
            done = acc.to(y.dtype.element_ty)
        else:
            done = to_store(acc, offset, factor, by, LO, HI, ZERO, ACT, INTEGER, ROUND, y.dtype.element_ty)
        tl.store(y + m.to(tl.int64)[:, None] * YP + channel[None, :], done, mask=keep)
        if AC > 0:
            if (tl.program_id(1) == 0) & (group == 0):
                taken_along(source, target, picked, m, alive, AC, AXP, AYP)
