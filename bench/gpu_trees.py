"""Trees that look again at promising tiles (`kernels/second_look.py`), fitted: gradient boosting for choosing, without a library.

Each tree follows what the ones before leave of two things: how far tiles of a kernel are apart in logarithms of time (their mean
does not matter), and what a tile taken at random, the likelier the lower its score, loses against the fastest. Six forests are
added up: three that do not know the estimate, two that do, and one that corrects it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dovetail.kernels.calls import Call
from dovetail.kernels.estimator import FITTED_KIND, Costs, Floats, seconds, tiles_of
from dovetail.kernels.second_look import UNIT, known_of
from dovetail.kernels.table import work_of
from dovetail.platform.gpu_specification import Gpu

TREES, DEPTH, RATE, BINS, LEAST, PRIOR = 100, 4, 0.1, 48, 4, 1.0
"""Of a forest: trees, their depth, the share of each; bins of a feature, tiles of a leaf, and what weighs against its value."""
KERNELS_SEEN, FEATURES_SEEN = 0.7, 0.5
"""Shares that a tree is grown with."""
LEANING, CHOICE, FAST, WORST = 12.0, 0.3, 1.5, 0.7
"""How much a lower score is preferred, the weight of that choice, that of fast tiles, and the logarithm of the worst loss."""
MEMBERS = ((False, False), (True, False), (True, True), (False, False), (True, False), (False, False))
"""Forests: whether they know the estimate, and whether they begin with it."""
WOODED = ("conv", "deep", "depthwise", "fused")
"""Kernels with layers enough to grow trees with."""
Timed = tuple[Call, Sequence[tuple[float, Any]]]


@dataclass(frozen=True)
class Table:
    """Timed tiles of one kernel: what is known of each, whose they are, logarithms of estimates and times over the least."""

    names: tuple[str, ...]
    known: Floats
    owner: Any
    estimates: Floats
    lost: Floats


def tabled(gpu: Gpu, kernel: str, found: Sequence[Timed], own: Costs) -> Table:
    rows, owner, estimates, lost = list[dict[str, Floats]](), list[int](), list[Floats](), list[Floats]()
    for i, (call, times) in enumerate(found):
        work = work_of(gpu, call.shape, tiles_of([c for _, c in times]))
        each = np.minimum(seconds(gpu, kernel, FITTED_KIND, work, own), 1.0)
        least = seconds(gpu, kernel, FITTED_KIND, work_of(gpu, call.shape, call.shape.tiles()), own).min()
        rows.append(known_of(gpu, call.shape, work.tiles, each, min(float(least), float(each.min()))))
        owner += [i] * len(times)
        estimates.append(np.log(each))
        taken = np.log([t for t, _ in times])
        lost.append(taken - taken.min())
    names = tuple(sorted(rows[0]))
    known = np.concatenate([np.stack([row[n] for n in names], 1) for row in rows])
    return Table(names, known, np.array(owner), np.concatenate(estimates), np.concatenate(lost))


class Boosting:
    """One forest in the making; features as numbers of the bin they are in."""

    def __init__(self, table: Table, features: Sequence[int], start: Floats, seed: int) -> None:
        self.table, self.start, self.rng = table, start, np.random.default_rng(seed)
        self.features = np.array(features)
        self.edges = [np.unique(np.quantile(table.known[:, f], np.linspace(0, 1, BINS + 1)[1:-1])) for f in features]
        self.bins = np.stack([np.searchsorted(e, table.known[:, f]) for e, f in zip(self.edges, features, strict=True)], 1)
        self.kernels = int(table.owner.max()) + 1
        each = np.bincount(table.owner)[table.owner]
        self.weight = np.exp(-FAST * table.lost) / each * 8
        self.made: list[tuple[list[int], list[float], Floats]] = []

    def summed(self, values: Floats) -> Floats:
        """Of every tile, the sum over all tiles of its kernel."""
        return np.bincount(self.table.owner, values, self.kernels)[self.table.owner]

    def wanted(self, score: Floats) -> Floats:
        """Where scores should move: towards the times, and away from tiles that are likely and slow."""
        left = self.table.lost - score
        apart = left - self.summed(self.weight * left) / self.summed(self.weight)
        least = np.full(self.kernels, np.inf)
        np.minimum.at(least, self.table.owner, score)
        likely = np.exp(-LEANING * (score - least[self.table.owner]))
        likely /= self.summed(likely)
        lost = np.minimum(self.table.lost, WORST)
        return np.asarray(apart + CHOICE * LEANING * likely * (lost - self.summed(likely * lost)) / self.weight)

    def run(self) -> None:
        score = self.start.copy()
        for _ in range(TREES):
            seen = np.flatnonzero((self.rng.random(self.kernels) < KERNELS_SEEN)[self.table.owner])
            some = np.sort(self.rng.choice(len(self.features), max(1, int(FEATURES_SEEN * len(self.features))), replace=False))
            splits = self.grown(seen, self.wanted(score), some)
            score += self.finished(splits, seen, self.wanted(score))

    def grown(self, seen: Any, wanted: Floats, some: Any) -> list[tuple[Any, Any]]:
        """Level by level, of every node the feature and bin that tell most apart."""
        bins, width, count = self.bins[np.ix_(seen, some)], BINS + 1, len(some)
        weight, moved = np.repeat(self.weight[seen], count), np.repeat((wanted * self.weight)[seen], count)
        at, splits = np.zeros(len(seen), dtype=np.int64), list[tuple[Any, Any]]()
        for level in range(DEPTH):
            nodes = 1 << level
            code = (bins + np.arange(count) * width + (at * count * width)[:, None]).ravel()
            sums, weights, tiles = (np.bincount(code, w, nodes * count * width).reshape(nodes, count, width).cumsum(2)
                                    for w in (moved, weight, None))
            all_sums, all_weights = sums[:, :, -1:], weights[:, :, -1:]
            gain = sums ** 2 / (weights + PRIOR) + (all_sums - sums) ** 2 / (np.maximum(all_weights - weights, 0) + PRIOR) \
                - all_sums ** 2 / (all_weights + PRIOR)
            gain[(tiles < LEAST) | (tiles[:, :, -1:] - tiles < LEAST)] = 0
            best = gain.reshape(nodes, -1).argmax(1)
            tells = gain.reshape(nodes, -1)[np.arange(nodes), best] > 1e-12
            feature, split = np.where(tells, some[best // width], 0), np.where(tells, best % width, BINS)
            splits.append((feature, split))
            at = 2 * at + (self.bins[seen, feature[at]] > split[at])
        return splits

    def finished(self, splits: Sequence[tuple[Any, Any]], seen: Any, wanted: Floats) -> Floats:
        """Give leaves their values and keep the tree; what it adds to every score."""
        at, every = np.zeros(len(self.bins), dtype=np.int64), np.arange(len(self.bins))
        for feature, split in splits:
            at = 2 * at + (self.bins[every, feature[at]] > split[at])
        leaves = 1 << DEPTH
        sums = np.bincount(at[seen], (wanted * self.weight)[seen], leaves)
        values = RATE * sums / (np.bincount(at[seen], self.weight[seen], leaves) + PRIOR)
        nodes = [(int(f), int(s)) for feature, split in splits for f, s in zip(feature, split, strict=True)]
        thresholds = [float(self.edges[f][s]) if s < len(self.edges[f]) else 1e9 for f, s in nodes]
        self.made.append(([int(self.features[f]) for f, _ in nodes], thresholds, values))
        return np.asarray(values[at])


def grown_forest(table: Table) -> dict[str, Any]:
    """A forest as forests.json has it."""
    estimate = table.names.index("estimate")
    made: list[tuple[list[int], list[float], Floats]] = []
    for seed, (knows, begins) in enumerate(MEMBERS):
        features = [i for i in range(len(table.names)) if (knows or i != estimate) and np.ptp(table.known[:, i]) > 0]
        one = Boosting(table, features, table.estimates if begins else np.zeros(len(table.lost)), seed)
        one.run()
        made += one.made
    share = 1 / len(MEMBERS)
    edges = sorted({float(f"{t:.5g}") for _, each, _ in made for t in each})
    return {"names": list(table.names), "lean": sum(b for _, b in MEMBERS) * share, "features": [f for f, *_ in made],
            "edges": edges, "thresholds": [[edges.index(float(f"{t:.5g}")) for t in each] for _, each, _ in made],
            "values": [[round(v * share / UNIT) for v in each] for *_, each in made]}
