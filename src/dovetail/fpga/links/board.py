"""One board of a system: its layers, the ends of its links, and what stands between them, as one design.

The top module of a board has the streams that host and board exchange, a pair of streams `linkN_rx` and `linkN_tx` per link,
whose words are cells, and `status`: bit 0 a fault anywhere, bit 1 all links up, then four bits per link: up, and the cause of
its fault (`receive.Cause`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod

from dovetail.fpga.assemble import Link, stream_ports
from dovetail.fpga.design import Design, StreamPort
from dovetail.fpga.engines.regroup import regroup_engine
from dovetail.fpga.engines.stream import Format, fifo_module, fork_module
from dovetail.fpga.expressions import ONE, Signal, all_of, any_of, pack, signal
from dovetail.fpga.hardware import Instance, Module
from dovetail.fpga.links.carriage import Carriage, gather_module, scatter_module
from dovetail.fpga.links.cells import CIRCUIT_BITS, CREDIT_BITS, CellFormat
from dovetail.fpga.links.flatten import flatten_module, is_flattened
from dovetail.fpga.links.joint import Area, joint_module
from dovetail.fpga.links.receive import CAUSE_BITS, receiver_module
from dovetail.fpga.links.transmit import Outgoing, transmitter_module
from dovetail.fpga.verilog import print_module

Key = tuple[str | int, ...]
"""Where a stream of a board comes from: ("host", n), ("core", name, n), ("rx", link, n), or one of them as cells."""


def form_of(port: StreamPort) -> Format:
    """The format of a port's stream; its values may be any that its bits hold."""
    low, high = (-(1 << port.bits - 1), (1 << port.bits - 1) - 1) if port.signed else (0, (1 << port.bits) - 1)
    return Format(port.channels, port.bits, port.signed, low, high, port.height, port.width, port.at_once)


@dataclass(frozen=True, slots=True)
class Reading:
    """One part of what a core's input reads: from which stream of this board, as what, and whether a frame of it must wait.

    `area` None: the stream as it is.
    """

    source: Key
    arrives: Carriage
    area: Area | None
    waits: bool


@dataclass(frozen=True, slots=True)
class LinkEnd:
    """A board's end of a link: circuits in the order of their numbers, the sources of those that leave, and time slots."""

    name: str
    incoming: tuple[Carriage, ...]
    outgoing: tuple[tuple[Key, Carriage], ...]
    slots: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class BoardPlan:
    """Everything of one board."""

    name: str
    cell: CellFormat
    identity: int
    depth: int
    """Words of every circuit's buffer: a round trip of the link."""
    cores: tuple[tuple[str, Design], ...]
    inputs: tuple[StreamPort, ...]
    """Of the host."""
    outputs: tuple[tuple[StreamPort, Reading], ...]
    """To the host."""
    readings: tuple[tuple[str, int, StreamPort, Area | None, tuple[Reading, ...]], ...]
    """Core, input, port, the area it wants, and its parts."""
    links: tuple[LinkEnd, ...]


