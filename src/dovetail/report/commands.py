"""The commands a reader can paste to get what a report lacks."""

from __future__ import annotations

import shlex

from dovetail.report.palette import Report

VERIFY = "dovetail verify build"
POWER = "dovetail power build"


def synth_command(report: Report) -> str:
    """Synthesis for the family of the first FPGA on the board."""
    family = next((d["family"] for d in report["platform"]["devices"] if d["kind"] == "fpga" and d["family"]), None)
    return "dovetail synth build" + (f" --family {shlex.quote(family)}" if family else "")
