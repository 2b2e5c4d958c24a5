"""From a plan of the pool to one of the board: which FPGA computes each part that the pool only says some FPGA does.

If the parts do not fit on the boards as they are, nodes that lie on FPGAs alone are cut in another way. Parts are then placed
in topological order, a few beginnings at a time, judged node by node as the evaluator does; a beginning is kept only if the
parts still to come fit beside it. Single nodes move between boards while that helps (`settling`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from math import inf

import numpy as np

from dovetail.hardware.shares import Floats
from dovetail.ir import Axis, Node
from dovetail.partition.boards.node_moves import renamed, settle
from dovetail.partition.boards.packing import FULL, Sizes, as_sizes, pack
from dovetail.partition.boards.relaxation import Pool
from dovetail.partition.columns import options
from dovetail.partition.effort import spend, worked
from dovetail.partition.evaluate import Evaluation, cost_node, evaluate
from dovetail.partition.plan import Assignment, Piece, Split, whole_on
from dovetail.partition.problem import TOLERANCE, Problem, price, price_reduce
from dovetail.partition.work import Place, input_places, output_place, work_of

WIDTH, ALIKE = 8, 2
"""Beginnings kept, and how many of them may leave equally full the boards that their last tensor is on."""
FILL = 8
"""Steps in which boards are equally full."""
SWAPS = 60
"""Pairs of boards that may change places."""
FEW_BOARDS = 4
"""Boards so few that each is near all others."""
HURRIED = 2
"""Beginnings kept once time is up."""
BOARDS = 3
"""Boards tried for a part besides those its input is on: the fullest it fits on, the last begun, an empty one."""
PAIRS = 8
"""Pairs of boards tried for a node that two of them share."""
FEW_STEPS, FEWER_STEPS = 400, 100
"""Steps of the packing of one part, and of that which shows that what is still to come fits."""


@dataclass(frozen=True, slots=True)
class Part:
    """Nodes that must share a board, and what they take of it; `piece` is the stand-in of theirs it replaces."""

    nodes: tuple[str, ...]
    stand_in: str
    size: Floats


@dataclass(frozen=True, slots=True)
class Parts:
    """A plan of the pool in parts, in topological order; of the parts in a set of `apart` no two may share a board."""

    every: tuple[Part, ...]
    apart: tuple[frozenset[int], ...]

    @property
    def sizes(self) -> Floats:
        return np.array([p.size for p in self.every]) if self.every else np.zeros((0, 1))


def parts_of(problem: Problem, pool: Pool, assignment: Assignment, together: Sequence[tuple[tuple[str, ...], ...]]) -> Parts:
    """The parts of a plan of the pool; `together` lists the blocks whose arms run at once, arm by arm."""
    arm_of = {name: (b, a) for b, arms in enumerate(together) for a, arm in enumerate(arms) for name in arm}
    found: dict[tuple[object, ...], tuple[list[str], str, Floats]] = {}
    sets: dict[tuple[object, ...], set[tuple[object, ...]]] = {}
    for node in problem.graph.nodes:
        split = assignment[node.name]
        for piece in (p for p in split.pieces if p.device in pool.stand_ins):
            block = arm_of.get(node.name)
            key = ("arm", block[0], piece.device) if block is not None else (node.name, piece.device)
            names, _, size = found.get(key, ([], piece.device, np.zeros(())))
            found[key] = ([*names, node.name], piece.device, size + size_of(problem, pool, node, split, piece))
            sets.setdefault(key[:-1], set()).add(key)
    number = {key: i for i, key in enumerate(found)}
    apart = tuple(frozenset(number[k] for k in keys) for keys in sets.values() if len(keys) > 1)
    return Parts(tuple(Part(tuple(names), stand_in, size) for names, stand_in, size in found.values()), apart)


def size_of(problem: Problem, pool: Pool, node: Node, split: Split, piece: Piece) -> Floats:
    """What a piece takes of a board, as fractions of its limits."""
    board = problem.platform.device(pool.boards[0])
    taken = dict(price(problem, node, split.axis, Piece(board.name, piece.start, piece.stop)).resources)
    if split.reducer == piece.device and (sums := price_reduce(problem, node, len(split.pieces), board.name)) is not None:
        for resource, amount in sums.resources:
            taken[resource] = taken.get(resource, 0.0) + amount
    return np.array([taken.get(r, 0.0) / limit if limit > 0 else 0.0 for r, limit in board.resources.items()])


@dataclass(frozen=True, slots=True)
class _Begun:
    """The first nodes of a plan on real boards."""

    boards: Mapping[int, int]
    splits: Mapping[str, Split]
    places: Mapping[str, Place]
    left: Floats
    seconds: float
    joules: float


def lift(problem: Problem, relaxed: Problem, pool: Pool, assignment: Assignment,
         together: Sequence[tuple[tuple[str, ...], ...]], deadline: float = inf) -> tuple[Assignment, Evaluation] | None:
    """The plan with a board for every part, as good as was found; None where the parts do not fit on the boards."""
    parts = parts_of(problem, pool, assignment, together)
    packed = pack(_items(parts), np.ones((len(pool.boards), parts.sizes.shape[1])))
    if packed is None:
        recut = _recut(problem, relaxed, pool, assignment, together)
        if recut is None:
            return None
        assignment, packed = recut
        parts = parts_of(problem, pool, assignment, together)
    at = {i: b for members, (_, boards) in zip(_groups(parts), packed, strict=True)
          for i, b in zip(members, boards, strict=True)}
    plans: list[Assignment] = [{n.name: _split(pool, assignment[n.name], n.name, parts, at) for n in problem.graph.nodes}]
    begun = _beam(problem, pool, assignment, parts, np.ones((len(pool.boards), parts.sizes.shape[1])), deadline)
    plans += [begun] if begun is not None else []
    judged = [(evaluate(problem, a), a) for a in plans]
    best, chosen = min(judged, key=lambda pair: (not pair[0].feasible, pair[0].objective))
    return reseated(problem, pool, *settle(problem, pool, chosen, best)) if best.feasible else None


def reseated(problem: Problem, pool: Pool, assignment: Assignment, judged: Evaluation) -> tuple[Assignment, Evaluation]:
    """The plan after boards changed places, all that is on them with them, while that brought what they exchange nearer."""
    chosen, host, trials = dict(assignment), problem.platform.host, 0
    amounts, every = exchanged(problem, chosen), (host, *pool.boards)
    hops = {(a, b): len(problem.platform.route(a, b)) if a != b else 0 for a in every for b in every}
    far = sorted(pool.boards, key=lambda b: len(problem.platform.route(host, b)))
    used = {d for s in chosen.values() for d in s.devices if d in pool.boards}
    for board in sorted(used, key=far.index, reverse=True) if len(pool.boards) > FEW_BOARDS else ():
        for seat in far[:far.index(board)]:
            if trials >= SWAPS:
                return chosen, judged
            if _longer(amounts, hops, board, seat):
                continue
            swapped = {name: renamed(s, {board: seat, seat: board}) for name, s in chosen.items()}
            found, trials = evaluate(problem, swapped), trials + 1
            if found.feasible and found.objective < judged.objective * (1 - TOLERANCE):
                chosen, judged, amounts = swapped, found, exchanged(problem, swapped)
                break
    return chosen, judged


def _longer(amounts: Mapping[tuple[str, str], float], hops: Mapping[tuple[str, str], int], a: str, b: str) -> bool:
    """Whether what is exchanged had no shorter ways, all together, if two boards changed places."""
    other = {a: b, b: a}
    return sum(amount * (hops[other.get(x, x), other.get(y, y)] - hops[x, y]) for (x, y), amount in amounts.items()
               if x in other or y in other) >= 0


def exchanged(problem: Problem, assignment: Assignment) -> dict[tuple[str, str], float]:
    """Bytes that go between devices, both ways."""
    found: dict[tuple[str, str], float] = {}
    graph, host = problem.graph, problem.platform.host
    for node in graph.nodes:
        for tensor in dict.fromkeys(node.inputs):
            maker = graph.producer(tensor)
            size = float(graph.tensors[tensor].transfer_bytes)
            for a in (host,) if maker is None else _holders(assignment[maker.name]):
                for b in assignment[node.name].devices:
                    if a != b:
                        found[a, b] = found.get((a, b), 0.0) + size
                        found[b, a] = found.get((b, a), 0.0) + size
    return found


def _holders(split: Split) -> tuple[str, ...]:
    return split.devices if split.reducer is None else (split.reducer,)


def _groups(parts: Parts) -> list[tuple[int, ...]]:
    """Parts that must lie on different boards together, others alone, in the order of their first."""
    grouped = {i: tuple(sorted(s)) for s in parts.apart for i in s}
    return list(dict.fromkeys(grouped.get(i, (i,)) for i in range(len(parts.every))))


def _items(parts: Parts) -> list[list[Sizes]]:
    return [[as_sizes(parts.sizes[list(members)])] for members in _groups(parts)]


Packed = list[tuple[int, tuple[int, ...]]]


def _recut(problem: Problem, relaxed: Problem, pool: Pool, assignment: Assignment,
           together: Sequence[tuple[tuple[str, ...], ...]]) -> tuple[Assignment, Packed] | None:
    """The plan with nodes cut so that all parts fit, and where they do."""
    parts = parts_of(problem, pool, assignment, together)
    beside = {name for arms in together for arm in arms for name in arm}
    items: list[list[Sizes]] = []
    splits: list[tuple[str, list[Split]] | None] = []
    for members in _groups(parts):
        own = [as_sizes(parts.sizes[list(members)])]
        name = parts.every[members[0]].nodes[0]
        pieces = assignment[name].pieces
        ways = None
        if name not in beside and all(p.device in pool.stand_ins for p in pieces):
            others = [s for s in _cuts(relaxed, pool, problem.graph.node(name)) if s != assignment[name]]
            ways = (name, [assignment[name], *others])
            node = problem.graph.node(name)
            own += [tuple(tuple(size_of(problem, pool, node, s, p).tolist()) for p in s.pieces) for s in others]
        items.append(own)
        splits.append(ways)
    packed = pack(items, np.ones((len(pool.boards), parts.sizes.shape[1])))
    if packed is None:
        return None
    changed = {ways[0]: ways[1][number] for ways, (number, _) in zip(splits, packed, strict=True) if ways is not None}
    return {**assignment, **changed}, [(0, boards) for _, boards in packed]


def without_rest(problem: Problem, pool: Pool, assignment: Assignment,
                 together: Sequence[tuple[tuple[str, ...], ...]]) -> Assignment | None:
    """The plan of the pool with the host computing, whole, what no board has room for; None where it cannot."""
    parts, host = parts_of(problem, pool, assignment, together), problem.platform.host
    room, away = np.ones((len(pool.boards), parts.sizes.shape[1])), set[str]()
    for members in sorted(_groups(parts), key=lambda m: -float(parts.sizes[list(m)].max())):
        found = pack([[as_sizes(parts.sizes[list(members)])]], room, FEW_STEPS)
        if found is None:
            away |= {name for i in members for name in parts.every[i].nodes}
            continue
        for i, board in zip(members, found[0][1], strict=True):
            room[board] -= parts.every[i].size
    able = {name for name in away if whole_on(host) in options(problem, problem.graph.node(name)).splits}
    return {**assignment, **{name: whole_on(host) for name in away}} if able == away else None


def _cuts(relaxed: Problem, pool: Pool, node: Node) -> list[Split]:
    """The ways to run a node on FPGAs alone, whatever FPGAs; sums of partial sums are left out."""
    found: dict[tuple[object, ...], Split] = {}
    for split in options(relaxed, node).splits:
        if split.axis is not Axis.INPUT_CHANNELS and all(p.device in pool.stand_ins for p in split.pieces):
            found.setdefault((split.axis, tuple((p.start, p.stop) for p in split.pieces)), split)
    return sorted(found.values(), key=lambda s: (len(s.pieces), s.axis is Axis.ROWS))


def _split(pool: Pool, split: Split, name: str, parts: Parts, boards: Mapping[int, int]) -> Split:
    """A node's split with boards in place of stand-ins."""
    at = {p.stand_in: pool.boards[boards[i]] for i, p in enumerate(parts.every) if name in p.nodes}
    pieces = tuple(Piece(at.get(p.device, p.device), p.start, p.stop) for p in split.pieces)
    return Split(split.axis, pieces, at.get(split.reducer, split.reducer) if split.reducer is not None else None)


