"""How many times better one side of a comparison is: given only where both have times of one kind and can be built."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from statistics import fmean
from typing import Any

from dovetail.platform.device import Kind, ModelSet, Platform

Side = Mapping[str, Any]
"""One side: what is compared by its key, whether it `fits` its devices, and of which kind its `times` are."""


class Times(StrEnum):
    """What the times of a board's processors hold."""

    LOOP_REMOVED = "without the measuring loop"
    MIXED = "with the measuring loop where a layer was measured, without it elsewhere"


def times_of(board: Platform) -> Times:
    """The kind of a board's times: published rows know ungrouped convolutions only, so with them kinds are mixed."""
    processors = [d for d in board.devices if d.kind is not Kind.FPGA]
    return Times.LOOP_REMOVED if all(d.models is ModelSet.PLANNING for d in processors) else Times.MIXED


def gain(before: Sequence[Side], after: Sequence[Side], key: str) -> float | None:
    """How many times less the mean of `after` is; None where anything on either side does not fit."""
    kinds = {side["times"] for side in (*before, *after)}
    assert kinds == {Times.LOOP_REMOVED}, f"times of different kinds are no gain: {', '.join(sorted(kinds))}"
    if not all(side["fits"] for side in (*before, *after)):
        return None
    return fmean(side[key] for side in before) / fmean(side[key] for side in after)


def highest(before: Sequence[Side], after: Sequence[Side], key: str) -> float | None:
    """The highest gain of any pair that fits; None where none does."""
    return max((found for pair in zip(before, after, strict=True) if (found := gain(pair[:1], pair[1:], key)) is not None),
               default=None)


def told(value: float | None, form: str = "{:.2f}x") -> str:
    """A gain for people."""
    return "no fit" if value is None else form.format(value)
