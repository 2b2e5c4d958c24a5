"""Blocks whose arms run at once, as steps of the solvers: from the cut before a block to the cut after it in one.

A *jump* has a column for every way to put the arms on devices that are not all the same. Its arrays restate `at_once` over
all these columns and all places of what the block reads; tests hold the two together to the last digits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, permutations, product
from math import prod

import numpy as np

from dovetail.hardware.shares import Flags, Floats, Ints
from dovetail.ir import Node
from dovetail.ir.branches import Block
from dovetail.partition.boards.relaxation import STAND_INS
from dovetail.partition.parallel.block_clock import Clock
from dovetail.partition.parallel.overlap import arm_devices, join_device
from dovetail.partition.plan import Assignment, whole_on
from dovetail.partition.problem import Problem
from dovetail.partition.tables.columns import Held, PricedSplits, options
from dovetail.partition.tolerances import ROUNDING

MOST_COLUMNS = 400
"""Ways to place a block's arms that are considered; where there are more, only those on two devices, or with one arm apart.

Chosen, not measured.
"""


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


def jumps(problem: Problem, choices: Sequence[PricedSplits], known: Mapping[str, Held],
          fork_only: bool = False) -> tuple[tuple[Jump, ...], ...]:
    """Per block its jumps, over whole placements that are among the given columns of every node: arms alone, and with the join.

    With `fork_only`, a block pays for its fork alone: a lower bound for any place of what else it reads.
    """
    found = [_jumps(problem, block, choices, known, fork_only) for block in problem.blocks]
    # A column that is slower may keep something less busy.
    every = fork_only or problem.max_interval_s is not None
    return tuple(own if every else tuple(map(undominated, own)) for own in found if own)


def _jumps(problem: Problem, block: Block, choices: Sequence[PricedSplits], known: Mapping[str, Held],
           fork_only: bool) -> tuple[Jump, ...]:
    start = problem.order[block.nodes[0].name]
    own = {n.name: choices[start + i] for i, n in enumerate(block.around)}
    wholes = {name: whole_columns(o) for name, o in own.items()}
    near = _near(problem)
    devices = _placements(_able(block, wholes, near))
    if not len(devices):
        return ()
    targets = [d for d in wholes[block.join.name] if d in near] if block.meets else []
    times = _timed(problem, block, _Ways(own, wholes, devices, targets), known, fork_only)

    def places(group: int, node: Node) -> Ints:
        return np.array([own[node.name].place_of[wholes[node.name][d]] for d in devices[:, group].tolist()], dtype=np.int64)

    leaves = {n.output: places(a, n) for a, arm in enumerate(block.arms) for n in arm if n.output in block.join.inputs}
    latency = times.latency_s
    arms = Jump(block.arms, block.fork, start, start + len(block.nodes), devices, times.inputs, latency,
                times.joules + problem.idle_power_w * latency, times.resources, leaves)
    saves = times.added_s - latency > ROUNDING * latency
    if not targets:
        return (_kept(arms, saves),)
    ends, spent, added = (np.concatenate([times.joined[d][i] for d in targets], axis=-1) for i in (0, 1, 2))
    at = np.repeat([wholes[block.join.name][d] for d in targets], len(devices))
    last = own[block.join.name]
    both = np.concatenate([np.tile(devices, (len(targets), 1)), np.repeat(targets, len(devices))[:, None]], axis=1)
    along = Jump((*block.arms, (block.join,)), block.fork, start, arms.stop + 1, both, times.inputs, ends + last.home_s[at],
                 spent + problem.idle_power_w * ends + last.home_j[at],
                 np.tile(times.resources, (len(targets), 1)) + last.resources[at], {block.join.output: last.place_of[at]})
    return _kept(arms, saves), _kept(along, added - ends > ROUNDING * ends)


@dataclass(frozen=True, slots=True)
class _Ways:
    """Ways to place a block: columns of its nodes, the whole ones by device, devices of its arms, and of its join."""

    own: Mapping[str, PricedSplits]
    wholes: Mapping[str, Mapping[int, int]]
    devices: Ints
    targets: Sequence[int]


@dataclass(frozen=True, slots=True)
class BlockTimes:
    """When a block ends for every way to place its arms, from every place of what it reads; energies are without idling.

    `added_s` is what its nodes take one after another; `joined` has all three for every device that the join may run on.
    """

    inputs: tuple[str, ...]
    latency_s: Floats
    joules: Floats
    added_s: Floats
    resources: Floats
    joined: Mapping[int, tuple[Floats, Floats, Floats]]


def _timed(problem: Problem, block: Block, ways: _Ways, known: Mapping[str, Held], fork_only: bool) -> BlockTimes:
    """The times of a block by its clock."""
    own, wholes, devices = ways.own, ways.wholes, ways.devices
    clock = Clock(problem, _inputs(problem, block, fork_only), devices, known, fork_only)
    for a, arm in enumerate(block.arms):
        for d in sorted(set(devices[:, a].tolist())):
            columns = (devices[:, a] == d).nonzero()[0]
            inside = {n.output: own[n.name].held_by(wholes[n.name][d]) for n in arm}
            for node in arm:
                clock.run(own[node.name], wholes[node.name][d], inside, d, columns)
    last = block.join.name
    return BlockTimes(clock.inputs, np.maximum.reduce(list(clock.made.values())), clock.joules, clock.added, clock.resources,
                      {d: clock.join(own[last], wholes[last][d], d, block) for d in ways.targets})


def _kept(jump: Jump, saves: Flags) -> Jump:
    """Only the columns that save anything for some place of what the block reads, or the first if none does.

    The others are as good one after another.
    """
    columns = np.asarray(saves.reshape(-1, len(jump)).any(axis=0)).nonzero()[0]
    return jump.take(columns if len(columns) else np.zeros(1, dtype=np.int64)) if len(columns) < len(jump) else jump


def undominated(jump: Jump) -> Jump:
    """Only the columns that no other beats, one that leaves the same, costs no more wherever inputs lie, and takes no more."""
    profile = np.concatenate([jump.latency_s.reshape(-1, len(jump)), jump.energy_j.reshape(-1, len(jump)), jump.resources.T])
    beaten, groups = np.zeros(len(jump), dtype=np.bool_), dict[tuple[int, ...], list[int]]()
    for i, alike in enumerate(zip(*(places.tolist() for places in jump.leaves.values()), strict=True)):
        groups.setdefault(alike, []).append(i)
    for group in groups.values():
        if len(group) == 1:
            continue
        own = profile[:, group]
        below = (own[:, :, None] <= own[:, None, :]).all(axis=0)
        # Of columns that are equal in everything the first is kept.
        beaten[group] = (below & ~(below.T & (np.arange(len(group))[:, None] >= np.arange(len(group))))).any(axis=0)
    return jump.take((~beaten).nonzero()[0]) if np.count_nonzero(beaten) else jump


def _near(problem: Problem) -> list[int]:
    """Devices that arms are spread over: all of a few, else those nearest to the host."""
    hops = [len(problem.platform.route(problem.platform.host, d)) for d in problem.devices]
    return sorted(sorted(range(len(hops)), key=lambda d: (hops[d], d))[:STAND_INS])


def _inputs(problem: Problem, block: Block, fork_only: bool) -> tuple[str, ...]:
    """What a block and its join read and some node before it makes."""
    read = dict.fromkeys(t for n in block.around for t in n.inputs)
    made = {n.output for n in block.nodes}
    return tuple(t for t in read if t not in made and problem.graph.producer(t) is not None
                 and (t == block.fork or not fork_only))


def whole_columns(own: PricedSplits) -> dict[int, int]:
    """The columns that run a node whole, by device."""
    found = (own.pattern.columns.axis[own.columns] == 0).nonzero()[0].tolist()
    return {int(own.pattern.has[own.columns[i]].argmax()): i for i in found}


def left_out(problem: Problem, near: bool) -> tuple[Block, ...]:
    """Blocks that can run at once in ways that no jump has; with `near`, on devices that jumps look at."""
    found = []
    for block in problem.blocks:
        wholes = {n.name: whole_columns(options(problem, n)) for n in block.around}
        looked_at = _near(problem)
        devices = looked_at if near else range(len(problem.devices))
        able = _able(block, wholes, devices)
        every = prod(map(len, able)) - len(set(devices).intersection(*able))
        beyond = block.meets and not near and any(d not in looked_at for d in wholes[block.join.name])
        if every and (beyond or every > len(_placements(_able(block, wholes, looked_at)))):
            found.append(block)
    return tuple(found)


def offered(problem: Problem, block: Block, assignment: Assignment) -> bool:
    """Whether a jump has the way in which an assignment runs a block, or it does not run at once."""
    devices, join = arm_devices(block, assignment), join_device(block, assignment)
    if devices is None:
        return True
    wholes, near = {n.name: whole_columns(options(problem, n)) for n in block.around}, _near(problem)
    row = [problem.devices.index(d) for d in devices]
    return row in _placements(_able(block, wholes, near)).tolist() and (join is None or problem.devices.index(join) in near)


def _able(block: Block, wholes: Mapping[str, Mapping[int, int]], devices: Sequence[int]) -> list[list[int]]:
    """Of every arm the devices, of those given, that can run all of it."""
    return [[d for d in devices if all(d in wholes[n.name] for n in arm)] for arm in block.arms]


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
