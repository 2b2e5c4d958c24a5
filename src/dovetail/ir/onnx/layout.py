"""Layout sinking: the transposes that channels-last frameworks leave around every layer move on until they cancel.

A value may carry a *pending* permutation: it is `Transpose(base, perm)`, but only `base` is computed. Transpose composes
permutations; operators that work element by element, or along axes they name, compute on the base and pass the
permutation on; everything else gets the value itself, transposed once. Nothing is approximated: the same numbers are
computed at other places. Channels first is the layout of this house, so views that turn a channels-last base into
channels first are computed at once, and a channels-last input is seen as the view of a channels-first one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from dovetail.ir.onnx import clusters
from dovetail.ir.onnx import file as onnx_file
from dovetail.ir.onnx.prepare import LITE, STANDARD, ordered, subgraphs
from dovetail.ir.tensor import Array

Perm = tuple[int, ...]
TO_LAST: Perm = (0, 2, 3, 1)
TO_FIRST: Perm = (0, 3, 1, 2)
CHANNELS_FIRST = ("AveragePool", "BatchNormalization", "Conv", "ConvTranspose", "GlobalAveragePool", "GlobalMaxPool", "MaxPool")
"""Operators that read channels first: an input they read is no channels-last one."""
PASSING = ("QuantizeLinear", "DequantizeLinear", "Identity", "Cast")
"""Operators that pass values on in the layout they have."""
SOFTMAX_ALONG_ONE_AXIS = 13
"""The opset since which Softmax works along its axis alone; before, on everything behind it."""


def sink_transposes(model: Any, where: str) -> None:
    """Rewrite the model in place, if that leaves fewer transposes, or as many and layers computed channels first.

    What was written here has been through this, and is read as it is: its names are those a plan knows.
    """
    before = sum(node.op_type == "Transpose" for node in model.graph.node)
    nested = any(subgraphs(node) for node in model.graph.node)
    if not before or nested or model.producer_name == onnx_file.PRODUCER:
        return
    sinker = _Sinker(where, model)
    for node in ordered(model.graph, where):
        sinker.visit(node)
    for output in model.graph.output:
        sinker.materialise(output.name)
    nodes = sinker.needed()
    after = sum(node.op_type == "Transpose" for node in nodes)
    if after < before or (after == before and sinker.gains):
        del model.graph.node[:]
        model.graph.node.extend(nodes)
        model.graph.initializer.extend(sinker.added.values())
        del model.graph.value_info[:]


def _inverse(perm: Perm) -> Perm:
    return tuple(int(i) for i in np.argsort(perm))


def _dropped(perm: Perm, axes: Sequence[int]) -> Perm:
    """The permutation that is left when dimensions `axes` of the view (and theirs of the base) disappear."""
    left = [p for i, p in enumerate(perm) if i not in axes]
    order = sorted(left)
    return tuple(order.index(p) for p in left)


@dataclass(slots=True)
class _Sinker:
    """The rewrite under way: what each value is a view of, and the nodes written so far."""

    where: str
    model: Any
    nodes: list[Any] = field(default_factory=list)
    added: dict[str, Any] = field(default_factory=dict)
    pending: dict[str, tuple[str, Perm]] = field(default_factory=dict)
    real: set[str] = field(default_factory=set)
    """Values that are computed under their own name."""
    stored: dict[str, Any] = field(default_factory=dict)
    """Constants as tensors of the file, or as arrays once they were asked for."""
    names: set[str] = field(default_factory=set)
    opset: int = 0
    gains: int = 0
    """Nodes that now work channels first."""

    def __post_init__(self) -> None:
        graph = self.model.graph
        self.opset = max((o.version for o in self.model.opset_import if o.domain in ("", "ai.onnx")), default=0)
        self.stored = {i.name: i for i in graph.initializer}
        self.real = {i.name for i in graph.input} | set(self.stored)
        self.names = {name for n in graph.node for name in (*n.input, *n.output)} | self.real
        turns = [n for n in graph.node if n.op_type == "Transpose"]
        if not any(_perm_of(n) == TO_FIRST for n in turns):
            return
        first = {i for n in graph.node if n.op_type in CHANNELS_FIRST for i in n.input}
        first |= {n.input[0] for n in turns if n.input and _perm_of(n) != TO_FIRST}
        for node in reversed(graph.node):
            if node.op_type in PASSING and first.intersection(node.output):
                first.add(node.input[0])
        for value in graph.input:
            if value.name not in first and value.name not in self.stored and len(value.type.tensor_type.shape.dim) == 4:
                base = self.fresh(f"{value.name}_channels_first")
                self.nodes.append(helper.make_node("Transpose", [value.name], [base], base, perm=TO_FIRST))
                self.pending[value.name] = (base, TO_LAST)

    def fresh(self, wanted: str) -> str:
        name, number = wanted, 2
        while name in self.names:
            name, number = f"{wanted}_{number}", number + 1
        self.names.add(name)
        return name

    def array(self, name: str) -> Array | None:
        """The value of a constant; None for what is computed."""
        found = self.stored.get(name)
        if isinstance(found, onnx.TensorProto):
            found = self.stored[name] = onnx_file.array_of(found, self.where)
        return found

    def integers(self, node: Any, name: str, index: int) -> list[int] | None:
        """Whole numbers of an attribute (old opsets) or a constant input; none where it is not there, None where computed."""
        if name in (own := _attributes(node)):
            return [int(v) for v in own[name]]
        if len(node.input) <= index or not node.input[index]:
            return []
        array = self.array(node.input[index])
        return None if array is None else [int(v) for v in array.reshape(-1)]

    def constant(self, stem: str, array: Array) -> str:
        name = self.fresh(stem)
        self.added[name] = numpy_helper.from_array(np.ascontiguousarray(array), name)
        return name

    def turned(self, name: str, perm: Perm) -> str | None:
        """A constant, laid out for the base of a view: its rank filled up, its dimensions turned back."""
        array = self.array(name)
        if array is None or array.ndim > len(perm):
            return None
        if array.size == 1:
            return name
        full = array.reshape((1,) * (len(perm) - array.ndim) + array.shape)
        return self.constant(f"{name}_turned", full.transpose(_inverse(perm)))

    def materialise(self, name: str) -> str:
        """The value itself, for a reader that needs it as it was."""
        if name in self.pending and name not in self.real:
            base, perm = self.pending[name]
            same = perm == tuple(range(len(perm)))
            self.nodes.append(helper.make_node("Identity", [base], [name], self.fresh(f"{name}_same")) if same else
                              helper.make_node("Transpose", [base], [name], self.fresh(f"{name}_transpose"), perm=perm))
            self.real.add(name)
        return name

    def visit(self, node: Any) -> None:
        if node.op_type == "Constant" and node.domain in STANDARD:
            self.remember(node)
            return
        first = node.input[0] if node.input else ""
        if node.op_type == "Transpose" and first in self.names and first not in self.stored and _perm_of(node):
            self.compose(node, first)
            return
        if node.domain in (*STANDARD, LITE) and node.op_type in HANDLERS and (perm := self.shared(node)) is not None:
            written = len(self.nodes)
            handled = HANDLERS[node.op_type](self, node, perm)
            if handled:
                self.gains += perm == TO_LAST and node.op_type not in PASSING
                return
            del self.nodes[written:]
        self.keep(node)

    def keep(self, node: Any) -> None:
        """Write a node that knows nothing of views."""
        self.nodes.append(_copied(node, [self.given(i) for i in node.input]))
        self.real.update(node.output)

    def given(self, name: str) -> str:
        """What a node that knows nothing of views reads: the value, or the base it equals."""
        base, perm = self.pending.get(name, (name, ()))
        return base if perm == tuple(range(len(perm))) else self.materialise(name)

    def remember(self, node: Any) -> None:
        given = onnx_file.attributes_of(node, self.where)
        if known := [given[k] for k in ("value", "value_float", "value_int", "value_floats", "value_ints") if k in given]:
            self.stored[node.output[0]] = np.asarray(known[0])
        self.keep(node)

    def compose(self, node: Any, source: str) -> None:
        perm = _perm_of(node)
        base, before = self.pending.get(source, (source, tuple(range(len(perm)))))
        if len(before) != len(perm):
            self.keep(node)
            return
        self.pending[node.output[0]] = (base, tuple(before[i] for i in perm))
        if len(perm) > 3 and self.pending[node.output[0]][1] == (0, len(perm) - 1, *range(1, len(perm) - 1)):
            self.materialise(node.output[0])  # channels first is where computing belongs
            del self.pending[node.output[0]]

    def shared(self, node: Any) -> Perm | None:
        """The one permutation, other than none, that all views among a node's inputs have."""
        views = [self.pending[i][1] for i in node.input if i in self.pending]
        same = bool(views) and views.count(views[0]) == len(views) and views[0] != tuple(range(len(views[0])))
        return views[0] if same else None

    def write(self, node: Any, inputs: Sequence[str], perm: Perm, **changed: Any) -> bool:
        """The node on bases; its outputs become views. `changed` attributes replace the node's own, None removes one."""
        bases = [self.pending[i][0] if i in self.pending else i for i in inputs]
        copy = _copied(node, bases)
        kept = [a for a in copy.attribute if a.name not in changed]
        made = [helper.make_attribute(k, v) for k, v in changed.items() if v is not None]
        copy.ClearField("attribute")
        copy.attribute.extend([*kept, *made])
        copy.ClearField("output")
        for output in node.output:
            moved = self.fresh(f"{output}_moved") if output else ""
            copy.output.append(moved)
            if output:
                self.pending[output] = (moved, perm)
        self.nodes.append(copy)
        return True

    def write_integers(self, node: Any, name: str, index: int, values: list[int], perm: Perm) -> bool:
        """The node on bases with other whole numbers, where it states them: in an attribute if it has one input alone."""
        if len(node.input) == 1:
            return self.write(node, node.input, perm, **{name: values})
        inputs = [*node.input, *[""] * (index + 1 - len(node.input))]
        inputs[index] = self.constant(f"{node.output[0]}_{name}", np.asarray(values, dtype=np.int64))
        return self.write(node, inputs, perm)

    def needed(self) -> list[Any]:
        """Nodes that some output depends on."""
        wanted, kept = {o.name for o in self.model.graph.output}, []
        for node in reversed(self.nodes):
            if any(o in wanted for o in node.output):
                wanted |= set(node.input)
                kept.append(node)
        self.added = {k: v for k, v in self.added.items() if k in wanted}
        return kept[::-1]


