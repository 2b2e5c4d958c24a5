"""A quantized graph as one streaming design: an engine per node, forks where streams part, FIFOs where they rejoin."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from dovetail.errors import UsageError
from dovetail.fpga.design import Design, Fifo, StreamPort
from dovetail.fpga.engines.lq import Datapath
from dovetail.fpga.engines.stream import Format, fifo_module, fork_module
from dovetail.fpga.mapping import reason_unsupported, stream_formats
from dovetail.fpga.network import StreamNetwork, Taker, make_network
from dovetail.fpga.rtl.expressions import ONE, Signal, signal
from dovetail.fpga.rtl.modules import Instance, Module
from dovetail.fpga.rtl.verilog import images, print_module
from dovetail.fpga.timing import DesignTiming, time_network
from dovetail.hardware.folds import Fold
from dovetail.ir import Graph, Node


def unsupported(graph: Graph, node: Node) -> str | None:
    """Why a node of a quantized graph cannot become hardware, in one sentence; None if it can."""
    return reason_unsupported(graph, node, stream_formats(graph))


@dataclass(frozen=True, slots=True)
class StreamWires:
    """The three wires of a stream."""

    valid: Signal
    ready: Signal
    data: Signal

    def pins(self, port: str) -> tuple[tuple[str, Signal], ...]:
        return ((f"{port}_valid", self.valid), (f"{port}_ready", self.ready), (f"{port}_data", self.data))


def stream_ports(module: Module, name: str, width: int, inward: bool) -> StreamWires:
    """Ports of a module for a stream."""
    link = StreamWires(signal(f"{name}_valid"), signal(f"{name}_ready"), signal(f"{name}_data", 0, (1 << width) - 1))
    there, back = (module.inputs, module.outputs) if inward else (module.outputs, module.inputs)
    there += [link.valid, link.data]
    back.append(link.ready)
    return link


class Construction:
    """A module under construction, with the modules it instantiates."""

    def __init__(self, name: str, header: tuple[str, ...] = ()) -> None:
        self.module = Module(name, header)
        self.parts: list[Module] = []

    def wires(self, name: str, width: int) -> StreamWires:
        return StreamWires(self.module.net(f"{name}_valid"), self.module.net(f"{name}_ready"),
                           self.module.net(f"{name}_data", width))

    def instantiate(self, module: Module, name: str, *pins: tuple[str, Signal]) -> None:
        self.parts.append(module)
        self.module.instances.append(Instance(module.name, name, pins))

    def lead(self, source: StreamWires, ends: Sequence[StreamWires], label: str) -> None:
        """Lead a stream to all that take it, by a fork where they are several."""
        if len(ends) == 1:
            self.module.assigns += [(ends[0].valid, source.valid), (ends[0].data, source.data), (source.ready, ends[0].ready)]
        elif not ends:
            self.module.assigns.append((source.ready, ONE))
        else:
            fork = fork_module(f"{self.module.name}_fork_{label}", source.data.width, len(ends))
            pins = [pin for index, end in enumerate(ends) for pin in end.pins(f"out{index}")]
            self.instantiate(fork, f"fork_{label}", *source.pins("in"), *pins)

    def files(self) -> dict[str, str]:
        """The text of all modules, and the images of their memories."""
        modules = (self.module, *self.parts)
        return {f"{m.name}.v": print_module(m) for m in modules} | {n: text for m in modules for n, text in images(m).items()}


class Top(Construction):
    """The top module of a network."""

    def __init__(self, network: StreamNetwork, timing: DesignTiming, name: str) -> None:
        super().__init__(name)
        self.network, self.timing, self.name = network, timing, name
        self.fifos: list[Fifo] = []
        self.links: dict[tuple[str, int], StreamWires] = {}
        self.stems: set[str] = set()
        self.loads: list[tuple[str, Format]] = []
        self.streams: dict[str, StreamWires] = {}
        """Every stream where it begins."""

    def port(self, name: str, form: Format, inward: bool) -> StreamWires:
        """Top-level ports of a stream."""
        return stream_ports(self.module, name, form.data_bits, inward)

    def stem(self, path: str, index: int) -> str:
        """A name of its own for a link: `a_to_b` to `c` and `a` to `b_to_c` would share one."""
        while f"{path}_{index}" in self.stems:
            path += "_"
        self.stems.add(f"{path}_{index}")
        return f"{path}_{index}"

    def taker_link(self, tensor: str, taker: Taker) -> StreamWires:
        """The wires into one taker, behind its branch FIFO if it has one."""
        form = self.network.formats[tensor]
        if taker.station is None:
            return self.port(f"out{taker.index}", form, False)
        stem = self.stem(f"{self.network.labels[tensor]}_to_{taker.station.label}", taker.index)
        inner = self.wires(stem, form.data_bits)
        self.links[taker.station.name, taker.index] = inner
        depth = self.timing.fifo_depths.get((taker.station.name, taker.index))
        if depth is None:
            return inner
        outer = self.wires(f"{stem}_early", form.data_bits)
        fifo = f"fifo_{stem}"
        self.instantiate(fifo_module(f"{self.name}_{fifo}", form.data_bits, depth, report=True), fifo,
                         *outer.pins("in"), *inner.pins("out"))
        self.fifos.append(Fifo(fifo, form.data_bits, depth))
        return outer

    def connect(self, tensor: str, source: StreamWires | None) -> StreamWires:
        """Wire a tensor's stream to all its takers; returns the link its producer drives."""
        takers = self.network.takers[tensor]
        ends = [self.taker_link(tensor, t) for t in takers]
        if len(ends) == 1 and source is None:
            return ends[0]
        label = self.network.labels[tensor]
        start = source or self.wires(f"{label}_all", self.network.formats[tensor].data_bits)
        self.lead(start, ends, label)
        return start

    def build(self) -> None:
        for index, tensor in enumerate(self.network.inputs):
            self.streams[tensor] = self.connect(tensor, self.port(f"in{index}", self.network.formats[tensor], True))
        for node in self.network.stations:
            link = self.streams[node.output] = self.connect(node.output, None)
            chain, label = node.engines, node.label
            sources = [self.links[node.name, i] for i in range(len(node.inputs))]
            for position, engine in enumerate(chain):
                last = position == len(chain) - 1
                target = link if last else self.wires(f"{label}_padded", engine.output.data_bits)
                instance = f"u_{label}" if last else f"u_{label}_pad"
                pins = [pin for i, source in enumerate(sources) for pin in source.pins(f"in{i}")]
                if engine.loads is not None:
                    pins += self.port(f"load{len(self.loads)}", engine.loads, True).pins("load")
                    self.loads.append((load_tensor(node.name), engine.loads))
                self.instantiate(engine.modules[0], instance, *pins, *target.pins("out"))
                self.parts += engine.modules[1:]
                sources = [target]


