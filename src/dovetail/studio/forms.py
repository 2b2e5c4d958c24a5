"""What a board's FPGAs become in answers of the studio, and fronts over several of these forms."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from dovetail.cost.folded import pace_of
from dovetail.errors import InfeasibleError, UnsupportedError
from dovetail.forms import PlanQuestion
from dovetail.ir import Graph
from dovetail.partition.effort import counted
from dovetail.partition.pareto import FrontPoint, front
from dovetail.partition.plan import Assignment, Goal
from dovetail.planning import make_plan
from dovetail.platform.accelerator import Architecture
from dovetail.platform.device import Kind, Platform
from dovetail.progress import Progress
from dovetail.report.units import joules, percent, seconds
from dovetail.space import PACES, accelerator
from dovetail.studio.question import StudioQuestion

POINTS = 7
"""Points of a front of one form."""
POINT_S = 0.5
"""Work of one point."""
SEARCH_S = 3.0
"""Work of the search for an accelerator of a front."""
FIRST = PACES[:3]
"""Paces that are tried for the first answer on a board."""
LARGE = 300
"""Layers from which on one pace is enough of them. Chosen: each takes many seconds then."""


@dataclass(frozen=True, slots=True)
class KnownForm:
    """What a board's FPGAs become, and the nodes placed with it."""

    platform: Platform
    pins: Assignment = field(default_factory=dict)
    fill: float | None = None

    @property
    def words(self) -> str:
        """The form in a few words."""
        fpgas = self.platform.of_kind(Kind.FPGA)
        found = next((d.accelerator for d in fpgas if d.accelerator is not None), None)
        if found is not None:
            return f"{found.architecture} accelerator"
        pace = next((p for d in fpgas if (p := pace_of(d)) is not None), None)
        return "direct mapping" if pace is None else f"multipliers shared over {pace:,} clocks"


@dataclass(frozen=True, slots=True)
class FormPoint:
    """A point of a front with the form it is a plan of."""

    form: KnownForm
    point: FrontPoint

    def document(self) -> dict[str, Any]:
        """What the page draws."""
        p = self.point
        label = f"{seconds(p.latency_s)}, {joules(p.energy_j)}, {percent(p.area)} of the area; {self.form.words}"
        return {"latency_s": p.latency_s, "energy_j": p.energy_j, "limit_mj": p.limit_j * 1e3, "label": label,
                "latency": seconds(p.latency_s), "energy": joules(p.energy_j), "accelerator": bool(self.form.pins)}


def first_forms(graph: Graph, board: Platform) -> list[KnownForm]:
    """Direct mapping and some paces; of large networks, which seldom fit as they are, one pace alone."""
    paces = [KnownForm(board.with_pace(pace)) for pace in FIRST if board.of_kind(Kind.FPGA)]
    return paces[:1] if paces and len(graph.nodes) > LARGE else [KnownForm(board), *paces]


def accelerated(graph: Graph, question: StudioQuestion, progress: Progress) -> KnownForm | None:
    """The form in which one FPGA is the fastest accelerator that a short search finds; None where there is none."""
    options = question.options(total_s=SEARCH_S, time_limit_s=POINT_S, explained=False)
    board = question.platform.with_fill(question.fill).with_link_logic()

    def never(*_: Any) -> Any:
        raise InfeasibleError("only the accelerator is wanted")

    asked = PlanQuestion(graph, board, options, options.pinned(graph), never, progress)
    with suppress(InfeasibleError, UnsupportedError), counted(SEARCH_S):
        _, form = accelerator(asked, Architecture.AUTO)
        return KnownForm(form.platform, form.pins, question.fill)
    return None


def front_of_forms(graph: Graph, question: StudioQuestion, known: KnownForm | None, progress: Progress) -> list[FormPoint]:
    """Plans of which none is better in latency and energy over several forms, the thriftiest first.

    Raises:
        InfeasibleError: there is no plan in any of them.
    """
    forms = list(_forms(graph, question, known, progress))
    found: list[FormPoint] = []
    refused: InfeasibleError | None = None
    for number, form in enumerate(forms):
        def told(stage: str, done: int, _: int, number: int = number) -> None:
            progress(stage, number * POINTS + done, len(forms) * POINTS)

        board = form.platform if form.pins else form.platform.with_fill(question.fill).with_link_logic()
        fixed = {**question.options().pinned(graph), **form.pins}
        try:
            points = front(graph, board, POINTS, point_limit_s=POINT_S, progress=told, fixed=fixed).points
        except InfeasibleError as error:
            refused = error
            continue
        found += [FormPoint(form, point) for point in points]
    if not found:
        assert refused is not None, "there is a form"
        raise refused
    return _undominated(found)


def _forms(graph: Graph, question: StudioQuestion, known: KnownForm | None, progress: Progress) -> Iterator[KnownForm]:
    """The form found before, direct mapping, the best pace, and an accelerator."""
    if known is not None:
        yield known
    board = question.platform
    yield KnownForm(board)
    if not board.of_kind(Kind.FPGA):
        return
    options = question.options(explained=False, time_limit_s=POINT_S, total_s=POINT_S)
    options = replace(options, goal=Goal.LATENCY, max_latency_s=None, max_energy_j=None, max_interval_s=None, thrift=0.0)
    judged: list[tuple[float, KnownForm]] = []
    for form in [f for f in first_forms(graph, board) if f.platform is not board]:
        with suppress(InfeasibleError):
            judged.append((make_plan(graph, form.platform, options)[0].objective, form))
    if judged:
        yield min(judged, key=lambda pair: pair[0])[1]
    if known is None or not known.pins:
        found = accelerated(graph, replace(question, goal=Goal.LATENCY), progress)
        if found is not None:
            yield found


def _undominated(points: list[FormPoint]) -> list[FormPoint]:
    kept: list[FormPoint] = []
    for one in sorted(points, key=lambda p: (p.point.energy_j, p.point.latency_s)):
        if not kept or one.point.latency_s < kept[-1].point.latency_s:
            kept.append(one)
    return kept
