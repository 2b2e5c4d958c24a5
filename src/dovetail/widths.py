"""Bits as an axis of plans: which layers of a float network become int8, int4 or codes, for what accuracy, latency and area.

Each layer alone is given each of its kinds, and what it takes from the answers is measured on one half of the labelled data:
right ones that are lost, and the noise it adds to the scores. Noise of layers adds up where their errors are independent, and
areas of engines do; under that assumption the front of joint choices is found exactly (a knapsack with one choice per layer).
The assumption only proposes: every point that is told of was built as integers, its accuracy measured with the integer reference
on the other half of the data, its latency and area those of its own plan. Where neighbours on the front differ most, what lies
between them is measured next.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from math import inf, isfinite
from pathlib import Path
from typing import Any

import numpy as np

from dovetail import cost
from dovetail.errors import InfeasibleError, UsageError
from dovetail.ir import Array, Graph, Node
from dovetail.ir.onnx.read import read_model
from dovetail.ir.tensor import Shape
from dovetail.numerics.calibration import Calibration, Samples, clipped_notes, constant_notes, samples_of
from dovetail.numerics.fast import run_quantized
from dovetail.numerics.mixed import KINDS, WHOLE, BitChoices, bits_of, named
from dovetail.numerics.quality import run_single
from dovetail.numerics.tables import tabulate
from dovetail.planning import Options, decide
from dovetail.platform.device import Device, Kind, Platform
from dovetail.progress import Progress, silent
from dovetail.runtime.accuracy import load_data, right
from dovetail.words import counted

LOGIC = ("alm", "lut", "lut4")
"""What the area of a layer is counted in, by what a family calls it."""
MOST_STATES = 20_000
"""Joint choices that are kept beside each other; beyond them, of choices of nearly the same area the one of least noise."""


@dataclass(frozen=True, slots=True)
class WidthSensitivity:
    """One layer with one kind, all others int8: what it takes from the answers, and the area of its engine by the model."""

    layer: str
    kind: str
    loss: float
    """Right answers that it loses, as a fraction of all."""
    noise: float
    """Power of its error in the scores against that of the scores."""
    area: float
    """In look-up tables or ALMs; infinite where no engine fits the FPGA's model."""


@dataclass(frozen=True, slots=True)
class WidthPoint:
    """A joint choice, measured: accuracy and loss against int8 on data that did not choose it, latency and area by its plan."""

    name: str
    kinds: Mapping[str, str]
    noise: float | None
    """Summed noise of its layers, each measured alone; None of networks that were not chosen layer by layer."""
    accuracy: float
    loss: float
    latency_s: float
    interval_s: float
    energy_j: float
    area: float
    """The fullest resource of the board's FPGAs, as a fraction."""
    resources: Mapping[str, Mapping[str, tuple[float, float]]]
    gap: float
    best: bool = False
    """Whether no other point is at least as good in accuracy, latency and area, and better in one."""


@dataclass(frozen=True, slots=True)
class BitFront:
    """What bits of layers are worth on a board."""

    model: str
    platform: str
    float_accuracy: float
    images: tuple[int, int]
    """How many chose, how many measured."""
    sensitivities: tuple[WidthSensitivity, ...]
    points: tuple[WidthPoint, ...]
    chosen: str

    def document(self) -> dict[str, Any]:
        """As JSON."""
        found = asdict(self)
        for row in found["sensitivities"]:
            row["area"] = row["area"] if isfinite(row["area"]) else None
        return {"schema": 1, **found}


@dataclass(frozen=True, slots=True)
class Question:
    """A network, the data that judges it, and where it is to run."""

    network: Graph
    samples: Samples
    inputs: Mapping[str, Array]
    labels: Array
    board: Platform
    options: Options
    progress: Progress

    def half(self, which: int) -> tuple[dict[str, Array], Array]:
        """Every second image, from the first or from the second on: one half chooses, the other measures."""
        return {name: x[which::2] for name, x in self.inputs.items()}, self.labels[which::2]

    def scores(self, graph: Graph, which: int) -> Array:
        """What an integer graph answers."""
        (frames,) = self.half(which)[0].values()
        return run_quantized(graph, {graph.inputs[0]: frames})[graph.outputs[0]]

    def right(self, graph: Graph, which: int) -> float:
        """Fraction of right answers of an integer graph."""
        return right(self.scores(graph, which), self.half(which)[1])


