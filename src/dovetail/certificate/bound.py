"""That no plan of a form is below a bound: prices on what is limited, a relaxation over a tree, then all plans it leaves.

Every limited amount has a price. A plan within all limits that is below the bound costs less than the bound and the priced limits
together; so whatever costs that much can be dropped. What is left to come is bounded by a tree in which every node pays for one
of its inputs and finds the others wherever it wants them. Nodes are then added one by one to all partial plans that stay below,
with all their inputs paid for; where none is left, the bound is proven. Costs are rounded down to whole units, whose sums are
exact.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from math import inf, prod

import numpy as np

from dovetail.certificate.columns import SLACK, Columns, DividedNode, HeldNode, columns_of, held_columns, limits_of, splits_of
from dovetail.certificate.judge import at_once
from dovetail.certificate.rules import SHARED, Rules, Spent, TensorPlaces, delivery, run
from dovetail.hardware.shares import Floats, Ints
from dovetail.ir import Graph, Node
from dovetail.ir.branches import Block, in_order
from dovetail.platform.device import Platform

UNITS = 1 << 44
"""Units that a plan must cost to be dropped. Chosen: sums of ten thousand costs fit 64 bits, and rounding takes 1e-9."""
ROUNDED_DOWN = 1 - 2.0**-40
"""What is left of a double that some thousand roundings may have made too large."""
MOST_WAYS = 1000
"""Ways to run the arms of a block at once that are looked at one by one. Chosen, not measured."""
MOST_PARTIAL = 6_000
"""Partial plans before a step at the most. Chosen: a step takes about a tenth of a second."""
MOST_MADE = 5 * MOST_PARTIAL
"""Partial plans that a step may make of them, at the most."""
ENGINE = " engine "


@dataclass(frozen=True, slots=True)
class CostTable:
    """Cost and limited amounts of a node's columns (places x columns; amounts with one axis more, as parts of their limits)."""

    cost: Floats
    amounts: Floats


@dataclass(frozen=True, slots=True)
class Way:
    """A block whose arms run at once: devices of its arms, that of its join (None: it runs later), cost by the fork's place."""

    devices: tuple[int, ...]
    join: int | None
    table: CostTable


@dataclass(frozen=True, slots=True)
class Relaxed:
    """The least that is to come, in units: by node and place of the input it pays for, by tensor and its place."""

    least: dict[str, Ints]
    column: dict[str, Ints]
    after: dict[str, Ints]
    way: dict[str, Ints]
    """Of every block by its fork's place: which way is best; -1: one arm after another."""


