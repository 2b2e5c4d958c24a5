"""Costs of every column of every node for every place its inputs can be in, as arrays.

This restates `evaluate`'s rules for one node over whole arrays; tests hold the two together to the last digits.
Columns that leave a tensor in the same place share one *layout*: to the rest of the network they are the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dovetail.cost.estimate import Floats, Ints
from dovetail.ir import Node, Region
from dovetail.partition.evaluate import delivery
from dovetail.partition.plan import Goal, Mode, Split
from dovetail.partition.problem import PARTIAL_BYTES, TOLERANCE, PieceCost, Problem, columns, piece_regions, price, price_reduce
from dovetail.partition.work import Layout, output_layout


@dataclass(frozen=True, slots=True)
class Options:
    """A node's columns that fit their device alone, sorted by layout, as arrays over columns and devices.

    `reads` has per input slot the region each device needs (see `boxes`); `reducer` is a device index or -1;
    `home_s`, `home_j` bring a graph output to the host; `resources` is columns x budgets of the problem.
    """

    node: Node
    splits: tuple[Split, ...]
    rank: Ints
    layouts: tuple[Layout, ...]
    layout_of: Ints
    reads: tuple[Ints, ...]
    has: NDArray[np.bool_]
    alone_s: Floats
    fused_s: Floats
    energy_j: Floats
    reducer: Ints
    reduce_s: Floats
    reduce_j: Floats
    home_s: Floats
    home_j: Floats
    resources: Floats

    def keep(self, chosen: Ints) -> Options:
        """Only some columns, and the layouts they leave; `chosen` is ascending."""
        present = np.unique(self.layout_of[chosen])
        return Options(
            self.node, tuple(self.splits[i] for i in chosen), self.rank[chosen], tuple(self.layouts[i] for i in present),
            np.searchsorted(present, self.layout_of[chosen]), tuple(r[chosen] for r in self.reads), self.has[chosen],
            self.alone_s[chosen], self.fused_s[chosen], self.energy_j[chosen], self.reducer[chosen], self.reduce_s[chosen],
            self.reduce_j[chosen], self.home_s[chosen], self.home_j[chosen], self.resources[chosen])


@dataclass(frozen=True, slots=True)
class Table:
    """Costs of one node. Arrays: one axis per input tensor that a node produces, then columns (sorted by layout).

    `first` holds the first column of each layout. Bringing graph outputs home and idle power are included.
    """

    node: Node
    splits: tuple[Split, ...]
    inputs: tuple[str, ...]
    layouts: tuple[Layout, ...]
    layout_of: Ints
    first: Ints
    latency_s: Floats
    energy_j: Floats
    resources: Floats


Transfers = tuple[NDArray[np.bool_], Floats, Floats]
"""Between two devices, over inputs' layouts and columns: whether anything moves, seconds, joules."""


def boxes(layouts: Sequence[Sequence[tuple[str, Region]]], devices: Sequence[str], rank: int) -> Ints:
    """Regions as an array (layout, device, dimension, start and stop); empty where a device has none."""
    found = np.zeros((len(layouts), len(devices), max(rank, 1), 2), dtype=np.int64)
    at = {d: i for i, d in enumerate(devices)}
    for i, layout in enumerate(layouts):
        for device, region in layout:
            found[i, at[device]] = region or ((0, 1),)  # a scalar counts as a row of one
    return found


def variable_inputs(problem: Problem, node: Node) -> tuple[str, ...]:
    """Input tensors whose place is chosen; graph inputs are always on the host."""
    return tuple(dict.fromkeys(t for t in node.inputs if problem.graph.producer(t) is not None))


def options(problem: Problem, node: Node) -> Options:
    """All candidate columns of a node as arrays, less those that alone exceed a budget and so are in no legal plan."""
    if node.name not in problem.choices:
        problem.choices[node.name] = _options(problem, node)
    return problem.choices[node.name]


