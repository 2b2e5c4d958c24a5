"""Clusters of ONNX nodes as `Function`, tables as `Lookup`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from math import erf
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from dovetail.ir.onnx import file as onnx_file
from dovetail.ir.onnx.clusters import JOINING, UNARY, Cluster, TableNodes
from dovetail.ir.onnx.quantizers import stored_as
from dovetail.ir.onnx.state import Reader
from dovetail.ir.operators.pointwise import TABLE_ENTRIES, Function, Lookup
from dovetail.ir.tensor import Array, Shape


def read_cluster(reader: Reader, cluster: Cluster) -> bool:
    """Add a cluster as one `Function`; False where its nodes must be read one by one (ranks, types, other constants)."""
    source = reader.tensors.get(reader.tensor(cluster.source))
    if source is None or source.element != "float32" or len(source.shape) not in (2, 4) or cluster.source in reader.raw:
        return False
    constants: dict[str, Array] = {}
    made = {o for n in cluster.nodes for o in n.output}
    for name in (i for n in cluster.nodes for i in n.input if i and i != cluster.source and i not in made):
        constant = reader.constants.get(name)
        if constant is None:
            return False
        array = constant.array if constant.scheme is None else constant.real.astype(np.float32)
        if array.size != 1 and not _along_channels(array.shape, source.shape):
            return False
        constants[name] = array
    formula = _formula(cluster, constants, reader.opset)
    if not _keeps_shape(formula, source.shape):
        return False
    content = formula.model(()).SerializeToString(deterministic=True)
    op = Function(_name(cluster, content, len(formula.channels)), content, reader.opset, len(formula.channels))
    params = {f"p{i}": (a.astype(np.float32).reshape(-1), None) for i, a in enumerate(formula.channels)}
    reader.add(cluster.nodes[-1], op, [cluster.source], params)
    return True


def read_alone(reader: Reader, node: Any) -> bool:
    """A single node that is a formula, found only while reading: what an integer operator or a branch stands for."""
    moving = list(dict.fromkeys(i for i in node.input if i and i not in reader.constants))
    fits = node.domain in ("", "ai.onnx") and node.op_type in UNARY | JOINING and len(moving) == len(node.output) == 1
    return fits and read_cluster(reader, Cluster((node,), moving[0]))


def _along_channels(found: Shape, shape: Shape) -> bool:
    """Whether a constant has one value per channel of a tensor."""
    aligned = (1,) * (len(shape) - len(found)) + found
    return len(aligned) == len(shape) and aligned == (1, shape[1], *(1 for _ in shape[2:]))


@dataclass(frozen=True, slots=True)
class _Formula:
    """Nodes over `x0`, shared numbers and one-per-channel constants, ready to become a model."""

    nodes: tuple[Any, ...]
    shared: tuple[Any, ...]
    channels: tuple[Array, ...]
    opset: int

    def model(self, shape: Shape) -> Any:
        """The model without shapes, or with the tensor's own."""
        dims = list(shape) if shape else None
        along = [1, shape[1], *(1 for _ in shape[2:])] if shape else None
        inputs = [helper.make_tensor_value_info("x0", TensorProto.FLOAT, dims)]
        inputs += [helper.make_tensor_value_info(f"p{i}", TensorProto.FLOAT, along) for i in range(len(self.channels))]
        outputs = [helper.make_tensor_value_info("y0", TensorProto.FLOAT, dims)]
        graph = helper.make_graph(self.nodes, "function", inputs, outputs, self.shared)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)],
                                 ir_version=onnx_file.ir_version(self.opset))


def _formula(cluster: Cluster, constants: dict[str, Array], opset: int) -> _Formula:
    """The cluster with names of its own, so that equal formulas are equal bytes."""
    names = {cluster.source: "x0", cluster.nodes[-1].output[0]: "y0", "": ""}
    shared: list[Any] = []
    channels: list[Array] = []
    nodes: list[Any] = []
    for node in cluster.nodes:
        for name in node.input:
            if name not in names and constants[name].size == 1:
                names[name] = f"c{len(shared)}"
                flat = constants[name].reshape(constants[name].shape[:1])  # more dimensions would stretch a matrix
                shared.append(numpy_helper.from_array(flat, names[name]))
            elif name not in names:
                names[name] = f"p{len(channels)}"
                channels.append(constants[name])
        names.setdefault(node.output[0], f"t{len(nodes)}")
        copy = onnx.NodeProto(op_type=node.op_type, domain=node.domain, attribute=node.attribute)
        copy.input.extend(names[i] for i in node.input)
        copy.output.append(names[node.output[0]])
        nodes.append(copy)
    return _Formula(tuple(nodes), tuple(shared), tuple(channels), opset)


