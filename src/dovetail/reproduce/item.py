"""One figure, table or numbered claim of a paper with ours beside it: the record that terminal, page and docs are written from.

A `PaperItem` has values (what the paper prints, what we find), a source that says where ours come from, and a reason. Its
verdict follows from the values; it is stated only where there is nothing to compare: a method that is built, a thing that
cannot be had, a thing that is not built yet.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

NEAR = 0.05
"""Part of a printed quantity by which ours may be away and still count as reproduced (chosen); counts must be equal."""
DRAWN = "drawn, not readable"
"""Stands for values that only a drawing holds."""


class ValueSource(StrEnum):
    """Where our values come from."""

    COMPUTED = "computed now"
    SIMULATED = "simulated now"
    RECORD = "read from a record"


class PrintedLimit(StrEnum):
    """What a printed value is where ours need not equal it."""

    MOST = "most"
    LEAST = "least"


class ItemVerdict(StrEnum):
    """What became of an item."""

    REPRODUCED = "reproduced"
    DIFFERS = "differs"
    IMPOSSIBLE = "not possible"
    MISSING = "not built yet"


@dataclass(frozen=True, slots=True)
class Value:
    """One number of an item: the paper's, None where it is only drawn, and ours, None where there is none.

    A value without a unit is a count.
    """

    what: str
    printed: float | None
    ours: float | None
    unit: str = ""
    limit: PrintedLimit | None = None

    @property
    def ratio(self) -> float | None:
        """Ours over the paper's; None without both."""
        return self.ours / self.printed if self.printed and self.ours is not None else None

    @property
    def agrees(self) -> bool:
        """Whether ours is the printed value, or near it. A drawn value agrees with anything that is there."""
        if self.printed is None or self.ours is None:
            return self.printed is None and self.ours is not None
        if self.limit is not None:
            return self.ours <= self.printed if self.limit is PrintedLimit.MOST else self.ours >= self.printed
        return abs(self.ours - self.printed) <= (NEAR if self.unit else 1e-9) * abs(self.printed)


@dataclass(frozen=True, slots=True)
class PaperItem:
    """A figure, table or claim of a paper, by its name in tests/reproduce/papers.toml."""

    paper: str
    name: str
    title: str
    values: tuple[Value, ...] = ()
    source: ValueSource = ValueSource.COMPUTED
    origin: str = ""
    """The command that gives our values; of a record its file, date, command and commit."""
    reason: str = ""
    """Why ours differ, why there can be none, or by which files a method is built."""
    stated: ItemVerdict | None = None
    """The verdict where no values are compared."""
    drawn: bool = False
    """Whether the paper's values are in a drawing only."""

    @property
    def verdict(self) -> ItemVerdict:
        if self.stated is not None:
            return self.stated
        return ItemVerdict.REPRODUCED if all(v.agrees for v in self.values) else ItemVerdict.DIFFERS

    def document(self) -> dict[str, Any]:
        """As JSON, with the verdict, ratios, and which values agree."""
        return {**asdict(self), "verdict": self.verdict, "values": [
            {**asdict(v), "ratio": v.ratio, "agrees": v.agrees} for v in self.values]}
