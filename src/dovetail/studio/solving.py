"""A network with the plans made of it, inside a worker process: solved again as the question changes.

A question is answered at once over few forms of the board's FPGAs: direct mapping, some paces, and what a full search found.
The bound of such an answer holds over these alone, and its verdict says so.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from math import inf
from pathlib import Path
from time import perf_counter
from typing import Any

from dovetail import __version__, pipeline, zoo
from dovetail.cost.costs import why_not
from dovetail.errors import InfeasibleError, UsageError
from dovetail.ir import Graph, Node
from dovetail.numbers import decide_numbers, graph_to_plan
from dovetail.numerics.calibration import synthetic
from dovetail.numerics.equalize import Equalise
from dovetail.numerics.quality import LayerNoise, layer_noise
from dovetail.numerics.quantize import check_bits
from dovetail.partition.device_costs import RememberedCosts
from dovetail.partition.plan import Goal, Plan
from dovetail.partition.plan_json import plan_to_json
from dovetail.partition.solve import reasons
from dovetail.planning import Options, make_plan, weighed
from dovetail.progress import Progress
from dovetail.report.charts import baselines, resources
from dovetail.report.collect import collect
from dovetail.report.gantt import timeline
from dovetail.report.headline import LEAST_GAP, cards, lead, sentence, used_devices
from dovetail.report.html import details, render
from dovetail.report.markup import element, join
from dovetail.report.network import network_map
from dovetail.report.palette import legend
from dovetail.report.plan_table import plan_table
from dovetail.report.units import joules, percent, rate, seconds
from dovetail.schedule.list_schedule import Timeline
from dovetail.studio.forms import FormPoint, KnownForm, first_forms, front_of_forms
from dovetail.studio.layers import Code, codes, numbers_lines
from dovetail.studio.question import StudioQuestion
from dovetail.words import counted

QUICK_S = 0.1
"""Work of one search of a live answer. Chosen."""
FEW = 2
"""Synthetic samples that stand in where bits are changed or code is shown, before numbers are measured. Chosen: seconds."""
NEAR = 1e-6
"""How much slower than its point a plan of a front may be."""


@dataclass(slots=True)
class LiveAnswer:
    """A plan with what it was made of."""

    question: StudioQuestion
    graph: Graph
    plan: Plan
    timeline: Timeline
    form: KnownForm
    why: dict[str, str] | None = None
    """Reasons with runners-up, once a card asked for them."""
    report: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class MeasuredNumbers:
    """A network of integers, with range and error of its tensors on samples."""

    graph: Graph
    noise: Mapping[str, LayerNoise]
    samples: str


class Studio:
    """One network, the forms that were found for boards, and the last answer."""

    def __init__(self) -> None:
        self.graph: Graph | None = None
        self.notes: tuple[str, ...] = ()
        self.path, self.file, self.digest = Path(), "", ""
        self.known: dict[str, KnownForm] = {}
        self.points: list[FormPoint] = []
        self.last: LiveAnswer | None = None
        self.answers = 0
        """How many there were."""
        self.stand_ins: dict[int | None, Graph] = {}
        """Networks of so many bits with scales of few samples."""
        self.measured: dict[int | None, MeasuredNumbers] = {}
        self.costs = RememberedCosts()
        """What layers cost, which most changes leave as it is."""

    def open(self, path: str, name: str) -> dict[str, Any]:
        """Read a model file; `name` is what people call it."""
        graph, notes = graph_to_plan(Path(path))
        self.graph = replace(graph, name=Path(name).stem)
        self.notes = tuple(note.replace(path, name) for note in notes)
        self.path, self.file, self.digest = Path(path), name, sha256(Path(path).read_bytes()).hexdigest()
        self.known, self.last, self.points, self.stand_ins, self.measured = {}, None, [], {}, {}
        self.costs = RememberedCosts()
        return {"name": self.graph.name, "file": name, "layers": len(self.graph.nodes), "macs": self.graph.macs,
                "parameters": self.graph.parameters, "quantized": self.graph.quantized}

    def open_network(self, name: str, path: str) -> dict[str, Any]:
        """A network of the zoo."""
        Path(path).write_bytes(zoo.build(zoo.entry(name).name))
        return self.open(path, f"{name}.onnx")

    def live(self, question: StudioQuestion) -> dict[str, Any]:
        """The best plan of the form that is known, now; where none is, of a few forms.

        Where the known one has no plan within the limits, that is said at once: `wider` looks at the others.
        """
        began, form = perf_counter(), self._near(question)
        if form is None:
            return self.wider(question)
        try:
            return self._answered(question, _quick(question), form, began)
        except InfeasibleError as error:
            return {"refused": str(error)}

    def wider(self, question: StudioQuestion) -> dict[str, Any]:
        """The best plan over few forms."""
        began, graph = perf_counter(), self._graph_of(question)
        found: list[tuple[float, KnownForm]] = []
        refused: InfeasibleError | None = None
        forms = first_forms(graph, question.platform)
        for form in forms if len(forms) > 1 else ():
            try:
                options = replace(_quick(question), explained=False, thrift=0.0)
                plan, _ = make_plan(graph, form.platform, options, costs=self.costs)
                found.append((plan.objective, form))
            except InfeasibleError as error:
                refused = error if refused is None or error.excess < refused.excess else refused
        if refused is not None and not found:
            raise refused
        _, best = min(found, key=lambda pair: pair[0], default=(0.0, forms[0]))
        answer = self._answered(question, _quick(question), best, began)
        self._remember(question, best)
        return answer

    def _answered(self, question: StudioQuestion, options: Options, form: KnownForm, began: float) -> dict[str, Any]:
        """The plan of a form, explained."""
        graph = self._graph_of(question)
        pins = {**options.pinned(graph), **form.pins}
        plan, timeline = make_plan(graph, form.platform, replace(options, pins={}), pins, self.costs)
        plan = replace(plan, pinned=len(question.pins)) if form.pins else plan
        self._take_up(LiveAnswer(question, graph, plan, timeline, form))
        return self.view(perf_counter() - began, full=False)

    def _take_up(self, answer: LiveAnswer) -> None:
        self.last, self.answers = answer, self.answers + 1

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
        began, graph = perf_counter(), self._graph_of(question)
        plan, timeline, space = weighed(graph, question.platform, question.options(), progress=progress)
        best = space.forms[space.best]
        form = KnownForm(best.platform, {name: best.pins[name] for name in best.held}, question.fill)
        self._take_up(LiveAnswer(question, graph, plan, timeline, form))
        self._remember(question, form)
        return self.view(perf_counter() - began, full=True)

    def pareto(self, question: StudioQuestion, progress: Progress) -> list[dict[str, Any]]:
        """Plans of which none is better in latency and energy, over several forms, accelerators among them."""
        self.points = front_of_forms(self._graph_of(question), question, self._near(question), progress)
        return [point.document() for point in self.points]

    def take(self, question: StudioQuestion, number: int) -> dict[str, Any]:
        """The plan of a point of the front; later answers start from its form."""
        if not 0 <= number < len(self.points):
            raise UsageError("there is no such point; find the front again")
        began, chosen = perf_counter(), self.points[number]
        answer: dict[str, Any] = {}
        with suppress(InfeasibleError):
            answer = self._answered(question, _quick(question), chosen.form, began)
        if not answer or self.last is None or self.last.plan.latency_s > chosen.point.latency_s * (1 + NEAR):  # not found quickly
            placed = replace(question, max_energy_mj=None)
            answer = self._answered(placed, _quick(placed), replace(chosen.form, pins=chosen.point.assignment), began)
        self._remember(question, chosen.form)
        return answer

    def numbers(self, bits: int | None, progress: Progress) -> dict[str, Any]:
        """Ranges and errors of every layer on synthetic samples; plans then use these scales."""
        if bits is not None:
            check_bits(bits)
        found = decide_numbers(self.path, bits=None if self._graph().quantized else bits, progress=progress)
        noise = {} if self._graph().quantized else {
            x.tensor: x for x in layer_noise(found.source, found.graph, found.samples, progress)}
        self.measured[bits] = MeasuredNumbers(replace(found.graph, name=self._graph().name), noise,
                                              counted(found.samples.count, "synthetic sample"))
        return {"samples": found.samples.count}

    def layer(self, number: int) -> dict[str, Any]:
        """The runner-up of a layer, and its numbers where they are known."""
        answer, node = self._layer(number)
        if answer.why is None:
            board = answer.form.platform.with_fill(answer.question.fill).with_link_logic()
            answer.why = reasons(answer.graph, board, _quick(answer.question), answer.form.pins, answer.plan.assignment)
        known = self.measured.get(answer.question.bits)
        found = (known.noise.get(node.output), known.samples) if known is not None else (None, "")
        graph = answer.graph if known is None else known.graph
        return {"why": answer.why[node.name], "numbers": numbers_lines(graph, node.output, *found),
                "measured": self._graph().quantized or known is not None}

    def code(self, number: int) -> list[Code]:
        """What is generated for a layer."""
        answer, node = self._layer(number)
        known = self.measured.get(answer.question.bits)
        graph = self._stand_in(answer.question.bits) if known is None else known.graph
        return codes(graph, node.name, answer.plan.assignment[node.name], answer.form.platform)

    def _layer(self, number: int) -> tuple[LiveAnswer, Node]:
        answer = self._answer()
        if not 0 <= number < len(answer.graph.nodes):
            raise UsageError("there is no such layer in this plan")
        return answer, answer.graph.nodes[number]

    def build(self, folder: str, progress: Progress) -> str:
        """Everything that a build folder has, without verification, in one archive; returns its path."""
        answer, target = self._answer(), Path(folder) / "build"
        document = plan_to_json(answer.plan, answer.form.platform)
        board, options = Options(bits=None if self._graph().quantized else answer.question.bits).like(document)
        shutil.rmtree(target, ignore_errors=True)
        pipeline.compile(self.path, board, target, options=options, verify=False, progress=progress)
        progress("pack", 0, 1)
        return shutil.make_archive(str(target), "zip", target)

    def view(self, took_s: float, full: bool) -> dict[str, Any]:
        """What the page shows first of the last answer, made by the report's own components; `rest` has what lies below."""
        answer, report = self._answer(), self._report()
        return {"number": self.answers, "lead": element("p", lead(report), class_="lead"),
                "cards": element("dl", cards(report), class_="cards"), "network": join([legend(report), network_map(report)]),
                "nodes": [{"name": n.name, "devices": [d.name for d in answer.form.platform.devices
                                                       if why_not(answer.graph, n, d) is None]} for n in answer.graph.nodes],
                "figures": _figures(answer, used_devices(report)), "took_s": took_s, "full": full,
                "goal": answer.plan.goal.value}

    def rest(self) -> dict[str, Any]:
        """What the page shows below, and what its cards say; `number` is that of the answer."""
        report = self._report()
        return {"number": self.answers, "verdict": element("p", sentence(report), class_="verdict open"),
                "plan": plan_table(report), "timeline": timeline(report), "details": details(report),
                "resources": join([resources(report), baselines(report)])}

    def plan_file(self) -> dict[str, Any]:
        """The last plan as `dovetail plan -o` writes it."""
        answer = self._answer()
        return plan_to_json(answer.plan, answer.form.platform)

    def report_file(self) -> str:
        """The last plan as a report of its own."""
        return render(self._report())

    def _report(self) -> dict[str, Any]:
        """The last answer as a report, collected once."""
        answer = self._answer()
        if answer.report is None:
            answer.report = self._collected(answer)
        return answer.report

    def _collected(self, answer: LiveAnswer) -> dict[str, Any]:
        command = f"dovetail plan {self.file} --plan plan.json"
        extras: Mapping[str, object] = {
            "quantization": {"calibration": "none, planned only"}, "segments": [], "designs": [], "circuits": [],
            **dict.fromkeys(("synthesis", "power", "verification", "measured")),
            "provenance": {"model_file": self.file, "model_sha256": self.digest, "versions": {"dovetail": __version__},
                           "warnings": list(self.notes), "commands": [command]}}
        return collect(answer.graph, answer.plan, answer.form.platform, answer.timeline, extras)

    def _graph(self) -> Graph:
        if self.graph is None:
            raise UsageError("no network is open; drop an ONNX file or choose one")
        return self.graph

    def _graph_of(self, question: StudioQuestion) -> Graph:
        """The network as it is planned: in the numbers measured, else of the bits asked for."""
        known = self.measured.get(question.bits)
        if known is not None:
            return known.graph
        return self._graph() if question.bits is None else self._stand_in(question.bits)

    def _stand_in(self, bits: int | None) -> Graph:
        """The network as integers whose scales are those of few samples."""
        graph = self._graph()
        if graph.quantized:
            if bits is not None:
                raise UsageError(f"bits {bits}: {graph.name} came quantized, and its numbers stay")
            return graph
        if bits not in self.stand_ins:
            found = decide_numbers(self.path, synthetic(graph, FEW).values, bits, equalise=Equalise.OFF)
            self.stand_ins[bits] = replace(found.graph, name=graph.name)
        return self.stand_ins[bits]

    def _answer(self) -> LiveAnswer:
        if self.last is None:
            raise UsageError("there is no plan yet; choose a network and a board")
        return self.last


