"""The method: which searches look for a plan, in which order, for which questions, how long, and what each proves.

`exact` runs `PROVING` from first to last. Every search is told the plans known so far, gets its share of the time that is
left, and adds plans, a bound, or both; one that has closed the gap ends the row. `move_cuts` then runs `MOVING_CUTS` on the best
plan: cuts leave the positions over which the bound holds. A search is added by one record here. Time is work (see `effort`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import inf

from dovetail.partition.boards.solver import of_boards, over_boards, pooled_problem
from dovetail.partition.effort import worked
from dovetail.partition.evaluate import evaluate
from dovetail.partition.exact.by_device import Known, by_device, choices_of, network_over, points_of, whole_beam
from dovetail.partition.exact.finer import finer_splits, worth_finer
from dovetail.partition.exact.refine import refine
from dovetail.partition.exact.solver import Answer
from dovetail.partition.exact.tree import tree_of
from dovetail.partition.explain.bound_notes import ONE_INPUT, TOO_WIDE, binding_note, bound_note
from dovetail.partition.interval.limits import plans_in_time
from dovetail.partition.interval.solver import shortest_interval
from dovetail.partition.interval.weights import rank_interval
from dovetail.partition.plan import Assignment, Goal, Mode
from dovetail.partition.problem import Problem

NOTHING = Answer((), -inf)


@dataclass(frozen=True, slots=True)
class State:
    """What is known: legal plans, the answer so far, notes on what its bound covers, and whether no search need follow."""

    problem: Problem
    known: Known
    answer: Answer = NOTHING
    notes: tuple[str, ...] = ()
    closed: bool = False
    ceiling: float = inf
    """An objective that is reached elsewhere: a search may end once it has proven that no plan is below it."""

    def adding(self, answer: Answer, notes: tuple[str, ...], closed: bool = False) -> State:
        """After another search: its plans come last, and the better bound counts, with its notes."""
        better = answer.lower_bound >= self.answer.lower_bound
        return State(self.problem, self.known, replace(
            answer, assignments=(*self.answer.assignments, *answer.assignments),
            lower_bound=max(answer.lower_bound, self.answer.lower_bound),
            off_grid=(*self.answer.off_grid, *answer.off_grid)), notes if better else self.notes, closed, self.ceiling)

    def judged(self) -> Known:
        """All legal plans: those known, and those in the answer."""
        return [*self.known, *((a, e) for a in self.answer.assignments if (e := evaluate(self.problem, a)).feasible)]


@dataclass(frozen=True, slots=True)
class SearchEntry:
    """One search: `run` takes the state, a deadline and the gap at which it may end."""

    name: str
    accepts: Callable[[State], bool]
    run: Callable[[State, float, float], State]
    proves: str
    share: float = 1.0
    """Of the time left when it begins."""
    gap: float = 0.0
    """Fraction of the best by which its plans may miss it, where the user allows no more."""


def _interval_asked(state: State) -> bool:
    return state.problem.goal is Goal.THROUGHPUT


def _equal_boards(state: State) -> bool:
    return pooled_problem(replace(state.problem, goal=Goal.LATENCY) if _interval_asked(state) else state.problem) is not None


def _as_latency(state: State, deadline: float, gap: float) -> State:
    answer, notes = exact(replace(state.problem, goal=Goal.LATENCY), state.known, deadline, gap)
    return state.adding(answer, notes, closed=True)


def _fast(state: State, deadline: float, gap: float) -> State:
    answer, _ = exact(replace(state.problem, goal=Goal.LATENCY), state.known, deadline, gap)
    return state.adding(replace(answer, lower_bound=-inf), ())


def _in_time(state: State, deadline: float, gap: float) -> State:
    return replace(state, answer=Answer(tuple(a for a, _ in plans_in_time(state.problem, deadline, exact)), -inf))


def _pool(state: State, deadline: float, gap: float) -> State:
    problem, pooled = state.problem, pooled_problem(state.problem)
    assert pooled is not None, "accepted because there is one"
    found = over_boards(problem, pooled, points_of(state.known), deadline, gap, network_over)
    if found is None:
        return state
    notes = (bound_note(pooled, found.left, found.kept), *of_boards(problem), *binding_note(problem, found.answer))
    return state.adding(found.answer, notes, found.close)


def _interval(state: State, deadline: float, gap: float) -> State:
    problem, first = state.problem, state.answer.assignments
    judged = [(e.interval_s, i) for i, a in enumerate(first) if (e := evaluate(problem, a)).feasible]
    loose = [e for a in state.answer.off_grid if (e := evaluate(problem, a)).feasible]
    ceiling = min([*(e.interval_s for _, e in state.known), *(e.interval_s for e in loose), *(s for s, _ in judged),
                   state.ceiling])
    choices = choices_of(problem)
    begun = first[min(judged)[1]] if judged else None
    answer, left, kept = shortest_interval(problem, choices, tree_of(problem), ceiling, deadline, begun, gap)
    if problem.blocks and (problem.max_latency_s is not None or problem.max_energy_j is not None):
        # Arms that run at once take less time than the tables say: the bound must not count on limits that add it up.
        free = eased(problem)
        answer = replace(answer, lower_bound=min(answer.lower_bound, rank_interval(free, tree_of(free), ceiling, deadline).bound))
        again, *_ = shortest_interval(free, choices, tree_of(problem), ceiling, deadline, gap=gap)
        answer = replace(answer, lower_bound=min(answer.lower_bound, again.lower_bound))
    wide = () if kept is not None else whole_beam(problem)
    note = f"{ONE_INPUT}; {TOO_WIDE}" if kept is None else bound_note(problem, left, kept)
    return state.adding(replace(answer, assignments=(*answer.assignments, *wide)), (note,))


def eased(problem: Problem) -> Problem:
    """Without limits on what branches at once take less of than the sum of their nodes."""
    return replace(problem, max_latency_s=None, max_energy_j=None) if problem.blocks else problem


PROVING: tuple[SearchEntry, ...] = (
    SearchEntry("frames one after another", lambda s: _interval_asked(s) and s.problem.mode is Mode.SEQUENTIAL, _as_latency,
           "what is proven of latency: where frames do not overlap, it is their interval"),
    SearchEntry("any plan within the limits", lambda s: _interval_asked(s) and not s.known, _fast,
           "that there is none, if there is none; else nothing, the search for the interval begins with it"),
    SearchEntry("fast plans of equal boards", lambda s: _interval_asked(s) and bool(s.known) and _equal_boards(s), _fast,
           "nothing: which nodes share a board is best known of fast plans", share=0.5, gap=1e-3),
    SearchEntry("plans that keep the pace",
           lambda s: not _interval_asked(s) and s.problem.max_interval_s is not None and not s.known, _in_time,
           "nothing: the best plans without the limit on the interval, changed until they keep it"),
    SearchEntry("equal boards as a pool", lambda s: not _interval_asked(s) and _equal_boards(s), _pool,
           "a bound over all plans that use few neighbouring boards at once (see `boards.relaxation`)"),
    SearchEntry("every device by itself", lambda s: not _interval_asked(s),
           lambda s, deadline, gap: s.adding(*by_device(s.problem, s.judged(), deadline, gap, s.ceiling)),
           "a bound over all plans of candidate splits, and with enough time the best of them"),
    SearchEntry("shortest interval", _interval_asked, _interval,
           "a bound on the interval over all plans of candidate splits"),
)
"""Searches over the candidate splits, which have a bound."""


def _off_grid(state: State) -> bool:
    return state.problem.off_grid


def _moved(state: State, deadline: float, gap: float) -> State:
    """Every cut by itself, and with those behind it."""
    best = min([*state.known, *((a, e) for a in state.answer.off_grid if (e := evaluate(state.problem, a)).feasible)],
               key=lambda pair: pair[1].objective)
    return replace(state, known=[refine(state.problem, *best)])


def _weighed(state: State, deadline: float, gap: float) -> State:
    """The candidates around the plan's cuts, all weighed against each other by the searches above."""
    problem, [(assignment, best)] = state.problem, state.known
    answer, _ = exact(problem.offering(finer_splits(problem, assignment)), state.known, deadline, gap)
    found = [(a, e) for a in answer.assignments if (e := evaluate(problem, a)).feasible]
    again, judged = min(found, key=lambda pair: pair[1].objective, default=(assignment, best))
    if judged.objective >= best.objective * (1 - gap):
        return replace(state, closed=True)
    return replace(state, known=[refine(problem, again, judged)])