@dataclass(frozen=True)
class SearchedForm:
    """A network on a board whose FPGAs have become something; `goal` is latency, energy or throughput.

    With `ceiling_s`, the interval below which no plan is to be, busy processors and lanes are limited amounts too.
    """

    asked: Graph
    platform: Platform
    goal: str
    ceiling_s: float = inf
    pins: Mapping[str, DividedNode] = field(default_factory=dict)
    held: Mapping[str, HeldNode] = field(default_factory=dict)
    """Nodes of an accelerator; `holder` computes them, and no others."""
    holder: str = ""

    @cached_property
    def ordered(self) -> tuple[Graph, tuple[Block, ...]]:
        graph, forks = in_order(self.asked)
        return graph, () if self.goal == "throughput" else forks

    @cached_property
    def rules(self) -> Rules:
        return Rules(self.ordered[0], self.platform)

    @cached_property
    def limits(self) -> dict[str, float]:
        """By name, what all nodes together may take."""
        return {f"{d} {r}": limit for (d, r), limit in limits_of(self.platform).items()} | dict.fromkeys(
            self.timed, self.ceiling_s)

    @cached_property
    def timed(self) -> tuple[str, ...]:
        """Processors, lanes and shared engines, which may be busy up to the ceiling."""
        if self.goal != "throughput":
            return ()
        rules, names = self.rules, range(len(self.rules.names))
        lanes = {lane for s in names for d in names if s != d or rules.streams[d] for lane in rules.lanes(s, d)}
        workers = {rules.worker(d, n.name) for d in names for n in rules.graph.nodes}
        return tuple(sorted({*lanes, *(w for w in workers if ENGINE not in w or w.endswith(SHARED))}))

    @cached_property
    def own(self) -> dict[str, Columns]:
        """All columns of every node; of engines, those that keep the ceiling."""
        graph, rules = self.rules.graph, self.rules
        every = columns_of(graph, self.platform, {n.name: self._splits(n) for n in graph.nodes})
        every |= {name: held_columns(graph, self.platform, graph.node(name), self.holder, own)
                  for name, own in self.held.items()}
        if self.goal != "throughput":
            return every
        alone = [d for d, streams in enumerate(rules.streams) if streams]
        return {name: own.take([c for c in range(len(own)) if all(
            own.alone_s[c, d] <= self.ceiling_s or rules.worker(d, name).endswith(SHARED) for d in alone)])
            for name, own in every.items()}

    def _splits(self, node: Node) -> list[DividedNode]:
        """The splits of a node; none beside an accelerator is on its FPGA."""
        if node.name in self.held:
            return []
        found = [self.pins[node.name]] if node.name in self.pins else splits_of(self.asked, node, self.platform)
        return [s for s in found if not self.held or self.holder not in (s.reducer, *(d for d, _, _ in s.pieces))]

    @cached_property
    def places(self) -> dict[str, TensorPlaces]:
        """All places that each tensor can be in."""
        found = {t: self.rules.home(t) for t in self.rules.graph.inputs}
        for name, own in self.own.items():
            _, columns = self._numbered[name]
            found[own.node.output] = TensorPlaces(own.held[columns], own.stream_s[columns])
        return found

    @cached_property
    def _numbered(self) -> dict[str, tuple[Ints, Ints]]:
        """Of every node, the place that each column leaves its output in, and a column of each place."""
        found = {}
        for name, own in self.own.items():
            first: dict[tuple[bytes, float], int] = {}
            number = [first.setdefault((own.held[c].tobytes(), float(own.stream_s[c])), len(first)) for c in range(len(own))]
            column = np.array([number.index(p) for p in range(len(first))], dtype=np.int64)
            found[name] = np.array(number, dtype=np.int64), column
        return found

    def place_of(self, name: str) -> Ints:
        return self._numbered[name][0]

    def count(self, tensor: str) -> int:
        """Places that a tensor can be in."""
        regions = self.places[tensor].regions
        assert regions is not None
        return len(regions)

    def whole_place(self, node: Node, device: int) -> int:
        """The place of a whole node's output."""
        own = self.own[node.name]
        (column,) = [c for c, s in enumerate(own.splits) if s.axis is None and own.has[c, device]]
        return int(self.place_of(node.name)[column])

    @cached_property
    def parents(self) -> dict[str, str]:
        """The input that each node pays for in the tree: the latest made, within its block if it is in one or joins one."""
        graph, forks = self.ordered
        at = {t: -1 for t in graph.inputs} | {n.output: k for k, n in enumerate(graph.nodes)}
        found = {}
        for node in graph.nodes:
            inside = [{b.fork, *(n.output for n in b.nodes)} for b in forks if node in b.nodes]
            inside += [{n.output for n in b.nodes} for b in forks if b.meets and b.join == node]
            near = min(inside, key=len, default=set(node.inputs))
            found[node.name] = max((t for t in node.inputs if t in near), key=at.__getitem__)
        return found

    @cached_property
    def tables(self) -> dict[str, CostTable]:
        """Of every node by the place of the input it pays for."""
        graph, free = self.rules.graph, TensorPlaces(None)
        return {n.name: self.table(n, [self.places[t] if t == self.parents[n.name] or graph.producer(t) is None else free
                                       for t in n.inputs]) for n in graph.nodes}

    def table(self, node: Node, places: Sequence[TensorPlaces]) -> CostTable:
        """Costs of all columns of a node, with the way home of what it makes."""
        own = self.own[node.name]
        spent = run(self.rules, own, places)
        home = delivery(self.rules, node.output, self.places[node.output]) if node.output in self.rules.graph.outputs else None
        return self._counted(spent, own, home, self.place_of(node.name))

    def _counted(self, spent: Spent, own: Columns, home: Spent | None, place_of: Ints) -> CostTable:
        seconds, joules = spent.done_s, spent.moved_j + own.energy_j
        busy = dict(spent.busy_s)
        if home is not None:
            seconds, joules = seconds + home.done_s[place_of, 0], joules + home.moved_j[place_of, 0]
            for lane, more in home.busy_s.items():
                busy[lane] = busy.get(lane, 0.0) + more[place_of, 0]
        cost = {"latency": seconds, "energy": joules + self.rules.idle_w * seconds, "throughput": seconds * 0.0}[self.goal]
        parts = [np.broadcast_to(busy.get(name, 0.0), seconds.shape) for name in self.timed]
        taken = np.broadcast_to(own.amounts, (*seconds.shape, own.amounts.shape[1]))
        return CostTable(cost, np.concatenate([taken, *(p[..., None] for p in parts)], axis=-1) / self._whole)

    @cached_property
    def _whole(self) -> Floats:
        return np.array(list(self.limits.values()))

    @cached_property
    def ways(self) -> dict[str, list[Way]]:
        """Of every block by its fork, all ways to run its arms at once; one that costs least of all where they are too many."""
        outside = {t: TensorPlaces(None) for t in self.places}
        return {b.fork: list(self.at_once(b, {**outside, b.fork: self.places[b.fork]})) for b in self.ordered[1]}

    def too_many(self, block: Block) -> bool:
        return prod(len(self._able(arm)) for arm in block.arms) > MOST_WAYS

    def _able(self, nodes: Sequence[Node]) -> dict[int, list[int]]:
        """Devices that can run some nodes whole, and the column of each node there."""
        found = []
        for n in nodes:
            own = self.own[n.name]
            found.append({int(own.has[c].argmax()): c for c, s in enumerate(own.splits) if s.axis is None})
        return {d: [f[d] for f in found] for d in found[0] if all(d in f for f in found)}

    def at_once(self, block: Block, places: Mapping[str, TensorPlaces]) -> Iterator[Way]:
        """All ways to run a block at once, where its inputs lie in given places."""
        able = [self._able(arm) for arm in block.arms]
        if self.too_many(block):
            yield self._least_way(block)
            return
        joins = self._able([block.join]) if block.meets else {}
        for devices in product(*able):
            if len(set(devices)) == 1:
                continue
            arms = [(self.own[n.name].take([c]), d) for arm, d, has in zip(block.arms, devices, able, strict=True)
                    for n, c in zip(arm, has[d], strict=True)]
            for join in (None, *joins):
                around = arms if join is None else [*arms, (self.own[block.join.name].take(joins[join]), join)]
                made = {own.node.output: TensorPlaces(own.held, own.stream_s) for own, _ in around}
                latest, spent = at_once(self.rules, around, {**places, **made})
                yield Way(devices, join, self._together(around, latest, spent, join is not None and block.join.output))

    def _together(self, around: Sequence[tuple[Columns, int]], latest: Floats, spent: Sequence[Spent],
                  output: str | bool) -> CostTable:
        joules = sum(s.moved_j + own.energy_j for s, (own, _) in zip(spent, around, strict=True))
        if isinstance(output, str) and output in self.rules.graph.outputs:
            home = delivery(self.rules, output, TensorPlaces(around[-1][0].held, around[-1][0].stream_s))
            latest, joules = latest + home.done_s, joules + home.moved_j
        cost = latest if self.goal == "latency" else joules + self.rules.idle_w * latest
        amounts = sum(own.amounts[0] for own, _ in around) / self._whole
        return CostTable(cost[:, 0], np.asarray(amounts))

    def _least_way(self, block: Block) -> Way:
        """Less than any way at once: the longest arm, or all arms shared evenly, nothing moved, nothing limited taken."""
        quick = [[np.minimum(own.alone_s, own.fused_s).max(axis=1).min() for own in (self.own[n.name] for n in arm)]
                 for arm in block.arms]
        seconds = max(max(map(sum, quick)), sum(map(sum, quick)) / len(self.rules.names))
        joules = sum(self.own[n.name].energy_j.min() for n in block.nodes)
        cost = seconds if self.goal == "latency" else joules + self.rules.idle_w * seconds
        return Way((), None, CostTable(np.full(1, cost), np.zeros(len(self.limits))))


