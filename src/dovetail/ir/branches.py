"""Where a network forks: blocks of independent arms that may run on different devices at once.

A *block* begins at a fork, a tensor that several nodes read, and ends before the join, the first node that everything
computed from the fork must pass. What lies between falls apart into *arms* that do not depend on each other: the two
expansions of a Fire module, the arms of an Inception block, a residual branch beside its downsampling shortcut. A plain
shortcut is no arm, as there is nothing in it to run. Blocks may lie inside an arm of another block, never across one.
Arms may read other tensors made before the block; what they make is read by the join and within them alone.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace

from dovetail.ir.graph import Graph, Node


@dataclass(frozen=True, slots=True)
class Block:
    """Arms between a fork (a tensor) and a join, each in topological order.

    `meets`: the join comes right after the arms and lies in the same blocks as they do.
    """

    fork: str
    join: Node
    arms: tuple[tuple[Node, ...], ...]
    meets: bool = False
    nodes: tuple[Node, ...] = field(init=False, repr=False, compare=False)
    around: tuple[Node, ...] = field(init=False, repr=False, compare=False)
    """All nodes whose times running at once can change."""

    def __post_init__(self) -> None:
        nodes = tuple(n for arm in self.arms for n in arm)
        object.__setattr__(self, "nodes", nodes)
        object.__setattr__(self, "around", (*nodes, self.join) if self.meets else nodes)


def blocks(graph: Graph) -> tuple[Block, ...]:
    """All blocks of a graph, a block before those inside its arms, otherwise in topological order of their first nodes."""
    found: list[tuple[str, int, tuple[int, ...]]] = []
    follower = _followers(graph)
    for tensor in (*graph.inputs, *(n.output for n in graph.nodes)):
        between = _between(graph, follower, tensor)
        if between is not None:
            found.append((tensor, *between))
    kept: list[tuple[Block, frozenset[str]]] = []
    for fork, join, region in sorted(found, key=lambda r: (-len(r[2]), r[2][0])):
        arms = _arms(graph, region)
        names = frozenset(graph.nodes[k].name for k in region)
        if len(arms) > 1 and all(_nested(graph, fork, names, around) for _, around in kept):
            kept.append((Block(fork, graph.nodes[join], arms), names))
    kept.sort(key=lambda k: (min(graph.position(n) for n in k[1]), -len(k[1])))
    return tuple(replace(b, meets=_meets(graph, b, names, [around for _, around in kept])) for b, names in kept)


def _meets(graph: Graph, block: Block, names: frozenset[str], every: Sequence[frozenset[str]]) -> bool:
    """Whether nothing comes between a block and its join, and every other block holds both or none of them."""
    after = graph.position(block.join.name) == graph.position(block.nodes[-1].name) + 1
    return after and all((block.join.name in other) == (names < other) for other in every)


def _followers(graph: Graph) -> list[int]:
    """For every node the first one that all paths from it to the end pass (its immediate post-dominator).

    The end counts as one node more; found in one pass backwards, as the graph has no cycles.
    """
    end = len(graph.nodes)
    found = [end] * (end + 1)
    for k in range(end - 1, -1, -1):
        output = graph.nodes[k].output
        after = [graph.position(n.name) for n in graph.consumers(output)] + [end] * (output in graph.outputs)
        found[k] = _meeting(found, after) if after else end
    return found


def _meeting(follower: Sequence[int], starts: Iterable[int]) -> int:
    """The first node that all paths from all the given nodes pass."""
    first, *rest = starts
    for other in rest:
        while first != other:
            first, other = (follower[first], other) if first < other else (first, follower[other])
    return first


def _between(graph: Graph, follower: Sequence[int], fork: str) -> tuple[int, tuple[int, ...]] | None:
    """The join of a tensor's readers and the nodes before it that depend on the tensor; None where fewer than two begin there."""
    readers = [graph.position(n.name) for n in graph.consumers(fork)]
    join = _meeting(follower, readers) if len(readers) > 1 else len(graph.nodes)
    waiting = [k for k in readers if k != join]
    if join == len(graph.nodes) or len(waiting) < 2:
        return None
    region = set(waiting)
    while waiting:
        for n in graph.consumers(graph.nodes[waiting.pop()].output):
            k = graph.position(n.name)
            if k != join and k not in region:
                region.add(k)
                waiting.append(k)
    return join, tuple(sorted(region))


