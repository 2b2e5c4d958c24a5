"""A part behind its AXI ports beside the processors of a Zynq: block design, device tree, and an overlay for PYNQ.

What it writes fits the driver of boards under Linux (`runtime/transports/uio.py`): an AXI DMA per port in direct register mode,
registers as UIO devices, one buffer of u-dma-buf. Names of cells, properties and pins are those of AMD's documents PG082 and
PG201 (processors), PG021 (AXI DMA), PG164 (reset), PG247 (SmartConnect) and UG835 (Tcl commands).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dovetail.fpga.axi.shell import LITE, Shell
from dovetail.fpga.axi.striped import master_names
from dovetail.fpga.export_pages import filled
from dovetail.fpga.packing import packet_bytes

PAGE_BYTES = 4096
WINDOW_BYTES = 0x10000
"""Addresses of the shell, and of each DMA."""
MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Family:
    """How a generation's processors are named and reached."""

    parts: str
    """What order codes begin with."""
    processors: str
    preset: str
    settings: str
    clock: str
    running: str
    """The pin that says that processors are out of reset."""
    to_registers: str
    to_memory: str
    port_clocks: tuple[str, ...]
    base: int
    address_bits: int


FAMILIES = (
    Family("xc7z", "processing_system7", 'make_external "FIXED_IO, DDR" apply_board_preset "1" Master "Disable" Slave "Disable"',
           "CONFIG.PCW_USE_M_AXI_GP0 1 CONFIG.PCW_USE_S_AXI_HP0 1 CONFIG.PCW_FPGA0_PERIPHERAL_FREQMHZ {mhz}", "FCLK_CLK0",
           "FCLK_RESET0_N", "M_AXI_GP0", "S_AXI_HP0", ("M_AXI_GP0_ACLK", "S_AXI_HP0_ACLK"), 0x4000_0000, 32),
    Family("xczu|xck26", "zynq_ultra_ps_e", 'apply_board_preset "1"',
           "CONFIG.PSU__USE__M_AXI_GP0 1 CONFIG.PSU__USE__M_AXI_GP1 0 CONFIG.PSU__USE__M_AXI_GP2 0 CONFIG.PSU__USE__S_AXI_GP2 1 "
           "CONFIG.PSU__CRL_APB__PL0_REF_CTRL__FREQMHZ {mhz}", "pl_clk0", "pl_resetn0", "M_AXI_HPM0_FPD", "S_AXI_HP0_FPD",
           ("maxihpm0_fpd_aclk", "saxihp0_fpd_aclk"), 0xA000_0000, 40))


def family_of(part: str) -> Family | None:
    """The generation of a part that has processors; None for others."""
    return next((family for family in FAMILIES if re.match(family.parts, part)), None)


