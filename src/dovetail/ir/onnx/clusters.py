"""Groups of ONNX nodes that are one thing of ours: a formula of one tensor, or a table looked up in integers.

Found by structure alone, before anything is read. Of every value that element-wise nodes compute we know the values it is a
function of (its dominators); a cluster runs from the farthest of them, such that nobody outside reads what lies between.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import onnx

LARGEST_CLUSTER = 48
"""Nodes of one formula; SELU, Mish and GELU spelled out stay below ten."""

UNARY = frozenset((
    "Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Ceil", "Celu", "Clip", "Cos", "Cosh", "Elu", "Erf", "Exp", "Floor",
    "Gelu", "HardSigmoid", "HardSwish", "Identity", "LeakyRelu", "Log", "Mish", "Neg", "Reciprocal", "Relu", "Round", "Selu",
    "Shrink", "Sigmoid", "Sign", "Sin", "Sinh", "Softplus", "Softsign", "Sqrt", "Tan", "Tanh", "ThresholdedRelu"))
JOINING = frozenset(("Add", "Div", "Max", "Min", "Mul", "PRelu", "Pow", "Sub"))
AFFINE = frozenset(("Add", "Div", "Mul", "Sub"))
"""With one constant they scale or shift a channel, which folds into the convolution before them."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """Element-wise nodes, in order, that make the last one's output a function of `source` alone."""

    nodes: tuple[Any, ...]
    source: str


@dataclass(frozen=True, slots=True)
class TableNodes:
    """Cast, Add and Gather of stored integers, and the DequantizeLinear that says what the entries mean."""

    cast: Any
    offset: Any
    gather: Any
    meaning: Any

    @property
    def nodes(self) -> tuple[Any, ...]:
        return (self.cast, self.offset, self.gather)


Item = Any
"""A node, a cluster or a table."""


def grouped(model: Any, kept: Sequence[Any]) -> list[Item]:
    """The nodes to read, in order, with clusters and tables in the place of their last node."""
    found: list[Cluster | TableNodes] = [*_tables(model, kept)]
    taken = {id(n) for t in found for n in t.nodes}
    found += _Values(model, [n for n in kept if id(n) not in taken]).clusters()
    last = {id(item.nodes[-1]): item for item in found}
    inside = {id(n) for item in found for n in item.nodes}
    return [last.get(id(n), n) for n in kept if id(n) in last or id(n) not in inside]


def _tables(model: Any, kept: Sequence[Any]) -> list[TableNodes]:
    """What the exporter writes for a `Lookup`: Gather(table, Cast(codes) + offset), then DequantizeLinear."""
    producers = {o: n for n in kept for o in n.output if o}
    stored = {t.name for t in model.graph.initializer}
    readers = _readers(kept)
    meanings = {n.input[0]: n for n in model.graph.node if n.op_type == "DequantizeLinear" and n.input}
    found = []
    for gather in kept:
        if gather.op_type != "Gather" or len(gather.input) != 2 or gather.input[0] not in stored:
            continue
        offset = producers.get(gather.input[1])
        if offset is None or offset.op_type != "Add" or len(offset.input) != 2 or offset.input[1] not in stored:
            continue
        cast, meaning = producers.get(offset.input[0]), meanings.get(gather.output[0])
        if cast is None or cast.op_type != "Cast" or meaning is None:
            continue
        if len(readers[cast.output[0]]) == len(readers[offset.output[0]]) == 1:
            found.append(TableNodes(cast, offset, gather, meaning))
    return found


