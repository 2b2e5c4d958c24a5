"""Boards, operators, solvers and engines of other packages, found by entry points and loaded when they are used.

A package names them in its own pyproject.toml, one table per group:

    [project.entry-points."dovetail.boards"]
    my-board = "my_package.boards:MY_BOARD"

What a name stands for is loaded when it is asked for, and a group is listed without loading anything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from dovetail.errors import UsageError

GROUPS = {
    "boards": "the path of a board file, or its text",
    "operators": "an OperatorPlugin",
    "solvers": "a function of a problem, as those of partition/solve.py",
    "engines": "an EnginePlugin",
}
"""Groups of entry points, without `dovetail.`, and what one of them stands for."""


@dataclass(frozen=True, slots=True)
class OperatorPlugin:
    """An operator of ONNX that Dovetail quantizes, divides and writes: the entry point's name is its type in ONNX.

    `kind` is a class as those of ir/operators; `read` and `write` are as in `READERS` and `WRITERS`.
    """

    kind: type
    read: Callable[[Any, Any, dict[str, Any]], None]
    write: Callable[[Any, Any, Any, str], None]


@dataclass(frozen=True, slots=True)
class EnginePlugin:
    """The hardware of an operator: `build` as in `fpga.mapping.ENGINES`, `area` as in `hardware.engines.ROUNDED`."""

    kind: type
    build: Callable[[Any, Any], Any]
    area: Callable[[Any, Any, Any, Any], Any]


@cache
def _entries(group: str) -> Mapping[str, EntryPoint]:
    """Entry points of a group by name, the same on every machine: of two of one name, that of the first distribution."""
    found = sorted(entry_points(group=f"dovetail.{group}"), key=lambda e: (e.name, _origin(e)), reverse=True)
    return {entry.name: entry for entry in found}


def _origin(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist is not None else entry.module


def names(group: str) -> tuple[str, ...]:
    """Names of a group's entry points; nothing is loaded."""
    return tuple(sorted(_entries(group)))


def installed(group: str) -> list[tuple[str, str]]:
    """The same with the distributions they come from."""
    return [(name, _origin(_entries(group)[name])) for name in names(group)]


@cache
def load(group: str, name: str) -> Any:
    """What an entry point stands for.

    Raises:
        UsageError: it cannot be loaded, or is not what its group holds; names its distribution.
    """
    entry = _entries(group)[name]
    where = f"plug-in {_origin(entry)}: {group.removesuffix('s')} {name}"
    advice = f"mend it, or run `pip uninstall {_origin(entry)}`"
    try:
        found = entry.load()
    except Exception as error:  # of code that is not ours
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise UsageError(f"{where} cannot be loaded ({reason}); {advice}") from error
    wanted = {"operators": OperatorPlugin, "engines": EnginePlugin}.get(group)
    if not (isinstance(found, wanted) if wanted else callable(found) or group == "boards"):
        raise UsageError(f"{where} is a {type(found).__name__}; {GROUPS[group]} is needed, {advice}")
    return found


def probe(group: str, name: str) -> str:
    """Load an entry point to see whether it works; says what it is."""
    load(group, name)
    return _entries(group)[name].value


def by_kind(group: str, kind: type) -> Any | None:
    """The plug-in for a class of operators; None where there is none."""
    return next((found for name in names(group) if (found := load(group, name)).kind is kind), None)
