"""Clocks that a plan states beside those of the simulated hardware, and whether they agree within the stated error."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from dovetail.cost.clocks import FEWEST_CLOCKS, ClockEstimate
from dovetail.fpga.toolchain.simulate import Simulation

WORDS = {"one_frame": "one frame", "interval": "between frames"}
"""What is compared, in words."""
SETTLED_FRAMES = 4
"""Frames after which two follow each other as all later ones do; fewer say nothing of the interval."""


def compare_clocks(planned: Mapping[str, ClockEstimate], simulated: Mapping[str, Simulation]) -> dict[str, dict[str, Any]]:
    """Of every segment that was simulated, and whose clocks the plan states: both, the stated error, and whether it holds."""
    return {name: _compared(planned[name], run.frame_cycles) for name, run in simulated.items() if name in planned}


def _compared(planned: ClockEstimate, frame_cycles: tuple[int, ...]) -> dict[str, Any]:
    interval = frame_cycles[-1] - frame_cycles[-2] if len(frame_cycles) >= SETTLED_FRAMES else None
    holds = {"one_frame": planned.one_frame_holds(frame_cycles[0]),
             "interval": interval is None or planned.interval_holds(interval)}
    return {"planned": {"one_frame": planned.one_frame, "interval": planned.interval},
            "simulated": {"one_frame": frame_cycles[0], "interval": interval},
            "error": planned.error, "source": planned.source, "holds": holds, "within": all(holds.values())}


def clocks_sentence(name: str, found: Mapping[str, Any]) -> str:
    """What a segment's comparison says, in one sentence."""
    stated = f"the plan's stated error of {found['error']:.0%} or {FEWEST_CLOCKS} clocks"
    if found["within"]:
        return f"{name}: simulated clocks are within {stated}: {_told(found, WORDS)}"
    outside = [key for key in WORDS if not found["holds"][key]]
    return (f"{name}: simulated clocks are outside {stated}: {_told(found, outside)}; the plan's times of this segment are "
            "wrong, please report it with the model and the board")


def _told(found: Mapping[str, Any], keys: Iterable[str]) -> str:
    return ", ".join(f"{WORDS[key]} {found['simulated'][key]:,} (planned {found['planned'][key]:,.0f})" for key in keys
                     if found["simulated"][key] is not None)
