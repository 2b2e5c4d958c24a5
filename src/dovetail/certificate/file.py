"""Certificates as files: one statement in a line, read strictly, and the digests that tie them to a network and a plan."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any

import numpy as np

from dovetail.certificate.accelerators import ARRAYS, CUT_AT, NOTHING, AcceleratorClaim, Box, CutPrices
from dovetail.errors import DovetailError
from dovetail.ir import Graph
from dovetail.platform.accelerator import Architecture

HEADER = "dovetail certificate 1"
GOALS = ("latency", "energy", "throughput")
HEADS = ("command", "graph", "plan", "goal", "bound")
"""What the lines behind the header begin with."""
KINDS = {kind.value: kind for kind in CUT_AT}
"""Kinds of accelerators, by the words of a certificate."""

Form = tuple[int, int | None, Mapping[str, float]]
"""A line, a pace or None for direct mapping, and prices."""


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
    forms: tuple[Form, ...]
    accelerators: tuple[AcceleratorClaim, ...] = ()

    def text(self) -> str:
        """The certificate as a file, the digest of all lines last."""
        lines = [HEADER, f"command {self.command}", f"graph {self.graph}", f"plan {self.plan}", f"goal {self.goal}",
                 f"bound {float(self.bound)!r}"]
        for _, pace, prices in self.forms:
            lines.append("form direct" if pace is None else f"form folded {pace}")
            lines += [f"price {float(value)!r} {name}" for name, value in prices.items() if value]
        for claim in self.accelerators:
            lines += claim.lines()
        return "\n".join([*lines, f"sha256 {_digest(lines)}", ""])


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


def read(text: str) -> Certificate:
    """The certificate that a file holds; RefusedError names the first line that is not as it should be."""
    lines = text.split("\n")
    if lines[:1] != [HEADER]:
        raise RefusedError(f"certificate, line 1: {lines[0][:40]!r} found; {HEADER!r} is needed")
    if len(lines) < 3 or lines[-1] or lines[-2] != f"sha256 {_digest(lines[:-2])}":
        raise RefusedError(f"certificate, line {max(1, len(lines) - 1)}: it is not the digest of the lines before it; the file "
                           "is incomplete or edited")
    said: dict[str, str] = {}
    for number, name in enumerate(HEADS, 2):
        first, _, rest = lines[number - 1].partition(" ")
        if first != name or not rest:
            raise RefusedError(f"certificate, line {number}: {lines[number - 1][:40]!r} found; `{name} ...` is needed")
        said[name] = rest
    if said["goal"] not in GOALS:
        raise RefusedError(f"certificate, line 5: goal {said['goal']}; possible: {', '.join(GOALS)}")
    forms, claims = _forms(lines[6:-2])
    if len({pace for _, pace, _ in forms}) != len(forms) or not (forms or claims):
        raise RefusedError("certificate, line 7: no form, or one twice; each needs prices of its own")
    bound = _number(6, said["bound"])
    if not bound:
        raise RefusedError("certificate, line 6: a bound of 0 says nothing")
    return Certificate(said["command"], said["graph"], said["plan"], said["goal"], bound, forms, claims)


def _forms(lines: Sequence[str]) -> tuple[tuple[Form, ...], tuple[AcceleratorClaim, ...]]:
    """What the lines from the seventh on say of each form."""
    forms, claims, prices = list[Form](), list[AcceleratorClaim](), dict[str, float]()
    for number, line in enumerate(lines, 7):
        match line.split(" "):
            case ["form", "direct"] if not claims:
                forms.append((number, None, prices := {}))
            case ["form", "folded", pace] if not claims and _natural(pace) > 0:
                forms.append((number, _natural(pace), prices := {}))
            case ["form", "accelerators", kinds, start, stop] if (
                    set(kinds.split(",")) <= KINDS.keys() and 0 <= _natural(start) < _natural(stop)):
                named: tuple[Architecture, ...] = tuple(KINDS[kind] for kind in kinds.split(","))
                claims.append(AcceleratorClaim(number, named, _natural(start), _natural(stop), NOTHING, prices := {}, ()))
            case ["least", value] if claims and claims[-1].least < 0 and not claims[-1].prices:
                claims[-1] = replace(claims[-1], least=_number(number, value))
            case [("phase" | "arrays") as of, *rest] if (
                    claims and claims[-1].cuts and not prices and _limit(of, rest).keys() - claims[-1].cuts[-1].box.keys()):
                *before, own = claims[-1].cuts
                claims[-1] = replace(claims[-1], cuts=(*before, replace(own, box={**own.box, **_limit(of, rest)})))
            case ["cuts", first, last] if claims and claims[-1].least >= 0 and 0 <= _natural(first) <= _natural(last):
                own = CutPrices(number, _natural(first), _natural(last), prices := {})
                claims[-1] = replace(claims[-1], cuts=(*claims[-1].cuts, own))
            case ["price", value, *words] if (forms or (claims and claims[-1].least >= 0)) and " ".join(words) not in prices:
                prices[" ".join(words)] = _number(number, value)
            case _:
                raise RefusedError(f"certificate, line {number}: {line[:60]!r} says nothing that is known")
    return tuple(forms), tuple(claims)


def _limit(of: str, words: Sequence[str]) -> Box:
    """A limit of a box, of a phase by its number or of arrays; nothing for anything else."""
    said = words if of == "phase" else ("0", *words)
    number, low, high = map(_natural, said) if len(said) == 3 else (-1, 0, 0)
    return {number if of == "phase" else ARRAYS: (low, high)} if number >= 0 and 0 <= low < high else {}


def _natural(text: str) -> int:
    """A number without a sign; -1 for anything else."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else -1


def _number(line: int, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not (isfinite(value) and value >= 0):
        raise RefusedError(f"certificate, line {line}: {text[:40]!r} is not a number from 0 on")
    return value
