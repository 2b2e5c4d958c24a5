"""From a graph to kernel calls: where tensors lie, what each layer becomes, and which layers may share a kernel.

Additions and means join the layer before them, chosen channels the dense layer behind them, concatenations become places,
flattening is a convolution over the whole map.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from dovetail import ir
from dovetail.errors import UnsupportedError
from dovetail.kernels import layers, moves
from dovetail.kernels.calls import Call, LibraryPart, Lowered, moved_call
from dovetail.kernels.items import CopiedChannels, Item, TensorLayout
from dovetail.platform.gpu_specification import Gpu

DENSE = (ir.Conv, ir.Gemm)
"""Operators whose layers read planes as well as pixels, unless they are depthwise."""
MOST_MEAN = 256
"""Pixels a program averages at most (chosen: all of them are one tile)."""


def lower(graph: ir.Graph, kind: str, gpu: Gpu, images: int = 1, library: bool = False,
          avoided: Collection[str] = ()) -> Lowered:
    """Kernel calls of a graph; `kind` is float16, bfloat16, float32, tf32 or int8.

    What has no kernel, and nodes that are `avoided`, is left to a `library` of operators, or UnsupportedError names it.
    """
    if (kind == "int8") != graph.quantized:
        needed = "a float graph; this one is quantized, take int8" if graph.quantized else \
            "a quantized graph; take float16, float32 or tf32, or quantize the model (`dovetail quantize`)"
        raise UnsupportedError(f"model {graph.name}: {kind} arithmetic needs {needed}")
    lowering = Lowering(graph, kind, gpu, images)
    for node in graph.nodes:
        if not library:
            lowering.add(node)
        elif node.name in avoided or not lowering.suits(node) or not lowering.try_to_add(node):
            lowering.leave(node)
    return lowering.finished()


class Lowering:
    """A graph on its way to kernels, node by node.

    A float graph whose `kind` is int8 is planned for, as the integers it will become; its calls are not to be run.
    """

    def __init__(self, graph: ir.Graph, kind: str, gpu: Gpu, images: int) -> None:
        self.graph, self.kind, self.gpu, self.images = graph, kind, gpu, images
        self.places: dict[str, TensorLayout] = {}
        # An input stays as the model has it where dense layers alone read it, by planes; whatever else reads it wants pixels.
        for t in graph.inputs:
            with suppress(UnsupportedError):
                self.places[t] = self._fresh(t, all(type(n.op) in DENSE and not layers.is_depthwise(graph, n)
                                                    for n in graph.consumers(t)))
        self.parts: dict[str, tuple[str, int, int]] = {}
        self.work: list[Item | Call | LibraryPart] = []
        self.held: set[str] = set()
        """Tensors that the library makes and has."""
        self.makers: dict[str, Item] = {}
        self.chosen: dict[str, tuple[str, tuple[int, ...]]] = {}
        """Channels of another tensor that only dense layers read: those read them where they are."""
        self.waiting: dict[str, tuple[ir.Node, tuple[int, ...], TensorLayout, int]] = {}
        """Choices that a concatenation will have: node, channels, where their source lies, and how much came before them."""
        self.nested: dict[tuple[str, int], ir.Node] = {}
        """By a concatenation and an index: another one whose inputs are its inputs from there on, and which lies inside it."""
        concatenations = [node for node in graph.nodes if type(node.op) is ir.Concat and node.op.axis == 1]
        for count, node in enumerate(concatenations):
            self._divide(node, concatenations[:count])

    def _fresh(self, tensor: str, planar: bool = False) -> TensorLayout:
        shape = self.graph.shape(tensor)
        if len(shape) not in (2, 4):
            raise UnsupportedError(f"tensor {tensor}: of rank {len(shape)}; GPU kernels hold images or rows of features")
        if self.graph.quantized:
            layers.byte_scheme(self.graph, tensor)
        elif self.graph.tensors[tensor].element != "float32":
            raise UnsupportedError(f"tensor {tensor}: elements are {self.graph.tensors[tensor].element}; GPU kernels hold floats")
        height, width = shape[2:] if len(shape) == 4 else (1, 1)
        return TensorLayout(tensor, self._images(shape), height, width, shape[1], shape[1], planar=planar)

    def _images(self, shape: ir.Shape) -> int:
        """Rows of the leading dimension for all images: what joins others to images has several for each."""
        own = self.graph.shape(self.graph.inputs[0])[:1] or (1,)
        images, left = divmod(self.images * shape[0], own[0])
        if shape[0] != own[0] and left:
            raise UnsupportedError(f"a batch of {self.images}: the model's own is {own[0]}; take a multiple of that")
        return self.images if shape[0] == own[0] else images

    def _divide(self, node: ir.Node, earlier: Sequence[ir.Node]) -> None:
        """Inputs of a concatenation that nothing else concatenates, in the same integers, are made where they belong; so are
        earlier concatenations of some of its inputs."""
        index, offset, whole = 0, 0, self.graph.shape(node.output)[1]
        while index < len(node.inputs):
            tensor, inner = node.inputs[index], self._inside(node, index, earlier)
            if inner is not None:
                self.nested[node.output, index] = inner
                self.parts[inner.output] = (node.output, offset, whole)
                index, tensor = index + len(inner.inputs), inner.output
            else:
                maker = self.graph.producer(tensor)
                if tensor not in self.parts and self._alike(tensor, node.output) and maker is not None \
                        and type(maker.op) is not ir.Reshape and tensor not in self.graph.outputs \
                        and node.inputs.count(tensor) == 1:
                    self.parts[tensor] = (node.output, offset, whole)
                index += 1
            offset += self.graph.shape(tensor)[1]

    def _inside(self, node: ir.Node, index: int, earlier: Sequence[ir.Node]) -> ir.Node | None:
        """The longest earlier concatenation that lies in no other, of a node's inputs from an index on."""
        found = [e for e in earlier if e.output not in self.parts and e.output not in self.graph.outputs
                 and e.inputs == node.inputs[index:index + len(e.inputs)] and self._alike(e.output, node.output)
                 and e.op.bounds is None]
        return max(found, key=lambda e: len(e.inputs), default=None)

    def _alike(self, tensor: str, other: str) -> bool:
        return self.graph.tensors[tensor].scheme == self.graph.tensors[other].scheme

    def _target(self, tensor: str) -> TensorLayout:
        """Where a tensor is to be made: by itself, or in the concatenation it is part of."""
        place, offset = self._fresh(tensor), 0
        while tensor in self.parts:
            tensor, more, pitch = self.parts[tensor]
            offset += more
            place = replace(place, buffer=tensor, pitch=pitch)
        return replace(place, offset=offset)

    def add(self, node: ir.Node) -> None:
        makers: dict[type, Callable[[ir.Node, Any], None]] = {
            ir.Conv: lambda node, op: self._layer(node, op.window, op.groups), ir.Gemm: self._fully_connected,
            ir.Add: self._sum, ir.GlobalAvgPool: self._mean, ir.Reshape: self._flat, ir.MaxPool: self._pool,
            ir.AvgPool: self._pool, ir.Concat: self._join, ir.Select: self._select, ir.Clip: self._clip,
            ir.Lookup: self._look_up, ir.Function: self._function, ir.Mul: self._multiply}
        maker = makers.get(type(node.op))
        if maker is None:
            raise UnsupportedError(f"node {node.name}: GPU kernels have no {node.op.kind}; such parts run in the integer "
                                   "interpreter or as an ONNX sub-model")
        if missing := [t for t in node.inputs if t not in self.places and t not in self.chosen]:
            self._fresh(missing[0])  # says why
        maker(node, node.op)

    def suits(self, node: ir.Node) -> bool:
        """Whether kernels may take a node: layers always, others where kernels made some of what they read."""
        return type(node.op) in DENSE or any(t not in self.held for t in node.inputs)

    def leave(self, node: ir.Node) -> None:
        """Leave a node to the library."""
        for t in node.inputs:
            if t in self.chosen and t not in self.held:
                maker = self.graph.producer(t)
                assert maker is not None
                self.leave(maker)
            if t in self.waiting:
                self._copy_along(t)
        last = self.work[-1] if self.work else None
        before = self.work.pop() if isinstance(last, LibraryPart) else LibraryPart((), {}, {})
        assert isinstance(before, LibraryPart)
        read = {t: self.places[t] for t in node.inputs if t not in self.held and t in self.places}
        self.work.append(LibraryPart((*before.nodes, node), {**before.reads, **read}, {}))
        self.held.add(node.output)
        with suppress(UnsupportedError):
            self.places[node.output] = self._target(node.output)

    def _fully_connected(self, node: ir.Node, op: ir.Gemm) -> None:
        """A flattened map is read by a kernel as large as the map."""
        x = self.places[node.inputs[0]]
        self._layer(node, ir.Window((x.height, x.width)), 1)

    def _layer(self, node: ir.Node, window: ir.Window, groups: int) -> None:
        source, channels = self.chosen.get(node.inputs[0], (node.inputs[0], None))
        x = self.places[source]
        y = self._target(node.output)

        def arranged() -> layers.LayerWeights:
            weights = layers.layer(self.graph, node, x.height, x.width)
            return weights if channels is None else layers.among(weights, channels, x.channels)

        item = Item(node, x, y, window, groups, layers.is_depthwise(self.graph, node), arranged, names=[node.name])
        self.work.append(item)
        self.makers[node.output], self.places[node.output] = item, y

    def _alone(self, tensor: str) -> bool:
        return len(self.graph.consumers(tensor)) == 1 and tensor not in self.graph.outputs

    def _sum(self, node: ir.Node, op: ir.Add) -> None:
        shapes = self.graph.input_shapes(node)
        if len(node.inputs) != 2 or shapes[0] != shapes[1] or node.inputs[0] == node.inputs[1]:
            raise UnsupportedError(f"node {node.name}: an addition of other than two tensors of one shape")
        y = self._target(node.output)
        owners = [(self.work.index(m), t, m) for t in node.inputs if (m := self.makers.get(t)) is not None and not m.depthwise
                  and m.other is None and m.activation != layers.LOOKED_UP and self._alone(t) and m.output is self.places[t]]
        if owners:
            _, own, item = max(owners, key=lambda o: o[0])
            other = self.places[next(t for t in node.inputs if t != own)]
            if self._ready(other, item):
                item.other, item.total, item.y = other, layers.addition(self.graph, node, own), y
                item.names.append(node.name)
                item.joins.append("other")
                self.makers[node.output], self.places[node.output] = item, y
                return
        x, beside = (self.places[t] for t in node.inputs)
        self._move(node, moves.add(self.kind, x, beside, y, layers.addition(self.graph, node, node.inputs[0])), y)

    def _ready(self, other: TensorLayout, item: Item) -> bool:
        """Whether a tensor is complete before an item runs."""
        later = self.work[self.work.index(item):]
        written = {w.output.buffer for w in later if not isinstance(w, LibraryPart)}
        held = {n.output for w in later if isinstance(w, LibraryPart) for n in w.nodes}
        return other.buffer not in written | {self.places[t].buffer for t in held if t in self.places}

    def _mean(self, node: ir.Node, op: ir.GlobalAvgPool) -> None:
        x, y, how = self.places[node.inputs[0]], self._target(node.output), layers.change_of(self.graph, node)
        item = self.makers.get(node.inputs[0])
        if item is not None and item.pointwise and not item.ends and self._alone(node.inputs[0]) \
                and x.height * x.width <= MOST_MEAN and item.y is x:
            item.mean, item.average = y, how
            item.names.append(node.name)
            item.joins.append("mean")
            self.places[node.output] = y
            return
        self._move(node, moves.mean(self.kind, x, y, how), y)

    def _flat(self, node: ir.Node, op: ir.Reshape) -> None:
        x, shape = self.places[node.inputs[0]], self.graph.shape(node.output)
        flattens = len(shape) == 2 and shape[1] == x.channels * x.height * x.width and not x.planar
        if not flattens or not all(type(n.op) is ir.Gemm or x.height * x.width == 1 for n in self.graph.consumers(node.output)):
            raise UnsupportedError(f"node {node.name}: GPU kernels flatten maps before fully connected layers or at the end only")
        y = x
        if not self._unchanged(node):
            y = replace(x, buffer=node.output, pitch=x.channels, offset=0)
            self._choose(node, 0, x, y, np.arange(x.channels))
        self.places[node.output] = y

    def _pool(self, node: ir.Node, op: ir.MaxPool | ir.AvgPool) -> None:
        x, y = self.places[node.inputs[0]], self._target(node.output)
        counts_pads = isinstance(op, ir.AvgPool) and (op.count_pads or not any(op.window.pads))
        how = None if op.largest and self._unchanged(node) else layers.change_of(self.graph, node)
        self._move(node, moves.pool(self.kind, x, y, op.window, op.largest, counts_pads, how), y)

    def _join(self, node: ir.Node, op: ir.Concat) -> None:
        if op.axis != 1:
            raise UnsupportedError(f"node {node.name}: GPU kernels concatenate channels only")
        y, offset, inside = self._target(node.output), 0, 0
        for index, tensor in enumerate(node.inputs):
            channels = self.graph.shape(tensor)[1]
            inner = self.nested.get((node.output, index))
            if inner is not None and self.places[inner.output].buffer == y.buffer:
                inside = index + len(inner.inputs)
            if index < inside:
                offset += channels
                continue
            if tensor in self.waiting:
                self._copy_along(tensor)
            if self.parts.get(tensor, ("",))[0] != node.output:
                part = replace(y, channels=channels, offset=y.offset + offset)
                self._choose(node, index, self.places[tensor], part, np.arange(channels))
            offset += channels
        self.places[node.output] = y

    def _select(self, node: ir.Node, op: ir.Select) -> None:
        if self._read_in_place(node, op.indices):
            self.chosen[node.output] = (node.inputs[0], op.indices)
            return
        x, y = self.places[node.inputs[0]], self._target(node.output)
        self.places[node.output] = y
        if node.output in self.parts and self._alone(node.output) and self._unchanged(node) and y.buffer != x.buffer:
            self.waiting[node.output] = (node, op.indices, x, len(self.work))
            return
        self._choose(node, 0, x, y, np.array(op.indices))

    def _copy_along(self, tensor: str) -> None:
        """A choice that is concatenated is copied by the last kernel of a layer over as many pixels, or by one of its own."""
        node, indices, x, since = self.waiting.pop(tensor)
        y = self.places[tensor]
        for item in reversed(self.work[since:]):
            if isinstance(item, Item) and not item.depthwise and item.mean is None and item.along is None \
                    and (item.y.pixels, item.y.height) == (y.pixels, y.height):
                item.along = CopiedChannels(node.name, x, y, indices)
                return
        self._choose(node, 0, x, y, np.array(indices))

    def _unchanged(self, node: ir.Node, index: int = 0) -> bool:
        """Whether a movement keeps its values as they are stored."""
        schemes = [self.graph.tensors[t].scheme for t in (node.inputs[index], node.output)]
        return node.op.bounds is None and schemes[0] == schemes[1]

    def _read_in_place(self, node: ir.Node, indices: tuple[int, ...]) -> bool:
        """Whether only dense layers read chosen channels, each of them once: they may read the whole tensor instead."""
        whole, same = self.places.get(node.inputs[0]), self._unchanged(node)
        readers = self.graph.consumers(node.output)
        dense = bool(readers) and all(layers.groups_of(r) == 1 for r in readers)
        return same and dense and whole is not None and not whole.planar and len(set(indices)) == len(indices) \
            and node.output not in self.graph.outputs

    def _clip(self, node: ir.Node, op: ir.Clip) -> None:
        y = self._target(node.output)
        self._choose(node, 0, self.places[node.inputs[0]], y, np.arange(y.channels))
        self.places[node.output] = y

    def _choose(self, node: ir.Node, index: int, x: TensorLayout, y: TensorLayout, channels: ir.Array,
                activation: int = 0) -> None:
        same = self._unchanged(node, index) and not activation
        how = None if same else layers.change_of(self.graph, node, index)
        self._move(node, moves.chosen(self.kind, x, y, channels, how, activation), y)

    def _function(self, node: ir.Node, op: ir.Function) -> None:
        """A function of floats joins the layer before it, if nothing else reads that; one of bytes is planned as its table."""
        if self.graph.quantized:
            raise UnsupportedError(f"node {node.name}: {op.kind} between integers that is no table; "
                                   "`numerics.tables.tabulate` makes it one")
        if op.name not in layers.ACTIVATIONS or op.per_channel:
            raise UnsupportedError(f"node {node.name}: GPU kernels have no {op.kind}; they know {', '.join(layers.ACTIVATIONS)}")
        x, y, activation = self.places[node.inputs[0]], self._target(node.output), layers.ACTIVATIONS[op.name]
        if not self._activate(node, y, layers.LOOKED_UP if self.kind == "int8" else activation, None):
            if self.kind == "int8":
                self._move(node, moves.MoveLaunch("looked_up", (x, y), {}, y.pixels), y)
            else:
                self._choose(node, 0, x, y, np.arange(y.channels), activation)

    def _activate(self, node: ir.Node, y: TensorLayout, activation: int, table: ir.Array | None) -> bool:
        """Whether an activation joins the layer before it: if nothing else reads that, and nothing joined it before."""
        source = node.inputs[0]
        item = self.makers.get(source)
        if item is None or item.joins or not self._alone(source) or item.y is not self.places[source]:
            return False
        item.activation, item.table, item.y = activation, table, y
        item.names.append(node.name)
        item.joins.append("activation")
        self.makers[node.output], self.places[node.output] = item, y
        return True

    def _multiply(self, node: ir.Node, op: ir.Mul) -> None:
        """A product of tensors of one shape, or with a gate: one value per image and channel."""
        shape, shapes = self.graph.shape(node.output), self.graph.input_shapes(node)
        gates = [s for s in shapes if s != shape]
        if gates not in ([], [(shape[0], shape[1], 1, 1)]):
            raise UnsupportedError(f"node {node.name}: GPU kernels multiply tensors of one shape, or by one value per channel")
        order = sorted(range(2), key=lambda i: shapes[i] != shape)
        (x, other), y = (self.places[node.inputs[i]] for i in order), self._target(node.output)
        how, beside = (layers.change_of(self.graph, node, i) for i in order)
        self._move(node, moves.multiplied(self.kind, x, other, y, bool(gates), how, beside), y)

    def _look_up(self, node: ir.Node, op: ir.Lookup) -> None:
        x, y = self.places[node.inputs[0]], self._target(node.output)
        offset = layers.offset_of(layers.byte_scheme(self.graph, node.output))
        table = (self.graph.params(node)[0].array.astype(np.int32) - offset).astype(np.int8).reshape(-1)
        if op.per_channel or not self._activate(node, y, layers.LOOKED_UP, table):
            self._move(node, moves.looked_up(x, table, y, op.per_channel), y)

    def _move(self, node: ir.Node, move: moves.MoveLaunch, y: TensorLayout) -> None:
        self.work.append(moved_call(self.gpu, self.kind, node.name, move, y))
        self.places[node.output] = y

    def try_to_add(self, node: ir.Node) -> bool:
        """Whether a node has kernels; what it makes has a place, if it can have one, either way."""
        before = len(self.work)
        try:
            if all(t in self.places or t in self.chosen for t in node.inputs):
                self.add(node)
                return True
        except UnsupportedError:
            del self.work[before:]
        with suppress(UnsupportedError):
            self.places[node.output] = self._fresh(node.output)
        return False

    def finished(self) -> Lowered:
        """The graph as runs of layers and calls."""
        inputs = {t: self.places[t] for t in self.graph.inputs if t in self.places}
        outputs = {t: self.places[t] for t in self.graph.outputs if t in self.places and t not in self.held}
        self._put_back({place.buffer for place in outputs.values()})
        return Lowered(inputs, outputs, self.runs(through=True), self.kind, self.gpu, self.images)

    def _put_back(self, read: set[str]) -> None:
        """Let the library put what it makes where kernels, or outputs that are `read`, have it."""
        for w in self.work:
            if isinstance(w, Item):
                places = [w.x, w.other, w.along.source if w.along is not None else None]
            else:
                places = [*w.reads.values()] if isinstance(w, LibraryPart) else \
                    [o for o in w.operands if isinstance(o, TensorLayout) and o is not w.output]
            read |= {place.buffer for place in places if place is not None}
        for i, w in enumerate(self.work):
            if isinstance(w, LibraryPart):
                writes = {n.output: self.places[n.output] for n in w.nodes
                          if n.output in self.places and self.places[n.output].buffer in read}
                self.work[i] = replace(w, writes=writes)

    def runs(self, through: bool = False) -> tuple[tuple[Item, ...] | Call | LibraryPart, ...]:
        """Runs of layers, each the only reader of the one before; `through`: or one of several, for whom its output is kept."""
        runs: list[list[Item] | Call | LibraryPart] = []
        for item in self.work:
            last = runs[-1] if runs else None
            if isinstance(item, Item) and isinstance(last, list) and self._follows(last[-1], item, through):
                last[-1].kept = not self._alone(item.node.inputs[0])
                last.append(item)
            else:
                runs.append([item] if isinstance(item, Item) else item)
        return tuple(tuple(r) if isinstance(r, list) else r for r in runs)

    def _follows(self, before: Item, item: Item, through: bool) -> bool:
        tensor = item.node.inputs[0]
        made = self.makers.get(tensor)
        return made is before and before.mean is None and (through or self._alone(tensor)) and item.x is before.y
