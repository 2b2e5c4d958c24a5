"""Systems on disk: every board's Verilog in a folder of its own, and `system.json`, which says how they are joined."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from dovetail.document import INCOMPLETE, NATURAL, PLAIN_WORD, FieldPath, picked, read_document
from dovetail.fpga.axi.shell import DEFAULT_BUS_BITS, Shell
from dovetail.fpga.design import Design
from dovetail.fpga.links.bench import SystemRun, simulate_system
from dovetail.fpga.links.shells import board_shell, load_board_shell, why_no_shell
from dovetail.fpga.links.system import HostPort, System, Wire, build_system
from dovetail.fpga.part import SHELL, SIMULATED_ADDERS, load_design, store_design
from dovetail.fpga.toolchain.simulate import RUN_TIMEOUT_S
from dovetail.ir import Array
from dovetail.platform.device import Platform
from dovetail.schedule.program import Program, Segment
from dovetail.words import counted

DESCRIPTION = "system.json"
SCHEMA = 1
WIRE = {"link": str, "source": NATURAL, "output": NATURAL, "target": NATURAL, "input": NATURAL, "latency_clocks": NATURAL,
        "cells_per_clock": float}
HOST_PORT = {"board": NATURAL, "port": NATURAL, "tensor": str, "region": [(NATURAL, NATURAL)]}
SYSTEM = {"devices": [PLAIN_WORD], "wires": [WIRE], "inputs": [HOST_PORT], "outputs": [HOST_PORT], "circuits": [str],
          "slots?": [str], "warnings?": [str]}
"""What `system.json` holds."""


def write_system(name: str, segments: Sequence[Segment], designs: Mapping[str, Design], program: Program, platform: Platform,
                 folder: Path, bus_bits: int = DEFAULT_BUS_BITS) -> System:
    """Build the boards of a system around its cores and store them in `folder/NAME/BOARD/`, the shell of each in `axi/` below.

    Raises:
        UnsupportedError: a tensor cannot travel as a stream; nothing was written.
    """
    system = build_system(name, segments, designs, program, platform)
    for device, board in zip(system.devices, system.boards, strict=True):
        store_design(board, folder / name / device)
        if why_no_shell(board) is None:
            shell, target = board_shell(board, bus_bits), folder / name / device / SHELL
            target.mkdir()
            for file, text in {**shell.files, **shell.documents()}.items():
                (target / file).write_text(text, encoding="utf-8")
    description = {"schema": SCHEMA, "devices": list(system.devices), "wires": [asdict(w) for w in system.wires],
                   "inputs": [asdict(p) for p in system.inputs], "outputs": [asdict(p) for p in system.outputs],
                   "circuits": list(system.circuits), "slots": list(system.slots),
                   "warnings": list(system.warnings)}
    (folder / name / DESCRIPTION).write_text(json.dumps(description, indent=1) + "\n", encoding="utf-8")
    return system


def is_stored(name: str, folder: Path) -> bool:
    return (folder / name / DESCRIPTION).is_file()


def load_system(name: str, folder: Path) -> System:
    """A stored system, with the Verilog text as it is on disk now."""
    known = read_document(folder / name / DESCRIPTION, SCHEMA, INCOMPLETE, SYSTEM)
    ports = {way: tuple(HostPort(p["board"], p["port"], p["tensor"], tuple((a, b) for a, b in p["region"])) for p in known[way])
             for way in ("inputs", "outputs")}
    boards = tuple(load_design(folder / name / d) for d in known["devices"])
    for wire in known["wires"]:
        if max(wire["source"], wire["target"]) >= len(boards):
            at = FieldPath(str(folder / name / DESCRIPTION), INCOMPLETE, "wires")
            at.refuse(wire["link"], f"a link of {len(boards)} boards")
    return System(name, boards, tuple(known["devices"]), tuple(Wire(**picked(w, WIRE)) for w in known["wires"]), ports["inputs"],
                  ports["outputs"], tuple(known["circuits"]), tuple(known.get("slots", ())), tuple(known.get("warnings", ())))


def load_shells(name: str, folder: Path, system: System) -> tuple[Shell | None, ...]:
    """The stored shells of a system's boards; a board of more links or streams than a register map holds has none."""
    return tuple(None if why_no_shell(board) else load_board_shell(board, folder / name / device / SHELL)
                 for device, board in zip(system.devices, system.boards, strict=True))


@dataclass(frozen=True, slots=True)
class Boards:
    """A system that can be run: all its boards in Verilator, joined by its links."""

    system: System
    segments: tuple[Segment, ...]
    weights: Mapping[str, Array] = field(default_factory=dict)
    """What the boards load before the first frame, by the names of their inputs."""

    @property
    def emulated(self) -> bool:
        return self.system.adders > SIMULATED_ADDERS

    @property
    def device(self) -> str:
        return "+".join(self.system.devices)

    @property
    def backend(self) -> str:
        return "emulated" if self.emulated else "verilator"

    @property
    def note(self) -> str:
        if self.emulated:
            return (f"{self.system.adders} adders exceed the {SIMULATED_ADDERS} that are simulated in reasonable time; "
                    "boards run one by one, links unproven")
        links = counted(len(self.system.wires) // 2, "link")
        return f"{counted(len(self.system.boards), 'board')} and {links} simulated together in Verilator"

    def run(self, tensors: Mapping[str, Array], stall_seed: int | None = None,
            on_frame: Callable[[int], None] | None = None, timeout_s: float = RUN_TIMEOUT_S) -> SystemRun:
        return simulate_system(self.system, {**tensors, **self.weights}, stall_seed, on_frame=on_frame, timeout_s=timeout_s)
