"""What reusable engines work on: the layers of a block of nodes, and which nodes they refuse.

A block is a part of a graph that one tensor enters and one leaves. Its layers are what one engine does in one go: a convolution,
a fully connected layer, a pooling, a product of maps or an activation by itself, with the residual addition behind a convolution
and the table behind any of them fused into its writing. Maps lie in memories as words of `Config.inputs` channels of a pixel; the
last word of a pixel is filled up with zeros.

An array multiplies bytes, or it counts bits (`Config.counts`): then every layer is a sum over planes of bits of its weights and
of its input, so that codes of one to four bits and plain integers of up to 16 share one array.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil, log2, prod

import numpy as np

from dovetail.errors import UnsupportedError, UsageError
from dovetail.hardware.arrays import refusals
from dovetail.hardware.arrays.refusals import ACTIVATION_BITS, COUNTED_BITS
from dovetail.hardware.scans import stream_shape, window_of
from dovetail.ir import Add, Graph, Lookup, Node, Window
from dovetail.ir.operators.lq import steps_of
from dovetail.words import counted, plural

MASTERS = (1, 2, 4)
"""Masters that a beat may be striped over."""
RATE_STEPS = 16
"""Steps of a byte per clock that memory's rate is stated in."""
PACKED_TERMS = 4
"""Packed products that may be added before the lower one of the two leaves its field (`hardware.folds.twin_sums`)."""


