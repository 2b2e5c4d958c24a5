"""Graph to ONNX: float operators, or Quantize/Dequantize (QDQ) around them for a quantized graph.

With power-of-two scales and accumulators below 2**24 the float arithmetic between DequantizeLinear and
QuantizeLinear is exact, so plain ONNX Runtime computes the very integers of the reference.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from dovetail import plugins
from dovetail.errors import UnsupportedError
from dovetail.ir import RELU, Clamp, Conv, Gemm, Graph, Node, Op, Opaque, Product, Reduce, Rounding, Scheme, Tensor
from dovetail.ir.onnx import file as onnx_file
from dovetail.ir.onnx import lq as onnx_lq
from dovetail.ir.onnx.prepare import LITE, OWN_DOMAINS, domains, rename_inside
from dovetail.ir.onnx.writer import Boundary, Writer
from dovetail.ir.operators.elementwise import Add, Clip, Concat, Mul, Reshape
from dovetail.ir.operators.lq import Coded, Thresholds, holds_codes
from dovetail.ir.operators.movement import PixelShuffle, Select, Transpose, Upsample
from dovetail.ir.operators.pointwise import TABLE_ENTRIES, Function, Lookup
from dovetail.ir.operators.pooling import AvgPool, GlobalAvgPool, MaxPool
from dovetail.ir.operators.window import Pads, Window
from dovetail.ir.tflite import calls
from dovetail.ir.tflite.calls import lite_rounding, write_activation, write_integers, write_quantize


def to_onnx(graph: Graph, boundary: Boundary = Boundary.FLOAT) -> bytes:
    """The graph as a serialized ONNX model (opset 17, IR 8; newer where foreign nodes need it)."""
    writer = Writer(graph, boundary)
    inputs = _write(writer)
    while _clashing(writer):
        writer = Writer(graph, boundary, writer.sep + "_")
        inputs = _write(writer)
    outputs = [declared_output(writer, graph.tensors[name]) for name in graph.outputs]
    proto = helper.make_graph(writer.nodes, graph.name, inputs, outputs, list(writer.initializers.values()))
    stored = [*(t.scheme for t in graph.tensors.values()), *(c.scheme for c in graph.constants.values())]
    wide = any(s is not None and s.bits == 16 for s in stored)
    opset = max([onnx_file.OPSET, *(n.op.opset for n in graph.nodes), onnx_file.WIDE_OPSET if wide else 0])
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, 1) for d in sorted(writer.domains))]
    model = helper.make_model(proto, opset_imports=imports, functions=_functions(writer, opset),
                              ir_version=onnx_file.ir_version(opset), producer_name=onnx_file.PRODUCER)
    if writer.domains <= set(OWN_DOMAINS):
        onnx.checker.check_model(model)
    content: bytes = model.SerializeToString(deterministic=True)
    return content


def _functions(writer: Writer, opset: int) -> list[Any]:
    return [*onnx_lq.functions(writer.graph, opset), *(calls.functions(opset) if LITE in writer.domains else ())]


def _write(writer: Writer) -> list[Any]:
    inputs = [_input(writer, writer.graph.tensors[name]) for name in writer.graph.inputs]
    for node in writer.graph.nodes:
        _node(writer, node)
    return inputs


def _clashing(writer: Writer) -> bool:
    """Whether a derived name (`a_q`) is also a name of the network's own, or a node's name is used twice."""
    values = [*writer.graph.inputs, *writer.initializers, *(o for n in writer.nodes for o in n.output if o)]
    names = [n.name for n in writer.nodes]
    return len(set(values)) != len(values) or len(set(names)) != len(names)


def _element_type(tensor: Tensor) -> int:
    return int(helper.np_dtype_to_tensor_dtype(tensor.dtype))


def leading(writer: Writer, shape: tuple[int, ...]) -> list[int | str]:
    """Any number of frames may be given at run time where the batch is one and no foreign node fixes it."""
    free = shape and shape[0] == 1 and not any(n.op.foreign for n in writer.graph.nodes)
    return ["batch", *shape[1:]] if free else list(shape)


def _input(writer: Writer, tensor: Tensor) -> Any:
    name, scheme = tensor.name, tensor.scheme
    if scheme is None:
        return helper.make_tensor_value_info(name, _element_type(tensor), leading(writer, tensor.shape))
    if writer.boundary is Boundary.FLOAT:
        source = name
        if scheme.bits < 8:  # the type that stores it saturates later than it does
            limits = [writer.constant(f"{name}{writer.sep}{side}", np.asarray((v - scheme.zero) * scheme.scale, dtype=np.float32))
                      for side, v in (("min", scheme.lo), ("max", scheme.hi))]
            source = writer.emit("Clip", [name, *limits], f"{name}{writer.sep}limited", f"{name}{writer.sep}limit")
        writer.emit("QuantizeLinear", [source, *writer.scale(name, scheme)], f"{name}{writer.sep}q",
                    f"{name}{writer.sep}quantize")
        writer.dequantize(f"{name}{writer.sep}q", f"{name}{writer.sep}dq", name, scheme)
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, leading(writer, tensor.shape))
    if scheme.bits < 32:
        writer.dequantize(name, f"{name}{writer.sep}dq", name, scheme)
    return helper.make_tensor_value_info(name, _element_type(tensor), leading(writer, tensor.shape))


def declared_output(writer: Writer, tensor: Tensor) -> Any:
    integer = tensor.scheme is not None and writer.boundary is Boundary.INTEGER
    kind = _element_type(tensor) if integer or tensor.scheme is None else TensorProto.FLOAT
    return helper.make_tensor_value_info(tensor.name, kind, leading(writer, tensor.shape))


def read_value(writer: Writer, name: str) -> str:
    """The float value of a tensor, for a consumer; its integers as floats, where TensorFlow Lite's arithmetic reads them."""
    if name in writer.integers:
        return writer.integers[name]
    if writer.graph.tensors[name].scheme is None:
        return name
    is_public = writer.boundary is Boundary.FLOAT and name in writer.graph.outputs
    return name if is_public else f"{name}{writer.sep}dq"