WEIGHED = SearchEntry("cuts weighed against each other", lambda s: _off_grid(s) and worth_finer(s.problem), _weighed,
                 "nothing: a better plan, cut between the candidates' positions", share=0.1, gap=1e-5)
"""Begun where the searches before took no longer than its share: searching anew takes about as long."""
MOVING_CUTS: tuple[SearchEntry, ...] = (
    SearchEntry("cuts moved one by one", _off_grid, _moved, "nothing: a better plan, cut between the candidates' positions"),
    WEIGHED, WEIGHED, WEIGHED,
)
"""Searches from the best plan on, in time of their own: each may take its share of the whole limit."""


def exact(problem: Problem, known: Known, deadline: float, gap: float = 0.0,
          ceiling: float = inf, met: tuple[Assignment, ...] = ()) -> tuple[Answer, tuple[str, ...]]:
    """The best plan and bound that the searches find; plans better by less than the fraction `gap`, and those above a `ceiling`
    that is reached elsewhere, are not searched for. They begin with plans that were `met` before.
    """
    state = State(problem, known, replace(NOTHING, assignments=met), ceiling=ceiling)
    for search in PROVING:
        if not state.closed and search.accepts(state):
            now = worked()
            state = search.run(state, now + search.share * (deadline - now), max(gap, search.gap))
    return state.answer, state.notes


def move_cuts(problem: Problem, known: Known, met: Sequence[Assignment], limit_s: float) -> Known:
    """The best of some plans with its cuts moved anywhere; with `limit_s` 0, one after another only."""
    state, spent = State(problem, known, Answer((), -inf, off_grid=tuple(met))), worked()
    for search in MOVING_CUTS:
        allowed = search.share * limit_s
        if not state.closed and search.accepts(state) and (search is not WEIGHED or spent <= allowed):
            state = search.run(state, worked() + allowed, search.gap)
    return state.known