@dataclass(frozen=True)
class Prices:
    """A form with a price for each part of a limit, and the bound to be proven; makes whole units of costs."""

    form: SearchedForm
    price: Floats
    bound: float
    known: dict[tuple[str, int], Ints] = field(default_factory=dict, init=False, repr=False, compare=False)

    @cached_property
    def threshold(self) -> float:
        """What a plan below the bound costs less than, limits paid for with the slack that plans have."""
        return (0.0 if self.form.goal == "throughput" else self.bound) + float(self.price.sum()) * (1 + float(SLACK))

    def units(self, table: CostTable) -> Ints:
        """Rounded down; more than enough is enough."""
        score = (table.cost + table.amounts @ self.price) * (ROUNDED_DOWN * UNITS / self.threshold)
        return np.minimum(np.floor(score), 2.0 * UNITS).astype(np.int64)

    @cached_property
    def relaxed(self) -> Relaxed:
        """The tree's bound, from the last node to the first."""
        form, graph = self.form, self.form.ordered[0]
        found = Relaxed({}, {}, {}, {})
        for tensor in (*(n.output for n in reversed(graph.nodes)), *graph.inputs):
            found.after[tensor] = self._to_come(tensor, 0, found)
            node = graph.producer(tensor)
            if node is not None:
                total = self.units(form.tables[node.name]) + found.after[tensor][form.place_of(node.name)]
                found.least[node.name] = total.min(axis=1, initial=2 * UNITS)
                found.column[node.name] = total.argmin(axis=1) if total.shape[1] else np.zeros(len(total), dtype=np.int64)
        return found

    @cached_property
    def value(self) -> int:
        """What every plan costs at least by the tree, limits priced."""
        return sum(int(self.relaxed.after[t][0]) for t in self.form.ordered[0].inputs)

    def to_come(self, tensor: str, position: int) -> Ints:
        """What those nodes from a position on cost at least that pay for a tensor, by its place, with all behind them."""
        if (tensor, position) not in self.known:
            self.known[tensor, position] = self._to_come(tensor, position, self.relaxed)
        return self.known[tensor, position]

    def _to_come(self, tensor: str, position: int, found: Relaxed) -> Ints:
        form, (graph, forks) = self.form, self.form.ordered
        children = [n for n in graph.consumers(tensor) if form.parents[n.name] == tensor and graph.position(n.name) >= position]
        none = np.zeros(form.count(tensor), dtype=np.int64)
        total = sum((found.least[n.name] for n in children), none)
        for block in forks:
            if block.fork == tensor and graph.position(block.nodes[0].name) >= position:
                inside = sum((found.least[n.name] for n in children if n in block.nodes), none)
                ways = [self.units(w.table) + self._behind(block, w, found) + none for w in form.ways[tensor]]
                found.way[tensor] = np.argmin([inside, *ways], axis=0) - 1
                total = total - inside + np.minimum.reduce([inside, *ways])
        return total

    def _behind(self, block: Block, way: Way, found: Relaxed) -> int:
        """What is behind a block that ran at once."""
        form, join = self.form, block.join
        if way.join is not None:
            return int(found.after[join.output][form.whole_place(join, way.join)])
        made = {n.output: (n, d) for arm, d in zip(block.arms, way.devices, strict=False) for n in arm}
        parent = form.parents[join.name]
        return int(found.least[join.name][form.whole_place(*made[parent])]) if parent in made else 0

    def cheapest(self) -> tuple[float, Floats]:
        """Cost and limited amounts of what the tree's bound is the cost of."""
        form, (graph, forks), relaxed = self.form, self.form.ordered, self.relaxed
        cost, amounts = 0.0, np.zeros(len(form.limits))
        begun, waiting, tensors = {b.fork: b for b in forks}, list[tuple[Node, int]](), [(t, 0) for t in graph.inputs]
        while tensors or waiting:
            if waiting:
                node, place = waiting.pop()
                column, table = int(relaxed.column[node.name][place]), form.tables[node.name]
                cost, amounts = cost + table.cost[place, column], amounts + table.amounts[place, column]
                tensors.append((node.output, int(form.place_of(node.name)[column])))
                continue
            tensor, place = tensors.pop()
            children = [n for n in graph.consumers(tensor) if form.parents[n.name] == tensor]
            block, way = begun.get(tensor), int(relaxed.way[tensor][place]) if tensor in relaxed.way else -1
            if block is not None and way >= 0:
                children = [n for n in children if n not in block.nodes]
                found = form.ways[tensor][way]
                cost += float(found.table.cost[place if len(found.table.cost) > 1 else 0])
                amounts = amounts + found.table.amounts
                made = {n.output: (n, d) for arm, d in zip(block.arms, found.devices, strict=False) for n in arm}
                if found.join is not None:
                    tensors.append((block.join.output, form.whole_place(block.join, found.join)))
                elif form.parents[block.join.name] in made:
                    waiting.append((block.join, form.whole_place(*made[form.parents[block.join.name]])))
            waiting += [(n, place) for n in children]
        return cost, amounts

    def proven(self) -> bool | None:
        """Whether no plan of the form is below the bound; None where that takes too many partial plans, or prices are none."""
        if not 0 < self.threshold < inf:
            return None
        if self.value >= UNITS:
            return True
        return None if any(self.form.too_many(b) for b in self.form.ordered[1]) else _Search(self).none_below()