def _perm_of(node: Any) -> Perm:
    """The order a Transpose states; empty where it states none (then it reverses, for which the rank must be known)."""
    perm = tuple(int(i) for a in node.attribute if a.name == "perm" for i in a.ints)
    return perm if sorted(perm) == list(range(len(perm))) else ()


def _copied(node: Any, inputs: Sequence[str]) -> Any:
    copy = onnx_file.copied(node)
    copy.input[:] = inputs
    return copy


def _attributes(node: Any) -> dict[str, Any]:
    return {a.name: helper.get_attribute_value(a) for a in node.attribute}


def _unary(sinker: _Sinker, node: Any, perm: Perm) -> bool:
    """One value in, one out, element by element; further inputs are scalars."""
    return all(i not in sinker.pending for i in node.input[1:]) and sinker.write(node, node.input, perm)


def _joined(sinker: _Sinker, node: Any, perm: Perm, **changed: Any) -> bool:
    """Views of one permutation together, and constants laid out for their bases."""
    if not changed and {"axis", "broadcast"} & set(_attributes(node)):
        return False  # broadcasting as before opset 7
    inputs = [i if i in sinker.pending else sinker.turned(i, perm) for i in node.input]
    known = [i for i in inputs if i is not None]
    return len(known) == len(inputs) and sinker.write(node, known, perm, **changed)