def _beam(problem: Problem, pool: Pool, assignment: Assignment, parts: Parts, empty: Floats,
          deadline: float) -> Assignment | None:
    of_node: dict[str, list[int]] = {}
    for i, part in enumerate(parts.every):
        for name in part.nodes:
            of_node.setdefault(name, []).append(i)
    plans, rest = [_Begun({}, {}, input_places(problem), empty, 0.0, 0.0)], _Rest(parts)
    for node in problem.graph.nodes:
        own = of_node.get(node.name, [])
        grown = [_extended(problem, pool, plan, node, assignment[node.name], parts, boards)
                 for plan in plans for boards in _choices(pool, plan, node, own, parts)]
        grown.sort(key=lambda p: problem.score(p.seconds, p.joules))
        kept: list[_Begun] = []
        alike: Counter[tuple[float, ...]] = Counter()
        for plan in grown:
            # What is cheapest so far fills a board and pays for it later: beginnings that left it in time are kept too.
            full = _full(pool, plan, node)
            if len(kept) < WIDTH and alike[full] < ALIKE and (not own or rest.fits(plan)):
                kept.append(plan)
                alike[full] += 1
        plans = kept if worked() < deadline else kept[:HURRIED]
        if not plans:
            return None
    return dict(plans[0].splits)