@dataclass
class _Labels:
    """Partial plans: where each tensor that is still read lies, units spent (limits priced, and not), limited amounts taken."""

    places: dict[str, Ints]
    spent: Ints
    taken: Floats

    def take(self, rows: Ints) -> _Labels:
        return _Labels({t: p[rows] for t, p in self.places.items()}, self.spent[:, rows], self.taken[rows])


class _Search:
    """All partial plans that may stay below the bound, node by node: with limits priced, and by their cost alone."""

    def __init__(self, prices: Prices) -> None:
        self.form = prices.form
        self.views = [prices] if self.form.goal == "throughput" else [prices, replace(prices, price=prices.price * 0.0)]
        self.graph, self.forks = prices.form.ordered
        self.at: dict[int, list[_Labels]] = {}

    def none_below(self) -> bool | None:
        none = np.zeros((len(self.views), 1), dtype=np.int64)
        self.at[0] = [_Labels({t: none[0] for t in self.graph.inputs}, none, np.zeros((1, len(self.form.limits))))]
        for position, node in enumerate(self.graph.nodes):
            every = self._merged(self.at.pop(position, []))
            if every is None:
                continue
            for block in self.forks:
                if self.graph.position(block.nodes[0].name) == position:
                    self._jump(block, every)
            if len(every.taken) > MOST_PARTIAL or not self._step(node, position, every):
                return None
        return not self._merged(self.at.pop(len(self.graph.nodes), []))

    def _step(self, node: Node, position: int, every: _Labels) -> bool:
        """Add one node in all its columns; False where too many are left."""
        form, at, place_of = self.form, list(dict.fromkeys(node.inputs)), self.form.place_of(node.name)
        rows, number = self._combinations(every, at)
        table = form.table(node, [self._place(t, rows[:, at.index(t)]) for t in node.inputs])
        units = [view.units(table) for view in self.views]
        below = np.ones((len(number), len(place_of)), dtype=np.bool_)
        for view, own, spent, rest in zip(self.views, units, every.spent, self._rest(every, position + 1), strict=True):
            below &= (spent + rest)[:, None] + own[number] + view.to_come(node.output, position + 1)[place_of] < UNITS
        kept, column = np.nonzero(below)
        amounts = np.broadcast_to(table.amounts, (len(rows), len(place_of), len(form.limits)))
        if len(kept) > MOST_MADE:
            return False
        self._add(position + 1, _Labels({t: p[kept] for t, p in every.places.items()} | {node.output: place_of[column]},
                                        every.spent[:, kept] + np.stack([own[number[kept], column] for own in units]),
                                        every.taken[kept] + amounts[number[kept], column]))
        return True

    def _jump(self, block: Block, every: _Labels) -> None:
        """Run a block's arms at once."""
        names = {n.output for n in block.nodes}
        tensors = [t for t in every.places if t not in names and any(t in n.inputs for n in (*block.nodes, block.join))]
        rows, number = self._combinations(every, tensors)
        places = {t: self._place(t, rows[:, i]) for i, t in enumerate(tensors)}
        for way in self.form.at_once(block, {**dict.fromkeys(self.form.places, TensorPlaces(None)), **places}):
            made = {n.output: self.form.whole_place(n, d) for arm, d in zip(block.arms, way.devices, strict=True) for n in arm}
            made |= {block.join.output: self.form.whole_place(block.join, way.join)} if way.join is not None else {}
            after = self.graph.position(block.nodes[-1].name) + 1 + (way.join is not None)
            units = np.stack([np.broadcast_to(view.units(way.table), len(rows))[number] for view in self.views])
            found = _Labels({**every.places, **{t: np.full(len(number), p) for t, p in made.items()}}, every.spent + units,
                            every.taken + way.table.amounts)
            below = (found.spent + np.stack(self._rest(found, after)) < UNITS).all(axis=0)
            self._add(after, found.take(np.nonzero(below)[0]))

    def _place(self, tensor: str, numbers: Ints) -> TensorPlaces:
        place = self.form.places[tensor]
        assert place.regions is not None
        assert place.stream_s is not None
        return TensorPlaces(place.regions[numbers], place.stream_s[numbers])

    def _combinations(self, every: _Labels, tensors: Sequence[str]) -> tuple[Ints, Ints]:
        """The different places of some tensors together, and which each partial plan has."""
        rows, number = np.unique(np.stack([every.places[t] for t in tensors], axis=1), axis=0, return_inverse=True)
        return rows, number.ravel()

    def _rest(self, every: _Labels, position: int) -> list[Ints]:
        """What nodes from a position on cost at least, of those that pay for what is made; by view."""
        return [sum((view.to_come(t, position)[p] for t, p in every.places.items()), np.zeros(len(every.taken), dtype=np.int64))
                for view in self.views]

    def _add(self, position: int, every: _Labels) -> None:
        """Keep what is within all limits, and of what lies alike only what nothing cheaper takes less than."""
        alive = {t: p for t, p in every.places.items()
                 if any(self.graph.position(n.name) >= position for n in self.graph.consumers(t))}
        within = np.nonzero((every.taken <= 1 + float(SLACK)).all(axis=1))[0]
        if len(within):
            self.at.setdefault(position, []).append(_undominated(replace(every, places=alive).take(within)))

    def _merged(self, parts: list[_Labels]) -> _Labels | None:
        if len(parts) < 2:
            return parts[0] if parts else None
        return _undominated(_Labels({t: np.concatenate([p.places[t] for p in parts]) for t in parts[0].places},
                                    np.concatenate([p.spent for p in parts], axis=1),
                                    np.concatenate([p.taken for p in parts])))


def _undominated(every: _Labels) -> _Labels:
    """Partial plans that no other beats in cost and in all amounts while its tensors lie alike."""
    order = np.lexsort([every.spent[-1], *every.places.values()])
    every = every.take(order)
    lying = np.stack([*every.places.values(), np.zeros(len(order), dtype=np.int64)], axis=1)
    starts = np.nonzero(np.r_[True, (lying[1:] != lying[:-1]).any(axis=1)])[0].tolist()
    kept: list[int] = []
    for start, stop in zip(starts, [*starts[1:], len(order)], strict=True):
        best = [start]
        for i in range(start + 1, stop):
            if not (every.taken[best] <= every.taken[i]).all(axis=1).any():
                best.append(i)
        kept += best
    return every.take(np.array(kept, dtype=np.int64))
