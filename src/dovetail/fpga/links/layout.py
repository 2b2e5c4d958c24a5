"""Circuits of a system while they are laid: which streams cross which links, and what every board reads, sends and passes on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from dovetail.errors import UnsupportedError
from dovetail.fpga.design import Design, StreamPort
from dovetail.fpga.links.cells import MOST_CIRCUITS, OVERHEAD_BITS, Carriage, CellFormat, carried
from dovetail.fpga.links.joint import Area, is_flattened
from dovetail.fpga.links.slots import Circuit
from dovetail.fpga.links.wiring import InputReading, Key, form_of
from dovetail.ir import Region
from dovetail.platform.device import Kind, Platform
from dovetail.platform.device import Link as Cable
from dovetail.schedule.program import Binding, Program, Segment

LEAST_PAYLOAD_BITS, MOST_PAYLOAD_BITS = 32, 256
"""Payloads of a cell: a word of the host, and what a link of FiC carries in a clock."""


def entry_of(platform: Platform, device: str) -> str:
    """The board through which the host reaches a device."""
    at = platform.host
    for link in platform.route(platform.host, device):
        at = link.ends[1] if link.ends[0] == at else link.ends[0]
        if platform.device(at).kind is Kind.FPGA:
            return at
    return device


@dataclass(slots=True)
class Site:
    """What is known of one board while circuits are laid."""

    inputs: list[tuple[StreamPort, Binding]] = field(default_factory=list)
    outputs: list[tuple[StreamPort, InputReading, Binding]] = field(default_factory=list)
    readings: list[tuple[str, int, StreamPort, Area | None, tuple[InputReading, ...]]] = field(default_factory=list)
    incoming: dict[str, list[Carriage]] = field(default_factory=dict)
    outgoing: dict[str, list[tuple[Key, Carriage]]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Source:
    """A stream at its origin: board, key there, port, and what it is of its tensor."""

    device: str
    key: Key
    port: StreamPort
    region: Region


class Layout:
    """Circuits of a system while they are laid."""

    def __init__(self, name: str, segments: Sequence[Segment], designs: Mapping[str, Design], platform: Platform) -> None:
        self.name, self.segments, self.designs, self.platform = name, segments, designs, platform
        self.cables = [c for c in platform.links if all(platform.device(e).kind is Kind.FPGA for e in c.ends)]
        self.cell = cell_of(self.cables, platform)
        self.sites = defaultdict[str, Site](Site)
        self.hosts: dict[tuple[str, str, Region], int] = {}
        self.laid: dict[tuple[str, Key, str], tuple[Key, Carriage]] = {}
        self.circuits: list[str] = []
        self.seldom: set[tuple[str, str, int]] = set()
        """Circuits that carry weights: link, board they leave, number."""
        self.ways: list[Circuit] = []

    def laid_to(self, source: Source, device: str, what: str) -> tuple[Key, Carriage]:
        """The key of a stream on a board, and how it arrives there; lays a circuit where it is not there yet."""
        form = form_of(source.port)
        if source.device == device:
            return source.key, Carriage(form)
        if (source.device, source.key, device) in self.laid:
            return self.laid[source.device, source.key, device]
        cells, key, at, way = carried(form, self.cell.payload_bits), source.key, source.device, [source.device]
        for cable in self.platform.route(source.device, device):
            there = cable.ends[1] if cable.ends[0] == at else cable.ends[0]
            if self.platform.device(there).kind is not Kind.FPGA:
                raise UnsupportedError(f"{self.name}: {what} would cross {there} on its way from {source.device} to {device}; "
                                       "link the FPGAs to each other")
            sent = self.sites[at].outgoing.setdefault(cable.name, [])
            come = self.sites[there].incoming.setdefault(cable.name, [])
            if source.port.loads:
                self.seldom.add((cable.name, at, len(sent)))
            sent.append((key, cells))
            come.append(cells)
            if len(sent) > MOST_CIRCUITS:
                raise UnsupportedError(f"{self.name}: more than {MOST_CIRCUITS} circuits over link {cable.name}; divide less")
            key, at = ("rx", cable.name, len(come) - 1), there
            way.append(there)
        hops = tuple((cable.name, here) for cable, here in zip(self.platform.route(source.device, device), way, strict=False))
        self.ways.append(Circuit(what, hops, 0 if source.port.loads else cells.cells))
        self.circuits.append(f"{what}: {' > '.join(way)}, {cells.cells} cells per frame")
        self.laid[source.device, source.key, device] = key, cells
        return key, cells

    def sources_of(self, binding: Binding, port: StreamPort, device: str, program: Program) -> list[Source]:
        """The streams that hold what an input reads: of other segments, or of the host, which may have shares of it."""
        found = []
        for segment in self.segments:
            for index, write in enumerate(segment.writes):
                if write.tensor == binding.tensor and _meets(write.region, binding.region):
                    found.append(Source(segment.device, ("core", segment.name, index),
                                         self.designs[segment.name].outputs[index], write.region))
        if not found:
            return [self.host_input(binding, port, device)]
        for write in (w for s in program.segments if s not in self.segments for w in s.writes):
            if write.tensor == binding.tensor and _meets(write.region, binding.region):
                share = tuple((max(a[0], b[0]), min(a[1], b[1])) for a, b in zip(write.region, binding.region, strict=True))
                channels, height, width = (stop - start for start, stop in (*share, (0, 1), (0, 1))[1:4])
                found.append(self.host_input(replace(binding, region=share),
                                             replace(port, channels=channels, height=height, width=width), device))
        return found

    def host_input(self, binding: Binding, port: StreamPort, device: str) -> Source:
        """The host's stream of a region, which all who read the same share."""
        entry = entry_of(self.platform, device)
        known, site = self.hosts, self.sites[entry]
        asked = (entry, binding.tensor, binding.region)
        if asked not in known:
            known[asked] = len(site.inputs)
            site.inputs.append((replace(port, name=f"in{known[asked]}", at_once=None), binding))
        return Source(entry, ("host", known[asked]), site.inputs[known[asked]][0], binding.region)

    def read(self, segment: Segment, index: int, program: Program) -> None:
        """Lay what one input of a segment reads."""
        binding, port = segment.reads[index], self.designs[segment.name].inputs[index]
        sources = self.sources_of(binding, port, segment.device, program)
        alone = len(sources) == 1 and sources[0].region == binding.region
        waits = len(sources) > 1 or len(segment.reads) > 1
        parts = []
        for source in sources:
            area = None if alone else self.area(source.region, source.port, binding.tensor)
            parts.append(InputReading(*self.laid_to(source, segment.device, binding.tensor), area, waits))
        if alone and _geometry(sources[0].port) != _geometry(port) and not is_flattened(form_of(sources[0].port), port):
            left = f"{sources[0].device} as {_geometry(sources[0].port)}"
            raise UnsupportedError(f"{self.name}: {binding.tensor} leaves {left} and is read by {segment.name} as "
                                   f"{_geometry(port)}; put the reshape where it is read")
        wanted = None if alone else self.area(binding.region, port, binding.tensor)
        self.sites[segment.device].readings.append((segment.name, index, port, wanted, tuple(parts)))

    def load(self, segment: Segment, index: int, port: StreamPort) -> None:
        """Lay the way of the weights that an input of a segment takes; the host has them."""
        region = ((0, 1), (0, port.channels), (0, port.height), (0, port.width))
        source = self.host_input(Binding(port.name, port.tensor, region), port, segment.device)
        reading = InputReading(*self.laid_to(source, segment.device, port.tensor), None, False)
        self.sites[segment.device].readings.append((segment.name, index, port, None, (reading,)))

    def lay(self, program: Program) -> None:
        """Everything that these segments read, and what others want of them."""
        for segment in self.segments:
            for index in range(len(segment.reads)):
                self.read(segment, index, program)
            for index, port in enumerate(self.designs[segment.name].inputs):
                if port.loads:
                    self.load(segment, index, port)
        members = {s.name for s in self.segments}
        wanted = {r.tensor for s in program.segments if s.name not in members for r in s.reads} | set(program.graph.outputs)
        for segment in self.segments:
            for index, write in enumerate(segment.writes):
                if write.tensor in wanted:
                    self.return_to_host(segment, index, write)

    def area(self, region: Region, port: StreamPort, tensor: str) -> Area:
        """Channels and rows of a region whose port has just these."""
        spans = (*region, (0, 1), (0, 1))[1:4]
        sizes = tuple(stop - start for start, stop in spans)
        if sizes != (port.channels, port.height, port.width):
            raise UnsupportedError(f"{self.name}: {tensor} is divided in a shape its stream does not have; divide it along "
                                   "channels or rows")
        return Area(spans[0], spans[1])

    def return_to_host(self, segment: Segment, index: int, write: Binding) -> None:
        """Lay one output of a segment that the host wants: every share by itself."""
        port, entry = self.designs[segment.name].outputs[index], entry_of(self.platform, segment.device)
        source = Source(segment.device, ("core", segment.name, index), port, write.region)
        key, arrives = self.laid_to(source, entry, write.tensor)
        site = self.sites[entry]
        made = replace(port, name=f"out{len(site.outputs)}", at_once=None)
        site.outputs.append((made, InputReading(key, arrives, None, False), write))


def cell_of(cables: Sequence[Cable], platform: Platform) -> CellFormat:
    """Cells that the slowest link carries one of per clock, within limits."""
    per_clock = [int(c.bandwidth_bytes_per_s * 8 / clock_of(c, platform)) for c in cables]
    widest = min(per_clock, default=MOST_PAYLOAD_BITS) - OVERHEAD_BITS
    return CellFormat(max(LEAST_PAYLOAD_BITS, min(MOST_PAYLOAD_BITS, widest // 32 * 32)))


def clock_of(cable: Cable, platform: Platform) -> float:
    return max(platform.device(e).clock_hz or 0.0 for e in cable.ends)


def _meets(one: Region, other: Region) -> bool:
    return all(max(a, c) < min(b, d) for (a, b), (c, d) in zip(one, other, strict=True))


def _geometry(port: StreamPort) -> str:
    return f"{port.channels}x{port.height}x{port.width} of {port.bits} bits"
