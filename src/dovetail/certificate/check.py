"""The checker: a plan and its certificate, held against the model and the board; the first wrong line is named.

It asks `ir` what splits read, `cost` what they cost, and works out the rest itself: what the plan costs, in fractions, and that
no plan of the stated space is below the bound. It shares no code with the searches that made the plan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dovetail.certificate.accelerators import Accelerators, accelerator_words
from dovetail.certificate.bound import Prices, SearchedForm
from dovetail.certificate.columns import SLACK, DividedNode, limits_of
from dovetail.certificate.design import fault_of
from dovetail.certificate.file import Certificate, RefusedError, graph_digest, plan_digest
from dovetail.certificate.held import unproven
from dovetail.certificate.judge import judge
from dovetail.errors import DovetailError
from dovetail.ir import Axis, Graph
from dovetail.platform.device import Kind, Platform
from dovetail.platform.load import platform_from_dict, platform_to_dict
from dovetail.progress import Progress, silent

MAPPED = "direct mapping"
"""What FPGAs are without a pace, in the words of a plan's space."""
ACCELERATORS = ("all accelerators of ", "the fastest accelerator of ")
"""How a plan's space begins to speak of what no certificate covers."""
ROUNDED = 1e-7
"""By which part a plan's bound may be above the proven one: both are rounded, and the proven one down."""


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


def space_words(paces: Sequence[int | None]) -> tuple[str, ...]:
    """What forms are called in a plan's space."""
    folded = sorted(p for p in paces if p is not None)
    if None not in paces:
        return (f"folded engines of at most {folded[0]:,} clocks per frame",)
    if not folded:
        return (MAPPED,)
    return MAPPED, f"folded engines at {len(folded)} paces from {folded[0]:,} to {folded[-1]:,} clocks per frame"


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
    covered, uncovered = _space(document, graph, platform, certificate)
    objective = _check_plan(document, graph, _board(document, graph, platform, certificate))
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
    for claim in (c for c in certificate.accelerators if c.proves):
        if (found := unproven(claim, graph, platform, certificate.goal, certificate.bound, pins)) is not None:
            raise RefusedError(f"certificate, line {found[0]}: {found[1]}")
    progress("forms", len(certificate.forms), len(certificate.forms))
    return Verdict(certificate.goal, objective, certificate.bound, covered, uncovered)


def _space(document: Mapping[str, Any], graph: Graph, platform: Platform,
           certificate: Certificate) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What of the plan's space the certificate's forms are, and the accelerators that they are not."""
    paces, space = [pace for _, pace, _ in certificate.forms], tuple(document.get("space", ()))
    first = next(line for line, *_ in (*certificate.forms, *((c.line,) for c in certificate.accelerators)))
    words = covered = space_words(paces) if platform.of_kind(Kind.FPGA) and paces else ()
    for claim in certificate.accelerators:
        if claim.stop > len(graph.nodes):
            raise RefusedError(f"certificate, line {claim.line}: nodes up to {claim.stop} of {len(graph.nodes)}")
        name = accelerator_words(graph, claim.kinds, claim.start, claim.stop,
                                 claim.proves or certificate.goal != "energy")
        words, covered = (*words, name), (*covered, name) if claim.proves else covered
    uncovered = tuple(w for w in space if w not in covered)
    if not set(words) <= set(space) or len(set(words)) != len(words) or (not words and paces != [None]):
        raise RefusedError(f"certificate, line {first}: its forms are {' and '.join(words) or 'none'}, and the plan's space is "
                           f"{'; '.join(space) or 'not stated'}")
    if not all(platform.of_kind(Kind.FPGA) and w.startswith(ACCELERATORS) for w in uncovered):
        raise RefusedError(f"plan, space: {uncovered[0]}, which nothing is known of")
    return covered, uncovered


def _board(document: Mapping[str, Any], graph: Graph, platform: Platform, certificate: Certificate) -> Platform:
    """The plan's board, which must be the platform with one of the forms, or with an accelerator of the stated space."""
    said = document["platform"]
    board = platform if isinstance(said, str) else platform_from_dict(said)
    plain = [platform if pace is None else platform.with_pace(pace) for _, pace, _ in certificate.forms]
    designs = [(d, d.accelerator) for d in board.devices if d.accelerator is not None]
    plain += [platform.with_accelerator(d.name, design) for d, design in designs]
    if not any(platform_to_dict(p) == platform_to_dict(board) for p in plain):
        raise RefusedError(f"plan, platform: not {platform.name} as it is described, nor with one of the certificate's forms")
    for device, design in designs if certificate.accelerators else ():
        try:
            faults = [fault_of(Accelerators(graph, platform.device(device.name), c.kinds, c.start, c.stop), design)
                      for c in certificate.accelerators]
        except DovetailError as error:
            faults = [str(error)]
        if None not in faults:
            raise RefusedError(f"plan, platform: the accelerator of {device.name} is none of the stated space; {faults[0]}")
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
