"""Triton kernel of depthwise convolutions: one filter per channel, so nothing but registers makes a value serve twice.

Conventions as in `gpu/triton/conv.py`. What a depthwise layer costs is not its products but what every product waits for: a load, an
address, a comparison with the edge, a conversion. A program's threads therefore hold R output rows x SIDE output columns each and
read every input value once for all of them: of 5 x 5 taps, 4 rows and 4 columns, 4 values per output instead of 25.
"""

import triton
import triton.language as tl

from dovetail.gpu.triton.conv import begin, padded, strip
from dovetail.gpu.triton.finishing import constants, exchanged, to_store


@triton.constexpr_function
def reaches(distance, step, taps):
    """Whether a tap lies that far from the first one, taps being `step` apart."""
    return 0 <= distance < step * taps and distance % step == 0


@triton.constexpr_function
def may_leave(distance, pad, last, size):
    """Whether what lies that far from where a window begins, of the first or the last one, is beyond an edge."""
    return distance < pad or last - pad + distance >= size


@triton.constexpr_function
def is_read(distance, count, stride, step, taps):
    """Whether any of `count` outputs side by side reads the value at a distance from where the first one's window begins."""
    return any(reaches(distance - q * stride, step, taps) for q in range(count))


# Functions that are called again and again with operands of the same kind: Triton translates each once, not once per call.


@triton.jit
def edges(left, own, W: tl.constexpr, SIDE: tl.constexpr, KW: tl.constexpr, SW: tl.constexpr, DW: tl.constexpr):
    """Which values of a row lie inside it, by their distance from the first."""
    inside = ()
    for k in tl.static_range((SIDE - 1) * SW + (KW - 1) * DW + 1):
        inside = inside + (((left + k >= 0) & (left + k < W))[:, None] & own[None, :],)  # noqa: RUF005 - Triton has no unpacking
    return inside


@triton.jit
def values_of(at, inside, left, row, H: tl.constexpr, XP: tl.constexpr, SIDE: tl.constexpr, KW: tl.constexpr, SW: tl.constexpr,
              DW: tl.constexpr, PAD: tl.constexpr, kind: tl.constexpr):
    """All values of a row that outputs side by side read."""
    rows = left * 0 + row  # compared lane by lane: Triton's interpreter (3.9) takes comparisons of scalars for integers
    there = ((rows >= 0) & (rows < H))[:, None]
    values = ()
    for k in tl.static_range((SIDE - 1) * SW + (KW - 1) * DW + 1):
        if is_read(k, SIDE, SW, DW, KW):
            values = values + (padded(at + k * XP, inside[k] & there, PAD).to(kind),)  # noqa: RUF005
        else:
            values = values + (values[0],)  # noqa: RUF005 - stands for what no tap reads
    return values


@triton.jit
def weights_of(at, own, C: tl.constexpr, KW: tl.constexpr, kind: tl.constexpr):
    """A row of taps, for every thread those of its channels: one that holds others would send them through shared memory."""
    weights = ()
    for j in tl.static_range(KW):
        weights = weights + (tl.load(at + j * C, mask=own, other=0).to(kind),)  # noqa: RUF005
    return weights


@triton.jit
def weighed(sums, values, weights, SIDE: tl.constexpr, KW: tl.constexpr, SW: tl.constexpr, DW: tl.constexpr):
    """Sums of outputs side by side with one row of taps more."""
    added = ()
    for q in tl.static_range(SIDE):
        total = sums[q]
        for j in tl.static_range(KW):
            if total.dtype == tl.float32:  # in one: Triton takes time for each that is behind a load, squared
                total = tl.fma(values[q * SW + j * DW], weights[j], total)
            else:
                total += values[q * SW + j * DW] * weights[j]
        added = added + (total,)  # noqa: RUF005
    return added


@triton.jit
def no_sums(R: tl.constexpr, SIDE: tl.constexpr, TW: tl.constexpr, BC: tl.constexpr, kind: tl.constexpr):
    """Where sums of R rows of outputs side by side begin, as tuples of rows."""
    nothing = ()
    for _ in tl.static_range(SIDE):
        nothing = nothing + (tl.zeros((TW, BC), kind),)  # noqa: RUF005
    sums = ()
    for _ in tl.static_range(R):
        sums = sums + (nothing,)  # noqa: RUF005
    return sums


