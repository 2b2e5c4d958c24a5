"""Columns of a plan changed one by one, next to each other and two at a time, while that shortens its interval.

What a change adds to every busy time and limit is known from the tables around it. Of nodes that no table knows both of, changes
add up, so all pairs of them are looked at in one array.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

import numpy as np
import numpy.typing as npt

from dovetail.hardware.shares import Floats, Ints
from dovetail.partition.effort import spend
from dovetail.partition.exact.cuts import Network
from dovetail.partition.interval.weights import Ledger
from dovetail.partition.tolerances import TOLERANCE

NUDGE = 1e-2
"""What all busy times count beside the interval where single columns change. Chosen, not measured."""
TRIED = 16
"""Columns per node that are tried in pairs. Chosen, not measured."""
BESIDE = 5
"""Columns of a node that are tried together with a consumer's. Chosen, not measured."""
MOST = 1_000
"""Changes of which all pairs are looked at. Chosen, not measured."""
JUDGED = 6
"""Pairs that are judged. Chosen, not measured."""
CHUNK = 32
"""Changes that are paired with all others at once. Chosen, not measured."""

Path = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Rows:
    """Changes of a plan: the columns they put in the place of which nodes' own, and what each adds to all times and limits."""

    moves: list[tuple[tuple[int, int], ...]]
    added: Floats
    engines: Floats
    touched: npt.NDArray[np.float32]
    """Ones for the tables that see each."""


