"""The import of an ONNX file as one ordered list of steps: what each requires, and what it ensures for those after it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from onnx import ModelProto

from dovetail.errors import ModelError, UnsupportedError, UsageError
from dovetail.ir import Graph, Shape
from dovetail.ir.folder import PREPROCESSOR, Described, Normalisation, described
from dovetail.ir.onnx import file as onnx_file
from dovetail.ir.onnx import lq as onnx_lq
from dovetail.ir.onnx.boundary import build_graph, read_inputs
from dovetail.ir.onnx.branches import decided, made_by_branches, take_weights, taken
from dovetail.ir.onnx.clusters import Cluster, Item, TableNodes, grouped
from dovetail.ir.onnx.constants import compute_constants
from dovetail.ir.onnx.dialect import modernised, read_as_single
from dovetail.ir.onnx.foreign import target_opset
from dovetail.ir.onnx.integer import expand, expanded, in_floats, is_qonnx
from dovetail.ir.onnx.layout import sink_transposes
from dovetail.ir.onnx.pointwise import read_alone, read_cluster, read_table
from dovetail.ir.onnx.prepare import LITE, check_inputs, check_opsets, check_outputs, check_size, inlined, ordered, print_names
from dovetail.ir.onnx.qonnx_thresholds import code_layers
from dovetail.ir.onnx.quantizers import in_integers, passed_on, restated
from dovetail.ir.onnx.readers import reader_of
from dovetail.ir.onnx.rows import lift, lifts
from dovetail.ir.onnx.state import MALFORMED, Reader, malformed
from dovetail.ir.onnx.write import to_onnx
from dovetail.ir.operators.lq import narrow_codes
from dovetail.ir.passes import drop_still, fold_activations, fold_affine, sink_shuffles, turn_weights
from dovetail.ir.schemes import keep_floats, narrow_inputs, settle_parameters, spread_schemes
from dovetail.ir.tflite.calls import read_call

QUANTIZERS = ("QuantizeLinear", "DequantizeLinear")
ANY_ELEMENT = ("Identity", "Dropout", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Shape", "DequantizeLinear", "Transpose",
               "Split", "Slice", "Gather")
"""Operators that only pass values on, whatever their type."""


def _read_item(reader: Reader, item: Item) -> None:
    """A formula or a table as one operator, everything else node by node."""
    if isinstance(item, TableNodes):
        known = read_table(reader, item)
    elif isinstance(item, Cluster):
        known = read_cluster(reader, item)
    else:
        read_node(reader, item)
        return
    if not known:
        for node in item.nodes:
            read_node(reader, node)


def read_node(reader: Reader, node: Any) -> None:
    """A typed operator where one fits, a folded constant where nothing moves, else the node as it is."""
    if node.domain == onnx_lq.DOMAIN:
        onnx_lq.read(reader, node)
        return
    if node.domain == LITE:
        read_call(reader, node)
        return
    meant = expanded(node, reader.where) or (None if is_qonnx(node) else in_integers(reader, node))
    if meant is not None:
        for part in meant:
            read_node(reader, part)
        return
    _read_as_it_is(reader, node)
    passed_on(reader, node)


def _read_as_it_is(reader: Reader, node: Any) -> None:
    """A node whose operator need not be rewritten, nor what it reads."""
    if decided(reader, node):
        for inner in taken(reader, node):
            read_node(reader, inner)
        return
    if lifts(reader, node):
        lift(reader, node, read_node)
        return
    inputs = [i for i in node.input if i]
    typed = node.domain in ("", "ai.onnx") or is_qonnx(node)
    read = reader_of(node.op_type) if typed else None
    moving = [reader.tensors[t] for i in inputs if (t := reader.tensor(i)) in reader.tensors]
    if inputs and not moving and all(i in reader.constants for i in inputs) and not is_qonnx(node) \
            and node.op_type not in (*QUANTIZERS, "Identity"):
        reader.add_foreign(node)
        return
    if read is not None and (node.op_type in ANY_ELEMENT or all(t.element == "float32" for t in moving)):
        try:
            read(reader, node, onnx_file.attributes_of(node, reader.where))
            return
        except UnsupportedError as reason:
            if any(i in reader.padding for i in inputs):
                raise
            reader.reasons[next(o for o in node.output if o)] = str(reason).removeprefix(f"{reader.where}: ")
    if is_qonnx(node):
        for part in in_floats(node, reader.where):
            read_node(reader, part)
        return
    if typed and node.op_type == "DequantizeLinear" and (parts := restated(reader, node)) is not None:
        for part in parts:
            read_node(reader, part)
        return
    if not read_alone(reader, node):
        reader.add_foreign(node, made_by_branches(reader, node, read_node) if node.op_type == "If" else ())


@dataclass(frozen=True, slots=True)
class Imported:
    """A graph with where it came from and what was assumed on the way in."""

    graph: Graph
    sha256: str
    notes: tuple[str, ...] = ()
    file: str = ""
    """Name of the file; of a model in memory that of its network, as if it had been a file."""
    labels: tuple[str, ...] = ()
    """Names of classes, in order, where a model folder has them."""
    normalisation: Normalisation | None = None
    """How pixels become frames, where a model folder says so."""


Source = str | Path | bytes | ModelProto | Graph | Imported
"""Where a network comes from: a file, its bytes, a parsed protobuf, a graph, or what was imported before."""


@dataclass(frozen=True, slots=True)
class Draft:
    """A model on its way in: a file first, then ONNX nodes, then nodes being read, then a graph."""

    path: Path
    """Of the file; of a model in memory its name."""
    shapes: Mapping[str, Shape]
    """Shapes of inputs, by name, as the user states them."""
    name: str = ""
    """What the network is called; as the model says where this is empty."""
    content: bytes | ModelProto | None = None
    """A model in memory."""
    said: Described | None = None
    """What a model folder says beside its file."""
    model: Any = None
    """The parsed protobuf; steps before reading rewrite it."""
    sha256: str = ""
    nodes: tuple[Any, ...] = ()
    """The ONNX nodes that some output depends on, in the order of their use."""
    reader: Reader | None = None
    inputs: tuple[str, ...] = ()
    graph: Graph | None = None
    notes: tuple[str, ...] = ()
    """What was assumed on the way."""

    @property
    def where(self) -> str:
        return str(self.path)

    @property
    def read(self) -> Reader:
        """The nodes read so far."""
        assert self.reader is not None
        return self.reader


@dataclass(frozen=True, slots=True)
class ImportStep:
    """One step: it may rely on what it `requires`, and leaves behind what it `ensures`."""

    name: str
    requires: tuple[str, ...]
    ensures: str
    run: Callable[[Draft], Draft]


def _parse(draft: Draft) -> Draft:
    model, digest, notes = onnx_file.load(draft.path) if draft.content is None else onnx_file.whole(draft.content, draft.where)
    model.graph.name = draft.name or model.graph.name
    return replace(draft, model=model, sha256=digest, notes=notes)


def _in_place(change: Callable[[Any, str], tuple[str, ...] | None]) -> Callable[[Draft], Draft]:
    """A step that checks or rewrites the protobuf where it is, and perhaps has notes."""
    def run(draft: Draft) -> Draft:
        return replace(draft, notes=(*draft.notes, *(change(draft.model, draft.where) or ())))
    return run


def _rewritten(change: Callable[[Any, str], Any]) -> Callable[[Draft], Draft]:
    """A step that makes another protobuf of the one before."""
    return lambda draft: replace(draft, model=change(draft.model, draft.where))


def _damaged(step: Callable[[Draft], Draft]) -> Callable[[Draft], Draft]:
    """A step over nodes that nobody has checked yet: what contradicts itself there is the file's fault."""
    def run(draft: Draft) -> Draft:
        try:
            return step(draft)
        except MALFORMED as error:
            raise malformed(draft.where, "a node", error) from None
    return run


