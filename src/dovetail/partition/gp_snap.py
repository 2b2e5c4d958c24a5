"""Rounding over the whole network at once: of the candidate columns near a program's shares, the best combination.

Rounding node by node cannot know that neighbours which stay together save a transfer, and that an FPGA passes a stream on.
The dynamic program of the exact solver does, and over the few columns near continuous answers it is quick.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import numpy as np

from dovetail.ir import Node
from dovetail.partition.columns import Options, inputs_held, options
from dovetail.partition.cuts import network
from dovetail.partition.exact import solve_network
from dovetail.partition.gp_rounding import Shares
from dovetail.partition.narrow import thin
from dovetail.partition.plan import Assignment, Split
from dovetail.partition.problem import Problem
from dovetail.partition.tables import prune, tabulate

NEAR = 0.13
"""How far a column's share of any device may be from a program's: about one step of the candidates' grid."""
LABELS = 2_000
"""Labels kept per node."""
TOLERANCE = 1e-3
"""Fraction below which a better combination is not searched for."""


def snap(problem: Problem, answers: Sequence[Shares], incumbents: Sequence[tuple[float, float]],
         deadline: float) -> tuple[Assignment, ...]:
    """Plans made of whole placements and of columns near one of the answers, along any axis; none where too many are alive.

    Nodes without weights may follow the shares of the node that made their input.
    """
    leaders = _leaders(problem, answers[0])
    near = [_near(options(problem, n), [a[leaders[n.name]] for a in answers] if n.name in leaders else [])
            for n in problem.graph.nodes]
    kept = thin(problem, near)
    if kept is None or time.thread_time() > deadline:
        return ()
    known = inputs_held(problem) | {c.node.output: c.held for c in kept}
    net = network(problem, tuple(prune(problem, tabulate(problem, c, known)) for c in kept))
    return solve_network(net, list(incumbents), deadline, LABELS, tolerance=TOLERANCE).assignments


def _leaders(problem: Problem, answer: Shares) -> dict[str, str]:
    """The divided node whose shares a node goes by: itself, or the nearest along its first inputs."""
    found: dict[str, str] = {}
    for node in problem.graph.nodes:
        leader = node.name if node.name in answer else found.get(_producer_name(problem, node))
        if leader is not None:
            found[node.name] = leader
    return found


def _producer_name(problem: Problem, node: Node) -> str:
    producer = problem.graph.producer(node.inputs[0])
    return "" if producer is None else producer.name


def _near(own: Options, targets: Sequence[Mapping[str, float]]) -> Options:
    chosen = [i for i, s in enumerate(own.splits) if s.axis is None or any(_distance(s, t) <= NEAR for t in targets)]
    return own.keep(np.array(chosen or range(len(own)), dtype=np.int64))


def _distance(split: Split, target: Mapping[str, float]) -> float:
    shares = {p.device: (p.stop - p.start) / split.pieces[-1].stop for p in split.pieces}
    return max(abs(shares.get(d, 0.0) - target.get(d, 0.0)) for d in (*shares, *target))
