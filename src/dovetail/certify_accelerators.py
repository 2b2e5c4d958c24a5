"""Prices that prove what no accelerator of a form is below; `certificate` proves it again from the model and the board alone."""

from __future__ import annotations

from dataclasses import replace
from math import ceil, sqrt

import numpy as np

from dovetail.accelerator_prices import frame_prices, named
from dovetail.certificate.accelerators import NOTHING, AcceleratorClaim, Accelerators, CutPrices, Paced, threshold
from dovetail.certificate.frames import Charge, Framed
from dovetail.certificate.held import suffices
from dovetail.forms import FpgaForm
from dovetail.hardware.shares import Floats
from dovetail.ir import Graph
from dovetail.partition.accelerator.choice import Joint, prices_of
from dovetail.platform.device import Device, Kind, Platform
from dovetail.progress import Progress

MOST_ARRAYS = 400
"""Arrays at a cut that are looked at, at the most. Chosen: few networks have half as many that matter."""
CLOSE = 1.002
"""Ratio of two numbers of clocks that need not be told apart. Chosen, as searches for accelerators have it."""


def claim_of(graph: Graph, platform: Platform, form: FpgaForm, least: float, goal: str,
             progress: Progress) -> AcceleratorClaim | None:
    """That no accelerator of a form is below so many clocks or joules, or as many as prices prove; None where none do."""
    empty, (device,) = replace(stated(graph, form), least=least), platform.of_kind(Kind.FPGA)
    space = Accelerators(graph, device, form.kinds, empty.start, empty.stop)
    if form.proof is not None:
        return replace(empty, least=form.proof.least, cuts=form.proof.cuts)
    if goal != "throughput":
        reached, cuts = frame_prices(Framed(space, least, Charge.of(goal, platform, device)), progress)
        return replace(empty, least=reached, cuts=cuts) if reached > 0 else None
    low, high, found = 0.0, least, cut_prices(space, least, progress)
    best = None if found is None else replace(empty, cuts=found)
    while best is None or (best.least < least and high > low * CLOSE):
        middle = sqrt(low * high) if low else high / 2
        if middle < 1:
            return None
        found = cut_prices(space, middle, progress)
        if found is None:
            high = middle
        else:
            low, best = middle, replace(empty, least=middle, cuts=found)
    return best


def stated(graph: Graph, form: FpgaForm) -> AcceleratorClaim:
    """Which accelerators a form is the best of, without a proof."""
    at = sorted(graph.position(name) for name in form.held)
    return AcceleratorClaim(0, form.kinds, at[0], at[-1] + 1, NOTHING, {}, ())


def cut_prices(space: Accelerators, clocks: float, progress: Progress) -> tuple[CutPrices, ...] | None:
    """Prices by which all accelerators take at least so many clocks between frames; None where none are found."""
    paced, found, count = Paced(space, ceil(clocks) - 1), list[CutPrices](), len(space.endings)
    price = np.ones(len(space.names))
    for number in range(count):
        progress("certificate of accelerators", number, count)
        if not (found and paced.shows(number, price, {})):
            better = _prices(paced, number)
            if better is None:
                return None
            price = better
            found.append(CutPrices(0, number, number, named(space.names, price)))
        found[-1] = replace(found[-1], last=number)
    return tuple(found)


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
        value, parts = paced.least(number, price, most)
        if value > most:
            return price
        if ending.arrays is None or any(np.array_equal(parts, row) for row in rows):
            return None
        rows.append(parts)
    return None


def target_of(device: Device, goal: str, bound: float) -> float:
    """Clocks or joules that an accelerator must take for every plan with it to reach a bound."""
    assert device.clock_hz is not None
    clocks = float(ceil(bound * device.clock_hz))
    assert goal != "throughput" or suffices(AcceleratorClaim(0, (), 0, 1, clocks, {}, ()), device, goal, bound)
    return bound if goal == "energy" else clocks
