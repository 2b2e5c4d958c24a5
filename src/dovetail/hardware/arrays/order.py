"""The order in which weights and rows of maps pass the memory port.

It is fixed when the program is made, so that the hardware needs no arbiter and a model can say when everything happens. Transfers
follow each other as they would become possible if the memory took no time, rows of a stripe spread over the time that is left for
them: weights and rows share the port. Everything comes behind what it waits for, so nothing waits for ever.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from dovetail.hardware.arrays.jobs import ARRAY_SLOTS, DEPTHWISE_SLOTS, ArrayProgram, ArrayTransfer, TransferKind

LATE_CLOCKS = 30
"""About as many clocks pass from a job's last work to its last word."""


class _Times:
    """When jobs, loads and bursts happened so far, at the latest: of the first n of each."""

    def __init__(self) -> None:
        self.jobs: tuple[list[float], list[float]] = ([0.0], [0.0])
        self.loads, self.stores, self.bursts = [0.0], [0.0], [0]

    def after(self, needs: tuple[int, int], loads: int, bursts: int) -> float:
        """When as many jobs of each engine, loads and bursts have happened."""
        return max(self.jobs[0][needs[0]], self.jobs[1][needs[1]], self.loads[loads],
                   self.stores[bisect_left(self.bursts, bursts)])

    def moved(self, transfer: ArrayTransfer, at: float) -> None:
        """A transfer of rows happened."""
        times = self.loads if transfer.kind is TransferKind.LOAD else self.stores
        times.append(max(times[-1], at))
        if transfer.kind is TransferKind.STORE:
            self.bursts.append(self.bursts[-1] + transfer.bursts)


def in_order(program: ArrayProgram, made: Sequence[ArrayTransfer]) -> tuple[ArrayTransfer, ...]:
    """Transfers, which wait only for earlier ones, in the order in which they are to happen."""
    ready, opened = _ideal(program, made)
    keys, times = list[float](), _Times()
    for transfer, at in zip(made, ready, strict=True):
        if transfer.kind is TransferKind.WEIGHTS:
            job = program.jobs[transfer.job]
            own = times.jobs[job.engine]
            key = max(at, own[-1], times.after(job.needs, job.loads, job.stores))
            own.append(key)
        else:
            left = abs(opened[transfer.stripe] - at)  # until the stripe begins, or as long as it took
            key = max(at + left * transfer.share, times.after(transfer.needs, 0, transfer.stored))
            times.moved(transfer, key)
            key = (times.loads if transfer.kind is TransferKind.LOAD else times.stores)[-1]
        keys.append(key)
    return tuple(made[n] for n in sorted(range(len(made)), key=lambda n: (keys[n], n)))


def _ideal(program: ArrayProgram, made: Sequence[ArrayTransfer]) -> tuple[list[float], dict[int, float]]:
    """When every transfer could happen and every stripe begins if the memory took no time."""
    free, times = [0.0, 0.0], _Times()
    ready, opened = list[float](), dict[int, float]()
    slots = (ARRAY_SLOTS, DEPTHWISE_SLOTS)
    for transfer in made:
        if transfer.kind is not TransferKind.WEIGHTS:
            ready.append(times.after(transfer.needs, 0, transfer.stored))
            times.moved(transfer, ready[-1])
            continue
        job = program.jobs[transfer.job]
        own, engine = times.jobs[job.engine], job.engine
        ready.append(own[max(0, len(own) - slots[engine])])
        at = max(free[engine], times.after(job.needs, job.loads, job.stores))
        opened.setdefault(transfer.stripe, at)
        free[engine] = at + job.clocks
        own.append(free[engine] + job.tail + LATE_CLOCKS)
    return ready, opened