def _options(problem: Problem, node: Node) -> Options:
    priced = [(c, _parts(problem, node, c.split), _sum_part(problem, node, c.split)) for c in columns(problem, node)]
    limits = np.array([limit for _, _, limit in problem.budgets])
    budgets = {(d, r): i for i, (d, r, _) in enumerate(problem.budgets)}
    used = np.array([_usage(budgets, c.split, parts, total) for c, parts, total in priced]).reshape(len(priced), len(limits))
    fit = np.flatnonzero((used <= limits * (1 + TOLERANCE)).all(axis=1)).tolist()
    outputs = [output_layout(problem, node, priced[i][0].split) for i in fit]
    ids = {layout: i for i, layout in enumerate(dict.fromkeys(outputs))}
    order = [fit[i] for i in sorted(range(len(fit)), key=lambda i: (ids[outputs[i]], i))]
    layout_of = np.array(sorted(ids[x] for x in outputs), dtype=np.int64)
    homes = [delivery(problem, node.output, x) if node.output in problem.graph.outputs else (0.0, 0.0) for x in ids]
    home = np.array(homes).reshape(-1, 2)[layout_of]
    chosen = [priced[i] for i in order]
    at = {d: i for i, d in enumerate(problem.devices)}
    arrays = np.zeros((3, len(chosen), len(at)))
    for row, (column, parts, _) in enumerate(chosen):
        for p, cost in zip(column.split.pieces, parts, strict=True):
            arrays[:, row, at[p.device]] = cost.alone_s, cost.fused_s, cost.energy_j
    splits = tuple(c.split for c, _, _ in chosen)
    has = np.array([[d in s.devices for d in at] for s in splits], dtype=np.bool_).reshape(-1, len(at))
    sums = np.array([(t.alone_s, t.energy_j) if t is not None else (0.0, 0.0) for _, _, t in chosen]).reshape(-1, 2)
    return Options(
        node, splits, np.array([c.rank for c, _, _ in chosen], dtype=np.int64), tuple(ids), layout_of,
        _reads(problem, node, splits), has, arrays[0], arrays[1], arrays[2],
        np.array([at[s.reducer] if s.reducer is not None else -1 for s in splits], dtype=np.int64), sums[:, 0], sums[:, 1],
        home[:, 0], home[:, 1], used[order])


def _parts(problem: Problem, node: Node, split: Split) -> list[PieceCost]:
    return [price(problem, node, split.axis, p) for p in split.pieces]


def _sum_part(problem: Problem, node: Node, split: Split) -> PieceCost | None:
    return price_reduce(problem, node, len(split.pieces), split.reducer) if split.reducer is not None else None


def _usage(budgets: Mapping[tuple[str, str], int], split: Split, parts: Sequence[PieceCost], total: PieceCost | None) -> Floats:
    used = np.zeros(len(budgets))
    for device, cost in [*zip(split.devices, parts, strict=True), *([(split.reducer or "", total)] if total else [])]:
        for resource, amount in cost.resources:
            if (device, resource) in budgets:
                used[budgets[device, resource]] += amount
    return used


def _reads(problem: Problem, node: Node, splits: Sequence[Split]) -> tuple[Ints, ...]:
    regions = [[(p.device, piece_regions(problem, node, s.axis, p.start, p.stop)[0]) for p in s.pieces] for s in splits]
    return tuple(boxes([[(d, r[slot]) for d, r in pieces] for pieces in regions], problem.devices, len(problem.graph.shape(t)))
                 for slot, t in enumerate(node.inputs))


def tabulate(problem: Problem, own: Options, known: Mapping[str, tuple[Layout, ...]],
             charged: Sequence[str] | None = None) -> Table:
    """Costs of one node for every combination of its inputs' layouts.

    With `charged`, only these inputs have an axis and pay transfers, the others are wherever they are needed, and a
    piece that fetches nothing takes its shorter time: a lower bound for any place of the other inputs.
    """
    inputs = tuple(t for t in variable_inputs(problem, own.node) if charged is None or t in charged)
    paying = [t for t in own.node.inputs if charged is None or t in charged or problem.graph.producer(t) is None]
    shape = tuple(len(known[t]) for t in inputs)
    transfers = {(s, d): _transfers(problem, problem.devices[s], problem.devices[d], size)
                 for (s, d), size in _sizes(problem, own, known, inputs, paying).items()}
    latency, energy = np.zeros((*shape, len(own.splits))), np.zeros((*shape, len(own.splits)))
    streams = all(problem.graph.producer(t) is not None for t in own.node.inputs)
    fused = own.fused_s if charged is None else np.minimum(own.alone_s, own.fused_s)
    for reducer in np.unique(own.reducer).tolist():
        chosen = np.flatnonzero(own.reducer == reducer)
        latency[..., chosen], energy[..., chosen] = _costs(
            problem, own, transfers, chosen, reducer, shape, (fused if streams else own.alone_s)[chosen])
    latency += own.home_s
    energy += own.home_j
    first = np.searchsorted(own.layout_of, np.arange(len(own.layouts)))
    return Table(own.node, own.splits, inputs, own.layouts, own.layout_of, first, latency, energy, own.resources)


