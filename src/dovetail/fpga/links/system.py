"""Segments of a program on several FPGAs as one system: which streams cross which links, and every board as a design.

A stream that crosses links is a circuit: its way is fixed when the system is built, the shortest over the platform's links, and
on every link it has time slots in proportion to what a frame of it takes. Boards on the way pass it on: from buffer to buffer,
or, where the platform's boards are circuit switches, slot by slot (`switch.py`). Frames enter and leave at the board that the
host is linked to; so do weights that are loaded, over circuits of their own with the fewest time slots.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, gcd

from dovetail.errors import UnsupportedError
from dovetail.fpga.assemble import stream_port
from dovetail.fpga.design import Design
from dovetail.fpga.links.board import build_board
from dovetail.fpga.links.cells import MOST_DEPTH
from dovetail.fpga.links.layout import Layout, clock_of, entry_of
from dovetail.fpga.links.slots import MOST_DELAY_FRAMES, SlotSchedule, schedule
from dovetail.fpga.links.wiring import BoardPlan, InputReading, Key, LinkEnd
from dovetail.fpga.mapping import stream_formats
from dovetail.ir import Region
from dovetail.platform.device import Kind, Platform
from dovetail.platform.device import Link as Cable
from dovetail.schedule.program import Program, Segment

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
    slots: tuple[str, ...] = ()
    """Of switches: their time slots, for people."""
    warnings: tuple[str, ...] = ()

    @property
    def adders(self) -> int:
        return sum(b.adders for b in self.boards)


def depths(program: Program, platform: Platform) -> dict[str, int]:
    """How many times data has come back to FPGAs from elsewhere before each segment."""
    found: dict[str, int] = {}
    for segment in program.segments:
        on_fpga, deepest = platform.device(segment.device).kind is Kind.FPGA, 0
        for other in program.segments:
            if other.name in found and {w.tensor for w in other.writes} & {r.tensor for r in segment.reads}:
                returns = on_fpga and platform.device(other.device).kind is not Kind.FPGA
                deepest = max(deepest, found[other.name] + returns)
        found[segment.name] = deepest
    return found


def in_turn(program: Program, platform: Platform) -> list[Segment]:
    """All segments in an order in which those of a system follow each other."""
    deep = depths(program, platform)
    return sorted(program.segments, key=lambda s: (deep[s.name], platform.device(s.device).kind is not Kind.FPGA))


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
    layout = Layout(name, segments, designs, platform)
    layout.lay(program)
    interval = max((d.interval_cycles for d in designs.values()), default=1)
    slots = slots_of(layout, interval)
    identity = zlib.crc32("".join(text for s in segments for _, text in sorted(designs[s.name].files.items())).encode())
    devices = [d.name for d in platform.devices if d.name in layout.sites]
    plans = {d: _plan(layout, d, identity, slots) for d in devices}
    boards = tuple(build_board(plans[d]) for d in devices)
    at = {d: i for i, d in enumerate(devices)}
    inputs = tuple(HostPort(at[d], n, b.tensor, b.region) for d in devices
                   for n, (_, b) in enumerate(layout.sites[d].inputs))
    outputs = tuple(HostPort(at[d], n, b.tensor, b.region) for d in devices
                    for n, (_, _, b) in enumerate(layout.sites[d].outputs))
    return System(name, boards, tuple(devices), tuple(_wires(layout, plans, at)), inputs, outputs, tuple(layout.circuits),
                  () if slots is None else tuple(told_of(layout, slots)),
                  () if slots is None else tuple(_too_slow(layout, slots, interval)))


def slots_of(layout: Layout, wanted_clocks: int) -> SlotSchedule | None:
    """Time slots of all circuits, where boards are switches."""
    switch = layout.platform.switch
    if switch is None:
        return None
    per_clock = min((cells_per_clock(c, layout) for c in layout.cables), default=1.0)
    return schedule(layout.ways, switch.most_slots, int(wanted_clocks * per_clock))


def _too_slow(layout: Layout, slots: SlotSchedule, interval: int) -> list[str]:
    """What is to be said where slots take longer than layers: no others would take less."""
    per_clock = min((cells_per_clock(c, layout) for c in layout.cables), default=1.0)
    clocks, switch = ceil(slots.clocks / per_clock), layout.platform.switch
    if clocks <= interval or slots.busiest is None or switch is None:
        return []
    link, board = slots.busiest
    names = ", ".join(c.name for c in layout.ways if slots.busiest in c.hops)
    return [f"{layout.name}: time slots carry a frame in {clocks:,} clocks, where its layers take {interval:,}: link {link} from "
            f"{board} has {names}, and no frame of up to {switch.most_slots} slots is faster"]


def cells_per_clock(cable: Cable, layout: Layout) -> float:
    """Cells that a link carries in a clock, one at most."""
    return min(1.0, cable.bandwidth_bytes_per_s * 8 / clock_of(cable, layout.platform) / layout.cell.bits)


def told_of(layout: Layout, slots: SlotSchedule) -> list[str]:
    """Time slots for people: every circuit, and on every board which slot follows which."""
    lines = [f"frames of {slots.slots} time slots carry a frame of the network in {slots.clocks:,} clocks of a link"]
    for number, (circuit, share) in enumerate(zip(layout.ways, slots.shares, strict=True)):
        hops = [f"{link} from {board} in {', '.join(map(str, slots.of(number, (link, board))))}" for link, board in circuit.hops]
        lines.append(f"{circuit.name}: {share} of {slots.slots} slots; {'; '.join(hops)}")
    return lines


def cells_over_links(segments: Sequence[Segment], program: Program, platform: Platform) -> dict[str, int]:
    """Cells per frame of every direction of a link, `LINK:FROM`, without building the cores."""
    layout = _planned(segments, program, platform)
    return {f"{link}:{device}": sum(cells.cells for _, cells in circuits)
            for device, site in layout.sites.items() for link, circuits in site.outgoing.items()}


def slots_over_links(segments: Sequence[Segment], program: Program, platform: Platform, clocks: int) -> SlotSchedule | None:
    """Time slots for a frame every so many clocks, without building the cores; None where boards are no switches."""
    return slots_of(_planned(segments, program, platform), clocks)


def _planned(segments: Sequence[Segment], program: Program, platform: Platform) -> Layout:
    """Circuits of cores that are not built."""
    ports = {s.name: Design(s.name, {}, tuple(stream_port(f"in{i}", b.name, stream_formats(s.graph)[b.name])
                                              for i, b in enumerate(s.reads)),
                            tuple(stream_port(f"out{i}", b.name, stream_formats(s.graph)[b.name])
                                  for i, b in enumerate(s.writes))) for s in segments}
    layout = Layout("boards", segments, ports, platform)
    layout.lay(program)
    return layout


def _plan(layout: Layout, device: str, identity: int, slots: SlotSchedule | None) -> BoardPlan:
    site = layout.sites[device]
    names = [c.name for c in layout.cables if c.name in site.incoming or c.name in site.outgoing]
    numbers = {name: n for n, name in enumerate(names)}

    def numbered(key: Key) -> Key:
        return ("rx", numbers[str(key[1])], key[2]) if key[0] == "rx" else key

    def own(reading: InputReading) -> InputReading:
        return replace(reading, source=numbered(reading.source))

    longest = max((ceil(c.latency_s * clock_of(c, layout.platform)) for c in layout.cables), default=0)
    depth, ends = min(MOST_DEPTH, 2 * longest + PIPELINE_CLOCKS), []  # words under way while a credit travels back
    for name in names:
        sent = tuple((numbered(key), cells) for key, cells in site.outgoing.get(name, []))
        come = tuple(site.incoming.get(name, ()))
        if slots is not None:
            there = next(e for c in layout.cables if c.name == name for e in c.ends if e != device)
            ends.append(_slotted(layout, slots, LinkEnd(name, come, sent, (), ((), ())), device, there))
            continue
        words = [1 if (name, device, k) in layout.seldom else cells.cells for k, (_, cells) in enumerate(sent)]
        ends.append(LinkEnd(name, come, sent, time_slots(words), ((depth,) * len(come), (depth,) * len(sent))))
    cores = tuple((s.name, layout.designs[s.name]) for s in layout.segments if s.device == device)
    deepest = max([depth, *(d for e in ends for way in e.depths for d in way)])
    return BoardPlan(f"{layout.name}_{device}", layout.cell, identity, 2 * deepest, cores,
                     tuple(p for p, _ in site.inputs), tuple((p, own(r)) for p, r, _ in site.outputs),
                     tuple((n, i, p, a, tuple(own(r) for r in parts)) for n, i, p, a, parts in site.readings), tuple(ends))


def _slotted(layout: Layout, slots: SlotSchedule, end: LinkEnd, device: str, there: str) -> LinkEnd:
    """A link's end at a switch: slots both ways, and buffers for what is under way while a credit comes back."""
    latency = max(1, max(ceil(c.latency_s * clock_of(c, layout.platform)) for c in layout.cables))
    turns = max(sum(hop in c.hops for c in layout.ways) for hop in slots.owners)  # until a circuit's credit is told again
    depths, owners = list[tuple[int, ...]](), list[tuple[int, ...]]()
    for hop in ((end.name, there), (end.name, device)):
        crossing = [n for n, c in enumerate(layout.ways) if hop in c.hops]
        hops = [len(layout.ways[n].hops) for n in crossing]
        # Clocks from a cell's sending until the word that it was taken is back, at most.
        trips = [count * (2 * latency + PIPELINE_CLOCKS + turns) + ((count - 1) * MOST_DELAY_FRAMES + 1) * slots.slots
                 for count in hops]
        depths.append(tuple(min(MOST_DEPTH, -(-trip * slots.shares[n] // slots.slots) + slots.shares[n] + 1)
                            for trip, n in zip(trips, crossing, strict=True)))
        numbers = {n: k for k, n in enumerate(crossing)}
        free = (None,) * slots.slots
        owners.append(tuple(len(crossing) if owner is None else numbers[owner] for owner in slots.owners.get(hop, free)))
    return replace(end, slots=owners[1], depths=(depths[0], depths[1]), arriving=owners[0])


def _wires(layout: Layout, plans: Mapping[str, BoardPlan], at: Mapping[str, int]) -> list[Wire]:
    found = []
    for cable in layout.cables:
        if any(d not in plans or cable.name not in [e.name for e in plans[d].links] for d in cable.ends):
            continue
        latency = max(1, ceil(cable.latency_s * clock_of(cable, layout.platform)))
        for source, target in (cable.ends, cable.ends[::-1]):
            leaves, enters = (([e.name for e in plans[d].links].index(cable.name)) for d in (source, target))
            found.append(Wire(cable.name, at[source], len(plans[source].outputs) + leaves, at[target],
                              len(plans[target].inputs) + enters, latency, cells_per_clock(cable, layout)))
    return found
