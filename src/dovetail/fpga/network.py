"""A quantized graph seen as streams: engines of its nodes, and who takes which stream."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dovetail.cost.folds import Fold
from dovetail.errors import UnsupportedError
from dovetail.fpga.engines.lq import Datapath
from dovetail.fpga.engines.stream import Engine, Format
from dovetail.fpga.mapping import engines, identifiers, reason_unsupported, stream_formats
from dovetail.ir import Graph, Node, Reshape


@dataclass(frozen=True, slots=True)
class Taker:
    """One reader of a tensor's stream: input `index` of a node, or graph output `index`."""

    node: Node | None
    index: int


@dataclass(frozen=True, slots=True)
class Network:
    """A graph seen as streams: relabelled tensors resolved, engines made, takers listed."""

    graph: Graph
    formats: dict[str, Format]
    engines: dict[str, tuple[Engine, ...]]
    takers: dict[str, tuple[Taker, ...]]
    labels: dict[str, str]
    """Verilog identifiers of nodes."""
    tensor_labels: dict[str, str]

    def root(self, tensor: str) -> str:
        """The tensor whose stream this one is; reshapes are wiring."""
        node = self.graph.producer(tensor)
        return self.root(node.inputs[0]) if node is not None and isinstance(node.op, Reshape) else tensor

    def lone_input(self, tensor: str) -> bool:
        """Whether a tensor is a graph input with a single taker: only its source waits when it waits."""
        return tensor in self.graph.inputs and len(self.takers[tensor]) == 1

    @property
    def nodes(self) -> tuple[Node, ...]:
        return tuple(n for n in self.graph.nodes if not isinstance(n.op, Reshape))


def make_network(graph: Graph, name: str, labels: Mapping[str, str] | None = None,
                 folds: Mapping[str, Fold] | None = None, datapath: Datapath = Datapath.POPCOUNT) -> Network:
    folds, formats = folds or {}, stream_formats(graph)
    for node in graph.nodes:
        if reason := reason_unsupported(graph, node, formats):
            raise UnsupportedError(f"design {name}: {reason}; place it on another device")
    labels, tensor_labels = dict(labels or identifiers(n.name for n in graph.nodes)), identifiers(graph.tensors)
    made = {n.name: engines(graph, n, formats, f"{name}_{labels[n.name]}", labels[n.name], folds.get(n.name), datapath)
            for n in graph.nodes if not isinstance(n.op, Reshape)}
    network = Network(graph, formats, made, {}, labels, tensor_labels)
    takers: dict[str, list[Taker]] = {t: [] for t in graph.tensors}
    for node in network.nodes:
        for index, tensor in enumerate(node.inputs):
            takers[network.root(tensor)].append(Taker(node, index))
    for index, tensor in enumerate(graph.outputs):
        takers[network.root(tensor)].append(Taker(None, index))
    network.takers.update({t: tuple(found) for t, found in takers.items()})
    return network
