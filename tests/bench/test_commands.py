"""Every benchmark that a text names exists, takes the parts and options that it is named with, and stands in bench/README.md."""

from __future__ import annotations

import re
import runpy
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("src", "docs", "bench", "tests", "examples", "scripts")
SUFFIXES = {".py", ".md", ".toml", ".json"}
COMMAND = re.compile(r"(?<![\w/.])bench/(\w+)\.py\b((?:(?!bench/)[^`\"()|;])*)")
"""A script, and the words behind it up to the end of the command."""


@cache
def texts() -> dict[str, str]:
    """Everything that may name a benchmark, by path; this file aside."""
    paths = [ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "SECURITY.md", ROOT / "Makefile",
             *(p for folder in FOLDERS for p in sorted((ROOT / folder).rglob("*")) if p.suffix in SUFFIXES and p.is_file())]
    return {str(p.relative_to(ROOT)): p.read_text(encoding="utf-8") for p in paths if p != Path(__file__)}


def scripts() -> set[str]:
    return {p.stem for p in (ROOT / "bench").glob("*.py")}


@cache
def commands() -> dict[tuple[str, str], frozenset[str]]:
    """Script and part (empty without one) of every command that is named, with the options named behind them."""
    found: dict[tuple[str, str], frozenset[str]] = {}
    for text in texts().values():
        for script, words in COMMAND.findall(text):
            parts, options = re.findall(r"--part\s+([a-z]\w*)", words), frozenset(re.findall(r"(?<![\w-])--[a-z-]+\w", words))
            for part in parts or [""]:
                found[script, part] = found.get((script, part), frozenset()) | options
    return found


def test_every_file_of_the_benchmarks_that_is_named_exists() -> None:
    absent = {f"{where}: {path}" for where, text in texts().items()
              for path in re.findall(r"(?<![\w/.])bench/[\w/]+\.(?:py|json|toml|onnx|md)\b", text)
              if path != "bench/NAME.py" and not (ROOT / path).exists()}
    assert absent == set()


@pytest.mark.parametrize("script", sorted(scripts()))
def test_parts_and_options_that_are_named_are_taken(script: str, monkeypatch: pytest.MonkeyPatch,
                                                     capsys: pytest.CaptureFixture[str]) -> None:
    named = {part: options for (name, part), options in commands().items() if name == script}
    for part, options in {"": frozenset[str](), **named}.items():
        monkeypatch.setattr(sys, "argv", [f"bench/{script}.py", *(["--part", part] if part else []), "--help"])
        with pytest.raises(SystemExit) as ended:
            runpy.run_path(str(ROOT / "bench" / f"{script}.py"), run_name="__main__")
        shown = capsys.readouterr()
        assert not ended.value.code, f"--part {part}: {shown.err}"
        taken = re.findall(r"^  (?:-\w[^,]*, )?(--[a-z-]+)", shown.out, re.M)
        assert sorted(options - {"--part", *taken}) == [], f"not taken by --part {part}"


def test_make_bench_runs_scripts_and_parts_that_exist() -> None:
    listed = re.search(r"^BENCHES := ((?:.*\\\n)*.*)$", texts()["Makefile"], re.M)
    assert listed is not None
    for name in listed[1].replace("\\", " ").split():
        script, _, part = name.partition(":")
        assert script in scripts()
        assert not part or part in runpy.run_path(str(ROOT / "bench" / f"{script}.py"))["PARTS"]


def test_every_script_stands_in_the_table_of_claims() -> None:
    rows = re.findall(r"^\| `(\w+)", texts()["bench/README.md"], re.M)
    assert sorted(rows) == sorted(scripts())
