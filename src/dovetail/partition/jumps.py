"""Blocks whose arms run at once, as steps of the solvers: from the cut before a block to the cut after it in one.

A *jump* has a column for every way to put the arms on devices that are not all the same. Its arrays restate `at_once` over
all these columns and all places of what the block reads; tests hold the two together to the last digits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, permutations, product

import numpy as np

from dovetail.cost.estimate import Flags, Floats, Ints
from dovetail.ir import Node
from dovetail.partition.branches import Block
from dovetail.partition.columns import Held, Options
from dovetail.partition.overlaps import fetched
from dovetail.partition.plan import Assignment, whole_on
from dovetail.partition.problem import Problem
from dovetail.partition.work import follows, packet_s

LEAST = 1e-14
"""Part of its time that a block must save for its arms to be worth looking at together."""
MOST_COLUMNS = 400
"""Ways to place a block's arms that are considered; where there are more, only those on two devices, or with one arm apart."""


NEAREST = 4
"""Devices that the arms of a block are spread over on boards of many: among more, ways to place them grow beyond measure."""


@dataclass(frozen=True, slots=True)
class Jump:
    """A block as one step over nodes `start` to `stop`: its arms, or its arms and its join (`groups`, each on one device).

    `devices` (columns x groups) are indices. Costs: one axis per tensor made before the block that it reads, then columns;
    bringing the join's output home is included. `leaves` says in which of its places each tensor left is: what the join reads,
    or what it makes. `resources` are columns x budgets.
    """

    groups: tuple[tuple[Node, ...], ...]
    fork: str
    start: int
    stop: int
    devices: Ints
    inputs: tuple[str, ...]
    latency_s: Floats
    energy_j: Floats
    resources: Floats
    leaves: Mapping[str, Ints]

    def __len__(self) -> int:
        return len(self.devices)

    def take(self, columns: Ints) -> Jump:
        """Some columns only."""
        return replace(self, devices=self.devices[columns], latency_s=self.latency_s[..., columns],
                       energy_j=self.energy_j[..., columns], resources=self.resources[columns],
                       leaves={t: places[columns] for t, places in self.leaves.items()})

    def assignment(self, problem: Problem, column: int) -> Assignment:
        placed = zip(self.groups, self.devices[column].tolist(), strict=True)
        return {n.name: whole_on(problem.devices[d]) for group, d in placed for n in group}


def jumps(problem: Problem, choices: Sequence[Options], known: Mapping[str, Held],
          fork_only: bool = False) -> tuple[tuple[Jump, ...], ...]:
    """Per block its jumps, over whole placements that are among the given columns of every node: arms alone, and with the join.

    With `fork_only`, a block pays for its fork alone: a lower bound for any place of what else it reads.
    """
    found = [_jumps(problem, block, choices, known, fork_only) for block in problem.blocks]
    # A column that is slower may keep something less busy.
    every = fork_only or problem.max_interval_s is not None
    return tuple(own if every else tuple(map(undominated, own)) for own in found if own)


def _jumps(problem: Problem, block: Block, choices: Sequence[Options], known: Mapping[str, Held],
           fork_only: bool) -> tuple[Jump, ...]:
    start = problem.order[block.nodes[0].name]
    own = {n.name: choices[start + i] for i, n in enumerate(block.around)}
    wholes = {name: whole_columns(o) for name, o in own.items()}
    near = _near(problem)
    able = [[d for d in near if all(d in wholes[n.name] for n in arm)] for arm in block.arms]
    devices = _placements(able)
    if not len(devices):
        return ()
    clock = _Clock(problem, _inputs(problem, block, fork_only), devices, known, fork_only)
    for a, arm in enumerate(block.arms):
        for d in np.unique(devices[:, a]).tolist():
            columns = (devices[:, a] == d).nonzero()[0]
            inside = {n.output: _one_place(own[n.name], wholes[n.name][d]) for n in arm}
            for node in arm:
                clock.run(own[node.name], wholes[node.name][d], inside, d, columns)

    def places(group: int, node: Node) -> Ints:
        return np.array([own[node.name].place_of[wholes[node.name][d]] for d in devices[:, group].tolist()], dtype=np.int64)

    leaves = {n.output: places(a, n) for a, arm in enumerate(block.arms) for n in arm if n.output in block.join.inputs}
    latency = np.maximum.reduce(list(clock.made.values()))
    arms = Jump(block.arms, block.fork, start, start + len(block.nodes), devices, clock.inputs, latency,
                clock.joules + problem.idle_power_w * latency, clock.resources, leaves)
    saves = clock.added - latency > LEAST * latency
    targets = [d for d in wholes[block.join.name] if d in near] if block.meets else []
    if not targets:
        return (_kept(arms, saves),)
    joined = [clock.join(own[block.join.name], wholes[block.join.name][d], d, block) for d in targets]
    ends, spent = (np.concatenate([found[i] for found in joined], axis=-1) for i in (0, 1))
    at = np.repeat([wholes[block.join.name][d] for d in targets], len(devices))
    last = own[block.join.name]
    both = np.concatenate([np.tile(devices, (len(targets), 1)), np.repeat(targets, len(devices))[:, None]], axis=1)
    along = Jump((*block.arms, (block.join,)), block.fork, start, arms.stop + 1, both, clock.inputs, ends + last.home_s[at],
                 spent + problem.idle_power_w * ends + last.home_j[at],
                 np.tile(clock.resources, (len(targets), 1)) + last.resources[at], {block.join.output: last.place_of[at]})
    added = np.concatenate([found[2] for found in joined], axis=-1)
    return _kept(arms, saves), _kept(along, added - ends > LEAST * ends)