def _sizes(problem: Problem, own: Options, known: Mapping[str, tuple[Layout, ...]], inputs: Sequence[str],
           paying: Sequence[str]) -> dict[tuple[int, int], Floats]:
    """Bytes from device s to device d, as arrays that broadcast to (inputs..., columns)."""
    total: dict[tuple[int, int], Floats] = {}
    seen: list[tuple[str, Ints]] = []
    count = len(problem.devices)
    returning = _returning(problem, own, known, inputs)
    for tensor, reads in zip(own.node.inputs, own.reads, strict=True):
        if tensor not in paying or any(t == tensor and np.array_equal(r, reads) for t, r in seen):
            continue
        seen.append((tensor, reads))
        held = boxes(known[tensor], problem.devices, reads.shape[2])
        axes = [len(known[tensor]) if t == tensor else 1 for t in inputs]
        for s, d in ((s, d) for s in range(count) for d in range(count) if s != d or d in returning):
            shared = _overlap(held[:, s], reads[:, d], float(problem.graph.tensors[tensor].element_bytes))
            if shared is not None:
                shared = shared.reshape(*axes, len(reads))
                if s == d:
                    shared = shared * returning[d]
                total[s, d] = total[s, d] + shared if (s, d) in total else shared
    return total


def _overlap(held: Ints, reads: Ints, element_bytes: float) -> Floats | None:
    """Bytes that each held region (rows) and each region read (columns) have in common; None where there are none."""
    rows, columns = np.flatnonzero(held[:, 0, 1]), np.flatnonzero(reads[:, 0, 1])
    if not len(rows) or not len(columns):
        return None
    common = np.full((len(rows), len(columns)), element_bytes)
    for (start, stop), (first, last) in zip(np.moveaxis(held[rows], 0, 2), np.moveaxis(reads[columns], 0, 2), strict=True):
        common *= np.maximum(np.minimum(stop[:, None], last) - np.maximum(start[:, None], first), 0)
    if not common.any():
        return None
    found = np.zeros((len(held), len(reads)))
    found[np.ix_(rows, columns)] = common
    return found


def _returning(problem: Problem, own: Options, known: Mapping[str, tuple[Layout, ...]],
               inputs: Sequence[str]) -> dict[int, NDArray[np.bool_]]:
    """For each streaming device, where a piece cannot flow on from what the device made exactly as the piece needs it.

    There the device's own part of the inputs has to come back over the host. Inputs without an axis are taken to flow.
    """
    produced = all(problem.graph.producer(t) is not None for t in own.node.inputs)
    found: dict[int, NDArray[np.bool_]] = {}
    for d, device in enumerate(problem.devices):
        if not problem.streams(device):
            continue
        flows = np.full((*(1 for _ in inputs), len(own.splits)), produced)
        for tensor, reads in zip(own.node.inputs, own.reads, strict=True):
            if tensor in inputs:
                held = boxes(known[tensor], problem.devices, reads.shape[2])
                same = (held[:, None, d] == reads[None, :, d]).all(axis=(2, 3))
                flows = flows & same.reshape(*(len(known[tensor]) if t == tensor else 1 for t in inputs), len(reads))
        found[d] = ~flows
    return found


def _costs(problem: Problem, own: Options, transfers: Mapping[tuple[int, int], Transfers], chosen: Ints, reducer: int,
           shape: tuple[int, ...], fused: Floats) -> tuple[Floats, Floats]:
    """Latency and energy of the columns that share a reducer (-1: none)."""
    full = (*shape, len(chosen))
    lanes: dict[str, Floats] = {}
    added, joules, done = np.zeros(full), np.broadcast_to(own.energy_j[chosen].sum(axis=1), full).copy(), list[Floats]()
    for d, target in enumerate(problem.devices):
        arrived, fetched = np.zeros(full), np.zeros(full, dtype=np.bool_)
        for s, source in enumerate(problem.devices):
            if (s, d) not in transfers:
                continue
            busy, seconds, spent = transfers[s, d]
            busy, seconds, spent = busy[..., chosen], seconds[..., chosen], spent[..., chosen]
            if busy.any():
                joules += spent
                added += seconds
                fetched |= busy
                stop = _occupy(lanes, problem.lanes(source, target), busy, seconds, np.zeros(()))
                arrived = np.where(busy, np.maximum(arrived, stop), arrived)
        compute = np.where(fetched, own.alone_s[chosen, d], fused[:, d])
        added += compute
        done.append(arrived + compute)
    if reducer < 0:
        latency = np.maximum.reduce(done) if problem.mode is Mode.CONCURRENT else added
    else:
        latency, joules = _summed(problem, own, chosen, reducer, done, added, joules, lanes)
    return latency, joules + problem.idle_power_w * latency


