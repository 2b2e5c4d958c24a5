"""PyTorch's exported graphs as ours: what kernels know becomes typed nodes, the rest stays a call of PyTorch's operator.

Graphs come from `torch.export`, in ATen operators as modules call them. The batch is that of the example.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from operator import getitem
from typing import Any

import numpy as np
import torch
from torch.fx import GraphModule
from torch.fx import Node as FxNode
from torch.fx.node import map_arg

from dovetail import ir
from dovetail.errors import ModelError, UnsupportedError, UsageError
from dovetail.ir import Constant, Graph, Node, Op, Tensor, Window
from dovetail.ir.passes import fold_activations, fold_affine

Function = Callable[[Sequence[Any]], Any]
"""A node as a function of the tensors it reads."""
SAME = ("contiguous", "clone", "detach", "dropout", "dropout_", "alias", "lift_fresh_copy", "detach_", "feature_dropout")
"""Operators that change nothing here."""
VIEWS = ("view", "reshape", "transpose", "permute", "flatten", "squeeze", "unsqueeze", "slice", "select", "split", "chunk",
         "expand",         "t", "numpy_T", "split_with_sizes", "unbind", "narrow", "view_as", "expand_as", "unflatten", "movedim")
"""Operators whose results may be the memory of what they read."""
FILLED = ("new_zeros", "new_ones", "new_full", "zeros_like", "ones_like", "full_like")
"""Operators that look at the shape and type alone of what they read."""
FORMULAS = {"hardswish": "HardSwish", "silu": "SiLU", "sigmoid": "Sigmoid", "tanh": "Tanh", "hardsigmoid": "HardSigmoid"}
REALS = (torch.float32, torch.float16, torch.bfloat16)


@dataclass(slots=True, eq=False)
class Traced:
    """A module as a graph, with PyTorch's functions of nodes that are none of ours."""

    graph: Graph
    functions: Mapping[str, Function]
    real: torch.dtype
    results: tuple[str, ...]
    """Of every result, the graph's output."""


@dataclass(slots=True, eq=False)
class Tracing:
    """An exported graph on its way to ours."""

    module: GraphModule
    real: torch.dtype
    tensors: dict[str, Tensor] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)
    constants: dict[str, Constant] = field(default_factory=dict)
    functions: dict[str, Function] = field(default_factory=dict)
    names: dict[FxNode, str] = field(default_factory=dict)
    """Under which name a value is known: that of another where an operator changes nothing."""
    fixed: dict[FxNode, Any] = field(default_factory=dict)
    """Values that are no results: weights."""
    inputs: list[str] = field(default_factory=list)

    def kept(self, node: Any, value: Any) -> str:
        """A value's tensor; what is no tensor of the network's floats is none that kernels read."""
        if isinstance(value, torch.Tensor):
            if any(not isinstance(n, int) for n in value.shape):
                raise UnsupportedError(f"{node.name}: a shape that depends on what is given; fix the shapes of the example")
            if 0 in value.shape:
                raise UnsupportedError(f"{node.name}: a tensor without elements")
            own = "float32" if value.dtype == self.real else "float64" if value.is_floating_point() else "int64"
            self.tensors[node.name] = Tensor(node.name, tuple(value.shape), None, own)
        else:
            self.tensors[node.name] = Tensor(node.name, (), None, "int64")
        return str(node.name)

    def shape(self, node: Any) -> tuple[int, ...]:
        return self.tensors[self.names[node]].shape

    def moves(self, value: Any) -> bool:
        """Whether a value is a tensor that is computed."""
        return isinstance(value, FxNode) and value not in self.fixed

    def emit(self, node: FxNode, op: Op, inputs: Sequence[Any], params: Sequence[Any] = ()) -> None:
        """A node of ours for one of PyTorch's, if its shape and type are what kernels hold."""
        value = node.meta["val"]
        names = [self.names[i] for i in inputs]
        if any(self.tensors[n].element != "float32" for n in names) or value.dtype != self.real:
            raise UnsupportedError(f"{node.name}: other elements than {self.real}")
        if op.infer(tuple(self.tensors[n].shape for n in names)) != tuple(value.shape):
            raise UnsupportedError(f"{node.name}: another shape")
        own = []
        for i, array in enumerate(params):
            own.append(f"{node.name}.{i}")
            self.constants[own[-1]] = Constant(own[-1], np.ascontiguousarray(array, np.float32))
        self.names[node] = self.kept(node, value)
        self.nodes.append(Node(node.name, op, tuple(names), tuple(own), node.name))

    def leave(self, node: FxNode, changes: bool) -> None:
        """A call that PyTorch computes; of one that `changes` what it is given, on a copy."""
        moving = list(dict.fromkeys(a for a in node.all_input_nodes if a not in self.fixed))
        target: Any = node.target

        def call(inputs: Sequence[Any]) -> Any:
            given = dict(zip(moving, inputs, strict=True)) | self.fixed
            args, named = map_arg((node.args, node.kwargs), lambda n: given[n])
            return target(args[0].clone(), *args[1:], **named) if changes else target(*args, **named)

        value = node.meta.get("val")
        shape = tuple(value.shape) if isinstance(value, torch.Tensor) else ()
        self.functions[node.name] = call
        names = tuple(self.names[m] for m in moving)
        self.names[node] = self.kept(node, value)
        own = str(target).removeprefix("aten.").split(".")[0]
        op = ir.Opaque(own, b"", 0, shape, self.tensors[node.name].element, 0)
        self.nodes.append(Node(node.name, op, names, (), node.name))

    def array(self, value: Any) -> Any:
        """A weight as an array."""
        if value not in self.fixed:
            raise UnsupportedError("weights that are computed")
        return self.fixed[value].detach().float().cpu().numpy()