def _readers(nodes: Iterable[Any]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for node in nodes:
        for name in dict.fromkeys(filter(None, node.input)):
            found.setdefault(name, []).append(node)
    return found


class _Values:
    """What is known about every value name of a model before it is read."""

    def __init__(self, model: Any, nodes: Sequence[Any]) -> None:
        self.nodes = nodes
        self.place = {id(n): i for i, n in enumerate(nodes)}
        self.public = {o.name for o in model.graph.output}
        self.readers = _readers(nodes)
        self.shapes: Mapping[str, tuple[int, ...] | None] = _constants(model, nodes)
        self.producers = {n.output[0]: n for n in nodes if self._elementwise(n)}
        self.dominators: dict[str, tuple[str, ...]] = {}
        self.plain: set[str] = set()
        """Values that nodes with classes of their own alone compute, one behind the other: no formula ends in them."""
        for name, node in self.producers.items():
            self.dominators[name] = self._common(node)
            (source, *others) = self.moving(node)
            if not others and self._typed(node) and (source not in self.producers or source in self.plain):
                self.plain.add(name)

    def _elementwise(self, node: Any) -> bool:
        """Whether a node works element by element on moving values, with constants that have one axis at most."""
        if node.domain not in ("", "ai.onnx") or len(node.output) != 1 or node.op_type not in UNARY | JOINING:
            return False
        given = [i for i in node.input if i]
        fixed = [i for i in given if i in self.shapes]
        moving = self.moving(node)
        if not moving or any(sum(d != 1 for d in s) > 1 for i in fixed if (s := self.shapes[i]) is not None):
            return False
        if node.op_type in UNARY:
            return given[:1] == list(moving) and len(fixed) == len(given) - 1
        return node.op_type != "PRelu" or (len(moving) == 1 and node.input[0] == moving[0])

    def moving(self, node: Any) -> tuple[str, ...]:
        return tuple(dict.fromkeys(i for i in node.input if i and i not in self.shapes))

    def _common(self, node: Any) -> tuple[str, ...]:
        """Values the node's output is a function of, nearest first."""
        chains = [(name, *self.dominators.get(name, ())) for name in self.moving(node)]
        shared = set(chains[0]).intersection(*chains[1:])
        return tuple(name for name in chains[0] if name in shared)[:LARGEST_CLUSTER]

    def clusters(self) -> list[Cluster]:
        found: list[Cluster] = []
        taken: set[int] = set()
        for node in reversed(self.nodes):
            last = node.output[0] if node.output else None
            ends = last is not None and self.producers.get(last) is node and id(node) not in taken and last not in self.plain
            cluster = self._from(node, taken) if ends else None
            if cluster is not None:
                found.append(cluster)
                taken |= {id(n) for n in cluster.nodes}
        return found

    def _from(self, last: Any, taken: set[int]) -> Cluster | None:
        """The largest formula that ends in a node, without typed nodes that stand before it."""
        for source in reversed(self.dominators[last.output[0]]):
            members = self._between(source, last)
            if members is not None and not taken & {id(n) for n in members}:
                cluster = self._trimmed(Cluster(members, source))
                return cluster if cluster is not None and self._worthwhile(cluster) else None
        return None

    def _between(self, source: str, last: Any) -> tuple[Any, ...] | None:
        """The nodes from a value to a node; None if somebody else reads a value between, or they are too many."""
        members, open_ends = {id(last): last}, [last]
        while open_ends:
            for name in self.moving(open_ends.pop()):
                maker = None if name == source else self.producers.get(name)
                if maker is None and name != source:
                    return None
                if maker is not None and id(maker) not in members:
                    members[id(maker)] = maker
                    open_ends.append(maker)
        inner = [n.output[0] for n in members.values() if n is not last]
        shown = any(name in self.public or any(id(r) not in members for r in self.readers[name]) for name in inner)
        if shown or len(members) > LARGEST_CLUSTER:
            return None
        return tuple(sorted(members.values(), key=lambda n: self.place[id(n)]))

    def _trimmed(self, cluster: Cluster) -> Cluster | None:
        """Typed nodes in front stay outside: they fold into the convolution before."""
        nodes, source = {id(n): n for n in cluster.nodes}, cluster.source
        while nodes:
            first = [n for n in self.readers[source] if id(n) in nodes]
            if len(first) != 1 or not self._typed(first[0]):
                return Cluster(tuple(nodes.values()), source)
            del nodes[id(first[0])]
            source = first[0].output[0]
        return None

    def _typed(self, node: Any) -> bool:
        """Whether a node with one moving input has a class of its own."""
        if node.op_type in ("Clip", "Identity", "Neg", "Relu"):
            return True
        fixed = [i for i in node.input if i in self.shapes]
        leads = node.op_type != "Div" or node.input[0] not in self.shapes
        return node.op_type in AFFINE and len(fixed) == 1 and len(node.input) == 2 and leads

    def _worthwhile(self, cluster: Cluster) -> bool:
        """Not one operator of ours, nor one with its activation: those are read as what they are."""
        for node in cluster.nodes:
            moves = node.op_type in ("Add", "Mul") and not any(i in self.shapes for i in node.input)
            if len(set(node.input)) > 1 if moves else not self._typed(node):
                return True
        return False


def _constants(model: Any, nodes: Sequence[Any]) -> dict[str, tuple[int, ...] | None]:
    """Values that do not depend on an input, with their shape where it is written down."""
    found: dict[str, tuple[int, ...] | None] = {t.name: tuple(t.dims) for t in model.graph.initializer}
    for node in nodes:
        if node.op_type == "Constant" and len(node.output) == 1:
            tensors = [a.t for a in node.attribute if a.type == onnx.AttributeProto.TENSOR]
            found[node.output[0]] = tuple(tensors[0].dims) if tensors else None
        elif node.op_type == "Shape" or (node.input and all(i in found for i in node.input if i)):
            same = node.op_type in ("DequantizeLinear", "Identity") and node.input
            found |= {o: found.get(node.input[0]) if same else None for o in node.output if o}
    return found
