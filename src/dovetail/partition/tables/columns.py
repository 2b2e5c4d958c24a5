"""The columns of every node as arrays: what each leaves where, what it reads, what it costs and takes.

Nodes of the same operator and shapes share a *pattern*: splits, regions and places. Only prices are their own. Columns
that leave a tensor in the same place are the same to the rest of the network.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import field, replace
from functools import lru_cache
from itertools import count
from math import inf, isfinite

import numpy as np

from dovetail.hardware.shares import Flags, Floats, Ints
from dovetail.ir import Node, Op, whole
from dovetail.partition.candidates import Candidates, boxes_of
from dovetail.partition.effort import spend
from dovetail.partition.evaluate import delivery
from dovetail.partition.memo import Cache
from dovetail.partition.plan import Mode, Piece, Split
from dovetail.partition.problem import QUOTES, TWINS, Problem, geometry_of, price_reduce, shape_of
from dovetail.partition.tables.quotes import ShareMenu, ask_all, capable, menu_of
from dovetail.partition.tolerances import TOLERANCE
from dovetail.partition.work import Layout, Place
from dovetail.values import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class Pattern:
    """All that alike nodes have in common: columns sorted by the place they leave the output in.

    `held` (of every place) and `reads` (one per input, of every column) are regions as arrays (place or column, device,
    dimension, start and stop), empty where a device has none; `flowing` marks places that a whole node on a streaming device
    fills.
    """

    devices: tuple[str, ...]
    columns: Candidates
    flowing: Flags
    place_of: Ints
    held: Ints
    reads: tuple[Ints, ...]
    has: Flags
    shape: tuple[int, ...]
    """Of the output."""
    cut: Flags
    reads_cut: tuple[Flags, ...]
    """Which dimensions of the output, and of each input, any region cuts."""
    made: dict[int, Split] = field(default_factory=dict, repr=False)
    codes: dict[tuple[int, int], Ints] = field(default_factory=dict, repr=False)
    """Regions as numbers, by input (-1: the output) and device, where they were compared."""
    used: Flags = field(init=False, repr=False)
    """Devices with a piece of any column."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "used", np.logical_or.reduce(self.has, axis=0))

    def keep(self, chosen: Ints) -> Pattern:
        """Only some columns, and the places they fill; `chosen` is ascending."""
        places, place_of = _runs(self.place_of[chosen])
        has = self.has[chosen]
        made = {i: self.made[c] for i, c in enumerate(chosen.tolist()) if c in self.made}
        return Pattern(self.devices, self.columns.take(chosen), self.flowing[places], place_of,
                       self.held[places], tuple(r[chosen] for r in self.reads), has,
                       self.shape, self.cut, self.reads_cut, made)

    @property
    def rank(self) -> Ints:
        return self.columns.rank

    @property
    def reducer(self) -> Ints:
        """The device that adds partial sums, -1 where there are none."""
        return self.columns.reducer

    def split(self, column: int) -> Split:
        """A column as a split."""
        if column not in self.made:
            own = self.columns
            pieces = tuple(Piece(self.devices[d], int(own.start[column, d]), int(own.stop[column, d]))
                           for d in self.has[column].nonzero()[0].tolist())
            reducer = int(own.reducer[column])
            self.made[column] = Split(own.axes[own.axis[column]], tuple(sorted(pieces, key=lambda p: p.start)),
                                      self.devices[reducer] if reducer >= 0 else None)
        return self.made[column]

    def layout(self, place: int, dimensions: int) -> Layout:
        """A place as regions of a tensor."""
        return tuple((self.devices[d], tuple((int(a), int(b)) for a, b in self.held[place, d, :dimensions]))
                     for d in self.held[place, :, 0, 1].nonzero()[0].tolist())


@dataclass(frozen=True, slots=True)
class Held:
    """The places a tensor can be in: some of a pattern's, and how long each is in the making (see `work.Place`)."""

    pattern: Pattern
    places: Ints
    stream_s: Floats


