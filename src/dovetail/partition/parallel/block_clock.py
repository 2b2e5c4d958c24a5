"""The clock of a block whose arms run at once, for all ways to place them: when lanes and devices are free, tensors made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from dovetail.hardware.shares import Flags, Floats, Ints
from dovetail.ir import Node
from dovetail.ir.branches import Block
from dovetail.partition.effort import spend
from dovetail.partition.problem import Problem
from dovetail.partition.tables.columns import Held, PricedSplits
from dovetail.partition.tables.transfers import fetched
from dovetail.partition.work import follows, packet_s


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
class Clock:
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

    def run(self, own: PricedSplits, column: int, arm: Mapping[str, Held], d: int, columns: Ints) -> None:
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
        spend("arms", 1, done.size)

    def join(self, own: PricedSplits, column: int, d: int, block: Block) -> tuple[Floats, Floats, Floats]:
        """When the join is done if it runs whole on a device after all arms, the block's energy without idling, its nodes' sum.

        Nothing is kept: the arms may be followed by other joins.
        """
        node, lanes = own.node, {lane: busy.copy() for lane, busy in self.lanes.items()}
        graph, columns = self.problem.graph, np.arange(len(self.devices))
        sizes = self._outside(own, column, d)
        ready: dict[int, Floats] = {}
        arms = {n.output: a for a, arm in enumerate(block.arms) for n in arm}
        for t in dict.fromkeys(t for t in node.inputs if t in arms):
            size = float(graph.tensors[t].transfer_bytes)
            for s in sorted(set(self.devices[:, arms[t]].tolist())):
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

    def _outside(self, own: PricedSplits, column: int, d: int) -> dict[int, Floats]:
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

    def _sizes(self, own: PricedSplits, column: int, arm: Mapping[str, Held], d: int) -> dict[int, Floats]:
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
        if tensor not in self.inputs or not follows(self.problem, node) or not np.count_nonzero(
                self.known[tensor].stream_s):
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
