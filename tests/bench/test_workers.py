"""Rows made side by side are all told of: found, crashed, or not ended in time."""

from __future__ import annotations

import os
import time
from math import inf

from lib.workers import Key, Row, side_by_side


def make(key: Key) -> Row:
    """A row, or what its key says instead."""
    if key == ("crashes",):
        raise ValueError("no such board")
    if key == ("is killed",):
        os._exit(3)
    if key == ("takes long",):
        time.sleep(3600)
    return {"name": key[0]}


def test_each_key_ends_once_whatever_becomes_of_it() -> None:
    keys = [("a",), ("crashes",), ("is killed",), ("b",)]
    ended = {e.key: e for e in side_by_side(make, keys, 2, inf)}
    assert sorted(ended) == sorted(keys)
    assert [ended[k].row for k in keys] == [{"name": "a"}, None, None, {"name": "b"}]
    assert ended["crashes",].why.endswith("ValueError: no such board\n")
    assert ended["is killed",].why == "the process ended with 3"


def test_what_does_not_end_in_time_is_told_and_ended() -> None:
    ended = list(side_by_side(make, [("takes long",), ("never begun",)], 1, 0.2))
    assert [(e.key, e.row, e.why) for e in ended] == [(("takes long",), None, "not ended when the time was over")]