def called(node: FxNode) -> str:
    """The operator's own name."""
    return str(node.target).removeprefix("aten.").split(".")[0]


def pair(value: Any) -> tuple[int, int]:
    found = [value] if isinstance(value, int) else list(value)
    return (int(found[0]), int(found[-1]))


def argument(node: FxNode, index: int, name: str, default: Any = None) -> Any:
    return node.args[index] if index < len(node.args) else node.kwargs.get(name, default)


def _conv(t: Tracing, node: FxNode) -> None:
    x, weight = node.args[:2]
    bias, kernel = argument(node, 2, "bias"), t.array(weight)
    stride, padding = pair(argument(node, 3, "stride", 1)), argument(node, 4, "padding", 0)
    dilation, groups = pair(argument(node, 5, "dilation", 1)), argument(node, 6, "groups", 1)
    if isinstance(padding, str):
        reach = [(k - 1) * d for k, d in zip(kernel.shape[2:], dilation, strict=True)]
        pads = (0, 0, 0, 0) if padding == "valid" else (reach[0] // 2, reach[1] // 2, reach[0] - reach[0] // 2,
                                                        reach[1] - reach[1] // 2)
    else:
        pads = pair(padding) * 2
    window = Window(kernel.shape[2:], stride, pads, dilation)
    t.emit(node, ir.Conv(len(kernel), window, groups), [x], [kernel, np.zeros(len(kernel)) if bias is None else t.array(bias)])


def _batch_norm(t: Tracing, node: FxNode) -> None:
    x = node.args[0]
    if argument(node, 5, "training"):
        raise UsageError("torch: a normalization is in training mode; call .eval() first, since GPU networks only infer")
    weight, bias, mean, variance = (None if (held := argument(node, i, name)) is None else t.array(held) for i, name in enumerate(
        ("weight", "bias", "running_mean", "running_var"), 1))
    if mean is None or variance is None:
        raise UnsupportedError("statistics of the batch")
    scale = (1.0 if weight is None else weight) / np.sqrt(variance.astype(np.float64) + argument(node, 7, "eps"))
    offset = (0.0 if bias is None else bias) - mean * scale
    t.emit(node, ir.Conv(len(mean), Window((1, 1)), len(mean)), [x], [scale.reshape(-1, 1, 1, 1), offset])


def _linear(t: Tracing, node: FxNode) -> None:
    weight, bias = t.array(node.args[1]), argument(node, 2, "bias")
    t.emit(node, ir.Gemm(len(weight)), node.args[:1], [weight, np.zeros(len(weight)) if bias is None else t.array(bias)])


def _clip(lo: float | None = None, hi: float | None = None) -> Callable[[Tracing, FxNode], None]:
    def translate(t: Tracing, node: FxNode) -> None:
        bounds = (lo, hi) if lo is not None else (argument(node, 1, "min", -1.0), argument(node, 2, "max", 1.0))
        if called(node).startswith("clamp"):
            bounds = (argument(node, 1, "min"), argument(node, 2, "max"))
        if any(isinstance(b, FxNode) for b in bounds):
            raise UnsupportedError("bounds that are computed")
        t.emit(node, ir.Clip(ir.Clamp(-inf if bounds[0] is None else float(bounds[0]), inf if bounds[1] is None else
                                      float(bounds[1]))), node.args[:1])
    return translate


def _formula(t: Tracing, node: FxNode) -> None:
    name = FORMULAS.get(called(node).rstrip("_"))
    if name is None:
        name = "GELU (tanh)" if argument(node, 1, "approximate", "none") == "tanh" else "GELU"
    x, target = node.args[0], node.target
    t.emit(node, ir.Function(name, b"", 0), [x])
    kept: Any = target
    t.functions[node.name] = lambda inputs: kept(inputs[0].clone() if called(node).endswith("_") else inputs[0],
                                                 *node.args[1:], **node.kwargs)


def _pair_of(kind: type[ir.Add] | type[ir.Mul]) -> Callable[[Tracing, FxNode], None]:
    def translate(t: Tracing, node: FxNode) -> None:
        a, b = node.args[:2]
        if not (t.moves(a) and t.moves(b)) or argument(node, 2, "alpha", 1) != 1 or len(t.shape(a)) not in (2, 4):
            raise UnsupportedError("no sum or product of two computed tensors")
        t.emit(node, kind(), [a, b])
    return translate


def _max_pool(t: Tracing, node: FxNode) -> None:
    kernel = pair(node.args[1])
    stride, padding = pair(argument(node, 2, "stride") or kernel), pair(argument(node, 3, "padding", 0))
    dilation, wanted = pair(argument(node, 4, "dilation", 1)), node.meta["val"].shape[2:]
    more = [max(0, (w - 1) * s + (k - 1) * d + 1 - n - 2 * p) for w, s, k, d, n, p in zip(
        wanted, stride, kernel, dilation, t.shape(node.args[0])[2:], padding, strict=True)]
    t.emit(node, ir.MaxPool(Window(kernel, stride, (*padding, padding[0] + more[0], padding[1] + more[1]), dilation)),
           node.args[:1])


def _avg_pool(t: Tracing, node: FxNode) -> None:
    kernel = pair(node.args[1])
    if argument(node, 4, "ceil_mode", False) or argument(node, 6, "divisor_override") is not None:
        raise UnsupportedError("sizes rounded up, or a divisor")
    stride, padding = pair(argument(node, 2, "stride") or kernel), pair(argument(node, 3, "padding", 0))
    t.emit(node, ir.AvgPool(Window(kernel, stride, padding * 2), bool(argument(node, 5, "count_include_pad", True))),
           node.args[:1])


def _mean(t: Tracing, node: FxNode) -> None:
    x, shape = node.args[0], t.shape(node.args[0])
    if called(node) == "adaptive_avg_pool2d":
        if pair(node.args[1]) == shape[2:]:
            t.names[node] = t.names[x]
            return
        whole, keeps = pair(node.args[1]) == (1, 1), True
    else:
        whole = len(shape) == 4 and sorted(d % 4 for d in (node.args[1] or ())) == [2, 3]
        keeps = bool(argument(node, 2, "keepdim", False))
    if not whole:
        raise UnsupportedError("a mean over less than a map")
    if keeps:
        t.emit(node, ir.GlobalAvgPool(), [x])
        return
    own = Tensor(f"{node.name}.map", (*shape[:2], 1, 1), None, t.tensors[t.names[x]].element)
    t.tensors[own.name] = own
    t.nodes.append(Node(own.name, ir.GlobalAvgPool(), (t.names[x],), (), own.name))
    t.names[node] = t.kept(node, node.meta["val"])
    t.nodes.append(Node(node.name, ir.Reshape(shape[:2]), (own.name,), (), node.name))


def _reshape(t: Tracing, node: FxNode) -> None:
    shuffled = _shuffle(t, node)
    if shuffled is not None:
        t.emit(node, ir.Select(shuffled[1]), [shuffled[0]])
        return
    t.emit(node, ir.Reshape(tuple(node.meta["val"].shape)), node.args[:1])


def _shuffle(t: Tracing, node: FxNode) -> tuple[Any, tuple[int, ...]] | None:
    """The source and channels of a channel shuffle that ends here: a view, a transpose, a view back."""
    step: Any = node.args[0]
    while isinstance(step, FxNode) and called(step) in SAME:
        step = step.args[0]
    if not isinstance(step, FxNode) or called(step) != "transpose" or tuple(step.args[1:3]) not in ((1, 2), (2, 1)):
        return None
    apart: Any = step.args[0]
    if called(apart) not in ("view", "reshape") or not t.moves(apart.args[0]):
        return None
    source, sizes, made = apart.args[0], apart.meta["val"].shape, node.meta["val"].shape
    if len(t.shape(source)) != 4 or tuple(made) != t.shape(source) or len(sizes) != 5 or tuple(sizes[3:]) != tuple(made[2:]) \
            or sizes[0] != made[0]:
        return None
    groups, each = sizes[1:3]
    return source, tuple(j * each + i for i in range(each) for j in range(groups))


def _concat(t: Tracing, node: FxNode) -> None:
    parts, axis = node.args[0], argument(node, 1, "dim", 0)
    if not isinstance(parts, list | tuple) or not all(t.moves(p) for p in parts) or axis % len(node.meta["val"].shape) != 1 \
            or len(node.meta["val"].shape) not in (2, 4):
        raise UnsupportedError("no concatenation of channels")
    t.emit(node, ir.Concat(1), list(parts))


def _taken(t: Tracing, node: FxNode) -> None:
    """One piece of channels that were split."""
    whole, index = node.args
    if not isinstance(whole, FxNode) or called(whole) not in ("split", "chunk", "split_with_sizes") \
            or not t.moves(whole.args[0]) or not isinstance(index, int):
        raise UnsupportedError("no piece of channels")
    x, pieces = whole.args[0], whole.meta["val"]
    if len(t.shape(x)) != 4 or argument(whole, 2, "dim", 0) % 4 != 1:
        raise UnsupportedError("no piece of channels")
    first = sum(p.shape[1] for p in pieces[:index])
    t.emit(node, ir.Select(tuple(range(first, first + pieces[index].shape[1]))), [x])


TRANSLATIONS: Mapping[str, Callable[[Tracing, FxNode], None]] = {
    "conv2d": _conv, "batch_norm": _batch_norm, "linear": _linear, "relu": _clip(0.0, inf), "relu_": _clip(0.0, inf),
    "relu6": _clip(0.0, 6.0), "relu6_": _clip(0.0, 6.0), "hardtanh": _clip(), "hardtanh_": _clip(), "clamp": _clip(),
    "clamp_": _clip(), "add": _pair_of(ir.Add), "add_": _pair_of(ir.Add), "mul": _pair_of(ir.Mul), "mul_": _pair_of(ir.Mul),
    "max_pool2d": _max_pool, "avg_pool2d": _avg_pool, "adaptive_avg_pool2d": _mean, "mean": _mean, "flatten": _reshape,
    "view": _reshape, "reshape": _reshape, "cat": _concat, "gelu": _formula, "gelu_": _formula,
    **{name + end: _formula for name in FORMULAS for end in ("", "_")},
}


def traced(exported: GraphModule) -> Traced:
    """A module that was exported, with weights inside, as a graph of ours."""
    weights = [v for v in (*exported.parameters(), *exported.buffers()) if v.dtype in REALS]
    given = [n.meta["val"] for n in exported.graph.nodes if n.op == "placeholder"]
    kinds = [v.dtype for v in (*weights, *given) if isinstance(v, torch.Tensor) and v.dtype in REALS]
    t = Tracing(exported, kinds[0] if kinds else torch.float32)
    for node in exported.graph.nodes:
        if node.op == "placeholder":
            t.names[node] = t.kept(node, node.meta["val"])
            t.inputs.append(node.name)
        elif node.op == "get_attr":
            t.fixed[node] = _attribute(exported, str(node.target))
        elif node.op == "call_function":
            _translate(t, node)
        elif node.op != "output" and node.users:
            raise UnsupportedError(f"{node.name}: {node.op} in an exported graph")
    (last,) = [n for n in exported.graph.nodes if n.op == "output"]
    results = [r for r in last.args[0] if isinstance(r, FxNode)]
    if any(r in t.fixed for r in results):
        raise UnsupportedError("a result that is a weight")
    names = tuple(t.names[r] for r in results)
    return Traced(_cleaned(t, names), t.functions, t.real, names)


def _attribute(module: GraphModule, target: str) -> Any:
    found: Any = module
    for name in target.split("."):
        found = getattr(found, name)
    return found


def _computed(t: Tracing, node: FxNode) -> bool:
    """Compute what reads weights and constants alone now, and say whether it was such; as in the module, changes in place show
    in whatever views the same memory."""
    target: Any = node.target
    known = called(node) in FILLED or all(n in t.fixed for n in node.all_input_nodes)
    if not known or torch.Tag.nondeterministic_seeded in getattr(target, "tags", ()):
        return False

    def held(n: FxNode) -> Any:
        value = n.meta["val"]
        return t.fixed[n] if n in t.fixed else torch.empty(value.shape, dtype=value.dtype, device=value.device)
    args, named = map_arg((node.args, node.kwargs), held)
    if called(node).endswith("_") and _storage(args[0]) in {_storage(w) for w in (*t.module.parameters(), *t.module.buffers())}:
        raise UnsupportedError(f"{node.name}: changes a weight in place")
    t.fixed[node] = target(*args, **named)
    return True


def _storage(tensor: Any) -> Any:
    return tensor.untyped_storage().data_ptr()


def _translate(t: Tracing, node: FxNode) -> None:
    if _computed(t, node):
        return
    name = called(node) if node.target is not getitem else "getitem"
    changes = name.endswith("_") and not name.endswith("__")
    if name.rstrip("_") in SAME and t.moves(node.args[0]):
        if name.startswith("dropout") and argument(node, 2, "train"):
            raise UsageError("torch: dropout is in training mode; call .eval() first, since GPU networks only infer")
        t.names[node] = t.names[node.args[0]]
        return
    if changes:
        _check_alone(node)
    translate = _taken if name == "getitem" else TRANSLATIONS.get(name)
    before = len(t.nodes)
    try:
        if translate is None:
            raise UnsupportedError(name)
        translate(t, node)
    except (UnsupportedError, ModelError):
        del t.nodes[before:]
        t.leave(node, changes)
    if changes and isinstance(node.args[0], FxNode):
        t.names[node.args[0]] = t.names[node]  # whoever reads it from here on reads the result


def _check_alone(node: FxNode) -> None:
    """Refuse to change in place what others may see through a view."""
    changed: Any = node.args[0]
    others = [changed, *(u for u in changed.users if u is not node)] if isinstance(changed, FxNode) else []
    if any(called(one).rstrip("_") in VIEWS for one in others if one.op == "call_function"):
        raise UnsupportedError(f"{node.name}: changes in place what has views")


def _cleaned(t: Tracing, outputs: Sequence[str]) -> Graph:
    """The graph without what nobody reads, its normalizations and activations in their layers."""
    needed, nodes = set(outputs), list[Node]()
    for node in reversed(t.nodes):
        if node.output in needed:
            needed |= set(node.inputs)
            nodes.append(node)
    names = {*needed, *t.inputs}
    graph = Graph("torch", tuple(t.inputs), tuple(dict.fromkeys(outputs)), tuple(reversed(nodes)),
                  {n: x for n, x in t.tensors.items() if n in names},
                  {c: t.constants[c] for node in nodes for c in node.params})
    return fold_activations(fold_affine(graph))


