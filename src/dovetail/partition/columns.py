"""The columns of every node as arrays: what each leaves where, what it reads, what it costs and takes.

Nodes of the same operator and shapes share a *pattern*: splits, regions and places. Only prices are their own. Columns
that leave a tensor in the same place are the same to the rest of the network.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dovetail.cost.estimate import Flags, Floats, Ints, ShareCosts
from dovetail.ir import Axis, Node, Region, whole
from dovetail.partition.candidates import candidates
from dovetail.partition.evaluate import delivery
from dovetail.partition.plan import Split
from dovetail.partition.problem import TOLERANCE, Problem, piece_regions, price_pieces, price_reduce, sort_of
from dovetail.partition.work import Layout, Place, output_layout, streamed


@dataclass(frozen=True, slots=True)
class Ask:
    """One question to the cost model, units of one axis on one device, and which column needs which of its answers."""

    axis: Axis | None
    device: int
    starts: Ints
    stops: Ints
    columns: Ints
    shares: Ints


@dataclass(frozen=True, slots=True, eq=False)
class Pattern:
    """All that alike nodes have in common: columns sorted by the place they leave the output in.

    `held` and `reads` (one per input) are regions as arrays, see `boxes`; `flowing` marks places that a whole node on a
    streaming device fills; `reducer` is a device index or -1.
    """

    splits: tuple[Split, ...]
    rank: Ints
    layouts: tuple[Layout, ...]
    flowing: Flags
    place_of: Ints
    held: Ints
    reads: tuple[Ints, ...]
    has: Flags
    rank_on: Ints
    """Which of the columns with a piece on a device each column is, columns x devices."""
    reducer: Ints
    asks: tuple[Ask, ...]


@dataclass(frozen=True, slots=True)
class Held:
    """The places a tensor can be in: some of a pattern's, and how long each is in the making (see `work.Place`)."""

    pattern: Pattern
    places: Ints
    stream_s: Floats


@dataclass(frozen=True, slots=True)
class Options:
    """Some columns of a node with their prices; arrays are columns x devices, `resources` columns x budgets.

    `columns` and `places` are indices into the pattern, `place_of` into `places`; `home_s` and `home_j` bring a graph
    output to the host.
    """

    node: Node
    pattern: Pattern
    columns: Ints
    places: Ints
    place_of: Ints
    stream_s: Floats
    alone_s: Floats
    fused_s: Floats
    energy_j: Floats
    reduce_s: Floats
    reduce_j: Floats
    home_s: Floats
    home_j: Floats
    resources: Floats

    def __len__(self) -> int:
        return len(self.columns)

    @property
    def splits(self) -> tuple[Split, ...]:
        return tuple(self.pattern.splits[i] for i in self.columns.tolist())

    @property
    def rank(self) -> Ints:
        return self.pattern.rank[self.columns]

    @property
    def reducer(self) -> Ints:
        return self.pattern.reducer[self.columns]

    @property
    def held(self) -> Held:
        return Held(self.pattern, self.places, self.stream_s)

    def place(self, column: int) -> Place:
        """Where a column leaves the output."""
        at = int(self.place_of[column])
        return Place(self.pattern.layouts[self.places[at]], float(self.stream_s[at]))

    def keep(self, chosen: Ints) -> Options:
        """Only some columns, and the places they fill; `chosen` is ascending."""
        if len(chosen) == len(self.columns):
            return self
        present = np.unique(self.place_of[chosen])
        return Options(
            self.node, self.pattern, self.columns[chosen], self.places[present],
            np.searchsorted(present, self.place_of[chosen]), self.stream_s[present], self.alone_s[chosen],
            self.fused_s[chosen], self.energy_j[chosen], self.reduce_s[chosen], self.reduce_j[chosen], self.home_s[chosen],
            self.home_j[chosen], self.resources[chosen])


def boxes(layouts: Sequence[Sequence[tuple[str, Region]]], devices: Sequence[str], rank: int) -> Ints:
    """Regions as an array (layout, device, dimension, start and stop); empty where a device has none."""
    found = np.zeros((len(layouts), len(devices), max(rank, 1), 2), dtype=np.int64)
    at = {d: i for i, d in enumerate(devices)}
    for i, layout in enumerate(layouts):
        for device, region in layout:
            found[i, at[device]] = region or ((0, 1),)  # a scalar counts as a row of one
    return found


