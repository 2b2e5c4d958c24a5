"""Bit vectors and their solver: the only module that knows Bitwuzla."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from dovetail.errors import MissingToolError

Term = Any
"""A bit vector; comparisons are one bit wide."""


class SolverVerdict(Enum):
    """What the solver says of an assumption."""

    IMPOSSIBLE = "unsat"
    POSSIBLE = "sat"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class SolverAnswer:
    """A verdict, and values of the named constants where it is possible."""

    verdict: SolverVerdict
    values: Mapping[str, int]


class Vectors:
    """Makes bit-vector terms and asks whether assumptions can hold."""

    def __init__(self, limit_s: float = 60.0) -> None:
        try:
            import bitwuzla
        except ImportError:
            raise MissingToolError("prove: the solver Bitwuzla is not installed; pip install 'dovetail-accel[prove]'") from None
        self.library: Any = bitwuzla
        self.manager: Any = bitwuzla.TermManager()
        self.limit_s = limit_s
        self.constants: dict[str, Term] = {}

    def make(self, kind: str, terms: Sequence[Term], indices: Sequence[int] = ()) -> Term:
        return self.manager.mk_term(getattr(self.library.Kind, kind), list(terms), list(indices))

    def width(self, term: Term) -> int:
        return int(term.sort().bv_size())

    def value(self, number: int, width: int) -> Term:
        """A constant, modulo 2**width."""
        return self.manager.mk_bv_value(self.manager.mk_bv_sort(width), number % (1 << width))

    def constant(self, name: str, width: int) -> Term:
        """A free value of a name, the same one each time."""
        if name not in self.constants:
            self.constants[name] = self.manager.mk_const(self.manager.mk_bv_sort(width), name)
        return self.constants[name]

    def bit(self, truth: Term) -> Term:
        """A truth value as one bit."""
        return self.make("ITE", [truth, self.value(1, 1), self.value(0, 1)])

    def truth(self, bit: Term) -> Term:
        return self.make("EQUAL", [bit, self.value(1, 1)])

    def compare(self, kind: str, left: Term, right: Term) -> Term:
        return self.bit(self.make(kind, [left, right]))

    def choose(self, bit: Term, one: Term, zero: Term) -> Term:
        return self.make("ITE", [self.truth(bit), one, zero])

    def extract(self, term: Term, start: int, count: int) -> Term:
        return term if start == 0 and count == self.width(term) else self.make("BV_EXTRACT", [term], [start + count - 1, start])

    def side_by_side(self, lowest_first: Sequence[Term]) -> Term:
        found = lowest_first[0]
        for term in lowest_first[1:]:
            found = self.make("BV_CONCAT", [term, found])
        return found

    def fitted(self, term: Term, width: int, signed: bool) -> Term:
        """A term extended or cut to a width."""
        have = self.width(term)
        if have >= width:
            return self.extract(term, 0, width)
        return self.make("BV_SIGN_EXTEND" if signed else "BV_ZERO_EXTEND", [term], [width - have])

    def between(self, term: Term, lo: int, hi: int) -> Term:
        """One bit: whether a signed term lies in [lo, hi]."""
        width = self.width(term)
        return self.make("BV_AND", [self.compare("BV_SGE", term, self.value(lo, width)),
                                    self.compare("BV_SLE", term, self.value(hi, width))])

    def ask(self, assumptions: Iterable[Term]) -> SolverAnswer:
        """Whether all of some bits can be 1 at once."""
        options = self.library.Options()
        options.set(self.library.Option.PRODUCE_MODELS, True)
        options.set(self.library.Option.TIME_LIMIT_PER, int(1000 * self.limit_s))
        solver = self.library.Bitwuzla(self.manager, options)
        for bit in assumptions:
            solver.assert_formula(self.truth(bit))
        verdict = SolverVerdict(str(solver.check_sat()).split(".")[-1].lower())
        values: dict[str, int] = {}
        if verdict is SolverVerdict.POSSIBLE:
            values = {name: int(solver.get_value(term).value(10)) for name, term in self.constants.items()}
        return SolverAnswer(verdict, values)
