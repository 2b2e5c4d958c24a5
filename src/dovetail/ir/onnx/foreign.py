"""Foreign ONNX nodes: evaluated when all they read is constant, else wrapped as `Opaque` with static shapes.

Only operators that ONNX itself or ONNX Runtime defines are accepted; nothing from the file is executed but constant
arithmetic of bounded size, by the reference evaluator of the onnx package.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count, zip_longest
from math import prod
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from dovetail.errors import ModelError, UnsupportedError
from dovetail.ir.onnx.file import MAX_TENSOR_BYTES, OPSET, copied, ir_version
from dovetail.ir.onnx.prepare import captured, domains, rename_inside, subgraphs
from dovetail.ir.tensor import Array, Tensor

KNOWN_DOMAINS = ("", "ai.onnx", "com.microsoft")
RANDOM = ("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial", "Bernoulli")
MAX_FOLDED_ELEMENTS = MAX_TENSOR_BYTES // 8


Kind = tuple[tuple[int, ...], str]
"""Shape and NumPy element type of a value."""
KEEP_SHAPE = ("GroupNormalization", "MeanVarianceNormalization")
"""Functions of the standard that the onnx package infers no shape for; their result has that of what they read first."""


@dataclass(frozen=True, slots=True)
class Foreign:
    """A node as a model of its own, with the shape and type of each output (None where unnamed)."""

    content: bytes
    outputs: tuple[Kind | None, ...]


def check_known(node: Any, where: str) -> None:
    """Refuse operators that no runtime here defines, by name."""
    known = node.domain == "com.microsoft" or (node.domain in KNOWN_DOMAINS and onnx.defs.has(node.op_type))
    if not known:
        raise ModelError(f"{where}: node {node.name or node.output[0]}: operator {node.op_type} of domain "
                         f"{node.domain or 'ai.onnx'} is unknown; export the model with standard ONNX operators")
    for graph in subgraphs(node):
        for inner in graph.node:
            check_known(inner, where)


def foreign_reads(node: Any) -> list[str]:
    """The values a node names, repetitions included, then those its sub-graphs read from around it."""
    return [*filter(None, node.input), *sorted(captured(node))]


def wrap(node: Any, inputs: list[Tensor | Array], opset: int, where: str, known: Sequence[Kind | None] = ()) -> Foreign:
    """The node as a model of its own; tensors become its inputs, arrays its initializers, "" stays absent.

    `inputs` are the values the node names, then those its sub-graphs read from around it (see `foreign_reads`).
    `known` says what outputs are whose shape ONNX does not infer.
    """
    values: list[Any] = []
    weights: list[Any] = []
    seen: dict[str, str] = {}
    names: list[str] = []
    for given in inputs:
        if not isinstance(given, Tensor):
            names.append(f"c{len(weights)}")
            weights.append(numpy_helper.from_array(np.asarray(given, order="C"), names[-1]))
            continue
        if given.name not in seen:
            seen[given.name] = f"x{len(seen)}"
            kind = helper.np_dtype_to_tensor_dtype(np.dtype(given.element))
            values.append(helper.make_tensor_value_info(seen[given.name], kind, given.shape))
        names.append(seen[given.name])
    supplied = iter(names)
    alone = copied(node)
    alone.name = alone.doc_string = ""
    alone.ClearField("metadata_props")
    alone.input[:] = [next(supplied) if original else "" for original in node.input]
    alone.output[:] = [f"y{i}" if o else "" for i, o in enumerate(node.output)]
    numbers = count()
    rename_inside(alone, dict(zip(sorted(captured(node)), supplied, strict=True)), lambda name: f"s{next(numbers)}")
    outputs = [onnx.ValueInfoProto(name=o) for o in alone.output if o]
    graph = helper.make_graph([alone], "node", values, outputs, weights)
    imports = [helper.make_opsetid("", opset)]
    imports += [helper.make_opsetid(domain, 1) for domain in sorted(domains(node))]
    model = helper.make_model(graph, opset_imports=imports, ir_version=ir_version(opset))
    if node.op_type in KEEP_SHAPE and isinstance(inputs[0], Tensor):
        known = [(inputs[0].shape, inputs[0].element)]
    return _typed(model, node, where, known)


def _typed(model: Any, node: Any, where: str, known: Sequence[Kind | None]) -> Foreign:
    """Static shape and type of every output, by ONNX shape inference with constants propagated."""
    try:
        inferred = onnx.shape_inference.infer_shapes(model, data_prop=True)
    except Exception as error:  # the package raises its own family, rooted in Exception only
        raise ModelError(f"{where}: node {node.name or node.output[0]}: {node.op_type} is malformed "
                         f"({str(error).splitlines()[0]}); the file is damaged") from None
    found = {v.name: v for v in inferred.graph.output}
    outputs: list[Kind | None] = []
    for name, given in zip_longest(model.graph.node[0].output, known):
        if not name:
            outputs.append(None)
            continue
        kind = found[name].type.tensor_type
        dims = [d.dim_value if d.HasField("dim_value") else None for d in kind.shape.dim]
        if not kind.elem_type or not kind.HasField("shape") or None in dims:
            if given is not None:
                outputs.append(given)
                continue
            raise UnsupportedError(f"{where}: node {node.name or node.output[0]}: the shape of {node.op_type}'s output depends "
                                   "on data; export the model with fixed input shapes")
        dtype = np.dtype(helper.tensor_dtype_to_np_dtype(kind.elem_type))
        if dtype.kind == "O":
            raise UnsupportedError(f"{where}: node {node.name or node.output[0]}: {node.op_type} makes text; export the network "
                                   "without its text processing")
        outputs.append((tuple(int(d) for d in dims if d is not None), dtype.name))
    del model.graph.output[:]
    model.graph.output.extend(helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(np.dtype(o[1])), o[0])
                              for n, o in zip(model.graph.node[0].output, outputs, strict=True) if o is not None)
    return Foreign(model.SerializeToString(deterministic=True), tuple(outputs))


def fold(node: Any, inputs: list[Array], opset: int, where: str) -> list[Array | None]:
    """Evaluate a node that reads only constants; the results' size is bounded before anything is computed."""
    if node.op_type in RANDOM:
        raise UnsupportedError(f"{where}: node {node.name or node.output[0]}: {node.op_type} makes random numbers; "
                               "a network must compute the same result every time")
    if subgraphs(node):
        raise UnsupportedError(f"{where}: node {node.name or node.output[0]}: {node.op_type} over constants alone is not "
                               "computed at import; export the model without control flow (trace instead of script)")
    wrapped = wrap(node, list(inputs), opset, where)
    if any(o is not None and prod(o[0]) > MAX_FOLDED_ELEMENTS for o in wrapped.outputs):
        raise ModelError(f"{where}: node {node.name or node.output[0]}: {node.op_type} of constants makes more than "
                         f"{MAX_FOLDED_ELEMENTS} elements; at most that many are computed at import")
    try:
        results = ReferenceEvaluator(onnx.load_model_from_string(wrapped.content)).run(None, {})
    except Exception as error:  # the evaluator raises whatever NumPy does
        raise ModelError(f"{where}: node {node.name or node.output[0]}: {node.op_type} of constants cannot be evaluated "
                         f"({str(error).splitlines()[0] if str(error) else type(error).__name__})") from None
    computed = iter(results)
    return [np.asarray(next(computed)) if o is not None else None for o in wrapped.outputs]


def target_opset(model: Any) -> int:
    """The opset foreign nodes are kept in: at least the one we write, the model's own where newer."""
    versions = [int(o.version) for o in model.opset_import if o.domain in ("", "ai.onnx")]
    return max([OPSET, *versions])


def products(operator: str, inputs: list[tuple[int, ...]], output: tuple[int, ...]) -> int:
    """Multiply-accumulates of a foreign matrix product or convolution, from shapes alone; others count as moving."""
    if operator in ("MatMul", "Gemm"):
        return prod(output) * inputs[0][-1]
    if operator == "Conv":
        return prod(output) * prod(inputs[1][1:])
    return prod(inputs[0]) * prod(inputs[1][1:]) if operator == "ConvTranspose" else 0