def inputs_held(problem: Problem) -> dict[str, Held]:
    """Graph inputs, which are always on the host."""
    return {t: Held(_host_pattern(problem, t), np.zeros(1, dtype=np.int64), np.zeros(1)) for t in problem.graph.inputs}


def _host_pattern(problem: Problem, tensor: str) -> Pattern:
    shape = problem.graph.shape(tensor)
    key = ("input", shape)
    if key not in problem.patterns:
        layout: Layout = ((problem.platform.host, whole(shape)),)
        none, empty = np.zeros(0, dtype=np.int64), np.zeros((0, len(problem.devices)), dtype=np.bool_)
        problem.patterns[key] = Pattern((), none, (layout,), np.zeros(1, dtype=np.bool_), none,
                                        boxes([layout], problem.devices, len(shape)), (), empty, empty.astype(np.int64), none, ())
    return problem.patterns[key]


def options(problem: Problem, node: Node) -> Options:
    """All candidate columns of a node, less those that alone exceed a budget and so are in no legal plan."""
    if node.name not in problem.choices:
        problem.choices[node.name] = _priced(problem, node, _pattern(problem, node))
    return problem.choices[node.name]


def _pattern(problem: Problem, node: Node) -> Pattern:
    capable = tuple(d for d in problem.devices if price_pieces(problem, node, None, d, [(0, 1)]))
    key = (sort_of(problem, node), capable, problem.fixed.get(node.name))
    if key not in problem.patterns:
        problem.patterns[key] = _new_pattern(problem, node, candidates(problem, node, capable))
    return problem.patterns[key]


def _new_pattern(problem: Problem, node: Node, found: list[tuple[Split, int]]) -> Pattern:
    outputs = [(output_layout(problem, node, s), streamed(problem, s)) for s, _ in found]
    ids = {place: i for i, place in enumerate(dict.fromkeys(outputs))}
    order = sorted(range(len(found)), key=lambda i: (ids[outputs[i]], i))
    splits = tuple(found[i][0] for i in order)
    at = {d: i for i, d in enumerate(problem.devices)}
    layouts = tuple(layout for layout, _ in ids)
    has = np.zeros((len(splits), len(at)), dtype=np.bool_)
    for row, split in enumerate(splits):
        has[row, [at[d] for d in split.devices]] = True
    return Pattern(
        splits, np.array([found[i][1] for i in order], dtype=np.int64), layouts,
        np.array([flows for _, flows in ids], dtype=np.bool_), np.array([ids[outputs[i]] for i in order], dtype=np.int64),
        boxes(layouts, problem.devices, len(problem.graph.shape(node.output))), _reads(problem, node, splits), has,
        np.cumsum(has, axis=0) - 1,
        np.array([at[s.reducer] if s.reducer is not None else -1 for s in splits], dtype=np.int64), _asks(splits, at))


def _reads(problem: Problem, node: Node, splits: Sequence[Split]) -> tuple[Ints, ...]:
    regions = [[(p.device, piece_regions(problem, node, s.axis, p.start, p.stop)[0]) for p in s.pieces] for s in splits]
    return tuple(boxes([[(d, r[slot]) for d, r in pieces] for pieces in regions], problem.devices, len(problem.graph.shape(t)))
                 for slot, t in enumerate(node.inputs))


def _asks(splits: Sequence[Split], at: dict[str, int]) -> tuple[Ask, ...]:
    wanted: dict[tuple[Axis | None, int], list[tuple[int, int, int]]] = {}
    for row, split in enumerate(splits):
        for p in split.pieces:
            wanted.setdefault((split.axis, at[p.device]), []).append((p.start, p.stop, row))
    found = []
    for (axis, device), entries in wanted.items():
        shares = {share: i for i, share in enumerate(dict.fromkeys((start, stop) for start, stop, _ in entries))}
        found.append(Ask(axis, device, np.array([s for s, _ in shares], dtype=np.int64),
                         np.array([s for _, s in shares], dtype=np.int64), np.array([row for *_, row in entries], dtype=np.int64),
                         np.array([shares[start, stop] for start, stop, _ in entries], dtype=np.int64)))
    return tuple(found)