class Changes:
    """What becomes of plans of a network whose columns change."""

    def __init__(self, net: Network, ledger: Ledger) -> None:
        self.net, self.ledger = net, ledger
        graph = net.problem.graph
        self.readers = [[(j := graph.position(c.name), net.tables[j].inputs.index(t.node.output))
                         for c in graph.consumers(t.node.output)] for t in net.tables]
        """Which tables see the column of each node, and at which of their inputs."""

    def entries(self, path: Path) -> list[tuple[int, ...]]:
        """Where a plan's columns stand in the tables."""
        at: dict[str, int] = {}
        found = []
        for table, column in zip(self.net.tables, path, strict=True):
            found.append((*(at[t] for t in table.inputs), column))
            at[table.node.output] = int(table.place_of[column])
        return found

    def moved(self, entries: Sequence[tuple[int, ...]], k: int, column: int) -> list[tuple[int, ...]]:
        """Where they stand once node k has another column."""
        found, table = list(entries), self.net.tables[k]
        found[k] = (*found[k][:-1], column)
        for j, slot in self.readers[k]:
            found[j] = (*found[j][:slot], int(table.place_of[column]), *found[j][slot + 1:])
        return found

    def of(self, k: int, entries: Sequence[tuple[int, ...]]) -> Floats:
        """What each column of node k would add to every busy time and limit of a plan in place of the plan's own column."""
        names, amounts = self.ledger.names, self.ledger.amounts
        found = np.zeros((len(names) + len(amounts), len(self.net.tables[k].options)))
        for j, at in self._seen(k, entries):
            arrays = [*(self.ledger.busy[j].shared.get(name) for name in names), *(a[j] for a in amounts)]
            for i, array in enumerate(arrays):
                if array is not None and array.ndim == len(at):
                    found[i] += array[at] - array[entries[j]]
                elif array is not None and j == k:
                    found[i] += array - array[entries[k][-1]]
        spend("changes", 1, found.size)
        return found

    def _seen(self, k: int, entries: Sequence[tuple[int, ...]]) -> list[tuple[int, tuple[int | Ints, ...]]]:
        """Tables that see node k's column, and their entries for all of its columns."""
        table = self.net.tables[k]
        found: list[tuple[int, tuple[int | Ints, ...]]] = [(k, (*entries[k][:-1], np.arange(len(table.options))))]
        for j, slot in self.readers[k]:
            found.append((j, (*entries[j][:slot], table.place_of, *entries[j][slot + 1:])))
        return found

    def improved(self, path: Path) -> Path | None:
        """One round over all nodes, a column at a time; None if nothing was changed."""
        chosen, count, entries = list(path), len(self.ledger.names), self.entries(path)
        total = np.concatenate(self.ledger.along(entries))
        for k, own in enumerate(self.ledger.busy):
            after = total[:, None] + self.of(k, entries)
            others = [float(x.engines[c]) for i, (x, c) in enumerate(zip(self.ledger.busy, chosen, strict=True)) if i != k]
            interval = np.maximum(np.maximum(after[:count].max(axis=0), own.engines), max(others, default=0.0))
            worth = np.where((after[count:] <= 1).all(axis=0), interval + NUDGE * after[:count].sum(axis=0), inf)
            best = int(worth.argmin())
            if worth[best] < worth[chosen[k]] * (1 - TOLERANCE):
                chosen[k], total, entries = best, after[:, best], self.moved(entries, k, best)
        return tuple(chosen) if tuple(chosen) != path else None

    def exchanged(self, path: Path, worth: Floats) -> list[Path]:
        """The plans that promise most with two changes of a plan, or one of two neighbours, best first.

        Columns that add least under weights and prices (`worth`) are tried; none is given where no pair is better than the plan.
        """
        entries = self.entries(path)
        total = np.concatenate(self.ledger.along(entries))
        engines = np.array([float(own.engines[c]) for own, c in zip(self.ledger.busy, path, strict=True)])
        count = len(self.ledger.names)
        best = max(float(total[:count].max()), float(engines.max()))
        rows = self._rows(path, entries, worth, best)
        # A plan whose slowest engine sets the pace needs that node in every change.
        slowest, paced = int(engines.argmax()), engines.max() >= best * (1 - TOLERANCE)
        needed = np.array([not paced or slowest in [k for k, _ in m] for m in rows.moves])
        found: list[tuple[float, int, int]] = []
        columns = np.ascontiguousarray(rows.added.T)
        together = rows.touched @ rows.touched.T > 0
        for begin in range(0, len(rows.moves), CHUNK):
            some, rest = slice(begin, begin + CHUNK), slice(begin, None)
            interval = np.maximum(rows.engines[some, None], rows.engines[None, rest])
            barred = together[some, rest] | ~(needed[some, None] | needed[None, rest])
            after = np.empty_like(interval)
            for i, own in enumerate(columns):
                np.add(total[i] + own[some, None], own[None, rest], out=after)
                if i < count:
                    np.maximum(interval, after, out=interval)
                else:
                    barred |= after > 1
            spend("exchanges", 1, interval.size * len(total))
            interval[barred] = inf
            flat, width = interval.ravel(), interval.shape[1]
            for at in np.argpartition(flat, min(JUDGED, flat.size - 1))[:JUDGED].tolist():
                if flat[at] < best * (1 - TOLERANCE):
                    found.append((float(flat[at]), begin + at // width, begin + at % width))
        return [self._with(path, rows.moves[a] + rows.moves[b]) for _, a, b in sorted(found)[:JUDGED]]

    @staticmethod
    def _with(path: Path, moves: tuple[tuple[int, int], ...]) -> Path:
        found = list(path)
        for k, column in moves:
            found[k] = column
        return tuple(found)

    def _rows(self, path: Path, entries: list[tuple[int, ...]], worth: Floats, best: float) -> _Rows:
        """Changes of single nodes, and of nodes with a consumer, that add least; the last of them is none at all."""
        moves: list[tuple[tuple[int, int], ...]] = []
        added: list[Floats] = []
        for k in range(len(path)):
            own = self.of(k, entries)
            for column in self._promising(k, own, worth, best, path[k], TRIED):
                moves.append(((k, column),))
                added.append(own[:, column])
            for column in self._promising(k, own, worth, best, path[k], BESIDE):
                then = self.moved(entries, k, column)
                for j, _ in self.readers[k]:
                    both = self.of(j, then)
                    for other in self._promising(j, both, worth, best, path[j], BESIDE):
                        moves.append(((k, column), (j, other)))
                        added.append(own[:, column] + both[:, other])
        moves.append(())
        added.append(np.zeros(len(worth)))
        sums = np.array(added)
        if len(moves) > MOST:
            chosen = np.sort(np.argsort(sums @ worth, kind="stable")[:MOST]).tolist()
            moves, sums = [moves[i] for i in chosen], sums[chosen]
        touched = np.zeros((len(moves), len(path)), dtype=np.float32)
        for i, move in enumerate(moves):
            for k, _ in move:
                touched[i, [k, *(j for j, _ in self.readers[k])]] = 1
        engines = np.array([max((float(self.ledger.busy[k].engines[c]) for k, c in m), default=0.0) for m in moves])
        return _Rows(moves, sums, engines, touched)

    def _promising(self, k: int, added: Floats, worth: Floats, best: float, own: int, count: int) -> list[int]:
        """Other columns of a node that add least and are no slower than the plan."""
        cost = np.where(self.ledger.busy[k].engines < best, worth @ added, inf)
        cost[own] = inf
        found = np.argsort(cost, kind="stable")[:count]
        return [int(c) for c in found if cost[c] < inf]
