"""Several AXI4 masters that serve one memory port together: each moves an equal part of every beat, to and from its own place.

A burst is begun when all masters can begin it, each with the same beats. What they read arrives as it may: every part has a
FIFO of its own in the core (`MemoryPort`). What is written moves when all can take it, and a burst is written when all say so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from dovetail.fpga.axi.memory import (
    ADDRESS_BITS,
    MASTER,
    MOST_BURSTS,
    PAGE_BITS,
    PAGE_BYTES,
    REPORTS,
    Master,
    master_pins,
    possible_bits,
)
from dovetail.fpga.axi.ports import output32
from dovetail.fpga.design import MemoryPort
from dovetail.fpga.rtl.expressions import Expr, Signal, all_of, any_of, compare, const, pack, select, signal
from dovetail.fpga.rtl.modules import Instance, Module


def master_names(port: MemoryPort) -> list[str]:
    """What the pins of each master begin with."""
    return [MASTER] if port.masters == 1 else [f"{MASTER}{number}" for number in range(port.masters)]


def part_of(port: MemoryPort) -> MemoryPort:
    """The port of one master."""
    return replace(port, bytes=port.bytes // port.masters, masters=1)


def bus_widths(port: MemoryPort) -> tuple[int, ...]:
    """Bus widths that the masters of a port can have; where there are several, only that of their part of a beat."""
    found = possible_bits(part_of(port))
    return found if port.masters == 1 else found[:1]


def part_bytes(port: MemoryPort, image_beats: int) -> int:
    """Bytes of a master's place in memory: whole pages where there are several."""
    beats = max(port.beats, image_beats)
    size = beats * port.bytes // port.masters
    return size if port.masters == 1 else -(-size // PAGE_BYTES) * PAGE_BYTES


def striped_image(port: MemoryPort, image: bytes) -> bytes:
    """An image of whole beats as it lies in memory: the part of each master in its place, one place behind the other."""
    if port.masters == 1:
        return image
    each, place = port.bytes // port.masters, part_bytes(port, len(image) // port.bytes)
    parts = [b"".join(image[at:at + each] for at in range(first, len(image), port.bytes)) for first in range(0, port.bytes, each)]
    return b"".join(part.ljust(place, b"\0") for part in parts[:-1]) + parts[-1]


def port_pins(port: MemoryPort, bus_bits: int) -> list[tuple[str, int, bool]]:
    """Pins of all masters as (name, bits, whether it is the masters' input)."""
    return [(f"{name}_{pin}", width, inward) for name in master_names(port)
            for pin, width, inward in master_pins(part_of(port), bus_bits)]


def memory_modules(name: str, port: MemoryPort, bus_bits: int, image_beats: int) -> list[Module]:
    """The modules between a core's memory port and the bus, the outermost first."""
    if port.masters == 1:
        return Master(name, port, bus_bits).build()
    made = Master(f"{name}_master", part_of(port), bus_bits).build()
    return [_striped(name, port, bus_bits, made[0], part_bytes(port, image_beats) // PAGE_BYTES), *made]


def _striped(name: str, port: MemoryPort, bus_bits: int, master: Module, pages: int) -> Module:
    """`port.masters` of these masters side by side, whose places are so many pages long."""
    m = Module(name, (f"{port.masters} AXI4 masters of {bus_bits} bits, each with its part of beats of {port.bytes} bytes.",))
    shared = {pin: m.input(pin, width) for pin, width in (("soft_rst", 1), ("clear", 1), ("enable", 1),
                                                          ("base", ADDRESS_BITS - PAGE_BITS), ("request_address", 32),
                                                          ("request_beats", 8))}
    if port.writes:
        shared["request_write"] = m.input("request_write")
    lanes = range(port.masters)
    ready = [m.net(f"ready_{n}") for n in lanes]
    can = m.wire("all_ready", all_of(*ready))
    begins = m.wire("begins", all_of(m.input("request_valid"), can))
    m.output("request_ready", can)
    part = port.bytes * 8 // port.masters
    valid, data = [m.net(f"valid_{n}") for n in lanes], [m.net(f"data_{n}", part) for n in lanes]
    m.drive_outputs(valid=pack([(bit, 1) for bit in valid]), data=pack([(piece, part) for piece in data]))
    told = [{report: m.net(f"{report}_{n}", width) for report, width in
             (("waiting", 1), ("error", 1), *((r, 32) for r in REPORTS))} for n in lanes]
    waiting = m.wire("any_waiting", any_of(*(t["waiting"] for t in told)))
    m.output("waiting", waiting)
    writes = _written(m, port, part, any_of(shared["soft_rst"], waiting)) if port.writes else [{} for _ in lanes]
    for n, pins in enumerate(master_names(port)):
        base = m.wire(f"base_{n}", shared["base"] + const(n * pages), (0, (1 << ADDRESS_BITS - PAGE_BITS) - 1))
        own: Mapping[str, Signal] = {**shared, "base": base, "request_valid": begins, "request_ready": ready[n],
                                     "valid": valid[n], "data": data[n], **told[n], **writes[n]}
        bus = _outer_pins(m, pins, master_pins(part_of(port), bus_bits))
        m.instances.append(Instance(master.name, f"master_{n}", (*own.items(), *bus)))
    _report(m, told)
    return m


def _outer_pins(m: Module, name: str, pins: Sequence[tuple[str, int, bool]]) -> list[tuple[str, Signal]]:
    """Lead a master's pins to the bus out of the module."""
    found = []
    for pin, width, inward in pins:
        outside = signal(f"{name}_{pin}", 0, (1 << width) - 1)
        (m.inputs if inward else m.outputs).append(outside)
        found.append((pin, outside))
    return found


def _report(m: Module, told: Sequence[Mapping[str, Signal]]) -> None:
    """What all masters say together: flags of any, counts of all."""
    m.output("error", any_of(*(t["error"] for t in told)))
    states: Expr = pack([(m.wire(f"state_{k}", any_of(*(t["status"].bit(k) for t in told))), 1) for k in range(STATE_BITS)])
    output32(m, "status", states)
    for report in REPORTS[1:]:
        total: Expr = told[0][report]
        for t in told[1:]:
            total = total + t[report]
        m.output(report, m.wire(f"{report}_in_all", total, (0, (1 << 32) - 1)))


STATE_BITS = 8
"""Bits of the status that say anything: each is set where a master's is."""


def _written(m: Module, port: MemoryPort, part: int, resets: Expr) -> list[dict[str, Signal]]:
    """Beats to write, for all masters at once, and answers counted until all have given theirs; each master's pins."""
    lanes = range(port.masters)
    data, ready = m.input("write_data", port.bytes * 8), [m.net(f"write_ready_{n}") for n in lanes]
    can = m.wire("all_write", all_of(*ready))
    moves = m.wire("write_moves", all_of(m.input("write_valid"), can))
    m.output("write_ready", can)
    answered, counts = [m.net(f"written_{n}") for n in lanes], [signal(f"answers_{n}", 0, MOST_BURSTS) for n in lanes]
    whole = m.wire("all_written", all_of(*(compare("!=", count, 0) for count in counts)))
    forgets = m.wire("forgets", resets)
    for count, answer in zip(counts, answered, strict=True):
        m.drive(count, select(forgets, 0, count + answer - whole), reset=0)
    m.output("written", whole)
    return [{"write_data": m.wire(f"write_data_{n}", data.bits(n * part, part)), "write_valid": moves, "write_ready": ready[n],
             "written": answered[n]} for n in lanes]