@dataclass(slots=True)
class _Board:
    """A board under construction."""

    plan: BoardPlan
    module: Module
    parts: list[Module] = field(default_factory=list)
    producers: dict[Key, tuple[Link, int]] = field(default_factory=dict)
    takers: dict[Key, list[Link]] = field(default_factory=dict)

    def wires(self, name: str, width: int) -> Link:
        return Link(self.module.net(f"{name}_valid"), self.module.net(f"{name}_ready"), self.module.net(f"{name}_data", width))

    def instantiate(self, module: Module, name: str, *pins: tuple[str, Signal]) -> None:
        self.parts.append(module)
        self.module.instances.append(Instance(module.name, name, pins))

    def offer(self, key: Key, link: Link) -> None:
        self.producers[key] = link, link.data.width
        self.takers[key] = []

    def tap(self, key: Key) -> Link:
        """One more reader of a stream."""
        made = self.wires(f"{_label(key)}_to{len(self.takers[key])}", self.producers[key][1])
        self.takers[key].append(made)
        return made

    def in_cells(self, key: Key, carriage: Carriage) -> Key:
        """A stream of this board's own as cells: words of channels, or several pixels at once."""
        form = carriage.form.in_words(carriage.form.channels)
        if carriage == Carriage(form):
            return key
        cut: Key = (*key, "cells")
        if cut not in self.producers:
            label, taken = _label(cut), self.tap(key)
            made = self.wires(label, carriage.bits)
            if carriage.group > 1:
                gather = gather_module(f"{self.plan.name}_{label}", carriage)
                self.instantiate(gather, f"u_{label}", *taken.pins("in"), *made.pins("out"))
            else:
                self.regroup(label, form, carriage.form.fields, taken, made)
            self.offer(cut, made)
        return cut

    def regroup(self, label: str, form: Format, fields: int, taken: Link, made: Link) -> None:
        """Cut the beats of a stream anew."""
        engine = regroup_engine(f"{self.plan.name}_{label}", label, form, fields)
        self.instantiate(engine.modules[0], f"u_{label}", *taken.pins("in0"), *made.pins("out"))
        self.parts += engine.modules[1:]

    def whole(self, reading: Reading, name: str) -> Link:
        """A part of an input as whole pixels, behind a buffer for a frame where it must wait for others."""
        link, carriage = self.tap(reading.source), reading.arrives
        form = carriage.form
        if reading.waits:
            held = self.wires(f"{name}_held", carriage.bits)
            fifo = fifo_module(f"{self.plan.name}_{name}_frame", carriage.bits, max(2, carriage.cells), report=True)
            self.instantiate(fifo, f"{name}_frame", *link.pins("in"), *held.pins("out"))
            link = held
        if carriage.group == 1 and form.fields == form.channels:
            return link
        made = self.wires(f"{name}_whole", form.channels * form.bits)
        if carriage.group > 1:
            scatter = scatter_module(f"{self.plan.name}_{name}_whole", carriage)
            self.instantiate(scatter, f"u_{name}_whole", *link.pins("in"), *made.pins("out"))
        else:
            self.regroup(f"{name}_whole", form, form.channels, link, made)
        return made

    def connect(self) -> None:
        """Lead every stream to its readers."""
        for key, (source, width) in self.producers.items():
            ends = self.takers[key]
            if len(ends) == 1:
                self.module.assigns += [(ends[0].valid, source.valid), (ends[0].data, source.data), (source.ready, ends[0].ready)]
            elif not ends:
                self.module.assigns.append((source.ready, ONE))
            else:
                fork = fork_module(f"{self.plan.name}_fork_{_label(key)}", width, len(ends))
                pins = [pin for index, end in enumerate(ends) for pin in end.pins(f"out{index}")]
                self.instantiate(fork, f"fork_{_label(key)}", *source.pins("in"), *pins)


def _label(key: Key) -> str:
    return "_".join(str(part) for part in key)


def build_board(plan: BoardPlan) -> Design:
    """The board's design; inputs are the host's, then the links' cells, outputs likewise, `status` last."""
    b = _Board(plan, Module(plan.name))
    for index, port in enumerate(plan.inputs):
        b.offer(("host", index), stream_ports(b.module, port.name, port.data_bits, True))
    for name, core in plan.cores:
        for index, port in enumerate(core.outputs):
            b.offer(("core", name, index), b.wires(f"{name}_{port.name}", port.data_bits))
    for number, end in enumerate(plan.links):
        for j, carriage in enumerate(end.incoming):
            b.offer(("rx", number, j), b.wires(f"rx_{number}_{j}", carriage.bits))
    given = _inputs_of_cores(b)
    for name, core in plan.cores:
        outs = [pin for index, port in enumerate(core.outputs) for pin in b.producers["core", name, index][0].pins(port.name)]
        ins = [pin for index, port in enumerate(core.inputs) for pin in given[name, index].pins(port.name)]
        b.module.instances.append(Instance(core.top, f"u_{name}", (*ins, *outs)))
    for port, reading in plan.outputs:
        outer, inner = stream_ports(b.module, port.name, port.data_bits, False), b.whole(reading, f"host_{port.name}")
        b.module.assigns += [(outer.valid, inner.valid), (outer.data, inner.data), (inner.ready, outer.ready)]
    _ends(b)
    b.connect()
    return _design(b)


def _inputs_of_cores(b: _Board) -> dict[tuple[str, int], Link]:
    """The stream of every core's input, its parts joined."""
    given: dict[tuple[str, int], Link] = {}
    for name, index, port, wanted, parts in b.plan.readings:
        ends = [b.whole(part, f"{name}_in{index}_{k}") for k, part in enumerate(parts)]
        if wanted is None:
            given[name, index] = _in_order(b, f"{name}_in{index}", ends[0], parts[0].arrives.form, port)
            continue
        areas = [part.area for part in parts]
        label = f"joint_{name}_in{index}"
        joint = joint_module(f"{b.plan.name}_{label}", [a for a in areas if a is not None], wanted, port.width, port.bits)
        made = b.wires(label, port.data_bits)
        pins = [pin for k, end in enumerate(ends) for pin in end.pins(f"in{k}")]
        b.instantiate(joint, f"u_{label}", *pins, *made.pins("out"))
        given[name, index] = made
    return given