def _read_constants(draft: Draft) -> Draft:
    model = draft.model
    reader = Reader(draft.where, target_opset(model), {o.name: {""} for o in model.graph.output},
                    traces=model.producer_name != onnx_file.PRODUCER)
    reader.note_users(draft.nodes)
    take_weights(reader, model.graph)
    return replace(draft, reader=reader)


def _shapes(draft: Draft) -> Mapping[str, Shape]:
    """The shapes that are stated, else that of the one image a folder describes where the file leaves it open."""
    inputs = [v for v in draft.model.graph.input if v.name not in draft.read.constants]
    image = draft.said.image if draft.said is not None else ()
    if draft.shapes or not image or len(inputs) != 1 or len(dims := inputs[0].type.tensor_type.shape.dim) != 4 \
            or all(d.dim_value > 0 for d in dims[1:]):
        return draft.shapes
    return {inputs[0].name: (1, *image)}


def _read_nodes(draft: Draft) -> Draft:
    """All nodes of the file in order; one that contradicts itself is named."""
    for item in grouped(draft.model, draft.nodes):
        node = item.nodes[-1] if isinstance(item, Cluster | TableNodes) else item
        try:
            _read_item(draft.read, item)
        except MALFORMED as error:
            raise malformed(draft.where, f"node {node.name or node.op_type}", error) from None
    return draft


