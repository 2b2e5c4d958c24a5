"""Proofs of arithmetic: that an output's bits are its exact sum, rounded and saturated."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass

from dovetail.fpga.proofs.dataflow import Dataflow, Piece
from dovetail.fpga.proofs.forms import LinearForm
from dovetail.fpga.proofs.netlist import Bit
from dovetail.fpga.proofs.solver import SolverAnswer, SolverVerdict, Term
from dovetail.fpga.proofs.specification import WantedRounding

Weights = Mapping[str, int]
"""How often each source counts."""
Whole = Callable[[Dataflow, Mapping[str, Term]], Term]
"""From the sources as signed vectors of one width to what is rounded."""


@dataclass(frozen=True, slots=True)
class Summed:
    """An output: rounding of sum(weights * sources) + bias."""

    weights: Weights
    bias: int
    rounding: WantedRounding


@dataclass(frozen=True, slots=True)
class SumField:
    """An output of one beat: its bits, and the difference of clocks to its sources, one for all."""

    verdict: SolverVerdict
    clock: int | None
    """None where it is constant."""
    values: Mapping[str, int]


def prove_sum(flow: Dataflow, bits: Sequence[Bit], output: Summed) -> SumField:
    """Whether bits are the output, whatever the sources hold within their limits."""
    flow.vectors.constants.clear()
    pieces = flow.pieces(bits, 0)
    clock = common_clock(flow, pieces)
    form = LinearForm({}, output.bias)
    for name, weight in output.weights.items():
        if weight:
            form = form.plus(source_form(flow, name, clock or 0), weight)
    for scaled in ((True, False) if output.rounding.multiplier != 1 else (False,)):
        answer = _ask(flow, pieces, form, output.rounding, scaled)
        if answer.verdict is not SolverVerdict.POSSIBLE or not scaled:
            break
    values = dict(answer.values)
    if answer.verdict is SolverVerdict.POSSIBLE:
        values = example(flow, values)
    return SumField(answer.verdict, clock, values)


def common_clock(flow: Dataflow, pieces: Sequence[Piece]) -> int | None:
    """The clock at which all sources of an output are seen, None where it has none; -1000 where they differ."""
    clocks = {clock for _, clock in flow.sources(pieces)}
    return None if not clocks else clocks.pop() if len(clocks) == 1 else DIFFERENT


DIFFERENT = -1000
"""No clock: an output is made of values that do not belong together."""


def source_form(flow: Dataflow, name: str, clock: int) -> LinearForm:
    return flow.form(("source", name, clock))


def _ask(flow: Dataflow, pieces: tuple[Piece, ...], form: LinearForm, rounding: WantedRounding, scaled: bool) -> SolverAnswer:
    """Ask with the sum as one variable; `scaled`: with the sum times its multiplier, any integer of that range."""
    vectors = flow.vectors
    vectors.constants.clear()
    primitive, factor, offset = form.primitive()
    times = factor * rounding.multiplier if scaled else 1
    odd = times // (times & -times)
    base = flow.take_as_base(primitive.times(odd), "sum")
    lo, hi = form.bounds(flow.bounds)
    whole = times // odd if scaled else factor
    most = max(abs(lo), abs(hi)) * (rounding.multiplier if scaled else 1) + abs(offset) * rounding.multiplier
    width = most.bit_length() + 2
    value = vectors.make("BV_MUL", [vectors.fitted(base, width, True), vectors.value(whole, width)])
    value = vectors.make("BV_ADD", [value, vectors.value(offset * (rounding.multiplier if scaled else 1), width)])
    limits = (lo * rounding.multiplier, hi * rounding.multiplier) if scaled else (lo, hi)
    rest = WantedRounding(1, rounding.divisor, rounding.shift, rounding.zero, rounding.bounds) if scaled else rounding
    found = flow.term_of(pieces)
    expected, assumed = rest.term(vectors, value, (min(limits), max(limits)), len(pieces))
    return vectors.ask([vectors.compare("DISTINCT", found, expected), *assumed, *flow.assumptions.values()])


def example(flow: Dataflow, values: Mapping[str, int]) -> dict[str, int]:
    """Values of the sources that lead to a value of their sum, as near as one weight after the other gets."""
    found = {f"{key[1]}": value for key, value in _sources(values).items()}
    if "sum" not in values or flow.base is None:
        return found
    base, term = flow.base
    width = flow.vectors.width(term)
    goal = values["sum"] - ((values["sum"] >> width - 1) << width)
    rest = {v: w for v, w in base.weights.items()}
    chosen = reached(rest, {v: flow.bounds[v] for v in rest}, goal)
    return found | {v[1]: value for v, value in chosen.items() if isinstance(v, tuple) and v[0] == "source"}


def _sources(values: Mapping[str, int]) -> dict[tuple[str, str], int]:
    return {("source", name.partition("@")[0]): value for name, value in values.items() if "@" in name}


def reached(weights: Mapping[Hashable, int], bounds: Mapping[Hashable, tuple[int, int]], goal: int) -> dict[Hashable, int]:
    """Values within bounds whose weighted sum comes to the goal where large weights first can bring it there."""
    chosen = {v: bounds[v][w < 0] for v, w in weights.items()}  # the least sum
    left = goal - sum(w * chosen[v] for v, w in weights.items())
    for v, w in sorted(weights.items(), key=lambda item: -abs(item[1])):
        more = min(max(left, 0) // abs(w), bounds[v][1] - bounds[v][0])
        chosen[v] += more if w > 0 else -more
        left -= more * abs(w)
    return chosen