def _priced(problem: Problem, node: Node, pattern: Pattern) -> Options:
    count, at = len(pattern.splits), {(d, r): i for i, (d, r, _) in enumerate(problem.budgets)}
    alone, fused, energy = (np.zeros((count, len(problem.devices))) for _ in range(3))
    used, legal = np.zeros((count, len(at))), np.ones(count, dtype=np.bool_)
    for number, ask in enumerate(pattern.asks):
        device = problem.devices[ask.device]
        costs = _asked(problem, node, pattern, number)
        if costs is None:
            legal[ask.columns] = False
            continue
        alone[ask.columns, ask.device] = costs.alone_s[ask.shares]
        fused[ask.columns, ask.device] = costs.fused_s[ask.shares]
        energy[ask.columns, ask.device] = costs.energy_j[ask.shares]
        for resource, amounts in costs.resources.items():
            if (device, resource) in at:
                used[ask.columns, at[device, resource]] += amounts[ask.shares]
    sums = _sums(problem, node, pattern, used, legal)
    limits = np.array([limit for _, _, limit in problem.budgets])
    legal &= np.isfinite(alone).all(axis=1) & (used <= limits * (1 + TOLERANCE)).all(axis=1)
    return _finish(problem, node, pattern, (alone, fused, energy, *sums, used), np.flatnonzero(legal))


def _asked(problem: Problem, node: Node, pattern: Pattern, number: int) -> ShareCosts | None:
    """The answer to one of a pattern's questions, asked once for all alike nodes where their weights do not matter."""
    ask = pattern.asks[number]
    device = problem.platform.device(problem.devices[ask.device])
    key = (id(pattern), number, any(problem.graph.tensors[t].scheme is None for t in (*node.inputs, node.output)))
    if key in problem.answers:
        return problem.answers[key]
    found = problem.costs.costs_of(problem.graph, node, ask.axis, ask.starts, ask.stops, device)
    if problem.costs.by_shape(device):
        problem.answers[key] = found
    return found


def _sums(problem: Problem, node: Node, pattern: Pattern, used: Floats, legal: Flags) -> tuple[Floats, Floats]:
    """Time and energy of the sums that end input-channel splits; what they take is added to `used`."""
    seconds, joules = np.zeros(len(pattern.splits)), np.zeros(len(pattern.splits))
    at, parts = {(d, r): i for i, (d, r, _) in enumerate(problem.budgets)}, pattern.has.sum(axis=1)
    for reducer, count in {(int(r), int(n)) for r, n in zip(pattern.reducer, parts, strict=True) if r >= 0}:
        chosen, device = np.flatnonzero((pattern.reducer == reducer) & (parts == count)), problem.devices[reducer]
        cost = price_reduce(problem, node, count, device)
        if cost is None:
            legal[chosen] = False
            continue
        seconds[chosen], joules[chosen] = cost.alone_s, cost.energy_j
        for resource, amount in cost.resources:
            if (device, resource) in at:
                used[chosen, at[device, resource]] += amount
    return seconds, joules


def _finish(problem: Problem, node: Node, pattern: Pattern, arrays: tuple[Floats, ...], chosen: Ints) -> Options:
    """The chosen columns as options, with what each place still owes: the way home, and the stream that fills it."""
    alone, fused, energy, reduce_s, reduce_j, used = arrays
    present = np.unique(pattern.place_of[chosen])
    stream = np.zeros(len(pattern.layouts))
    for column in chosen[pattern.flowing[pattern.place_of[chosen]]].tolist():
        stream[pattern.place_of[column]] = max(0.0, float((alone[column] - fused[column]).sum()))
    homes = np.zeros((len(pattern.layouts), 2))
    if node.output in problem.graph.outputs:
        for i in present.tolist():
            homes[i] = delivery(problem, node.output, Place(pattern.layouts[i], float(stream[i])))
    home = homes[pattern.place_of[chosen]]
    return Options(
        node, pattern, chosen, present, np.searchsorted(present, pattern.place_of[chosen]), stream[present], alone[chosen],
        fused[chosen], energy[chosen], reduce_s[chosen], reduce_j[chosen], home[:, 0], home[:, 1], used[chosen])
