"""Plans with an accelerator: what it takes at the least, and how all other nodes are divided around it."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil

import numpy as np

from dovetail.certificate.accelerators import AcceleratorClaim, Accelerators, Paced, first_unproven
from dovetail.certificate.arrays import cuts_of
from dovetail.certificate.bound import Prices, SearchedForm
from dovetail.certificate.columns import DividedNode, HeldNode
from dovetail.certificate.frames import Charge, Framed
from dovetail.hardware.arrays.layers import counts_bits
from dovetail.ir import Graph
from dovetail.platform.device import Device, Kind, Platform


def held_form(graph: Graph, platform: Platform, claim: AcceleratorClaim, goal: str, bound: float,
              pins: Mapping[str, DividedNode]) -> SearchedForm:
    """All plans in which the FPGA computes the nodes of a claim, for so many clocks or joules or for nothing, and no others."""
    (device,) = platform.of_kind(Kind.FPGA)
    assert device.clock_hz is not None
    nodes = [n.name for n in graph.nodes[claim.start:claim.stop]]
    held = dict.fromkeys(nodes, HeldNode())
    if goal == "latency":
        held[nodes[0]] = HeldNode(seconds=claim.least / device.clock_hz)
    if goal == "energy":
        held[nodes[0]] = HeldNode(joules=claim.least)
    return SearchedForm(graph, platform, goal, bound, {n: s for n, s in pins.items() if n not in held}, held, device.name)


def unproven(claim: AcceleratorClaim, graph: Graph, platform: Platform, goal: str, bound: float,
             pins: Mapping[str, DividedNode]) -> tuple[int, str] | None:
    """The line and the reason of the first thing that a claim does not prove: that no plan with such an accelerator is below a
    bound."""
    fpgas = platform.of_kind(Kind.FPGA)
    if len(fpgas) != 1 or counts_bits(graph):
        return claim.line, "nothing is proven of accelerators on several FPGAs, or that count bits"
    ends = cuts_of(graph, 0, len(graph.nodes))
    if not {claim.start, claim.stop} <= set(ends):
        return claim.line, f"nodes {claim.start} to {claim.stop} hand on more than one tensor, or are none"
    (device,) = fpgas
    space = Accelerators(graph, device, claim.kinds, claim.start, claim.stop)
    found = first_unproven(space, claim.cuts, claim.least, shown(space, claim.least, goal, platform))
    if found is not None:
        return found[0] or claim.line, found[1]
    return None if suffices(claim, device, goal, bound) else _undivided(claim, graph, platform, goal, bound, pins)


def shown(space: Accelerators, least: float, goal: str, platform: Platform) -> Paced | Framed:
    """What shows that no accelerator is below so much: for throughput that all with fewer clocks between frames do not fit."""
    if goal == "throughput":
        return Paced(space, ceil(least) - 1)
    return Framed(space, least, Charge.of(goal, platform, space.device))


def suffices(claim: AcceleratorClaim, device: Device, goal: str, bound: float) -> bool:
    """Whether the accelerator alone makes every plan reach the bound."""
    assert device.clock_hz is not None
    return goal == "throughput" and claim.least / device.clock_hz >= bound


def _undivided(claim: AcceleratorClaim, graph: Graph, platform: Platform, goal: str, bound: float,
               pins: Mapping[str, DividedNode]) -> tuple[int, str] | None:
    form = held_form(graph, platform, claim, goal, bound, pins)
    if unknown := [name for name in claim.prices if name not in form.limits]:
        return claim.line, f"a price on {unknown[0]}, which nothing limits"
    price = np.array([claim.prices.get(name, 0.0) for name in form.limits])
    if Prices(form, price, bound).proven():
        return None
    return claim.line, f"these prices do not prove that no plan around such an accelerator is below {bound!r}"