def _node(writer: Writer, node: Node) -> None:
    scheme = writer.graph.tensors[node.output].scheme
    if scheme is None:
        activated(writer, node, node.output, None)
        return
    if scheme.bits == 32:
        _partial(writer, node)
        return
    if node.op.stores:
        _looked_up(writer, node, scheme)
        return
    public = node.output in writer.graph.outputs
    if writer.boundary is Boundary.FLOAT:
        raw, stored, real = (f"{node.output}{writer.sep}raw", f"{node.output}{writer.sep}q", node.output) if public \
            else (node.output, f"{node.output}{writer.sep}q", f"{node.output}{writer.sep}dq")
    else:
        raw, stored, real = f"{node.output}{writer.sep}raw", node.output, f"{node.output}{writer.sep}dq"
    if scheme.rounding is not Rounding.EVEN and not node.op.in_floats:
        _lite(writer, node, scheme, raw, stored)
    else:
        activated(writer, node, raw, scheme)
        writer.emit("QuantizeLinear", [raw, *writer.scale(node.output, scheme)], stored,
                    f"{node.output}{writer.sep}quantize")
    if (public and writer.boundary is Boundary.FLOAT) or writer.graph.consumers(node.output):
        writer.dequantize(stored, real, node.output, scheme)


def _lite(writer: Writer, node: Node, scheme: Scheme, raw: str, stored: str) -> None:
    """TensorFlow Lite's arithmetic: the operator on integers, then the rounding."""
    how = lite_rounding(writer.graph, node)
    for at, name in enumerate(dict.fromkeys(node.inputs)):
        source = writer.graph.scheme(name)
        if source.bits < 32:
            factor = how.factors[node.inputs.index(name)] if how.factors else None
            writer.integers[name] = write_integers(writer, node, read_value(writer, name), source, at,
                                                   len(writer.graph.shape(name)), factor)
    for at, name in enumerate(node.params, len(node.inputs)):
        own = writer.graph.constants[name].scheme
        if own is not None and not isinstance(node.op, Reduce):
            writer.integers[name] = write_integers(writer, node, writer.parameter(name), own, at,
                                                   writer.graph.constants[name].array.ndim)
    activated(writer, node, raw, scheme)
    writer.integers.clear()
    write_quantize(writer, node, scheme, how, raw, stored)


