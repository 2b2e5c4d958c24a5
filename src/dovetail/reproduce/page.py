"""One page per paper, as Markdown and as HTML that needs nothing else: every item, every drawing, every table of ours."""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path

from dovetail.report.markup import Markup, element, section, table
from dovetail.report.units import count, significant
from dovetail.reproduce.item import DRAWN, NEAR, ItemVerdict, PaperItem, Value
from dovetail.words import counted

ITEMS = "items.json"
"""The items of a page, for programs."""
HEAD = ("item", "what", "paper", "ours", "ratio", "verdict", "why", "source of ours")
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
PRE = "white-space: pre; overflow-x: auto"
RULE = (f"A quantity counts as reproduced within {100 * NEAR:g} % of the printed one, a count where it is equal. A method counts "
        "where it is built; the file that holds it is named. Where the paper only draws, nothing is compared.")


def tally(items: Sequence[PaperItem]) -> str:
    """How many items have which verdict, in words."""
    found = Counter(item.verdict for item in items)
    return f"{counted(len(items), 'item')}: " + ", ".join(f"{found[verdict]} {verdict}" for verdict in ItemVerdict)


def shown(value: float | None) -> str:
    """A number for people: counts whole, all else with three digits."""
    return "–" if value is None else count(value) if abs(value) >= 1000 or float(value).is_integer() else significant(value)


def printed(value: Value) -> str:
    """What the paper says."""
    limit = "" if value.limit is None else f"at {value.limit} "
    return DRAWN if value.printed is None else f"{limit}{value.printed:,.10g} {value.unit}".strip()


def ours(value: Value) -> str:
    """What we find."""
    return f"{shown(value.ours)} {value.unit}".strip()


def ratio(value: Value) -> str:
    return "" if value.ratio is None else significant(value.ratio)


def rows(items: Sequence[PaperItem]) -> Iterator[tuple[str, ...]]:
    """A row for every value, and one for every item without any; what all rows of an item share stands in the first."""
    for item in items:
        source = f"{item.source}: {item.origin}" if item.values else ""
        for i, value in enumerate(item.values or (None,)):
            told = (item.verdict, item.reason, source) if i == 0 else ("", "", "")
            what = item.title if value is None else f"{item.title}: {value.what}" if i == 0 else value.what
            numbers = ("", "", "") if value is None else (printed(value), ours(value), ratio(value))
            yield (item.name if i == 0 else "", what, *numbers, *told)


def markdown(title: str, items: Sequence[PaperItem], drawings: Mapping[str, str], tables: Mapping[str, str]) -> str:
    """The page; drawings are files beside it."""
    lines = [f"# {title}", "", f"{tally(items)}. {RULE}", "", "| " + " | ".join(HEAD) + " |", "|" + "---|" * len(HEAD),
             *("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows(items)), ""]
    if drawings:
        lines += ["## Drawings", "", *(f"![{_caption(svg)}]({name})\n" for name, svg in drawings.items())]
    for command, words in tables.items():
        lines += [f"## `{command}`", "", "```", words, "```", ""]
    return "\n".join(lines)


def html(title: str, items: Sequence[PaperItem], drawings: Mapping[str, str], tables: Mapping[str, str]) -> str:
    """The page in one file."""
    style = (resources.files("dovetail.report") / "page" / "page.css").read_text(encoding="utf-8")
    pictures = [element("p", element("img", src=_embedded(svg), alt=_caption(svg), width="100%", style="max-width: 720px"))
                for svg in drawings.values()]
    head = element("head", element("meta", charset="utf-8"),
                   element("meta", http_equiv="Content-Security-Policy", content=POLICY),
                   element("meta", name="viewport", content="width=device-width, initial-scale=1"),
                   element("meta", name="color-scheme", content="light dark"), element("title", f"{title} · Dovetail"),
                   element("link", rel="icon", href="data:,"), element("style", Markup(style)))
    body = element("main", element("h1", title), element("p", f"{tally(items)}. {RULE}", class_="lede"),
                   section("items", "Figures, tables and claims", table("Paper and ours", HEAD, rows(items), numeric=(4,))),
                   section("drawings", "Drawings", *pictures) if pictures else None,
                   [section(f"table-{i}", command, element("pre", words, tabindex="0", style=PRE))
                    for i, (command, words) in enumerate(tables.items())], class_="page")
    return f"<!DOCTYPE html>\n{element('html', head, element('body', body), lang='en')}\n"


def _embedded(svg: str) -> str:
    return "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()


def _caption(svg: str) -> str:
    """What a drawing says it is."""
    return svg.partition("<title>")[2].partition("</title>")[0]


def write(folder: Path, paper: str, title: str, items: Sequence[PaperItem], drawings: Mapping[str, str],
          tables: Mapping[str, str]) -> None:
    """Both forms of the page, its drawings, and its items as JSON."""
    parts = title, items, drawings, tables
    told = json.dumps([item.document() for item in items], indent=1) + "\n"
    for name, content in {f"{paper}.md": markdown(*parts), f"{paper}.html": html(*parts), ITEMS: told, **drawings}.items():
        (folder / name).write_text(content, encoding="utf-8")


def item_rows(items: Sequence[PaperItem]) -> list[list[str]]:
    """Items for a terminal: paper, item, verdict, both numbers, their ratio, and what they are."""
    return [[items[0].paper if i == 0 else "", name, verdict, *numbers, what]
            for i, (name, what, *numbers, verdict, _, _) in enumerate(rows(items))]