def bit_front(question: Question, kinds: Sequence[str] = KINDS, count: int = 12, max_loss: float = 0.01,
              others: Iterable[tuple[str, Graph]] = ()) -> tuple[BitFront, Graph]:
    """The measured front, and the network of the point chosen: least latency, then area, that loses at most `max_loss`.

    `others` are integer networks with the same inputs and classes, such as trained ones, measured and planned beside.
    Raises UsageError where there is too little to choose from, InfeasibleError where the board takes none of them.
    """
    if WHOLE not in kinds:
        kinds = (WHOLE, *kinds)
    for kind in kinds:
        bits_of(kind)
    if not 0 <= max_loss <= 1:
        raise UsageError(f"--max-loss {max_loss:g}: a fraction from 0 to 1 is needed, such as 0.01")
    if len(question.labels) < 4 or count < 2:
        raise UsageError(f"{counted(len(question.labels), 'labelled image')}, {counted(count, 'point')}; 4 images and 2 "
                         "points are needed at least")
    menu = BitChoices(question.network, question.samples, question.progress)
    found = sensitivities(question, menu, kinds)
    search = WidthSearch(question, menu, joint_choices(menu.layers, found))
    points = search.points(count)
    trained = dict(others)
    rows = [measured(question, name, graph, {}, None, search.base) for name, graph in trained.items()]
    points += [p for p in rows if p is not None]
    if not points:
        raise InfeasibleError(f"{question.board.name}: takes none of {counted(count, 'choice')} of bits; choose a larger board")
    marked = tuple(replace(p, best=not any(_beats(q, p) for q in points)) for p in points)
    fine = [p for p in marked if p.loss <= max_loss] or list(marked[:1])
    chosen_point = min(fine, key=lambda p: (p.latency_s, p.area, p.loss))
    inputs, labels = question.half(1)
    single = right(run_single(question.network, inputs)[question.network.outputs[0]], labels)
    halves = len(question.half(0)[1]), len(labels)
    return BitFront(question.network.name, question.board.name, single, halves, tuple(found), marked,
                    chosen_point.name), trained.get(chosen_point.name) or menu.graph(chosen_point.kinds)


def front_of_bits(model: str | Path, data: str | Path, board: Platform, options: Options, calibration: Calibration | None = None,
                  kinds: Sequence[str] = KINDS, points: int = 12, max_loss: float = 0.01, also: Sequence[str | Path] = (),
                  shapes: Mapping[str, Shape] | None = None,
                  progress: Progress = silent) -> tuple[BitFront, Graph, tuple[str, ...]]:
    """`bit_front` of a model file on labelled data, with notes; `also` are files of quantized models."""
    imported = read_model(model, shapes)
    network = imported.graph
    inputs, labels = load_data(data, network)
    if labels is None:
        raise UsageError(f"{model}: not one input and one output of class scores; bits are chosen by right answers")
    samples = samples_of(calibration, network)
    others = [(Path(other).name, tabulate(read_model(other, shapes).graph)) for other in also]
    for name, graph in others:
        ends, wanted = ([g.shape(t) for t in (g.inputs[0], g.outputs[0])] for g in (graph, network))
        if not graph.quantized or ends != wanted:
            found = "integers" if graph.quantized else "floats"
            raise UsageError(f"--also {name}: {found} from {list(ends[0])} to {list(ends[1])}; "
                             f"a quantized model from {list(wanted[0])} to {list(wanted[1])} is needed")
    question = Question(network, samples, inputs, labels, board, options, progress)
    front, chosen = bit_front(question, kinds, points, max_loss, others)
    notes = (samples.note,) if samples.note else constant_notes(samples)
    frames = {chosen.inputs[0]: next(iter(inputs.values()))}
    return front, chosen, (*imported.notes, *notes, *clipped_notes(chosen, frames, str(data)))


def sensitivities(question: Question, menu: BitChoices, kinds: Sequence[str]) -> list[WidthSensitivity]:
    """Every layer with every kind it can have, the others int8; areas from networks of one kind."""
    rest = [k for k in kinds if k != WHOLE]
    uniform = {k: menu.graph({n.name: k for n in menu.layers if menu.offers(n, k)}) for k in kinds}
    device = next(iter(question.board.of_kind(Kind.FPGA)), None)
    labels, scores = question.half(0)[1], question.scores(uniform[WHOLE], 0)
    power, found = float(np.square(scores).sum()) or 1.0, list[WidthSensitivity]()
    for number, node in enumerate(menu.layers):
        question.progress("one layer at a time", number, len(menu.layers))
        found.append(WidthSensitivity(node.name, WHOLE, 0.0, 0.0, area_of(uniform[WHOLE], node.name, device)))
        for kind in rest:
            if menu.offers(node, kind):
                other = question.scores(menu.graph({node.name: kind}), 0)
                found.append(WidthSensitivity(node.name, kind, right(scores, labels) - right(other, labels),
                                         float(np.square(other - scores).sum()) / power,
                                         area_of(uniform[kind], node.name, device)))
    question.progress("one layer at a time", len(menu.layers), len(menu.layers))
    return found


def area_of(graph: Graph, layer: str, device: Device | None) -> float:
    """Logic that a layer's engine takes by the model, with the thresholds in front of it; weight bits where there is no FPGA."""
    node = graph.node(layer)
    if device is None:
        return float(sum(c.array.size * (c.scheme.bits if c.scheme else 8) for c in graph.params(node)[:1]))
    total = 0.0
    for part in (node, *(n for n in graph.nodes if n.output == node.inputs[0] and n.name.endswith("_entry"))):
        share = cost.costs_of(graph, part, None, np.asarray([0]), np.asarray([1]), device)
        if share is None:
            return inf
        total += sum(float(share.resources[r][0]) for r in LOGIC if r in share.resources)
    return total


