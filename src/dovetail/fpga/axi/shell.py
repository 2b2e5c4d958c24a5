"""A design as a board sees it: `NAME_axi`, with AXI4-Stream ports for packets and an AXI4-Lite port for registers.

A design that uses memory gets an AXI4 master, `m_axi_*`: its image lies where the host says, before memory is enabled.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from dovetail.document import IDENTIFIER, INCOMPLETE, PLAIN_FILE, FieldPath, OneOf, Text, Whole, read_document, read_texts
from dovetail.errors import UnsupportedError, UsageError
from dovetail.fpga.axi import registers
from dovetail.fpga.axi.control import FLAGS, INPUT_SOURCES, LINK_SOURCES, MEMORY_FLAGS, OUTPUT_SOURCES, Facts, control_module
from dovetail.fpga.axi.lanes import CAUSE_BITS, LinkLane, state_bits, watcher_module
from dovetail.fpga.axi.memory import ADDRESS_BITS, MASTER, PAGE_BITS, REPORTS
from dovetail.fpga.axi.pattern import pattern_frame
from dovetail.fpga.axi.ports import input_port, output_port
from dovetail.fpga.axi.striped import bus_widths, memory_modules, part_bytes, port_pins, striped_image
from dovetail.fpga.design import Design, MemoryPort, StreamPort
from dovetail.fpga.engines.stream import slice_module
from dovetail.fpga.packing import BUS_BITS, as_pixels, to_packets
from dovetail.fpga.rtl.expressions import ONE, Signal, signal
from dovetail.fpga.rtl.modules import Instance, Module
from dovetail.fpga.rtl.verilog import print_module
from dovetail.fpga.toolchain.tools import content_key
from dovetail.ir import Graph
from dovetail.numerics.ranges import Range, stored_ranges
from dovetail.numerics.reference import run_integer
from dovetail.words import counted

DEFAULT_BUS_BITS = 64
HASH_BITS = 32 * registers.HASH_WORDS
SCHEMA = 1
LITE_IN = (("awvalid", 1), ("awaddr", registers.ADDRESS_BITS), ("wvalid", 1), ("wdata", 32), ("wstrb", 4), ("bready", 1),
           ("arvalid", 1), ("araddr", registers.ADDRESS_BITS), ("rready", 1))
LITE_OUT = (("awready", 1), ("wready", 1), ("bvalid", 1), ("bresp", 2),
            ("arready", 1), ("rvalid", 1), ("rdata", 32), ("rresp", 2))
LITE = "s_axi_ctrl"
SHELL = {"top": IDENTIFIER, "files": [PLAIN_FILE], "bus_bits": OneOf(BUS_BITS),
         "build_hash": Text(f"[0-9a-f]{{{HASH_BITS // 4}}}", f"{HASH_BITS // 4} hexadecimal digits"),
         "test_crcs": [Whole(0, (1 << 32) - 1)], "memory_bits?": Whole(0, 4096), "links?": Whole(0, registers.MOST_LINKS)}
"""What `shell.json` holds."""
MEMORY_FILE = "memory.bin"
"""The image of a design's memory as bytes, for those who place it."""


