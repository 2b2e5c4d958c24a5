"""What the page asks, as data: checked against a shape, then a board and options of the planner."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

from dovetail.document import Each, FieldPath, Maybe, OneOf, Whole, check
from dovetail.errors import BuildError, UsageError
from dovetail.partition.options import Options
from dovetail.partition.plan import Goal, whole_on
from dovetail.platform.device import Kind, Platform
from dovetail.platform.load import example_of, load_platform, platform_names

FACTOR = (0.1, 10.0)
"""Least and largest factor of clocks and bandwidths. Chosen."""
LIMIT = 1e12
"""Largest limit that can be asked for."""
SHAPE = {"board": str, "goal": OneOf(tuple(g.value for g in Goal)), "max_latency_ms?": Maybe(float),
         "max_energy_mj?": Maybe(float), "min_fps?": Maybe(float), "thrift?": float, "fill?": Maybe(float), "clock?": float,
         "bandwidth?": float, "bits?": Maybe(Whole(2, 8)), "pins?": Each(str)}
"""A question as JSON."""


@dataclass(frozen=True, slots=True)
class StudioQuestion:
    """A board, what is wanted of it, and how it differs from what its file says."""

    board: str
    goal: Goal = Goal.LATENCY
    max_latency_ms: float | None = None
    max_energy_mj: float | None = None
    min_fps: float | None = None
    thrift: float = 0.0
    fill: float | None = None
    clock: float = 1.0
    """Times the FPGAs' clocks."""
    bandwidth: float = 1.0
    """Times the links' bandwidths."""
    bits: int | None = None
    """Of a float network's integers; None: planned as int8, without scales."""
    pins: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _board_file(self.board)
        for name in ("clock", "bandwidth"):
            if not FACTOR[0] <= getattr(self, name) <= FACTOR[1]:
                raise UsageError(f"{name} {getattr(self, name):g}: a factor from {FACTOR[0]:g} to {FACTOR[1]:g} is possible")
        for name in ("max_latency_ms", "max_energy_mj", "min_fps"):
            limit = getattr(self, name)
            if limit is not None and not 1 / LIMIT <= limit <= LIMIT:
                raise UsageError(f"{name} {limit:g}: must be above 0")

    @property
    def platform(self) -> Platform:
        """The board with the clocks and bandwidths that are asked for."""
        return self.adjusted(load_platform(_board_file(self.board)))

    def adjusted(self, board: Platform) -> Platform:
        """A form of the board with them."""
        note = "changed in the studio"
        devices = tuple(replace(d, clock_hz=d.clock_hz * self.clock, sources={**d.sources, "clock_hz": note})
                        if d.kind is Kind.FPGA and d.clock_hz and self.clock != 1 else d for d in board.devices)
        links = tuple(replace(x, bandwidth_bytes_per_s=x.bandwidth_bytes_per_s * self.bandwidth,
                              sources={**x.sources, "bandwidth_bytes_per_s": note}) if self.bandwidth != 1 else x
                      for x in board.links)
        return replace(board, devices=devices, links=links)

    def options(self, **more: Any) -> Options:
        """What it asks of the planner."""
        return Options(goal=self.goal, max_latency_s=None if self.max_latency_ms is None else self.max_latency_ms / 1e3,
                       max_energy_j=None if self.max_energy_mj is None else self.max_energy_mj / 1e3,
                       max_interval_s=None if self.min_fps is None else 1 / self.min_fps, thrift=self.thrift, fill=self.fill,
                       pins={node: whole_on(device) for node, device in self.pins.items()}, **more)


def _board_file(name: str) -> str:
    """A board that comes along, with a number in the place of N where it has so many FPGAs; files are refused.

    Raises:
        UsageError: there is none.
    """
    known = platform_names()
    many = re.fullmatch(r"([\w-]+):([1-9]\d?)", name)
    if name in known:
        return example_of(name)
    if many and f"{many[1]}:N" in known:
        return name
    raise UsageError(f"board {name[:60]}: unknown; one of {', '.join(known)} is possible")


def read_question(text: bytes) -> StudioQuestion:
    """The question in a body.

    Raises:
        UsageError: it is no question.
    """
    def no_constant(name: str) -> NoReturn:
        raise ValueError(f"{name} is no number of JSON")

    try:
        known = json.loads(text.decode("utf-8"), parse_constant=no_constant)
        check(known, SHAPE, FieldPath("question", "change it in the page"))
    except (ValueError, RecursionError) as error:
        raise UsageError(f"question: not readable as JSON ({str(error)[:100]})") from None
    except BuildError as error:
        raise UsageError(str(error)) from None
    names = {name.rstrip("?") for name in SHAPE}
    return StudioQuestion(**{**{name: value for name, value in known.items() if name in names}, "goal": Goal(known["goal"])})