def _full(pool: Pool, plan: _Begun, node: Node) -> tuple[float, ...]:
    """How full the boards are that a node's output is on."""
    number = {b: i for i, b in enumerate(pool.boards)}
    return tuple(float(np.floor(plan.left[number[d]].min() * FILL)) for d, _ in plan.places[node.output].parts if d in number)


class _Rest:
    """The parts of a plan, largest first, to see whether those without a board fit beside those that have one."""

    def __init__(self, parts: Parts) -> None:
        self.sizes: list[list[float]] = parts.sizes.tolist()
        self.groups = sorted(_groups(parts), key=lambda members: -max(max(self.sizes[i]) for i in members))

    def fits(self, plan: _Begun) -> bool:
        """Each on the fullest board that holds it; where that fails, in any way found in a few steps."""
        rest = [[i for i in members if i not in plan.boards] for members in self.groups]
        left: list[list[float]] = plan.left.tolist()
        if all(self._laid(members, left) for members in rest):
            return True
        return pack([[tuple(tuple(self.sizes[i]) for i in members)] for members in rest if members], plan.left,
                    FEWER_STEPS) is not None

    def _laid(self, members: Sequence[int], left: list[list[float]]) -> bool:
        """Whether parts that lie on different boards have found room, which they then take."""
        taken: list[int] = []
        for i in members:
            size, best, least = self.sizes[i], -1, inf
            for b, room in enumerate(left):
                if min(room) < least and b not in taken and all(r - x >= 1 - FULL for r, x in zip(room, size, strict=True)):
                    best, least = b, min(room)
            if best < 0:
                return False
            taken.append(best)
            left[best] = [r - x for r, x in zip(left[best], size, strict=True)]
        return True


