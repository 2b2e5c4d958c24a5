"""Products in logic, for devices whose multipliers run out: digits of one factor choose multiples of the other (Booth, radix 4).

A tool makes multipliers of what it reads as a product, so this is written as what look-up tables do: a digit of two bits and
the bit below it takes 0, 1 or 2 times x, perhaps negated; the one that a negation lacks stands where the next row has no bits.
"""

from __future__ import annotations

from dovetail.fpga.expressions import (
    ZERO,
    Bits,
    Expr,
    Signal,
    add,
    all_of,
    any_of,
    bit_width,
    bits,
    multiply,
    negate,
    pack,
    select,
)
from dovetail.fpga.hardware import Instance, Module

Range = tuple[int, int]


def soft_multiplier(name: str, x: Range, w: Range) -> Module:
    """Ports x, w, y = x * w; no clock edge in between. A simulator sees the product, of which it makes far less work."""
    m = Module(name, ("A product in logic.",), shared=True)
    width = bit_width(*x)
    x_in, w_in = m.input("x", width), m.input("w", bit_width(*w))
    rows = _rows(m, x_in, x[0] < 0, w_in, w[0] < 0)
    while len(rows) > 1:
        paired = [_joined(m, a, b) for a, b in zip(rows[::2], rows[1::2], strict=False)]
        rows = paired + (rows[-1:] if len(rows) % 2 else [])
    value, lacks, digits = rows[0]
    low = [(ZERO, 2 * digits - 2)] if digits > 1 else []
    total = m.wire("total", add(value, pack([*low, (lacks, 1)])))
    product = multiply(Signal(*x, "x"), Signal(*w, "w"))
    m.output("y", m.wire("product", bits(_wide(m, total, product.width), 0, product.width)))
    left, right = ("$signed(x)" if x[0] < 0 else "$signed({1'b0, x})", "$signed(w)" if w[0] < 0 else "$signed({1'b0, w})")
    m.behaviour = (f"wire signed [{product.width - 1}:0] both = {left} * {right};", "assign y = both;")
    return m


def _wide(m: Module, value: Signal, width: int) -> Signal:
    return value if value.width >= width else m.wire("total_wide", value, (-(1 << width - 1), (1 << width - 1) - 1))


Row = tuple[Signal, Expr, int]
"""A sum of rows, the one that its last negation lacks, and its digits."""


def _rows(m: Module, x: Signal, x_signed: bool, w: Signal, w_signed: bool) -> list[Row]:
    digits = -(-(w.width + (not w_signed)) // 2)
    top: Expr = bits(x, x.width - 1, 1) if x_signed else ZERO
    found: list[Row] = []

    def of_w(place: int) -> Expr:
        if place < 0:
            return ZERO
        if place < w.width:
            return bits(w, place, 1)
        return bits(w, w.width - 1, 1) if w_signed else ZERO

    for k in range(digits):
        below, low, high = (of_w(2 * k + at) for at in (-1, 0, 1))
        once = m.wire(f"once_{k}", select(low, negate(below), below))
        twice = m.wire(f"twice_{k}", select(high, all_of(negate(low), negate(below)), all_of(low, below)))
        less = m.wire(f"less_{k}", all_of(high, negate(all_of(low, below))))
        fields = []
        for i in range(x.width + 1):
            own = bits(x, i, 1) if i < x.width else top
            shifted = bits(x, i - 1, 1) if i else ZERO
            taken = any_of(all_of(once, own), all_of(twice, shifted))
            fields.append((select(less, negate(taken), taken), 1))
        if not x_signed:  # the sign of a negated row
            fields.append((less, 1))
        row = m.wire(f"row_{k}", pack(fields))
        size = len(fields)
        found.append((m.wire(f"multiple_{k}", Bits(-(1 << size - 1), (1 << size - 1) - 1, row, 0, size)), less, 1))
    return found


def _joined(m: Module, lower: Row, upper: Row) -> Row:
    """Two sums of rows; what the lower one lacks lies below the upper one."""
    (value, lacks, digits), (high, still, more) = lower, upper
    low = [(ZERO, 2 * digits - 2)] if digits > 1 else []
    field = pack([*low, (lacks, 1), (ZERO, 1), (high, high.width)])
    size = high.width + 2 * digits
    name = f"{value.name}_with_{high.name}"
    placed = m.wire(f"{name}_placed", field)
    signed = Bits(-(1 << size - 1), (1 << size - 1) - 1, placed, 0, size)
    return m.wire(name, add(value, signed)), still, digits + more


def soft_product(module: Module, multiplier: Module, name: str, x: Signal, w: Signal) -> Expr:
    """A product by an instance of `soft_multiplier`; its operands have that one's ranges."""
    product = multiply(x, w)
    ports = [module.wire(f"{name}_{n}", pack([(v, v.width)])) for n, v in (("x", x), ("w", w))]
    y = module.net(f"{name}_y", product.width)
    module.instances.append(Instance(multiplier.name, name, (("x", ports[0]), ("w", ports[1]), ("y", y))))
    return Bits(product.lo, product.hi, y, 0, product.width)
