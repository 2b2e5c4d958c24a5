"""Shared options: golden files are compared, or rewritten with `--update-golden`; laws are checked without a clock."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

# A busy machine must not fail a law. Continuous integration checks the same examples every time, so that a landing does not
# depend on luck; anyone else's run draws new ones.
settings.register_profile("dovetail", deadline=None, derandomize=bool(os.environ.get("CI")))
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
