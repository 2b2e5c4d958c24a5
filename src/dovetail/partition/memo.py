"""What was once computed for a question, kept beside it: one table per kind of answer.

A module that remembers something declares a `Cache` for it and reads `problem.memo.of(CACHE)`, a plain dictionary. So this file
knows none of the types that are remembered, and nothing is imported in a circle.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


class Cache(Generic[Key, Value]):
    """Names a table of a memo. A `lasting` one holds whichever splits there are to choose from."""

    __slots__ = ("lasting",)

    def __init__(self, lasting: bool = False) -> None:
        self.lasting = lasting


class Memo:
    """The tables of one question; questions that differ only in goal or limits share them."""

    __slots__ = ("_subject", "_tables")

    def __init__(self, tables: dict[Cache[Any, Any], dict[Any, Any]] | None = None) -> None:
        self._tables = {} if tables is None else tables
        self._subject: tuple[object, ...] | None = None

    def about(self, *subject: object) -> Memo:
        """This memo, if it has no subject yet or these very values; an empty one with this subject else."""
        if self._subject is not None and any(a is not b for a, b in zip(self._subject, subject, strict=True)):
            return Memo().about(*subject)
        self._subject = subject
        return self

    def of(self, cache: Cache[Key, Value]) -> dict[Key, Value]:
        """The table that a cache names; empty at first."""
        found = self._tables.get(cache)
        if found is None:
            found = self._tables[cache] = {}
        return found

    def lasting(self) -> Memo:
        """What still holds where other splits are to choose from."""
        return Memo({cache: table for cache, table in self._tables.items() if cache.lasting})

    def without(self, *caches: Cache[Any, Any]) -> Memo:
        """All but some tables, which begin anew."""
        return Memo({cache: table for cache, table in self._tables.items() if cache not in caches})
