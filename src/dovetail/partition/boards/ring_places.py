"""Boards for a plan whose FPGAs have no place yet: which of the platform's each one is.

Plans of `boards` say which nodes share an FPGA and which FPGAs exchange tensors, not where these stand. Where there are few, all
ways to name them are tried; where there are many, each is put next to those it exchanges most with.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations

import numpy as np

from dovetail.hardware.shares import Floats, Ints
from dovetail.partition.boards.assignment import exchanged, reseated, size_of
from dovetail.partition.boards.label_search import Line, Seat
from dovetail.partition.boards.node_moves import renamed, settle
from dovetail.partition.boards.packing import FULL, as_sizes, pack
from dovetail.partition.boards.relaxation import Pool
from dovetail.partition.boards.symmetry import Names
from dovetail.partition.columns import options
from dovetail.partition.effort import spend
from dovetail.partition.evaluate import Evaluation, evaluate, reevaluate_all
from dovetail.partition.plan import Assignment, whole_on
from dovetail.partition.problem import TOLERANCE, Problem
from dovetail.partition.work import Move, deliveries, input_places, output_place, transfer_of, work_of


def seat(problem: Problem, pool: Pool, assignment: Assignment, names: Names,
         line: Line | None) -> tuple[Assignment, Evaluation] | None:
    """The plan on the platform's boards, as good as was found; None where they are too few or too small for it.

    On a long ring, `line` is the same plan and says where along it boards would be.
    """
    if not pool.many:
        plans = [_renamed(assignment, dict(zip(problem.devices, (problem.devices[i] for i in order.tolist()), strict=True)))
                 for order in names.orders]
    else:
        every = [(assignment, _side_by_side(problem, pool, assignment))]
        every += [(line[0], in_line(problem, pool, *line))] if line is not None else []
        plans = [_renamed(named, near) for named, near in every if near is not None]
    judged = [(evaluate(problem, a), a) for a in plans]
    best = min((pair for pair in judged if pair[0].feasible), key=lambda pair: pair[0].objective, default=None)
    if best is None:
        return None
    chosen, found = best[1], best[0]
    if pool.many:
        chosen, found = _gathered(problem, pool, chosen, found)
    return reseated(problem, pool, *settle(problem, pool, chosen, found))


def in_line(problem: Problem, pool: Pool, assignment: Assignment, along: Mapping[str, Seat]) -> dict[str, str] | None:
    """A board for every name, as far from each other as along a ring: from whichever board on, and whichever way, is best.

    Where others are there already, the nearest board with room is taken; None where there is none.
    """
    sizes, between, count = _loads(problem, pool, assignment), exchanged(problem, assignment), len(pool.boards)
    hops = np.array([[len(problem.platform.route(a, b)) for b in (*pool.boards, problem.platform.host)] for a in pool.boards])
    left, found = np.ones((count, len(next(iter(sizes.values()), np.zeros(1))))), dict[str, int]()
    apart = _apart(problem.platform.host, assignment)
    for stretch in sorted({along[name][0] for name in sizes}):
        own = {name: along[name][1] for name in sizes if along[name][0] == stretch}
        ends = [(own[a], found.get(b, count), bytes_) for (a, b), bytes_ in between.items() if a in own and b not in own]
        best = min(((start, way) for start in range(count) for way in (1, -1)), key=lambda at: (
            sum(bytes_ * hops[(at[0] + at[1] * place) % count, to] for place, to, bytes_ in ends), at))
        for name, place in own.items():
            wanted = (best[0] + best[1] * place) % count
            others = {found[n] for pair in apart if name in pair for n in pair if n in found}
            free = [b for b in range(count) if b not in others and (left[b] - sizes[name] >= 1 - FULL).all()]
            if not free:
                return None
            found[name] = min(free, key=lambda b: (hops[b, wanted], b))
            left[found[name]] -= sizes[name]
    return {name: pool.boards[b] for name, b in found.items()}


TURNS = 3
"""Ways to turn a plan around the ring, those with the shortest ways to the host, that are judged."""


def turned(problem: Problem, pool: Pool, assignment: Assignment, judged: Evaluation) -> tuple[Assignment, Evaluation]:
    """The plan as it is or all of it moved along the ring, or seen from the other side: what goes to the host and comes from it
    may have shorter ways then.
    """
    boards, seconds = pool.boards, _ways_home(problem, pool, assignment)
    count, hops = len(boards), [len(problem.platform.route(problem.platform.host, b)) for b in boards]
    ways = sorted((sum(s * hops[(start + way * i) % count] for i, s in enumerate(seconds)), start, way)
                  for start in range(count) for way in (1, -1))
    best: tuple[Assignment, Evaluation] = assignment, judged
    for _, start, way in ways[:TURNS]:
        moved = _renamed(assignment, {b: boards[(start + way * i) % count] for i, b in enumerate(boards)})
        found = evaluate(problem, moved)
        if found.feasible and found.objective < best[1].objective * (1 - TOLERANCE):
            best = moved, found
    return best


def _ways_home(problem: Problem, pool: Pool, assignment: Assignment) -> list[float]:
    """Seconds on every link between a board and the host of all that goes either way."""
    places, host, found = input_places(problem), problem.platform.host, dict[str, float]()
    moves: list[Move] = []
    for node in problem.graph.nodes:
        work = work_of(problem, node, assignment[node.name], places)
        places[node.output] = output_place(problem, node, assignment[node.name])
        moves += (*work.arrivals, *work.partials)
    for move in (*moves, *(m for t in problem.graph.outputs for m in deliveries(problem, t, places[t]))):
        # What a board gets back of its own passes the host.
        if host in (move.source, move.target) or move.source == move.target:
            hop_s, _ = transfer_of(problem, pool.boards[0], pool.boards[1], move.size_bytes)
            for device in (move.source, move.target):
                found[device] = found.get(device, 0.0) + hop_s
    return [found.get(b, 0.0) for b in pool.boards]


RUNS = (64, 32, 16, 8, 4, 2, 1)
"""Nodes in a row that are taken home together, the most first."""


def homeward(problem: Problem, assignment: Assignment, judged: Evaluation) -> tuple[Assignment, Evaluation]:
    """The plan after the host took nodes in a row, all of them whole, from boards while that helped."""
    host, chosen = problem.platform.host, dict(assignment)
    home = whole_on(host)
    for length in RUNS:
        nodes = [n for n in problem.graph.nodes if chosen[n.name] != home and home in options(problem, n).splits]
        for i in range(0, len(nodes), max(1, length // 2)):
            moves = {n.name: home for n in nodes[i:i + length] if chosen[n.name] != home}
            found = reevaluate_all(problem, chosen, judged, moves) if moves else judged
            if found.feasible and found.objective < judged.objective * (1 - TOLERANCE):
                chosen, judged = {**chosen, **moves}, found
    return chosen, judged


TRIALS = 80
"""Boards whose nodes are moved to another, all together, to see whether that helps."""


def _gathered(problem: Problem, pool: Pool, assignment: Assignment, judged: Evaluation) -> tuple[Assignment, Evaluation]:
    """The plan after boards took in what others hold, while that shortened the ways between them."""
    chosen, trials, tried = assignment, 0, set[tuple[str, str]]()
    while trials < TRIALS:
        for board, onto in _nearer(problem, pool, chosen):
            if trials >= TRIALS or (board, onto) in tried:
                continue
            tried.add((board, onto))
            trials += 1
            moved = _renamed(chosen, {board: onto})
            found = evaluate(problem, moved)
            if found.feasible and found.objective < judged.objective * (1 - TOLERANCE):
                chosen, judged = moved, found
                break
        else:
            break
    return chosen, judged


def _nearer(problem: Problem, pool: Pool, assignment: Assignment) -> list[tuple[str, str]]:
    """Pairs of boards that fit on the second, which is nearer to what the first exchanges; those that save most first."""
    sizes, between, route = _loads(problem, pool, assignment), exchanged(problem, assignment), problem.platform.route
    apart = _apart(problem.platform.host, assignment)
    found: list[tuple[float, str, str]] = []
    for board, size in sizes.items():
        others = [(other, amount) for (own, other), amount in between.items() if own == board]
        for onto, held in sizes.items():
            if onto == board or (size + held > FULL).any() or frozenset((board, onto)) in apart:
                continue
            before, after = (sum(amount * len(route(at, to)) for to, amount in others if to != at) for at in (board, onto))
            if after < before:
                found.append((after - before, board, onto))
    return [(board, onto) for _, board, onto in sorted(found)]


def _renamed(assignment: Assignment, names: Mapping[str, str]) -> Assignment:
    return {node: renamed(split, names) for node, split in assignment.items()}


def _side_by_side(problem: Problem, pool: Pool, assignment: Assignment) -> dict[str, str] | None:
    """A board for every name, so that what they exchange has short ways: names change places while that helps."""
    host, sizes = problem.platform.host, _loads(problem, pool, assignment)
    names = _merged(sizes, len(pool.boards), _apart(host, assignment))
    if names is None:
        return None
    seats = [host, *pool.boards]
    hops = np.array([[len(problem.platform.route(a, b)) if a != b else 0 for b in seats] for a in seats], dtype=np.float64)
    number = {host: 0} | {name: 1 + i for name, i in names.items()}
    amounts = np.zeros((len(seats), len(seats)))
    for (a, b), amount in exchanged(problem, assignment).items():
        amounts[number[a], number[b]] += amount
    np.fill_diagonal(amounts, 0.0)
    def length(at: Ints) -> float:
        return float((amounts * hops[np.ix_(at, at)]).sum())

    starts = [_one_by_one(amounts, hops), min(_around(len(pool.boards)), key=length)]
    best = min((_exchanging(amounts, hops, at) for at in starts), key=length)
    return {name: seats[best[i]] for name, i in number.items()}


def _around(boards: int) -> list[Ints]:
    """Seats in order of number around the ring, from every board on, both ways; the host's is its own."""
    row = np.arange(boards)
    return [np.r_[0, 1 + (start + way * row) % boards] for start in range(boards) for way in (1, -1)]


