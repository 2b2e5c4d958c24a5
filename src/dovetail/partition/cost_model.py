"""The door to the cost room: what a solver may ask, as a protocol that synthetic models can answer too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np

from dovetail.cost.estimate import ShareCosts
from dovetail.hardware.shares import Ints, Question
from dovetail.ir import Axis, Graph, Node
from dovetail.platform.device import Device, Platform

Rates = tuple[float, float, float]
"""Of a route: seconds of any transfer but one of nothing, further seconds per byte, joules per byte."""


class CostModel(Protocol):
    """Seconds, joules and resources of shares, of the sum that ends an input-channel split, and of transfers."""

    def costs_of(self, graph: Graph, node: Node, axis: Axis | None, starts: Ints, stops: Ints,
                 device: Device) -> ShareCosts | None:
        """Costs of shares [start, stop) of `axis` (None: the whole node, one share (0, 1)); None if the device cannot."""
        ...

    def by_shape(self, device: Device) -> bool:
        """Whether nodes of the same operator and shapes cost the same on a device, whatever their weights."""
        ...

    def why_not(self, graph: Graph, node: Node, device: Device) -> str | None:
        """The reason a device cannot run a node, as half a sentence; None if it can."""
        ...

    def reduce_costs(self, graph: Graph, node: Node, parts: int, device: Device) -> ShareCosts | None:
        """Costs of adding `parts` int32 partial sums of the node's output and rounding them; None if the device cannot."""
        ...

    def rates(self, platform: Platform, source: str, target: str) -> Rates:
        """What transfers from one device to another cost."""
        ...


@runtime_checkable
class ManyCosts(Protocol):
    """A cost model that answers many questions at once."""

    def costs_of_many(self, graph: Graph, questions: Sequence[Question],
                      devices: Sequence[Device]) -> list[list[ShareCosts | None]]:
        """Device by device what `costs_of` says of all shares of each node; None if a device cannot run it.

        The resources of a share too large for every one of the devices may be a lower bound that is too large as well.
        """
        ...


def answers(costs: CostModel, graph: Graph, questions: Sequence[Question],
            devices: Sequence[Device]) -> list[list[ShareCosts | None]]:
    """Costs of all shares of each node, device by device; a model that answers one question at a time is asked so."""
    if isinstance(costs, ManyCosts):
        return costs.costs_of_many(graph, questions, devices)
    return [[_one_by_one(costs, graph, question, device) for question in questions] for device in devices]


def _one_by_one(costs: CostModel, graph: Graph, question: Question, device: Device) -> ShareCosts | None:
    node, segments = question
    found = [costs.costs_of(graph, node, axis, starts, stops, device) for axis, starts, stops in segments]
    known = next((c for c in found if c is not None), None)
    if known is None or found[0] is None:
        return None
    filled = [c if c is not None else _never(len(starts), known) for c, (_, starts, _) in zip(found, segments, strict=True)]
    if len(filled) == 1:
        return filled[0]
    alone, fused, low, high, energy = (np.concatenate(arrays) for arrays in zip(
        *((c.alone_s, c.fused_s, c.low_s, c.high_s, c.energy_j) for c in filled), strict=True))
    resources = {r: np.concatenate([c.resources.get(r, np.zeros(len(c.alone_s))) for c in filled])
                 for r in dict.fromkeys(r for c in filled for r in c.resources)}
    return ShareCosts(alone, fused, low, high, energy, resources, np.concatenate([c.extrapolated for c in filled]), known.source)


def _never(count: int, like: ShareCosts) -> ShareCosts:
    """Shares along an axis the device cannot divide: they never end."""
    never, zero = np.full(count, np.inf), np.zeros(count)
    return ShareCosts(never, never, never, never, zero, dict.fromkeys(like.resources, zero), np.zeros(count, dtype=np.bool_),
                      like.source)
