"""Figures that README and docs state, held against the committed records they come from.

`python bench/check_figures.py [--uncited] [--json FILE]`. `docs/figures.toml` names every cited figure: the text around it, with
`{}` where a number stands (`{…}` for any words of a cell), and what the number is, computed from records. A number must be the
recorded value, rounded to the digits that are stated. The script names document, line, stated and recorded value of each that is
not, and ends with 1. In documents that are checked whole (`whole` in the table) a figure without a record must be named under
`dated`, with where it comes from. `--uncited` lists all others: numbers with a unit, a decimal point or thousands.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from dovetail.errors import DovetailError
from dovetail.files import replace_text

ROOT = Path(__file__).parents[1]
TABLE = ROOT / "docs" / "figures.toml"
NUMBER = r"[-−+]?\d[\d,]*(?:\.\d+)?(?:e[-−]?\d+)?"
UNIT = r"(?:[µmn]?s|minutes|%|×|times|frames/s|frames|clocks|LUT4?|ALMs?|registers|BRAM36|M20K|DSPs?|MHz|[mµn]J|dB|[kM]B|points)"
FIGURE = re.compile(rf"(?<![\w.-])(?:\d[\d,]*\.\d+(?:e[-−]?\d+)?(?![\d.]*\.\d)|\d{{1,3}}(?:,\d{{3}})+|\d+(?= ?{UNIT}(?!\w)))")
FUNCTIONS = {"min": min, "max": max, "median": median, "sum": sum, "len": len, "abs": abs}


@dataclass(frozen=True, slots=True)
class Cited:
    """A sentence of a document with its figures, and the expression over records for each."""

    document: str
    text: str
    expressions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Finding:
    """A figure that is wrong, or that nobody can check."""

    document: str
    line: int
    problem: str

    def __str__(self) -> str:
        return f"{self.document}:{self.line}: {self.problem}"


@dataclass(frozen=True, slots=True)
class Text:
    """A document as one line, so that a sentence is found however it is wrapped; `starts` are its offsets line by line."""

    words: str
    starts: tuple[int, ...]

    def line(self, offset: int) -> int:
        return int(np.searchsorted(self.starts, offset, side="right"))


@dataclass(frozen=True, slots=True)
class Table:
    """The table of figures: records by name, cited sentences, sentences of dated figures, documents that are checked whole."""

    records: Mapping[str, str]
    cited: tuple[Cited, ...]
    dated: Mapping[str, Mapping[str, str]]
    whole: tuple[str, ...]


def read_table(path: Path) -> Table:
    found = tomllib.loads(path.read_text(encoding="utf-8"))
    names: dict[str, dict[str, str]] = found.get("names", {})
    cited = tuple(entry for document, lines in found["cited"].items() for text, expressions in lines.items()
                  for entry in expand(document, text, [expressions] if isinstance(expressions, str) else expressions, names))
    return Table(found["records"], cited, found.get("dated", {}), tuple(found.get("whole", ())))


def expand(document: str, text: str, expressions: list[str], names: Mapping[str, Mapping[str, str]]) -> Iterator[Cited]:
    """One entry for every choice of the `$names` in a text: a row of a table for each network, say."""
    used = [name for name in names if f"${name}" in text]
    for choice in product(*(names[name].items() for name in used)):
        said, meant = text, list(expressions)
        for name, (words, key) in zip(used, choice, strict=True):
            said = said.replace(f"${name}", words)
            meant = [expression.replace(f"${name}", key) for expression in meant]
        yield Cited(document, said, tuple(meant))


def read_text(path: Path) -> Text:
    words, starts = "", []
    for line in path.read_text(encoding="utf-8").splitlines():
        starts.append(len(words))
        words += " ".join(line.split()) + " " if line.strip() else ""
    return Text(words, tuple(starts))


def pattern(text: str) -> re.Pattern[str]:
    """A sentence with a number for each `{}` and any words of a cell for each `{…}`."""
    said = f"({NUMBER})".join(re.escape(part) for part in " ".join(text.split()).split("{}"))
    return re.compile(said.replace(re.escape("{…}"), "[^|]*"))


def follow(value: Any, keys: list[str], path: str) -> Any:
    """What lies under keys of a record; `*` is all there are, as an array."""
    if not keys:
        return value
    if keys[0] == "*":
        inner = value.values() if isinstance(value, dict) else value
        return np.array([follow(entry, keys[1:], path) for entry in inner]).ravel()
    try:
        return follow(value[int(keys[0]) if isinstance(value, list) else keys[0]], keys[1:], path)
    except (KeyError, IndexError, ValueError, TypeError):
        raise DovetailError(f"the record has no {path}: stopped at {keys[0]}") from None


def evaluate(expression: str, records: Mapping[str, Any]) -> float:
    """An expression in which `<record/key/key>` is a value of a record."""
    values: list[Any] = []

    def taken(match: re.Match[str]) -> str:
        name, *keys = match[1].split("/")
        if name not in records:
            raise DovetailError(f"there is no record {name}; records are {', '.join(sorted(records))}")
        values.append(follow(records[name], keys, match[1]))
        return f"_[{len(values) - 1}]"

    code = re.sub(r"<([^<>]+)>", taken, expression)
    return float(eval(code, {"__builtins__": {}, "_": values, **FUNCTIONS}))


def agrees(stated: str, recorded: float) -> bool:
    """Whether a number is the recorded one, rounded to the digits that are stated."""
    digits, _, exponent = stated.replace(",", "").replace("−", "-").partition("e")
    step = 10.0 ** (int(exponent or 0) - len(digits.partition(".")[2]))
    return abs(float(digits) * 10.0 ** int(exponent or 0) - recorded) <= step * (0.5 + 1e-6)


def check_cited(entry: Cited, text: Text, records: Mapping[str, Any]) -> tuple[list[Finding], list[tuple[int, int]]]:
    """What is wrong with one sentence, and where its figures stand."""
    matches = list(pattern(entry.text).finditer(text.words))
    if not matches:
        return [Finding(entry.document, 1, f"no longer says \"{entry.text}\"; change its line in {TABLE.name}")], []
    wrong: list[Finding] = []
    for match in matches:
        if len(match.groups()) != len(entry.expressions):
            raise DovetailError(f"{TABLE.name}: \"{entry.text}\" has {len(match.groups())} figures, not {len(entry.expressions)}")
        for index, expression in enumerate(entry.expressions, 1):
            recorded = evaluate(expression, records)
            if not agrees(match[index], recorded):
                wrong.append(Finding(entry.document, text.line(match.start(index)),
                                     f"states {match[index]} in \"{entry.text}\", the record has {recorded:.6g} ({expression})"))
    return wrong, [match.span(index) for match in matches for index in range(1, len(entry.expressions) + 1)]


def uncited(document: str, text: Text, spans: list[tuple[int, int]]) -> Iterator[Finding]:
    """Figures of a document that no entry covers."""
    for match in FIGURE.finditer(text.words):
        if not any(start <= match.start() < end for start, end in spans):
            around = text.words[max(0, match.start() - 30):match.end() + 20].strip()
            yield Finding(document, text.line(match.start()), f"{match[0]} has no record: \"{around}\"")


def dated_spans(table: Table, document: str, text: Text) -> Iterator[tuple[int, int]]:
    for sentence in table.dated.get(document, {}):
        found = [match.span() for match in re.finditer(re.escape(" ".join(sentence.split())), text.words)]
        if not found:
            raise DovetailError(f"{TABLE.name}: {document} no longer says \"{sentence}\", which is named as dated")
        yield from found


def check(table: Table, root: Path = ROOT) -> tuple[list[Finding], list[Finding], int]:
    """What is wrong, what has no record in documents that are not checked whole, and how many figures were compared."""
    load = cache(lambda name: json.loads((root / table.records[name]).read_text(encoding="utf-8")))
    records = {name: load(name) for name in table.records}
    documents = [Path("README.md"), *sorted(path.relative_to(root) for path in (root / "docs").rglob("*.md"))]
    wrong: list[Finding] = []
    without: list[Finding] = []
    compared = 0
    for document in map(str, documents):
        text = read_text(root / document)
        spans = list(dated_spans(table, document, text))
        for entry in table.cited:
            if entry.document == document:
                found, covered = check_cited(entry, text, records)
                wrong += found
                spans += covered
                compared += len(covered)
        (wrong if document in table.whole else without).extend(uncited(document, text, spans))
    return wrong, without, compared


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--uncited", action="store_true", help="list every figure without a record")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    try:
        wrong, without, compared = check(read_table(TABLE))
    except DovetailError as error:
        print(error, file=sys.stderr)
        return 2
    for finding in [*wrong, *(without if options.uncited else [])]:
        print(finding)
    counts = {document: sum(finding.document == document for finding in without) for document in {f.document for f in without}}
    print(f"{compared} figures compared with records, {len(wrong)} wrong; without a record: "
          + ", ".join(f"{count} in {document}" for document, count in sorted(counts.items())))
    if options.json:
        result = {"compared": compared, "wrong": [str(finding) for finding in wrong], "uncited": counts}
        replace_text(options.json, json.dumps(result, indent=1) + "\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