def zynq_files(shell: Shell, part: str, clock_hz: float, sources: Sequence[str]) -> dict[str, str]:
    """`zynq/` of a project and a section for its README (`README.md`); nothing for parts without processors, or with links."""
    family = family_of(part)
    if family is None or shell.lanes:
        return {}
    ports = max(len(shell.core.inputs), len(shell.core.outputs))
    buses = [] if shell.core.memory is None else master_names(shell.core.memory)
    streams = [(n, way) for n in range(ports) for way, some in (("MM2S", shell.core.inputs), ("S2MM", shell.core.outputs))
               if n < len(some)]
    masters = {**{place: f"dma{n}/M_AXI_{way}" for place, (n, way) in enumerate(streams)},
               **{len(streams) + place: f"shell/{name}" for place, name in enumerate(buses)}}
    values: dict[str, Any] = {"top": shell.top, "part": part, "mhz": f"{clock_hz / 1e6:g}", "lite": LITE, "clock": family.clock}
    dmas = [_dma(shell, n, family, masters, values) for n in range(ports)]
    dmas += [f"bus shell/{name} memory/S{len(streams) + place:02}_AXI" for place, name in enumerate(buses)]
    addresses = [f"assign_bd_address -offset {_hex(family.base + WINDOW_BYTES * (n + 1))} -range 64K -target_address_space "
                 f"[get_bd_addr_spaces ps/Data] [get_bd_addr_segs dma{n}/S_AXI_LITE/Reg]" for n in range(ports)]
    clocks = [f"wire ps/{family.clock} ps/{pin}" for pin in family.port_clocks]
    size = buffer_bytes(shell)
    script = filled("zynq.tcl", **values, sources="\n".join(f"add_files -norecurse {name}" for name in sources),
                    processors=family.processors, preset=family.preset, settings=family.settings.format(mhz=values["mhz"]),
                    running=family.running, port_clocks="\n".join(clocks),
                    slaves=str(ports + 1), masters=str(len(masters)), to_registers=family.to_registers,
                    to_memory=family.to_memory, dmas="\n".join(dmas), base=_hex(family.base), addresses="\n".join(addresses))
    names = ["dovetail_shell", *(f"dovetail_dma{n}" for n in range(ports))]
    return {"zynq/block_design.tcl": script,
            "zynq/dovetail.dtso": filled("zynq.dtso", nodes="\n".join(
                _uio(name, family.base + WINDOW_BYTES * place, family) for place, name in enumerate(names)), size=_hex(size)),
            "zynq/overlay.py": filled("zynq_overlay.txt", top=shell.top, registers=" ".join(names)),
            "README.md": filled("zynq.md", top=shell.top, part=part, mib=str(size // MIB))}


def buffer_bytes(shell: Shell) -> int:
    """What the driver takes of u-dma-buf, page by page, up to whole MiB: a packet of each port, and the design's memory."""
    sizes = [packet_bytes(port, shell.bus_bits) for port in (*shell.core.inputs, *shell.core.outputs)]
    memory = shell.core.memory
    if memory is not None:
        sizes.append(max(len(shell.memory_image), memory.beats * memory.bytes))
    return -(-sum(-(-size // PAGE_BYTES) * PAGE_BYTES for size in sizes) // MIB) * MIB


def _dma(shell: Shell, n: int, family: Family, masters: Mapping[int, str], values: Mapping[str, Any]) -> str:
    """Tcl that makes and wires the AXI DMA of a port: to memory, and to the shell's streams."""
    ways, halves = [], []
    for way, some, stream in (("mm2s", shell.core.inputs, "s_axis_"), ("s2mm", shell.core.outputs, "m_axis_")):
        there = n < len(some)
        halves.append(f"CONFIG.c_include_{way} {there:d}")
        if not there:
            continue
        halves += [f"CONFIG.c_m_axi_{way}_data_width {shell.bus_bits}",
                   f"CONFIG.c_{'m_axis' if way == 'mm2s' else 's_axis'}_{way}_tdata_width {shell.bus_bits}"]
        inner, outer = f"dma{n}/{'M' if way == 'mm2s' else 'S'}_AXIS_{way.upper()}", f"shell/{stream}{some[n].name}"
        place = next(place for place, name in masters.items() if name == f"dma{n}/M_AXI_{way.upper()}")
        ways += [f"wire ps/{family.clock} dma{n}/m_axi_{way}_aclk", f"bus dma{n}/M_AXI_{way.upper()} memory/S{place:02}_AXI",
                 f"bus {inner} {outer}" if way == "mm2s" else f"bus {outer} {inner}"]
    return filled("zynq_dma.tcl", **values, n=str(n), slave=f"{n + 1:02}", address_bits=str(family.address_bits),
                  halves=" ".join(halves), ways="\n".join(ways)).rstrip()


def _uio(name: str, address: int, family: Family) -> str:
    """A node of the device tree: registers that a program maps."""
    wide = family.address_bits > 32
    reg = f"0x0 {_hex(address)} 0x0 {_hex(WINDOW_BYTES)}" if wide else f"{_hex(address)} {_hex(WINDOW_BYTES)}"
    return f'\t{name}@{address:x} {{\n\t\tcompatible = "generic-uio";\n\t\treg = <{reg}>;\n\t}};'


def _hex(value: int) -> str:
    return f"0x{value:08x}"