def _prelu(sinker: _Sinker, node: Any, perm: Perm) -> bool:
    return node.input[0] in sinker.pending and _joined(sinker, node, perm)


def _concat(sinker: _Sinker, node: Any, perm: Perm) -> bool:
    arrays = [sinker.array(i) for i in node.input if i not in sinker.pending]
    same_rank = all(a is not None and a.ndim == len(perm) for a in arrays)
    return same_rank and _joined(sinker, node, perm, axis=perm[int(_attributes(node)["axis"]) % len(perm)])


def _pad(sinker: _Sinker, node: Any, perm: Perm) -> bool:
    rank, axes, pads = len(perm), sinker.integers(node, "axes", 3), sinker.integers(node, "pads", 1)
    if axes:
        return sinker.write_integers(node, "axes", 3, [perm[a % rank] for a in axes], perm)
    if axes is None or pads is None or len(pads) != 2 * rank:
        return False
    back = _inverse(perm)
    return sinker.write_integers(node, "pads", 1, [pads[side * rank + back[i]] for side in (0, 1) for i in range(rank)], perm)


def _split(sinker: _Sinker, node: Any, perm: Perm) -> bool:
    return sinker.write(node, node.input, perm, axis=perm[int(_attributes(node).get("axis", 0)) % len(perm)])


