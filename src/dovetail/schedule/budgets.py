"""Whether the parts of a program fit the FPGAs they are for."""

from __future__ import annotations

from dovetail.cost.budget import check_budget
from dovetail.platform.device import Kind, Platform
from dovetail.schedule.program import Program


def check_budgets(program: Program, platform: Platform) -> tuple[str, ...]:
    """Notes on FPGAs whose parts may not fit, by the estimate; all parts of a device share it.

    Raises:
        InfeasibleError: the parts of an FPGA cannot fit it; names resource and excess. No tool was started.
    """
    notes: list[str] = []
    for device in platform.of_kind(Kind.FPGA):
        segments = [s for s in program.segments if s.device == device.name]
        if segments:
            notes += check_budget([s.graph for s in segments], device, " and ".join(s.name for s in segments))
    return tuple(notes)
