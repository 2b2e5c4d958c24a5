"""Nodes and graphs: frozen values that passes turn into new ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType

import numpy as np

from dovetail.errors import ModelError
from dovetail.ir.operators.base import Op
from dovetail.ir.operators.opaque import Opaque
from dovetail.ir.tensor import Constant, Scheme, Shape, Tensor


@dataclass(frozen=True, slots=True)
class Node:
    """One operator at work: which tensors it reads, which constants it owns, what it writes."""

    name: str
    op: Op
    inputs: tuple[str, ...]
    params: tuple[str, ...]
    output: str


@dataclass(frozen=True)
class Graph:
    """Nodes in topological order with their tensors and constants; checked when made."""

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: tuple[Node, ...]
    tensors: Mapping[str, Tensor]
    constants: Mapping[str, Constant] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "tensors", MappingProxyType(dict(self.tensors)))
        object.__setattr__(self, "constants", MappingProxyType(dict(self.constants)))
        known = set(self.inputs)
        for node in self.nodes:
            for tensor in node.inputs:
                if tensor not in known:
                    raise ModelError(f"node {node.name}: input {tensor} is not produced before it; "
                                     "the graph must be acyclic and complete")
            for constant in node.params:
                if constant not in self.constants:
                    raise ModelError(f"node {node.name}: constant {constant} is missing")
            if node.output in known:
                raise ModelError(f"node {node.name}: output {node.output} is written twice")
            known.add(node.output)
        for tensor in (*self.outputs, *known):
            if tensor not in known or tensor not in self.tensors:
                raise ModelError(f"graph {self.name}: tensor {tensor} is neither an input nor produced by a node")
        for node in self.nodes:
            shapes = self.input_shapes(node)
            if node.op.infer(shapes) != self.tensors[node.output].shape:
                raise ModelError(f"node {node.name}: writes {list(node.op.infer(shapes))}, but tensor {node.output} "
                                 f"is declared {list(self.tensors[node.output].shape)}")
            for constant, shape in zip(node.params, node.op.param_shapes(shapes), strict=True):
                if self.constants[constant].array.shape != shape:
                    raise ModelError(f"node {node.name}: constant {constant} has shape "
                                     f"{list(self.constants[constant].array.shape)}; {list(shape)} is needed")

    @cached_property
    def _producers(self) -> Mapping[str, Node]:
        return {node.output: node for node in self.nodes}

    @cached_property
    def _consumers(self) -> Mapping[str, tuple[Node, ...]]:
        found: dict[str, list[Node]] = {name: [] for name in self.tensors}
        for node in self.nodes:
            for tensor in dict.fromkeys(node.inputs):
                found[tensor].append(node)
        return {name: tuple(nodes) for name, nodes in found.items()}

    def producer(self, tensor: str) -> Node | None:
        """The node that writes a tensor; None for a graph input."""
        return self._producers.get(tensor)

    def consumers(self, tensor: str) -> tuple[Node, ...]:
        return self._consumers[tensor]

    def node(self, name: str) -> Node:
        return self.nodes[self._positions[name]]

    @cached_property
    def _positions(self) -> Mapping[str, int]:
        return {node.name: i for i, node in enumerate(self.nodes)}

    def position(self, name: str) -> int:
        """Where a node stands in the order of nodes."""
        return self._positions[name]

    def shape(self, tensor: str) -> Shape:
        return self.tensors[tensor].shape

    def input_shapes(self, node: Node) -> tuple[Shape, ...]:
        return tuple([self.tensors[t].shape for t in node.inputs])

    def scheme(self, tensor: str) -> Scheme:
        """How a tensor's integers are stored."""
        scheme = self.tensors[tensor].scheme
        if scheme is None:
            raise ModelError(f"tensor {tensor}: float values where integers are computed; quantize the graph first")
        return scheme

    def params(self, node: Node) -> tuple[Constant, ...]:
        return tuple(self.constants[c] for c in node.params)

    @cached_property
    def quantized(self) -> bool:
        """Whether the graph has been quantized: integer schemes wherever integers are possible (see `Opaque`)."""
        return any(t.scheme is not None for t in self.tensors.values())

    @cached_property
    def integers(self) -> frozenset[str]:
        """Tensors that are integers, or that quantization makes integers.

        Those are what typed operators compute, and what they read from foreign ones or from outside. Between foreign operators,
        and behind the last typed one, values stay floats; movements and formulas follow their neighbours.
        """
        if self.quantized:
            return frozenset(name for name, t in self.tensors.items() if t.scheme is not None)
        needed: set[str] = set()
        for node in reversed(self.nodes):
            follows = (node.op.moves or node.op.formula) and node.output not in needed
            if not node.op.foreign and not follows:
                needed |= {node.output, *node.inputs}
        for node in self.nodes:
            if (node.op.moves or node.op.formula) and node.inputs[0] in needed:
                needed.add(node.output)
        return frozenset(name for name in needed if self.tensors[name].element == "float32")

    @property
    def macs(self) -> int:
        return sum(node.op.macs(self.input_shapes(node)) for node in self.nodes)

    @property
    def parameters(self) -> int:
        return sum(self.parameters_of(node) for node in self.nodes)

    def parameters_of(self, node: Node) -> int:
        """Numbers that a node holds: its constants, or what a kept node has inside, counted at the first of its outputs."""
        if not isinstance(node.op, Opaque):
            return sum(c.array.size for c in self.params(node))
        twins = (n for n in self.consumers(node.inputs[0]) if isinstance(n.op, Opaque) and n.inputs == node.inputs
                 and n.op.content == node.op.content)
        return node.op.parameters() if next(twins) is node else 0

    def with_nodes(self, nodes: Iterable[Node], tensors: Iterable[Tensor] = (), constants: Iterable[Constant] = ()) -> Graph:
        """The graph with other nodes; added tensors and constants replace, unused ones disappear."""
        kept = tuple(nodes)
        all_tensors = {**self.tensors, **{t.name: t for t in tensors}}
        all_constants = {**self.constants, **{c.name: c for c in constants}}
        used = {*self.inputs, *(n.output for n in kept)}
        owned = {c for n in kept for c in n.params}
        return replace(self, nodes=kept, tensors={k: v for k, v in all_tensors.items() if k in used},
                       constants={k: v for k, v in all_constants.items() if k in owned})

    def __eq__(self, other: object) -> bool:
        return (isinstance(other, Graph) and (self.name, self.inputs, self.outputs, self.nodes)
                == (other.name, other.inputs, other.outputs, other.nodes)
                and dict(self.tensors) == dict(other.tensors) and dict(self.constants) == dict(other.constants))

    def __hash__(self) -> int:
        return hash((self.name, self.inputs, self.outputs, self.nodes))


def check_finite(constant: Constant, where: str) -> None:
    """Weights must be numbers: NaN and infinities are refused by name."""
    array = constant.array
    if array.dtype.kind in "fc" and not np.isfinite((array.min(initial=0), array.max(initial=0))).all():
        index = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
        raise ModelError(f"{where}: weight {constant.name}{list(index)} is {constant.array[index]}; "
                         "all weights must be finite, retrain or re-export the model")
