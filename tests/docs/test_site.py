"""The documentation as pages: written without network, whole, read without a server, in every wheel, found by a command."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
from tests.chromium import chromium

import dovetail
from dovetail.cli import main

ROOT = Path(__file__).parents[2]
FETCHED = {"src", "srcset", "poster", "data", "background"}
"""Attributes whose address a browser loads without being asked."""
OFFLINE = """
import socket, runpy, sys
def refuse(*_): raise SystemExit("the network was asked for")
socket.socket.connect = socket.socket.connect_ex = socket.getaddrinfo = refuse
sys.argv = ["mkdocs", "build", "--quiet", "--site-dir", sys.argv[1]]
runpy.run_module("mkdocs", run_name="__main__")
"""


class Page(HTMLParser):
    """Addresses that a page loads, those that it links to, and names within it."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.links: list[str] = []
        self.names: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in FETCHED or (tag, name) == ("link", "href"):
                self.fetched.append(value or "")
            elif name == "href":
                self.links.append(value or "")
            elif name == "id" and value:
                self.names.add(value)
            assert not (name == "style" and "url(" in (value or ""))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pages, written without network."""
    folder = tmp_path_factory.mktemp("docs") / "site"
    told = subprocess.run([sys.executable, "-c", OFFLINE, str(folder)], cwd=ROOT, capture_output=True, text=True,
                          env=os.environ | {"NO_MKDOCS_2_WARNING": "1"})
    assert (told.returncode, re.findall(r"(?:WARNING|ERROR).*", told.stdout + told.stderr)) == (0, []), told.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    return {path: Page(path) for path in site.rglob("*.html")}


def test_every_page_of_docs_is_a_page_of_the_site(pages: dict[Path, Page], site: Path) -> None:
    sources = {p.relative_to(ROOT / "docs") for p in (ROOT / "docs").rglob("*.md")}
    written = {p.relative_to(site).with_suffix(".md") for p in pages} - {Path("404.md"), Path("index.md"), Path("changelog.md")}
    assert written == {p.with_name("index.md") if p.name == "README.md" else p for p in sources}


def test_pages_load_nothing_from_elsewhere(pages: dict[Path, Page], site: Path) -> None:
    for path, page in pages.items():
        for address in page.fetched:
            there = (site if path.name == "404.html" else path.parent) / address.lstrip("/")
            assert there.is_file(), f"{path.name} loads {address}"
    for path in site.rglob("*.css"):
        addresses = re.findall(r"url\(\s*['\"]?([^'\")]+)|@import\s+([^;]+)", path.read_text(encoding="utf-8"))
        assert [a for a in addresses if not a[0].startswith("data:")] == []


def test_links_lead_to_pages_and_names_in_them(pages: dict[Path, Page]) -> None:
    for path, page in pages.items():
        for address in page.links:
            if path.name == "404.html" or re.match(r"\w+:", address):
                continue
            to, _, name = address.partition("#")
            found = (path.parent / to).resolve() if to else path
            found = found / "index.html" if found.is_dir() else found
            assert found.is_file(), f"{path.name} links to {address}"
            assert not name or name == "__codelineno" or name in pages[found].names, f"{path.name} links to {address}"


@pytest.mark.chromium
def test_pages_opened_as_files_are_searched(site: Path) -> None:
    with chromium() as browser:
        tab = browser.tab()
        tab.size(1280)
        tab.open((site / "guide" / "fpga.html").as_uri())
        tab.run("document.querySelector('input[name=query]').focus()")
        for letter in "verilator":
            tab.press(letter)
        tab.wait("document.querySelector('.md-search-result__item a')")
        found = tab.run("document.querySelector('.md-search-result__item a').href")
        assert found.startswith(site.as_uri())
        loaded = tab.run("performance.getEntriesByType('resource').map(entry => entry.name)")
        assert [address for address in loaded if not address.startswith(site.as_uri())] == []
        assert tab.said == []


def test_the_command_says_where_the_pages_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                              capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(dovetail, "__file__", str(tmp_path / "__init__.py"))
    assert main(["docs"]) == 2
    assert capsys.readouterr().err == ("dovetail: dovetail docs: no pages are written in the clone that this runs "
                                       "from; run `make docs` there\n")
    page = tmp_path / "site" / "index.html"
    page.parent.mkdir()
    page.touch()
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    assert main(["docs", "--open"]) == 0
    assert capsys.readouterr().out == f"{page.as_uri()}\n"
    assert opened == [page.as_uri()]


@pytest.fixture
def clone(tmp_path: Path) -> Iterator[Path]:
    """What git knows of the repository, elsewhere."""
    told = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    for name in filter(None, told.stdout.split("\0")):
        if (ROOT / name).is_file() and not name.startswith(("tests/", "bench/")):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, tmp_path / name)
    yield tmp_path
    shutil.rmtree(tmp_path)


@pytest.mark.deep("builds a wheel with tools that pip fetches")
def test_a_wheel_from_a_clone_holds_the_pages(clone: Path) -> None:
    told = subprocess.run([sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", "dist", "."], cwd=clone,
                          capture_output=True, text=True)
    assert told.returncode == 0, told.stderr
    (wheel,) = (clone / "dist").glob("*.whl")
    held = zipfile.ZipFile(wheel).namelist()
    assert {"dovetail/site/index.html", "dovetail/site/guide/fpga.html", "dovetail/site/search/search_index.js"} <= set(held)
