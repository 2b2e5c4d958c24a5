"""Expressions of a minimal typed hardware description: every value carries its exact integer range.

Widths follow from ranges and are therefore minimal and proven, never chosen. A value is signed exactly when
its range reaches below zero. Expressions are frozen trees; `hardware.Module` collects what they drive.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


def bit_width(lo: int, hi: int) -> int:
    """Bits that hold every integer of [lo, hi]: two's complement if lo < 0, else unsigned; at least 1."""
    if lo < 0:
        return max((-lo - 1).bit_length(), max(hi, 0).bit_length()) + 1
    return max(1, hi.bit_length())


@dataclass(frozen=True, slots=True)
class Expr:
    """A combinational value with the range [lo, hi] it provably stays in."""

    lo: int
    hi: int

    def __post_init__(self) -> None:
        assert self.lo <= self.hi, f"empty range {self.lo}..{self.hi}"

    @property
    def width(self) -> int:
        return bit_width(self.lo, self.hi)

    @property
    def signed(self) -> bool:
        return self.lo < 0

    def __add__(self, other: Expr | int) -> Expr:
        right = _expression(other)
        return Binary(self.lo + right.lo, self.hi + right.hi, "+", self, right)

    def __sub__(self, other: Expr | int) -> Expr:
        right = _expression(other)
        return Binary(self.lo - right.hi, self.hi - right.lo, "-", self, right)

    def __mul__(self, other: Expr | int) -> Expr:
        right = _expression(other)
        corners = [a * b for a in (self.lo, self.hi) for b in (right.lo, right.hi)]
        return Multiplication(min(corners), max(corners), self, right)

    def __lshift__(self, amount: int) -> Expr:
        if isinstance(self, Const):
            return const(self.lo << amount)
        return ShiftLeft(self.lo << amount, self.hi << amount, self, amount) if amount else self

    def __invert__(self) -> Expr:
        """Logical not of a bit."""
        if isinstance(self, Const):
            return const(1 - self.lo)
        return self.term if isinstance(self, Not) else Not(0, 1, self)


@dataclass(frozen=True, slots=True)
class Signal(Expr):
    """A named wire, register or port."""

    name: str

    def __rshift__(self, amount: int) -> Expr:
        """Floor of its value / 2**amount; amount >= 0."""
        if not amount:
            return self
        if amount >= self.width:
            return select(compare("<", self, ZERO), const(-1), ZERO) if self.signed else ZERO
        return Bits(self.lo >> amount, self.hi >> amount, self, amount, self.width - amount)

    def bit(self, place: int) -> Expr:
        return self.bits(place, 1)

    def bits(self, start: int, count: int) -> Expr:
        """A field of it as an integer of its own, not negative."""
        return self.field(start, 0, (1 << count) - 1)

    def field(self, start: int, lo: int, hi: int) -> Expr:
        """A field of it as an integer of [lo, hi], which says how many bits it has."""
        return Bits(lo, hi, self, start, bit_width(lo, hi))


@dataclass(frozen=True, slots=True)
class Const(Expr):
    """An integer constant; lo == hi."""


@dataclass(frozen=True, slots=True)
class Binary(Expr):
    """`left operator right`; operator is + or -, or | of values that are not negative."""

    operator: str
    left: Expr
    right: Expr


@dataclass(frozen=True, slots=True)
class Multiplication(Expr):
    """`left * right`."""

    left: Expr
    right: Expr


@dataclass(frozen=True, slots=True)
class TableEntry(Expr):
    """The entry of a module's table that the bits of a signal point to."""

    table: str
    index: Signal


@dataclass(frozen=True, slots=True)
class ShiftLeft(Expr):
    """`value * 2**amount`."""

    value: Expr
    amount: int


@dataclass(frozen=True, slots=True)
class Bits(Expr):
    """Bits [start + count - 1 : start] of a signal, read as an integer of the given range."""

    value: Signal
    start: int
    count: int


@dataclass(frozen=True, slots=True)
class Pack(Expr):
    """Values side by side, the first in the lowest bits, each in a field of its own width."""

    fields: tuple[tuple[Expr, int], ...]


@dataclass(frozen=True, slots=True)
class Compare(Expr):
    """One bit: `left operator right`; operator is one of == != < <= > >=."""

    operator: str
    left: Expr
    right: Expr


@dataclass(frozen=True, slots=True)
class Mux(Expr):
    """`then` where the bit `condition` is set, else `otherwise`."""

    condition: Expr
    then: Expr
    otherwise: Expr


