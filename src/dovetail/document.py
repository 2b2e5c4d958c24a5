"""JSON files that others may have written: read as data, held against a shape, refused by file, field, value and need.

A shape is a type (`str`, `bool`, `int`, `float`), a list of one shape, a tuple of shapes, a mapping of names to shapes (a name
that ends in `?` may be missing; names that a shape does not hold are let be), or one of the classes below.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any, NoReturn

from dovetail.errors import BuildError

MOST_BYTES = 256 << 20
"""A JSON file of ours is far smaller: that of the largest plan has 12 MB."""
MOST = 1 << 53
"""Whole numbers up to here are the same in every reader of JSON, and in a float."""
LARGEST = 1e30
"""Numbers up to here can be multiplied with each other and stay finite."""
MOST_SHOWN = 60
INCOMPLETE = "this is not a complete build folder, run `dovetail compile` again"

Shape = Any


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole number from `lo` to `hi`."""

    lo: int = 0
    hi: int = MOST


@dataclass(frozen=True, slots=True)
class Text:
    """A text of a form; `words` say which."""

    form: str
    words: str


@dataclass(frozen=True, slots=True)
class OneOf:
    """One of some values."""

    values: Iterable[Any]


@dataclass(frozen=True, slots=True)
class Maybe:
    """A shape, or null."""

    shape: Shape


@dataclass(frozen=True, slots=True)
class Each:
    """A mapping of any names to one shape."""

    shape: Shape


@dataclass(frozen=True, slots=True)
class Anything:
    """What is checked elsewhere."""


NATURAL = Whole()
IDENTIFIER = Text(r"[A-Za-z_][A-Za-z0-9_]{0,254}", "a Verilog name (letters, digits and _, no digit first)")
PLAIN_FILE = Text(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,254}", "a plain file name (letters, digits, _, . and -, no folder)")
PLAIN_WORD = Text(r"[A-Za-z0-9_][A-Za-z0-9_+-]{0,254}", "a plain word (letters, digits, _, + and -)")


@dataclass(frozen=True, slots=True)
class FieldPath:
    """Where a value stands: a file, and the path of a field in it; `remedy` is what a user does about a bad one."""

    file: str
    remedy: str
    path: str = ""

    def below(self, key: object) -> FieldPath:
        step = f"[{key}]" if isinstance(key, int) else f".{_plain(str(key))}" if self.path else _plain(str(key))
        return FieldPath(self.file, self.remedy, self.path + step)

    def refuse(self, value: object, need: str) -> NoReturn:
        raise BuildError(f"{self.file}: {f'field {self.path}' if self.path else 'the file'} is {_plain(_shown(value))}; "
                         f"{need} is needed; {self.remedy}")


def _plain(text: str) -> str:
    """A text that can stand in one line of a terminal."""
    return "".join(c if c.isprintable() else "?" for c in (text if len(text) <= MOST_SHOWN else text[:MOST_SHOWN] + "…"))


def _shown(value: object) -> str:
    if isinstance(value, Mapping):
        return f"an object of {len(value)} fields"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    return json.dumps(value) if value is None or isinstance(value, bool) else repr(value)


