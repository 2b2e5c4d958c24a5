"""The cost room behind the partitioner's protocol."""

from __future__ import annotations

from collections.abc import Sequence

from dovetail import cost
from dovetail.cost.estimate import ShareCosts
from dovetail.hardware.shares import Ints, Question
from dovetail.ir import Axis, Conv, Gemm, Graph, Node
from dovetail.partition.boards.relaxation import nature
from dovetail.partition.cost_model import Rates
from dovetail.platform.device import Device, Kind, Platform

REMEMBERED = 48
"""Questions whose answers are kept. Chosen: some twenty changes of a board's clock, a few tens of megabytes."""


class DeviceCosts:
    """Costs from the devices' own models; sums of outputs of one shape are looked up once."""

    def __init__(self) -> None:
        self._sums: dict[tuple[object, ...], ShareCosts | None] = {}

    def costs_of(self, graph: Graph, node: Node, axis: Axis | None, starts: Ints, stops: Ints,
                 device: Device) -> ShareCosts | None:
        return cost.costs_of(graph, node, axis, starts, stops, device)

    def costs_of_many(self, graph: Graph, questions: Sequence[Question],
                      devices: Sequence[Device]) -> list[list[ShareCosts | None]]:
        kinds = {nature(d): d for d in reversed(devices)}  # equal devices are asked once
        found = dict(zip(kinds, cost.costs_of_many(graph, questions, list(kinds.values())), strict=True))
        return [found[nature(d)] for d in devices]

    def by_shape(self, device: Device) -> bool:
        return device.kind is not Kind.FPGA and not cost.runs_kernels(device)  # kernels compute neighbours too

    def together(self, graph: Graph, nodes: frozenset[str], device: Device) -> tuple[tuple[str, ...], ...]:
        return cost.kernels_of(graph, device).together(nodes) if cost.runs_kernels(device) else ()

    def why_not(self, graph: Graph, node: Node, device: Device) -> str | None:
        return cost.why_not(graph, node, device)

    def reduce_costs(self, graph: Graph, node: Node, parts: int, device: Device) -> ShareCosts | None:
        key = (graph.shape(node.output), parts, device.name, nature(device))
        if key not in self._sums:  # whoever asks for one will ask for all
            shapes = list(dict.fromkeys([graph.shape(n.output) for n in (node, *graph.nodes) if isinstance(n.op, Conv | Gemm)]))
            self._sums |= {(shape, *key[1:]): found for shape, found in zip(
                shapes, cost.reductions(shapes, parts, device), strict=True)}
        return self._sums[key]

    def rates(self, platform: Platform, source: str, target: str) -> Rates:
        return cost.transfer_rates(platform, source, target)


class RememberedCosts(DeviceCosts):
    """The same answers, kept for who plans a network again and again: equal questions about equal devices are answered once.

    Work is counted by who asks, so plans do not depend on what was asked before.
    """

    def __init__(self) -> None:
        super().__init__()
        self._answers: dict[tuple[object, ...], tuple[object, list[list[ShareCosts | None]]]] = {}

    def costs_of_many(self, graph: Graph, questions: Sequence[Question],
                      devices: Sequence[Device]) -> list[list[ShareCosts | None]]:
        shares = tuple((node.name, *((axis, starts.tobytes(), stops.tobytes()) for axis, starts, stops in segments))
                       for node, segments in questions)
        key = (id(graph.tensors), shares, *((nature(d), id(d.accelerator)) for d in devices))
        if key not in self._answers:
            if len(self._answers) >= REMEMBERED:
                del self._answers[next(iter(self._answers))]
            named = graph.tensors, [d.accelerator for d in devices]  # kept, so that nothing else gets their numbers
            self._answers[key] = named, super().costs_of_many(graph, questions, devices)
        return self._answers[key][1]
