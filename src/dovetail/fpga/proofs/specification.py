"""What an output has to be, said without hardware: an exact integer, multiplied, divided, rounded half to even, saturated."""

from __future__ import annotations

from dataclasses import dataclass

from dovetail.fpga.proofs.solver import Term, Vectors

Bounds = tuple[int, int]


@dataclass(frozen=True, slots=True)
class WantedRounding:
    """clamp(round_half_even(value * multiplier / (divisor * 2**shift)) + zero); None of it where `bounds` is None."""

    multiplier: int = 1
    divisor: int = 1
    shift: int = 0
    zero: int = 0
    bounds: Bounds | None = None

    def of(self, value: int) -> int:
        """The rounded value of an integer, in Python's exact integers."""
        if self.bounds is None:
            return value
        numerator, denominator = self._fraction(value)
        quotient, rest = divmod(numerator, denominator)
        quotient += 2 * rest > denominator or (2 * rest == denominator and quotient % 2 == 1)
        return min(max(quotient + self.zero, self.bounds[0]), self.bounds[1])

    def _fraction(self, value: int) -> tuple[int, int]:
        return value * self.multiplier << max(-self.shift, 0), self.divisor << max(self.shift, 0)

    def term(self, vectors: Vectors, value: Term, limits: Bounds, width: int) -> tuple[Term, list[Term]]:
        """The same of a signed vector within limits, in `width` bits, and what must be assumed of its quotient."""
        if self.bounds is None:
            return vectors.fitted(value, width, True), []
        ends = [self._fraction(end)[0] for end in limits]
        denominator = self._fraction(0)[1]
        bits = max(abs(e).bit_length() for e in (*ends, 2 * denominator, *self.bounds, self.zero)) + 3
        numerator = vectors.make("BV_MUL", [vectors.fitted(value, bits, True), vectors.value(self._fraction(1)[0], bits)])
        quotient, rest, assumed = _divided(vectors, numerator, denominator, bits)
        twice, whole = vectors.make("BV_ADD", [rest, rest]), vectors.value(denominator, bits)
        tie = vectors.make("BV_AND", [vectors.compare("EQUAL", twice, whole), vectors.extract(quotient, 0, 1)])
        up = vectors.make("BV_OR", [vectors.compare("BV_UGT", twice, whole), tie])
        found = vectors.make("BV_ADD", [quotient, vectors.fitted(up, bits, False)])
        found = vectors.make("BV_ADD", [found, vectors.value(self.zero, bits)])
        for kind, end in (("BV_SLT", self.bounds[0]), ("BV_SGT", self.bounds[1])):
            edge = vectors.value(end, bits)
            found = vectors.choose(vectors.compare(kind, found, edge), edge, found)
        return vectors.fitted(found, width, True), assumed


def _divided(vectors: Vectors, numerator: Term, denominator: int, bits: int) -> tuple[Term, Term, list[Term]]:
    """Floor and rest of a division by a positive constant: wires for powers of two, else what they must satisfy."""
    if denominator & (denominator - 1) == 0:
        low = denominator.bit_length() - 1
        rest = vectors.make("BV_AND", [numerator, vectors.value(denominator - 1, bits)])
        return vectors.make("BV_ASHR", [numerator, vectors.value(low, bits)]), rest, []
    quotient, rest = vectors.constant("quotient", bits), vectors.constant("rest", bits)
    back = vectors.make("BV_ADD", [vectors.make("BV_MUL", [quotient, vectors.value(denominator, bits)]), rest])
    most = ((1 << bits - 1) - 1) // denominator
    return quotient, rest, [vectors.compare("EQUAL", back, numerator), vectors.between(quotient, -most, most - 1),
                            vectors.compare("BV_ULT", rest, vectors.value(denominator, bits))]