def read_regular(path: Path, remedy: str) -> bytes:
    """The content of a regular file: no pipe, nothing without an end; BuildError names what else it is."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as stream:
            found = os.fstat(stream.fileno())
            if not stat.S_ISREG(found.st_mode):
                raise BuildError(f"{path}: not a plain file; {remedy}")
            if found.st_size > MOST_BYTES:
                raise BuildError(f"{path}: {found.st_size:,} bytes; at most {MOST_BYTES:,} are read; {remedy}")
            return stream.read()
    except FileNotFoundError:
        raise BuildError(f"{path}: missing; {remedy}") from None
    except OSError as error:
        raise BuildError(f"{path}: unreadable, {(error.strerror or str(error)).lower()}; {remedy}") from None


def read_texts(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """Files of a folder by their plain names."""
    found = {}
    for name in names:
        try:
            found[name] = read_regular(folder / name, INCOMPLETE).decode("utf-8")
        except UnicodeDecodeError:
            raise BuildError(f"{folder / name}: not a text in UTF-8; {INCOMPLETE}") from None
    return found


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")


def read_document(path: Path, schema: int, remedy: str, shape: Shape | None = None) -> dict[str, Any]:
    """A JSON object with its schema checked, and all of it against a shape where one is given."""
    content = read_regular(path, remedy)
    try:
        found = json.loads(content.decode("utf-8"), parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise BuildError(f"{path}: unreadable ({_plain(str(error))}); {remedy}") from None
    if not isinstance(found, dict) or found.get("schema") != schema or isinstance(found["schema"], bool):
        named = found.get("schema") if isinstance(found, dict) else None
        raise BuildError(f"{path}: schema {_plain(repr(named))}; this version reads schema {schema}, build again with it")
    if shape is not None:
        check(found, shape, FieldPath(str(path), remedy))
    return found


def picked(entry: Mapping[str, Any], shape: Mapping[str, Shape]) -> dict[str, Any]:
    """The fields of an object that a shape names."""
    return {name: entry[name] for key in shape if (name := key.removesuffix("?")) in entry}


def check(value: Any, shape: Shape, place: FieldPath) -> None:
    """Refuse a value that has not the shape, by the path of the first field that is wrong."""
    match shape:
        case Anything():
            return
        case Maybe(inner):
            if value is not None:
                check(value, inner, place)
        case Each(inner):
            if not isinstance(value, Mapping):
                place.refuse(value, "an object")
            for key, entry in value.items():
                if not _encodable(key):
                    place.refuse(key, "a text as name of a field")
                check(entry, inner, place.below(key))
        case list():
            if not isinstance(value, list):
                place.refuse(value, "a list")
            for i, entry in enumerate(value):
                check(entry, shape[0], place.below(i))
        case tuple():
            if not isinstance(value, list) or len(value) != len(shape):
                place.refuse(value, f"a list of {len(shape)}")
            for i, (entry, inner) in enumerate(zip(value, shape, strict=True)):
                check(entry, inner, place.below(i))
        case dict():
            _check_object(value, shape, place)
        case _:
            _check_single(value, shape, place)


def _check_object(value: Any, shape: Mapping[str, Shape], place: FieldPath) -> None:
    if not isinstance(value, Mapping):
        place.refuse(value, "an object")
    for key, inner in shape.items():
        name = key.removesuffix("?")
        if name in value:
            check(value[name], inner, place.below(name))
        elif name == key:
            raise BuildError(f"{place.file}: field {place.below(name).path} is missing; {place.remedy}")


def _check_single(value: Any, shape: Shape, place: FieldPath) -> None:
    whole = isinstance(value, int) and not isinstance(value, bool)
    if shape is str:
        good, need = isinstance(value, str) and _encodable(value), "a text"
    elif shape is bool:
        good, need = isinstance(value, bool), "true or false"
    elif shape is int:
        good, need = whole and abs(value) <= MOST, "a whole number"
    elif shape is float:
        good, need = (whole or (isinstance(value, float) and isfinite(value))) and abs(value) <= LARGEST, "a number"
    elif isinstance(shape, Whole):
        good = whole and shape.lo <= value <= shape.hi
        need = f"a whole number from {shape.lo:,}" + (f" to {shape.hi:,}" if shape.hi < MOST else "")
    elif isinstance(shape, Text):
        good, need = isinstance(value, str) and re.fullmatch(shape.form, value, re.ASCII) is not None, shape.words
    elif isinstance(shape, OneOf):
        good = not isinstance(value, bool | list | dict) and value in list(shape.values)
        need = "" if good else f"one of {', '.join(map(str, shape.values))}"
    else:
        raise AssertionError(f"no shape: {shape!r}")
    if not good:
        place.refuse(value, need)


def _encodable(text: str) -> bool:
    """Whether a text can be written: JSON may hold halves of surrogate pairs, which no file can."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
