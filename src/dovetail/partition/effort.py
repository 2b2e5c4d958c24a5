"""Work counted instead of time, so that a search ends at the same place on every machine and beside any other load.

Searches say what they do (`spend`): how many small steps of which kind, and how many cells of arrays these went through. Rates
turn both into seconds that the same work takes on the machine they were measured on, and every deadline is compared with their
sum (`worked`). The clock is only a guard: where a machine takes several times as long, the search hurries, and the plan says so.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from math import inf

RATES: dict[str, tuple[float, float]] = {
    "arms": (0.00029, 2.5e-06),
    "changes": (0.00013, 1e-07),
    "branches": (0.0, 2e-05),
    "choices": (0.03, 1.6e-05),
    "columns": (0.0002, 5.7e-07),
    "comparisons": (6.5e-05, 2e-08),
    "completions": (3.1e-05, 1.7e-08),
    "crowds": (0.0005, 2.9e-08),
    "engines": (4.2e-05, 1.8e-05),
    "exchanges": (0.0004, 3e-09),
    "fillings": (0.00035, 2.7e-08),
    "frames": (0.0005, 1.3e-08),
    "fronts": (0.00011, 7.2e-08),
    "geometric": (0.001, 9e-05),
    "greedy": (6.2e-05, 5.1e-09),
    "judgements": (8.6e-05, 5.2e-07),
    "kernels": (0, 0.00014),
    "labels": (0.00011, 1.1e-08),
    "landings": (0.0005, 3e-07),
    "marginals": (1.4e-05, 9.2e-09),
    "moves": (0.0006, 1.5e-08),
    "needs": (0.0001, 0),
    "networks": (5e-05, 1.6e-08),
    "nodes": (1e-05, 0),
    "passages": (0.05, 0.0003),
    "paths": (9.7e-06, 0),
    "pivots": (0.0002, 1e-06),
    "placements": (7e-05, 0),
    "prices": (0.003, 2.2e-08),
    "programs": (0.003, 4.2e-06),
    "plays": (0.001, 2e-05),
    "prospects": (0.00027, 1.5e-08),
    "rooms": (0.0007, 2e-05),
    "several": (0.00012, 6e-08),
    "shapes": (0.00038, 1e-06),
    "shares": (0.0007, 2.4e-05),
    "sketches": (0.0005, 2e-05),
    "splits": (1.9e-05, 1.9e-06),
    "tables": (0.00034, 1e-07),
    "trees": (1.3e-05, 4e-09),
    "tries": (0.00015, 0.0),
    "undercut": (8e-05, 1.1e-08),
    "walks": (0, 0.0007),
    "ways": (0.00042, 1.6e-08),
    "weights": (4.8e-05, 2.4e-08),
    "works": (7.3e-05, 0),
}
"""Seconds of each kind of step, and of each cell it goes through; `python bench/planning.py --part effort` measures them anew."""
GUARD = 3.0
"""How many times as long as its limit, and as the work done so far should take, a search may compute before it hurries.

Chosen: any value from 1.5 to 6 gives the same plans (bench/constants.py).
"""
HURRY_S = 60.0
"""More than any search has left:

how much later it seems at every look once a search hurries. Chosen: any value above the largest time limit does.
"""
SLOWEST = 10.0
"""The largest slow-down believed. Chosen, not measured."""
MEASURED_S = 0.05
"""Seconds of computing from which on it is believed. Chosen, not measured."""


class Meter(threading.local):
    """What this thread has worked since its count began; searches on other threads have their own."""

    seconds = 0.0
    limit_s = inf
    begun_s = 0.0
    """When the count began, in seconds of computing."""
    asked_s = 0.0
    """The same by the clock."""
    hurried = False

    def note(self) -> str:
        """What a plan says whose search was cut short."""
        taken = time.thread_time() - self.begun_s
        return (f"search: cut short after {taken:.3g} s of computing, {GUARD:g} times as long as the work of its limit of "
                f"{self.limit_s:g} s should take; another run may find another plan")


METER = Meter()


def spend(kind: str, steps: float, cells: float = 0) -> None:
    """Count steps of a kind that went through so many cells in all."""
    METER.seconds += should_take(kind, steps, cells)


def sorting(count: int) -> int:
    """Cells that putting so many in order goes through."""
    return count * count.bit_length()


def should_take(kind: str, steps: float, cells: float) -> float:
    """Seconds that such work counts."""
    per_step, per_cell = RATES[kind]
    return per_step * steps + per_cell * cells


def worked() -> float:
    """Seconds of work on this thread since its count began; far more than that once the guard has struck."""
    if METER.limit_s < inf:
        if not METER.hurried and time.thread_time() - METER.begun_s > GUARD * max(METER.limit_s, METER.seconds):
            METER.hurried = True
        if METER.hurried:
            METER.seconds += HURRY_S + 4 * METER.limit_s
    return METER.seconds


def slowdown() -> float:
    """Seconds by the clock that a second of computing takes beside other load, since the count began; at least one."""
    clock, computing = time.perf_counter() - METER.asked_s, time.thread_time() - METER.begun_s
    return min(SLOWEST, max(1.0, clock / computing)) if METER.limit_s < inf and computing > MEASURED_S else 1.0


def part_of(deadline: float, part: float) -> float:
    """When a part of the time left is over."""
    now = worked()
    return now + max(0.0, deadline - now) * part


def halfway(deadline: float) -> float:
    """Half of the time left: what a search gets that another follows."""
    return part_of(deadline, 1 / 2)


def hurry() -> None:
    """Let the search end as soon as it can, as another clock than that of `worked` has struck."""
    METER.hurried = True


@contextmanager
def counted(limit_s: float) -> Iterator[Meter]:
    """Count anew: a search that may work so long, and compute `GUARD` times as long. Its work counts for who asked for it too."""
    before = (METER.seconds, METER.limit_s, METER.begun_s, METER.asked_s, METER.hurried)
    METER.seconds, METER.limit_s, METER.begun_s, METER.hurried = 0.0, limit_s, time.thread_time(), False
    METER.asked_s = time.perf_counter()
    try:
        yield METER
    finally:
        spent_s = METER.limit_s if METER.hurried else METER.seconds
        METER.seconds, METER.limit_s, METER.begun_s, METER.asked_s, METER.hurried = before
        METER.seconds += spent_s
