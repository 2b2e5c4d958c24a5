"""A planning problem as layer-wise methods see it: few ways to run each layer, costs of layers and of neighbouring pairs.

A layer runs whole on one device or evenly divided among some, as in DeeperThings (Stahl et al. 2021). Where a node has several
inputs, what each of them adds is taken to add up, and nothing runs beside anything else; the evaluator judges the answers anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from dovetail.errors import UnsupportedError
from dovetail.hardware.shares import Floats
from dovetail.ir import Axis, Node, whole
from dovetail.partition.candidates import MOST_SHARES, divide, even_cuts
from dovetail.partition.evaluate import cost_node, delivery
from dovetail.partition.plan import Goal, Split, whole_on
from dovetail.partition.problem import Problem, axes_of
from dovetail.partition.tables.columns import fits
from dovetail.partition.tables.quotes import capable
from dovetail.partition.work import Place, input_places, output_place, work_of

FILTERS = (Axis.OUTPUT_CHANNELS, Axis.GROUPS)
MOST_DEVICES = 4
"""Devices whose subsets may share a layer; of more only all together. Chosen: subsets double with each."""


@dataclass(frozen=True, slots=True)
class Pair:
    """Seconds and joules that a node adds by each way of its own (columns) after each way of a producer (rows)."""

    producer: int
    consumer: int
    seconds: Floats
    joules: Floats


@dataclass(frozen=True, slots=True)
class Pairwise:
    """Ways to run each node, what each costs by itself and after its producers, and the budgets each takes."""

    problem: Problem
    ways: tuple[tuple[Split, ...], ...]
    seconds: tuple[Floats, ...]
    joules: tuple[Floats, ...]
    pairs: tuple[Pair, ...]
    used: tuple[Floats, ...]
    """Per node, ways x budgets, as parts of each limit."""

    def assignment(self, chosen: Sequence[int]) -> dict[str, Split]:
        """The plan that runs every node in the chosen way."""
        return {n.name: ways[i] for n, ways, i in zip(self.problem.graph.nodes, self.ways, chosen, strict=True)}

    def wanted(self) -> tuple[tuple[Floats, ...], tuple[Floats, ...]]:
        """What is minimised, per node and per pair: joules for energy, else seconds."""
        energy = self.problem.goal is Goal.ENERGY
        return (self.joules if energy else self.seconds), tuple(p.joules if energy else p.seconds for p in self.pairs)


def ways_of(problem: Problem, node: Node) -> tuple[Split, ...]:
    """Whole on each device that can hold it, and even shares of filters and rows among the devices that can."""
    if node.name in problem.fixed:
        return (problem.fixed[node.name],)
    able, axes = [d for d in problem.devices if capable(problem, node, d)], axes_of(problem, node)
    found = [whole_on(d) for d in able]
    groups = [g for n in range(2, len(able) + 1) for g in combinations(able, n)] if len(able) <= MOST_DEVICES else [
        tuple(able[:MOST_SHARES])]
    for axis in (*[a for a in FILTERS if a in axes][:1], *[a for a in (Axis.ROWS,) if a in axes]):
        found += [divide(axis, even_cuts(axes[axis], len(g)), axes[axis], g) for g in groups if len(g) <= axes[axis]]
    return tuple(s for s in found if fits(problem, node, s))


def pairwise(problem: Problem) -> Pairwise | None:
    """The whole problem; None where a node can be run in no way."""
    nodes, index = problem.graph.nodes, problem.order
    ways = tuple(_runnable(problem, n) for n in nodes)
    if not all(ways):
        return None
    places = {n.output: [output_place(problem, n, s) for s in own] for n, own in zip(nodes, ways, strict=True)}
    seconds, joules, pairs, used = list[Floats](), list[Floats](), list[Pair](), list[Floats]()
    for k, node in enumerate(nodes):
        near = [_beside(problem, node, s) for s in ways[k]]
        base = np.array([_cost(problem, node, s, there) for s, there in zip(ways[k], near, strict=True)])
        made = [t for t in dict.fromkeys(node.inputs) if t in places]
        for tensor in made:
            moved = np.array([[_cost(problem, node, s, {**there, tensor: place}) for s, there in zip(ways[k], near, strict=True)]
                              for place in places[tensor]]) - base
            pairs.append(Pair(index[_producer(problem, tensor)], k, moved[:, :, 0], moved[:, :, 1]))
        home = np.array([delivery(problem, node.output, p) if node.output in problem.graph.outputs else (0.0, 0.0)
                         for p in places[node.output]])
        seconds.append(base[:, 0] + home[:, 0])
        joules.append(base[:, 1] + home[:, 1])
        used.append(_used(problem, node, ways[k], near))
    return Pairwise(problem, ways, tuple(seconds), tuple(joules), tuple(pairs), tuple(used))


def _runnable(problem: Problem, node: Node) -> tuple[Split, ...]:
    """The ways that the evaluator can judge."""
    found = []
    for split in ways_of(problem, node):
        try:
            _cost(problem, node, split, _beside(problem, node, split))
        except UnsupportedError:
            continue
        found.append(split)
    return tuple(found)


def _producer(problem: Problem, tensor: str) -> str:
    found = problem.graph.producer(tensor)
    assert found is not None, "only tensors that a node made have places to choose from"
    return found.name


def _beside(problem: Problem, node: Node, split: Split) -> dict[str, Place]:
    """Every input that a node made where the first piece is, and the network's inputs where they are."""
    there = {t: Place(((split.devices[0], whole(problem.graph.shape(t))),)) for t in node.inputs}
    return {t: input_places(problem).get(t, place) for t, place in there.items()}


def _cost(problem: Problem, node: Node, split: Split, places: dict[str, Place]) -> tuple[float, float]:
    found = cost_node(problem, node, split, work_of(problem, node, split, places))
    return found.latency_s, found.energy_j


def _used(problem: Problem, node: Node, ways: tuple[Split, ...], near: Sequence[dict[str, Place]]) -> Floats:
    rows = []
    for split, there in zip(ways, near, strict=True):
        own = cost_node(problem, node, split, work_of(problem, node, split, there)).resources
        rows.append([own.get(d, {}).get(r, 0.0) / limit if limit else 0.0 for d, r, limit in problem.budgets])
    return np.array(rows).reshape(len(ways), len(problem.budgets))
