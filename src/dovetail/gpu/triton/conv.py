"""Triton kernels: convolution of any kind, depthwise convolution, fused modules, pooling and moves, in floats and integers.

Activations lie as images x rows x columns x channels with a pitch (channels of the buffer they are part of), so that
concatenations and parts of channels are places, not copies. Weights are (taps x input channels) x output channels, `WK` and
`WN` apart: of floats, output channels lie side by side, of bytes input channels do, as matrix units want them.

Integers: an 8-bit value is stored as int8 (unsigned ones less 128); padding reads `PAD`, the stored form of zero, and biases
have the zero points' share taken off (`kernels/layers.py`), so that `tl.dot` yields the exact sums of docs/method/numerics.md. What becomes
of sums: `gpu/triton/finishing.py`.

`PDL` (programmatic dependent launch) lets the next kernel of a CUDA graph start while this one ends: every kernel loads
constants, waits for its predecessor before it touches activations, then lets its successor start.
It must be off wherever a GPU older than Hopper, or Triton's interpreter, runs them.
"""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from dovetail.gpu.triton.finishing import INTERPRETED, averaged, constants, exchanged, finished, to_store, with_other


@triton.jit
def begin(PDL: tl.constexpr):
    """Wait for the kernel before, then let the next one start: sooner, its waiting programs would take this one's room."""
    if PDL:
        gdc_wait()
        gdc_launch_dependents()


@triton.jit
def _left(a, b):
    return a


@triton.jit
def settled(values):
    """The same values, computed in the layout they were loaded in.

    Without this, Triton moves every operand of a sum into the layout of the product behind it, one trip through shared memory
    and one barrier each, instead of the sum once: a depthwise layer in front of a product then takes three times as long.
    """
    return tl.reduce(tl.join(values, values), len(values.shape), _left)


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
def unbounded(values):
    """The same integers, of which compilers know no bounds: else they narrow them to 16 bits (`gpu/distrusted.py`)."""
    if INTERPRETED:
        same = values
    else:
        same = tl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [values], tl.int32, is_pure=True, pack=1)
    return same


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
def operand(at, seen, PAD: tl.constexpr):
    """The same for a product of matrices, straight from the load.

    Values that anything is done with in between come through registers, and beside weights in shared memory Triton (3.6) then puts
    the barrier before the fence (`gpu/distrusted.py`). Filled in by the load itself they do not; `PAD` is hidden, as a number
    that Triton knows would be filled in wrong (`padded`).
    """
    if PAD != 0:
        v = tl.load(at, mask=seen, other=unbounded(tl.full((), PAD, tl.int32)).to(at.dtype.element_ty))
    else:
        v = tl.load(at, mask=seen, other=0)
    return v


@triton.jit
def window_values(start, row, column, alive, k, K: tl.constexpr, H: tl.constexpr, W: tl.constexpr, XH: tl.constexpr,
                  XW: tl.constexpr, XC: tl.constexpr, PLAIN: tl.constexpr, PAD: tl.constexpr):
    """Channels of the pixel at a row and a column of every window; of `PLAIN` windows, which no pixel lies outside of, as they are."""
    at = (start + row * XH + column * XW)[:, None] + (k * XC)[None, :]
    if PLAIN:  # what a pixel that is not there makes is not stored, and what lies beyond the channels has no weight
        v = tl.load(at, mask=alive[:, None] & (k < K)[None, :], other=0)
    else:
        seen = alive & (row >= 0) & (row < H) & (column >= 0) & (column < W)
        v = operand(at, seen[:, None] & (k < K)[None, :], PAD)
    return v


@triton.jit
def gathered(start, top, left, alive, k, K: tl.constexpr, H: tl.constexpr, W: tl.constexpr, CI: tl.constexpr, KW: tl.constexpr,
             DH: tl.constexpr, DW: tl.constexpr, XH: tl.constexpr, XW: tl.constexpr, XC: tl.constexpr, PAD: tl.constexpr):
    """Values of every window with taps and channels as one axis."""
    tap = k // CI
    row = top[:, None] + (tap // KW * DH)[None, :]
    column = left[:, None] + (tap % KW * DW)[None, :]
    c = k % CI
    seen = alive[:, None] & (row >= 0) & (row < H) & (column >= 0) & (column < W)
    at = start[:, None] + row * XH + column * XW + (c * XC)[None, :]
    return operand(at, seen & (k < K)[None, :], PAD)


@triton.jit
def in_halves(start, w, alive, own, n, acc, K: tl.constexpr, XC: tl.constexpr, WK: tl.constexpr, WN: tl.constexpr,
              PRECISION: tl.constexpr, BK: tl.constexpr):
    """The product of a pointwise layer, halves of the channels added up side by side."""
    HALF: tl.constexpr = ((K + BK - 1) // BK + 1) // 2
    second = acc
    at = start[:, None]
    for step in range(HALF):
        k = step * BK + tl.arange(0, BK)
        far = k + HALF * BK
        v = tl.load(at + (k * XC)[None, :], mask=alive[:, None] & (k < K)[None, :], other=0)
        ww = tl.load(w + k[:, None] * WK + n[None, :] * WN, mask=(k < K)[:, None] & own[None, :], other=0)
        vv = tl.load(at + (far * XC)[None, :], mask=alive[:, None] & (far < K)[None, :], other=0)
        www = tl.load(w + far[:, None] * WK + n[None, :] * WN, mask=(far < K)[:, None] & own[None, :], other=0)
        acc = tl.dot(v, ww, acc, input_precision=PRECISION, out_dtype=acc.dtype)
        second = tl.dot(vv, www, second, input_precision=PRECISION, out_dtype=acc.dtype)
    return acc + second


@triton.jit
def conv(x, w, bias, multiplier, shift, table, other, y, source, target, picked, images,
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
        v = window_values(start, top, left, alive, k, K, H, W, XH, XW, XC, PLAIN, PAD)
        acc = tl.dot(v, ww, acc, input_precision=PRECISION, out_dtype=kind)
    elif SUMS == 2:
        acc = in_halves(start + top * XH + left * XW, w, alive, own, n, acc, K, XC, WK, WN, PRECISION, BK)
    else:
        if FLAT and STEPS > 1:
            top, left = unbounded(top), unbounded(left)
        for step in range(STEPS):
            k = (step % BLOCKS) * BK + tl.arange(0, BK)
            inside = k < K
            if FLAT:
                v = gathered(start, top, left, alive, k, CI * KH * KW, H, W, CI, KW, DH, DW, XH, XW, XC, PAD)
                weight = w + k[:, None] * WK + n[None, :] * WN
            else:
                tap = step // BLOCKS
                v = window_values(start, top + tap // KW * DH, left + tap % KW * DW, alive, k, K, H, W, XH, XW, XC, PLAIN, PAD)
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
            done = with_other(acc, beside, offset, factor, by, LO, HI, ZERO, ACT, A_FACTOR, O_FACTOR, A_ZERO, O_ZERO, A_SHIFT,
                              ALO, AHI, AZERO, INTEGER, ROUND, y.dtype.element_ty)
        else:
            done = exchanged(to_store(acc, offset, factor, by, LO, HI, ZERO, ACT, INTEGER, ROUND, y.dtype.element_ty), table, ACT)
        tl.store(y + m.to(tl.int64)[:, None] * YP + channel[None, :], done, mask=keep)
        if AC > 0:
            if (tl.program_id(1) == 0) & (group == 0):
                taken_along(source, target, picked, m, alive, AC, AXP, AYP)
