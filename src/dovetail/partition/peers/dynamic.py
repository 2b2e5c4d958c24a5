"""Dynamic programming over layers (Zhou et al. 2019, "Adaptive parallel execution of deep neural networks").

Of all beginnings that run the last layer in the same way, only the best is kept. In a chain without budgets that loses nothing;
where budgets bind or branches join, what was dropped may have been better.
"""

from __future__ import annotations

from functools import partial

from dovetail.partition.explain.baselines import best_per_last_split, extend_beginnings
from dovetail.partition.peers.pairwise import ways_of
from dovetail.partition.plan import Assignment
from dovetail.partition.problem import Problem


def dp(problem: Problem) -> Assignment | None:
    """The best last beginning; None where budgets end all of them."""
    return extend_beginnings(problem, partial(ways_of, problem), best_per_last_split)