def _code_layers(draft: Draft) -> Draft:
    code_layers(draft.read)
    return draft


def _build(draft: Draft) -> Draft:
    graph = build_graph(draft.read, draft.model, draft.inputs)
    foreign = [f"kept as it is, for the CPU: {why}" for output, why in draft.read.reasons.items() if output in graph.tensors]
    return replace(draft, graph=graph, notes=(*draft.notes, *draft.read.notes, *foreign))


def _on_graph(change: Callable[[Graph], Graph]) -> Callable[[Draft], Draft]:
    """A step that makes another graph of the one before."""
    def run(draft: Draft) -> Draft:
        assert draft.graph is not None
        return replace(draft, graph=change(draft.graph))
    return run


STEPS = (
    # The file.
    ImportStep("parse the file", (), "a protobuf with nodes, of bounded size", _parse),
    ImportStep("count nodes", ("a protobuf with nodes, of bounded size",), "a bounded number of nodes", _in_place(check_size)),
    ImportStep("print names", ("a bounded number of nodes",), "names of one printable line", _in_place(print_names)),
    ImportStep("check opsets", ("names of one printable line",), "operators of known meaning", _in_place(check_opsets)),
    ImportStep("check outputs", ("a protobuf with nodes, of bounded size",), "outputs", _in_place(check_outputs)),
    ImportStep("inline functions", ("names of one printable line",), "no calls but of operators of ours", _rewritten(inlined)),
    # The ONNX nodes.
    ImportStep("raise old opsets", ("no calls but of operators of ours", "operators of known meaning"),
               "operators as we write them, where the onnx package converts", _rewritten(modernised)),
    ImportStep("check inputs", ("no calls but of operators of ours",), "nodes of as many inputs as their operators have",
               _in_place(check_inputs)),
    ImportStep("read as single precision", ("no calls but of operators of ours",), "one float type",
               _damaged(_in_place(read_as_single))),
    ImportStep("compute constants", ("one float type", "operators as we write them, where the onnx package converts"),
               "no node over constants alone", _damaged(_in_place(compute_constants))),
    ImportStep("expand integer operators", ("no node over constants alone",), "plain operators around DequantizeLinear",
               _damaged(_in_place(expand))),
    ImportStep("sink transposes", ("one float type", "plain operators around DequantizeLinear"),
               "channels first, where transposes cancel", _damaged(_in_place(sink_transposes))),
    ImportStep("order nodes", ("outputs", "no calls but of operators of ours"), "needed nodes, each after those it reads",
               lambda draft: replace(draft, nodes=tuple(ordered(draft.model.graph, draft.where)))),
    # The nodes being read.
    ImportStep("read constants", ("one float type", "needed nodes, each after those it reads"), "constants as arrays",
               _read_constants),
    ImportStep("read inputs", ("constants as arrays",), "inputs with shapes",
               lambda draft: replace(draft, inputs=read_inputs(draft.read, draft.model, _shapes(draft)))),
    ImportStep("read nodes", ("inputs with shapes", "needed nodes, each after those it reads",
                              "channels first, where transposes cancel"), "typed or foreign nodes", _read_nodes),
    ImportStep("code layers between codes", ("typed or foreign nodes",), "layers of codes with a bias of their own digits",
               _code_layers),
    ImportStep("build the graph", ("typed or foreign nodes", "outputs"), "a checked graph under public names", _build),
    # The graph. Affine folding exposes Conv → Clip; activation folding then leaves one node per layer.
    ImportStep("sink pixel shuffles", ("a checked graph under public names",), "BatchNorm and activations right behind layers",
               _on_graph(sink_shuffles)),
    ImportStep("fold affine layers", ("BatchNorm and activations right behind layers",), "no BatchNorm behind a layer",
               _on_graph(fold_affine)),
    ImportStep("fold activations", ("no BatchNorm behind a layer",), "activations inside their layers",
               _on_graph(fold_activations)),
    ImportStep("spread schemes", ("activations inside their layers",), "moved values with the scheme of their source",
               _on_graph(spread_schemes)),
    ImportStep("narrow codes", ("moved values with the scheme of their source",), "codes in the bits of their thresholds",
               _on_graph(narrow_codes)),
    ImportStep("narrow inputs", ("moved values with the scheme of their source",), "limited inputs in fewer bits",
               _on_graph(narrow_inputs)),
    ImportStep("turn weights", ("moved values with the scheme of their source",), "flattened maps read as they are",
               _on_graph(turn_weights)),
    ImportStep("settle parameters", ("moved values with the scheme of their source", "flattened maps read as they are"),
               "integer parameters between integers", _on_graph(settle_parameters)),
    ImportStep("keep floats", ("integer parameters between integers",), "nodes on floats, in a quantized graph, as foreign ones",
               _on_graph(keep_floats)),
    ImportStep("drop still reshapes", ("nodes on floats, in a quantized graph, as foreign ones",), "no reshape to the same shape",
               _on_graph(drop_still)),
)
"""The import, in order. What a step requires, an earlier one ensures."""


