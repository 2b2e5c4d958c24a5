"""Documentation that holds together: pages are short, links lead somewhere, named files exist, generated parts are new."""

from __future__ import annotations

import re
import runpy
import tomllib
from pathlib import Path

import pytest

import dovetail
from dovetail.doctor import DISTRIBUTION
from dovetail.partition.plan_json import NODE, PLAN

ROOT = Path(__file__).parents[1]
PACKAGE = Path(dovetail.__file__).parent
PAGES = sorted([*(ROOT / f"{name}.md" for name in ("README", "CHANGELOG", "SECURITY", "CONTRIBUTING")),
                *(ROOT / "docs").rglob("*.md")])
MOST_WORDS = 1500
"""Of a page, tables and code included."""
MOST_WORDS_OF_A_SENTENCE = 40
MOST_LINES_OF_A_RELEASE = 30
TEXT = {"", ".py", ".toml", ".json", ".md", ".html", ".js"}
"""Endings of files that may name a page."""
PLACEHOLDERS = ("NAME", "FOLDER", "DEVICE", "BOARD", "PART", "*", "…")
"""Parts of paths that stand for others."""


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


def anchor(heading: str) -> str:
    """A heading's name in an address, as GitHub makes it."""
    return re.sub(r"[^\w -]", "", heading.strip().lower()).replace(" ", "-")


def prose(text: str) -> str:
    """A page without code and tables."""
    return re.sub(r"```.*?```|^\|.*$|`[^`]*`", " ", text, flags=re.S | re.M)


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_a_page_and_its_sentences_are_short(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert len(text.split()) < MOST_WORDS
    sentences = re.split(r"(?<=[.!?:;])\s+|\n\s*\n", prose(text))
    assert [" ".join(s.split()) for s in sentences if len(s.split()) > MOST_WORDS_OF_A_SENTENCE] == []


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_links_of_a_page_lead_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", " ", page.read_text(encoding="utf-8"), flags=re.S)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" in target:
            continue
        path, _, fragment = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        assert found.exists(), f"{target} is not there"
        if fragment:
            headings = re.findall(r"^#+ (.+)$", found.read_text(encoding="utf-8"), re.M)
            assert fragment in map(anchor, headings), f"{target}: no such heading"


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_files_that_a_page_names_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    quoted = [word for code in re.findall(r"`([^`\n]+)`", text) for word in code.split()]
    run = re.findall(r"\b(?:python|python3) ([\w/]+\.py)\b", text)
    for word in [*quoted, *run]:
        path = word.rstrip(".,;:")
        if not re.fullmatch(r"(?:[\w.-]+/)+[\w.*-]*\.(?:py|toml|json|md|onnx)", path) or any(p in path for p in PLACEHOLDERS):
            continue
        if path.startswith(("./", "build/", "runs/", "host/", "axi/", "models/", "papers/")):
            continue  # of a user's own folders
        assert any((base / path).exists() for base in (ROOT, PACKAGE)), f"{path} is not there"


def test_pages_that_the_sources_name_exist() -> None:
    folders = ("src", "tests", "bench", "scripts", "examples", "docs")
    texts = [ROOT / "Makefile", ROOT / "README.md", ROOT / "pyproject.toml", *(
        p for folder in folders for p in (ROOT / folder).rglob("*")
        if p.suffix in TEXT and p.is_file() and ".egg-info" not in str(p))]
    absent = {f"{path.relative_to(ROOT)}: {page}" for path in texts if path != Path(__file__)
              for page in re.findall(r"\bdocs/[\w/-]+\.(?:md|svg|png)", path.read_text(encoding="utf-8"))
              if not (ROOT / page).exists()}
    assert absent == set()


def test_a_release_is_told_in_thirty_lines() -> None:
    releases = re.split(r"^## ", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), flags=re.M)[1:]
    assert {release.split("\n")[0] for release in releases} >= {"Unreleased", dovetail.__version__}
    assert [r.split("\n")[0] for r in releases if len(r.strip().split("\n")) > MOST_LINES_OF_A_RELEASE] == []


def test_versions_agree_and_workflows_call_what_is_there() -> None:
    assert f"version: {dovetail.__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert (project["name"], project["dynamic"]) == (DISTRIBUTION, ["version"])
    targets = re.findall(r"^([\w ]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)
    known = {name for line in targets for name in line.split()}
    workflows = {p.name: p.read_text(encoding="utf-8") for p in (ROOT / ".github" / "workflows").glob("*.yml")}
    assert {"checks.yml", "tests.yml", "docs.yml", "release.yml"} <= set(workflows)
    for name, text in workflows.items():
        assert {target for target in re.findall(r"\bmake (\w+)", text)} <= known, name
        assert all((ROOT / file).is_file() for file in re.findall(r"python ((?:scripts|bench)/[\w./]+)", text)), name


def test_generated_reference_pages_are_up_to_date() -> None:
    written = runpy.run_path(str(ROOT / "scripts" / "reference"))["written"]
    pages = {p.name: p.read_text(encoding="utf-8") for p in sorted((ROOT / "docs" / "reference").glob("*.md"))}
    assert [name for name, text in pages.items() if written(text) != text] == [], "run python scripts/reference"


def test_every_key_of_a_plan_is_explained() -> None:
    page = (ROOT / "docs" / "reference" / "plan-json.md").read_text(encoding="utf-8")
    keys = {key.removesuffix("?") for key in (*PLAN, *NODE)} | {"schema", "gap", "candidate_bound", "bound_covers"}
    assert sorted(key for key in keys if f"`{key}`" not in page) == []


def test_every_package_stands_in_the_map() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    packages = sorted(p.name for p in PACKAGE.iterdir() if (p / "__init__.py").is_file())
    assert [name for name in packages if f"`{name}/`" not in page] == []
