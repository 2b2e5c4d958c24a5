"""Prices that prove what no accelerator of a form is below; `certificate` proves it again from the model and the board alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import ceil, inf, sqrt

import numpy as np

from dovetail.certificate.accelerators import NOTHING, AcceleratorClaim, Accelerators, CutPrices, Paced, threshold
from dovetail.certificate.engines import SLACK
from dovetail.certificate.frames import Framed
from dovetail.certificate.held import suffices
from dovetail.hardware.shares import Floats
from dovetail.ir import Graph
from dovetail.partition.accelerator.choice import Joint, prices_of
from dovetail.partition.linear_programs import DEAREST, largest_minimum
from dovetail.platform.device import Device
from dovetail.progress import Progress
from dovetail.space import FpgaForm

ROUNDS = 60
"""Prices that are tried at a cut, at the most. Chosen: they have converged long before."""
SURE = 1e-8
"""By which part proven clocks are lowered so that rounding cannot fail them. Chosen: ten times the slack of limits."""
CONVERGED = 1e-4
"""Progress of proven clocks, relative, at which prices have converged. Chosen, not measured."""
MOST_ARRAYS = 400
"""Arrays at a cut that are looked at, at the most. Chosen: few networks have half as many that matter."""
CLOSE = 1.002
"""Ratio of two numbers of clocks that need not be told apart. Chosen, as searches for accelerators have it."""


def claim_of(graph: Graph, device: Device, form: FpgaForm, clocks: float, goal: str,
             progress: Progress) -> AcceleratorClaim | None:
    """That no accelerator of a form takes less than so many clocks, or than as many as prices prove; None where none do."""
    empty = replace(stated(graph, form), clocks=clocks)
    space = Accelerators(graph, device, form.kinds, empty.start, empty.stop)
    if goal == "latency":
        reached, cuts = frame_prices(space, clocks, progress)
        return replace(empty, clocks=reached, cuts=cuts) if reached > 0 else None
    low, high, found = 0.0, clocks, cut_prices(space, clocks, progress)
    best = None if found is None else replace(empty, cuts=found)
    while best is None or (best.clocks < clocks and high > low * CLOSE):
        middle = sqrt(low * high) if low else high / 2
        if middle < 1:
            return None
        found = cut_prices(space, middle, progress)
        if found is None:
            high = middle
        else:
            low, best = middle, replace(empty, clocks=middle, cuts=found)
    return best


def stated(graph: Graph, form: FpgaForm) -> AcceleratorClaim:
    """Which accelerators a form is the best of, without a proof."""
    at = sorted(graph.position(name) for name in form.held)
    return AcceleratorClaim(0, form.kinds, at[0], at[-1] + 1, NOTHING, {}, ())


def cut_prices(space: Accelerators, clocks: float, progress: Progress) -> tuple[CutPrices, ...] | None:
    """Prices by which all accelerators take at least so many clocks between frames; None where none are found."""
    paced, found, count = Paced(space, ceil(clocks) - 1), list[CutPrices](), len(space.endings)
    price, fronts = np.ones(len(space.names)), paced.fronts(np.ones(len(space.names)))
    for number in range(count):
        progress("certificate of accelerators", number, count)
        if not (found and paced.shows(number, price, fronts)):
            better = _prices(paced, number)
            if better is None:
                return None
            price, fronts = better, paced.fronts(better)
            found.append(CutPrices(0, number, number, _named(space, price)))
        found[-1] = replace(found[-1], last=number)
    return tuple(found)


def _named(space: Accelerators, price: Floats) -> Mapping[str, float]:
    return {name: float(value) for name, value in zip(space.names, price, strict=True) if value > 0}


def _prices(paced: Paced, number: int) -> Floats | None:
    """Prices that prove an ending: duals of a linear program over engines, to which the arrays that matter are added."""
    ending, start = paced.space.endings[number], paced.space.start
    items = [paced.singles[i] for i in range(start, ending.cut)]
    joints = [Joint(tuple(i - start for i in e.members), e.shares) for _, engines in paced.groups for e in engines
              if e.members[-1] < ending.cut and len(e.shares)]
    price, rows = np.ones(len(paced.space.names)), list[Floats]()
    for _ in range(MOST_ARRAYS):
        if items or rows:
            price = prices_of([*items, *([np.array(rows)] if rows else [])], joints)
        most = threshold(price)
        value, parts = paced.least(number, price, paced.fronts(price)[number], most)
        if value > most:
            return price
        if ending.arrays is None or any(np.array_equal(parts, row) for row in rows):
            return None
        rows.append(parts)
    return None


def frame_prices(space: Accelerators, clocks: float, progress: Progress) -> tuple[float, tuple[CutPrices, ...]]:
    """The most clocks up to a number that prices prove of one frame on all accelerators, and these prices."""
    framed, found, count = Framed(space, clocks), list[CutPrices](), len(space.endings)
    price, reached = np.zeros(len(space.names)), clocks
    for number in range(count):
        progress("certificate of accelerators", number, count)
        value, price = _frame_price(framed, number, price, reached)
        reached = min(reached, value)
        found.append(CutPrices(0, number, number, _named(space, price)))
    return reached * (1 - SURE), tuple(found)


def _frame_price(framed: Framed, number: int, price: Floats, enough: float) -> tuple[float, Floats]:
    """Clocks that prices prove at an ending, found by planes above them: each is what the cheapest accelerator so far costs."""
    clocks, slopes, best = list[float](), list[Floats](), (0.0, price)
    for _ in range(ROUNDS):
        before, ranges = framed.fronts(price, number)[number]
        value, _, parts = framed.least(number, price, before, inf)
        if not value < inf:
            return enough, price
        proven = value / (1 + SURE) - float(price.sum()) * (1 + SLACK)
        best = max(best, (proven, price), key=lambda own: own[0])
        if best[0] >= enough:
            break
        taken = framed.taken(number, price, ranges) + parts
        clocks.append(value - float(price @ taken))
        slopes.append(taken - 1.0)
        reach, price = largest_minimum(np.array(clocks), np.array(slopes), DEAREST * framed.clocks)
        if reach <= best[0] * (1 + CONVERGED):
            break
    return best


def target_clocks(device: Device, goal: str, bound: float) -> float:
    """Clocks that an accelerator must take for every plan with it to reach a bound."""
    assert device.clock_hz is not None
    clocks = float(ceil(bound * device.clock_hz))
    assert goal != "throughput" or suffices(AcceleratorClaim(0, (), 0, 1, clocks, {}, ()), device, goal, bound)
    return clocks
