"""Power of directly mapped hardware: static + activity x resources x clock. A model, not a measurement.

What a configured part draws without a stream is its device's idle power. Above it, every logic cell and RAM block in use
takes an energy per clock that grows with how often signals toggle. The coefficients of the Cyclone 10 GX are fitted to the
power Quartus estimates for 2,557 layers; it took every signal to toggle in one of eight clocks, its default
(`power_default_toggle_rate`, Quartus Prime help), as the rows name no stimulus. Real images toggle less than random ones:
rates counted in simulation belong here in its place, through `activity`.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dovetail.hardware.shares import Floats
from dovetail.platform.device import Device
from dovetail.platform.fitted import DhmModel, dhm_model

DEFAULT_ACTIVITY = 0.125
"""Toggles per clock and signal where nobody counted them: the default of Quartus' power analysis."""


def dynamic_power_w(area: Mapping[str, Floats], model: DhmModel, clock_hz: float, activity: float = DEFAULT_ACTIVITY) -> Floats:
    """Power above idle while hardware of this area works at a clock, with so many toggles per clock and signal."""
    known = model.coefficients
    rate = clock_hz / known["power_clock_hz"] * activity / known["power_activity"]
    return rate * (area[model.logic] * known["power_w_per_logic"] + area[model.block] * known["power_w_per_block"])


def frame_energy_j(area: Mapping[str, float], model: DhmModel, toggles: float, block_toggles: float) -> float:
    """Energy above idle of one frame, in which every signal of the logic toggles so often, and those of RAM blocks so often.

    It does not depend on the clock: what is charged by a toggle is.
    """
    known = model.coefficients
    per_toggle = 1 / (known["power_clock_hz"] * known["power_activity"])
    return per_toggle * (area.get(model.logic, 0.0) * known["power_w_per_logic"] * toggles
                         + area.get(model.block, 0.0) * known["power_w_per_block"] * block_toggles)


def activity_of(device: Device) -> float:
    """The activity a board file states for its FPGA, else the default."""
    return device.parameters.get("activity", DEFAULT_ACTIVITY)


def power_w(used: Mapping[str, float], device: Device) -> float:
    """Power above idle of hardware of this area at the device's clock."""
    assert device.clock_hz is not None
    area = {r: np.array([v]) for r, v in used.items()}
    return float(dynamic_power_w(area, dhm_model(device.model), device.clock_hz, activity_of(device))[0])
