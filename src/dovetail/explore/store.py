"""Results by the hash of what they depend on, in one SQLite file: each key once, whoever computes it how often.

One process at a time writes to a store; workers send it what they found.
"""

from __future__ import annotations

import fcntl
import json
import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import Any

from dovetail.errors import UsageError
from dovetail.explore.job import CampaignJob, Outcome
from dovetail.files import make_private

APPLICATION, SCHEMA = 0x0D0E7A11, 1
"""Numbers in the file's head by which it is told from other programs' and other versions'."""
TABLE = """CREATE TABLE IF NOT EXISTS results (key TEXT PRIMARY KEY, kind TEXT NOT NULL, label TEXT NOT NULL, result TEXT,
refusal TEXT, wall_s REAL NOT NULL, digest TEXT NOT NULL) WITHOUT ROWID"""
AT_ONCE = 500
"""Keys of one question: SQLite takes 999 in every build."""


class ResultStore:
    """A store of results, open for writing; a context that closes it.

    Raises:
        UsageError: another process writes to it, or the file is no store of results, or damaged.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            make_private(path.absolute().parent)
            self._lock = os.open(path.with_name(path.name + ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise UsageError(f"{path}: cannot be opened, {(error.strerror or '').lower()}; give another --store") from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            raise UsageError(f"{path}: another campaign writes to it; wait for its end, or give another --store") from None
        try:
            with self._readable():
                self._open()
        except BaseException:
            os.close(self._lock)
            raise

    def _open(self) -> None:
        self._file = sqlite3.connect(self.path, isolation_level=None)
        application, schema = (self._file.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version"))
        empty = not self._file.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if not empty and (application, schema) != (APPLICATION, SCHEMA):
            raise UsageError(f"{self.path}: holds no results of this version; give another --store")
        # Killed processes lose nothing that was kept; only after the machine's own failure may the last results be missing.
        self._file.execute("PRAGMA journal_mode = WAL")
        self._file.execute("PRAGMA synchronous = NORMAL")
        self._file.execute(TABLE)
        self._file.execute(f"PRAGMA application_id = {APPLICATION}")
        self._file.execute(f"PRAGMA user_version = {SCHEMA}")

    def __enter__(self) -> ResultStore:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._file.close()
        os.close(self._lock)

    @contextmanager
    def _readable(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise UsageError(f"{self.path}: not a readable store of results ({error}); remove it, and everything is computed "
                             "again, or give another --store") from None

    def __len__(self) -> int:
        with self._readable():
            return int(self._file.execute("SELECT count(*) FROM results").fetchone()[0])

    def known(self, keys: Iterable[str]) -> set[str]:
        """Which of some keys have results."""
        return {key for part in _parts(keys) for key, in self._asked("key", part)}

    def read(self, keys: Iterable[str]) -> dict[str, Outcome]:
        """The results of keys that have one; UsageError where one was changed by anybody else."""
        found = {}
        for part in _parts(keys):
            for key, result, refusal, wall_s, digest in self._asked("key, result, refusal, wall_s, digest", part):
                if digest != _digest(key, result, refusal):
                    raise UsageError(f"{self.path}: the result of {key} is damaged; remove the file, and everything is computed "
                                     "again")
                found[key] = Outcome(None if result is None else json.loads(result), refusal, wall_s)
        return found

    def _asked(self, columns: str, keys: tuple[str, ...]) -> list[tuple[Any, ...]]:
        with self._readable():
            places = ",".join("?" * len(keys))
            return self._file.execute(f"SELECT {columns} FROM results WHERE key IN ({places})", keys).fetchall()

    def keep(self, job: CampaignJob, outcome: Outcome) -> bool:
        """Keep a result at once, unless its key has one; whether it was new."""
        result = None if outcome.result is None else json.dumps(outcome.result, allow_nan=False)
        row = (job.key, job.kind, job.label, result, outcome.refusal, outcome.wall_s, _digest(job.key, result, outcome.refusal))
        with self._readable():
            return self._file.execute("INSERT OR IGNORE INTO results VALUES (?, ?, ?, ?, ?, ?, ?)", row).rowcount == 1


def _parts(keys: Iterable[str]) -> Iterator[tuple[str, ...]]:
    every = tuple(dict.fromkeys(keys))
    return (every[i:i + AT_ONCE] for i in range(0, len(every), AT_ONCE))


def _digest(key: str, result: str | None, refusal: str | None) -> str:
    return sha256(json.dumps([key, result, refusal]).encode()).hexdigest()[:16]
