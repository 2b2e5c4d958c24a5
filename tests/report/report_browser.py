"""A page in headless Chromium: its document after the scripts ran, and whatever the console said."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path

import pytest

from dovetail.report.markup import VOID

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--enable-logging=stderr",
    "--v=0",
)


def browse(page: str, folder: Path, *, width: int = 1400) -> tuple[str, list[str]]:
    """Open a page from a file; return the serialized document and the console's lines."""
    chromium = shutil.which(os.environ.get("DOVETAIL_CHROMIUM", "chromium"))
    if chromium is None:
        pytest.fail("headless Chromium is needed to test the report: apt-get install chromium")
    file = folder / "page.html"
    file.write_text(page, encoding="utf-8")
    with tempfile.TemporaryDirectory(dir=folder, ignore_cleanup_errors=True) as profile:
        done = subprocess.run(
            [chromium, *FLAGS, f"--user-data-dir={profile}", f"--window-size={width},1200", "--dump-dom", file.as_uri()],
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=600,
            check=True,
        )
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


@dataclass
class Element:
    """An element of a parsed page."""

    tag: str
    attributes: dict[str, str]
    children: list[Element] = field(default_factory=list)
    words: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(self.words)

    def all(self, tag: str | None = None, **attributes: str) -> list[Element]:
        """Descendants by tag and attributes; `data_node` means data-node, `class_` one of the classes."""
        wanted = {k.rstrip("_").replace("_", "-"): v for k, v in attributes.items()}
        found = []
        for child in self.children:
            same = all(
                v in child.attributes.get(k, "").split() if k == "class" else child.attributes.get(k) == v
                for k, v in wanted.items()
            )
            found += [child] if same and tag in (None, child.tag) else []
            found += child.all(tag, **attributes)
        return found

    def one(self, tag: str | None = None, **attributes: str) -> Element:
        found = self.all(tag, **attributes)
        assert len(found) == 1, f"{len(found)} elements are {tag} {attributes}"
        return found[0]


class _Parser(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open = [Element("#document", {})]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), f"<{tag}> states an attribute twice: {names}"
        element = Element(tag, {name: value or "" for name, value in attrs})
        self.open[-1].children.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_endtag(self, tag: str) -> None:
        assert self.open[-1].tag == tag, f"</{tag}> closes <{self.open[-1].tag}> at {self.getpos()}"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        for element in self.open:
            element.words.append(data)


def parse(page: str) -> Element:
    """The page as a tree; fails unless every element is closed in order."""
    parser = _Parser()
    parser.feed(page)
    parser.close()
    assert len(parser.open) == 1, f"left open: {[e.tag for e in parser.open[1:]]}"
    return parser.open[0]