def joint_choices(layers: Sequence[Node], found: Sequence[WidthSensitivity]) -> list[tuple[dict[str, str], float, float]]:
    """(kinds, summed noise, summed area) of all joint choices that no other beats in both, least area first.

    Exact: choices are joined layer by layer, and one that another beats so far can be no part of a best one.
    """
    states: list[tuple[float, float, tuple[str, ...]]] = [(0.0, 0.0, ())]
    for node in layers:
        own = [s for s in found if s.layer == node.name and isfinite(s.area)] or \
            [replace(s, area=0.0) for s in found if s.layer == node.name]
        joined = sorted((area + s.area, noise + s.noise, (*kinds, s.kind)) for area, noise, kinds in states for s in own)
        states = _thinned(_undominated(joined))
    return [(named(layers, kinds), noise, area) for area, noise, kinds in states]


def _undominated(ordered: Iterable[tuple[float, float, tuple[str, ...]]]) -> list[tuple[float, float, tuple[str, ...]]]:
    kept, least = list[tuple[float, float, tuple[str, ...]]](), inf
    for state in ordered:
        if state[1] < least:
            kept.append(state)
            least = state[1]
    return kept


def _thinned(states: list[tuple[float, float, tuple[str, ...]]]) -> list[tuple[float, float, tuple[str, ...]]]:
    """At most MOST_STATES: of choices in one of so many equal steps of area the last, which has the least noise."""
    if len(states) <= MOST_STATES:
        return states
    low, high = states[0][0], states[-1][0]
    cells = {int((s[0] - low) / (high - low) * (MOST_STATES - 1)): s for s in states}
    return list(cells.values())


class WidthSearch:
    """Which of the joint choices are measured: the ends, then always the middle of the two neighbours that differ most."""

    def __init__(self, question: Question, menu: BitChoices, choices: Sequence[tuple[dict[str, str], float, float]]) -> None:
        self.question, self.menu, self.choices = question, menu, choices
        self.base: float | None = None
        self.known: dict[int, WidthPoint | None] = {}

    def points(self, count: int) -> list[WidthPoint]:
        """All int8 first, then at most so many choices in the order of their area."""
        whole = named(self.menu.layers, [WHOLE] * len(self.menu.layers))
        first = measured(self.question, "all int8", self.menu.graph(whole), whole, 0.0, None)
        self.base = None if first is None else first.accuracy
        waiting = [0, len(self.choices) - 1]
        while waiting and len(self.known) < count:
            self.question.progress("measure", len(self.known), count)
            place = waiting.pop()
            kinds, noise, _ = self.choices[place]
            name = f"choice {place + 1} of {len(self.choices)}"
            self.known[place] = measured(self.question, name, self.menu.graph(kinds), kinds, noise, self.base)
            waiting = waiting or self._between()
        self.question.progress("measure", count, count)
        chosen = [p for _, p in sorted(self.known.items()) if p is not None and p.kinds != whole]
        return chosen if first is None else [first, *chosen]

    def _between(self) -> list[int]:
        """The middle of the neighbours that differ most in latency and accuracy; none where all are next to each other."""
        ordered = sorted(self.known)
        gaps = [(self._apart(a, b), (a + b) // 2) for a, b in pairwise(ordered) if b - a > 1]
        return [max(gaps)[1]] if gaps else []

    def _apart(self, a: int, b: int) -> float:
        one, other = self.known[a], self.known[b]
        if one is None or other is None:
            return inf if one is not other else 0.0
        slower = max(one.latency_s, other.latency_s)
        return abs(one.latency_s - other.latency_s) / slower + abs(one.accuracy - other.accuracy) \
            + (b - a) / len(self.choices)


def measured(question: Question, name: str, graph: Graph, kinds: Mapping[str, str], noise: float | None,
             base: float | None) -> WidthPoint | None:
    """A point by the other half of the data and its own plan; None where the board has no plan for it."""
    try:
        plan, _, board = decide(graph, question.board, question.options)
    except InfeasibleError:
        return None
    accuracy = question.right(graph, 1)
    fpgas = {d.name for d in board.of_kind(Kind.FPGA)}
    used = [amount / limit for d, r in plan.resources.items() if d in fpgas for amount, limit in r.values() if limit]
    return WidthPoint(name, dict(kinds), noise, accuracy, (accuracy if base is None else base) - accuracy, plan.latency_s,
                 plan.interval_s, plan.energy_j, max(used, default=0.0), plan.resources, plan.gap)


def _beats(a: WidthPoint, b: WidthPoint) -> bool:
    ours, theirs = (-a.accuracy, a.latency_s, a.area), (-b.accuracy, b.latency_s, b.area)
    return ours != theirs and all(x <= y for x, y in zip(ours, theirs, strict=True))