def _kept(jump: Jump, saves: Flags) -> Jump:
    """Only the columns that save anything for some place of what the block reads, or the first if none does.

    The others are as good one after another.
    """
    columns = np.asarray(saves.reshape(-1, len(jump)).any(axis=0)).nonzero()[0]
    return jump.take(columns if len(columns) else np.zeros(1, dtype=np.int64)) if len(columns) < len(jump) else jump


def undominated(jump: Jump) -> Jump:
    """Only the columns that no other beats, one that leaves the same, costs no more wherever inputs lie, and takes no more."""
    profile = np.concatenate([jump.latency_s.reshape(-1, len(jump)), jump.energy_j.reshape(-1, len(jump)), jump.resources.T])
    places, beaten = np.stack(list(jump.leaves.values())), np.zeros(len(jump), dtype=np.bool_)
    for alike in np.unique(places, axis=1).T:
        group = (places == alike[:, None]).all(axis=0).nonzero()[0]
        own = profile[:, group]
        below = (own[:, :, None] <= own[:, None, :]).all(axis=0)
        # Of columns that are equal in everything the first is kept.
        beaten[group] = (below & ~(below.T & (np.arange(len(group))[:, None] >= np.arange(len(group))))).any(axis=0)
    return jump.take((~beaten).nonzero()[0]) if beaten.any() else jump


def _near(problem: Problem) -> list[int]:
    """Devices that arms are spread over: all of a few, else those nearest to the host."""
    hops = [len(problem.platform.route(problem.platform.host, d)) for d in problem.devices]
    return sorted(sorted(range(len(hops)), key=lambda d: (hops[d], d))[:NEAREST])


def _inputs(problem: Problem, block: Block, fork_only: bool) -> tuple[str, ...]:
    """What a block and its join read and some node before it makes."""
    read = dict.fromkeys(t for n in block.around for t in n.inputs)
    made = {n.output for n in block.nodes}
    return tuple(t for t in read if t not in made and problem.graph.producer(t) is not None
                 and (t == block.fork or not fork_only))


def whole_columns(own: Options) -> dict[int, int]:
    """The columns that run a node whole, by device."""
    found = (own.pattern.columns.axis[own.columns] == 0).nonzero()[0].tolist()
    return {int(own.pattern.has[own.columns[i]].argmax()): i for i in found}


def _one_place(own: Options, column: int) -> Held:
    place = own.place_of[column:column + 1]
    return Held(own.pattern, own.places[place], own.stream_s[place])


def _placements(able: Sequence[Sequence[int]]) -> Ints:
    """Devices per arm, not all the same; fewer kinds where there are many arms and devices."""
    every, count = sorted({d for a in able for d in a}), int(np.prod([float(len(a)) for a in able]))
    if count <= MOST_COLUMNS:
        found = [c for c in product(*able) if len(set(c)) > 1]
    elif len(every) * (len(every) - 1) // 2 * 2**len(able) <= MOST_COLUMNS:
        pairs = [product(*([d for d in a if d in pair] for a in able)) for pair in combinations(every, 2)]
        found = sorted({c for pair in pairs for c in pair if len(set(c)) > 1})
    else:
        apart = [tuple(one if i == k else rest for i in range(len(able)))
                 for one, rest in permutations(every, 2) for k in range(len(able))]
        found = sorted({c for c in apart if all(d in a for d, a in zip(c, able, strict=True))})
    return np.array(found, dtype=np.int64).reshape(-1, len(able))