@dataclass(frozen=True, slots=True, eq=False)
class PricedSplits:
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
        return tuple(self.pattern.split(i) for i in self.columns.tolist())

    @property
    def rank(self) -> Ints:
        return self.pattern.rank[self.columns]

    @property
    def reducer(self) -> Ints:
        return self.pattern.reducer[self.columns]

    def split(self, column: int) -> Split:
        return self.pattern.split(int(self.columns[column]))

    @property
    def held(self) -> Held:
        return Held(self.pattern, self.places, self.stream_s)

    def held_by(self, column: int) -> Held:
        """The place that one column leaves the output in."""
        place = self.place_of[column:column + 1]
        return Held(self.pattern, self.places[place], self.stream_s[place])

    def keep(self, chosen: Ints) -> PricedSplits:
        """Only some columns, and the places they fill; `chosen` is ascending."""
        if len(chosen) == len(self.columns):
            return self
        present, place_of = _runs(self.place_of[chosen])
        return PricedSplits(
            self.node, self.pattern, self.columns[chosen], self.places[present],
            place_of, self.stream_s[present], self.alone_s[chosen],
            self.fused_s[chosen], self.energy_j[chosen], self.reduce_s[chosen], self.reduce_j[chosen], self.home_s[chosen],
            self.home_j[chosen], self.resources[chosen])


INPUTS = Cache[str, Pattern]()
CHOICES = Cache[str, PricedSplits]()
"""All candidate columns of each node."""
REMEMBERED = 64
"""Patterns that other questions about the same layers find again. Chosen: some megabytes, not measured."""


def _runs(ascending: Ints) -> tuple[Ints, Ints]:
    """The different values of an ascending array, and which of them each is."""
    new = np.empty(len(ascending), dtype=np.bool_)
    new[:1] = True
    np.not_equal(ascending[1:], ascending[:-1], out=new[1:])
    return ascending[new], new.cumsum() - 1


def inputs_held(problem: Problem) -> dict[str, Held]:
    """Graph inputs, which lie whole on the host."""
    return {t: Held(_on_host(problem, t), np.zeros(1, dtype=np.int64), np.zeros(1)) for t in problem.graph.inputs}


def _on_host(problem: Problem, tensor: str) -> Pattern:
    """A pattern with the one place a graph input can be in."""
    known = problem.memo.of(INPUTS)
    if tensor not in known:
        devices, at = len(problem.devices), problem.devices.index(problem.platform.host)
        none = np.zeros((0, devices), dtype=np.int64)
        region = whole(problem.graph.shape(tensor)) or ((0, 1),)
        held = np.zeros((1, devices, len(region), 2), dtype=np.int64)
        held[0, at] = region
        empty = np.zeros(0, dtype=np.int64)
        columns = Candidates((None,), empty, none, none, empty, empty)
        known[tensor] = Pattern(problem.devices, columns, np.zeros(1, dtype=np.bool_), empty, held, (), none.astype(np.bool_),
                                tuple(b for _, b in region), np.zeros(len(region), dtype=np.bool_), ())
    return known[tensor]


def options(problem: Problem, node: Node) -> PricedSplits:
    """All candidate columns of a node, less those that alone exceed a budget and so are in no legal plan."""
    known = problem.memo.of(CHOICES)
    if node.name not in known:
        ask_all(problem)
        families: dict[tuple[object, ...], list[Node]] = {}
        for n in problem.graph.nodes:
            able = tuple(capable(problem, n, d) for d in problem.devices)
            key = (shape_of(problem, n), able, problem.fixed.get(n.name), problem.more.get(n.name))
            families.setdefault(key, []).append(n)
        for members in families.values():
            _offer(problem, members)
    return known[node.name]


def _offer(problem: Problem, members: list[Node]) -> None:
    """PricedSplits of nodes of the same geometry that the same devices can run."""
    menu, able = menu_of(problem, members[0]), np.array([capable(problem, members[0], d) for d in problem.devices])
    fixed = problem.fixed.get(members[0].name)
    chosen = (~(menu.columns.has & ~able).any(axis=1)).nonzero()[0] if fixed is None else np.zeros(1, dtype=np.int64)
    groups = _grouped(menu, chosen.tobytes(), problem.devices, tuple(problem.memo.of(TWINS).items()))
    alike = [_raw(problem, n, groups) for n in members]
    # What no node of a family may use is left out of their pattern: large shares exceed an FPGA everywhere.
    some = np.logical_or.reduce([raw.legal for raw in alike]).nonzero()[0]
    some = some if len(some) else np.arange(min(1, len(chosen)))
    graph, node, streams = problem.graph, members[0], problem.mode is Mode.CONCURRENT
    pattern, order = _pattern(menu, chosen[some].tobytes(), geometry_of(node), graph.input_shapes(node), graph.shape(node.output),
                              problem.devices, tuple(streams and problem.streams(d) for d in problem.devices))
    if fixed is not None:
        pattern.made[0] = fixed
    for raw in alike:
        problem.memo.of(CHOICES)[raw.node.name] = _finish(problem, raw, pattern, some[order])
    spend("columns", len(members), len(members) * groups.count * len(problem.devices))


