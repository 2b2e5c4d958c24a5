"""How long work tells those who watch what it is at."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str, int, int], None]
"""Told the stage, how much of it is done, and of how much."""


def silent(stage: str, done: int, total: int) -> None:
    """Progress for those who do not watch."""
