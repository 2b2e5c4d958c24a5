"""Triton kernels of quantizers in training: values read once, nearest levels written once.

The plain forms in `train/quantizers.py` say the same in a dozen launches, half of a step's time on a GPU. Levels are sums over
the bits of a basis, all of them looked at for every value: sixteen at most, and values are moved, not computed.
"""

import triton
import triton.language as tl


@triton.jit
def nearest(x, basis, BITS: tl.constexpr, SIGNED: tl.constexpr):
    """The level nearest to each x; of two as near the greater one."""
    best = x * 0.0
    distance = best + float("inf")
    for pattern in tl.static_range(1 << BITS):
        level = 0.0
        for i in tl.static_range(BITS):
            own = tl.load(basis + i)
            if (pattern >> i) & 1:
                level += own
            elif SIGNED:
                level -= own
        away = tl.abs(x - level)
        better = (away < distance) | ((away == distance) & (level > best))
        best, distance = tl.where(better, level, best), tl.where(better, away, distance)
    return best


@triton.jit
def activations(x, basis, out, top, count, BITS: tl.constexpr, BLOCK: tl.constexpr):
    """Values of subsets of one basis, and the greatest level, which gradients are compared with."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < count, other=0.0).to(tl.float32)
    tl.store(out + at, nearest(value, basis, BITS, False).to(out.dtype.element_ty), mask=at < count)
    if tl.program_id(0) == 0:
        total = 0.0
        for i in tl.static_range(BITS):
            total += tl.load(basis + i)
        tl.store(top, total)


@triton.jit
def gradients(x, top, incoming, out, count, BLOCK: tl.constexpr):
    """The gradient where x lies between zero and the greatest level, nothing elsewhere."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < count, other=0.0).to(tl.float32)
    passed = tl.load(incoming + at, mask=at < count, other=0.0)
    inside = (value >= 0) & (value <= tl.load(top))
    tl.store(out + at, tl.where(inside, passed, 0.0).to(out.dtype.element_ty), mask=at < count)


@triton.jit
def weights(w, bases, out, fan, BITS: tl.constexpr, BLOCK: tl.constexpr):
    """Values of signed sums of each filter's basis; a filter is `fan` weights in a row."""
    row = tl.program_id(0)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(w + row * fan + at, mask=at < fan, other=0.0)
    tl.store(out + row * fan + at, nearest(value, bases + row * BITS, BITS, True), mask=at < fan)