def compacted(choices: list[PricedSplits]) -> list[PricedSplits]:
    """The same columns on patterns that hold no others."""
    families: dict[Pattern, list[PricedSplits]] = {}
    for own in choices:
        families.setdefault(own.pattern, []).append(own)
    patterns = {}
    for pattern, alike in families.items():
        columns = np.unique(np.concatenate([own.columns for own in alike]))
        patterns[pattern] = (columns, np.unique(pattern.place_of[columns]), pattern.keep(columns))
    found = []
    for own in choices:
        columns, places, pattern = patterns[own.pattern]
        found.append(replace(own, pattern=pattern, columns=np.searchsorted(columns, own.columns),
                             places=np.searchsorted(places, own.places)))
    return found


def fits(problem: Problem, node: Node, split: Split) -> bool:
    """Whether every piece of a split is known to fit its device by itself, or is no candidate's piece and so not known."""
    ask_all(problem)
    for p in split.pieces:
        quote = problem.memo.of(QUOTES).get((node.name, p.device))
        if quote is None:
            return False
        index, costs = quote
        i = index.get((split.axis, p.start, p.stop))
        limits = problem.limits[p.device]
        if i is not None and not (isfinite(costs.alone_s.item(i)) and all([
                amounts.item(i) <= limits.get(r, inf) * (1 + TOLERANCE) for r, amounts in costs.resources.items()])):
            return False
    return True


@lru_cache(maxsize=REMEMBERED)
def _pattern(menu: ShareMenu, chosen: bytes, op: Op, shapes: tuple[tuple[int, ...], ...], output: tuple[int, ...],
             devices: tuple[str, ...], streams: tuple[bool, ...]) -> tuple[Pattern, Ints]:
    """Some columns of a menu sorted by place, and their order; places are numbered as they first appear."""
    own = menu.columns.take(np.frombuffer(chosen, dtype=np.int64))
    reads, made = boxes_of(op, shapes, output, own)
    held, flows = made.regions, (own.axis == 0) & (own.has & streams).any(axis=1)
    place, starts = numbered(np.concatenate([held.reshape(len(held), -1), flows[:, None]], axis=1))
    order = np.argsort(place, kind="stable")
    return Pattern(devices, own.take(order), flows[starts], place[order], held[starts],
                   tuple(r.regions[order] for r in reads), own.has[order],
                   made.shape, made.cut, tuple(r.cut for r in reads)), order