def _slice(sinker: _Sinker, node: Any, perm: Perm) -> bool:
    starts, axes = sinker.integers(node, "starts", 1), sinker.integers(node, "axes", 3)
    if starts is None or axes is None:
        return False
    return sinker.write_integers(node, "axes", 3, [perm[a % len(perm)] for a in axes or range(len(starts))], perm)


def _along(sinker: _Sinker, node: Any, perm: Perm, drops: bool) -> bool:
    """A reduction or a Squeeze over named axes, which disappear where it `drops` them."""
    axes = [a % len(perm) for a in sinker.integers(node, "axes", 1) or ()]
    left = _dropped(perm, axes) if drops else perm
    return bool(axes) and sinker.write_integers(node, "axes", 1, [perm[a] for a in axes], left)


def _reduce(sinker: _Sinker, node: Any, perm: Perm) -> bool:
    return _along(sinker, node, perm, not _attributes(node).get("keepdims", 1))


def _arg(sinker: _Sinker, node: Any, perm: Perm) -> bool:
    own = _attributes(node)
    axis = int(own.get("axis", 0)) % len(perm)
    return sinker.write(node, node.input, perm if own.get("keepdims", 1) else _dropped(perm, [axis]), axis=perm[axis])


def _softmax(sinker: _Sinker, node: Any, perm: Perm) -> bool:
    axis = int(_attributes(node).get("axis", -1)) % len(perm)
    return sinker.opset >= SOFTMAX_ALONG_ONE_AXIS and sinker.write(node, node.input, perm, axis=perm[axis])


def _quantizer(sinker: _Sinker, node: Any, perm: Perm) -> bool:
    scale = sinker.array(node.input[1])
    own = _attributes(node)
    if scale is None or own.get("block_size") or node.input[0] not in sinker.pending:
        return False
    if scale.size == 1:
        return sinker.write(node, node.input, perm)
    return sinker.write(node, node.input, perm, axis=perm[int(own.get("axis", 1)) % len(perm)])


def _matmul(sinker: _Sinker, node: Any, perm: Perm) -> bool:
    """A matrix times the channels of every pixel, channels last, is a 1x1 convolution."""
    weight = sinker.array(node.input[1])
    if perm != TO_LAST or weight is None or weight.ndim != 2 or weight.dtype != np.float32:
        return False
    filters = sinker.constant(f"{node.input[1]}_filters", weight.T.reshape(*weight.T.shape, 1, 1))
    conv = helper.make_node("Conv", [node.input[0], filters], list(node.output), node.name, kernel_shape=[1, 1])
    return sinker.write(conv, conv.input, perm)


UNARY = clusters.UNARY | {"Cast", "Dropout", "Not", "Swish"}
JOINING = clusters.JOINING - {"PRelu"} | {"And", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Mean", "Mod", "Or",
                                          "Sum", "Where", "Xor"}
REDUCING = ("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd",
            "ReduceSum", "ReduceSumSquare")

HANDLERS: dict[str, Callable[[_Sinker, Any, Perm], bool]] = {
    **dict.fromkeys(UNARY, _unary), **dict.fromkeys(JOINING, _joined), **dict.fromkeys(REDUCING, _reduce),
    "ArgMax": _arg, "ArgMin": _arg, "Concat": _concat, "DequantizeLinear": _quantizer, "Hardmax": _softmax,
    "LogSoftmax": _softmax, "MatMul": _matmul, "PRelu": _prelu, "Pad": _pad, "QuantizeLinear": _quantizer, "Slice": _slice,
    "Softmax": _softmax, "Split": _split, "Squeeze": partial(_along, drops=True),
}
