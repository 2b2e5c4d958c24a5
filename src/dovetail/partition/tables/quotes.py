"""One round of questions to the cost models: every candidate share of every node on every device, priced at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from math import isfinite

import numpy as np

from dovetail.cost.estimate import ShareCosts
from dovetail.hardware.shares import Flags, Ints, Question, Segments
from dovetail.ir import Axis, Node
from dovetail.partition.candidates import FEW_DEVICES, Candidates, candidates, even_counts, even_cuts
from dovetail.partition.cost_model import answers
from dovetail.partition.effort import spend
from dovetail.partition.memo import Cache
from dovetail.partition.plan import Assignment, Piece
from dovetail.partition.problem import PIECES, QUOTES, TWINS, Problem, Quote, axes_of, entry, price_pieces, sort_of
from dovetail.platform.device import Device, Kind

LONGEST = 1 << 24
"""Units of the longest axis that a share's number can hold. Chosen: two of them and an axis fit 64 bits."""


@dataclass(frozen=True, slots=True, eq=False)
class ShareMenu:
    """The candidate columns of alike nodes and the shares to ask prices for, separately for processors and others.

    `share` numbers each column's share on each device (columns x devices) within the `asks` of the device's class.
    """

    columns: Candidates
    share: Ints
    asks: tuple[Segments, Segments]
    index: tuple[Mapping[tuple[Axis | None, int, int], int], Mapping[tuple[Axis | None, int, int], int]]


MENUS = Cache[tuple[object, ...], ShareMenu]()
LENT = Cache[tuple[str, str], Quote | None]()
"""Quotes of another problem about the same nodes and devices, where it has asked for them already."""


def menu_of(problem: Problem, node: Node) -> ShareMenu:
    """The menu of a node, made once for all alike ones."""
    key = (sort_of(problem, node), problem.fixed.get(node.name), problem.more.get(node.name))
    known = problem.memo.of(MENUS)
    if key not in known:
        known[key] = _new_menu(candidates(problem, node), tuple(shape_priced(problem).tolist()), _even(problem, node))
    return known[key]


def shape_priced(problem: Problem) -> Flags:
    """Which devices charge alike nodes alike, whatever their weights."""
    return np.array([problem.costs.by_shape(d) for d in problem.platform.devices], dtype=np.bool_)


def _even(problem: Problem, node: Node) -> tuple[tuple[Axis, int, int], ...]:
    """Even shares that the balanced baseline asks for, where they are not among the candidates: of many devices."""
    axis, counts = even_counts(problem, node, len(problem.devices))
    if axis is None or len(problem.devices) <= FEW_DEVICES or node.name in problem.fixed or problem.pool is not None:
        return ()
    extent = axes_of(problem, node)[axis]
    edges = [(0, *even_cuts(extent, count), extent) for count in counts]
    return tuple((axis, a, b) for ends in edges for a, b in pairwise(ends))


@lru_cache(maxsize=512)
def _new_menu(columns: Candidates, shaped: tuple[bool, ...], more: tuple[tuple[Axis, int, int], ...]) -> ShareMenu:
    """The menu of some columns on devices that go by shapes or not, which also has prices of `more` shares."""
    by_shape, has = np.array(shaped, dtype=np.bool_), columns.has
    besides = np.array([(columns.axes.index(a) * LONGEST + b) * LONGEST + c for a, b, c in more], dtype=np.int64)
    share = np.zeros(has.shape, dtype=np.int64)
    asks, index = [], []
    for group in (by_shape, ~by_shape):
        rows, devices = np.nonzero(has & group)
        code = (columns.axis[rows] * LONGEST + columns.start[rows, devices]) * LONGEST + columns.stop[rows, devices]
        found, inverse = np.unique(np.concatenate([code, besides if len(code) else code]), return_inverse=True)
        share[rows, devices] = inverse.ravel()[:len(code)]
        axis, start, stop = found // LONGEST**2, found // LONGEST % LONGEST, found % LONGEST
        edges = np.searchsorted(axis, np.arange(len(columns.axes) + 1))
        asks.append(tuple((columns.axes[i], start[a:b], stop[a:b]) for i, (a, b) in
                          enumerate(zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)) if b > a))
        index.append({(columns.axes[a], b, c): i
                      for i, (a, b, c) in enumerate(zip(axis.tolist(), start.tolist(), stop.tolist(), strict=True))})
    return ShareMenu(columns, share, (asks[0], asks[1]), (index[0], index[1]))


