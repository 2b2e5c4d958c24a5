"""SplitCNN, the heuristic of Compact DNNs 2024, as its summary describes it.

It starts from reusable engines with all multipliers, gives the first layers engines of their own, one more at a time, divides
the multipliers in proportion to the work so that all parts take equally long, estimates the throughput of single frames, and
goes on while that rises. Cuts are those at which a single tensor is alive, so a residual block moves as one.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import numpy as np

from dovetail.errors import InfeasibleError
from dovetail.partition.accelerator.blocks import BlockOption
from dovetail.partition.accelerator.choice import Chosen, Room
from dovetail.partition.accelerator.dedicated import multiplications_of
from dovetail.partition.accelerator.search import MULTIPLIER, AcceleratorSearch, FoundAccelerator, between


@dataclass(frozen=True, slots=True)
class SplitStep:
    """One accelerator on the way: nodes with engines of their own, and clocks of a single frame; None where it does not fit."""

    cut: int
    latency: float | None


@dataclass(frozen=True, slots=True)
class LayerSplit:
    """What the heuristic ends with, and how it got there."""

    found: FoundAccelerator
    steps: tuple[SplitStep, ...]


def split_cnn(search: AcceleratorSearch) -> LayerSplit:
    """The first accelerator whose single frames no further dedicated engine makes faster.

    Raises:
        InfeasibleError: reusable engines alone do not fit, so there is nothing to start from.
    """
    best, steps = None, list[SplitStep]()
    for cut in search.cuts:
        found = _balanced(search, cut)
        steps.append(SplitStep(cut, None if found is None else found.latency))
        if best is not None and (found is None or found.latency >= best.latency):
            break
        best = found if found is not None else best
    if best is None:
        raise InfeasibleError(f"{search.device.name}: no block of reusable engines fits, so SplitCNN has no start; "
                              "take a larger board")
    return LayerSplit(best, tuple(steps))


def _balanced(search: AcceleratorSearch, cut: int) -> FoundAccelerator | None:
    """Engines and arrays for one cut with multipliers in proportion to the work; None where that does not fit."""
    graph, multipliers = search.graph, float(search.device.resources.get(MULTIPLIER, 0.0))
    work = [multiplications_of(graph, [node]) for node in graph.nodes]
    share = multipliers * sum(work[:cut]) / max(1, sum(work))
    block = _largest(search, cut, multipliers - share)
    if block is None and cut < len(graph.nodes):
        return None
    pace = _pace(search, cut, share)
    if pace is None:
        return None
    chosen = Chosen(0.0, 0.0, (*_fewest(search, cut, pace), 0))
    found = search.made(cut, pace, chosen, (block,) if block is not None else ())
    fits = all(found.needs[name] <= limit for name, limit in zip(search.names, search.budget, strict=True))
    return found if fits else None


def _largest(search: AcceleratorSearch, cut: int, multipliers: float) -> BlockOption | None:
    """The arrays of at most so many multipliers that finish a frame first, of those that fit the device by themselves."""
    best: BlockOption | None = None
    place = search.names.index(MULTIPLIER)
    left = np.ones(len(search.names))
    left[place] = multipliers / search.budget[place]
    few = Room(search.budget, np.eye(len(search.names)), left)
    for offer in search.blocks.promising(cut, few, alone=True) if cut < len(search.graph.nodes) else ():
        if best is not None and offer.clocks >= best.latency:
            break
        option = offer.price(inf if best is None else best.latency)
        if option is None or option.needs[place] > multipliers or np.any(np.array(option.needs) > search.budget):
            continue
        best = option if best is None or option.latency < best.latency else best
    return best


def _fewest(search: AcceleratorSearch, cut: int, pace: int) -> list[int]:
    """For every dedicated layer the engine with the fewest multipliers at a pace."""
    place = search.names.index(MULTIPLIER)
    return [int(search.engine(i, pace).needs[:, place].argmin()) for i in range(cut)]


def _pace(search: AcceleratorSearch, cut: int, multipliers: float) -> int | None:
    """The fastest pace at which dedicated layers need no more multipliers; None if there is none."""
    place = search.names.index(MULTIPLIER)

    def needed(pace: int) -> float:
        options = [search.engine(i, pace).needs for i in range(cut)]
        return np.inf if any(len(o) == 0 for o in options) else float(sum(o[:, place].min() for o in options))

    low, high = search.span()
    if needed(high) > multipliers:
        return None
    while (middle := between(low, high)) is not None:
        low, high = (low, middle) if needed(middle) <= multipliers else (middle, high)
    return high
