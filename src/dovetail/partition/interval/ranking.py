"""Which columns can still be in a plan of a shorter interval: what the tree relaxation says of each."""

from __future__ import annotations

import numpy as np

from dovetail.hardware.shares import Floats
from dovetail.partition.exact.elimination import Ranking
from dovetail.partition.exact.tree import Tree, cheapest, marginals
from dovetail.partition.interval.tables import busy_table, shared_names
from dovetail.partition.interval.weights import Ledger, WeightedReply, best_weights, even_weights
from dovetail.partition.problem import Problem
from dovetail.partition.tables.columns import Held, inputs_held


def rank_interval(problem: Problem, tree: Tree, ceiling: float, deadline: float) -> Ranking:
    """Per column a lower bound on the interval of every plan that uses it, from the tree relaxation."""
    tree = tree.plain
    known: dict[str, Held] = inputs_held(problem) | {t.node.output: t.options.held for t in tree.tables}
    every = [(share.name, [share.taken(t.resources) for t in tree.tables]) for share in problem.shares if share.limit > 0]
    every += [(name, [a / limit for a in spent]) for name, spent, limit in
              (("latency", tree.latencies, problem.max_latency_s), ("energy", tree.energies, problem.max_energy_j))
              if limit is not None]
    binding = [a for _, a in every if sum(float(own.max(initial=0.0)) for own in a) > 1]
    ledger = Ledger(shared_names(problem), tree.tables,
                    [busy_table(problem, t.options, known, t.inputs) for t in tree.tables], binding)

    def answer(weights: Floats, prices: Floats) -> WeightedReply:
        return ledger.reply(weights, prices, [entry for _, entry in cheapest(tree, ledger.costs(weights, prices))])

    found = best_weights(answer, even_weights(len(ledger.names), len(binding)), ceiling, deadline,
                         4 * len(ledger.names))
    least = [m - float(found.prices.sum()) for m in marginals(tree, ledger.costs(found.weights, found.prices))]
    return Ranking([np.maximum(a, own.engines) for a, own in zip(least, ledger.busy, strict=True)], {})
