"""A relaxation of the whole network that is solved in two passes, and so bounds every single column.

Every node is charged for one of its inputs only: the one produced last, or, where a block of branches begins, its fork.
The cheapest completion around each column is then a sum over a tree. A block whose arms run at once stands in it as another
way to continue from the fork: the least of its arms' sum and of all its jumps is what hangs below the fork there. Only the
join hangs below a block, so behind a jump the tree goes on where the join's charged input was left, or, where the jump takes
the join along, where that left its output.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from dovetail.hardware.shares import Floats, Ints
from dovetail.partition.effort import spend
from dovetail.partition.memo import Cache
from dovetail.partition.parallel.block_steps import Jump, jumps, whole_columns
from dovetail.partition.problem import Problem
from dovetail.partition.tables.columns import Held, PricedSplits, inputs_held, options
from dovetail.partition.tables.costs import Table, tabulate_all, variable_inputs

NOTHING = np.zeros(())
"""Stands for what hangs below a node where nothing does."""


@dataclass(frozen=True, slots=True)
class Branch:
    """A block in the tree: where it hangs, and what hangs below it.

    `root` is the node that makes the fork (None for a graph input), `entries` are the nodes charged for it, `join` hangs below
    (None where it is charged for something else). `jumps` are numbers of arrays of costs, with the places in which each
    column leaves the input the join is charged for or, if it takes the join along, the join's output. `around` counts the
    blocks this one lies in.
    """

    start: int
    stop: int
    root: int | None
    entries: tuple[int, ...]
    join: int | None
    jumps: tuple[tuple[int, Jump, Ints], ...]
    around: int

    @property
    def name(self) -> int:
        """Branches are told apart by their first node."""
        return self.start


@dataclass(frozen=True, slots=True)
class Tree:
    """Relaxed tables and jumps; `parent` is the index of the node whose output a table charges, None if it charges none.

    `inside` lists for every node the branches it is in, larger ones first.
    """

    tables: tuple[Table, ...]
    parent: tuple[int | None, ...]
    branches: tuple[Branch, ...] = ()
    inside: tuple[tuple[Branch, ...], ...] = ()
    entered: tuple[Branch | None, ...] = field(init=False, repr=False)
    """The branch each node is an entry of."""
    begun: tuple[Branch | None, ...] = field(init=False, repr=False)
    """The branch whose first node each is."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "entered", tuple(around[-1] if around and k in around[-1].entries else None
                                                  for k, around in enumerate(self.inside)))
        object.__setattr__(self, "begun", tuple(next((b for b in around if b.start == k), None)
                                                for k, around in enumerate(self.inside)))

    @property
    def owners(self) -> tuple[Table | Jump, ...]:
        """All tables, then all jumps: arrays of costs come in this order."""
        return (*self.tables, *(jump for b in self.branches for _, jump, _ in b.jumps))

    @property
    def latencies(self) -> list[Floats]:
        return [own.latency_s for own in self.owners]

    @property
    def energies(self) -> list[Floats]:
        return [own.energy_j for own in self.owners]

    @property
    def plain(self) -> Tree:
        """The same without jumps, for what does not depend on who runs beside whom."""
        return Tree(self.tables, self.parent, (), ((),) * len(self.tables))


TREES = Cache[tuple[str, ...], Tree]()


def tree_of(problem: Problem) -> Tree:
    """The relaxed tables of all columns, made once for all goals and limits; every node must have a column."""
    known = problem.memo.of(TREES)
    if problem.devices not in known:
        known[problem.devices] = relaxed_tree(problem, [options(problem, n) for n in problem.graph.nodes])
    return known[problem.devices]


def relaxed_tree(problem: Problem, choices: list[PricedSplits]) -> Tree:
    """Tables in which each node, and jumps in which each block, pays only for one input."""
    index = {n.output: k for k, n in enumerate(problem.graph.nodes)}
    known: dict[str, Held] = inputs_held(problem)
    every = known | {c.node.output: c.held for c in choices}
    found = jumps(problem, choices, every, fork_only=True)
    paid: list[str | None] = []
    for k, own in enumerate(choices):
        around = [block[0] for block in found if block[0].start <= k < block[0].stop]
        paid.append(_charged(problem, own, around[-1] if around else None, index))
    tables = tabulate_all(problem, choices, every, [() if main is None else (main,) for main in paid])
    parent = [None if main is None else index[main] for main in paid]
    branches: list[Branch] = []
    for block in found:
        first = len(tables) + sum(len(b.jumps) for b in branches)
        branches.append(_branch(problem, first, block, parent, found))
    inside = tuple(tuple(b for b in branches if b.start <= k < b.stop) for k in range(len(tables)))
    return Tree(tuple(tables), tuple(parent), tuple(branches), inside)


