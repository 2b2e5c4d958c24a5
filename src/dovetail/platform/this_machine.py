"""The board `this-machine`: the processor Dovetail runs on, described when it is asked for."""

from __future__ import annotations

import os
import platform
from typing import Any

from dovetail.platform.device import ASSUMED
from dovetail.words import counted

THIS_MACHINE = "this-machine"

FLOP_PER_S_PER_CORE = 16e9
"""Four float32 multiply-adds per cycle at 2 GHz: what nearly any 64-bit core with vector units reaches."""


def this_machine_entries() -> dict[str, Any]:
    """The board as entries of a board file; all rates are assumed until `calibrate` measures them."""
    cores = os.cpu_count() or 1

    def assumed(value: float, reason: str) -> dict[str, Any]:
        return {"value": value, "source": f"{ASSUMED}: {reason}"}

    return {
        "name": THIS_MACHINE,
        "description": "The computer this runs on: its CPU alone, with assumed rates",
        "host": "cpu",
        "device": [{
            "name": "cpu", "kind": "cpu", "model": "roofline",
            "description": f"{counted(cores, 'core')}, {platform.machine() or 'unknown architecture'}",
            "idle_power_w": assumed(2.0 * cores, "2 W per core"),
            "busy_power_w": assumed(7.0 * cores, "7 W per core"),
            "parameters": {
                "peak_flop_per_s": assumed(FLOP_PER_S_PER_CORE * cores, f"{FLOP_PER_S_PER_CORE:g} FLOP/s per core"),
                "efficiency": assumed(0.5, "half of peak in convolutions"),
                "bandwidth_bytes_per_s": assumed(8e9, "one memory channel"),
                "launch_s": assumed(20e-6, "one operator call of an inference runtime"),
                "interval_fraction": assumed(0.5, "nothing was measured"),
            },
        }],
    }