def ask_all(problem: Problem) -> None:
    """Fill the problem's quotes: per node and device the prices of all candidate shares, None where the device cannot."""
    if problem.memo.of(QUOTES):
        return
    by_shape = shape_priced(problem)
    menus = {n.name: menu_of(problem, n) for n in problem.graph.nodes}
    alike: dict[tuple[object, ...], list[Node]] = {}
    for node in problem.graph.nodes:
        floats = not problem.graph.integers.issuperset((*node.inputs, node.output))
        alike.setdefault((sort_of(problem, node), menus[node.name], floats), []).append(node)
    for number, (group, families) in enumerate(((by_shape, list(alike.values())),
                                                (~by_shape, [[n] for n in problem.graph.nodes]))):
        chosen = [d for d, own in zip(problem.platform.devices, group, strict=True) if own]
        asked = [nodes for nodes in families if menus[nodes[0].name].asks[number]] if chosen else []
        questions = [(nodes[0], menus[nodes[0].name].asks[number]) for nodes in asked]
        found = _lent(problem, questions, chosen)
        if found is None:
            found = answers(problem.costs, problem.graph, questions, chosen)
        for device, own in zip(chosen, found, strict=True):
            for nodes, costs in zip(asked, own, strict=True):
                _note(problem, nodes, device.name, menus[nodes[0].name].index[number], costs)
        problem.memo.of(TWINS).update(_twins(chosen, found))
        kinds = {"shapes" if number == 0 else "engines" if d.kind is Kind.FPGA else "kernels" for d in chosen}
        shares = sum(len(starts) for nodes in asked for _, starts, _ in menus[nodes[0].name].asks[number])
        for kind in sorted(kinds):
            spend(kind, len(asked), shares)


def _lent(problem: Problem, questions: Sequence[Question], devices: Sequence[Device]) -> list[list[ShareCosts | None]] | None:
    """What another problem was told of all these shares, device by device; None where it did not ask for some of them."""
    lent = problem.memo.of(LENT)
    at: dict[str, Ints] = {}
    told: dict[str, list[tuple[ShareCosts, ShareCosts]]] = {}
    found: list[list[ShareCosts | None]] = [[] for _ in devices]
    for device, own in zip(devices, found, strict=True):
        for node, segments in questions:
            if (node.name, device.name) not in lent:
                return None
            quote = lent[node.name, device.name]
            if quote is None:
                own.append(None)
                continue
            index, costs = quote
            if node.name not in at:
                places = [index.get((axis, a, b), -1) for axis, starts, stops in segments
                          for a, b in zip(starts.tolist(), stops.tolist(), strict=True)]
                if -1 in places:
                    return None
                at[node.name] = np.array(places)
            known = told.setdefault(node.name, [])
            taken = next((other for before, other in known if before is costs), None)
            if taken is None:  # equal devices keep the same answers
                taken = costs.take(at[node.name])
                known.append((costs, taken))
            own.append(taken)
    return found


def ask_pieces(problem: Problem, assignment: Assignment) -> None:
    """Learn what all pieces of a plan cost, of each device in one question."""
    shares: dict[str, list[tuple[Node, Axis | None, int, int]]] = {}
    for node in problem.graph.nodes:
        split = assignment[node.name]
        for p in split.pieces:
            shares.setdefault(p.device, []).append((node, split.axis, p.start, p.stop))
    for kind in Kind:
        devices = [d for d in problem.platform.of_kind(kind) if d.name in shares]
        asked = list({(node.name, axis, start, stop): (node, axis, start, stop)
                      for d in devices for node, axis, start, stop in shares[d.name]}.values())
        questions = [(node, ((axis, np.array([start]), np.array([stop])),)) for node, axis, start, stop in asked]
        for device, own in zip(devices, answers(problem.costs, problem.graph, questions, devices), strict=True):
            here = {(node.name, axis, start, stop) for node, axis, start, stop in shares[device.name]}
            for (node, axis, start, stop), costs in zip(asked, own, strict=True):
                if costs is not None and (node.name, axis, start, stop) in here and isfinite(costs.alone_s.item(0)):
                    pieces = problem.memo.of(PIECES).setdefault((node.name, axis, device.name), {})
                    assert pieces is not None, "nothing is known to be impossible before anything was asked"
                    pieces[start, stop] = entry(costs, 0)


