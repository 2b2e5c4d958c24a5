"""State of one ONNX import: what each value name means so far, and how nodes are added to the graph being read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np
from onnx import helper

from dovetail.errors import ModelError, UnsupportedError
from dovetail.ir import Array, Constant, Op, Opaque, Reshape, Scheme, Shape, Tensor
from dovetail.ir.graph import Node, check_finite
from dovetail.ir.onnx.file import MAX_ACTIVATION_ELEMENTS, OPSET
from dovetail.ir.onnx.foreign import Kind, check_known, fold, foreign_reads, products, wrap
from dovetail.ir.onnx.prepare import reads
from dovetail.ir.operators.movement import Step

Attributes = dict[str, Any]

MALFORMED = (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError, ZeroDivisionError, MemoryError,
             AssertionError)
"""What NumPy, protobuf and arithmetic raise on attributes and arrays that cannot be; our own refusals pass through."""


def malformed(where: str, what: str, error: BaseException) -> ModelError:
    """The refusal of a file whose parts contradict each other."""
    said = str(error).splitlines()[0] if str(error) else type(error).__name__
    return ModelError(f"{where}: {what} contradicts itself ({said}); the file is damaged, export the model again")


@dataclass(slots=True)
class Reader:
    """State of one import: what each ONNX value name means so far."""

    where: str
    opset: int = OPSET
    users: dict[str, set[str]] = field(default_factory=dict)
    """The operator types that read each value that somebody reads; "" stands for the graph's outputs."""
    padding: dict[str, tuple[int, int, int, int]] = field(default_factory=dict)
    """Zero padding (above, left, below, right) that the readers of a value take into their windows."""
    padded: dict[str, Any] = field(default_factory=dict)
    """The nodes of that padding, by the value they write."""
    moved: dict[str, tuple[str, tuple[Step, ...]]] = field(default_factory=dict)
    """For tensors that are another one's values in other places: that one, and the movements from it."""
    traces: bool = True
    """Whether movements in a row are put together; a file of our own has been through that and is read node by node."""
    rows: dict[str, str] = field(default_factory=dict)
    """Tensors of rank 3 that also exist as an image of one row, and that image; see onnx_rows."""
    notes: list[str] = field(default_factory=list)
    reasons: dict[str, str] = field(default_factory=dict)
    """Why the node that writes a value is kept as it is."""
    constants: dict[str, Constant] = field(default_factory=dict)
    """Initializers and constant nodes by ONNX name; dequantized ones carry a scheme."""
    alias: dict[str, str] = field(default_factory=dict)
    """ONNX names that mean another tensor (Identity, Dropout, the two sides of Quantize/Dequantize)."""
    tensors: dict[str, Tensor] = field(default_factory=dict)
    schemes: dict[str, Scheme] = field(default_factory=dict)
    nodes: dict[str, Node] = field(default_factory=dict)
    """Nodes in order, by the tensor they write."""
    owned: dict[str, Constant] = field(default_factory=dict)
    names: dict[str, int] = field(default_factory=dict)
    """Names of nodes, and how many wanted to have each."""
    stored: set[str] = field(default_factory=set)
    """ONNX names whose values have been rounded to a scheme."""
    raw: dict[str, Scheme] = field(default_factory=dict)
    """ONNX names of integers, as DequantizeLinear reads them, and what they were stored by."""
    whole: dict[str, str] = field(default_factory=dict)
    """Where these integers were computed back, as floats."""

    def tensor(self, name: str) -> str:
        while name in self.alias:
            name = self.alias[name]
        return name

    def shape(self, name: str, node: str) -> Shape:
        found = self.tensors.get(self.tensor(name))
        if found is None and name in self.constants:
            raise UnsupportedError(f"{self.where}: node {node}: input {name!r} is a constant; an activation is expected there")
        if found is None:
            raise ModelError(f"{self.where}: node {node} reads {name!r}, which nothing produces before it; "
                             "the graph is cyclic or incomplete")
        return found.shape

    def constant(self, name: str, node: str, what: str) -> Constant:
        if name not in self.constants:
            raise UnsupportedError(f"{self.where}: node {node}: {what} {name!r} is not a constant; "
                                   "only constant weights are supported")
        return self.constants[name]

    def integers(self, proto: Any, attributes: Attributes, name: str, index: int) -> list[int] | None:
        """Whole numbers that a node states as an attribute (old opsets) or as a constant input; None where it does not."""
        if name in attributes:
            return [int(v) for v in attributes[name]]
        if len(proto.input) <= index or not proto.input[index]:
            return None
        return [int(v) for v in self.constant(proto.input[index], proto.name, name).array.reshape(-1)]

    def unsupported(self, proto: Any, why: str) -> UnsupportedError:
        """The refusal to type a node: it is kept as it is, or named where that cannot be."""
        return UnsupportedError(f"{self.where}: node {proto.name}: {why}")

    def store(self, name: str, scheme: Scheme) -> None:
        """Say that a value is computed as stored integers already."""
        self.schemes[name] = scheme
        self.stored.add(name)

    def is_stored(self, name: str) -> bool:
        """Whether a value has passed a quantizer; its tensor may also be read as it was before."""
        while name not in self.stored and name in self.alias:
            name = self.alias[name]
        return name in self.stored

    def producer(self, tensor: str) -> Node | None:
        return self.nodes.get(tensor)

    def note_users(self, nodes: Iterable[Any]) -> None:
        """Take down which operators read which values."""
        for node in nodes:
            for name in reads(node):
                self.users.setdefault(name, set()).add(node.op_type)

    def append(self, node: Node) -> None:
        if node.output in self.nodes:
            raise ModelError(f"{self.where}: node {node.name}: output {node.output} is written twice; export the model again")
        self.nodes[node.output] = node

    def copy(self, tensor: str, scheme: Scheme) -> str:
        """The same values once more, stored by a scheme: a typed node runs again, anything else is passed on."""
        source, name = self.producer(tensor), self.unique_tensor(f"{tensor}_stored")
        if source is None or source.op.foreign:
            self.add_foreign(helper.make_node("Identity", [tensor], [name], name=name))
        else:
            self.tensors[name] = replace(self.tensors[tensor], name=name)
            self.append(replace(source, name=self.unique(source.name), output=name))
        self.schemes[name] = scheme
        return name

    def unique_tensor(self, wanted: str) -> str:
        name, count = wanted, 1
        while name in self.tensors or name in self.alias:
            count += 1
            name = f"{wanted}_{count}"
        return name

    def _numbers(self, name: str, node: str) -> Array:
        """A constant for a foreign node: infinities may be a mask's, NaN is damage."""
        known = self.constants[name]
        array = known.array if known.scheme is None else known.real.astype(np.float32)
        if array.dtype.kind == "f" and np.isnan(array).any():
            raise ModelError(f"{self.where}: node {node}: its constant {name!r} holds NaN; all weights must be finite, retrain "
                             "or re-export the model")
        return array

    def unique(self, wanted: str) -> str:
        name = wanted
        while name in self.names:
            self.names[wanted] += 1
            name = f"{wanted}_{self.names[wanted]}"
        self.names[name] = 1
        return name

    def declare(self, tensor: Tensor, writer: str) -> None:
        """Take a tensor in; maps beyond all reason are refused before anybody computes them."""
        if tensor.size > MAX_ACTIVATION_ELEMENTS:
            raise ModelError(f"{self.where}: {writer}: a map of shape {list(tensor.shape)}; at most {MAX_ACTIVATION_ELEMENTS:,} "
                             "elements are handled, give a smaller --shape or export the model again")
        self.tensors[tensor.name] = tensor

    def add(self, proto: Any, op: Op, inputs: Sequence[str] = (),
            params: Mapping[str, tuple[Array, Scheme | None]] = MappingProxyType({})) -> None:
        """Append a node, which reads the first input of the ONNX node unless told; its constants are named after it."""
        inputs = inputs or proto.input[:1]
        if op.still:  # the image of a row holds the same values in the same order
            inputs = [self.rows.get(self.tensor(i), i) for i in inputs]
        shapes = tuple(self.shape(i, proto.name) for i in inputs)
        if not all(shapes) or (isinstance(op, Reshape) and not op.shape):
            raise UnsupportedError(f"{self.where}: node {proto.name}: a scalar; typed operators have one row per frame")
        name = self.unique(proto.name or f"{proto.op_type.lower()}_{len(self.nodes)}")
        owned = []
        for role, (array, scheme) in params.items():
            constant = Constant(f"{name}_{role}", array, scheme)
            check_finite(constant, self.where)
            self.owned[constant.name] = constant
            owned.append(constant.name)
        try:
            shape = op.infer(shapes)
        except ModelError as error:
            raise ModelError(f"{self.where}: node {name}: {error}") from None
        output = proto.output[0]
        element = self.tensors[self.tensor(inputs[0])].element if op.moves else "float32"
        self.declare(Tensor(output, shape, None, element), f"node {name}")
        self.append(Node(name, op, tuple(self.tensor(i) for i in inputs), tuple(owned), output))

    def add_foreign(self, proto: Any, known: Sequence[Kind | None] = ()) -> None:
        """Keep a node as it is: fold it where it reads constants only, else one `Opaque` per output that is read.

        `known` says what outputs are whose shape ONNX does not infer.
        """
        check_known(proto, self.where)
        given: list[Tensor | Array] = []
        for name in foreign_reads(proto):
            if name in self.constants:
                given.append(self._numbers(name, proto.name or proto.op_type))
            elif self.tensor(name) in self.tensors:
                given.append(self.tensors[self.tensor(name)])
            else:
                self.shape(name, proto.name)
        arrays = [g for g in given if not isinstance(g, Tensor)]
        if len(arrays) == len(given):
            for name, value in zip(proto.output, fold(proto, arrays, self.opset, self.where), strict=True):
                if name and value is not None:
                    self.constants[name] = Constant(name, value)
            return
        foreign = wrap(proto, given, self.opset, self.where, known)
        moving = tuple(dict.fromkeys(g.name for g in given if isinstance(g, Tensor)))
        base = proto.name or f"{proto.op_type.lower()}_{len(self.nodes)}"
        wanted = [o for o in proto.output if o in self.users] or list(proto.output)
        several = len(wanted) > 1
        for index, (name, result) in enumerate(zip(proto.output, foreign.outputs, strict=True)):
            if name in wanted and result is not None:
                op = Opaque(proto.op_type, foreign.content, index, result[0], result[1], self.opset,
                            products(proto.op_type, [g.shape for g in given], result[0]))
                self.declare(Tensor(name, result[0], None, result[1]), f"node {base}")
                self.append(Node(self.unique(f"{base}_{index}" if several else base), op, moving, (), name))