def _charged(problem: Problem, own: PricedSplits, jump: Jump | None, index: dict[str, int]) -> str | None:
    """The input a node pays for: of those made in its innermost block, or in all, the last; else the block's fork."""
    inputs = variable_inputs(problem, own.node)
    if jump is None:
        return max(inputs, key=lambda t: index[t], default=None)
    inner = [t for t in inputs if index[t] >= jump.start]
    fork = jump.fork if jump.fork in inputs else None
    return max(inner, key=lambda t: index[t]) if inner else fork


def _branch(problem: Problem, first: int, block: tuple[Jump, ...], parent: list[int | None],
            found: tuple[tuple[Jump, ...], ...]) -> Branch:
    arms = block[0]
    members, maker, nodes = range(arms.start, arms.stop), problem.graph.producer(arms.fork), problem.graph.nodes
    root = None if maker is None else problem.order[maker.name]
    join = next((k for k in range(arms.stop, len(parent)) if parent[k] in members), None)
    last = None if join is None else parent[join]
    left = [None if last is None else nodes[last].output, nodes[min(arms.stop, len(nodes) - 1)].output]
    none = np.zeros(len(arms), dtype=np.int64)
    around = sum(other[0].start <= arms.start and arms.stop <= other[0].stop for other in found) - 1
    return Branch(arms.start, arms.stop, root, tuple(k for k in members if parent[k] == root), join,
                  tuple((first + i, jump, none if tensor is None else jump.leaves[tensor])
                        for i, (jump, tensor) in enumerate(zip(block, left, strict=False))), around)


@dataclass(frozen=True, slots=True)
class Hanging:
    """What hangs below each node, by the place of its output (`below`), and what it is at least, by that of its input (`least`).

    Per branch, by the place of its fork: the sum of its arms, and the least of that and of its jumps. `jumped` has every jump's
    cost with all that hangs below the block.
    """

    below: list[Floats]
    least: list[Floats]
    arms: dict[int, Floats]
    either: dict[int, Floats]
    jumped: dict[int, Floats]
    everything: float


def hang(tree: Tree, costs: list[Floats]) -> Hanging:
    """Add up the tree from its leaves."""
    below, everything = [NOTHING] * len(tree.tables), 0.0
    least = [NOTHING] * len(below)
    arms, either, jumped = dict.fromkeys((b.name for b in tree.branches), NOTHING), dict[int, Floats](), dict[int, Floats]()
    for k in range(len(below) - 1, -1, -1):
        least[k] = np.minimum.reduce(_onward(costs[k], below[k], tree.tables[k]), axis=-1)
        hanging, branch = [(tree.parent[k], least[k])], tree.entered[k]
        if branch is not None:
            arms[branch.name] = arms[branch.name] + least[k]
            hanging = []
        branch = tree.begun[k]
        if branch is not None:  # it begins with an entry, so all of its nodes are counted
            for i, jump, leaves in branch.jumps:
                beyond = least[branch.join] if branch.join is not None and jump.stop == branch.stop else below[branch.stop]
                jumped[i] = costs[i] if branch.join is None or beyond is NOTHING else costs[i] + beyond[leaves]
            either[branch.name] = np.minimum.reduce([arms[branch.name], *(jumped[i].min(axis=-1) for i, *_ in branch.jumps)])
            hanging.append((branch.root, either[branch.name]))
        for root, own in hanging:
            if root is not None:
                below[root] = own if below[root] is NOTHING else below[root] + own
            else:
                everything += float(own)
    spend("trees", len(costs), sum([cost.size for cost in costs]))
    return Hanging(below, least, arms, either, jumped, everything)


def _onward(cost: Floats, below: Floats, table: Table) -> Floats:
    """What columns cost with all that hangs below the places they leave their output in."""
    if below is NOTHING:
        return cost
    return cost + (below if len(below) == len(table) else below[table.place_of])