def numbered(rows: Ints) -> tuple[Ints, Ints]:
    """Which of the different rows each is, counted as they first appear, and where each appears first."""
    every = rows.tobytes()
    width = max(1, len(every) // max(1, len(rows)))
    numbers: dict[bytes, int] = defaultdict(count().__next__)
    number = np.array([numbers[every[i:i + width]] for i in range(0, len(every), width)], dtype=np.int64)
    first = np.zeros(len(numbers), dtype=np.int64)
    first[number[::-1]] = np.arange(len(rows) - 1, -1, -1)
    return number, first


@dataclass(frozen=True, slots=True)
class _Raw:
    """Prices of all candidate columns of a node, and which are legal by themselves."""

    node: Node
    legal: Flags
    arrays: tuple[Floats, ...]


def _raw(problem: Problem, node: Node, groups: _Groups) -> _Raw:
    at = {(d, r): i for i, (d, r, _) in enumerate(problem.budgets)}
    alone, fused, energy = np.zeros((3, groups.count, len(problem.devices)))
    every, legal = np.zeros((groups.count, len(at) + 1)), np.ones(groups.count, dtype=np.bool_)  # last what has no budget
    for device, columns, on, shares in groups.pieces:
        quote = problem.memo.of(QUOTES).get((node.name, device))
        if quote is None:
            legal[columns] = False
            continue
        costs = quote[1]
        alone[columns, on], fused[columns, on] = costs.alone_s[shares], costs.fused_s[shares]
        energy[columns, on] = costs.energy_j[shares]
        for resource, amounts in costs.resources.items():
            every[columns, np.array([at.get((d, resource), -1) for d in problem.devices])[on]] = amounts[shares]
    used = every[:, :-1]
    sums = _sums(problem, node, groups, used, legal)
    limits = np.array([limit for _, _, limit in problem.budgets])
    legal &= np.isfinite(alone).all(axis=1) & (used <= limits * (1 + TOLERANCE)).all(axis=1)
    if problem.max_interval_s is not None and problem.shared_budget:  # every engine is busy with a frame by itself
        streams = np.array([problem.streams(d) for d in problem.devices])
        slowest = np.maximum(np.where(streams, alone, 0.0).max(axis=1), np.where(groups.summed(streams), sums[0], 0.0))
        legal &= slowest <= problem.max_interval_s * (1 + TOLERANCE)
    return _Raw(node, legal, (alone, fused, energy, *sums, used))


@dataclass(frozen=True, slots=True)
class _Groups:
    """Candidate columns: by device, with the numbers of their shares there; by reducer and number of partial sums.

    Pieces on devices with the same prices are together, by the first of these: columns, devices and shares.
    """

    count: int
    pieces: tuple[tuple[str, Ints, Ints, Ints], ...]
    sums: tuple[tuple[int, int], ...]

    kind: Ints
    """Which of the `sums` ends each column; as many as there are, where none does."""

    def summed(self, on: Flags) -> Flags:
        """Columns whose partial sums are added on one of some devices."""
        return np.array([*(on[reducer] for reducer, _ in self.sums), False])[self.kind]


@lru_cache(maxsize=REMEMBERED)
def _grouped(menu: ShareMenu, chosen: bytes, devices: tuple[str, ...], same: tuple[tuple[str, str], ...]) -> _Groups:
    """Some columns of a menu, on devices of which some have the same prices as others."""
    rows = np.frombuffer(chosen, dtype=np.int64)
    own, share = menu.columns.take(rows), menu.share[rows]
    has, twins = own.has, dict(same)
    alike: dict[str, list[int]] = {}
    for d in np.flatnonzero(has.any(axis=0)).tolist():
        alike.setdefault(twins.get(devices[d], devices[d]), []).append(d)
    pieces = list[tuple[str, Ints, Ints, Ints]]()
    for device, some in alike.items():
        nth, columns = has[:, some].T.nonzero()
        on = np.array(some)[nth]
        pieces.append((device, columns, on, share[columns, on]))
    if not np.count_nonzero(own.reducer >= 0):
        return _Groups(len(has), tuple(pieces), (), np.zeros(len(has), dtype=np.int64))
    base = has.shape[1] + 1
    codes = np.where(own.reducer < 0, base * base, own.reducer * base + has.sum(axis=1))
    present = np.bincount(codes, minlength=base * base + 1)[:-1].nonzero()[0]
    kind = np.full(base * base + 1, len(present))
    kind[present] = np.arange(len(present))
    return _Groups(len(has), tuple(pieces), tuple([divmod(k, base) for k in present.tolist()]), kind[codes])


def _sums(problem: Problem, node: Node, groups: _Groups, used: Floats, legal: Flags) -> tuple[Floats, Floats]:
    """Time and energy of the sums that end input-channel splits; what they take is added to `used`."""
    if not groups.sums:
        return np.zeros(len(legal)), np.zeros(len(legal))
    at = {(d, r): i for i, (d, r, _) in enumerate(problem.budgets)}
    taken, able = np.zeros((len(groups.sums) + 1, 2 + len(at))), np.ones(len(groups.sums) + 1, dtype=np.bool_)
    for i, (reducer, parts) in enumerate(groups.sums):
        device = problem.devices[reducer]
        cost = price_reduce(problem, node, parts, device)
        if cost is None:
            able[i] = False
            continue
        taken[i, 0], taken[i, 1] = cost.alone_s, cost.energy_j
        for resource, amount in cost.resources:
            if (device, resource) in at:
                taken[i, 2 + at[device, resource]] += amount
    legal &= able[groups.kind]
    every = taken[groups.kind]
    used += every[:, 2:]
    return every[:, 0].copy(), every[:, 1].copy()


def _finish(problem: Problem, own: _Raw, pattern: Pattern, candidates: Ints) -> PricedSplits:
    """The legal columns as options, with what each place still owes: the way home, and the stream that fills it.

    `candidates` says which of all candidate columns each of the pattern is.
    """
    node, columns = own.node, own.legal[candidates].nonzero()[0]
    chosen = candidates[columns]
    alone, fused, energy, reduce_s, reduce_j, used = (a[chosen] for a in own.arrays)
    present, place_of = _runs(pattern.place_of[columns])
    stream, homes = np.zeros(len(present)), np.zeros((len(present), 2))
    for column in pattern.flowing[present][place_of].nonzero()[0].tolist():
        stream[place_of[column]] = max(0.0, float((alone[column] - fused[column]).sum()))
    if node.output in problem.graph.outputs:
        dimensions = len(problem.graph.shape(node.output))
        for i, place in enumerate(present.tolist()):
            homes[i] = delivery(problem, node.output, Place(pattern.layout(place, dimensions), float(stream[i])))
    home = homes[place_of]
    return PricedSplits(node, pattern, columns, present, place_of, stream, alone, fused, energy, reduce_s, reduce_j, home[:, 0],
                   home[:, 1], used)
