"""The checker: a plan and its certificate, held against the model and the board; the first wrong line is named.

It asks `ir` what splits read, `cost` what they cost, and works out the rest itself: what the plan costs, in fractions, and that
no plan of the stated space is below the bound. It shares no code with the searches that made the plan.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np

from dovetail.certificate.bound import Prices, SearchedForm
from dovetail.certificate.columns import SLACK, DividedNode, limits_of
from dovetail.certificate.judge import judge
from dovetail.errors import DovetailError
from dovetail.ir import Axis, Graph
from dovetail.platform.device import Kind, Platform
from dovetail.platform.load import platform_from_dict, platform_to_dict
from dovetail.progress import Progress, silent

HEADER = "dovetail certificate 1"
GOALS = ("latency", "energy", "throughput")
MAPPED = "direct mapping"
"""What FPGAs are without a pace, in the words of a plan's space."""
ACCELERATORS = ("all accelerators of ", "the fastest accelerator of ")
"""How a plan's space begins to speak of what no certificate covers."""
ROUNDED = 1e-7
"""By which part a plan's bound may be above the proven one: both are rounded, and the proven one down."""


class RefusedError(DovetailError):
    """A plan or a certificate says what is not so; the message names the first place."""

    exit_code = 1


@dataclass(frozen=True, slots=True)
class Certificate:
    """That no plan of some forms is below a bound: prices by form, each with its line; a pace of None maps layers directly."""

    command: str
    graph: str
    plan: str
    goal: str
    bound: float
    forms: tuple[tuple[int, int | None, Mapping[str, float]], ...]

    def text(self) -> str:
        """The certificate as a file, one statement in a line, the digest of all of them last."""
        lines = [HEADER, f"command {self.command}", f"graph {self.graph}", f"plan {self.plan}", f"goal {self.goal}",
                 f"bound {float(self.bound)!r}"]
        for _, pace, prices in self.forms:
            lines.append("form direct" if pace is None else f"form folded {pace}")
            lines += [f"price {float(value)!r} {name}" for name, value in prices.items() if value]
        return "\n".join([*lines, f"sha256 {_digest(lines)}", ""])


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was checked: the plan's objective, the bound, and the parts of its space that the bound does and does not cover."""

    goal: str
    objective: float
    bound: float
    covered: tuple[str, ...]
    uncovered: tuple[str, ...]

    @property
    def gap(self) -> float:
        return max(0.0, self.objective / self.bound - 1)