@dataclass(frozen=True, slots=True)
class Shell:
    """A core with its shell: the core's files and ours make the design whose top module is `top`."""

    core: Design
    top: str
    files: Mapping[str, str]
    """The shell's own Verilog."""
    bus_bits: int
    build_hash: int
    """What the BUILD_HASH registers say: the content of core and shell."""
    test_crcs: tuple[int, ...]
    """CRC-32 of each output's packet in the self-test."""
    memory_bits: int = 0
    """Bits of a word of the AXI4 master; 0 where the core uses no memory."""
    lanes: tuple[LinkLane, ...] = ()
    """Ends of links to other boards; the core's own ports are those of the host."""

    @property
    def memory_image(self) -> bytes:
        """What must lie in memory before it is enabled, from BASE on; empty where the core uses none."""
        return image_bytes(self.core)

    @property
    def pins(self) -> list[tuple[str, int, bool]]:
        """Every pin but clock and reset, as (name, bits, whether it is an input)."""
        return all_pins(self.core, self.bus_bits, self.memory_bits, self.lanes)

    @property
    def design(self) -> Design:
        """Core and shell in one; ports are still the core's."""
        return replace(self.core, top=self.top, files={**self.core.files, **self.files})

    @property
    def bus_bytes(self) -> int:
        return self.bus_bits // 8

    @property
    def hash_text(self) -> str:
        return f"{self.build_hash:0{HASH_BITS // 4}x}"

    def documents(self) -> dict[str, str]:
        """Files for those who program it: the register map for programs and for C, and what `load_shell` reads."""
        memory, links = self.core.memory is not None, len(self.lanes)
        counts = len(self.core.inputs), len(self.core.outputs)
        description = {"schema": SCHEMA, "top": self.top, "files": sorted(self.files), "bus_bits": self.bus_bits,
                       "build_hash": self.hash_text, "test_crcs": list(self.test_crcs), "memory_bits": self.memory_bits,
                       **({"links": links} if links else {})}
        return {"shell.json": json.dumps(description, indent=1) + "\n",
                "registers.json": json.dumps(registers.as_json(*counts, memory, links), indent=1) + "\n",
                f"{self.core.top}_registers.h": registers.c_header(self.core.top, *counts, self.build_hash, memory,
                                                                          links)}