def _summed(problem: Problem, own: Options, chosen: Ints, reducer: int, done: Sequence[Floats], added: Floats, joules: Floats,
            lanes: dict[str, Floats]) -> tuple[Floats, Floats]:
    """Partial sums to the reducer, then the sum."""
    size = np.array([float(problem.graph.tensors[own.node.output].size * PARTIAL_BYTES)])
    target, latest = problem.devices[reducer], done[reducer]
    for d, source in enumerate(problem.devices):
        sends = own.has[chosen, d]
        if d != reducer and sends.any():
            seconds, spent = problem.transfer(source, target, size)
            taken = np.where(sends, seconds[0], 0.0)
            stop = _occupy(lanes, problem.lanes(source, target), sends, taken, done[d])
            latest = np.where(sends, np.maximum(latest, stop), latest)
            added, joules = added + taken, joules + np.where(sends, spent[0], 0.0)
    latency = (latest if problem.mode is Mode.CONCURRENT else added) + own.reduce_s[chosen]
    return latency, joules + own.reduce_j[chosen]


def _transfers(problem: Problem, source: str, target: str, size: Floats) -> Transfers:
    busy = size > 0
    seconds, joules = np.zeros(size.shape), np.zeros(size.shape)
    seconds[busy], joules[busy] = problem.transfer(source, target, size[busy])
    return busy, seconds, joules


def _occupy(lanes: dict[str, Floats], names: Sequence[str], busy: NDArray[np.bool_], seconds: Floats, ready: Floats) -> Floats:
    """Array form of `work.occupy`, where `busy` marks the entries that transfer at all."""
    start = ready
    for lane in names:
        if lane in lanes:
            start = np.maximum(start, lanes[lane])
    stop: Floats = start + seconds
    for lane in names:
        lanes[lane] = np.where(busy, stop, lanes.get(lane, np.zeros(())))
    return stop


def criteria(problem: Problem) -> tuple[bool, bool]:
    """Whether latency and energy each matter: as goal or as limit."""
    return (problem.goal is not Goal.ENERGY or problem.max_latency_s is not None,
            problem.goal is not Goal.LATENCY or problem.max_energy_j is not None)


def prune(problem: Problem, table: Table) -> Table:
    """Drop columns another one beats or equals everywhere.

    Safe: the other has the same layout, so every consumer sees the same; it costs no more in any criterion that
    matters wherever the inputs lie; and it uses no more of any resource. Exchanging them worsens no plan.
    """
    costs = zip((table.latency_s, table.energy_j), criteria(problem), strict=True)
    counted = [a.reshape(-1, len(table.splits)) for a, matters in costs if matters]
    keep: list[int] = []
    for layout in range(len(table.layouts)):
        group = np.flatnonzero(table.layout_of == layout)
        if len(group) > 1:
            profile = np.concatenate([*(a[:, group] for a in counted), table.resources[group].T])
            group = group[_unbeaten(profile)]
        keep += group.tolist()
    layout_of = table.layout_of[keep]
    return replace(table, splits=tuple(table.splits[i] for i in keep), layout_of=layout_of,
                   first=np.searchsorted(layout_of, np.arange(len(table.layouts))), latency_s=table.latency_s[..., keep],
                   energy_j=table.energy_j[..., keep], resources=table.resources[keep])


def _unbeaten(profile: Floats) -> list[int]:
    """Columns of a profile that no other column is at most equal to in every row."""
    kept: list[int] = []
    for i in np.argsort(profile.sum(axis=0), kind="stable").tolist():
        if not any((profile[:, j] <= profile[:, i]).all() for j in kept):
            kept.append(i)
    return sorted(kept)
