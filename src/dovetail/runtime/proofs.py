"""Proofs of all hardware of a build: of every FPGA part its engines, and of its shell the register port."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from dovetail.errors import MissingToolError
from dovetail.fpga import part as fpga_part
from dovetail.fpga.part import SHELL
from dovetail.fpga.proofs.framing import prove_registers
from dovetail.fpga.proofs.parts import prove_design
from dovetail.fpga.proofs.verdicts import Method, Proof, Ruling, timed
from dovetail.fpga.toolchain.tools import INSTALL_YOSYS, find_pyosys, find_yosys
from dovetail.platform.device import Kind
from dovetail.runtime.build import Build


def yosys_command() -> tuple[str, ...]:
    """The Yosys that reads Verilog for proofs."""
    found = find_pyosys() or find_yosys()
    if found is None:
        raise MissingToolError(f"yosys: not found; {INSTALL_YOSYS}")
    return found.command


def prove_build(build: Build, on_proof: Callable[[Proof], None], limit_s: float = 60.0) -> list[Proof]:
    """What is proven of the hardware of a build, from the Verilog in its folder; `on_proof` hears of each proof."""
    found, yosys = list[Proof](), yosys_command()
    for segment in build.program.segments:
        if build.platform.device(segment.device).kind is not Kind.FPGA:
            continue
        folder = build.folder / "fpga"
        design = fpga_part.load_design(folder / segment.graph.name)
        found += prove_design(segment.graph, design, yosys, on_proof, limit_s)
        found += _shell(folder / segment.graph.name / SHELL, yosys, on_proof)
    return found


def _shell(folder: Path, yosys: tuple[str, ...], on_proof: Callable[[Proof], None]) -> list[Proof]:
    """The register port of a stored shell."""
    found = []
    for path in sorted(folder.glob("*_control.v")):
        otherwise = Proof(path.stem, "AXI shell", "AXI4-Lite: each request has one answer", Method.NONE, Ruling.SIMULATED)
        text = path.read_text(encoding="utf-8")
        found.append(timed(lambda stem=path.stem, text=text: prove_registers(  # type: ignore[misc]
            stem, {f"{stem}.v": text}, yosys), otherwise))
        on_proof(found[-1])
    return found
