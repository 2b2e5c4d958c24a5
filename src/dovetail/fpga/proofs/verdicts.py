"""What a proof says: of which part, by which method, over how many bits or states, in which time."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from dovetail.errors import ToolError, UnsupportedError


class Ruling(StrEnum):
    """How far a part is proven."""

    PROVEN = "proven"
    """For every input, every stall and all time."""
    BOUNDED = "bounded"
    """For every input and stall, so far as the detail says."""
    SIMULATED = "simulated only"
    """By the frames of `verify` alone."""
    REFUTED = "refuted"
    """There is a counterexample."""


class Method(StrEnum):
    """How a part is proven."""

    SUMS = "linear forms and SMT"
    SMT = "SMT"
    LINEAR = "linear algebra of bits"
    EXHAUSTION = "all states, data as tokens"
    INDUCTION = "induction by SMT"
    NONE = "-"


@dataclass(frozen=True, slots=True)
class Proof:
    """One statement about one part."""

    part: str
    family: str
    states: str
    """The statement, in words."""
    method: Method
    status: Ruling
    size: str = ""
    """Bits or states that it covers."""
    seconds: float = 0.0
    detail: str = ""
    counterexample: Mapping[str, Any] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        return {"part": self.part, "family": self.family, "statement": self.states, "method": self.method.value,
                "status": self.status.value, "size": self.size, "seconds": round(self.seconds, 2), "detail": self.detail,
                "counterexample": dict(self.counterexample)}


def timed(make: Callable[[], Proof], otherwise: Proof) -> Proof:
    """A proof with its time; where it cannot be made, what is known without it, with the reason."""
    began = time.monotonic()
    try:
        found = make()
    except (ToolError, UnsupportedError) as error:
        found = replace(otherwise, detail=str(error))
    return replace(found, seconds=time.monotonic() - began)