def stream_pins(port: StreamPort, bus_bits: int, inward: bool) -> list[tuple[str, int, bool]]:
    """The pins of a port's AXI4-Stream as (name, bits, whether it is the shell's input)."""
    stem = f"{'s' if inward else 'm'}_axis_{port.name}"
    pins = [("tvalid", 1), ("tdata", bus_bits), ("tlast", 1)] + ([] if inward else [("tkeep", bus_bits // 8), ("tuser", 1)])
    return [(f"{stem}_{pin}", width, inward) for pin, width in pins] + [(f"{stem}_tready", 1, not inward)]


def image_bytes(design: Design) -> bytes:
    """The image of a design's memory port as it lies in memory; empty where it has none."""
    if design.memory is None:
        return b""
    return striped_image(design.memory, b"".join(bytes.fromhex(line)[::-1] for line in port_image(design)))


def port_image(design: Design) -> list[str]:
    """The beats of a design's image as its file writes them; none where it has no memory port."""
    return [] if design.memory is None else design.files[design.memory.image].split()


def all_pins(design: Design, bus_bits: int, memory_bits: int, lanes: Sequence[LinkLane] = ()) -> list[tuple[str, int, bool]]:
    """Every pin of a shell but clock and reset."""
    pins = [(f"{LITE}_{pin}", width, True) for pin, width in LITE_IN]
    pins += [(f"{LITE}_{pin}", width, False) for pin, width in LITE_OUT]
    for ports, inward in ((design.inputs, True), (design.outputs, False)):
        pins += [pin for port in ports for pin in stream_pins(port, bus_bits, inward)]
    if design.memory is not None:
        pins += port_pins(design.memory, memory_bits)
    return pins + [pin for lane in lanes for pin in lane.pins]


def build_shell(design: Design, graph: Graph, bus_bits: int = DEFAULT_BUS_BITS, memory_bits: int | None = None) -> Shell:
    """The shell of a graph's design; the reference computes what its self-test must give, with the graph's own weights in those
    layers whose weights are loaded.

    `memory_bits` is the width of the AXI4 master where the design uses memory: that of its beats unless told.
    """
    if bus_bits not in BUS_BITS:
        raise UsageError(f"shell of {design.top}: a bus of {bus_bits} bits; {', '.join(map(str, BUS_BITS))} are possible")
    if not has_room(design):
        if design.memory is not None and not _addressable(design.memory):
            raise UnsupportedError(f"shell of {design.top}: a memory port with beats of {design.memory.bytes} bytes and "
                                   f"{design.memory.beats:,} of them; an AXI4 master has beats of 4, 8, ... 128 bytes, in 4 GiB")
        raise UnsupportedError(f"shell of {design.top}: {len(design.inputs)} inputs and {len(design.outputs)} outputs; the "
                               f"register map has room for {registers.MOST_INPUTS} and {registers.MOST_OUTPUTS} of at most "
                               "65,535 rows, columns and channels")
    memory_bits = _memory_bits(design, memory_bits)
    ranges = stored_ranges(graph)
    bounds = {port.tensor: ranges[port.tensor] for port in design.streams}
    facts = Facts(design.inputs, design.outputs, bus_bits, design.latency_cycles, design.interval_cycles,
                  expected_crcs(design, graph, bus_bits, bounds), 0, _memory_facts(design))
    return finished_shell(design, facts, bounds, memory_bits)


def finished_shell(design: Design, facts: Facts, bounds: Mapping[str, Range], memory_bits: int = 0,
                   lanes: tuple[LinkLane, ...] = ()) -> Shell:
    """The shell whose build hash is that of all that it consists of."""
    name = shell_name(design)
    files = shell_files(name, design, facts, bounds, memory_bits, lanes)
    ports = [repr(port) for port in (*design.inputs, *design.outputs)]
    key = content_key([*ports, *(text for item in sorted({**design.files, **files}.items()) for text in item)])
    facts = replace(facts, build_hash=int(key[: HASH_BITS // 4], 16))
    files[f"{name}_control.v"] = print_module(control_module(f"{name}_control", facts))
    return Shell(design, name, files, facts.bus_bits, facts.build_hash, facts.test_crcs, memory_bits, lanes)


def _addressable(memory: MemoryPort) -> bool:
    return bool(bus_widths(memory)) and memory.bytes * memory.beats < 1 << 32


def _memory_bits(design: Design, wanted: int | None) -> int:
    """The master's width, 0 without one."""
    if design.memory is None:
        return 0
    possible = bus_widths(design.memory)
    if wanted is not None and wanted not in possible:
        raise UsageError(f"shell of {design.top}: a memory bus of {wanted} bits; {', '.join(map(str, possible))} are possible "
                         f"for beats of {design.memory.bytes} bytes from {counted(design.memory.masters, 'master')}")
    return wanted or possible[0]


def _memory_facts(design: Design) -> tuple[int, int, int] | None:
    if design.memory is None:
        return None
    image = image_bytes(design)
    return design.memory.masters * part_bytes(design.memory, len(port_image(design))), len(image), zlib.crc32(image)


def has_room(design: Design) -> bool:
    """Whether the register map has room for all ports and for their sizes, and an AXI4 master can serve a memory port."""
    if design.memory is not None and not _addressable(design.memory):
        return False
    fits = all(max(p.channels, p.height, p.width) < 1 << 16 for p in (*design.inputs, *design.outputs))
    return fits and len(design.inputs) <= registers.MOST_INPUTS and len(design.outputs) <= registers.MOST_OUTPUTS


def shell_name(design: Design) -> str:
    """The top module's name, such that no module of the core has it or begins with it."""
    name = f"{design.top}_axi"
    while any(file.lower().startswith(name.lower()) for file in design.files):
        name += "_shell"
    return name


def expected_crcs(design: Design, graph: Graph, bus_bits: int, bounds: Mapping[str, Range]) -> tuple[int, ...]:
    """CRC-32 of each output's packet when the inputs get the test pattern."""
    inputs = {}
    for number, port in enumerate(design.streams):
        tensor, known = graph.tensors[port.tensor], bounds[port.tensor]
        frame = pattern_frame(port, number, known.lo, known.hi)
        inputs[port.tensor] = frame.reshape(1, *tensor.shape[1:]).astype(tensor.dtype)
    results = run_integer(graph, inputs)
    packets = [to_packets(port, as_pixels(port, np.asarray(results[port.tensor])), bus_bits) for port in design.outputs]
    return tuple(zlib.crc32(packet.tobytes()) for packet in packets)


def shell_files(name: str, design: Design, facts: Facts, bounds: Mapping[str, Range], memory_bits: int,
                lanes: Sequence[LinkLane] = ()) -> dict[str, str]:
    """Every module of the shell as a file. Inputs without bounds have no pattern of the self-test."""
    count = 1 if design.memory is None else design.memory.masters
    several = "an AXI4 master" if count == 1 else f"{count} AXI4 masters"
    memory = f", {several} of {memory_bits} bits" if memory_bits else ""
    top = Module(name, (f"{design.top} behind AXI4-Stream and AXI4-Lite, {facts.bus_bits}-bit bus{memory}, all on one clock.",))
    modules: list[Module] = []
    for pin, width, inward in all_pins(design, facts.bus_bits, memory_bits, lanes):
        (top.inputs if inward else top.outputs).append(signal(pin, 0, (1 << width) - 1))
    pins = {s.name: s for s in (*top.inputs, *top.outputs)}
    shared = {s: top.net(s) for s in ("soft_rst", "abandon", "clear", "testing", "enable")}
    control: list[tuple[str, Signal]] = [(pin, pins[f"{LITE}_{pin}"]) for pin, _ in (*LITE_IN, *LITE_OUT)]
    control += list(shared.items())
    core: list[tuple[str, Signal]] = []
    for number, port in enumerate(design.inputs):
        known = None if port.loads else bounds.get(port.tensor)
        made = input_port(f"{name}_{port.name}", port, number, facts.bus_bits, None if known is None else (known.lo, known.hi))
        reports = (*INPUT_SOURCES.values(), *FLAGS["IN"])
        control += _place(top, made, port, f"in{number}", True, facts.bus_bits, reports, core)
        modules += made
    for number, port in enumerate(design.outputs):
        made = output_port(f"{name}_{port.name}", port, facts.bus_bits)
        reports = (*OUTPUT_SOURCES.values(), *FLAGS["OUT"])
        control += _place(top, made, port, f"out{number}", False, facts.bus_bits, reports, core)
        modules += made
    if design.memory is not None:
        made = memory_modules(f"{name}_memory", design.memory, memory_bits, len(port_image(design)))
        control += _place_master(top, made[0], design.memory, memory_bits, core)
        modules += made
    if lanes:
        watcher = watcher_module(f"{name}_link")
        control += _place_lanes(top, watcher, lanes, core)
        modules.append(watcher)
    modules.append(control_module(f"{name}_control", facts))
    top.instances.append(Instance(f"{name}_control", "control", tuple(control)))
    top.instances.append(Instance(design.top, "core", tuple(core), shared["soft_rst"]))
    return {f"{m.name}.v": print_module(m) for m in (top, *modules)}


def _place(top: Module, made: list[Module], port: StreamPort, label: str, inward: bool, bus_bits: int,
           reports: tuple[str, ...], core: list[tuple[str, Signal]]) -> list[tuple[str, Signal]]:
    """Instantiate a port's module between bus and core, and a register slice between it and the core, which lie apart.

    Returns the control module's pins for what the port reports; the slice's module joins those that are `made`.
    """
    module, sliced = made[0], slice_module(f"{made[0].name}_slice", port.data_bits)
    made.append(sliced)
    wires, behind = ({part: top.net(f"{stem}_{part}", port.data_bits if part == "data" else 1)
                      for part in ("valid", "ready", "data")} for stem in (label, f"{label}_core"))
    core += [(f"{port.name}_{part}", wire) for part, wire in behind.items()]
    side, other = ("out", "in") if inward else ("in", "out")
    pins = [(f"{side}_{part}", wire) for part, wire in wires.items()]
    top.instances.append(Instance(sliced.name, f"slice_{label}", (
        *((f"{other}_{part}", wire) for part, wire in wires.items()),
        *((f"{side}_{part}", wire) for part, wire in behind.items())), signal("soft_rst")))
    stem = f"{'s' if inward else 'm'}_axis_{port.name}_"
    pins += [(pin.removeprefix(stem), signal(pin, 0, (1 << width) - 1)) for pin, width, _ in stream_pins(port, bus_bits, inward)]
    names = ("soft_rst", "abandon", "clear", "testing", *(("enable",) if inward else ()))
    pins += [(s, signal(s)) for s in names]
    widths = {s.name: s.width for s in module.outputs}
    told = [(f"{label}_{report}", top.net(f"{label}_{report}", widths[report])) for report in reports]
    top.instances.append(Instance(module.name, f"port_{label}", (*pins, *((n.removeprefix(f"{label}_"), s) for n, s in told))))
    return told


def _place_master(top: Module, module: Module, port: MemoryPort, bus_bits: int,
                  core: list[tuple[str, Signal]]) -> list[tuple[str, Signal]]:
    """Instantiate the AXI4 masters between core and bus; returns the control module's pins for them."""
    between = [(part, top.net(f"memory_{part}", width)) for part, width, _ in port.signals]
    core += [(f"{port.name}_{part}", wire) for part, wire in between]
    told = [(part, top.net(f"memory_{part}", width))
            for part, width in (*((f, 1) for f in MEMORY_FLAGS), *((r, 32) for r in REPORTS),
                                ("enable", 1), ("base", ADDRESS_BITS - PAGE_BITS))]
    pins = [(pin.removeprefix(f"{MASTER}_") if port.masters == 1 else pin, signal(pin, 0, (1 << width) - 1))
            for pin, width, _ in port_pins(port, bus_bits)]
    top.instances.append(Instance(module.name, "memory", (
        *between, *told, *pins, *((s, signal(s)) for s in ("soft_rst", "clear")))))
    return [(f"memory_{part}", wire) for part, wire in told]


def _place_lanes(top: Module, watcher: Module, lanes: Sequence[LinkLane],
                 core: list[tuple[str, Signal]]) -> list[tuple[str, Signal]]:
    """Lead the cells of links past the shell, and watch each; returns the control module's pins for what is said of them."""
    links = len(lanes)
    last = state_bits(links)[-1][1]
    status = top.net("board_status", last + 1)
    core += [("status_valid", top.net("board_status_valid")), ("status_ready", top.wire("board_status_ready", ONE)),
             ("status_data", status)]
    told = [("links_up", top.wire("links_up", status.bit(1))), ("link_alarm", top.wire("link_alarm", status.bit(0)))]
    for n, (lane, (up, spoilt)) in enumerate(zip(lanes, state_bits(links), strict=True)):
        pins = {name: signal(name, 0, (1 << width) - 1) for name, width, _ in lane.pins}
        core += list(pins.items())
        seen = [(part, pins[f"{port.name}_{part.split('_')[1]}"])
                for port, part in ((lane.rx, "rx_valid"), (lane.tx, "tx_valid"), (lane.tx, "tx_ready"))]
        states = [("up", top.wire(f"link{n}_up", status.bit(up))),
                  ("cause", top.wire(f"link{n}_cause", status.bits(up + 1, CAUSE_BITS))),
                  ("spoilt_now", top.wire(f"link{n}_spoilt_now", status.bit(spoilt)))]
        counts = [(report, top.net(f"link{n}_{report}", 32)) for report in LINK_SOURCES.values()]
        top.instances.append(Instance(watcher.name, f"link{n}", (("clear", signal("clear")), *states, *seen, *counts)))
        told += [(f"link{n}_{report}", value) for report, value in counts]
    return told


def load_shell(core: Design, folder: Path, lanes: tuple[LinkLane, ...] = ()) -> Shell:
    """A stored shell around a stored core, with the Verilog text as it is on disk now."""
    known = read_document(folder / "shell.json", SCHEMA, INCOMPLETE, SHELL)
    if known.get("links", 0) != len(lanes):
        where = FieldPath(str(folder / "shell.json"), INCOMPLETE, "links")
        where.refuse(known.get("links", 0), f"{len(lanes)}, as its design has,")
    return Shell(core, known["top"], read_texts(folder, known["files"]), known["bus_bits"], int(known["build_hash"], 16),
                 tuple(known["test_crcs"]), known.get("memory_bits", 0), lanes)
