"""Rows made side by side, each by a process of its own, until a time is over.

A process per row shares no caches with other rows, and can be ended with its row alone.
"""

from __future__ import annotations

import multiprocessing
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import inf
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

Key = tuple[str, ...]
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Ended:
    """How a row ended: what was found, or why there is nothing."""

    key: Key
    row: Row | None
    why: str
    wall_s: float


def _tell(make: Callable[[Key], Row], key: Key, told: Connection) -> None:
    """In the worker: a row, or the end of a traceback."""
    try:
        told.send((make(key), ""))
    except Exception:  # a crash of one row is a result, and ends no other row
        told.send((None, traceback.format_exc()[-2000:]))


def side_by_side(make: Callable[[Key], Row], keys: Sequence[Key], jobs: int, seconds: float) -> Iterator[Ended]:
    """Rows as they end, so many at a time in the order of the keys; the last ones are those that were ended with the time.

    Keys that were not begun by then do not appear.
    """
    fork, until, waiting = multiprocessing.get_context("fork"), time.monotonic() + seconds, list(reversed(keys))
    running: dict[Connection, tuple[Key, BaseProcess, float]] = {}
    while (left := until - time.monotonic()) > 0 and (waiting or running):
        while waiting and len(running) < jobs:
            mine, theirs = fork.Pipe(duplex=False)
            process = fork.Process(target=_tell, args=(make, key := waiting.pop(), theirs))
            process.start()
            theirs.close()
            running[mine] = key, process, time.monotonic()
        ready = wait(list(running), None if left == inf else left)
        for mine in [pipe for pipe in running if pipe in ready]:
            key, worker, began = running.pop(mine)
            try:
                row, why = mine.recv()
                worker.join()
            except EOFError:
                worker.join()
                row, why = None, f"the process ended with {worker.exitcode}"
            yield Ended(key, row, why, time.monotonic() - began)
    for key, worker, began in running.values():
        worker.kill()
        worker.join()
        yield Ended(key, None, "not ended when the time was over", time.monotonic() - began)