@dataclass(frozen=True, slots=True)
class Config:
    """Sizes of a block of reusable engines.

    The array multiplies `inputs` channels with the weights of `outputs` filters in a clock; the depthwise array `inputs`
    channels with `taps` taps of a window of at most `kernel` rows and columns. `monolithic` lets the first `inputs` filters
    of the array do the depthwise work too, one after the other with its own. With `overlap` a depthwise layer runs behind
    the convolution that feeds it, filter block by filter block, and the map between them is never stored as a whole.
    """

    inputs: int
    outputs: int
    taps: int = 9
    kernel: int = 3
    monolithic: bool = False
    overlap: bool = True
    port_bytes: int = 16
    """Bytes of a beat of the memory port."""
    bandwidth_bytes: float = 16
    """Bytes that the memory delivers in a clock, at most `port_bytes`; a whole number of sixteenths."""
    latency_clocks: int = 64
    """Clocks from a request to its first beat."""
    input_buffers: int = 2
    """Frames that the input buffer holds: with two, one is loaded while the other is worked on."""
    packed: bool = False
    """Whether a multiplier of the array makes the products of two filters (DSP48E2: 27 x 18 bits)."""
    map_bytes: int = 0
    """Bytes that a memory of maps may have; larger maps lie in external memory. 0: all of them lie on the chip."""

    soft: int = 0
    """Filters of the array whose products are made in logic, for devices whose multipliers run out."""
    weight_planes: int = 0
    input_planes: int = 0
    """Planes of bits of weights and of inputs that the array counts in a clock; 0: it multiplies bytes."""
    value_bits: int = 8
    """Bits of a value in the memories of maps."""
    thresholds: int = 0
    """Thresholds of a filter, at the most, where the array counts bits."""
    masters: int = 1
    """Masters of the memory's bus that a beat is striped over, equal parts each."""

    def __post_init__(self) -> None:
        if min(self.inputs, self.outputs, self.taps, self.kernel, self.port_bytes, self.bandwidth_bytes) < 1:
            raise UsageError(f"reusable engines {self}: a size is below 1; every size must be positive")
        if self.outputs % self.inputs:
            raise UsageError(f"reusable engines {self}: {self.outputs} filters at once; a multiple of {self.inputs} is needed, "
                             "since they are written in words of as many channels as are read")
        if self.monolithic and self.taps > self.inputs:
            raise UsageError(f"reusable engines {self}: {self.taps} taps at once; a lane of the one array "
                             f"has {self.inputs} products")
        if self.packed and (self.monolithic or self.outputs % 2):
            raise UsageError(f"reusable engines {self}: two products in a multiplier; an even number of filters at once and an "
                             "array without depthwise work are needed")
        if not 0 <= self.soft <= self.outputs or (self.soft and (self.packed or self.monolithic)):
            raise UsageError(f"reusable engines {self}: {self.soft} filters in logic; none to all {self.outputs} of an array of "
                             "its own, with one product in a multiplier, are possible")
        if (self.bandwidth_bytes > self.port_bytes or self.input_buffers not in (1, 2)
                or min(self.latency_clocks, self.map_bytes) < 0):
            raise UsageError(f"reusable engines {self}: at most {self.port_bytes} bytes a clock, one or two input buffers and no "
                             "negative latency or memory are possible")
        if self.masters not in MASTERS or self.port_bytes % self.masters or self.bandwidth_bytes * RATE_STEPS % 1:
            raise UsageError(f"reusable engines {self}: {self.port_bytes} bytes over {self.masters} masters, "
                             f"{self.bandwidth_bytes:g} a clock; {', '.join(map(str, MASTERS))} masters with equal parts, and a "
                             f"rate in {RATE_STEPS}ths of a byte are possible")
        if bool(self.weight_planes) != bool(self.input_planes) or min(self.weight_planes, self.input_planes) < 0 or (
                self.counts and (self.monolithic or self.packed or self.soft)):
            raise UsageError(f"reusable engines {self}: {self.weight_planes} x {self.input_planes} planes of bits; an array that "
                             "counts bits has planes on both sides and no products")
        if not 1 <= self.value_bits <= COUNTED_BITS or (not self.counts and self.value_bits != ACTIVATION_BITS) or (
                self.map_bytes and self.word_bits % 8):
            raise UsageError(f"reusable engines {self}: values of {self.value_bits} bits; 1 to {COUNTED_BITS} are possible where "
                             "bits are counted, in words of whole bytes where maps lie in external memory")

    def __str__(self) -> str:
        kind = "monolithic" if self.monolithic else "reusable"
        maps = f", maps in {self.map_bytes / 1024:g} KiB" if self.map_bytes else ""
        soft = f" ({self.soft} in logic)" if self.soft else ""
        if self.counts:
            return (f"{kind} {self.inputs}x{self.outputs} of {self.weight_planes}x{self.input_planes} planes, "
                    f"{self.value_bits}-bit values{maps}")
        return f"{kind} {self.inputs}x{self.outputs}{soft}{'/2' if self.packed else ''}+{self.taps}{maps}"

    @property
    def counts(self) -> bool:
        """Whether the array counts bits."""
        return self.weight_planes > 0

    @property
    def pairs(self) -> int:
        """Pairs of planes that are counted at once."""
        return self.weight_planes * self.input_planes

    @property
    def word_bits(self) -> int:
        """Bits of a word of a map."""
        return self.inputs * self.value_bits

    @property
    def packed_sums(self) -> int:
        """Sums of packed products that are taken apart before they are added on."""
        return -(-self.inputs // PACKED_TERMS)

    @property
    def tree_levels(self) -> int:
        """Clock edges from the products of the array to their sum."""
        if not self.packed:
            return ceil(log2(self.inputs))
        return ceil(log2(-(-self.inputs // self.packed_sums))) + 1 + ceil(log2(self.packed_sums))

    @property
    def block_words(self) -> int:
        """Words of a pixel that a filter block fills."""
        return self.outputs // self.inputs

    def words(self, channels: int) -> int:
        """Words of a pixel of so many channels."""
        return -(-channels // self.inputs)

    def phases(self, window: Window) -> int:
        """Clocks that the depthwise array spends on an output."""
        return -(-max(window.kernel) ** 2 // self.taps)


@dataclass(frozen=True, slots=True)
class Map:
    """A tensor as it lies in memory."""

    channels: int
    height: int
    width: int

    @property
    def pixels(self) -> int:
        return self.height * self.width


@dataclass(frozen=True, slots=True)
class ArrayLayer:
    """What one engine does in one go; `node` computes, `add` is the residual addition behind it.

    `residual` is the other operand of the addition, or of the product where it is `gated`.
    """

    node: str
    add: str | None
    source: str
    target: str
    residual: str | None
    reads: Map
    writes: Map
    window: Window
    groups: int
    plain: bool
    """Whether it has no weights: a sum of its taps, an average of them, or the value itself."""
    largest: bool
    """Whether it takes the largest of its taps."""
    whole: bool
    """Whether it averages over the whole map."""
    weight_bits: int = ACTIVATION_BITS
    input_bits: int = ACTIVATION_BITS
    """Planes of bits of its weights and of its input."""
    signs: bool = False
    """Whether bits of its weights mean +1 and -1, not 1 and 0."""
    value_bits: int = ACTIVATION_BITS
    """Bits of the widest value it reads or writes."""
    thresholds: int = 0
    """Thresholds of a filter, where it writes codes."""
    factor_bits: int = 1
    """Bits of what counts of a pair of planes are multiplied with, sign aside."""
    gated: bool = False
    """Whether it multiplies its source with `residual`: a map of the same shape, or one value per channel."""
    table: str | None = None
    """The node whose table its outputs are looked up in: of several nodes with equal tables the first."""

    def filtered(self, config: Config) -> bool:
        """Whether the depthwise array does it."""
        if config.counts:
            return self.largest
        if self.whole:
            return True
        channelwise = self.groups == self.reads.channels == self.writes.channels and self.residual is None
        return channelwise and max(self.window.kernel) <= config.kernel and refusals.follows(self.window, self.reads.width)

    def owned(self, config: Config) -> bool:
        """Whether words hold channels that are not its filters' own, which signs would count: a plane of ones leaves them out."""
        return self.signs and (self.groups > 1 or self.reads.channels % config.inputs > 0)

    def turns(self, config: Config) -> int:
        """Groups of planes of weights that are worked on one after the other."""
        return -(-(self.weight_bits + self.owned(config)) // config.weight_planes) if config.counts else 1

    def rounds(self, config: Config) -> int:
        """Groups of planes of inputs, likewise, for every group of planes of weights."""
        return -(-self.input_bits // config.input_planes) if config.counts else 1

    @property
    def macs(self) -> int:
        return prod(self.window.kernel) * self.reads.channels // self.groups * self.writes.channels * self.writes.pixels


def tables_of(layers: Sequence[ArrayLayer], config: Config) -> tuple[list[str], list[str]]:
    """The nodes whose tables the array's finishing has, and those of the depthwise array's, in order."""
    found: tuple[dict[str, None], dict[str, None]] = {}, {}
    for layer in layers:
        if layer.table is not None:
            found[layer.filtered(config)].setdefault(layer.table)
    return list(found[0]), list(found[1])


def counts_bits(graph: Graph) -> bool:
    """Whether a network's arrays must count bits: it has codes."""
    return any(node.op.learned for node in graph.nodes)


def counted_values(graph: Graph) -> tuple[int, int]:
    """Bits of the widest value that arrays which count bits work on, and thresholds of a filter, at the most."""
    sizes = [t.scheme.bits for t in graph.tensors.values() if t.scheme is not None and t.scheme.bits <= COUNTED_BITS]
    codes = [n.op.code_bits for n in graph.nodes]
    return max(sizes, default=ACTIVATION_BITS), steps_of(max(codes)) if any(codes) else 0


@dataclass(frozen=True, slots=True)
class ArrayLayers:
    """The layers of a block in order, the tensors that enter and leave; flattened tensors go by their map's name."""

    layers: tuple[ArrayLayer, ...]
    entry: str
    exit: str
    maps: dict[str, Map]


def layers_of(graph: Graph, nodes: Sequence[str], counts: bool = False) -> ArrayLayers:
    """The layers of these nodes; raises UnsupportedError where they are no block or a node is refused."""
    chosen = [n for n in graph.nodes if n.name in set(nodes)]
    for node in chosen:
        if (reason := refusals.reason_refused(graph, node, counts)) is not None:
            raise UnsupportedError(f"node {node.name}: cannot run on reusable engines, {reason}; leave it out of the block")
    alias: dict[str, str] = {}
    for node in chosen:
        if node.op.still:
            alias[node.output] = alias.get(node.inputs[0], node.inputs[0])
    entry, last = _ends(graph, chosen, alias)
    adds, (tables, fused) = _fused_adds(graph, chosen), _tables(graph, chosen)
    made = []
    for node in chosen:
        if not (node.op.still or isinstance(node.op, Add) or node.output in fused.values()):
            layer = _layer(graph, node, adds.get(node.output), alias)
            target = fused.get(layer.target, layer.target)
            made.append(replace(layer, target=target, table=tables.get(target)))
    known = {entry: _map(graph, entry), **{layer.target: layer.writes for layer in made}}
    ordered = _in_order(made, entry)
    return ArrayLayers(ordered, entry, last, known)


def _ends(graph: Graph, chosen: Sequence[Node], alias: dict[str, str]) -> tuple[str, str]:
    made = {n.output for n in chosen}
    entering = {t for n in chosen for t in n.inputs} - made
    names = {n.name for n in chosen}
    leaving = {alias.get(t, t) for t in made if t in graph.outputs or any(c.name not in names for c in graph.consumers(t))}
    if len(entering) != 1 or len(leaving) != 1 or leaving & entering:
        raise UnsupportedError(f"block of reusable engines: {counted(len(entering), 'tensor')} "
                               f"{plural(len(entering), 'enters', 'enter')} ({', '.join(sorted(entering))}), {len(leaving)} "
                               f"{plural(len(leaving), 'leaves', 'leave')} ({', '.join(sorted(leaving))}); one each is needed")
    (entry,), (last,) = entering, leaving
    inside = [n.name for n in chosen if last in n.inputs and not n.op.still]
    if inside:
        raise UnsupportedError(f"block of reusable engines: {last} leaves and is read inside, by {', '.join(inside)}; "
                               "end the block elsewhere")
    return entry, last


def _fused_adds(graph: Graph, chosen: Sequence[Node]) -> dict[str, Node]:
    """The addition behind a convolution, by the convolution's output: of two candidates the later one."""
    position = {n.output: i for i, n in enumerate(chosen)}
    found: dict[str, Node] = {}
    for node in chosen:
        if isinstance(node.op, Add):
            able = [t for t in node.inputs if t in position and refusals.fusable(graph, t)]
            if not able:
                raise UnsupportedError(f"node {node.name}: cannot run on reusable engines, the convolution it adds to is "
                                       "outside the block; move the block's border")
            found[max(able, key=lambda t: position[t])] = node
    return found


def _tables(graph: Graph, chosen: Sequence[Node]) -> tuple[dict[str, str], dict[str, str]]:
    """By the tensor that a table writes: the first node with this table; and by what it reads, where that goes nowhere else."""
    tables, fused, first = dict[str, str](), dict[str, str](), dict[bytes, str]()
    makers = {n.output for n in chosen if not (n.op.still or n.op.table or n.op.formula)}
    for node in chosen:
        if not (node.op.table or node.op.formula):
            continue
        tables[node.output] = first.setdefault(table_bytes(graph, node), node.name) if node.op.table else node.name
        source = node.inputs[0]
        if source in makers and len(graph.consumers(source)) == 1 and source not in graph.outputs:
            fused[source] = node.output
    return tables, fused


def table_bytes(graph: Graph, node: Node) -> bytes:
    """A table's entries as bytes, in the order of the bytes that are looked up."""
    assert isinstance(node.op, Lookup), "formulas become tables when a network is quantized"
    return np.roll(graph.constants[node.params[0]].array, node.op.lo).tobytes()  # entry 0 is that of the least code


def operands(graph: Graph, node: Node) -> list[str]:
    """What a node reads, the largest map first: of a product the gate comes last."""
    return sorted(node.inputs, key=lambda t: -prod(stream_shape(graph, t)))


def _map(graph: Graph, tensor: str) -> Map:
    return Map(*stream_shape(graph, tensor))


def _layer(graph: Graph, node: Node, add: Node | None, alias: dict[str, str]) -> ArrayLayer:
    op = node.op
    window, channels, height, width = window_of(graph, node)
    reads, writes = Map(channels, height, width), _map(graph, node.output)
    whole = op.averages and not op.window
    if whole:
        window = Window((height, width))
    source, *others = operands(graph, node)
    residual = next((alias.get(t, t) for t in (others if add is None else add.inputs) if t != node.output), None)
    input_bits = op.input_bits or refusals.bits_of(graph, node.inputs[0])
    values = [*node.inputs, node.output, *([] if add is None else (*add.inputs, add.output))]
    return ArrayLayer(node.name, None if add is None else add.name, alias.get(source, source),
                      node.output if add is None else add.output, residual, reads, writes, window,
                      op.layer.groups if op.layer else channels, not op.layer, op.largest, whole,
                      refusals.weight_bits(graph, node), input_bits, op.weight_bits > 0,
                      max(refusals.bits_of(graph, t) for t in values), steps_of(op.code_bits), refusals.factor_bits(graph, node),
                      op.multiplies)


def _in_order(layers: Sequence[ArrayLayer], entry: str) -> tuple[ArrayLayer, ...]:
    """The layers such that each comes behind what it reads, additions included."""
    ready, waiting, ordered = {entry}, list(layers), []
    while waiting:
        following = next((x for x in waiting if x.source in ready and (x.residual is None or x.residual in ready)), None)
        assert following is not None, "a graph's nodes are in topological order"
        waiting.remove(following)
        ordered.append(following)
        ready.add(following.target)
    return tuple(ordered)
