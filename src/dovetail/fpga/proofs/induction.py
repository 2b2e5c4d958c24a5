"""Invariants by induction: true behind reset, and kept by every clock from every state that has them.

Registers and cut wires are variables, so a state need not be reachable; what is proven holds for all time and all inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from dovetail.fpga.proofs.dataflow import Dataflow
from dovetail.fpga.proofs.netlist import Netlist
from dovetail.fpga.proofs.solver import SolverAnswer, SolverVerdict, Term, Vectors

See = Callable[[str], Term]
"""The value of a wire in a state, by its name."""
Rule = Callable[[Vectors, See], Term]
"""One bit: whether a rule holds in a state."""
StepRule = Callable[[Vectors, See, See], Term]
"""One bit: whether a rule holds of a state and the next one, of which registers alone are known."""


@dataclass(frozen=True, slots=True)
class Inductive:
    """Rules on states, and on pairs of states, of a module; `cut` wires are free, and memories are not looked into."""

    rules: Mapping[str, Rule]
    steps: Mapping[str, StepRule]
    cut: Sequence[str] = ()
    begins: Mapping[str, Rule] = field(default_factory=dict)
    """Rules of the state behind reset alone."""


class _Clock:
    """One clock of a netlist as terms of its registers and inputs."""

    def __init__(self, netlist: Netlist, vectors: Vectors, cut: Sequence[str], reset: int) -> None:
        self.netlist, self.vectors = netlist, vectors
        self.registers = {f"state.{i}": r for i, r in enumerate(netlist.registers)}
        names = {name: r.ports["Q"] for name, r in self.registers.items()}
        inputs = {f"input.{name}": bits for name, bits in netlist.inputs.items() if name not in ("clk", "rst")}
        cuts = {f"cut.{name}": netlist.bits(name) for name in cut}
        cuts |= {f"read.{i}": m.ports["RD_DATA"] for i, m in enumerate(netlist.memories)}
        every = names | inputs | cuts
        opened = Netlist(netlist.top, netlist.inputs, netlist.outputs, {**netlist.names, **every}, netlist.cells)
        limits = {name: (-(1 << len(bits) - 1), (1 << len(bits) - 1) - 1) for name, bits in every.items()}
        self.flow = Dataflow(opened, limits, vectors, {"rst": reset})

    def now(self, name: str) -> Term:
        return self.flow.term_of(self.flow.pieces(self.netlist.bits(name), 0))

    def next(self, name: str) -> Term:
        """The value of a register behind the clock edge."""
        found = []
        for bit in self.netlist.bits(name):
            if isinstance(bit, str):
                found.append(self.vectors.value(int(bit == "1"), 1))
                continue
            cell, place = self.netlist.drivers[bit]
            assert cell.kind == "$dff", f"{name} is no register"
            found.append(self.flow.term_of(self.flow.pieces(cell.ports["D"][place:place + 1], 0)))
        return self.vectors.side_by_side(found)


def induct(netlist: Netlist, what: Inductive, limit_s: float = 60.0) -> tuple[str | None, SolverAnswer]:
    """The first rule that is not shown, with a state in which it breaks; None where all are."""
    vectors = Vectors(limit_s)
    after_reset = _Clock(netlist, vectors, what.cut, 1)
    for name, rule in {**what.rules, **what.begins}.items():
        answer = vectors.ask([_not(vectors, rule(vectors, after_reset.next))])
        if answer.verdict is not SolverVerdict.IMPOSSIBLE:
            return f"{name}, behind reset", answer
    clock = _Clock(netlist, vectors, what.cut, 0)
    held = [rule(vectors, clock.now) for rule in what.rules.values()]
    goals = {name: rule(vectors, clock.next) for name, rule in what.rules.items()}
    goals |= {name: rule(vectors, clock.now, clock.next) for name, rule in what.steps.items()}
    for name, goal in goals.items():
        answer = vectors.ask([*held, _not(vectors, goal)])
        if answer.verdict is not SolverVerdict.IMPOSSIBLE:
            return name, answer
    return None, SolverAnswer(SolverVerdict.IMPOSSIBLE, {})


def _not(vectors: Vectors, bit: Term) -> Term:
    return vectors.make("BV_NOT", [bit])


def implied(vectors: Vectors, condition: Term, bit: Term) -> Term:
    return vectors.make("BV_OR", [_not(vectors, condition), bit])


def all_hold(vectors: Vectors, *bits: Term) -> Term:
    found = bits[0]
    for bit in bits[1:]:
        found = vectors.make("BV_AND", [found, bit])
    return found


def stays(valid: str, ready: str, *kept: str) -> StepRule:
    """What is offered stays offered, and stays the same, until it is taken; all of it leaves registers."""
    def rule(vectors: Vectors, now: See, following: See) -> Term:
        waits = vectors.make("BV_AND", [now(valid), _not(vectors, now(ready))])
        same = [vectors.compare("EQUAL", now(name), following(name)) for name in kept]
        return implied(vectors, waits, all_hold(vectors, following(valid), *same))
    return rule


WIDE = 16
"""Bits in which credits are counted."""


def credits(depth: int, reserve: int, stages: int, delayed: bool) -> Inductive:
    """An engine's credits: what is under way, waits and may still be issued never exceeds its output FIFO.

    Every output is in the valid bits, in the FIFO, or issued and not yet counted; steps of counted engines lead to outputs two
    clocks later (`delayed`). What is spare never falls below what the reserve pays for.
    """
    def number(v: Vectors, term: Term, signed: bool = False) -> Term:
        return v.fitted(term, WIDE, signed)

    def total(v: Vectors, terms: Sequence[Term]) -> Term:
        found = v.value(0, WIDE)
        for term in terms:
            found = v.make("BV_ADD", [found, number(v, term)])
        return found

    def inside(v: Vectors, see: See) -> Term:
        flags = see("valid")
        bits = [v.extract(flags, i, 1) for i in range(v.width(flags))]
        return total(v, [*bits, see("fifo.waiting"), see("fifo.valid")])

    def spare(v: Vectors, see: See) -> Term:
        return number(v, see("spare"), True)

    def uncounted(v: Vectors, see: See) -> Term:
        return v.make("BV_SUB", [total(v, [see("issuing"), see("issued")]), number(v, see("left"))])

    def balance(v: Vectors, see: See) -> Term:
        all_of_it = v.make("BV_ADD", [spare(v, see), inside(v, see)])
        return v.compare("EQUAL", all_of_it, v.make("BV_ADD", [v.value(depth - reserve - 1, WIDE), uncounted(v, see)]))

    def issues(v: Vectors, see: See) -> Term:
        return implied(v, see("may_step"), v.compare("BV_SGE", spare(v, see), v.value(-1, WIDE)))

    def floor(v: Vectors, see: See) -> Term:
        pending = [see("step_1"), see("step_2")] if delayed else []
        left = v.make("BV_SUB", [v.make("BV_SUB", [spare(v, see), uncounted(v, see)]), total(v, pending)])
        return v.compare("BV_SGE", left, v.value(-reserve - 1, WIDE))

    def ceiling(v: Vectors, see: See) -> Term:
        return v.compare("BV_SLE", spare(v, see), v.value(depth - reserve - 1, WIDE))

    def same(v: Vectors, see: See) -> Term:
        flags = see("valid")
        pairs = [v.compare("EQUAL", v.extract(flags, i, 1), see(name)) for i, name in enumerate(("issuing", "issued"))
                 if i < v.width(flags)]
        return all_hold(v, *pairs)

    def waiting(v: Vectors, see: See) -> Term:
        any_waits = v.make("BV_REDOR", [see("fifo.waiting")])
        return v.compare("EQUAL", see("fifo.some"), any_waits)

    def room(v: Vectors, see: See) -> Term:
        return v.compare("BV_ULE", inside(v, see), v.value(depth, WIDE))

    rules: dict[str, Rule] = {"credits add up": balance, "a step is made with credit alone": issues,
                              "the reserve suffices": floor, "credits are bounded": ceiling, "what is issued is under way": same,
                              "what waits is known": waiting, "nothing exceeds the output FIFO": room}
    return Inductive(rules, {})
