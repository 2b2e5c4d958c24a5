"""Triton kernel from one inverted residual into the next: a depthwise layer, the pointwise one behind it with its addition, and the
pointwise layer that begins the next block.

Conventions as in `gpu/triton/conv.py`. Where maps are small, a kernel lasts little longer than it takes to begin it, so that three
layers in one are worth making the first two anew in every program that has other channels of the third. Weights are in
shared memory before the kernel in front is done; every program reads all those of the second layer, so few programs with many
channels each are best.

Products of matrices have channels as rows and pixels as columns: eight pixels are enough for matrix units then, and every warp has
channels of its own, so that nothing is added up between warps. Of bytes, matrix units take four channels of a pixel at once: those
come from one thread, and lie side by side.
"""

import triton
import triton.language as tl

from dovetail.gpu.triton.conv import begin, settled
from dovetail.gpu.triton.depthwise import edges, no_sums, row_by_row, weights_of
from dovetail.gpu.triton.depthwise_bytes import all_taps, ended, fourfold, sums_by_words
from dovetail.gpu.triton.finishing import as_bytes, constants, packs, to_store, with_other


@triton.jit
def stacked(tensors, first: tl.constexpr, step: tl.constexpr, COUNT: tl.constexpr):
    """Tensors (a x b) of a tuple as one (a x b x COUNT), in the registers they are in."""
    if COUNT == 1:
        both = tl.reshape(tensors[first], (tensors[first].shape[0], tensors[first].shape[1], 1))
    else:
        even = stacked(tensors, first, 2 * step, COUNT // 2)
        odd = stacked(tensors, first + step, 2 * step, COUNT // 2)
        both = tl.reshape(tl.join(even, odd), (even.shape[0], even.shape[1], COUNT))
    return both


@triton.jit
def side_by_side(columns, COUNT: tl.constexpr):
    """Tensors (1 x channels) of a tuple as one (channels x COUNT), in the registers they are in."""
    both = stacked(columns, 0, 1, COUNT)
    return tl.reshape(both, (both.shape[1], COUNT))


@triton.jit
def by_pixels(values, channel: tl.constexpr, R: tl.constexpr, SIDE: tl.constexpr):
    """One of the four channels of words: of R x SIDE tensors (columns x words) one of all pixels x words."""
    apart = stacked(values, channel, 4, R * SIDE)
    rows = tl.reshape(apart, (apart.shape[0], apart.shape[1], R, SIDE))
    return tl.reshape(tl.permute(rows, (2, 0, 3, 1)), (R * SIDE * apart.shape[0], apart.shape[1]))


@triton.jit
def by_channels(values, R: tl.constexpr, SIDE: tl.constexpr):
    """The same of all four: all pixels x channels. A thread's four channels lie side by side, as matrix units want bytes."""
    pairs = tl.join(tl.join(by_pixels(values, 0, R, SIDE), by_pixels(values, 2, R, SIDE)),
                    tl.join(by_pixels(values, 1, R, SIDE), by_pixels(values, 3, R, SIDE)))
    return tl.reshape(pairs, (pairs.shape[0], pairs.shape[1] * 4))


@triton.jit
def bytes_of(sums, f, b, R: tl.constexpr, SIDE: tl.constexpr, LO: tl.constexpr, HI: tl.constexpr, ZERO: tl.constexpr,
             ACT: tl.constexpr, ROUND: tl.constexpr, BYTES: tl.constexpr):
    """Sums of R rows x SIDE columns x four channels, finished: all pixels x channels."""
    values = ()
    for i in tl.static_range(R * SIDE):
        for ch in tl.static_range(4):
            values = values + (ended(sums[4 * i + ch], f[ch], b[ch], LO, HI, ZERO, ACT, ROUND, BYTES),)  # noqa: RUF005 - no unpacking
    every = by_channels(values, R, SIDE)
    return as_bytes(every) if BYTES else every.to(tl.int8)


@triton.jit
def bridged(x, wd, bd, md, sd, w1, b1, m1, s1, other, z, w2, b2, m2, s2, y,
            H: tl.constexpr, W: tl.constexpr, OH: tl.constexpr, OW: tl.constexpr, C: tl.constexpr, M: tl.constexpr, N: tl.constexpr,
            KH: tl.constexpr, KW: tl.constexpr, SH: tl.constexpr, SW: tl.constexpr, PH: tl.constexpr, PW: tl.constexpr,
            XP: tl.constexpr, ZP: tl.constexpr, YP: tl.constexpr, OP: tl.constexpr,
            LOD: tl.constexpr, HID: tl.constexpr, ZEROD: tl.constexpr, ACTD: tl.constexpr,
            LO1: tl.constexpr, HI1: tl.constexpr, ZERO1: tl.constexpr, ACT1: tl.constexpr, LO2: tl.constexpr, HI2: tl.constexpr,
            ZERO2: tl.constexpr, ACT2: tl.constexpr, PAD: tl.constexpr, INTEGER: tl.constexpr, ROUND: tl.constexpr,
            ADD: tl.constexpr, A_FACTOR: tl.constexpr, O_FACTOR: tl.constexpr, A_ZERO: tl.constexpr, O_ZERO: tl.constexpr,
            A_SHIFT: tl.constexpr, ALO: tl.constexpr, AHI: tl.constexpr, AZERO: tl.constexpr,
            KEPT: tl.constexpr, PRECISION: tl.constexpr, NEAR: tl.constexpr, WORDS: tl.constexpr, R: tl.constexpr,
            SIDE: tl.constexpr, BC: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, PDL: tl.constexpr):
    """R x SIDE pixels x BN channels of the last layer per program: C channels in blocks of BC, M of the layer between in blocks of BM.

    Weights of dense layers are filters x channels. `WORDS`: the depthwise layer is one of bytes as in `gpu/triton/depthwise_bytes.py`, with
    NEAR columns from so many words, its weights and constants as there, PAD a word of four. `KEPT`: others read the output of the
    layer between, it is stored as well.
    """
    kind: tl.constexpr = tl.int32 if INTEGER else tl.float32
    stored: tl.constexpr = x.dtype.element_ty
    BP: tl.constexpr = R * SIDE
    STEPS: tl.constexpr = (C + BC - 1) // BC
    BLOCKS: tl.constexpr = (M + BM - 1) // BM
    ACROSS: tl.constexpr = (OW + SIDE - 1) // SIDE
    DOWN: tl.constexpr = (OH + R - 1) // R
    pid = tl.program_id(0)
    image = (pid // (ACROSS * DOWN)).to(tl.int64)
    first = (pid // ACROSS) % DOWN * R
    column = pid % ACROSS * SIDE
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    weights = ()
    behind = ()
    ends = ()
    for block in tl.static_range(BLOCKS):
        e = block * BM + tl.arange(0, BM)
        for step in tl.static_range(STEPS):
            k = step * BC + tl.arange(0, BC)
            weights = weights + (tl.load(w1 + e[:, None] * C + k[None, :], mask=(e < M)[:, None] & (k < C)[None, :], other=0),)  # noqa: RUF005
        behind = behind + (tl.load(w2 + n[:, None] * M + e[None, :], mask=(n < N)[:, None] & (e < M)[None, :], other=0),)  # noqa: RUF005
        ends = ends + (constants(e, e < M, b1, m1, s1, INTEGER, ROUND),)  # noqa: RUF005
    o2, f2, y2 = constants(n, n < N, b2, m2, s2, INTEGER, ROUND)
    BYTES: tl.constexpr = packs(ROUND, LOD, HID)
    TW: tl.constexpr = SIDE // NEAR
    taps = ()
    middles = ()
    for step in tl.static_range(STEPS):
        if WORDS:
            lane = tl.broadcast_to((step * (BC // 4) + tl.arange(0, BC // 4))[None, :], (TW, BC // 4))
            taps = taps + (all_taps(wd + 4 * tl.minimum(lane, C // 4 - 1), KH, C // 4, NEAR, WORDS),)  # noqa: RUF005
            middles = middles + (fourfold(lane, lane < C // 4, bd, md, sd, C // 4, ZEROD, ROUND, BYTES),)  # noqa: RUF005
        else:
            c = step * BC + tl.arange(0, BC)
            rows = ()
            for t in tl.static_range(KH):
                rows = rows + (weights_of(wd + t * KW * C + c[None, :], (c < C)[None, :], C, KW, kind),)  # noqa: RUF005
            taps = taps + (rows,)  # noqa: RUF005
            middles = middles + (constants(c, c < C, bd, md, sd, INTEGER, ROUND),)  # noqa: RUF005
    top = first * SH - PH
    left = tl.full((1,), 0, tl.int32) + (column * SW - PW)
    p = tl.arange(0, BP)
    m = (image * OH + first + p // SIDE) * OW + column + p % SIDE
    alive = (first + p // SIDE < OH) & (column + p % SIDE < OW)
    begin(PDL)
    beside = ()
    for block in tl.static_range(BLOCKS):
        e = block * BM + tl.arange(0, BM)
        if ADD:
            beside = beside + (tl.load(other + m[:, None] * OP + e[None, :], mask=alive[:, None] & (e < M)[None, :], other=0),)  # noqa: RUF005
    inputs = ()
    for step in tl.static_range(STEPS):  # all of them before the first product: no load waits behind a barrier
        od, fd, yd = middles[step]
        if WORDS:
            q = step * (BC // 4) + tl.arange(0, BC // 4)
            across = column + NEAR * tl.arange(0, TW)
            start = x.to(tl.pointer_type(tl.int32), bitcast=True) + ((image * H + top) * W + across * SW - PW)[:, None] * (XP // 4)
            sums = sums_by_words(start + q[None, :], first, across, q < C // 4, taps[step], wd, od, H, W, OH, OW, C // 4, KH, KW,
                                 SH, SW, PH, PW, XP // 4, PAD, NEAR, WORDS, R, True)
            a = bytes_of(sums, fd, yd, R, NEAR, LOD, HID, ZEROD, ACTD, ROUND, BYTES)
            inputs = inputs + (a,)  # noqa: RUF005
        else:
            c = step * BC + tl.arange(0, BC)
            start = x + ((image * H + top) * W * XP) + (left * XP)[:, None] + c[None, :]
            rows = row_by_row(no_sums(R, SIDE, 1, BC, kind), start, edges(left, c < C, W, SIDE, KW, SW, 1), left, top, taps[step],
                              wd, c < C, H, W, C, XP, KH, KW, SH, SW, 1, 1, PAD, R, SIDE, True, kind)
            sums = ()
            for r in tl.static_range(R):
                sums = sums + rows[r]
            a = to_store(tl.trans(side_by_side(sums, BP)), od, fd, yd, LOD, HID, ZEROD, ACTD, INTEGER, ROUND, stored)
            inputs = inputs + (tl.trans(a),)  # noqa: RUF005
    totals = ()
    for _ in tl.static_range(BLOCKS):
        totals = totals + (tl.zeros((BM, BP), kind),)  # noqa: RUF005
    for step in tl.static_range(STEPS):
        a = tl.trans(settled(inputs[step])) if WORDS else settled(inputs[step])
        more = ()
        for block in tl.static_range(BLOCKS):
            more = more + (tl.dot(weights[block * STEPS + step], a, totals[block], input_precision=PRECISION, out_dtype=kind),)  # noqa: RUF005
        totals = more
    acc = tl.zeros((BN, BP), kind)
    between = ()
    for block in tl.static_range(BLOCKS):
        o1, f1, y1 = ends[block]
        if ADD:
            b = with_other(tl.trans(totals[block]), beside[block], o1, f1, y1, LO1, HI1, ZERO1, ACT1, A_FACTOR, O_FACTOR, A_ZERO,
                           O_ZERO, A_SHIFT, ALO, AHI, AZERO, INTEGER, ROUND, stored)
        else:
            b = to_store(tl.trans(totals[block]), o1, f1, y1, LO1, HI1, ZERO1, ACT1, INTEGER, ROUND, stored)
        between = between + (b,)  # noqa: RUF005
        acc = tl.dot(behind[block], tl.trans(b), acc, input_precision=PRECISION, out_dtype=kind)
    done = to_store(tl.trans(acc), o2, f2, y2, LO2, HI2, ZERO2, ACT2, INTEGER, ROUND, stored)
    tl.store(y + m[:, None] * YP + n[None, :], done, mask=alive[:, None] & (n < N)[None, :])
    if KEPT:
        if tl.program_id(1) == 0:
            for block in tl.static_range(BLOCKS):
                e = block * BM + tl.arange(0, BM)
                tl.store(z + m[:, None] * ZP + e[None, :], between[block], mask=alive[:, None] & (e < M)[None, :])
