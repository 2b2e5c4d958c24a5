"""What people read in a handed-over project: its README, and how a host talks to the shell."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import resources
from textwrap import dedent

from dovetail.fpga import framing
from dovetail.fpga.axi import registers
from dovetail.fpga.axi.memory import ADDRESS_BITS
from dovetail.fpga.axi.shell import LITE, MEMORY_FILE, Shell, port_image
from dovetail.fpga.axi.striped import master_names, part_bytes
from dovetail.fpga.design import Design, StreamPort
from dovetail.fpga.packing import packet_bytes
from dovetail.words import plural


def filled(file: str, /, **values: str) -> str:
    """A text of the folder `handover`, with a value in the place of every @name@."""
    text = (resources.files("dovetail.fpga") / "handover" / file).read_text(encoding="utf-8")
    return re.sub(r"@(\w+)@", lambda name: values[name[1]], text)


def readme(design: Design, shell: Shell | None, tool: str, command: str, tops: Mapping[str, str], part: str,
           clock_hz: float) -> str:
    """README.md of a project; `tops` are the modules that can be built, with the command for each."""
    rate = f", {clock_hz / design.interval_cycles:,.0f} frames/s at this clock" if design.interval_cycles else ""
    ports = [_port_row(port, way) for way, some in (("in", design.inputs), ("out", design.outputs)) for port in some]
    return filled("project.md", core=design.top, tool=tool, command=command, part=part, mhz=f"{clock_hz / 1e6:g}",
                  shell="" if shell is None else _shell_text(shell, tops, design), ports="\n".join(ports),
                  latency=f"{design.latency_cycles:,}", interval=f"{design.interval_cycles:,}", rate=rate)


def _shell_text(shell: Shell, tops: Mapping[str, str], design: Design) -> str:
    """The two tops, and the pins of the one a board wants."""
    streams = [(f"`s_axis_{p.name}_tvalid`, `tready`, `tdata`, `tlast`", "AXI4-Stream in", p) for p in shell.core.inputs]
    streams += [(f"`m_axis_{p.name}_tvalid`, `tready`, `tdata`, `tlast`, `tkeep`, `tuser`", "AXI4-Stream out", p)
                for p in shell.core.outputs]
    pins = [f"| `{LITE}_*` | AXI4-Lite, {registers.ADDRESS_BITS} address bits, 32 data bits | |",
            *(f"| {pins} | {kind} | {packet_bytes(port, shell.bus_bits):,} |" for pins, kind, port in streams)]
    if design.memory is not None:
        pins += [f"| `{name}_*` | AXI4 master of {shell.memory_bits} bits, {ADDRESS_BITS} address bits; "
                 f"`host/{MEMORY_FILE}` must lie at MEMORY_BASE | |" for name in master_names(design.memory)]
    pins += [f"| `{p.name}_valid`, `ready`, `data` | a cell of {p.data_bits} bits a clock, {way} the link's transceiver | |"
             for lane in shell.lanes for p, way in ((lane.rx, "from"), (lane.tx, "to"))]
    return filled("project_shell.md", top=shell.top, bus_bits=str(shell.bus_bits), core_command=tops[design.top], core=design.top,
                  hash=shell.hash_text, pins="\n".join(pins))


def _port_row(port: StreamPort, direction: str) -> str:
    sign = "signed" if port.signed else "unsigned"
    return (f"| `{port.name}_valid/ready/data` | {direction} | {port.channels} x {port.bits} {sign} | "
            f"{port.height} x {port.width} beats | {_cell(port.tensor)} |")


def _cell(name: str) -> str:
    """A name of the network in one cell of a table, as code, whatever its letters are."""
    return f"`{''.join('?' if c in '`|' or not c.isprintable() else c for c in name)}`"


def link_page(shell: Shell) -> str:
    """LINK.md: packets, registers, and the messages of the link shell."""
    assert framing.__doc__ is not None
    table = framing.__doc__.split("\n\n")[1]
    port, memory = shell.core.memory, ""
    if port is not None:
        masters = ", ".join(f"`{name}`" for name in master_names(port))
        beats = len(port_image(shell.core))
        memory = filled("link_memory.md", masters=f"AXI4 {plural(port.masters, 'master')} {masters}",
                        bits=str(shell.memory_bits), file=MEMORY_FILE, size=f"{port.masters * part_bytes(port, beats):,}")
    if loads := shell.core.loads:
        memory += filled("link_weights.md", ports=", ".join(f"`s_axis_{p.name}`" for p in loads),
                         files=", axi/".join(f"{p.name}.bin" for p in loads))
    return filled("link.md", top=shell.top, memory=memory, registers=registers.markdown(), table=dedent(table))
