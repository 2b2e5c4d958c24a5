"""What is remembered stands beside the question, not in it."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields, replace

import pytest

from dovetail.partition.memo import Cache, Memo
from dovetail.partition.plan import Goal
from dovetail.partition.problem import Problem

from .worlds import Synthetic, chain, platform

LASTING, OTHER = Cache[str, int](lasting=True), Cache[str, int]()


def test_tables_are_empty_at_first_and_kept() -> None:
    memo = Memo()
    memo.of(OTHER)["a"] = 1
    assert memo.of(OTHER) == {"a": 1}
    assert memo.of(LASTING) == {}


def test_other_splits_leave_only_what_lasts() -> None:
    memo = Memo()
    memo.of(LASTING)["a"], memo.of(OTHER)["a"] = 1, 2
    assert memo.lasting().of(LASTING) is memo.of(LASTING)
    assert memo.lasting().of(OTHER) == {}
    assert memo.without(LASTING).of(LASTING) == {}
    assert memo.without(LASTING).of(OTHER) is memo.of(OTHER)


def test_a_question_is_frozen_and_another_goal_shares_its_memo() -> None:
    problem = Problem(chain(2, 2, 3), platform(1), Synthetic(1))
    with pytest.raises(FrozenInstanceError):
        problem.goal = Goal.ENERGY  # type: ignore[misc]
    assert replace(problem, goal=Goal.ENERGY).memo is problem.memo
    assert problem.pinned({}).memo is not problem.memo
    assert len(fields(problem)) <= 15