KEYWORDS = frozenset("""
    always and assign automatic begin buf case casex casez cell config const deassign default defparam design disable edge
    else end endcase endconfig endfunction endgenerate endmodule endprimitive endspecify endtable endtask event for force
    forever fork function generate genvar if ifnone incdir include initial inout input instance integer join large liblist
    library localparam logic macromodule medium module nand negedge nmos nor not notif0 notif1 or output parameter pmos
    posedge primitive pull0 pull1 pulldown pullup real realtime reg release repeat rtran scalared signed small specify
    specparam strong0 strong1 supply0 supply1 table task time tran tri tri0 tri1 triand trior trireg unsigned use vectored
    wait wand weak0 weak1 while wire wor xnor xor
""".split())  # noqa: SIM905 - words are read as words
"""Words of Verilog-2005 (and `logic`, `const` of its successor, which simulators know too)."""

LOADED = " weights"


def load_tensor(node: str) -> str:
    """The name under which a design takes the weights of a node."""
    return f"{node}{LOADED}"


def loaded_node(tensor: str) -> str:
    """The node whose weights a design takes under such a name."""
    return tensor.removesuffix(LOADED)


def stream_port(name: str, tensor: str, form: Format, loads: bool = False) -> StreamPort:
    return StreamPort(name, tensor, form.channels, form.bits, form.signed, form.height, form.width, form.at_once, loads)


