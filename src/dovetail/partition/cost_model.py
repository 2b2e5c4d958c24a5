"""The door to the cost room: what a solver may ask, as a protocol that synthetic models can answer too."""

from __future__ import annotations

from typing import Protocol

from dovetail.cost.estimate import Floats, Ints, ShareCosts
from dovetail.ir import Axis, Graph, Node
from dovetail.platform.device import Device, Platform


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

    def transfer_costs(self, platform: Platform, source: str, target: str, sizes: Floats) -> tuple[Floats, Floats]:
        """Seconds and joules of moving each size in bytes from one device to another."""
        ...