@dataclass
class _Solo:
    """When the input of a node that runs by itself is there: its first packet, and all of it."""

    first: Floats
    arrived: Floats
    lanes: dict[str, Floats]

    def move(self, names: Sequence[str], busy: Flags, seconds: Floats, lead: Floats) -> None:
        start = np.zeros(self.first.shape)
        for n in names:
            if n in self.lanes:
                start = np.maximum(start, self.lanes[n])
        stop = start + seconds
        for lane in names:
            self.lanes[lane] = np.where(busy, stop, self.lanes.get(lane, 0.0))
        self.first = np.where(busy, np.maximum(self.first, start + lead), self.first)
        self.arrived = np.where(busy, np.maximum(self.arrived, stop), self.arrived)


@dataclass
class _Clock:
    """A block being timed for all columns: when lanes and devices are free again, when each tensor is made."""

    problem: Problem
    inputs: tuple[str, ...]
    devices: Ints
    known: Mapping[str, Held]
    fork_only: bool
    lanes: dict[str, Floats] = field(default_factory=dict)
    free: dict[int, Floats] = field(default_factory=dict)
    made: dict[str, Floats] = field(default_factory=dict)
    joules: Floats = field(init=False)
    added: Floats = field(init=False)
    """What the nodes would take one after another."""
    resources: Floats = field(init=False)

    def __post_init__(self) -> None:
        self.joules, self.added = self._zeros(), self._zeros()
        self.resources = np.zeros((len(self.devices), len(self.problem.budgets)))

    def _zeros(self) -> Floats:
        return np.zeros((*(len(self.known[t].places) for t in self.inputs), len(self.devices)))

    def run(self, own: Options, column: int, arm: Mapping[str, Held], d: int, columns: Ints) -> None:
        """One node, whole on a device by a column of its own, in those that put it there; `arm`: where its arm's tensors are."""
        node = own.node
        ready = np.zeros((*self.joules.shape[:-1], len(columns)))
        for t in node.inputs:
            if t in arm:
                ready = np.maximum(ready, self.made[t][..., columns])
        begin = np.maximum(ready, self.free.setdefault(d, self._zeros())[..., columns])
        first = arrived = begin
        busy_at_all, returns = np.zeros(ready.shape, dtype=np.bool_), np.zeros(ready.shape, dtype=np.bool_)
        early, alone = self._early(node), _Solo(np.zeros(ready.shape), np.zeros(ready.shape), {})
        for s, size in self._sizes(own, column, arm, d).items():
            busy = size > 0
            seconds, joules, lead = self._transfer(s, d, size)
            before = np.zeros(())
            if early is not None:
                before = np.where(busy, np.minimum(early, seconds - lead), 0.0) if self._duplex(s, d) else before
                early = np.where(busy, 0.0, early)
            stop = self._occupy(s, d, columns, busy, seconds - before, ready if s == d else np.zeros(()), self.lanes)
            arrived = np.where(busy, np.maximum(arrived, stop), arrived)
            first = np.where(busy, np.maximum(first, stop - seconds + lead), first)
            alone.move(self._lanes(s, d), busy, seconds - before, lead - before)
            self.joules[..., columns] += joules
            busy_at_all |= busy
            returns |= busy & (s == d)
        times = (float(own.alone_s[column, d]), float(own.fused_s[column, d]))
        done = self._done(node, times, d, (first, arrived), (busy_at_all, returns))
        self.added[..., columns] += self._done(node, times, d, (alone.first, alone.arrived), (busy_at_all, returns))
        self.free[d][..., columns] = done
        self.made.setdefault(node.output, self._zeros())[..., columns] = done
        self.joules[..., columns] += own.energy_j[column].sum()
        self.resources[columns] += own.resources[column]

    def join(self, own: Options, column: int, d: int, block: Block) -> tuple[Floats, Floats, Floats]:
        """When the join is done if it runs whole on a device after all arms, the block's energy without idling, its nodes' sum.

        Nothing is kept: the arms may be followed by other joins.
        """
        node, lanes = own.node, {lane: busy.copy() for lane, busy in self.lanes.items()}
        graph, columns = self.problem.graph, np.arange(len(self.devices))
        sizes = self._outside(own, column, d)
        ready: dict[int, Floats] = {}
        arms = {n.output: a for a, arm in enumerate(block.arms) for n in arm}
        for t in dict.fromkeys(t for t in node.inputs if t in arms):
            size = float(graph.tensors[t].size * graph.tensors[t].element_bytes)
            for s in np.unique(self.devices[:, arms[t]]).tolist():
                here = self.devices[:, arms[t]] == s
                ready[s] = np.maximum(ready.get(s, self._zeros()), np.where(here, self.made[t], 0.0))
                if s != d or self.problem.streams(self.problem.devices[d]):
                    sizes[s] = sizes.get(s, np.zeros(())) + here * size
        arrived = np.maximum(self.free.get(d, np.zeros(())), ready.get(d, self._zeros()))
        joules, alone = self.joules + own.energy_j[column].sum(), _Solo(self._zeros(), self._zeros(), {})
        for s in sorted(sizes):
            every = sizes[s] + self._zeros()
            seconds, spent, _ = self._transfer(s, d, every)
            busy = every > 0
            stop = self._occupy(s, d, columns, busy, seconds, ready.get(s, np.zeros(())), lanes)
            arrived = np.where(busy, np.maximum(arrived, stop), arrived)
            alone.move(self._lanes(s, d), busy, seconds, seconds)
            joules = joules + spent
        compute = float(own.alone_s[column, d])
        return arrived + compute, joules, self.added + alone.arrived + compute

    def _outside(self, own: Options, column: int, d: int) -> dict[int, Floats]:
        """Bytes of what the join reads besides the arms; as not all of its input was made there, none of it flows on."""
        paying = [t for t in own.node.inputs if t in self.inputs or self.problem.graph.producer(t) is None]
        if not paying:
            return {}
        return fetched(self.problem, own.node, own.pattern, own.columns[column:column + 1], self.known, self.inputs, paying, d,
                       flowing=False)

    def _done(self, node: Node, times_s: tuple[float, float], d: int, inputs: tuple[Floats, Floats],
              fetches: tuple[Flags, Flags]) -> Floats:
        """Array form of `Work.done_s`: from when the first packet and all of the input is there, and what was fetched."""
        (alone, fused), (first, arrived), (busy, returns) = times_s, inputs, fetches
        still = min(alone, fused) if self.fork_only else fused
        if any(self.problem.graph.producer(t) is None for t in node.inputs):
            still = alone
        done: Floats = arrived + np.where(busy, alone, still)
        if self.problem.streams(self.problem.devices[d]) and len(set(node.inputs)) == 1:
            done = np.where(busy & ~returns, np.maximum(first + alone, arrived + min(fused, alone)), done)
        return done

    def _sizes(self, own: Options, column: int, arm: Mapping[str, Held], d: int) -> dict[int, Floats]:
        """Bytes fetched from each device, over the places of the block's inputs."""
        inside = tuple(dict.fromkeys(t for t in own.node.inputs if t in arm))
        paying = [t for t in own.node.inputs if t in arm or t in self.inputs or self.problem.graph.producer(t) is None]
        if not self.problem.streams(self.problem.devices[d]):
            paying = [t for t in paying if t not in arm]  # other devices keep what they made
        if not paying:
            return {}
        found = fetched(self.problem, own.node, own.pattern, own.columns[column:column + 1], {**self.known, **arm},
                        (*self.inputs, *inside), paying, d)
        return {s: a.reshape(*a.shape[:len(self.inputs)], 1) for s, a in found.items()}

    def _early(self, node: Node) -> Floats | None:
        """How long before the block its first node's input began to leave a streaming device; None where it did not."""
        tensor = node.inputs[0]
        if tensor not in self.inputs or not follows(self.problem, node) or not self.known[tensor].stream_s.any():
            return None
        return self.known[tensor].stream_s.reshape(*(-1 if t == tensor else 1 for t in self.inputs), 1)

    def _transfer(self, s: int, d: int, size: Floats) -> tuple[Floats, Floats, Floats]:
        source, target = self.problem.devices[s], self.problem.devices[d]
        seconds, joules = (x.reshape(size.shape) for x in self.problem.transfer(source, target, size.ravel()))
        return seconds, joules, np.minimum(seconds, packet_s(self.problem, source, target))

    def _lanes(self, s: int, d: int) -> tuple[str, ...]:
        return self.problem.lanes(self.problem.devices[s], self.problem.devices[d])

    def _duplex(self, s: int, d: int) -> bool:
        return s != d and self.problem.duplex(self.problem.devices[s], self.problem.devices[d])

    def _occupy(self, s: int, d: int, columns: Ints, busy: Flags, seconds: Floats, ready: Floats,
                lanes: dict[str, Floats]) -> Floats:
        """Array form of `work.occupy`, where `busy` marks the places from which anything is fetched."""
        names = self._lanes(s, d)
        every, start = len(columns) == len(self.devices), ready
        before = {}
        for n in names:
            own = lanes.setdefault(n, self._zeros())
            before[n] = own if every else own[..., columns]
            start = np.maximum(start, before[n])
        stop: Floats = start + seconds
        for lane, taken in before.items():
            if every:
                np.copyto(taken, stop, where=busy)
            else:
                lanes[lane][..., columns] = np.where(busy, stop, taken)
        return stop