def design_modules(graph: Graph, name: str, folds: Mapping[str, Fold] | None = None,
                   fused: Collection[str] = ()) -> tuple[Module, ...]:
    """The modules of `build_design`, the top first, without their text."""
    top = built_top(name, make_network(graph, name, folds=folds, fused=fused))
    return (top.module, *top.parts)


def built_top(name: str, network: StreamNetwork) -> Top:
    """The finished top module of a network."""
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name) or name in KEYWORDS:
        raise UsageError(f"design {name!r}: not a Verilog module name; use a letter, then letters, digits and underscores, but "
                         "no word of the language")
    top = Top(network, time_network(network), name)
    top.build()
    return top


def build_design(graph: Graph, name: str, labels: Mapping[str, str] | None = None,
                 folds: Mapping[str, Fold] | None = None, words: Mapping[str, int] | None = None,
                 leaving: int | None = None, datapath: Datapath = Datapath.POPCOUNT, fused: Collection[str] = (),
                 loaded: Collection[str] = ()) -> Design:
    """Generate the hardware of a quantized graph as a design whose top module is `name`.

    `labels` name the nodes' modules where they must be those of a larger design; else `identifiers` does. Nodes named in
    `folds` share multipliers and keep their weights in memory; the others are mapped directly. `words` are channels per beat
    of nodes that would take any number, where they must be those of a larger design. Outputs leave as whole pixels, or in beats
    of `leaving` channels. `datapath` sums products of codes. Inverted residuals whose depthwise node is `fused` are one engine.
    Folded layers of codes named in `loaded` have inputs of their own for weights (`load_tensor`; `fpga.part.weight_sets` makes
    what they take), of which they ask a set before the first frame; cycles count from when they have it.
    Latency and interval follow from the engines' closed forms: exact in clock cycles for a source and a sink that
    never stall, `latency_cycles` counting both the cycle of the first beat in and that of the last beat out.
    Raises UnsupportedError for a node that `unsupported` names.
    """
    top = built_top(name, make_network(graph, name, labels, folds, words, leaving, datapath, fused, loaded))
    return design_of(graph, top, folds or {}, datapath, fused)


def design_of(graph: Graph, top: Top, folds: Mapping[str, Fold], datapath: Datapath = Datapath.POPCOUNT,
              fused: Collection[str] = ()) -> Design:
    """A finished top module as a design."""
    network, timing, name = top.network, top.timing, top.name
    adders = sum(e.adders for station in network.stations for e in station.engines)
    top.module.header = (f"{name}: {len(network.stations)} engines, {adders} adders, {len(top.fifos)} branch FIFOs.",
                         f"Latency {timing.latency_cycles} clocks, one frame every {timing.interval_cycles} clocks.")
    inputs = {t: network.formats[t] for t in network.inputs}
    outputs = [network.formats[s] for s in network.outputs]
    return Design(
        name, top.files(),
        (*(stream_port(f"in{i}", t, form) for i, (t, form) in enumerate(inputs.items())),
         *(stream_port(f"load{i}", t, form, True) for i, (t, form) in enumerate(top.loads))),
        tuple(stream_port(f"out{i}", t, form) for i, (t, form) in enumerate(zip(graph.outputs, outputs, strict=True))),
        tuple(top.fifos), adders, timing.latency_cycles, timing.interval_cycles,
        folds={name: f.sizes for name, f in folds.items()}, words=network.words, fused=tuple(fused),
        datapath=str(datapath))