def _in_order(b: _Board, name: str, link: Link, form: Format, port: StreamPort) -> Link:
    """What an input reads from one stream: as it comes, or flattened."""
    if not is_flattened(form, port):
        return link
    made = b.wires(f"{name}_flat", port.data_bits)
    b.instantiate(flatten_module(f"{b.plan.name}_{name}_flat", form), f"u_{name}_flat", *link.pins("in"), *made.pins("out"))
    return made


def _ends(b: _Board) -> None:
    """Transmitters and receivers, and the board's alarm and status."""
    plan, m, module = b.plan, b.plan.cell, b.module
    alarm, faults, ups, states = signal("alarm"), list[Signal](), list[Signal](), list[tuple[Signal, int]]()
    for n, end in enumerate(plan.links):
        taken = [b.tap(key if key[0] == "rx" else b.in_cells(key, carriage)) for key, carriage in end.outgoing]
        sent = [Outgoing(carriage.bits, plan.depth) for _, carriage in end.outgoing]
        held = [Outgoing(carriage.bits, plan.depth) for carriage in end.incoming]
        sender = transmitter_module(f"{plan.name}_tx{n}", m, sent, end.slots, len(held), plan.identity)
        receiver, parts = receiver_module(f"{plan.name}_rx{n}", m, held, plan.identity)
        b.parts += parts
        rx, tx = (stream_ports(module, f"link{n}_{way}", m.bits, way == "rx") for way in ("rx", "tx"))
        shared = [(pin, module.net(f"link{n}_{pin}", width)) for pin, width in
                  (("heard", 1), ("peer_heard", 1), ("credit_valid", 1), ("credit_circuit", CIRCUIT_BITS),
                   ("credit_count", CREDIT_BITS), *((f"freed{j}", CREDIT_BITS) for j in range(len(held))))]
        own = {pin: module.net(f"link{n}_{pin}", width) for pin, width in
               (("alarmed", 1), ("up", 1), ("fault", 1), ("fault_cause", CAUSE_BITS))}
        b.instantiate(receiver, f"u_rx{n}", *rx.pins("rx"), *shared, *own.items(),
                      *(pin for j in range(len(held)) for pin in b.producers["rx", n, j][0].pins(f"ch{j}")))
        b.instantiate(sender, f"u_tx{n}", *tx.pins("tx"), *shared, ("alarm", alarm),
                      *(pin for k, link in enumerate(taken) for pin in link.pins(f"ch{k}")))
        faults += [own["fault"], own["alarmed"]]
        ups.append(own["up"])
        states += [(own["up"], 1), (own["fault_cause"], CAUSE_BITS)]
    module.drive(alarm, any_of(alarm, *faults), reset=0)
    status = stream_ports(module, "status", 2 + 4 * len(plan.links), False)
    module.assigns += [(status.valid, ONE), (status.data, pack([(alarm, 1), (all_of(*ups), 1), *states]))]


def _design(b: _Board) -> Design:
    plan = b.plan
    adders = sum(core.adders for _, core in plan.cores)
    b.module.header = (f"{plan.name}: {len(plan.cores)} cores, {len(plan.links)} links.",)
    files = {name: text for _, core in plan.cores for name, text in core.files.items()}
    files |= {f"{m.name}.v": print_module(m) for m in (b.module, *b.parts)}
    cells = [(f"link{n}", StreamPort(f"link{n}_rx", end.name, 1, plan.cell.bits, False, 1, 1),
              StreamPort(f"link{n}_tx", end.name, 1, plan.cell.bits, False, 1, 1)) for n, end in enumerate(plan.links)]
    status = StreamPort("status", "status", 1, 2 + 4 * len(plan.links), False, 1, 1)
    return Design(plan.name, files, (*plan.inputs, *(rx for _, rx, _ in cells)),
                  (*(port for port, _ in plan.outputs), *(tx for _, _, tx in cells), status), adders=adders,
                  latency_cycles=sum(core.latency_cycles for _, core in plan.cores) + prod((2, plan.depth)),
                  interval_cycles=max([core.interval_cycles for _, core in plan.cores], default=1))
