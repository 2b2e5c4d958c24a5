"""Vendor hand-over: a hardware part as a project that a vendor's tool, or the open one, builds with one command.

The core's streams are wider than any package has pins. Quartus gets virtual pins, Vivado an out-of-context run, so that
both report area and timing of the core alone and the project can be instantiated in a board design unchanged; the open
flow for ECP5 needs real pins and puts the core between shift registers (`place.pin_wrapper`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from dovetail.errors import UsageError
from dovetail.fpga.design import Design, StreamPort
from dovetail.fpga.place import TOP as PINS_TOP
from dovetail.fpga.place import pin_wrapper
from dovetail.fpga.source import is_verilog


@dataclass(frozen=True, slots=True)
class Target:
    """What a project is made for."""

    family: str
    part: str
    clock_hz: float

    @property
    def period_ns(self) -> float:
        return 1e9 / self.clock_hz


@dataclass(frozen=True, slots=True)
class Vendor:
    """A tool, the families it builds for, the part taken where a board names none, and what it writes."""

    tool: str
    parts: Mapping[str, str]
    write: Callable[[Design, Target], dict[str, str]]
    command: str


def export_project(design: Design, vendor: str, family: str, clock_hz: float, part: str | None = None) -> dict[str, str]:
    """Files of a project by relative path: `rtl/`, constraints, scripts, README.md.

    UsageError where the vendor's tool does not build for the family.
    """
    if vendor not in VENDORS:
        raise UsageError(f"vendor {vendor}: unknown; possible: {', '.join(VENDORS)}")
    tool = VENDORS[vendor]
    if family not in tool.parts:
        fitting = [name for name, other in VENDORS.items() if family in other.parts]
        raise UsageError(f"vendor {vendor}: {tool.tool} does not build for family {family} of {design.top}; "
                         f"use --vendor {' or '.join(fitting) or 'another board'}")
    target = Target(family, part or tool.parts[family], clock_hz)
    sources = {f"rtl/{name}": text for name, text in design.files.items()}
    return {**sources, **tool.write(design, target), "README.md": _readme(design, tool, target)}


def _verilog(design: Design) -> list[str]:
    return sorted(f"rtl/{name}" for name in design.files if is_verilog(name))


def _images(design: Design) -> list[str]:
    """Memory images, which weights in ROM are read from."""
    return sorted(f"rtl/{name}" for name in design.files if not is_verilog(name))


def _quartus(design: Design, target: Target) -> dict[str, str]:
    title = "Cyclone 10 GX" if target.family == "cyclone10gx" else "Cyclone V"
    lines = [
        f"# quartus_sh -t build.tcl: creates the project {design.top}, compiles it and reports timing.",
        "load_package flow",
        f"project_new {design.top} -overwrite",
        f'set_global_assignment -name FAMILY "{title}"',
        f"set_global_assignment -name DEVICE {target.part}",
        f"set_global_assignment -name TOP_LEVEL_ENTITY {design.top}",
        "set_global_assignment -name VERILOG_INPUT_VERSION VERILOG_2001",
        *(f"set_global_assignment -name VERILOG_FILE {name}" for name in _verilog(design)),
        *(["set_global_assignment -name SEARCH_PATH rtl"] if _images(design) else []),
        "set_global_assignment -name SDC_FILE clock.sdc",
        "# Streams are wider than the package: they stay inside the device until a board design connects them.",
        *(f"set_instance_assignment -name VIRTUAL_PIN ON -to {name}" for name in ("rst", *_stream_pins(design))),
        "export_assignments",
        "execute_flow -compile",
        "project_close",
    ]
    return {"build.tcl": _text(lines), "clock.sdc": _sdc(target, "derive_clock_uncertainty")}


def _vivado(design: Design, target: Target) -> dict[str, str]:
    lines = [
        "# vivado -mode batch -source build.tcl: synthesizes and implements the core out of context, and reports.",
        f"create_project {design.top} project -part {target.part} -force",
        *(f"add_files -norecurse {name}" for name in (*_verilog(design), *_images(design))),
        "add_files -fileset constrs_1 -norecurse clock.xdc",
        f"set_property top {design.top} [current_fileset]",
        "update_compile_order -fileset sources_1",
        f"synth_design -top {design.top} -part {target.part} -mode out_of_context",
        "opt_design",
        "place_design",
        "route_design",
        "report_utilization -file utilization.rpt",
        "report_timing_summary -file timing.rpt",
        f"write_checkpoint -force {design.top}.dcp",
    ]
    return {"build.tcl": _text(lines), "clock.xdc": _sdc(target)}


def _sdc(target: Target, *more: str) -> str:
    return _text([f"# {target.clock_hz / 1e6:g} MHz, the clock the plan assumed; one clock, synchronous active-high rst.",
                  f"create_clock -name clk -period {target.period_ns:.3f} [get_ports clk]", *more])


def _oss(design: Design, target: Target) -> dict[str, str]:
    sources = " ".join([*_verilog(design), "rtl/pins.v"])
    size = f"{_kilo_luts(target.part)}k"
    lines = [
        "# make: synthesis, placement, routing and bitstream with Yosys, nextpnr and Project Trellis.",
        "YOSYS ?= yosys",
        "NEXTPNR ?= nextpnr-ecp5",
        "ECPPACK ?= ecppack",
        "SEED ?= 1",
        "",
        f"{design.top}.bit: {design.top}.config",
        "\t$(ECPPACK) $< $@",
        "",
        f"{design.top}.config: {design.top}.json clock.lpf",
        f"\t$(NEXTPNR) --{size} --json $< --lpf clock.lpf --lpf-allow-unconstrained --timing-allow-fail "
        f"--freq {target.clock_hz / 1e6:g} --seed $(SEED) --textcfg $@ --report timing.json",
        "",
        f"{design.top}.json: {sources}",
        f"\t$(YOSYS) -p 'read_verilog {sources}; synth_ecp5 -top {PINS_TOP} -json $@'",
        "",
        "clean:",
        f"\trm -f {design.top}.bit {design.top}.config {design.top}.json timing.json",
        "",
        ".PHONY: clean",
    ]
    lpf = _text([f'FREQUENCY PORT "clk" {target.clock_hz / 1e6:g} MHZ;',
                 "# Pins of your board go here, such as: LOCATE COMP \"clk\" SITE \"P3\";"])
    return {"Makefile": _text(lines), "clock.lpf": lpf, "rtl/pins.v": pin_wrapper(design)}


def _kilo_luts(part: str) -> int:
    """85 of LFE5U-85F-6BG381C."""
    found = re.fullmatch(r"LFE5U-(12|25|45|85)F(-.*)?", part)
    if found is None:
        raise UsageError(f"part {part}: not an ECP5 that the open tools know; "
                         "possible: LFE5U-12F, LFE5U-25F, LFE5U-45F, LFE5U-85F")
    return int(found[1])


def _stream_pins(design: Design) -> list[str]:
    return [f"{port.name}_{part}" for port in (*design.inputs, *design.outputs) for part in ("valid", "ready", "data[*]")]


def _text(lines: list[str]) -> str:
    return "\n".join(lines) + "\n"


def _readme(design: Design, tool: Vendor, target: Target) -> str:
    rate = target.clock_hz / design.interval_cycles if design.interval_cycles else 0.0
    return _text([
        f"# {design.top}: a project for {tool.tool}",
        "",
        f"Build it with `{tool.command}` here, for part {target.part} at {target.clock_hz / 1e6:g} MHz, the plan's clock.",
        "Change the part where your board has another; the RTL is plain Verilog-2005 without vendor primitives.",
        "",
        "| port | direction | channels x bits | frame | tensor |",
        "|---|---|---|---|---|",
        *(_port_row(port, "in") for port in design.inputs),
        *(_port_row(port, "out") for port in design.outputs),
        "",
        f"First beat in to last beat out: {design.latency_cycles:,} clocks. A frame every {design.interval_cycles:,} clocks"
        + (f", {rate:,.0f} frames/s at this clock." if rate else "."),
        "",
        "`clk`, and `rst` synchronous and active high for at least one clock. A stream moves a beat when `valid` and `ready` are",
        "both 1; a beat is one pixel in raster order, channel c in bits [bits*c + bits-1 : bits*c]. Frames follow without gaps.",
        "",
        "Area and timing of the vendor's tool replace the plan's estimates: tell them to the board file (`clock_hz`).",
    ])


def _port_row(port: StreamPort, direction: str) -> str:
    sign = "signed" if port.signed else "unsigned"
    return (f"| `{port.name}_valid/ready/data` | {direction} | {port.channels} x {port.bits} {sign} | "
            f"{port.height} x {port.width} beats | {port.tensor} |")


VENDORS: Mapping[str, Vendor] = {
    "quartus": Vendor("Quartus Prime", {"cyclone10gx": "10CX220YF780E5G", "cyclonev": "5CSEMA5F31C6"}, _quartus,
                      "quartus_sh -t build.tcl"),
    "vivado": Vendor("Vivado", {"xcu": "xcku040-ffva1156-2-e", "xcup": "xczu9eg-ffvb1156-2-e"}, _vivado,
                     "vivado -mode batch -source build.tcl"),
    "oss": Vendor("Yosys, nextpnr and Project Trellis", {"ecp5": "LFE5U-85F"}, _oss, "make"),
}
