"""Where an FPGA sits on its board: clock, serial line and lights, from the table `top` of a device in a board file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dovetail.platform.schema import Limits, TomlTable

TOP_LIMITS: Mapping[str, Limits] = {
    "oscillator_hz": Limits(1e6, 1e9, "Hz"),
    "design_hz": Limits(1e6, 1e9, "Hz"),
    "baud": Limits(1200, 2e7, "bits/s"),
    "buffer_bytes": Limits(1, 1e9, "B"),
}
"""Numbers that every top has: of the clock that comes in, the clock that the design gets, the serial line, and what of the
memory in the chip may hold frames of the link."""
SITE = "[A-Z]{1,2}[0-9]{1,3}"
WORD = "[A-Za-z0-9_]{1,32}"
SINGLE_PINS = ("clock", "from_host", "to_host")
OPTIONAL_PIN = "reset_n"
PIN_LISTS = ("leds", "high")
LEDS_LOW = "leds_low"


@dataclass(frozen=True, slots=True)
class BoardTop:
    """Numbers of `TOP_LIMITS`, and sites of pins by what they are for."""

    oscillator_hz: float
    design_hz: float
    baud: float
    buffer_bytes: float
    io_standard: str
    clock: str
    from_host: str
    to_host: str
    reset_n: str | None = None
    """A button that pulls it low resets the design."""
    leds: tuple[str, ...] = ()
    leds_low: bool = False
    """Lights are lit by a zero."""
    high: tuple[str, ...] = ()
    """Pins that are held at one."""
    programmer: str | None = None
    """The board as openFPGALoader names it."""
    sources: Mapping[str, str] = field(default_factory=dict)


def top_of(table: TomlTable) -> BoardTop:
    """The checked table."""
    table.check_keys((*TOP_LIMITS, "io_standard", "pins"), ("programmer",))
    numbers, sources = dict[str, float](), dict[str, str]()
    for key, limits in TOP_LIMITS.items():
        numbers[key], sources[key] = table.number(key, limits)
    pins = table.table("pins")
    pins.check_keys(("source", *SINGLE_PINS), (OPTIONAL_PIN, *PIN_LISTS, LEDS_LOW))
    sources["pins"] = pins.text("source")
    single = {key: _matching(pins, key, SITE, "G2") for key in (*SINGLE_PINS, OPTIONAL_PIN) if key in pins.values}
    lists = {key: _sites(pins, key) for key in PIN_LISTS}
    taken = [*single.values(), *lists["leds"], *lists["high"]]
    for site in taken:
        if taken.count(site) > 1:
            pins.fail(f"site {site} stands there twice; a pin has one use")
    programmer = _matching(table, "programmer", WORD, "ulx3s") if "programmer" in table.values else None
    return BoardTop(numbers["oscillator_hz"], numbers["design_hz"], numbers["baud"], numbers["buffer_bytes"],
                    _matching(table, "io_standard", WORD, "LVCMOS33"), single["clock"], single["from_host"], single["to_host"],
                    single.get("reset_n"), lists["leds"], pins.flag(LEDS_LOW, False), lists["high"], programmer, sources)


def top_entries(top: BoardTop) -> dict[str, Any]:
    """A top as JSON values in the structure of a board file."""
    sites = {key: getattr(top, key) for key in (*SINGLE_PINS, OPTIONAL_PIN)}
    lists = {key: list(getattr(top, key)) for key in PIN_LISTS}
    return {**{key: {"value": getattr(top, key), "source": top.sources[key]} for key in TOP_LIMITS},
            "io_standard": top.io_standard, **({"programmer": top.programmer} if top.programmer else {}),
            "pins": {"source": top.sources["pins"], **{key: site for key, site in sites.items() if site}, **lists,
                     **({LEDS_LOW: True} if top.leds_low else {})}}


def _matching(table: TomlTable, key: str, pattern: str, example: str) -> str:
    """A text that scripts and constraints can hold as it is."""
    text = table.text(key)
    if not re.fullmatch(pattern, text):
        table.fail(f"key {key} is {text!r}; a name such as {example} is needed")
    return text


def _sites(pins: TomlTable, key: str) -> tuple[str, ...]:
    found = pins.values.get(key, [])
    if not isinstance(found, list) or not all(isinstance(site, str) and re.fullmatch(SITE, site) for site in found):
        pins.fail(f"key {key} is {found!r}; a list of sites such as [\"B2\", \"C2\"] is needed")
    return tuple(found)
