"""Products in logic, for devices whose multipliers run out: digits of one factor choose multiples of the other (Booth, radix 4).

A tool makes multipliers of what it reads as a product, so this is written as what look-up tables do: a digit of two bits and
the bit below it takes 0, 1 or 2 times x, perhaps negated; the one that a negation lacks stands where the next row has no bits.
A product of 9 and 8 bits takes 45 look-up tables of six inputs (Yosys), where adding rows in a tree took 79; narrow weights have
fewer rows.
"""

from __future__ import annotations

from collections.abc import Sequence

from dovetail.fpga.rtl.expressions import ZERO, Expr, Signal, all_of, any_of, bit_width, pack, select
from dovetail.fpga.rtl.modules import Instance, Module

Range = tuple[int, int]


def soft_multiplier(name: str, x: Range, w: Range) -> Module:
    """Ports x, w, y = x * w; no clock edge in between. A simulator sees the product, of which it makes far less work."""
    m = Module(name, ("A product in logic.",), shared=True)
    width = bit_width(*x)
    x_in, w_in = m.input("x", width), m.input("w", bit_width(*w))
    rows = _rows(m, x_in, x[0] < 0, w_in, w[0] < 0)
    product = Signal(*x, "x") * Signal(*w, "w")
    most = 1 << width - (x[0] < 0)  # of all its bits: chains whose width follows a narrower range take 72 look-up tables, not 45
    m.output("y", m.wire("product", _summed(m, rows, most - (x[0] >= 0), product.width)))
    left, right = ("$signed(x)" if x[0] < 0 else "$signed({1'b0, x})", "$signed(w)" if w[0] < 0 else "$signed({1'b0, w})")
    m.behaviour = (f"wire signed [{product.width - 1}:0] both = {left} * {right};", "assign y = both;")
    return m


Row = tuple[Signal, Expr]
"""A multiple of x, as it is or with all bits inverted, and the one that it then lacks."""


def _summed(m: Module, rows: Sequence[Row], most: int, width: int) -> Expr:
    """The product's bits: rows one after the other, each two bits further up, so that two are done; `most` is the largest |x|.

    A look-up table that adds a bit also chooses it, as long as what it is added to comes as it is: so a chain takes fewer of them
    than a tree. What is above the finished bits never exceeds 8 |x|, the value of two digits, by more than what is lacking.
    """
    (total, lacks), done = rows[0], list[tuple[Expr, int]]()
    bounds = (-8 * most - 8, 8 * most + 8)
    for k, (row, still) in enumerate(rows[1:], 1):
        size = row.width + 2
        placed = m.wire(f"placed_{k}", pack([(lacks, 1), (ZERO, 1), (row, row.width)]))
        total = m.wire(f"sum_{k}", total + placed.field(0, -(1 << size - 1), (1 << size - 1) - 1), bounds)
        done.append((total.bits(0, 2), 2))
        total, lacks = m.wire(f"above_{k}", total >> 2), still
    return pack([*done, (m.wire("whole", total + lacks), width - 2 * len(done))])


def _rows(m: Module, x: Signal, x_signed: bool, w: Signal, w_signed: bool) -> list[Row]:
    digits = -(-(w.width + (not w_signed)) // 2)
    top: Expr = x.bit(x.width - 1) if x_signed else ZERO
    found: list[Row] = []

    def of_w(place: int) -> Expr:
        if place < 0:
            return ZERO
        if place < w.width:
            return w.bit(place)
        return w.bit(w.width - 1) if w_signed else ZERO

    for k in range(digits):
        below, low, high = (of_w(2 * k + at) for at in (-1, 0, 1))
        once = m.wire(f"once_{k}", select(low, ~below, below))
        twice = m.wire(f"twice_{k}", select(high, all_of(~low, ~below), all_of(low, below)))
        less = m.wire(f"less_{k}", all_of(high, ~all_of(low, below)))
        fields = []
        for i in range(x.width + 1):
            own = x.bit(i) if i < x.width else top
            shifted = x.bit(i - 1) if i else ZERO
            taken = any_of(all_of(once, own), all_of(twice, shifted))
            fields.append((select(less, ~taken, taken), 1))
        if not x_signed:  # the sign of a negated row
            fields.append((less, 1))
        row = m.wire(f"row_{k}", pack(fields))
        size = len(fields)
        found.append((m.wire(f"multiple_{k}", row.field(0, -(1 << size - 1), (1 << size - 1) - 1)), less))
    return found


def soft_product(module: Module, multiplier: Module, name: str, x: Signal, w: Signal) -> Expr:
    """A product by an instance of `soft_multiplier`; its operands have that one's ranges."""
    product = x * w
    ports = [module.wire(f"{name}_{n}", pack([(v, v.width)])) for n, v in (("x", x), ("w", w))]
    y = module.net(f"{name}_y", product.width)
    module.instances.append(Instance(multiplier.name, name, (("x", ports[0]), ("w", ports[1]), ("y", y))))
    return y.field(0, product.lo, product.hi)