def _quick(question: StudioQuestion) -> Options:
    return question.options(rivals=False, off_grid=False, time_limit_s=QUICK_S, total_s=QUICK_S)


def _figures(answer: LiveAnswer, devices: list[str]) -> list[tuple[str, str, float | None, bool]]:
    """What is compared between plans: words, value, number, and whether less is better."""
    plan = answer.plan
    rows: list[tuple[str, str, float | None, bool]] = [
        ("Board", plan.platform, None, True), ("Minimised", plan.goal.value, None, True),
        ("Frames per second", rate(plan.interval_s), 1 / plan.interval_s if plan.interval_s else None, False),
        ("Latency", seconds(plan.latency_s), plan.latency_s, True),
        ("Energy per frame", joules(plan.energy_j), plan.energy_j, True)]
    if plan.goal is not Goal.EDP and plan.lower_bound > 0:
        gap = plan.gap if plan.gap > LEAST_GAP else 0.0
        rows.append(("Gap to its bound", percent(gap), gap, True))
    for device in devices:
        layers = sum(device in split.devices for split in plan.assignment.values())
        rows.append((f"Layers on {device}", f"{layers:,}", None, True))
    rows += [(f"{device} {name}", f"{used:,.0f} ({percent(used / limit)})", used / limit, True)
             for device, found in plan.resources.items() for name, (used, limit) in found.items()
             if used and limit and limit < inf]
    return rows
