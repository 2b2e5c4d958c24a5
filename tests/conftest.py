"""Shared options: golden files are compared, or rewritten with `--update-golden`; laws are checked without a clock.

Tests marked `deep` take a minute or more; `make deep` runs them alone (`--deep FILE`), and continues where it was stopped.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

# A busy machine must not fail a law, and a commit has one verdict: every run draws the same examples. `make fuzz` draws new ones,
# says how to draw them again, and what it finds is kept as an @example.
settings.register_profile("dovetail", deadline=None, derandomize=True)
settings.register_profile("fuzz", deadline=None, derandomize=False, database=None, print_blob=True)
settings.load_profile("dovetail")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite golden files with what the code prints now")
    parser.addoption("--deep", type=Path, metavar="FILE", help="run the long tests alone, less those that FILE says passed")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "deep(why): takes a minute or more; run by make deep")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    record = config.getoption("--deep")
    done = set() if record is None else set(_deep_record(record)["passed"])
    wanted = [i for i in items if (i.get_closest_marker("deep") is None) == (record is None) and i.nodeid not in done]
    config.hook.pytest_deselected(items=[i for i in items if i not in wanted])
    items[:] = wanted


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if DEEP and report.when == "call" and report.passed:
        record = _deep_record(DEEP[0])
        record["passed"] = sorted({*record["passed"], report.nodeid})
        DEEP[0].parent.mkdir(parents=True, exist_ok=True)
        DEEP[0].write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


DEEP: list[Path] = []
"""The record of long tests, in the process that gathers results."""


def pytest_sessionstart(session: pytest.Session) -> None:
    record = session.config.getoption("--deep")
    if record is not None and not hasattr(session.config, "workerinput"):
        DEEP.append(record.absolute())


def _deep_record(path: Path) -> dict[str, Any]:
    """Long tests that passed on this commit; none where the record is of another one."""
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=Path(__file__).parent, capture_output=True, text=True, check=True)
    fresh = {"command": "make deep", "commit": commit.stdout.strip(), "date": date.today().isoformat(), "passed": []}
    known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else fresh
    return known if known["commit"] == fresh["commit"] else fresh


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compare text with `golden/NAME` beside the test's file, or rewrite it."""

    def check(name: str, text: str) -> None:
        path = Path(str(request.path)).parent / "golden" / name
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert path.is_file(), f"{path} is missing; run pytest --update-golden and review what it wrote"
        assert text == path.read_text(encoding="utf-8"), f"{path} differs; if intended, run pytest --update-golden"

    return check