def _choices(pool: Pool, plan: _Begun, node: Node, own: Sequence[int], parts: Parts) -> Iterator[dict[int, int]]:
    """Boards for the parts of a node that have none yet."""
    new = [i for i in own if i not in plan.boards]
    if not new:
        yield {}
        return
    taken = {plan.boards[j] for s in parts.apart for i in new if i in s for j in s if j in plan.boards}
    offers = [[b for b in _offered(pool, plan, node, parts.every[i].size) if b not in taken] for i in new]
    if len(new) == 1:
        yield from ({new[0]: b} for b in offers[0])
        return
    every = list(dict.fromkeys(b for offer in offers for b in offer))
    pairs = [c for c in permutations(every, len(new)) if all(b in offer for b, offer in zip(c, offers, strict=True))]
    yield from (dict(zip(new, c, strict=True)) for c in pairs[:PAIRS])


def _offered(pool: Pool, plan: _Begun, node: Node, size: Floats) -> list[int]:
    fits = np.flatnonzero((plan.left - size >= 1 - FULL).all(axis=1)).tolist()
    on = {d for t in node.inputs for d, _ in plan.places[t].parts}
    near = [b for b in fits if pool.boards[b] in on]
    used = [b for b in fits if b not in near and plan.left[b].min() < 1]
    fresh = [b for b in fits if plan.left[b].min() >= 1]
    tight = sorted(used, key=lambda b: float(plan.left[b].min()))
    return [*near, *dict.fromkeys([*tight[:BOARDS], *used[-1:], *fresh[:2]])]


def _extended(problem: Problem, pool: Pool, plan: _Begun, node: Node, split: Split, parts: Parts,
              boards: Mapping[int, int]) -> _Begun:
    placed = {**plan.boards, **boards}
    chosen = _split(pool, split, node.name, parts, placed)
    cost = cost_node(problem, node, chosen, work_of(problem, node, chosen, plan.places))
    left = plan.left
    if boards:
        left = plan.left.copy()
        for i, b in boards.items():
            left[b] -= parts.every[i].size
    spend("liftings", 1)
    return _Begun(placed, {**plan.splits, node.name: chosen}, {**plan.places, node.output: output_place(problem, node, chosen)},
                  left, plan.seconds + cost.latency_s, plan.joules + cost.energy_j)