def _merged(sizes: Mapping[str, Floats], boards: int, apart: set[frozenset[str]]) -> dict[str, int] | None:
    """A number for every name, the same for some where they are more than the boards; None where they were not made to fit."""
    if len(sizes) <= boards:
        return {name: i for i, name in enumerate(sizes)}
    packed = pack([[as_sizes(size)] for size in sizes.values()], np.ones((boards, len(next(iter(sizes.values()))))))
    found = {name: at[0] for name, (_, at) in zip(sizes, packed, strict=True)} if packed is not None else None
    return found if found is not None and all(len({found[n] for n in pair}) == 2 for pair in apart) else None


def _apart(host: str, assignment: Assignment) -> set[frozenset[str]]:
    """Boards that share a node."""
    return {frozenset(pair) for split in assignment.values() for pair in combinations(split.devices, 2) if host not in pair}


def _one_by_one(amounts: Floats, hops: Floats) -> Ints:
    """Seats in order of number, each next to those seated before that it exchanges most with; the host's is its own."""
    at = [0]
    for i in range(1, len(amounts)):
        free = [b for b in range(len(amounts)) if b not in at]
        at.append(min(free, key=lambda b: (float(amounts[i, :i] @ hops[b, at]), b)))
    return np.array(at)


def _exchanging(amounts: Floats, hops: Floats, at: Ints) -> Ints:
    """Seats after pairs of them changed places while that made the ways shorter."""
    at, count = at.copy(), len(at)
    value = float((amounts * hops[np.ix_(at, at)]).sum())
    better = True
    while better:
        better = False
        for a in range(1, count):
            spend("seats", count)
            for b in range(1, count):
                if a == b or not (amounts[a].any() or amounts[b].any()):
                    continue
                # Either two change places, or one goes to another's and those between move up.
                swapped, moved = at.copy(), np.insert(np.delete(at, a), b, at[a])
                swapped[a], swapped[b] = at[b], at[a]
                for tried in (swapped, moved):
                    found = float((amounts * hops[np.ix_(tried, tried)]).sum())
                    if found < value * (1 - TOLERANCE):
                        at, value, better = tried, found, True
    return at


def _loads(problem: Problem, pool: Pool, assignment: Assignment) -> dict[str, Floats]:
    """What every name's nodes take of a board, as fractions of its limits, in the order of first use."""
    found: dict[str, Floats] = {}
    for node in problem.graph.nodes:
        split = assignment[node.name]
        for piece in split.pieces:
            if piece.device != problem.platform.host:
                found[piece.device] = found.get(piece.device, np.zeros(())) + size_of(problem, pool, node, split, piece)
    return found
