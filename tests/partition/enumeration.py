"""The slow truth: every assignment of candidate columns, judged node by node with the evaluator's own parts.

Where a block ends whose arms run at once, what that saves is taken off what its nodes cost one after another.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf

from dovetail.ir.branches import Block
from dovetail.partition.evaluate import cost_node, delivery
from dovetail.partition.interval.busy import added, moved
from dovetail.partition.parallel.overlap import arm_devices, join_device, run_arms
from dovetail.partition.plan import Goal, Mode, Split
from dovetail.partition.problem import TOLERANCE, Problem
from dovetail.partition.tables.columns import options
from dovetail.partition.work import Place, deliveries, input_places, output_place, work_of

Judged = tuple[float, float, tuple[float, ...], Mapping[str, float]]
"""Latency, energy, budgets used and what is kept busy."""


@dataclass
class Enumeration:
    """Best objective over all legal assignments, and how many there were."""

    problem: Problem
    best: float = inf
    legal: int = 0

    def __post_init__(self) -> None:
        self.nodes = self.problem.graph.nodes
        self.choices = [list(options(self.problem, n).splits) for n in self.nodes]
        self.after = [[output_place(self.problem, n, s) for s in found]
                      for n, found in zip(self.nodes, self.choices, strict=True)]
        self.memo: dict[tuple[object, ...], Judged] = {}
        self.saved: dict[tuple[object, ...], float] = {}
        self.splits: dict[str, Split] = {}
        at = self.problem.order
        spans = [range(at[b.nodes[0].name] + 1, at[b.around[-1].name] + 1) for b in self.problem.blocks]
        self.between = [not any(k in s for s in spans) for k in range(len(self.nodes) + 1)]
        self.ending = [[b for b in self.problem.blocks if b.around[-1] == n] for n in self.nodes]
        self._descend(0, input_places(self.problem), 0.0, 0.0, (0.0,) * len(self.problem.budgets), {})

    def _saving(self, block: Block, places: dict[str, Place]) -> float:
        """Seconds less than one after another; places are those of all tensors so far."""
        devices = arm_devices(block, self.splits)
        if devices is None:
            return 0.0
        join = join_device(block, self.splits)
        nodes = block.nodes if join is None else block.around
        key = (block.fork, devices, join, *(places[t] for n in nodes for t in n.inputs))
        if key not in self.saved:
            works = {n.name: work_of(self.problem, n, self.splits[n.name], places) for n in nodes}
            alone = [cost_node(self.problem, n, self.splits[n.name], works[n.name]).latency_s for n in nodes]
            self.saved[key] = sum(alone) - max(r.stop_s for r in run_arms(block, devices, join, works))
        return self.saved[key]

    def _price(self, k: int, column: int, places: dict[str, Place]) -> Judged:
        node, split = self.nodes[k], self.choices[k][column]
        key = (k, column, *(places[t] for t in node.inputs))
        if key not in self.memo:
            self.memo[key] = self._judge(k, split, places)
        return self.memo[key]

    def _judge(self, k: int, split: Split, places: dict[str, Place]) -> Judged:
        problem, node = self.problem, self.nodes[k]
        cost = cost_node(problem, node, split, work_of(problem, node, split, places))
        home, busy = (0.0, 0.0), cost.busy_s
        if node.output in problem.graph.outputs:
            place = output_place(problem, node, split)
            home, busy = delivery(problem, node.output, place), moved(dict(busy), deliveries(problem, node.output, place))
        used = tuple(cost.resources.get(d, {}).get(r, 0.0) for d, r, _ in problem.budgets)
        return cost.latency_s + home[0], cost.energy_j + home[1], used, busy

    def _descend(self, k: int, places: dict[str, Place], latency: float, energy: float, used: tuple[float, ...],
                 busy: Mapping[str, float]) -> None:
        problem = self.problem
        if any(u > limit * (1 + TOLERANCE) for u, (_, _, limit) in zip(used, problem.budgets, strict=True)):
            return
        # Within a block, what its arms save at once is still to come.
        if self.between[k] and problem.max_latency_s is not None and latency > problem.max_latency_s * (1 + TOLERANCE):
            return
        if self.between[k] and problem.max_energy_j is not None and energy > problem.max_energy_j * (1 + TOLERANCE):
            return
        if problem.max_interval_s is not None and max(busy.values(), default=0.0) > problem.max_interval_s * (1 + TOLERANCE):
            return
        if k == len(self.nodes):
            self.legal += 1
            interval = latency if problem.mode is Mode.SEQUENTIAL else max(busy.values())
            self.best = min(self.best, problem.score(latency, energy, interval))
            return
        for c in range(len(self.choices[k])):
            seconds, joules, needs, asked = self._price(k, c, places)
            self.splits[self.nodes[k].name] = self.choices[k][c]
            after = {**places, self.nodes[k].output: self.after[k][c]}
            saved = sum(self._saving(block, after) for block in self.ending[k])
            total = tuple(map(sum, zip(used, needs, strict=True))) if problem.shared_budget else needs
            paced = problem.goal is Goal.THROUGHPUT or problem.max_interval_s is not None
            self._descend(k + 1, after, latency + seconds - saved, energy + joules - saved * problem.idle_power_w, total,
                          added((busy, asked)) if paced else asked)