def activated(writer: Writer, node: Node, output: str, scheme: Scheme | None) -> None:
    """The operator and its clamp; narrow schemes (below 8 bits) saturate in an explicit Clip."""
    clamp = node.op.bounds
    lo, hi = (clamp.lo, clamp.hi) if clamp is not None else (-inf, inf)
    if scheme is not None and scheme.bits < 8 and not holds_codes(writer.graph, node.output):
        lo, hi = (max(lo, (scheme.lo - scheme.zero) * scheme.scale), min(hi, (scheme.hi - scheme.zero) * scheme.scale))
    if (lo, hi) == (-inf, inf):
        writer_of(type(node.op))(writer, node, node.op, output)
        return
    if isinstance(node.op, Clip):
        before, name = read_value(writer, node.inputs[0]), node.name
    else:
        before, name = f"{node.output}{writer.sep}pre", f"{node.name}{writer.sep}activation"
        writer_of(type(node.op))(writer, node, node.op, before)
    if scheme is not None and scheme.rounding is not Rounding.EVEN:
        write_activation(writer, Clamp(lo, hi), before, output, name)
        return
    if (lo, hi) == (RELU.lo, RELU.hi):
        writer.emit("Relu", [before], output, name)
        return
    limits = ["" if abs(v) == inf else writer.constant(f"{node.name}{writer.sep}{side}", np.asarray(v, dtype=np.float32))
              for side, v in (("min", lo), ("max", hi))]
    while limits and not limits[-1]:
        limits.pop()
    writer.emit("Clip", [before, *limits], output, name)


def _partial(writer: Writer, node: Node) -> None:
    """One share of an input-channel split: integers cast to float, multiplied, cast to int32 sums."""
    source = node.inputs[0]
    stored = source if writer.boundary is Boundary.INTEGER else f"{source}{writer.sep}q"
    whole = writer.emit("Cast", [stored], f"{node.output}{writer.sep}in", f"{node.name}{writer.sep}cast_in", to=TensorProto.FLOAT)
    integers = writer.graph.constants[node.params[0]].array.astype(np.float32)
    weight = writer.constant(f"{node.params[0]}{writer.sep}integers", integers)
    assert node.op.product is not None
    emit_product(writer, node.op.product, [whole, weight], f"{node.output}{writer.sep}raw", node.name)
    writer.emit("Cast", [f"{node.output}{writer.sep}raw"], node.output, f"{node.name}{writer.sep}cast_out", to=TensorProto.INT32)


def emit_product(writer: Writer, op: Product, inputs: list[str], output: str, name: str) -> None:
    """A Conv or Gemm node."""
    if op.window is None:
        writer.emit("Gemm", inputs, output, name, transB=1)
        return
    writer.emit("Conv", inputs, output, name, kernel_shape=op.window.kernel, strides=op.window.stride, pads=op.window.pads,
                dilations=op.window.dilation, group=op.groups)


def _product(writer: Writer, node: Node, op: Product, output: str) -> None:
    inputs = [read_value(writer, node.inputs[0]), *(writer.parameter(p) for p in node.params)]
    emit_product(writer, op, inputs, output, node.name)