def _digest(lines: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def plan_digest(document: Mapping[str, Any]) -> str:
    """Of all that a plan says."""
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def graph_digest(graph: Graph) -> str:
    """Of the network that is planned: its operators, shapes and every weight."""
    found = hashlib.sha256(repr((graph.inputs, graph.outputs, graph.nodes, sorted(graph.tensors.items()))).encode())
    for name, constant in sorted(graph.constants.items()):
        found.update(repr((name, constant.array.dtype.str, constant.array.shape)).encode())
        found.update(np.ascontiguousarray(constant.array).tobytes())
    return found.hexdigest()


def space_words(paces: Sequence[int | None]) -> tuple[str, ...]:
    """What forms are called in a plan's space."""
    folded = sorted(p for p in paces if p is not None)
    if None not in paces:
        return (f"folded engines of at most {folded[0]:,} clocks per frame",)
    if not folded:
        return (MAPPED,)
    return MAPPED, f"folded engines at {len(folded)} paces from {folded[0]:,} to {folded[-1]:,} clocks per frame"


def read(text: str) -> Certificate:
    """The certificate that a file holds; RefusedError names the first line that is not as it should be."""
    lines = text.split("\n")
    if lines[:1] != [HEADER]:
        raise RefusedError(f"certificate, line 1: {lines[0][:40]!r} found; {HEADER!r} is needed")
    if len(lines) < 3 or lines[-1] or lines[-2] != f"sha256 {_digest(lines[:-2])}":
        raise RefusedError(f"certificate, line {max(1, len(lines) - 1)}: it is not the digest of the lines before it; the file "
                           "is incomplete or edited")
    said: dict[str, str] = {}
    for number, name in enumerate(("command", "graph", "plan", "goal", "bound"), 2):
        first, _, rest = lines[number - 1].partition(" ")
        if first != name or not rest:
            raise RefusedError(f"certificate, line {number}: {lines[number - 1][:40]!r} found; `{name} ...` is needed")
        said[name] = rest
    if said["goal"] not in GOALS:
        raise RefusedError(f"certificate, line 5: goal {said['goal']}; possible: {', '.join(GOALS)}")
    forms: list[tuple[int, int | None, dict[str, float]]] = []
    for number, line in enumerate(lines[6:-2], 7):
        match line.split(" ", 2):
            case ["form", "direct"]:
                forms.append((number, None, {}))
            case ["form", "folded", pace] if pace.isascii() and pace.isdigit() and int(pace) > 0:
                forms.append((number, int(pace), {}))
            case ["price", value, name] if forms and name not in forms[-1][2]:
                forms[-1][2][name] = _number(number, value)
            case _:
                raise RefusedError(f"certificate, line {number}: {line[:60]!r} says nothing that is known")
    if not forms or len({pace for _, pace, _ in forms}) != len(forms):
        raise RefusedError("certificate, line 7: no form, or one twice; each needs prices of its own")
    bound = _number(6, said["bound"])
    if not bound:
        raise RefusedError("certificate, line 6: a bound of 0 says nothing")
    return Certificate(said["command"], said["graph"], said["plan"], said["goal"], bound, tuple(forms))


def _number(line: int, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not (isfinite(value) and value >= 0):
        raise RefusedError(f"certificate, line {line}: {text[:40]!r} is not a number from 0 on")
    return value


def check(document: Mapping[str, Any], certificate: Certificate, graph: Graph, platform: Platform,
          pins: Mapping[str, DividedNode], progress: Progress = silent) -> Verdict:
    """Hold a plan and its certificate against a network on a board, of which nothing is used but what `ir` and `cost` say.

    Raises:
        RefusedError: the first thing that is not so.
    """
    if certificate.graph != graph_digest(graph):
        raise RefusedError("certificate, line 3: another network than the model has now; make the plan again")
    if certificate.plan != plan_digest(document):
        raise RefusedError("certificate, line 4: it belongs to another plan, or the plan was edited")
    if (document["goal"], document["mode"]) != (certificate.goal, "concurrent"):
        raise RefusedError(f"certificate, line 5: goal {certificate.goal}, and the plan's is {document['goal']}, "
                           f"{document['mode']}")
    objective = _check_plan(document, graph, _board(document, platform, certificate))
    covered, uncovered = _space(document, platform, certificate)
    if not document["lower_bound"] <= certificate.bound * (1 + ROUNDED):
        raise RefusedError(f"plan, lower_bound: {document['lower_bound']!r} is above the bound {certificate.bound!r} of line 6")
    for index, (line, pace, prices) in enumerate(certificate.forms):
        progress("forms", index, len(certificate.forms))
        board = platform if pace is None else platform.with_pace(pace)
        form = SearchedForm(graph, board, certificate.goal, certificate.bound, pins)
        if unknown := [name for name in prices if name not in form.limits]:
            raise RefusedError(f"certificate, line {line}: a price on {unknown[0]}, which nothing limits")
        price = np.array([prices.get(name, 0.0) for name in form.limits])
        if not Prices(form, price, certificate.bound).proven():
            raise RefusedError(f"certificate, line {line}: these prices do not prove that no plan of this form is below "
                               f"{certificate.bound!r}")
    progress("forms", len(certificate.forms), len(certificate.forms))
    return Verdict(certificate.goal, objective, certificate.bound, covered, uncovered)


def _space(document: Mapping[str, Any], platform: Platform, certificate: Certificate) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What of the plan's space the certificate's forms are, and the accelerators that they are not."""
    paces, space = [pace for _, pace, _ in certificate.forms], tuple(document.get("space", ()))
    words = space_words(paces) if platform.of_kind(Kind.FPGA) else ()
    uncovered = tuple(w for w in space if w not in words)
    if not set(words) <= set(space) or (not words and paces != [None]):
        raise RefusedError(f"certificate, line {certificate.forms[0][0]}: its forms are {' and '.join(words) or 'none'}, and the "
                           f"plan's space is {'; '.join(space) or 'not stated'}")
    if not all(platform.of_kind(Kind.FPGA) and w.startswith(ACCELERATORS) for w in uncovered):
        raise RefusedError(f"plan, space: {uncovered[0]}, which nothing is known of")
    return words, uncovered


def _board(document: Mapping[str, Any], platform: Platform, certificate: Certificate) -> Platform:
    """The plan's board, which must be the platform with one of the forms, or with an accelerator."""
    said = document["platform"]
    board = platform if isinstance(said, str) else platform_from_dict(said)
    plain = [platform if pace is None else platform.with_pace(pace) for _, pace, _ in certificate.forms]
    plain += [platform.with_accelerator(d.name, d.accelerator) for d in board.devices if d.accelerator is not None]
    if not any(platform_to_dict(p) == platform_to_dict(board) for p in plain):
        raise RefusedError(f"plan, platform: not {platform.name} as it is described, nor with one of the certificate's forms")
    return board


def _check_plan(document: Mapping[str, Any], graph: Graph, board: Platform) -> float:
    """The plan's objective, after its splits, figures and resources have been found as they should be."""
    splits = {name: DividedNode(None if s["axis"] is None else Axis(s["axis"]),
                                tuple((p["device"], p["start"], p["stop"]) for p in s["shares"]), s.get("reducer"))
              for name, s in document["assignment"].items()}
    try:
        found = judge(graph, board, splits)
    except DovetailError as error:
        raise RefusedError(f"plan, {error}") from None
    exact = {"latency_s": found.latency_s, "energy_j": found.energy_j, "interval_s": found.interval_s}
    exact["objective"] = exact[{"latency": "latency_s", "energy": "energy_j", "throughput": "interval_s"}[document["goal"]]]
    for name, value in exact.items():
        if not abs(document[name] - value) <= SLACK * value:
            raise RefusedError(f"plan, {name}: {document[name]!r} stated; the exact sum is {float(value)!r}")
    for (device, resource), limit in limits_of(board).items():
        taken = found.taken[device, resource]
        said = document["resources"].get(device, {}).get(resource, {"used": 0.0})["used"]
        if not abs(said - taken) <= SLACK * (taken + 1):
            raise RefusedError(f"plan, resources of {device}: {said!r} {resource} stated; the exact sum is {float(taken)!r}")
        if taken > limit * (1 + SLACK):
            raise RefusedError(f"plan, resources of {device}: {float(taken)!r} {resource} of {limit!r} that may be used")
    return float(exact["objective"])
