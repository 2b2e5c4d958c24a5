"""Segments of a program on several FPGAs as one system: which streams cross which links, and every board as a design.

A stream that crosses links is a circuit: its way is fixed when the system is built, the shortest over the platform's links, and
on every link it has time slots in proportion to what a frame of it takes. Boards on the way pass it on. Frames enter and leave
at the board that the host is linked to; so do weights that are loaded, over circuits of their own with the fewest time slots.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, gcd

from dovetail.errors import UnsupportedError
from dovetail.fpga.assemble import stream_port
from dovetail.fpga.design import Design, StreamPort
from dovetail.fpga.links.board import BoardPlan, Key, LinkEnd, Reading, build_board, form_of
from dovetail.fpga.links.carriage import Carriage, carried
from dovetail.fpga.links.cells import MOST_CIRCUITS, MOST_DEPTH, OVERHEAD_BITS, CellFormat
from dovetail.fpga.links.flatten import is_flattened
from dovetail.fpga.links.joint import Area
from dovetail.fpga.mapping import stream_formats
from dovetail.ir import Region
from dovetail.platform.device import Kind, Platform
from dovetail.platform.device import Link as Cable
from dovetail.schedule.program import Binding, Program, Segment

LEAST_PAYLOAD_BITS, MOST_PAYLOAD_BITS = 32, 256
"""Payloads of a cell: a word of the host, and what a link of FiC carries in a clock."""
PIPELINE_CLOCKS = 24
"""Clocks of both ends of a link and of a credit's way back, without the link's own."""
SLOTS_OF_LARGEST = 8
"""Time slots of the circuit with the most words; others have as many as their words ask for, one at least."""


@dataclass(frozen=True, slots=True)
class Wire:
    """One direction of a link: from an output of a board to an input of another; a cell takes `latency_clocks`."""

    link: str
    source: int
    output: int
    target: int
    input: int
    latency_clocks: int
    cells_per_clock: float


@dataclass(frozen=True, slots=True)
class HostPort:
    """A stream between host and a board: the tensor's region that it carries, and the port's number there."""

    board: int
    port: int
    tensor: str
    region: Region


@dataclass(frozen=True, slots=True)
class System:
    """Boards joined by wires. `circuits` says for people which tensor goes which way."""

    name: str
    boards: tuple[Design, ...]
    devices: tuple[str, ...]
    wires: tuple[Wire, ...]
    inputs: tuple[HostPort, ...]
    outputs: tuple[HostPort, ...]
    circuits: tuple[str, ...]

    @property
    def adders(self) -> int:
        return sum(b.adders for b in self.boards)


def depths(program: Program, platform: Platform) -> dict[str, int]:
    """How many times data has come back to FPGAs from elsewhere before each segment."""
    found: dict[str, int] = {}
    for segment in program.segments:
        on_fpga, deepest = platform.device(segment.device).kind is Kind.FPGA, 0
        for other in program.segments:
            if other.name in found and _feeds(other, segment):
                returns = on_fpga and platform.device(other.device).kind is not Kind.FPGA
                deepest = max(deepest, found[other.name] + returns)
        found[segment.name] = deepest
    return found


def in_turn(program: Program, platform: Platform) -> list[Segment]:
    """All segments in an order in which those of a system follow each other."""
    deep = depths(program, platform)
    return sorted(program.segments, key=lambda s: (deep[s.name], platform.device(s.device).kind is not Kind.FPGA))


def _feeds(writer: Segment, reader: Segment) -> bool:
    return any(w.tensor == r.tensor for w in writer.writes for r in reader.reads)


def systems_of(program: Program, platform: Platform) -> dict[str, tuple[Segment, ...]]:
    """Segments that run together on several boards, by the system's name; what stays on one board beside the host is none."""
    levels: dict[int, list[Segment]] = {}
    deep = depths(program, platform)
    for segment in program.segments:
        if platform.device(segment.device).kind is Kind.FPGA:
            levels.setdefault(deep[segment.name], []).append(segment)
    found = {}
    for level, segments in sorted(levels.items()):
        boards = {s.device for s in segments}
        if len(boards) > 1 or any(entry_of(platform, b) != b for b in boards):
            found[f"boards{level}"] = tuple(segments)
    return found


def entry_of(platform: Platform, device: str) -> str:
    """The board through which the host reaches a device."""
    at = platform.host
    for link in platform.route(platform.host, device):
        at = link.ends[1] if link.ends[0] == at else link.ends[0]
        if platform.device(at).kind is Kind.FPGA:
            return at
    return device


