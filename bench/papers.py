"""The four papers, item by item: what docs/reproduction.md says became of every figure, table and claim.

`python bench/papers.py [--json FILE]` counts verdicts and compares the page with tests/reproduce/papers.toml; it ends with 1
where an item is missing from either. `--write DIR` writes the pages anew from what `dovetail reproduce all -o DIR` found, or
those of one paper from `dovetail reproduce PAPER -o DIR/PAPER`.
`--captions DIR` counts figures, tables and equations in the papers' texts and compares the counts with those in papers.toml.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dovetail.files import replace_text
from dovetail.reproduce.item import DRAWN, ItemVerdict
from dovetail.reproduce.page import RULE, shown
from dovetail.reproduce.papers import PAPERS

ROOT = Path(__file__).parents[1]
LIST = ROOT / "tests" / "reproduce" / "papers.toml"
PAGE = ROOT / "docs" / "reproduction.md"
DETAILS = ROOT / "docs" / "reproduction"
LINE = re.compile(rf"- (.+?): ({'|'.join(ItemVerdict)})\b(.*)")
WIDTH = 120
"""Characters of a line of docs."""
KEYS = {ItemVerdict.REPRODUCED: "reproduced", ItemVerdict.DIFFERS: "differs", ItemVerdict.IMPOSSIBLE: "impossible",
        ItemVerdict.MISSING: "missing"}
CAPTIONS = {
    "figures": r"(?:Figures?|Fig)\.?\s*\[?(\d+(?:\.\d+)?)",
    "tables": r"(?:Table|TABLE)\s*\[?([IVX]+\b|\d+(?:\.\d+)?)",
    "equations": r"(?:Eq\.|Equation|function) ?(\d+)|\\n\((\d\.\d)\)"}
"""What names a figure, a table or an equation in a text."""


@dataclass(frozen=True, slots=True)
class Listed:
    """A line of the page: item, verdict, and what follows it."""

    paper: str
    item: str
    verdict: ItemVerdict
    rest: str


def papers(path: Path = LIST) -> dict[str, dict[str, Any]]:
    """The list of items, by paper."""
    return tomllib.loads(path.read_text(encoding="utf-8"))


def read(path: Path = PAGE) -> list[Listed]:
    """Every line of the page that holds an item."""
    paper, found = "", []
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            paper = line.removeprefix("## ").strip()
        elif match := LINE.fullmatch(line):
            found.append(Listed(paper, match[1], ItemVerdict(match[2]), match[3]))
    return found


def problems(listed: Sequence[Listed], wanted: Mapping[str, Any]) -> Iterator[str]:
    """Items that stand in the list or on the page only, and lines that say too little."""
    on_page = [(line.paper, line.item) for line in listed]
    in_list = [(paper, item) for paper, entry in wanted.items() for item in entry["items"]]
    yield from (f"{PAGE.name} has no line for {paper}, {item}" for paper, item in in_list if (paper, item) not in on_page)
    yield from (f"{LIST.name} does not have {paper}, {item}" for paper, item in on_page if (paper, item) not in in_list)
    yield from (f"{paper}, {item} stands twice in {PAGE.name}" for (paper, item), n in Counter(on_page).items() if n > 1)
    for line in listed:
        numbers = re.findall(r"\d[\d,.]*", line.rest)
        if line.verdict is ItemVerdict.DIFFERS and len(numbers) < 2:
            yield f"{line.paper}, {line.item} differs, and {PAGE.name} has not both numbers"


def counts(listed: Sequence[Listed]) -> dict[str, Any]:
    """How many items have which verdict, and which; of how many numbers are compared, and how many are only drawn."""
    found = {key: [f"{line.paper}: {line.item}" for line in listed if line.verdict is verdict] for verdict, key in KEYS.items()}
    told = len(found["reproduced"]) + len(found["differs"])
    return {"items": len(listed), **{key: len(names) for key, names in found.items()},
            "compared": sum(", ours " in line.rest for line in listed), "drawn": sum(DRAWN in line.rest for line in listed),
            "part_told": told / len(listed) if listed else 0.0, "by_verdict": found}


def captions(text: str) -> dict[str, int]:
    """Distinct figures, tables and equations that a text names; equations of reference lists and years are none."""
    body = re.split(r"\n#* ?(?:REFERENCES|References|Bibliography)\n", text)[0]
    return {kind: len({next(filter(None, m.groups()), None) for m in re.finditer(pattern, body)} - {None})
            for kind, pattern in CAPTIONS.items()}


def _both(value: Mapping[str, Any]) -> str:
    limit = f"at {value['limit']} " if value["limit"] else ""
    return shown(value["ours"]) if value["printed"] is None else f"{limit}{value['printed']:,.10g}, ours {shown(value['ours'])}"


def _numbers(item: Mapping[str, Any]) -> str:
    """Two values of an item in few words: those that do not agree, else the first."""
    told = [_both(v) for v in sorted(item["values"], key=lambda v: v["agrees"]) if v["printed"] is not None]
    unit = next((v["unit"] for v in item["values"] if v["unit"]), "")
    return f"{'; '.join(told[:2])}{' ' * bool(unit)}{unit}"


def _line(item: Mapping[str, Any]) -> str:
    """The one line of an item."""
    told = DRAWN if item["drawn"] else _numbers(item) if item["values"] else ""
    return f"- {item['name']}: {item['verdict']}{'; ' * bool(told)}{told}."


def _details(paper: str, items: Sequence[Mapping[str, Any]]) -> str:
    """The page of a paper: what each item is, all numbers, why they differ, and the command or record they come from."""
    lines = [f"# {PAPERS[paper].title}, item by item", "", *_wrapped(
        f"One line per item, as in [reproduction.md](../reproduction.md). Numbers: the paper's, then ours. `dovetail reproduce "
        f"{paper}` prints ours, with the flag that ends a line; a record is named where they come from one."), ""]
    for item in items:
        values = "; ".join(f"{v['what']} {_both(v)}" for v in item["values"])
        unit = next((f" ({v['unit']})" for v in item["values"] if v["unit"]), "")
        source = _source(item) if item["values"] else ""
        reason = item["reason"] if item["values"] else re.sub(r"\b(src/[\w./-]+)", r"`\1`", item["reason"])
        because = "differs because: " if item["verdict"] == ItemVerdict.DIFFERS and reason else ""
        parts = [f"**{item['name']}** ({item['verdict']}): {item['title']}", f"{values}{unit}" if values else "",
                 f"{because}{reason}", source]
        lines.append(f"- {'. '.join(part[:1].upper() + part[1:] for part in filter(None, parts))}.")
    return "\n".join(lines) + "\n"


def _source(item: Mapping[str, Any]) -> str:
    """Where our numbers come from, in few words: the record's file, or the flag of the command."""
    flag = item["origin"].removeprefix(f"dovetail reproduce {item['paper']}").strip()
    return f"Record {item['origin'].split(',')[0]}" if item["source"] == "read from a record" else f"`{flag}`" if flag else ""


