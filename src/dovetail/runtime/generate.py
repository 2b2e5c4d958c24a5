"""The generated files of a build: every segment as Verilog or as an ONNX sub-model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dovetail.cost.folded import folds_of
from dovetail.document import Maybe, OneOf, Whole
from dovetail.errors import UnsupportedError
from dovetail.fpga import part as fpga_part
from dovetail.fpga.axi.shell import DEFAULT_BUS_BITS
from dovetail.fpga.design import Design
from dovetail.fpga.engines.lq import datapath_of
from dovetail.fpga.links.stored import write_system
from dovetail.fpga.links.system import systems_of
from dovetail.fpga.packing import BUS_BITS
from dovetail.ir.onnx.write import to_onnx
from dovetail.ir.onnx.writer import Boundary
from dovetail.platform.device import Kind, Platform
from dovetail.progress import Progress
from dovetail.runtime.loads import loaded_folds
from dovetail.schedule.program import Program


@dataclass(frozen=True, slots=True)
class Hardware:
    """What the generated hardware depends on beside model, plan and board."""

    bus_bits: int = DEFAULT_BUS_BITS
    """Of the AXI4-Stream ports."""
    memory_bits: int | None = None
    """Of the port to memory, where reusable engines have one; None: that of their beats."""
    host_pins: int | None = None
    """Of a port of pins, behind which the hardware is written a second time."""
    loaded: tuple[str, ...] = ()
    """Layers of codes whose weights are loaded."""


HARDWARE = {"bus_bits": OneOf(BUS_BITS), "memory_bits": Maybe(Whole(8, 4096)), "host_pins": Maybe(OneOf((1, 2, 4, 8, 16, 32))),
            "loaded": [str]}
"""`Hardware` as it stands in a manifest."""


def hardware_from_json(entries: Mapping[str, Any]) -> Hardware:
    return Hardware(entries["bus_bits"], entries["memory_bits"], entries["host_pins"], tuple(entries["loaded"]))


def write_parts(folder: Path, program: Program, platform: Platform, hardware: Hardware, progress: Progress) -> list[str]:
    """One folder per kind of device that has something to do; returns what is to be said about boards that are not joined, and
    about weights that are loaded."""
    designs: dict[str, Design] = {}
    loads = loaded_folds(program, platform, hardware.loaded)
    for number, segment in enumerate(program.segments):
        device = platform.device(segment.device)
        progress(f"generate {segment.name}", number, len(program.segments))
        target = folder / device.kind.value
        target.mkdir(exist_ok=True)
        if device.kind is Kind.FPGA:
            own = loads.get(segment.name, {})
            folds = {**folds_of(segment.graph, device), **own}
            designs[segment.name] = fpga_part.write_part(
                segment.graph, target, hardware.bus_bits, folds, device.accelerator, tuple(own), datapath_of(device.family),
                hardware.memory_bits, hardware.host_pins)
        else:
            (target / f"{segment.graph.name}.onnx").write_bytes(to_onnx(segment.graph, Boundary.INTEGER))
    names = [name for own in loads.values() for name in own]
    notes = [f"weights of {', '.join(names)} are loaded: memories that are written take more logic and registers than the plan "
             "counts (docs/method/lq-hardware.md)"] if names else []
    for name, segments in systems_of(program, platform).items():
        try:
            notes += write_system(name, segments, designs, program, platform, folder / Kind.FPGA.value).warnings
        except UnsupportedError as reason:
            notes.append(f"{reason}; the host carries what passes between these boards")
    progress("generate", len(program.segments), len(program.segments))
    return notes
