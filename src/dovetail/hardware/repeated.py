"""The engine that enlarges a map by repeating pixels, in the fields of `hardware.engines.Engine`."""

from __future__ import annotations

from typing import Any

from dovetail.hardware.shares import Floats
from dovetail.hardware.streaming import FIFO_LATENCY_CYCLES
from dovetail.ir import Upsample

REPEAT_STAGES = 3
"""Clock edges from a step to the repeated pixel: it may come from a row's memory, whose word waits in a register."""


def repeated_parts(op: Upsample, height: int, width: int, output_bits: Floats, register_bits: Floats) -> dict[str, Any]:
    """What the engine has beside or instead of one that passes pixels on; `register_bits` are those of such a one.

    A step per beat out, for which the source waits; rows of several pixels that come again lie in a memory.
    """
    beats, again, none = float(height * op.rows * width * op.columns), op.rows > 1 and width > 1, output_bits * 0
    return {"steps": none + beats, "flush": none + beats - height * width,
            "stages": none + FIFO_LATENCY_CYCLES + (REPEAT_STAGES if again else 1),
            "register_bits": register_bits + (3 * output_bits if again else 0.0),
            "control_bits": float(sum((count - 1).bit_length() for count in (op.rows, op.columns, width))),
            "line_depth": width if again else 0, "line_bits": output_bits if again else none}