def marginals(tree: Tree, costs: list[Floats], hung: Hanging | None = None) -> list[Floats]:
    """For every column of every node, the least sum of `costs` over the network if that column is used, alone or in a jump.

    `hung` is what `hang` says of these costs, where it was asked before.
    """
    hung = hang(tree, costs) if hung is None else hung
    found: list[Floats] = []
    above: list[list[Floats]] = []
    jumped: dict[int, Floats] = {}
    for k, table in enumerate(tree.tables):
        branch = tree.begun[k]
        if branch is not None:
            jumped |= {i: _beyond(hung, branch, above, hung.jumped[i]) for i, *_ in branch.jumps}
        # From the first of these to the last, ever fewer of the blocks around a node are kept from jumping over it.
        levels = [_alone(tree, hung, k, _onward(costs[k], hung.below[k], table), above)]
        for joined in (b for b in tree.branches if b.join == k):
            levels[0] = np.minimum.reduce([levels[0], *(_within(jump, k, jumped[i], table)
                                                        for i, jump, _ in joined.jumps if jump.stop > k)])
        best = levels[0]
        for around in reversed(tree.inside[k]):
            ways = [_within(jump, k, jumped[i], table) for i, jump, _ in around.jumps]
            levels.append(np.minimum(levels[-1], ways[0]))
            best = np.minimum.reduce([best, *ways])
        found.append(best)
        # What hangs below the node hears of jumps that leave it in place, not of those that take the join along as well.
        above.append([level if len(table.first) == len(level) else np.minimum.reduceat(level, table.first)
                      for level in levels[::-1]])
    spend("marginals", len(costs), sum([cost.size for cost in costs]))
    return found


def _alone(tree: Tree, hung: Hanging, k: int, reach: Floats, above: list[list[Floats]]) -> Floats:
    """The least sum over the network for every column of a node if no jump takes the node along."""
    root, branch = tree.parent[k], tree.entered[k]
    if branch is not None:
        return _beyond(hung, branch, above, np.atleast_2d((hung.arms[branch.name] - hung.least[k])[..., None] + reach))
    if root is None:
        return reach + (hung.everything - float(hung.least[k]))
    found: Floats = np.minimum.reduce((above[root][len(tree.inside[k])] - hung.least[k])[:, None] + reach, axis=0)
    return found


def _beyond(hung: Hanging, branch: Branch, above: list[list[Floats]], ways: Floats) -> Floats:
    """The least sum over the network for each of several ways through a branch, given by the place of its fork."""
    either = hung.either[branch.name]
    outside = np.array([hung.everything - float(either)]) if branch.root is None else above[branch.root][branch.around] - either
    found: Floats = (ways + outside[:, None]).min(axis=0)
    return found


def _within(jump: Jump, k: int, jumped: Floats, table: Table) -> Floats:
    """The least sum for each column of a node that a jump takes along; infinite for those no jump uses."""
    group, member = 0, k - jump.start
    while member >= len(jump.groups[group]):
        member, group = member - len(jump.groups[group]), group + 1
    found = np.full(len(table), np.inf)
    for device, column in whole_columns(table.options).items():
        ways = jumped[jump.devices[:, group] == device]
        if len(ways):
            found[column] = ways.min()
    return found


def cheapest(tree: Tree, costs: list[Floats], hung: Hanging | None = None) -> list[tuple[int, tuple[int, ...]]]:
    """A plan that is cheapest in the relaxation: which entries of which tables and jumps it is made of; `hung` as above."""
    hung = hang(tree, costs) if hung is None else hung
    chosen: list[tuple[int, tuple[int, ...]]] = []
    places: dict[int, int] = {}
    covered = 0
    for k, table in enumerate(tree.tables):
        if k < covered:
            continue
        branch = tree.begun[k]
        if branch is not None:
            fork = () if branch.root is None else (places[branch.root],)
            ways = [(float(hung.jumped[i][fork].min()), n) for n, (i, *_) in enumerate(branch.jumps)]
            if min(ways)[0] < hung.arms[branch.name][fork]:
                i, jump, leaves = branch.jumps[min(ways)[1]]
                best = int(hung.jumped[i][fork].argmin())
                chosen.append((i, (*fork, best)))
                if branch.join is not None:
                    last = tree.parent[branch.join] if jump.stop == branch.stop else branch.join
                    assert last is not None, "a join that hangs below a block is charged for one of its tensors"
                    places[last] = int(leaves[best])
                covered = jump.stop
                continue
        root = tree.parent[k]
        entry = () if root is None else (places[root],)
        best = int(_onward(costs[k][entry], hung.below[k], table).argmin())
        chosen.append((k, (*entry, best)))
        places[k] = int(table.place_of[best])
    spend("paths", len(chosen))
    return chosen