def _keeps_shape(formula: _Formula, shape: Shape) -> bool:
    """Whether ONNX agrees that the formula is sound and its result of the tensor's shape and type."""
    model = formula.model(shape)
    del model.graph.output[:]
    model.graph.output.append(onnx.ValueInfoProto(name="y0"))
    try:
        inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)
    except Exception:  # the package raises its own family, rooted in Exception only; node by node the reason will be named
        return False
    kind = inferred.graph.output[0].type.tensor_type
    return bool(kind.elem_type == TensorProto.FLOAT) and tuple(d.dim_value for d in kind.shape.dim) == shape


READABLE = {"Gelu": "GELU", "PRelu": "PReLU", "LeakyRelu": "LeakyReLU", "Elu": "ELU", "Celu": "CELU", "Selu": "SELU"}
PROBES = np.linspace(-7.9, 7.9, 33, dtype=np.float32)
"""Where a formula is compared with the ones that have names."""


def _sigmoid(x: Array) -> Array:
    return np.asarray(1.0 / (1.0 + np.exp(-x)))


KNOWN: dict[str, Callable[[Array], Array]] = {
    "SiLU": lambda x: x * _sigmoid(x),
    "HardSwish": lambda x: x * np.clip(x + 3.0, 0.0, 6.0) / 6.0,
    "HardSigmoid": lambda x: np.clip(x + 3.0, 0.0, 6.0) / 6.0,
    "Sigmoid": _sigmoid,
    "Mish": lambda x: x * np.tanh(np.log1p(np.exp(x))),
    "GELU": lambda x: 0.5 * x * (1.0 + np.vectorize(erf)(x / np.sqrt(2.0))),
    "GELU (tanh)": lambda x: 0.5 * x * (1.0 + np.tanh(np.sqrt(2.0 / np.pi) * (x + 0.044715 * x**3))),
    "Softplus": lambda x: np.log1p(np.exp(x)),
    "Tanh": np.tanh,
}


def _name(cluster: Cluster, content: bytes, constants: int) -> str:
    """What people call the formula: by its operator, or by what it computes."""
    if len(cluster.nodes) == 1:
        kind = str(cluster.nodes[0].op_type)
        return READABLE.get(kind, kind)
    known = None if constants else _known(content)
    return known or f"pointwise of {len(cluster.nodes)} nodes"


@lru_cache(maxsize=256)
def _known(content: bytes) -> str | None:
    try:
        with np.errstate(all="ignore"):
            (found,) = ReferenceEvaluator(onnx.load_model_from_string(content)).run(None, {"x0": PROBES.reshape(1, 1, -1, 1)})
    except Exception:  # the evaluator raises whatever NumPy does; a formula without a name is no error
        return None
    probes = PROBES.astype(np.float64)
    return next((name for name, formula in KNOWN.items()
                 if np.allclose(np.ravel(found), formula(probes), rtol=1e-5, atol=1e-5)), None)


def read_table(reader: Reader, table: TableNodes) -> bool:
    """Add a `Lookup` as this package exports it; False where the nodes look up something else."""
    name, codes = table.gather.name, reader.tensor(table.cast.input[0])
    entries = reader.constant(table.gather.input[0], name, "table").array
    offset = reader.constant(table.offset.input[1], name, "offset").array
    scheme, source = reader.schemes.get(codes), reader.tensors.get(codes)
    channels = source.shape[1] if source is not None and len(source.shape) > 1 else 0
    by_channel = entries.size != TABLE_ENTRIES
    rows = channels if by_channel else 1
    known = scheme is not None and entries.dtype in (np.int8, np.uint8) and entries.size == rows * TABLE_ENTRIES
    op = Lookup(table.gather.doc_string or "a function", scheme.signed if scheme is not None else True, by_channel)
    if not known or not np.array_equal(offset.reshape(-1), np.arange(rows) * TABLE_ENTRIES - op.lo):
        return False
    shaped = entries.reshape(rows, TABLE_ENTRIES) if by_channel else entries.reshape(-1)
    reader.raw[table.gather.output[0]] = stored_as(reader, table.meaning, entries.dtype)
    reader.store(table.gather.output[0], reader.raw[table.gather.output[0]])
    reader.add(table.gather, op, [table.cast.input[0]], {"table": (shaped, None)})
    return True
