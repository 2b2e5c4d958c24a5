"""A network with the plans made of it, inside a worker process: solved again as the question changes.

A question is answered at once over few forms of the board's FPGAs: direct mapping, some paces, and what a full search found.
The bound of such an answer holds over these alone, and its verdict says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from hashlib import sha256
from math import inf
from pathlib import Path
from time import perf_counter
from typing import Any

from dovetail import __version__, zoo
from dovetail.cost.costs import why_not
from dovetail.errors import InfeasibleError, UsageError
from dovetail.ir import Graph
from dovetail.numbers import graph_to_plan
from dovetail.partition.pareto import front
from dovetail.partition.plan import Assignment, Goal, Plan
from dovetail.partition.plan_json import plan_to_json
from dovetail.planning import Options, make_plan, weighed
from dovetail.platform.device import Kind, Platform
from dovetail.progress import Progress
from dovetail.report.charts import baselines, resources
from dovetail.report.collect import collect
from dovetail.report.gantt import timeline
from dovetail.report.headline import cards, lead, sentence, used_devices
from dovetail.report.html import details, render
from dovetail.report.markup import element, join
from dovetail.report.network import network_map
from dovetail.report.palette import legend
from dovetail.report.plan_table import plan_table
from dovetail.report.units import joules, percent, rate, seconds
from dovetail.schedule.list_schedule import Timeline
from dovetail.space import PACES
from dovetail.studio.question import StudioQuestion

QUICK_S = 0.3
"""Work of one search of a live answer. Chosen."""
POINTS = 9
"""Points of a front."""
POINT_S = 1.0
"""Work of one point."""
FIRST = PACES[:3]
"""Paces that are tried for the first answer on a board."""


@dataclass(frozen=True, slots=True)
class KnownForm:
    """What a board's FPGAs become, and the nodes placed with it."""

    platform: Platform
    pins: Assignment = field(default_factory=dict)
    fill: float | None = None


@dataclass(frozen=True, slots=True)
class LiveAnswer:
    """A plan with what it was made of."""

    question: StudioQuestion
    plan: Plan
    timeline: Timeline
    platform: Platform


