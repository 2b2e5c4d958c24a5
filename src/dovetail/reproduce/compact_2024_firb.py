"""Inverted residual blocks of Compact DNNs 2024 as one engine (FIRB) beside plain pipelining: a record's figures as a table.

The record is of `bench/engines.py --part firb`: blocks of MobileNetV2 for a ZCU102 at one pace, each of them built several ways.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dovetail.cost.power import power_w
from dovetail.platform.device import Device
from dovetail.terminal import table

WAYS = {"engine": "one engine", "folded": "one engine, projection in passes", "firb": "three engines, same words",
        "plain": "three engines, own folds"}
"""Ways to build a block, by their keys in the record; the last one is our plain pipelining."""
HEADER = ("block", "built as", "buffer bits", "one frame", "a frame every", "LUT", "registers", "BRAM36", "DSP", "energy")
RATIOS = (("buffer bits, against three engines", "buffer_bits"), ("clocks of one frame, against three engines", "latency_cycles"))


def lines(firb: Mapping[str, Any], device: Device) -> list[str]:
    """The blocks of a record for a terminal; `device` is the FPGA they are for."""
    rows = []
    for name, block in firb.items():
        for way, told in WAYS.items():
            if way in block:
                rows.append((name, told, *_figures(block[way], device)))
        for key, told in (("row_buffer_bits", "papers' plain pipelining: rows"), ("frame_buffer_bits", "papers': two frames")):
            rows.append((name, told, f"{block[key]:,}", *("",) * 7))
    return ["Inverted residuals of MobileNetV2 for a ZCU102, each by itself (area by the model; energy of logic and RAM "
            "blocks above idle):", table(HEADER, rows, range(2, 10)), *words(firb, device)]


def _figures(one: Mapping[str, Any], device: Device) -> tuple[str, ...]:
    area = one["estimated"]
    return (f"{one['buffer_bits']:,}", f"{one['latency_cycles']:,} clocks", f"{one['interval_cycles']:,}", f"{area['lut']:,.0f}",
            f"{area['register']:,.0f}", f"{area['bram36']:,.1f}", f"{area['dsp']:,.0f}", f"{energy_j(one, device) * 1e6:,.0f} uJ")


def energy_j(one: Mapping[str, Any], device: Device) -> float:
    """Energy above idle of a frame through a block."""
    assert device.clock_hz is not None, "every FPGA has a clock"
    return power_w(one["estimated"], device) * float(one["interval_cycles"]) / device.clock_hz


def words(firb: Mapping[str, Any], device: Device) -> list[str]:
    """What one engine does to a block's energy, in sentences with the cause: energy is of logic and RAM blocks at work."""
    said = []
    for name, block in firb.items():
        plain = block["plain"]
        known = {way: block[way] for way in ("engine", "folded") if way in block}
        told = [f"{WAYS[way]} {_more(energy_j(one, device) / energy_j(plain, device))} ({_parts(one, plain)})"
                for way, one in known.items()]
        said.append(f"Energy of {name} against three engines with their own folds (the papers: -35 %): {'; '.join(told)}.")
    return said


def _more(ratio: float) -> str:
    return f"{(ratio - 1) * 100:+.0f} %"


def _parts(one: Mapping[str, Any], plain: Mapping[str, Any]) -> str:
    """By what an engine's energy differs: logic, RAM blocks and clocks, each times the other's."""
    area, other = one["estimated"], plain["estimated"]
    return (f"{area['lut'] / other['lut']:.2f} times the LUT and {area['bram36'] / other['bram36']:.2f} times the RAM blocks "
            f"for {one['interval_cycles'] / plain['interval_cycles']:.2f} times the clocks")


def ours(firb: Mapping[str, Any], device: Device) -> dict[str, dict[str, float]]:
    """One engine over plain pipelining, by what is compared and block."""
    found: dict[str, dict[str, float]] = {}
    for name, block in firb.items():
        one, plain = block["engine"], block["plain"]
        for what, key in RATIOS:
            found.setdefault(what, {})[name] = one[key] / plain[key]
        rows = one["buffer_bits"] / block["row_buffer_bits"]
        found.setdefault("buffer bits, against rows in front of every layer", {})[name] = rows
        found.setdefault("energy above idle, against three engines", {})[name] = energy_j(one, device) / energy_j(plain, device)
    return found