def read_model(source: Source, shapes: Mapping[str, Shape] | None = None) -> Imported:
    """As `read_onnx`; a network from a file is called as the file is, without its ending, and one from a folder as the folder."""
    if not isinstance(source, str | Path):
        return read_onnx(source, shapes)
    path = Path(source)
    return read_onnx(path, shapes, path.resolve().name if path.is_dir() else path.stem)


def read_onnx(source: Source, shapes: Mapping[str, Shape] | None = None, name: str = "") -> Imported:
    """Read a float or quantized model (QDQ, QOperator, QONNX), or a model folder; folds BatchNorm and activations.

    A symbolic batch becomes 1 with a note; other symbolic dimensions need `shapes` (input name to shape). The network keeps its
    name unless another is given. An error names the file; its notes name the step that failed and those before it.

    Raises:
        UsageError: shapes are given for a graph, which has them.
    """
    if isinstance(source, Graph | Imported):
        return _known(source, shapes, name)
    draft = _drafted(source, shapes or {}, name)
    for i, step in enumerate(STEPS):
        try:
            draft = step.run(draft)
        except Exception as error:
            if isinstance(error, ModelError | UnsupportedError) and not str(error).startswith(draft.where):
                error = type(error)(f"{draft.where}: {error}")  # tensors and passes know nothing of files
            error.add_note(f"import step: {step.name}; done before: {', '.join(s.name for s in STEPS[:i]) or 'nothing'}")
            raise error from None
    assert draft.graph is not None
    file = draft.path.name if draft.content is None else f"{draft.graph.name}.onnx"
    said, notes = draft.said or Described(draft.path), draft.notes
    if said.normalisation is not None:
        notes = (*notes, f"frames are {said.normalisation}, as {PREPROCESSOR} says")
    return Imported(draft.graph, draft.sha256, notes, file, said.labels, said.normalisation)


def _drafted(source: str | Path | bytes | ModelProto, shapes: Mapping[str, Shape], name: str) -> Draft:
    if isinstance(source, str | Path):
        said = described(Path(source))
        return Draft(said.file, shapes, name, said=said)
    own = "" if isinstance(source, bytes) or not source.graph.name.isprintable() else source.graph.name
    return Draft(Path(name or own or "model"), shapes, name, source)


def _known(source: Graph | Imported, shapes: Mapping[str, Shape] | None, name: str) -> Imported:
    """A network that was read before, perhaps under another name."""
    found = source if isinstance(source, Imported) else \
        Imported(source, sha256(to_onnx(source)).hexdigest(), (), f"{source.name}.onnx")
    if shapes:
        raise UsageError(f"model {found.graph.name}: shapes are given for {', '.join(shapes)}, but a graph has its shapes; leave "
                         "them out")
    return found if not name else replace(found, graph=replace(found.graph, name=name))
