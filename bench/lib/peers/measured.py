"""What is measured of every generated design, whoever generated it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dovetail.errors import ToolError
from dovetail.fpga.design import Design
from dovetail.fpga.toolchain.synthesize import synthesize

FAMILY = "xcup"
"""UltraScale+, because its LUTs, registers, block memories and DSPs are what papers list."""
DEVICE: Mapping[str, float] = {"lut": 274_080, "bram36": 912, "dsp": 2_520}
"""What the ZU9EG of a ZCU102 holds; a block memory or a DSP counts as many LUTs as there are for each (DS891)."""
INSTALL = "install them with pip install 'dovetail-accel[fpga,peers]'"


@dataclass(frozen=True, slots=True)
class Measured:
    """A generated design: cells after technology mapping, clocks by simulation, and whether its results are right."""

    lut: float
    register: float
    bram36: float
    dsp: float
    cycles_per_frame: int
    latency_cycles: int
    bit_exact: bool
    note: str

    @property
    def area_lut(self) -> float:
        """All resources as LUTs, by how many of each the device has."""
        return self.lut + sum(getattr(self, key) * DEVICE["lut"] / DEVICE[key] for key in ("bram36", "dsp"))

    @property
    def area_cycles(self) -> float:
        return self.area_lut * self.cycles_per_frame

    def entry(self) -> dict[str, float | bool | str]:
        names = ("lut", "register", "bram36", "dsp", "cycles_per_frame", "latency_cycles", "bit_exact", "note")
        return {**{name: getattr(self, name) for name in names}, "area_lut": self.area_lut, "area_cycles": self.area_cycles}


def count(design: Design) -> dict[str, float]:
    """Resources of a design, synthesized as one part, as other tools' modules ask for."""
    found = synthesize(design, FAMILY, unit_bytes=None).resources
    return {key: found[key] for key in ("lut", "register", "bram36", "dsp")}


def missing(package: str) -> ToolError:
    return ToolError(f"peers: {package} is not installed; {INSTALL}")