def _twins(devices: Sequence[Device], found: Sequence[Sequence[ShareCosts | None]]) -> dict[str, str]:
    """Devices whose prices are those of an earlier one: models that know equal devices give them the same answers."""
    different: list[tuple[str, Sequence[ShareCosts | None]]] = []
    twins: dict[str, str] = {}
    for device, own in zip(devices, found, strict=True):
        twin = next((name for name, other in different if all(a is b for a, b in zip(own, other, strict=True))), None)
        if twin is None:
            different.append((device.name, own))
        elif any(own):
            twins[device.name] = twin
    return twins


def _note(problem: Problem, nodes: list[Node], device: str, index: Mapping[tuple[Axis | None, int, int], int],
          costs: ShareCosts | None) -> None:
    for node in nodes:
        problem.memo.of(QUOTES)[node.name, device] = None if costs is None else (index, costs)


def capable(problem: Problem, node: Node, device: str) -> bool:
    """Whether a device can run a whole node at all, whatever it takes; a fixed node is not asked for elsewhere."""
    ask_all(problem)
    quote = problem.memo.of(QUOTES).get((node.name, device))
    if quote is None:
        return False
    index, costs = quote
    whole = index.get((None, 0, 1))
    return whole is None or isfinite(costs.alone_s.item(whole))


def whole_needs(problem: Problem, node: Node, device: str) -> Mapping[str, float] | None:
    """What a whole node takes of a device's resources, at least, where it is too much; None if the device cannot run it."""
    ask_all(problem)
    quote = problem.memo.of(QUOTES).get((node.name, device))
    if quote is not None and (None, 0, 1) in quote[0]:
        i = quote[0][None, 0, 1]
        return {r: float(v[i]) for r, v in quote[1].resources.items()} if np.isfinite(quote[1].alone_s[i]) else None
    found = price_pieces(problem, node, None, device, [(0, 1)]) if node.name in problem.fixed else None
    return dict(found[0, 1].resources) if found else None


def share_needs(problem: Problem, node: Node, axis: Axis | None, piece: Piece) -> Mapping[str, float] | None:
    """The same of a share that was asked for; None if the device cannot run it."""
    ask_all(problem)
    quote = problem.memo.of(QUOTES).get((node.name, piece.device))
    i = None if quote is None else quote[0].get((axis, piece.start, piece.stop))
    if quote is None or i is None or not np.isfinite(quote[1].alone_s[i]):
        return None
    return {r: float(v[i]) for r, v in quote[1].resources.items()}


def priced_alike(problem: Problem, devices: Sequence[str]) -> bool:
    """Whether all of some devices take the same for the same."""
    ask_all(problem)
    first, *others = devices
    twins = problem.memo.of(TWINS)
    if all(twins.get(d) == first for d in others):
        return True
    quotes = problem.memo.of(QUOTES)
    return all(_same(quotes.get((n.name, first)), quotes.get((n.name, d))) for n in problem.graph.nodes for d in others)


def _same(one: Quote | None, other: Quote | None) -> bool:
    if one is None or other is None:
        return one is other
    a, b = one[1], other[1]
    pairs = [(a.alone_s, b.alone_s), (a.fused_s, b.fused_s), (a.energy_j, b.energy_j),
             *((v, b.resources[r]) for r, v in a.resources.items())]
    return all(np.array_equal(x, y) for x, y in pairs)