def _arms(graph: Graph, region: Sequence[int]) -> tuple[tuple[Node, ...], ...]:
    """The parts of a region that are not connected within it, in order of their first nodes."""
    made = {graph.nodes[k].output: k for k in region}
    arm_of: dict[int, int] = {}
    for k in region:  # nodes read what was made before them, so every part is known by its smallest member
        near = {arm_of[made[t]] for t in graph.nodes[k].inputs if t in made}
        arm = min(near, default=k)
        arm_of[k] = arm
        for other, its in arm_of.items() if len(near) > 1 else ():
            if its in near:
                arm_of[other] = arm
    return tuple(tuple(graph.nodes[k] for k in region if arm_of[k] == arm) for arm in dict.fromkeys(arm_of.values()))


def _nested(graph: Graph, fork: str, names: Collection[str], around: frozenset[str]) -> bool:
    """Whether a block lies outside a larger one, or inside it with its fork and not as the same nodes again."""
    if around.isdisjoint(names):
        return True
    producer = graph.producer(fork)
    return len(names) < len(around) and around.issuperset(names) and producer is not None and producer.name in around


def in_order(graph: Graph) -> tuple[Graph, tuple[Block, ...]]:
    """The graph with the nodes of every block next to each other, and its blocks; of the last few graphs they are remembered."""
    if (known := _IN_ORDER.get(id(graph))) is None:
        found = blocks(graph)
        ordered = contiguous(graph, found)
        if len(_IN_ORDER) >= REMEMBERED:
            del _IN_ORDER[next(iter(_IN_ORDER))]
        known = _IN_ORDER[id(graph)] = graph, ordered, found if ordered is graph else blocks(ordered)
    return known[1:]


REMEMBERED = 16
"""Graphs whose blocks are remembered. Chosen: plans of one network ask for few."""
_IN_ORDER: dict[int, tuple[Graph, Graph, tuple[Block, ...]]] = {}
"""By identity graphs, kept so that nothing else gets their numbers, as they are in order, and their blocks."""


def contiguous(graph: Graph, found: Sequence[Block]) -> Graph:
    """The graph with the nodes of every block next to each other, arm after arm; the same graph if they already are."""
    order = _ordered(graph.nodes, found)
    return graph if order == graph.nodes else graph.with_nodes(order)


def _ordered(nodes: Sequence[Node], found: Sequence[Block]) -> tuple[Node, ...]:
    """Topological order with blocks as units, as near to the given order as that allows."""
    at = {n.name: k for k, n in enumerate(nodes)}
    unit = {n.name: k for k, n in enumerate(nodes)}
    units: dict[int, tuple[Node, ...]] = {k: (n,) for k, n in enumerate(nodes)}
    inside = [b for b in found if all(n.name in at for n in b.nodes)]
    for i, block in enumerate(inside):
        if any(unit[n.name] != at[n.name] for n in block.nodes):
            continue  # inside an arm of a larger block, which comes first
        members = tuple(n for arm in block.arms for n in _ordered(arm, inside[i + 1:]))
        first = min(at[n.name] for n in members)
        for n in members:
            del units[at[n.name]]
            unit[n.name] = first
        units[first] = members
    if not inside:
        return tuple(nodes)
    return _sorted(units, unit)


def _sorted(units: dict[int, tuple[Node, ...]], unit: dict[str, int]) -> tuple[Node, ...]:
    """Units one after another, each as soon as what it reads is made, the earliest first."""
    maker = {n.output: unit[n.name] for members in units.values() for n in members}
    needs = {k: {maker[t] for n in members for t in n.inputs if t in maker} - {k} for k, members in units.items()}
    readers: dict[int, list[int]] = {k: [] for k in units}
    for k, makers in needs.items():
        for m in makers:
            readers[m].append(k)
    ready = [k for k, makers in needs.items() if not makers]
    heapq.heapify(ready)
    order: list[Node] = []
    while ready:
        k = heapq.heappop(ready)
        order += units[k]
        for r in readers[k]:
            needs[r].discard(k)
            if not needs[r]:
                heapq.heappush(ready, r)
    return tuple(order)