def _reduce(writer: Writer, node: Node, op: Reduce, output: str) -> None:
    """Partial sums as integers in float, one scale per channel at the end."""
    scheme = writer.graph.tensors[node.inputs[0]].scheme
    if scheme is None:
        raise UnsupportedError(f"node {node.name}: Reduce exists only in quantized graphs")
    rank = len(writer.graph.shape(node.output))
    along = (1, -1) + (1,) * (rank - 2)
    stem = f"{node.name}{writer.sep}"
    terms = [writer.emit("Cast", [t], f"{stem}{i}_float", f"{stem}cast_{i}", to=TensorProto.FLOAT)
             for i, t in enumerate(node.inputs)]
    bias = writer.graph.constants[node.params[0]].array.astype(np.float32)
    terms.append(writer.constant(f"{node.params[0]}{writer.sep}integers", bias.reshape(along)))
    total = terms[0]
    for i, term in enumerate(terms[1:]):
        total = writer.emit("Add", [total, term], f"{stem}sum_{i}", f"{stem}add_{i}")
    whole = writer.graph.scheme(node.output).rounding is not Rounding.EVEN  # the rounding multiplies integers
    scale = np.ones(along, np.float32) if whole else np.asarray(scheme.scales, dtype=np.float32).reshape(along)
    writer.emit("Mul", [total, writer.constant(f"{stem}unit", scale)], output, node.name)


def _pool_input(writer: Writer, node: Node, window: Window, value: float) -> tuple[str, Pads]:
    """A pool's input and padding; ONNX Runtime wants pads below the kernel's size, so wider ones become a Pad node."""
    source = read_value(writer, node.inputs[0])
    if all(p < window.kernel[i % 2] for i, p in enumerate(window.pads)):
        return source, window.pads
    top, left, bottom, right = window.pads
    amounts = writer.constant(f"{node.name}{writer.sep}pads", np.asarray([0, 0, top, left, 0, 0, bottom, right], dtype=np.int64))
    filler = writer.constant(f"{node.name}{writer.sep}padding", np.asarray(value, dtype=np.float32))
    padded = f"{node.output}{writer.sep}padded"
    return writer.emit("Pad", [source, amounts, filler], padded, f"{node.name}{writer.sep}pad"), (0, 0, 0, 0)


def _max_pool(writer: Writer, node: Node, op: MaxPool, output: str) -> None:
    w = op.window
    source, pads = _pool_input(writer, node, w, -inf)
    writer.emit("MaxPool", [source], output, node.name, kernel_shape=w.kernel, strides=w.stride, pads=pads, dilations=w.dilation)


def _avg_pool(writer: Writer, node: Node, op: AvgPool, output: str) -> None:
    w = op.window
    if w.dilation != (1, 1):
        raise UnsupportedError(f"node {node.name}: dilated average pooling does not exist in opset {onnx_file.OPSET}")
    source, pads = _pool_input(writer, node, w, 0.0) if op.count_pads else (read_value(writer, node.inputs[0]), w.pads)
    writer.emit("AveragePool", [source], output, node.name, kernel_shape=w.kernel, strides=w.stride, pads=pads,
                count_include_pad=int(op.count_pads))


def _add(writer: Writer, node: Node, op: Add, output: str) -> None:
    terms = [read_value(writer, name) for name in node.inputs]
    writer.emit("Add" if len(terms) == 2 else "Sum", terms, output, node.name)


def _as_it_is(operator: str, *fields: str) -> Callable[[Writer, Node, Any, str], None]:
    """How an operator is written that ONNX has as well; `fields` of ours are attributes there."""
    def write(writer: Writer, node: Node, op: Op, output: str) -> None:
        attributes = {name: getattr(op, name) for name in fields}
        writer.emit(operator, [read_value(writer, t) for t in node.inputs], output, node.name, **attributes)
    return write


def _reshape(writer: Writer, node: Node, op: Reshape, output: str) -> None:
    source = writer.graph.shape(node.inputs[0])
    keeps_batch = source[0] == op.shape[0]
    shape = [0 if keeps_batch and i == 0 else d for i, d in enumerate(op.shape)]
    wanted = writer.constant(f"{node.name}{writer.sep}shape", np.asarray(shape, dtype=np.int64))
    writer.emit("Reshape", [read_value(writer, node.inputs[0]), wanted], output, node.name)