@dataclass(slots=True)
class _Site:
    """What is known of one board while circuits are laid."""

    inputs: list[tuple[StreamPort, Binding]] = field(default_factory=list)
    outputs: list[tuple[StreamPort, Reading, Binding]] = field(default_factory=list)
    readings: list[tuple[str, int, StreamPort, Area | None, tuple[Reading, ...]]] = field(default_factory=list)
    incoming: dict[str, list[Carriage]] = field(default_factory=dict)
    outgoing: dict[str, list[tuple[Key, Carriage]]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Source:
    """A stream at its origin: board, key there, port, and what it is of its tensor."""

    device: str
    key: Key
    port: StreamPort
    region: Region


class _Layout:
    """Circuits of a system while they are laid."""

    def __init__(self, name: str, segments: Sequence[Segment], designs: Mapping[str, Design], platform: Platform) -> None:
        self.name, self.segments, self.designs, self.platform = name, segments, designs, platform
        self.cables = [c for c in platform.links if all(platform.device(e).kind is Kind.FPGA for e in c.ends)]
        self.cell = cell_of(self.cables, platform)
        self.sites: dict[str, _Site] = {}
        self.hosts: dict[tuple[str, str, Region], int] = {}
        self.laid: dict[tuple[str, Key, str], tuple[Key, Carriage]] = {}
        self.circuits: list[str] = []
        self.seldom: set[tuple[str, str, int]] = set()
        """Circuits that carry weights: link, board they leave, number."""

    def site(self, device: str) -> _Site:
        return self.sites.setdefault(device, _Site())

    def laid_to(self, source: _Source, device: str, what: str) -> tuple[Key, Carriage]:
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
            sent = self.site(at).outgoing.setdefault(cable.name, [])
            come = self.site(there).incoming.setdefault(cable.name, [])
            if source.port.loads:
                self.seldom.add((cable.name, at, len(sent)))
            sent.append((key, cells))
            come.append(cells)
            if len(sent) > MOST_CIRCUITS:
                raise UnsupportedError(f"{self.name}: more than {MOST_CIRCUITS} circuits over link {cable.name}; divide less")
            key, at = ("rx", cable.name, len(come) - 1), there
            way.append(there)
        self.circuits.append(f"{what}: {' > '.join(way)}, {cells.cells} cells per frame")
        self.laid[source.device, source.key, device] = key, cells
        return key, cells

    def sources_of(self, binding: Binding, port: StreamPort, device: str) -> list[_Source]:
        """The streams that hold what an input reads: of other segments, or of the host."""
        found = []
        for segment in self.segments:
            for index, write in enumerate(segment.writes):
                if write.tensor == binding.tensor and _meets(write.region, binding.region):
                    found.append(_Source(segment.device, ("core", segment.name, index),
                                         self.designs[segment.name].outputs[index], write.region))
        return found or [self.host_input(binding, port, device)]

    def host_input(self, binding: Binding, port: StreamPort, device: str) -> _Source:
        """The host's stream of a region, which all who read the same share."""
        entry = entry_of(self.platform, device)
        known, site = self.hosts, self.site(entry)
        asked = (entry, binding.tensor, binding.region)
        if asked not in known:
            known[asked] = len(site.inputs)
            made = StreamPort(f"in{known[asked]}", port.tensor, port.channels, port.bits, port.signed, port.height, port.width,
                              loads=port.loads)
            site.inputs.append((made, binding))
        return _Source(entry, ("host", known[asked]), site.inputs[known[asked]][0], binding.region)

    def read(self, segment: Segment, index: int) -> None:
        """Lay what one input of a segment reads."""
        binding, port = segment.reads[index], self.designs[segment.name].inputs[index]
        sources = self.sources_of(binding, port, segment.device)
        alone = len(sources) == 1 and sources[0].region == binding.region
        waits = len(sources) > 1 or len(segment.reads) > 1
        parts = []
        for source in sources:
            area = None if alone else self.area(source.region, source.port, binding.tensor)
            parts.append(Reading(*self.laid_to(source, segment.device, binding.tensor), area, waits))
        if alone and _geometry(sources[0].port) != _geometry(port) and not is_flattened(form_of(sources[0].port), port):
            left = f"{sources[0].device} as {_geometry(sources[0].port)}"
            raise UnsupportedError(f"{self.name}: {binding.tensor} leaves {left} and is read by {segment.name} as "
                                   f"{_geometry(port)}; put the reshape where it is read")
        wanted = None if alone else self.area(binding.region, port, binding.tensor)
        self.site(segment.device).readings.append((segment.name, index, port, wanted, tuple(parts)))

    def load(self, segment: Segment, index: int, port: StreamPort) -> None:
        """Lay the way of the weights that an input of a segment takes; the host has them."""
        region = ((0, 1), (0, port.channels), (0, port.height), (0, port.width))
        source = self.host_input(Binding(port.name, port.tensor, region), port, segment.device)
        reading = Reading(*self.laid_to(source, segment.device, port.tensor), None, False)
        self.site(segment.device).readings.append((segment.name, index, port, None, (reading,)))

    def lay(self, program: Program) -> None:
        """Everything that these segments read, and what others want of them."""
        for segment in self.segments:
            for index in range(len(segment.reads)):
                self.read(segment, index)
            for index, port in enumerate(self.designs[segment.name].inputs):
                if port.loads:
                    self.load(segment, index, port)
        self.wait_for_host(wanted_outside(self.segments, program))

    def area(self, region: Region, port: StreamPort, tensor: str) -> Area:
        """Channels and rows of a region whose port has just these."""
        spans = (*region, (0, 1), (0, 1))[1:4]
        sizes = tuple(stop - start for start, stop in spans)
        if sizes != (port.channels, port.height, port.width):
            raise UnsupportedError(f"{self.name}: {tensor} is divided in a shape its stream does not have; divide it along "
                                   "channels or rows")
        return Area(spans[0], spans[1])

    def wait_for_host(self, wanted: Mapping[str, Sequence[Binding]]) -> None:
        """Lay what the host wants: every share by itself."""
        for segment in self.segments:
            for index, write in enumerate(segment.writes):
                if write not in wanted.get(segment.name, ()):
                    continue
                port, entry = self.designs[segment.name].outputs[index], entry_of(self.platform, segment.device)
                source = _Source(segment.device, ("core", segment.name, index), port, write.region)
                key, arrives = self.laid_to(source, entry, write.tensor)
                site = self.site(entry)
                made = StreamPort(f"out{len(site.outputs)}", port.tensor, port.channels, port.bits, port.signed, port.height,
                                  port.width)
                site.outputs.append((made, Reading(key, arrives, None, False), write))


def cell_of(cables: Sequence[Cable], platform: Platform) -> CellFormat:
    """Cells that the slowest link carries one of per clock, within limits."""
    per_clock = [int(c.bandwidth_bytes_per_s * 8 / _clock_hz(c, platform)) for c in cables]
    widest = min(per_clock, default=MOST_PAYLOAD_BITS) - OVERHEAD_BITS
    return CellFormat(max(LEAST_PAYLOAD_BITS, min(MOST_PAYLOAD_BITS, widest // 32 * 32)))


def _clock_hz(cable: Cable, platform: Platform) -> float:
    return max(platform.device(e).clock_hz or 0.0 for e in cable.ends)


def _meets(one: Region, other: Region) -> bool:
    return all(max(a, c) < min(b, d) for (a, b), (c, d) in zip(one, other, strict=True))


def _geometry(port: StreamPort) -> str:
    return f"{port.channels}x{port.height}x{port.width} of {port.bits} bits"


def time_slots(words: Sequence[int]) -> tuple[int, ...]:
    """The circuit of each slot: shares in proportion to the words, spread evenly."""
    if not words:
        return ()
    counts = [max(1, round(SLOTS_OF_LARGEST * w / max(words))) for w in words]
    common = gcd(*counts)
    places = [((i + 0.5) * common / count, k) for k, count in enumerate(counts) for i in range(count // common)]
    return tuple(k for _, k in sorted(places))


def build_system(name: str, segments: Sequence[Segment], designs: Mapping[str, Design], program: Program,
                 platform: Platform) -> System:
    """Boards, wires and host ports of some segments, whose cores are given.

    Raises:
        UnsupportedError: a tensor cannot travel as a stream; says which.
    """
    if any(designs[s.name].memory is not None for s in segments):
        raise UnsupportedError(f"{name}: a board that reads weights from memory has no links; leave out --architecture")
    layout = _Layout(name, segments, designs, platform)
    layout.lay(program)
    identity = zlib.crc32("".join(text for s in segments for _, text in sorted(designs[s.name].files.items())).encode())
    devices = [d.name for d in platform.devices if d.name in layout.sites]
    plans = {d: _plan(layout, d, identity) for d in devices}
    boards = tuple(build_board(plans[d]) for d in devices)
    at = {d: i for i, d in enumerate(devices)}
    inputs = tuple(HostPort(at[d], n, b.tensor, b.region) for d in devices
                   for n, (_, b) in enumerate(layout.sites[d].inputs))
    outputs = tuple(HostPort(at[d], n, b.tensor, b.region) for d in devices
                    for n, (_, _, b) in enumerate(layout.sites[d].outputs))
    return System(name, boards, tuple(devices), tuple(_wires(layout, plans, at)), inputs, outputs, tuple(layout.circuits))


def wanted_outside(segments: Sequence[Segment], program: Program) -> dict[str, list[Binding]]:
    """What others than these segments read of what they write, and the graph's outputs."""
    members = {s.name for s in segments}
    read = {r.tensor for s in program.segments if s.name not in members for r in s.reads} | set(program.graph.outputs)
    return {s.name: [w for w in s.writes if w.tensor in read] for s in segments}


def cells_over_links(segments: Sequence[Segment], program: Program, platform: Platform) -> dict[str, int]:
    """Cells per frame of every direction of a link, `LINK:FROM`, without building the cores."""
    ports = {s.name: Design(s.name, {}, tuple(stream_port(f"in{i}", b.name, stream_formats(s.graph)[b.name])
                                              for i, b in enumerate(s.reads)),
                            tuple(stream_port(f"out{i}", b.name, stream_formats(s.graph)[b.name])
                                  for i, b in enumerate(s.writes))) for s in segments}
    layout = _Layout("boards", segments, ports, platform)
    layout.lay(program)
    return {f"{link}:{device}": sum(cells.cells for _, cells in circuits)
            for device, site in layout.sites.items() for link, circuits in site.outgoing.items()}


def _plan(layout: _Layout, device: str, identity: int) -> BoardPlan:
    site = layout.sites[device]
    names = [c.name for c in layout.cables if c.name in site.incoming or c.name in site.outgoing]
    numbers = {name: n for n, name in enumerate(names)}

    def numbered(key: Key) -> Key:
        return ("rx", numbers[str(key[1])], key[2]) if key[0] == "rx" else key

    def own(reading: Reading) -> Reading:
        return Reading(numbered(reading.source), reading.arrives, reading.area, reading.waits)

    ends = []
    for name in names:
        sent = [(numbered(key), cells) for key, cells in site.outgoing.get(name, [])]
        words = [1 if (name, device, k) in layout.seldom else cells.cells for k, (_, cells) in enumerate(sent)]
        ends.append(LinkEnd(name, tuple(site.incoming.get(name, ())), tuple(sent), time_slots(words)))
    cores = tuple((s.name, layout.designs[s.name]) for s in layout.segments if s.device == device)
    return BoardPlan(f"{layout.name}_{device}", layout.cell, identity, depth_of(layout.cables, layout.platform), cores,
                     tuple(p for p, _ in site.inputs), tuple((p, own(r)) for p, r, _ in site.outputs),
                     tuple((n, i, p, a, tuple(own(r) for r in parts)) for n, i, p, a, parts in site.readings), tuple(ends))


def depth_of(cables: Sequence[Cable], platform: Platform) -> int:
    """Words a circuit's buffer holds: those under way while a credit travels back."""
    longest = max((ceil(c.latency_s * _clock_hz(c, platform)) for c in cables), default=0)
    return min(MOST_DEPTH, 2 * longest + PIPELINE_CLOCKS)


def _wires(layout: _Layout, plans: Mapping[str, BoardPlan], at: Mapping[str, int]) -> list[Wire]:
    found = []
    for cable in layout.cables:
        if any(d not in plans or cable.name not in [e.name for e in plans[d].links] for d in cable.ends):
            continue
        clock_hz = _clock_hz(cable, layout.platform)
        per_clock = cable.bandwidth_bytes_per_s * 8 / clock_hz / layout.cell.bits
        latency = max(1, ceil(cable.latency_s * clock_hz))
        for source, target in (cable.ends, cable.ends[::-1]):
            leaves, enters = (([e.name for e in plans[d].links].index(cable.name)) for d in (source, target))
            found.append(Wire(cable.name, at[source], len(plans[source].outputs) + leaves, at[target],
                              len(plans[target].inputs) + enters, latency, min(1.0, per_clock)))
    return found
