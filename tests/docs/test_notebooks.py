"""Notebooks run from their first cell to their last, and store what they print; plans are the same on every machine."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))
LARGEST = 20_000
"""Bytes of a notebook with its outputs."""


def test_notebooks_are_small_and_were_run() -> None:
    assert len(BOOKS) == 3
    for path in BOOKS:
        cells = [c for c in json.loads(path.read_text(encoding="utf-8"))["cells"] if c["cell_type"] == "code"]
        assert [c["execution_count"] for c in cells] == list(range(1, len(cells) + 1))
        assert any(c["outputs"] for c in cells)
        assert path.stat().st_size < LARGEST


@pytest.mark.verilator
@pytest.mark.parametrize("path", BOOKS, ids=lambda p: p.stem)
def test_a_notebook_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOVETAIL_CACHE", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "110")
    found = runpy.run_path(str(ROOT / "scripts" / "notebooks"))["run"](path)
    if path.stem == "2-a-plan-explained":
        assert found == json.loads(path.read_text(encoding="utf-8")), "run python scripts/notebooks"
