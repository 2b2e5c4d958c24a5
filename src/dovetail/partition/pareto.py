"""Fronts of latency against energy, and area: the fastest plan for every of several limits on them, each with its own proof."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf

from dovetail.errors import InfeasibleError, UsageError
from dovetail.ir import Graph
from dovetail.partition.cost_model import CostModel
from dovetail.partition.device_costs import DeviceCosts
from dovetail.partition.effort import counted, worked
from dovetail.partition.evaluate import Evaluation, evaluate
from dovetail.partition.exact.by_device import Known
from dovetail.partition.exact.tree import tree_of
from dovetail.partition.explain.baselines import BASELINES
from dovetail.partition.plan import Assignment, Goal, Mode
from dovetail.partition.problem import Problem
from dovetail.partition.proof import hold_over
from dovetail.partition.strategy import exact
from dovetail.partition.tolerances import CLOSE, ROUNDING, TOLERANCE
from dovetail.platform.device import Platform
from dovetail.progress import Progress, silent

NEARER = 0.99 * CLOSE
"""Relative gap that a point is searched to. Chosen: so much below the one asked for that rounding does not decide."""
TRIES = 2
"""Searches for one point. Chosen, not measured."""
POINT_LIMIT_S = 12.0
"""Computing time one point may take. Chosen, not measured."""
QUICK_S = 2.0
"""Computing time in which most points are proven:

the others are looked at once more, with all of theirs. Chosen, not measured.
"""


@dataclass(frozen=True, slots=True)
class FrontPoint:
    """The fastest plan found within limits on energy and area, and the latency no plan within them can beat.

    Areas are parts of the budget that is used most.
    """

    limit_j: float
    area_limit: float
    latency_s: float
    energy_j: float
    area: float
    lower_bound_s: float
    assignment: Assignment

    @property
    def gap(self) -> float:
        return max(0.0, (self.latency_s - self.lower_bound_s) / self.latency_s)


@dataclass(frozen=True, slots=True)
class Front:
    """Points from the thriftiest plan to the fastest, the smallest area first; none is worse than another in every respect."""

    model: str
    platform: str
    points: tuple[FrontPoint, ...]
    notes: tuple[str, ...] = ()


def front(graph: Graph, platform: Platform, count: int = 20, mode: Mode = Mode.CONCURRENT, budget: str = "shared",
          costs: CostModel | None = None, point_limit_s: float = POINT_LIMIT_S,
          progress: Progress = silent, areas: int = 1, fixed: Assignment | None = None) -> Front:
    """Least latency within limits on energy, spread evenly from the thriftiest plan's to the fastest plan's energy.

    With several `areas` there is such a front for each of so many parts of all budgets, up to all of them. `fixed` pins nodes.
    Raises InfeasibleError where no plan exists at all, UsageError for less than two points or no area.
    """
    if count < 2:
        raise UsageError(f"points {count}: a front has two ends; ask for 2 or more")
    if areas < 1:
        raise UsageError(f"areas {areas}: at least the whole area is needed; ask for 1 or more")
    shared, model = budget == "shared", costs if costs is not None else DeviceCosts()
    points, notes = list[FrontPoint](), list[str]()
    for i in range(areas):
        part, begun = (i + 1) / areas, i * count
        board = platform if part == 1 else platform.with_area(part)

        def told(stage: str, done: int, _: int, begun: int = begun) -> None:
            progress(stage, begun + done, areas * count)

        problem = Problem(graph, board, model, Goal.LATENCY, mode, shared, fixed=dict(fixed or {}))
        points += _at_area(problem, part, count, point_limit_s, told, notes)
    return Front(graph.name, platform.name, _undominated(points), tuple(notes[:1]))


def _at_area(problem: Problem, part: float, count: int, point_limit_s: float,
             progress: Progress, notes: list[str]) -> list[FrontPoint]:
    """The points within a part of the area, which the problem's budgets are; notes on those whose search was cut short."""
    def solved(problem: Problem, known: Known) -> tuple[tuple[Assignment, Evaluation], float]:
        with counted(point_limit_s) as meter:
            found = _solved(problem, known, point_limit_s)
            notes.extend([meter.note()] if meter.hurried else [])
        return found

    first = [a for choose in BASELINES.values() if (a := choose(problem)) is not None]
    known: Known = [(a, e) for a in first if (e := evaluate(problem, a)).feasible]
    progress("front", 0, count)
    tree_of(problem)  # one for all points
    fastest, bound = solved(problem, known)
    known = [*known, fastest]
    thriftiest, _ = solved(replace(problem, goal=Goal.ENERGY), known)
    known = [*known, thriftiest]
    low, high = thriftiest[1].energy_j, fastest[1].energy_j
    points: list[FrontPoint] = []
    for i in range(count):
        limit = low + (high - low) * i / (count - 1)
        if i == count - 1:
            found, least = fastest, bound
        else:
            kept = [(a, e) for a, e in known if e.energy_j <= limit * (1 + TOLERANCE)]
            found, least = solved(replace(problem, max_energy_j=limit), kept)
            least = min(least, min((e.latency_s for _, e in kept), default=inf))
            known = [*known, found]
        judged = found[1]
        used = max((judged.resources[d.name][r] / size for d in problem.platform.devices
                    for r, size in d.resources.items() if size > 0), default=0.0)
        points.append(FrontPoint(limit, part, judged.latency_s, judged.energy_j, part * used, min(least, judged.latency_s),
                                 found[0]))
        progress("front", i + 1, count)
    return points


def _solved(problem: Problem, known: Known, seconds: float) -> tuple[tuple[Assignment, Evaluation], float]:
    """The best plan for the problem's goal and its bound."""
    legal = [(a, e) for a, e in known if e.feasible]
    least = 0.0
    for limit in (min(QUICK_S, seconds), seconds):
        for _ in range(TRIES):
            before = _goal(problem, legal)
            answer, _ = exact(problem, legal, limit, NEARER)
            legal += [(a, e) for a in answer.assignments if (e := evaluate(problem, a)).feasible]
            goal, least = _goal(problem, legal), max(least, answer.lower_bound)
            proven = goal - least <= CLOSE * goal
            # A plan found late was searched for coarsely; below it, little is left to look at.
            if proven or goal >= before or worked() > limit:
                break
        if proven or limit == seconds:
            break
    if not legal:
        raise InfeasibleError(f"model {problem.graph.name}: no plan within the budgets of {problem.platform.name} found; "
                              "see `dovetail plan` for the limit that is missed")
    least = hold_over(problem, "a point of the front", least, legal, worked() + seconds)
    return min(legal, key=lambda p: problem.score(p[1].latency_s, p[1].energy_j)), least * (1 - ROUNDING)


def _goal(problem: Problem, plans: Known) -> float:
    return min((problem.score(e.latency_s, e.energy_j) for _, e in plans), default=inf)


def _undominated(points: list[FrontPoint]) -> tuple[FrontPoint, ...]:
    """Points in order of their limits on area, then of energy, without those that another is at least as good as.

    Within one limit on area it does not count how much of it is used.
    """
    kept: list[FrontPoint] = []
    for point in sorted(points, key=lambda p: (p.area_limit, p.energy_j, p.latency_s)):
        if all(point.latency_s < other.latency_s for other in kept if other.energy_j <= point.energy_j):
            kept.append(point)
    return tuple(kept)