def _select(writer: Writer, node: Node, op: Select, output: str) -> None:
    """A Slice where the channels follow each other, a Gather elsewhere."""
    first, last, step = op.indices[0], op.indices[-1], op.step
    if step is None or step < 0:
        chosen = writer.constant(f"{node.name}{writer.sep}indices", np.asarray(op.indices, dtype=np.int64))
        writer.emit("Gather", [read_value(writer, node.inputs[0]), chosen], output, node.name, axis=1)
        return
    bounds = {"starts": first, "ends": last + 1, "axes": 1, "steps": step}
    inputs = [writer.constant(f"{node.name}{writer.sep}{k}", np.asarray([v], dtype=np.int64)) for k, v in bounds.items()]
    writer.emit("Slice", [read_value(writer, node.inputs[0]), *inputs], output, node.name)


def _upsample(writer: Writer, node: Node, op: Upsample, output: str) -> None:
    factors = np.asarray([1, 1, op.rows, op.columns], dtype=np.float32)
    scales = writer.constant(f"{node.name}{writer.sep}scales", factors)
    writer.emit("Resize", [read_value(writer, node.inputs[0]), "", scales], output, node.name, mode="nearest",
                coordinate_transformation_mode="asymmetric", nearest_mode="floor")


def _pixel_shuffle(writer: Writer, node: Node, op: PixelShuffle, output: str) -> None:
    """DepthToSpace, or where blocks are not square what that is made of; then a Slice where something is cropped."""
    _, channels, height, width = writer.graph.shape(node.inputs[0])
    depth, source, stem = channels // op.block, read_value(writer, node.inputs[0]), f"{node.name}{writer.sep}"
    name, made = (f"{stem}shuffle", f"{stem}shuffled") if any(op.cropped) else (node.name, output)
    if op.rows == op.columns:
        writer.emit("DepthToSpace", [source], made, name, blocksize=op.rows, mode="DCR" if op.depth_first else "CRD")
    else:
        shapes = {"opened": (0, *op.inner(depth), height, width), "tall": (0, depth, height * op.rows, width * op.columns)}
        opened, tall = (writer.constant(f"{stem}{k}", np.asarray(v, dtype=np.int64)) for k, v in shapes.items())
        apart = writer.emit("Reshape", [source, opened], f"{stem}apart", f"{stem}open")
        turned = writer.emit("Transpose", [apart], f"{stem}turned", f"{stem}turn", perm=op.order)
        writer.emit("Reshape", [turned, tall], made, name)
    if any(op.cropped):
        _, _, rows, columns = writer.graph.shape(node.output)
        bounds = [writer.constant(f"{stem}{what}", np.asarray(values, dtype=np.int64)) for what, values in
                  (("starts", (0, 0)), ("ends", (rows, columns)), ("axes", (2, 3)))]
        writer.emit("Slice", [made, *bounds], output, node.name)


def _inline(writer: Writer, node: Node, content: bytes, given: Mapping[str, str], results: Mapping[str, str]) -> None:
    """The nodes of a small model, with its own constants; `results` name the outputs that are used."""
    alone = onnx.load_model_from_string(content).graph
    names, (output, *_) = {"": "", **given, **results}, results.values()
    for weight in alone.initializer:
        names[weight.name] = f"{node.name}{writer.sep}{weight.name}"
        writer.initializers[names[weight.name]] = copy = onnx_file.copied(weight)
        copy.name = names[weight.name]
    for i, original in enumerate(alone.node):
        proto = onnx_file.copied(original)
        proto.name = original.name or (node.name if i == len(alone.node) - 1 else f"{node.name}{writer.sep}{i}")
        proto.input[:] = [names[i] for i in original.input]
        proto.output[:] = [names.setdefault(o, f"{output}{writer.sep}inner_{o}") for o in original.output]
        rename_inside(proto, names, lambda inner: f"{output}{writer.sep}inner_{inner}")
        writer.domains |= domains(proto)
        writer.nodes.append(proto)


