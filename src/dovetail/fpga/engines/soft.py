"""Products in logic, for devices whose multipliers run out: digits of one factor choose multiples of the other (Booth, radix 4).

A tool makes multipliers of what it reads as a product, so this is written as what look-up tables do: a digit of two bits and
the bit below it takes 0, 1 or 2 times x, perhaps negated; the one that a negation lacks stands where the next row has no bits.
A product of 9 and 8 bits takes 45 look-up tables of six inputs (Yosys), where adding rows in a tree took 79; narrow weights have
fewer rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from dovetail.fpga.engines.stream import Pipeline, Staged
from dovetail.fpga.rtl.expressions import ZERO, Const, Expr, Signal, all_of, any_of, bit_width, pack, select
from dovetail.fpga.rtl.modules import Instance, Module

Range = tuple[int, int]


def soft_stages(w: Range) -> int:
    """Clock edges from the factors to their product with a register behind every addition: one for a digit of w."""
    return -(-(bit_width(*w) + (w[0] >= 0)) // 2)


def soft_multiplier(name: str, x: Range, w: Range, registered: bool = True) -> Module:
    """Ports x, w, y = x * w: `soft_stages` clocks later where `registered`, else at once.

    A simulator sees the product, of which it makes far less work.
    """
    m = Module(name, ("A product in logic.",), shared=True)
    width, stages = bit_width(*x), soft_stages(w) if registered else 0
    x_in, w_in = m.input("x", width), m.input("w", bit_width(*w))
    product = Signal(*x, "x") * Signal(*w, "w")
    most = 1 << width - (x[0] < 0)  # of all its bits: chains whose width follows a narrower range take 72 look-up tables, not 45
    chain = _Chain(Pipeline(m), x_in, x[0] < 0, _bits_of(m, w_in, w[0] < 0, soft_stages(w)), most - (x[0] >= 0), registered)
    m.output("y", m.wire("product", chain.product(product.width)))
    left, right = ("$signed(x)" if x[0] < 0 else "$signed({1'b0, x})", "$signed(w)" if w[0] < 0 else "$signed({1'b0, w})")
    seen = ["both", *(f"both_{k}" for k in range(1, stages + 1))]
    m.behaviour = (f"wire signed [{product.width - 1}:0] both = {left} * {right};",
                   *(f"reg signed [{product.width - 1}:0] {later}; always @(posedge clk) {later} <= {own};"
                     for own, later in pairwise(seen)), f"assign y = {seen[-1]};")
    return m


def _bits_of(m: Module, w: Signal, w_signed: bool, count: int) -> list[Signal | Const]:
    """The bit below w, all of w, and its sign as often as digits have bits for it."""
    own = [m.wire(f"w_{i}", w.bit(i)) for i in range(w.width)]
    sign = own[-1] if w_signed else ZERO
    return [ZERO, *own, *[sign] * (2 * count - w.width)]


@dataclass(frozen=True, slots=True)
class _Chain:
    """Additions one after the other, with a register behind each of them or with none; `most` is the largest |x|.

    Digit k is bits 2k to 2k + 2 of `bits`.
    """

    pipeline: Pipeline
    x: Signal
    x_signed: bool
    bits: Sequence[Signal | Const]
    most: int
    registered: bool

    def product(self, width: int) -> Expr:
        """The product's bits: rows one after the other, each two bits further up, so that two are done.

        A look-up table that adds a bit also chooses it, as long as what it is added to comes as it is: so a chain takes fewer of
        them than a tree. What is above the finished bits never exceeds 8 |x|, the value of two digits, by more than is lacking.
        """
        m, bounds = self.pipeline.module, (-8 * self.most - 8, 8 * self.most + 8)
        (multiple, lacks), done = self._row(0, 0), list[Staged]()
        total, stage, at = Staged(multiple, 0), 0, self.pipeline.at
        for k in range(1, len(self.bits) // 2):
            row, still = self._row(k, stage)
            size = row.width + 2
            placed = m.wire(f"placed_{k}", pack([(at(lacks, stage), 1), (ZERO, 1), (row, row.width)]))
            added = total.value + placed.field(0, -(1 << size - 1), (1 << size - 1) - 1)
            summed = self._kept(f"sum_{k}", added, stage, bounds)
            done.append(Staged(m.wire(f"done_{k}", summed.signal.bits(0, 2)), summed.stage))
            total, lacks, stage = Staged(m.wire(f"above_{k}", summed.signal >> 2), summed.stage), still, summed.stage
        whole = self._kept("whole", total.value + at(lacks, stage), stage)
        return pack([*((at(d, whole.stage), 2) for d in done), (whole.value, width - 2 * len(done))])

    def _kept(self, name: str, value: Expr, stage: int, bounds: Range | None = None) -> Staged:
        if self.registered:
            return self.pipeline.register(name, value, stage, bounds)
        return Staged(self.pipeline.module.wire(name, value, bounds), stage)

    def _row(self, k: int, stage: int) -> tuple[Signal, Staged]:
        """A multiple of x, as it is or with all bits inverted, and the one that it then lacks; of a stage."""
        m, x, fields = self.pipeline.module, self.pipeline.signal_at(Staged(self.x, 0), stage), []
        below, low, high = (self.pipeline.at(Staged(bit, 0), stage) for bit in self.bits[2 * k:2 * k + 3])
        once = m.wire(f"once_{k}", select(low, ~below, below))
        twice = m.wire(f"twice_{k}", select(high, all_of(~low, ~below), all_of(low, below)))
        less = m.wire(f"less_{k}", all_of(high, ~all_of(low, below)))
        for i in range(x.width + 1):
            own: Expr = x.bit(i) if i < x.width else x.bit(x.width - 1) if self.x_signed else ZERO
            taken = any_of(all_of(once, own), all_of(twice, x.bit(i - 1) if i else ZERO))
            fields.append((select(less, ~taken, taken), 1))
        if not self.x_signed:  # the sign of a negated row
            fields.append((less, 1))
        row, size = m.wire(f"row_{k}", pack(fields)), len(fields)
        return m.wire(f"multiple_{k}", row.field(0, -(1 << size - 1), (1 << size - 1) - 1)), Staged(less, stage)


def soft_product(module: Module, multiplier: Module, name: str, x: Signal, w: Signal) -> Expr:
    """A product by an instance of `soft_multiplier`; its operands have that one's ranges."""
    product = x * w
    ports = [module.wire(f"{name}_{n}", pack([(v, v.width)])) for n, v in (("x", x), ("w", w))]
    y = module.net(f"{name}_y", product.width)
    module.instances.append(Instance(multiplier.name, name, (("x", ports[0]), ("w", ports[1]), ("y", y))))
    return y.field(0, product.lo, product.hi)
