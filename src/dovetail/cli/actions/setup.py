"""What commands on the installation do."""

from __future__ import annotations

import argparse
import webbrowser
from pathlib import Path

import dovetail
from dovetail import terminal
from dovetail.cli.output import emit
from dovetail.doctor import Finding, Presence, as_document, examine
from dovetail.errors import UsageError
from dovetail.files import check_file, replace_text
from dovetail.platform.template import board_template
from dovetail.words import counted, plural

MARKS = {Presence.FOUND: "✓", Presence.MISSING: "–", Presence.BROKEN: "✗"}


def docs_command(options: argparse.Namespace) -> int:
    """Run `dovetail docs`."""
    page = Path(dovetail.__file__).parent / "site" / "index.html"
    if not page.is_file():
        raise UsageError("dovetail docs: no pages are written in the clone that this runs from; run `make docs` there")
    emit(options.json, {"schema": 1, "file": str(page)}, page.as_uri)
    if options.open:
        webbrowser.open(page.as_uri())
    return 0


def doctor_command(options: argparse.Namespace) -> int:
    """Run `dovetail doctor`; 1 where something is there and does not work."""
    found = examine()
    emit(options.json, as_document(found), lambda: _diagnosis(found))
    return 1 if any(f.state is Presence.BROKEN for f in found) else 0


def _diagnosis(found: list[Finding]) -> str:
    rows = [[f"{MARKS[f.state]} {f.name}", f.group, f.found or str(f.state), "; ".join(filter(None, (f.purpose, f.remedy)))]
            for f in found]
    missing = sum(f.state is Presence.MISSING for f in found)
    broken = [f.name for f in found if f.state is Presence.BROKEN]
    verdict = f"{', '.join(broken)} {plural(len(broken), 'does', 'do')} not work" if broken else "nothing is broken"
    return "\n".join([terminal.table(["", "part of", "found", "what for, and how to get it"], rows), "",
                      f"{verdict}; {counted(missing, 'optional part')} {plural(missing, 'is', 'are')} missing"])


def new_board_command(options: argparse.Namespace) -> int:
    """Run `dovetail new-board`."""
    path = options.output or Path(f"{options.name}.toml")
    check_file(path)
    text, numbers = board_template(options.name, options.source)
    replace_text(path, text)
    document = {"schema": 1, "file": str(path), "name": options.name, "from": options.source, "numbers": numbers}
    emit(options.json, document, lambda: f"{path}: {counted(numbers, 'number')} of {options.source}, each to be replaced by that "
         f"of your board, with its source; then `dovetail plan MODEL -p {path if path.is_absolute() else f'./{path}'}`")
    return 0