def _lookup(writer: Writer, node: Node, op: Lookup, codes: str, output: str) -> None:
    """A table in integers only: Cast, an offset (per channel where tables differ), Gather."""
    stem = f"{node.name}{writer.sep}"
    table = writer.graph.constants[node.params[0]].array
    shape = writer.graph.shape(node.output)
    offset = np.asarray(-op.lo, dtype=np.int32)
    if op.per_channel:
        offset = (np.arange(shape[1], dtype=np.int32) * TABLE_ENTRIES - op.lo).reshape((1, -1) + (1,) * (len(shape) - 2))
    wide = writer.emit("Cast", [codes], f"{stem}codes", f"{stem}cast", to=TensorProto.INT32)
    index = writer.emit("Add", [wide, writer.constant(f"{stem}offset", offset.astype(np.int32))], f"{stem}index", f"{stem}shift")
    entries = writer.constant(node.params[0], table.reshape(-1))
    writer.emit("Gather", [entries, index], output, node.name, axis=0, doc_string=op.name)


def _opaque(writer: Writer, node: Node, op: Opaque, output: str) -> None:
    _inline(writer, node, op.content, {f"x{i}": read_value(writer, t) for i, t in enumerate(node.inputs)},
            {f"y{op.index}": output})


def _function(writer: Writer, node: Node, op: Function, output: str) -> None:
    """The formula again; constants per channel in the shape that broadcasts."""
    along = (-1,) + (1,) * (len(writer.graph.shape(node.output)) - 2)
    given = {"x0": read_value(writer, node.inputs[0])}
    given |= {f"p{i}": writer.constant(p, writer.graph.constants[p].array.reshape(along)) for i, p in enumerate(node.params)}
    _inline(writer, node, op.content, given, {"y0": output})


def _stored(writer: Writer, name: str) -> str:
    """The stored integers of a tensor."""
    maker = writer.graph.producer(name)
    bare = writer.boundary is Boundary.INTEGER or (
        maker is not None and maker.op.stores and name not in writer.graph.outputs)
    return name if bare else f"{name}{writer.sep}q"


def _looked_up(writer: Writer, node: Node, scheme: Scheme) -> None:
    """Tables and thresholds need no Quantize: their entries and codes are what is stored."""
    stored = _stored(writer, node.output)
    STORED_WRITERS[type(node.op)](writer, node, node.op, _stored(writer, node.inputs[0]), stored)
    public = writer.boundary is Boundary.FLOAT and node.output in writer.graph.outputs
    if public or writer.graph.consumers(node.output):
        writer.dequantize(stored, node.output if public else f"{node.output}{writer.sep}dq", node.output, scheme)


def _coded(writer: Writer, node: Node, op: Coded, output: str) -> None:
    onnx_lq.write_coded(writer, node, op, _stored(writer, node.inputs[0]), output)


WRITERS: dict[type[Op], Callable[[Writer, Node, Any, str], None]] = {
    Add: _add, AvgPool: _avg_pool, Clip: _as_it_is("Identity"), Coded: _coded, Concat: _as_it_is("Concat", "axis"),
    Conv: _product, Function: _function, Gemm: _product, GlobalAvgPool: _as_it_is("GlobalAveragePool"), MaxPool: _max_pool,
    Mul: _as_it_is("Mul"), Opaque: _opaque, PixelShuffle: _pixel_shuffle, Reduce: _reduce, Reshape: _reshape,
    Select: _select, Transpose: _as_it_is("Transpose", "perm"), Upsample: _upsample,
}
"""How each operator is written: real values in, real values before clamp and rounding out."""
STORED_WRITERS: dict[type[Op], Callable[[Writer, Node, Any, str, str], None]] = {
    Coded: onnx_lq.write_coded, Lookup: _lookup, Thresholds: onnx_lq.write_thresholds,
}
"""How operators are written that store integers themselves (`Op.stores`): stored integers in, stored integers out."""


def writer_of(kind: type[Op]) -> Callable[[Writer, Node, Any, str], None]:
    """How an operator is written: by us, or else by the plug-in that it comes from.

    Raises:
        UnsupportedError: nobody writes it.
    """
    if kind in WRITERS:
        return WRITERS[kind]
    found: plugins.OperatorPlugin | None = plugins.by_kind("operators", kind)
    if found is None:
        raise UnsupportedError(f"{kind.__name__}: has no form in ONNX; its plug-in must be installed")
    return found.write