@triton.jit
def row_by_row(sums, start, inside, left, top, taps, held, own, H: tl.constexpr, W: tl.constexpr, C: tl.constexpr,
               XP: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr, SH: tl.constexpr, SW: tl.constexpr, DH: tl.constexpr,
               DW: tl.constexpr, PAD: tl.constexpr, R: tl.constexpr, SIDE: tl.constexpr, EARLY: tl.constexpr, kind: tl.constexpr):
    """Sums with all that R rows of outputs read, one row of inputs after another; weights are `taps`, or lie at `held`."""
    for i in tl.static_range((R - 1) * SH + (KH - 1) * DH + 1):
        if is_read(i, R, SH, DH, KH):
            values = values_of(start + i * W * XP, inside, left, top + i, H, XP, SIDE, KW, SW, DW, PAD, kind)
            added = ()
            for r in tl.static_range(R):
                if reaches(i - r * SH, DH, KH):
                    if EARLY:
                        weights = taps[(i - r * SH) // DH]
                    else:
                        weights = weights_of(held + (i - r * SH) // DH * KW * C, own[None, :], C, KW, kind)
                    added = added + (weighed(sums[r], values, weights, SIDE, KW, SW, DW),)  # noqa: RUF005
                else:
                    added = added + (sums[r],)  # noqa: RUF005
            sums = added
    return sums


@triton.jit
def stored(at, sums, offset, factor, by, table, left, own, OW: tl.constexpr, YP: tl.constexpr, LO: tl.constexpr, HI: tl.constexpr,
           ZERO: tl.constexpr, ACT: tl.constexpr, INTEGER: tl.constexpr, ROUND: tl.constexpr, SIDE: tl.constexpr):
    """Outputs side by side, finished and written."""
    for q in tl.static_range(SIDE):
        d = to_store(sums[q], offset, factor, by, LO, HI, ZERO, ACT, INTEGER, ROUND, at.dtype.element_ty)
        tl.store(at + q * YP, exchanged(d, table, ACT), mask=(left + q < OW)[:, None] & own[None, :])


@triton.jit
def depthwise(x, w, bias, multiplier, shift, table, y,
              H: tl.constexpr, W: tl.constexpr, OH: tl.constexpr, OW: tl.constexpr, C: tl.constexpr,
              KH: tl.constexpr, KW: tl.constexpr, SH: tl.constexpr, SW: tl.constexpr, PH: tl.constexpr, PW: tl.constexpr,
              DH: tl.constexpr, DW: tl.constexpr, XP: tl.constexpr, YP: tl.constexpr, LO: tl.constexpr, HI: tl.constexpr,
              ZERO: tl.constexpr, ACT: tl.constexpr, PAD: tl.constexpr, INTEGER: tl.constexpr, ROUND: tl.constexpr,
              R: tl.constexpr, SIDE: tl.constexpr, TW: tl.constexpr, BC: tl.constexpr, EARLY: tl.constexpr,
              LOOPED: tl.constexpr, PDL: tl.constexpr):
    """R output rows x TW * SIDE columns x BC channels per program, of which a thread has R x SIDE of some channels.

    `EARLY`: weights are held in registers before the layer in front is done. `LOOPED`: one row of taps after another instead of one
    row of inputs after another; every weight read then serves all outputs, inputs are read again for every row of taps.
    """
    image, first, column, c, own = strip(OH, OW, C, R, TW, SIDE, BC)
    kind: tl.constexpr = tl.int32 if INTEGER else tl.float32
    top = first * SH - PH
    left = column * SW - PW
    offset, factor, by = constants(c, own, bias, multiplier, shift, INTEGER, ROUND)
    held = w + tl.broadcast_to(c[None, :], (TW, BC))
    taps = ()
    if EARLY:
        for t in tl.static_range(KH):
            taps = taps + (weights_of(held + t * KW * C, own[None, :], C, KW, kind),)  # noqa: RUF005
    sums = no_sums(R, SIDE, TW, BC, kind)
    inside = edges(left, own, W, SIDE, KW, SW, DW)
    start = x + ((image * H + top) * W * XP) + (left * XP)[:, None] + c[None, :]
    begin(PDL)
    if LOOPED:
        for t in range(KH):
            weights = weights_of(held + t * KW * C, own[None, :], C, KW, kind)
            added = ()
            for r in tl.static_range(R):
                values = values_of(start + (r * SH + t * DH) * (W * XP), inside, left, top + r * SH + t * DH, H, XP, SIDE, KW, SW, DW, PAD, kind)
                added = added + (weighed(sums[r], values, weights, SIDE, KW, SW, DW),)  # noqa: RUF005
            sums = added
    else:
        sums = row_by_row(sums, start, inside, left, top, taps, held, own, H, W, C, XP, KH, KW, SH, SW, DH, DW, PAD, R, SIDE, EARLY, kind)
    for r in tl.static_range(R):
        if first + r < OH:
            at = y + ((image * OH + first + r) * OW * YP) + (column * YP)[:, None] + c[None, :]
            stored(at, sums[r], offset, factor, by, table, column, own, OW, YP, LO, HI, ZERO, ACT, INTEGER, ROUND, SIDE)