class Studio:
    """One network, the forms that were found for boards, and the last answer."""

    def __init__(self) -> None:
        self.graph: Graph | None = None
        self.notes: tuple[str, ...] = ()
        self.file, self.digest = "", ""
        self.known: dict[str, KnownForm] = {}
        self.last: LiveAnswer | None = None

    def open(self, path: str, name: str) -> dict[str, Any]:
        """Read a model file; `name` is what people call it."""
        graph, notes = graph_to_plan(Path(path))
        self.graph = replace(graph, name=Path(name).stem)
        self.notes = tuple(note.replace(path, name) for note in notes)
        self.file, self.digest = name, sha256(Path(path).read_bytes()).hexdigest()
        self.known, self.last = {}, None
        return {"name": self.graph.name, "file": name, "layers": len(self.graph.nodes), "macs": self.graph.macs,
                "parameters": self.graph.parameters}

    def open_network(self, name: str, path: str) -> dict[str, Any]:
        """A network of the zoo."""
        Path(path).write_bytes(zoo.build(zoo.entry(name).name))
        return self.open(path, f"{name}.onnx")

    def live(self, question: StudioQuestion) -> dict[str, Any]:
        """The best plan over few forms, now."""
        began = perf_counter()
        graph, board = self._graph(), question.platform
        quick = question.options(rivals=False, off_grid=False, time_limit_s=QUICK_S, total_s=QUICK_S)
        form = self._near(question)
        if form is not None:
            with suppress(InfeasibleError):
                return self._answered(question, quick, form, began)
        forms = [KnownForm(board), *(KnownForm(board.with_pace(pace)) for pace in FIRST if board.of_kind(Kind.FPGA))]
        found: list[tuple[float, KnownForm]] = []
        refused: InfeasibleError | None = None
        for form in forms:
            try:
                plan, _ = make_plan(graph, form.platform, replace(quick, explained=False, thrift=0.0))
                found.append((plan.objective, form))
            except InfeasibleError as error:
                refused = error if refused is None or error.excess < refused.excess else refused
        if not found:
            assert refused is not None, "there is a form"
            raise refused
        _, best = min(found, key=lambda pair: pair[0])
        answer = self._answered(question, quick, best, began)
        self._remember(question, best)
        return answer

    def _answered(self, question: StudioQuestion, options: Options, form: KnownForm, began: float) -> dict[str, Any]:
        """The plan of a form, explained."""
        pins = {**options.pinned(self._graph()), **form.pins}
        plan, timeline = make_plan(self._graph(), form.platform, replace(options, pins={}), pins)
        plan = replace(plan, pinned=len(question.pins)) if form.pins else plan
        self.last = LiveAnswer(question, plan, timeline, form.platform)
        return self.view(perf_counter() - began, full=False)

    def _near(self, question: StudioQuestion) -> KnownForm | None:
        """The form that was found before for the board, as it is asked for now; an accelerator keeps its layers and its area."""
        known = self.known.get(question.board)
        if known is None:
            return None
        moved = any(known.pins[node].devices != (device,) for node, device in question.pins.items() if node in known.pins)
        kept = not known.pins or (known.fill == question.fill and not moved)
        return KnownForm(question.adjusted(known.platform), known.pins, known.fill) if kept else None

    def _remember(self, question: StudioQuestion, form: KnownForm) -> None:
        """Keep a form for later answers, with the board's own clocks and bandwidths."""
        at_rest = replace(question, clock=1 / question.clock, bandwidth=1 / question.bandwidth)
        self.known[question.board] = replace(form, platform=at_rest.adjusted(form.platform))

    def search(self, question: StudioQuestion, progress: Progress) -> dict[str, Any]:
        """The best plan of all that the board's FPGAs can become."""
        began, graph = perf_counter(), self._graph()
        plan, timeline, space = weighed(graph, question.platform, question.options(), progress=progress)
        best = space.forms[space.best]
        self.last = LiveAnswer(question, plan, timeline, best.platform)
        self._remember(question, KnownForm(best.platform, best.pins, question.fill))
        return self.view(perf_counter() - began, full=True)

    def pareto(self, question: StudioQuestion, progress: Progress) -> list[dict[str, Any]]:
        """Plans of which none is better in latency and energy, over the form found last."""
        known = self.known.get(question.board)
        board = question.platform if known is None or known.pins else question.adjusted(known.platform)
        found = front(self._graph(), board.with_fill(question.fill).with_link_logic(), POINTS, point_limit_s=POINT_S,
                      progress=progress)
        return [{"latency_s": p.latency_s, "energy_j": p.energy_j, "limit_mj": p.limit_j * 1e3,
                 "label": f"{seconds(p.latency_s)}, {joules(p.energy_j)}, {percent(p.area)} of the area",
                 "latency": seconds(p.latency_s), "energy": joules(p.energy_j)} for p in found.points]

    def view(self, took_s: float, full: bool) -> dict[str, Any]:
        """The last answer as parts of a page, made by the report's own components."""
        answer = self._answer()
        report, plan = self._report(answer), answer.plan
        return {"lead": element("p", lead(report), class_="lead"), "cards": element("dl", cards(report), class_="cards"),
                "verdict": element("p", sentence(report), class_="verdict open"),
                "network": join([legend(report), network_map(report)]), "plan": plan_table(report), "timeline": timeline(report),
                "resources": join([resources(report), baselines(report)]), "details": details(report),
                "nodes": [{"name": n.name, "devices": self._devices(answer, n.name)} for n in self._graph().nodes],
                "figures": _figures(answer, used_devices(report)), "took_s": took_s, "full": full,
                "goal": plan.goal.value}

    def _devices(self, answer: LiveAnswer, name: str) -> list[str]:
        """Devices that can take a layer."""
        graph = self._graph()
        node = next(n for n in graph.nodes if n.name == name)
        return [d.name for d in answer.platform.devices if why_not(graph, node, d) is None]

    def plan_file(self) -> dict[str, Any]:
        """The last plan as `dovetail plan -o` writes it."""
        answer = self._answer()
        return plan_to_json(answer.plan, answer.platform)

    def report_file(self) -> str:
        """The last plan as a report of its own."""
        return render(self._report(self._answer()))

    def _report(self, answer: LiveAnswer) -> dict[str, Any]:
        command = f"dovetail plan {self.file} --plan plan.json"
        extras: Mapping[str, object] = {
            "quantization": {"calibration": "none, planned only"}, "segments": [], "designs": [], "circuits": [],
            **dict.fromkeys(("synthesis", "power", "verification", "measured")),
            "provenance": {"model_file": self.file, "model_sha256": self.digest, "versions": {"dovetail": __version__},
                           "warnings": list(self.notes), "commands": [command]}}
        return collect(self._graph(), answer.plan, answer.platform, answer.timeline, extras)

    def _graph(self) -> Graph:
        if self.graph is None:
            raise UsageError("no network is open; drop an ONNX file or choose one")
        return self.graph

    def _answer(self) -> LiveAnswer:
        if self.last is None:
            raise UsageError("there is no plan yet; choose a network and a board")
        return self.last


def _figures(answer: LiveAnswer, devices: list[str]) -> list[tuple[str, str, float | None, bool]]:
    """What is compared between plans: words, value, number, and whether less is better."""
    plan = answer.plan
    rows: list[tuple[str, str, float | None, bool]] = [
        ("Board", plan.platform, None, True), ("Minimised", plan.goal.value, None, True),
        ("Frames per second", rate(plan.interval_s), 1 / plan.interval_s if plan.interval_s else None, False),
        ("Latency", seconds(plan.latency_s), plan.latency_s, True),
        ("Energy per frame", joules(plan.energy_j), plan.energy_j, True)]
    if plan.goal is not Goal.EDP and plan.lower_bound > 0:
        rows.append(("Gap to its bound", percent(plan.gap if plan.gap > 1e-6 else 0.0), plan.gap, True))
    for device in devices:
        layers = sum(device in split.devices for split in plan.assignment.values())
        rows.append((f"Layers on {device}", f"{layers:,}", None, True))
    rows += [(f"{device} {name}", f"{used:,.0f} ({percent(used / limit)})", used / limit, True)
             for device, found in plan.resources.items() for name, (used, limit) in found.items()
             if used and limit and limit < inf]
    return rows
