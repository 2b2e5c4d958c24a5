"""Accelerators as plans and records write them: read back the same, refused where they are none."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

import pytest

from dovetail.errors import PlatformError
from dovetail.platform.accelerator import from_entries, to_entries


def recorded(value: Any) -> Iterator[dict[str, Any]]:
    """Every accelerator of a record."""
    if isinstance(value, dict):
        yield from ([value] if "pace_clocks" in value else [])
        for inner in value.values():
            yield from recorded(inner)


def test_every_recorded_accelerator_is_read_as_it_was_written() -> None:
    record = json.loads((files("dovetail.reproduce") / "records" / "fibha.json").read_text(encoding="utf-8"))
    found = list(recorded(record))
    folds = [fold for entries in found for fold in entries["dedicated"].values()]
    assert {None, 3, 4} == {None if fold is None else len(fold) for fold in folds}
    assert {0, 2} == {fold[3] for fold in folds if fold is not None and len(fold) == 4}
    for entries in found:
        assert to_entries(from_entries(entries, "record")) == entries


@pytest.mark.parametrize(("fold", "message"), [
    ([1, 2], r"field accelerator.dedicated.conv is a list of 2; a list of 3 is needed"),
    ([1, 0, 1], r"field accelerator.dedicated.conv\[1\] is 0; a whole number from 1 to"),
    ([1, 1, 1, 3], r"field accelerator.dedicated.conv\[3\] is 3; a whole number from 0 to 2 is needed"),
    ([1, 1, 1, 1, 1], r"field accelerator.dedicated.conv is a list of 5; a list of 4 is needed"),
    ("all", r"field accelerator.dedicated.conv is 'all'; a list is needed"),
])
def test_numbers_that_are_no_fold_are_refused(fold: Any, message: str) -> None:
    entries = {"architecture": "sesl", "dedicated": {"conv": fold}, "reusable": [], "arrays": {}, "pace_clocks": 1}
    with pytest.raises(PlatformError, match=message):
        from_entries(entries, "board.toml")
