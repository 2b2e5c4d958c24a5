"""Shared options: golden files are compared, or rewritten with `--update-golden`; laws are checked without a clock."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

# A busy machine must not fail a law, and a commit has one verdict: every run draws the same examples. `make fuzz` draws new ones,
# says how to draw them again, and what it finds is kept as an @example.
settings.register_profile("dovetail", deadline=None, derandomize=True)
settings.register_profile("fuzz", deadline=None, derandomize=False, database=None, print_blob=True)
settings.load_profile("dovetail")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite golden files with what the code prints now")


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
