"""What a board of a system has, and its streams while they are led from where they come from to all that read them."""

from __future__ import annotations

from dataclasses import dataclass

from dovetail.fpga.assemble import Construction, StreamWires
from dovetail.fpga.design import Design, StreamPort
from dovetail.fpga.engines.regroup import regroup_engine
from dovetail.fpga.engines.stream import Format, fifo_module
from dovetail.fpga.links.cells import Carriage, CellFormat, gather_module, scatter_module
from dovetail.fpga.links.joint import Area

Key = tuple[str | int, ...]
"""Where a stream of a board comes from: ("host", n), ("core", name, n), ("rx", link, n), or one of them as cells."""


def form_of(port: StreamPort) -> Format:
    """The format of a port's stream; its values may be any that its bits hold."""
    low, high = (-(1 << port.bits - 1), (1 << port.bits - 1) - 1) if port.signed else (0, (1 << port.bits) - 1)
    return Format(port.channels, port.bits, port.signed, low, high, port.height, port.width, port.at_once)


@dataclass(frozen=True, slots=True)
class InputReading:
    """One part of what a core's input reads: from which stream of this board, as what, and whether a frame of it must wait.

    `area` None: the stream as it is.
    """

    source: Key
    arrives: Carriage
    area: Area | None
    waits: bool


@dataclass(frozen=True, slots=True)
class LinkEnd:
    """A board's end of a link: circuits in the order of their numbers, the sources of those that leave, and time slots.

    `slots` name the circuit of every slot that leaves. Of a switch, a slot may have none: it names the number behind the last;
    and `arriving` names the circuits of the slots that come in, which elsewhere every cell says.
    """

    name: str
    incoming: tuple[Carriage, ...]
    outgoing: tuple[tuple[Key, Carriage], ...]
    slots: tuple[int, ...]
    depths: tuple[tuple[int, ...], tuple[int, ...]]
    """Words that the buffer at the end of each circuit holds: of incoming ones, of outgoing ones."""
    arriving: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class BoardPlan:
    """Everything of one board."""

    name: str
    cell: CellFormat
    identity: int
    wait_clocks: int
    """What links add to a frame's way, at most."""
    cores: tuple[tuple[str, Design], ...]
    inputs: tuple[StreamPort, ...]
    """Of the host."""
    outputs: tuple[tuple[StreamPort, InputReading], ...]
    """To the host."""
    readings: tuple[tuple[str, int, StreamPort, Area | None, tuple[InputReading, ...]], ...]
    """Core, input, port, the area it wants, and its parts."""
    links: tuple[LinkEnd, ...]

    @property
    def passing(self) -> dict[tuple[int, int], tuple[int, int]]:
        """Of a switch: link and number that a circuit comes with, and those that it leaves with. They have no buffer here."""
        return {(int(key[1]), int(key[2])): (n, k) for n, end in enumerate(self.links) if end.arriving
                for k, (key, _) in enumerate(end.outgoing) if key[0] == "rx"}


class Wiring(Construction):
    """A board under construction."""

    def __init__(self, plan: BoardPlan) -> None:
        super().__init__(plan.name)
        self.plan = plan
        self.producers: dict[Key, StreamWires] = {}
        self.takers: dict[Key, list[StreamWires]] = {}

    def offer(self, key: Key, link: StreamWires) -> None:
        self.producers[key] = link
        self.takers[key] = []

    def tap(self, key: Key) -> StreamWires:
        """One more reader of a stream."""
        made = self.wires(f"{label_of(key)}_to{len(self.takers[key])}", self.producers[key].data.width)
        self.takers[key].append(made)
        return made

    def in_cells(self, key: Key, carriage: Carriage) -> Key:
        """A stream of this board's own as cells: words of channels, or several pixels at once."""
        form = carriage.form.in_words(carriage.form.channels)
        if carriage == Carriage(form):
            return key
        cut: Key = (*key, "cells")
        if cut not in self.producers:
            label, taken = label_of(cut), self.tap(key)
            made = self.wires(label, carriage.bits)
            if carriage.group > 1:
                gather = gather_module(f"{self.plan.name}_{label}", carriage)
                self.instantiate(gather, f"u_{label}", *taken.pins("in"), *made.pins("out"))
            else:
                self.regroup(label, form, carriage.form.fields, taken, made)
            self.offer(cut, made)
        return cut

    def regroup(self, label: str, form: Format, fields: int, taken: StreamWires, made: StreamWires) -> None:
        """Cut the beats of a stream anew."""
        engine = regroup_engine(f"{self.plan.name}_{label}", label, form, fields)
        self.instantiate(engine.modules[0], f"u_{label}", *taken.pins("in0"), *made.pins("out"))
        self.parts += engine.modules[1:]

    def whole(self, reading: InputReading, name: str) -> StreamWires:
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
        for key, source in self.producers.items():
            self.lead(source, self.takers[key], label_of(key))


def label_of(key: Key) -> str:
    return "_".join(str(part) for part in key)
