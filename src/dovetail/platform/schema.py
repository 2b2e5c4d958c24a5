"""Strict reading of board and model files: every key known, every type right, every number in range and sourced.

A number is written as a table of two keys, `{ value = 80330, source = "Cyclone 10 GX device overview" }`;
a number nobody has published or measured says `source = "assumed"` (a reason may follow the word).
"""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import resources
from typing import Any, NoReturn

from dovetail.errors import PlatformError

VERSION = 1
"""Of the format of fitted models' files."""
LARGEST = 1e300
"""Whole numbers up to here can be shown as others are."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The range and unit a number must have; the range catches values given in another unit."""

    lo: float
    hi: float
    unit: str

    def __str__(self) -> str:
        return f"{self.lo:g} to {self.hi:g} {self.unit}".rstrip()


def suggestion(found: str, known: Collection[str]) -> str:
    """` (did you mean X?)` for a name close to a known one, else nothing."""
    close = get_close_matches(found, list(known), n=1, cutoff=0.6)
    return f" (did you mean {close[0]}?)" if close else ""


@dataclass(frozen=True, slots=True)
class TomlTable:
    """One table of a file with the place it stands, so that every complaint can say where."""

    where: str
    values: Mapping[str, Any]

    def fail(self, message: str) -> NoReturn:
        raise PlatformError(f"{self.where}: {message}")

    def check_keys(self, required: Collection[str], optional: Collection[str] = ()) -> None:
        known = [*required, *optional]
        for key in self.values:
            if key not in known:
                self.fail(f"unknown key {key}{suggestion(key, known)}; "
                          + (f"allowed are {', '.join(known)}" if known else "no key is possible here"))
        for key in required:
            if key not in self.values:
                self.fail(f"key {key} is missing; needed are {', '.join(required)}")

    def check_version(self) -> None:
        """Refuse a file of another format."""
        if self.values["version"] != VERSION:
            self.fail(f"key version is {self.values['version']!r}; this program reads version {VERSION}")

    def text(self, key: str) -> str:
        value = self.values[key]
        if not isinstance(value, str) or not value.strip():
            self.fail(f"key {key} is {value!r}; a non-empty text is needed")
        return value

    def flag(self, key: str, default: bool) -> bool:
        value = self.values.get(key, default)
        if not isinstance(value, bool):
            self.fail(f"key {key} is {value!r}; true or false is needed")
        return value

    def choice(self, key: str, allowed: Collection[str]) -> str:
        value = self.text(key)
        if value not in allowed:
            self.fail(f"key {key} is {value!r}{suggestion(value, allowed)}; allowed are {', '.join(allowed)}")
        return value

    def plain_number(self, key: str, limits: Limits) -> float:
        """A bare number inside a table that carries its own source."""
        value = self.values[key]
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.fail(f"key {key} is {value!r}; a number from {limits} is needed")
        if not limits.lo <= value <= limits.hi:
            shown = f"{value:g}" if abs(value) < LARGEST else "beyond all limits"
            self.fail(f"key {key} is {shown}; allowed is {limits}")
        return float(value)

    def number(self, key: str, limits: Limits) -> tuple[float, str]:
        """A number with its source."""
        entry = self.values[key]
        if not isinstance(entry, Mapping):
            self.fail(f"key {key} is {entry!r}; write it with its origin as "
                      f"{{ value = <{limits}>, source = \"...\" }}, source \"assumed\" where nobody says")
        table = TomlTable(f"{self.where}, {key}", entry)
        table.check_keys(("value", "source"))
        return table.plain_number("value", limits), table.text("source")

    def table(self, key: str, name: str | None = None) -> TomlTable:
        value = self.values.get(key, {})
        if not isinstance(value, Mapping):
            self.fail(f"key {key} is {value!r}; a table is needed")
        return TomlTable(f"{self.where}, {name or key}", value)

    def tables(self, key: str) -> tuple[TomlTable, ...]:
        value = self.values.get(key, [])
        if not isinstance(value, list) or not all(isinstance(v, Mapping) for v in value):
            self.fail(f"key {key} is {value!r}; a list of tables, [[{key}]], is needed")
        names = [str(v.get("name", i)) for i, v in enumerate(value)]
        return tuple(TomlTable(f"{self.where}, {key} {name if name.isprintable() else i}", v)
                     for i, (name, v) in enumerate(zip(names, value, strict=True)))


def shipped(folder: str, name: str) -> TomlTable:
    """A file of the package by its folder below `platform` and its name, without ending."""
    content = (resources.files("dovetail.platform") / folder / f"{name}.toml").read_text(encoding="utf-8")
    return TomlTable(f"{folder}/{name}.toml", tomllib.loads(content))


def shipped_names(folder: str) -> tuple[str, ...]:
    """Names of all such files of a folder."""
    files = (resources.files("dovetail.platform") / folder).iterdir()
    return tuple(sorted(f.name.removesuffix(".toml") for f in files if f.name.endswith(".toml")))
