"""Every figure, table and claim of the papers with ours beside it: items/PAPER.toml joined with what a run computed.

An entry has a title and one of: `built`, the file that holds a method; `printed`, numbers by what they are; `drawn`, what a
drawing shows; `impossible` or `missing`, why there is nothing. `part` names the part of the paper whose document holds ours,
`record` the record it comes from, `limit` says that printed numbers are the most or the least there may be.
"""

from __future__ import annotations

import json
import subprocess
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from dovetail.processes import answer
from dovetail.reproduce.item import ItemVerdict, PaperItem, PrintedLimit, Value, ValueSource
from dovetail.reproduce.ours import OURS, WHOLE, Documents

QUERY_S = 10.0
"""Seconds that git may take to say which commit wrote a record (chosen)."""
ABSENT = "has no value in this run"


@dataclass(frozen=True, slots=True)
class RecordFile:
    """A committed file of results, the command that writes it, and what that takes."""

    paper: str
    file: str
    command: str
    takes: str

    def origin(self, given: Path | None = None) -> str:
        """Where it lies, when and by which commit it was written, and how to make it anew; `given` is a user's own."""
        path = given or Path(str(resources.files("dovetail.reproduce") / "records" / self.file))
        held: Any = json.loads(path.read_text(encoding="utf-8"))
        commit, _, day = _committed(path).partition(" ")
        date = held.get("date") or day or "no date"
        return f"{given or self.file}, {date}, commit {commit or 'unknown'}; {self.command}; anew: {self.takes}"


RECORDS = {
    "heterogeneity": RecordFile("heterogeneity-2021", "heterogeneity.json", "python bench/heterogeneity.py --json FILE",
                                "minutes"),
    "fibha": RecordFile("compact-2024", "fibha.json", "python bench/fibha.py --json FILE", "22 minutes, or --fresh"),
    "firb": RecordFile("compact-2024", "fibha.json", "python bench/engines.py --part firb --json FILE", "minutes"),
    "gpu_fcm": RecordFile("compact-2024", "gpu_fcm.json", "python bench/gpu_fcm.py --json FILE", "an NVIDIA GPU and 28 minutes"),
    "fused_pairs": RecordFile("compact-2024", "fused_pairs.json", "python bench/fused_pairs.py --json FILE",
                              "an NVIDIA GPU and 15 minutes"),
    "lq": RecordFile("lq-2020", "lq_2020.json", "python bench/lq.py --json FILE", "Verilator, Yosys and hours"),
    "training": RecordFile("lq-2020", "lq_training.json", "python bench/lq_training.py --json FILE",
                       "an NVIDIA GPU, CIFAR-10 and hours")}
"""Records that items come from, by the name items give them."""


SIMULATED = frozenset({"Figure 4.8"})
"""Items that a run simulates when it is to compute everything anew."""


def _committed(path: Path) -> str:
    """Commit and day that wrote a file, nothing outside a checkout."""
    try:
        return answer(["git", "-C", str(path.parent), "log", "-1", "--format=%h %as", "--", path.name], {}, QUERY_S)
    except (OSError, subprocess.SubprocessError):
        return ""


@dataclass(frozen=True, slots=True)
class Run:
    """What was computed for a paper: documents by part, records that were made anew, and records a user gave by name."""

    paper: str
    documents: Documents
    anew: frozenset[str] = frozenset()
    simulated: frozenset[str] = frozenset()
    """Items that a simulation of this run gave."""
    given: Mapping[str, Path] | None = None


@cache
def entries(paper: str) -> dict[str, dict[str, Any]]:
    """What items/PAPER.toml says, by the item's name."""
    source = resources.files("dovetail.reproduce") / "items" / f"{paper}.toml"
    return tomllib.loads(source.read_text(encoding="utf-8"))


def items_of(run: Run) -> tuple[PaperItem, ...]:
    """All items of a paper."""
    origins = {name: record.origin((run.given or {}).get(name)) for name, record in RECORDS.items() if record.paper == run.paper}
    return tuple(_item(run, name, entry, origins) for name, entry in entries(run.paper).items())


def command_of(paper: str, part: str) -> str:
    """The command that computes a part of a paper."""
    flag = {WHOLE: "", "figure 1": " --figure 1", "figure 4": " --figure 4"}.get(part, f" --part {part}")
    return f"dovetail reproduce {paper}{flag}"


def _item(run: Run, name: str, entry: Mapping[str, Any], origins: Mapping[str, str]) -> PaperItem:
    title, reason = entry["title"], entry.get("reason", "")
    for key, verdict in (("missing", ItemVerdict.MISSING), ("impossible", ItemVerdict.IMPOSSIBLE)):
        if key in entry:
            return PaperItem(run.paper, name, title, reason=entry[key], stated=verdict)
    if "built" in entry:
        told = f"{entry['built']}{': ' * bool(reason)}{reason}"
        return PaperItem(run.paper, name, title, reason=told, stated=ItemVerdict.REPRODUCED)
    printed: Mapping[str, float | None] = entry.get("printed") or dict.fromkeys(entry["drawn"])
    try:
        found = OURS[run.paper][name](run.documents)
    except KeyError:
        return PaperItem(run.paper, name, title, reason=ABSENT, stated=ItemVerdict.MISSING)
    limit = PrintedLimit(entry["limit"]) if "limit" in entry else None
    values = tuple(Value(what, number, ours, entry.get("unit", ""), limit)
                   for (what, number), ours in zip(printed.items(), found, strict=True))
    if any(v.ours is None for v in values):
        return PaperItem(run.paper, name, title, values, reason=ABSENT, stated=ItemVerdict.MISSING)
    record: str = entry.get("record", "")
    held = bool(record) and record not in run.anew
    simulated = name in run.simulated
    source = ValueSource.SIMULATED if simulated else ValueSource.RECORD if held else ValueSource.COMPUTED
    origin = origins[record] if held else command_of(run.paper, entry.get("part", WHOLE)) + " --fresh" * simulated
    return PaperItem(run.paper, name, title, values, source, origin, reason, drawn="drawn" in entry)
