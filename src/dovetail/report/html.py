"""The report as one HTML file that needs nothing else: style, script, drawings and the report's own JSON are inside.

A content security policy admits our script by its hash and nothing from anywhere, so a hostile name in a model
stays text even if an escape were missed.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from dovetail.files import replace_text
from dovetail.report.charts import baselines
from dovetail.report.charts import resources as resource_bars
from dovetail.report.gantt import task_details, timeline
from dovetail.report.hardware import hardware
from dovetail.report.headline import headline, sentence
from dovetail.report.markup import Markup, element, embedded_json, join, text
from dovetail.report.network import network, node_details
from dovetail.report.palette import Report, definitions
from dovetail.report.plan_table import plan_table
from dovetail.report.trust import provenance, verification

SECTIONS: tuple[tuple[str, str, Callable[[Report], Markup]], ...] = (
    ("network", "Network", network),
    ("plan", "Plan", plan_table),
    ("timeline", "Timeline", timeline),
    ("resources", "Resources", resource_bars),
    ("baselines", "Alternatives", baselines),
    ("designs", "FPGA", hardware),
    ("verification", "Verification", verification),
    ("provenance", "Provenance", provenance),
)
"""The page below the headline, in reading order: a section's place, its name in the contents, and what draws it."""
BUILT = ("designs", "verification")
"""Sections that a plan alone has nothing for."""

COMPONENTS = ("tips.js", "map.js", "table.js", "gantt.js")
"""Modules of the page, each of which needs no other; the studio has them as well."""
DIGITS = 6
"""Of numbers that stand in the page as data. Chosen: twice as many as people are shown."""
_MODULE = re.compile(r"^import .*\n|^export (?=function|const)", re.M)
"""What makes a module of a script, and must not stand inside another."""
_SLOT = re.compile(r"\{\{(\w+)\}\}")


def render(report: Report) -> str:
    """The whole page for a report made by `collect`."""
    script = bundle()
    shown = [s for s in SECTIONS if report["segments"] or s[0] not in BUILT]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    slots = {
        "title": text(f"{report['model']['name']} on {report['platform']['name']} · Dovetail"),
        "description": text(sentence(report)),
        "policy": text(
            f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; img-src data:; base-uri 'none'; "
            "form-action 'none'"),
        "style": Markup(packaged("page.css")),
        "script": Markup(script),
        "definitions": definitions(),
        "headline": headline(report),
        "contents": element("ol", [element("li", element("a", name, href=f"#{ident}")) for ident, name, _ in shown]),
        "sections": join([make(report) for _, _, make in shown]),
        "details": embedded_json(told_once(details(report))),
        "json": packed(report),
    }
    # One pass over the template only: a name that looks like a slot is not filled again.
    return _SLOT.sub(lambda slot: slots[slot.group(1)], packaged("template.html"))


def rounded(value: Any) -> Any:
    """The same with floats of `DIGITS` digits: a thousand layers have tens of thousands of them."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, dict):
        return {key: rounded(own) for key, own in value.items()}
    return [rounded(own) for own in value] if isinstance(value, list | tuple) else value


def packed(report: Report) -> str:
    """The report for other programs: JSON, compressed with gzip, in base64; a fifth of the page if it stood there plainly."""
    plain = json.dumps(rounded(dict(report)), allow_nan=False, separators=(",", ":")).encode()
    return base64.b64encode(gzip.compress(plain, mtime=0)).decode()


def told_once(shown: Mapping[str, tuple[str, Sequence[tuple[str, str]]]]) -> dict[str, object]:
    """Details whose words stand once, in a list: each has the number of its title, then those of every line's name and text."""
    words = dict[str, int]()
    numbers = {key: [words.setdefault(word, len(words)) for word in (title, *(w for line in lines for w in line))]
               for key, (title, lines) in shown.items()}
    return {"words": list(words), "details": numbers}


def write_report(path: Path | str, report: Report) -> None:
    """Render and write in one step; readers never see half a page."""
    replace_text(path, render(report))


def bundle() -> str:
    """The report's modules as one script: what they import from each other stands before it."""
    parts = [_MODULE.sub("", packaged(name)) for name in (*COMPONENTS, "report.js")]
    return f'"use strict";\n(() => {{\n{"".join(parts)}}})();\n'


def packaged(name: str) -> str:
    """A file of the page."""
    return (resources.files("dovetail.report") / "page" / name).read_text(encoding="utf-8")


def details(report: Report) -> dict[str, tuple[str, list[tuple[str, str]]]]:
    """Title and lines shown of a layer (`n` and its index) or a task (`t` and its index)."""
    shown = {f"n{i}": (n["name"], node_details(n, report)) for i, n in enumerate(report["nodes"])}
    shown |= {f"t{i}": (t["name"], task_details(t)) for i, t in enumerate(report["timeline"]["tasks"])}
    return shown
