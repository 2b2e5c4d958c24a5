"""The list of import steps holds together, and a failing step says where it stands in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from dovetail.errors import ModelError
from dovetail.ir.onnx.read import STEPS, read_onnx


def test_what_a_step_requires_an_earlier_one_ensures() -> None:
    ensured: set[str] = set()
    for step in STEPS:
        assert ensured.issuperset(step.requires), step.name
        ensured.add(step.ensures)
    assert len({s.name for s in STEPS}) == len(ensured) == len(STEPS)


def test_a_failing_step_names_itself_and_those_before(tmp_path: Path) -> None:
    with pytest.raises(ModelError) as caught:
        read_onnx(tmp_path / "nowhere.onnx")
    assert caught.value.__notes__ == ["import step: parse the file; done before: nothing"]
