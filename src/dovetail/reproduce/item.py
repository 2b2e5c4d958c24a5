"""One figure, table or numbered claim of a paper with ours beside it: the record that terminal, page and docs are written from.

An `Item` has values (what the paper prints, what we find), a source that says where ours come from, and a reason. Its verdict
follows from the values; it is stated only where there is nothing to compare: a method that is built, a thing that cannot be had,
a thing that is not built yet.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

NEAR = 0.05
"""Part of a printed value by which ours may be away and still count as reproduced (chosen)."""
DRAWN = "drawn, not readable"
"""Stands for values that only a drawing holds."""


class Source(StrEnum):
    """Where our values come from."""

    COMPUTED = "computed now"
    SIMULATED = "simulated now"
    RECORD = "read from a record"


class Verdict(StrEnum):
    """What became of an item."""

    REPRODUCED = "reproduced"
    DIFFERS = "differs because"
    IMPOSSIBLE = "not possible because"
    MISSING = "not built yet"


@dataclass(frozen=True, slots=True)
class Value:
    """One number of an item: the paper's, None where it is only drawn, and ours, None where there is none."""

    what: str
    printed: float | None
    ours: float | None
    unit: str = ""

    @property
    def ratio(self) -> float | None:
        """Ours over the paper's; None without both."""
        return self.ours / self.printed if self.printed and self.ours is not None else None

    @property
    def agrees(self) -> bool:
        """Whether ours is the printed value, or near it. A drawn value agrees with anything that is there."""
        if self.printed is None or self.ours is None:
            return self.printed is None and self.ours is not None
        return abs(self.ours - self.printed) <= NEAR * abs(self.printed)


@dataclass(frozen=True, slots=True)
class Item:
    """A figure, table or claim of a paper, by its name in tests/reproduce/papers.toml."""

    paper: str
    name: str
    title: str
    values: tuple[Value, ...] = ()
    source: Source = Source.COMPUTED
    origin: str = ""
    """The command that gives our values; of a record its file, date, command and commit."""
    reason: str = ""
    """Why ours differ, why there can be none, or by which files a method is built."""
    stated: Verdict | None = None
    """The verdict where no values are compared."""
    drawn: bool = False
    """Whether the paper's values are in a drawing only."""

    @property
    def verdict(self) -> Verdict:
        if self.stated is not None:
            return self.stated
        return Verdict.REPRODUCED if all(v.agrees for v in self.values) else Verdict.DIFFERS