def sections(text: str) -> dict[str, list[str]]:
    """The page's lines by paper."""
    parts = re.split(r"^## (.+)$", text, flags=re.M)
    return {paper.strip(): lines.strip().splitlines() for paper, lines in zip(parts[1::2], parts[2::2], strict=True)}


def write(folder: Path) -> None:
    """The page and its details anew, from the folder of `dovetail reproduce all -o`; papers that it does not have stay."""
    kept = sections(PAGE.read_text(encoding="utf-8"))
    lines = ["# The four papers, item by item", "", *_wrapped(
        f"`python bench/papers.py` counts these lines; tests compare them with `{LIST.relative_to(ROOT)}`. {RULE} Details, "
        "reasons and sources: [heterogeneity-2021](reproduction/heterogeneity-2021.md), [gp-2023](reproduction/gp-2023.md), "
        "[lq-2020](reproduction/lq-2020.md), [compact-2024](reproduction/compact-2024.md). `dovetail reproduce all -o DIR` "
        "computes everything; `python bench/papers.py --write DIR` writes these pages from it.")]
    for paper in papers():
        found = folder / paper / "items.json"
        if not found.is_file():
            lines += ["", f"## {paper}", "", *kept[paper]]
            continue
        items = json.loads(found.read_text(encoding="utf-8"))
        lines += ["", f"## {paper}", "", *map(_line, items)]
        replace_text(DETAILS / f"{paper}.md", _details(paper, items))
    replace_text(PAGE, "\n".join(lines) + "\n")


def _wrapped(text: str) -> list[str]:
    lines = [""]
    for word in text.split():
        lines = [*lines[:-1], f"{lines[-1]} {word}".strip()] if len(lines[-1]) + len(word) < WIDTH else [*lines, word]
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--write", type=Path, metavar="DIR", help="write docs/reproduction.md and its details from this folder")
    parser.add_argument("--captions", type=Path, metavar="DIR", help="count captions in the papers' texts")
    options = parser.parse_args()
    wanted = papers()
    wrong = []
    if options.captions:
        for paper, entry in wanted.items():
            found = captions((options.captions / entry["text"]).read_text(encoding="utf-8"))
            print(f"{paper}: " + ", ".join(f"{count} {kind}" for kind, count in found.items()))
            wrong += [f"{paper}: the text names {found[kind]} {kind}, {LIST.name} says {entry['captions'][kind]}"
                      for kind in found if found[kind] != entry["captions"][kind]]
    if options.write:
        write(options.write)
    listed = read()
    wrong += problems(listed, wanted)
    result = counts(listed)
    print("\n".join([*wrong, ", ".join(f"{result[key]} {key}" for key in ("items", *KEYS.values(), "compared", "drawn"))
                     + f"; reproduced or told apart: {result['part_told']:.1%}"]))
    if options.json:
        replace_text(options.json, json.dumps(result, indent=1) + "\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