@dataclass(frozen=True, slots=True)
class Logic(Expr):
    """One bit: `&`, `|` or `^` of bits."""

    operator: str
    terms: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Not(Expr):
    """One bit inverted."""

    term: Expr


@dataclass(frozen=True, slots=True)
class AnyBit(Expr):
    """One bit: whether any bit of a slice is set."""

    value: Expr


@dataclass(frozen=True, slots=True)
class Parity(Expr):
    """One bit: whether an odd number of the bits that `mask` chooses is set."""

    value: Signal
    mask: int


def const(value: int) -> Const:
    return Const(value, value)


ONE = const(1)
ZERO = const(0)


def _expression(value: Expr | int) -> Expr:
    return value if isinstance(value, Expr) else const(value)


def signal(name: str, lo: int = 0, hi: int = 1) -> Signal:
    return Signal(lo, hi, name)


def choose(index: Expr, options: Sequence[Expr | int]) -> Expr:
    """options[index], by the bits of the index from the lowest up; the index never points beyond them."""
    level, place = [_expression(option) for option in options], 0
    if isinstance(index, Const):
        return level[index.lo]
    while len(level) > 1:
        assert isinstance(index, Signal)
        bit_of = index.bit(place)
        pairs = zip(level[1::2], level[::2], strict=False)
        level = [select(bit_of, odd, even) for odd, even in pairs] + (level[-1:] if len(level) % 2 else [])
        place += 1
    return level[0]


def pack(fields: Sequence[tuple[Expr, int]]) -> Expr:
    """Values side by side, first lowest; each (value, field width)."""
    return Pack(0, (1 << sum(w for _, w in fields)) - 1, tuple(fields))


def compare(operator: str, left: Expr, right: Expr | int) -> Expr:
    """A comparison, decided at once where the ranges decide it."""
    right = _expression(right)
    known = {"<": (left.hi < right.lo, left.lo >= right.hi), ">=": (left.lo >= right.hi, left.hi < right.lo),
             ">": (left.lo > right.hi, left.hi <= right.lo), "<=": (left.hi <= right.lo, left.lo > right.hi),
             "==": (isinstance(left, Const) and left == right, isinstance(left, Const) and isinstance(right, Const))}
    always, never = known.get(operator, (False, False))
    return ONE if always else ZERO if never else Compare(0, 1, operator, left, right)


def select(condition: Expr, then: Expr | int, otherwise: Expr | int) -> Expr:
    then, otherwise = _expression(then), _expression(otherwise)
    if condition == ONE or then == otherwise:
        return then
    if condition == ZERO:
        return otherwise
    return Mux(min(then.lo, otherwise.lo), max(then.hi, otherwise.hi), condition, then, otherwise)


def all_of(*terms: Expr) -> Expr:
    """Logical and of bits."""
    left = tuple(t for t in terms if t != ONE)
    if ZERO in left:
        return ZERO
    return ONE if not left else left[0] if len(left) == 1 else Logic(0, 1, "&", left)


def any_of(*terms: Expr) -> Expr:
    """Logical or of bits."""
    left = tuple(t for t in terms if t != ZERO)
    if ONE in left:
        return ONE
    return ZERO if not left else left[0] if len(left) == 1 else Logic(0, 1, "|", left)


def any_bit(value: Expr) -> Expr:
    """Whether any bit of a slice is set."""
    return AnyBit(0, 1, value)


def parity(value: Signal, mask: int) -> Expr:
    """Whether an odd number of the bits that `mask` chooses is set."""
    assert 0 <= mask < 1 << value.width
    return Parity(0, 1, value, mask) if mask else ZERO


def odd_of(*terms: Expr) -> Expr:
    """Whether an odd number of bits is set."""
    left = tuple(t for t in terms if t != ZERO)
    return ZERO if not left else left[0] if len(left) == 1 else Logic(0, 1, "^", left)


def overlay(left: Expr, right: Expr) -> Expr:
    """Bitwise or; neither value may be negative."""
    assert min(left.lo, right.lo) >= 0
    return Binary(0, (1 << max(left.width, right.width)) - 1, "|", left, right)


def successor(value: Signal) -> Expr:
    """The next value of a counter that runs from 0 to the end of its range and wraps; powers of two wrap by themselves."""
    beyond = value + 1
    if value.hi & (value.hi + 1) == 0 and value.hi:
        return beyond
    return select(compare("==", value, const(value.hi)), ZERO, beyond)
