"""Power of a build's hardware from toggles counted on its own images, beside what the plan assumed.

Energies are a model's, printed as ranges: logic by the toggles that Verilator counted in each engine; RAM blocks, whose power
follows their accesses more than the data, by the counted toggles at one end and the plan's activity at the other. A plan's
activity holds while an engine works: toggles per frame over the clocks of its own steps, which are fewer where pixels are.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from dovetail.cost import costs_of
from dovetail.cost.power import activity_of, frame_energy_j
from dovetail.errors import BuildError
from dovetail.files import replace_text
from dovetail.fpga.activity import Toggles, count_toggles
from dovetail.fpga.mapping import identifiers
from dovetail.fpga.part import FpgaPart, load_part
from dovetail.ir import Array
from dovetail.numerics.reference import run_integer
from dovetail.platform.device import Device, Kind
from dovetail.platform.fitted import dhm_model
from dovetail.progress import Progress
from dovetail.runtime.build import SCHEMA, Build
from dovetail.runtime.stages import gather
from dovetail.runtime.verification import check_frames, expect_partials
from dovetail.schedule.program import Segment
from dovetail.words import counted

FRAMES = 16
POWER = "power.json"
"""Where a build remembers what was counted."""
BETWEEN = "between engines"
"""FIFOs and forks that belong to no node."""


@dataclass(frozen=True, slots=True)
class EnginePower:
    """One node's hardware: register bits, toggles per bit and clock in which it works, and its energy per frame above idle."""

    node: str
    register_bits: int
    toggles_per_frame: float
    activity: float
    energy_j: float
    """Logic and blocks alike by the counted toggles."""
    energy_low_j: float
    energy_high_j: float
    planned_energy_j: float


@dataclass(frozen=True, slots=True)
class SegmentPower:
    """A part's hardware: totals over its engines; `stimulus` says on what toggles were counted."""

    segment: str
    device: str
    frames: int
    clocks: int
    stimulus: str
    toggles_per_clock: float
    """Per bit, over all engines and clocks."""
    activity: float
    """What the plan's activity had to be for the plan's energy to be the counted one."""
    planned_activity: float
    energy_low_j: float
    energy_high_j: float
    planned_energy_j: float
    power_low_w: float
    power_high_w: float
    """Above idle, frames following each other without a gap."""
    engines: tuple[EnginePower, ...]
    source: str

    @property
    def board_line(self) -> str:
        """What a board file says under `[device.parameters]`, so that plans go by these toggles."""
        return f'activity = {{ value = {self.activity:.4g}, source = "{self.stimulus} through {self.segment}" }}'


def measure_power(build: Build, frames: int = FRAMES, progress: Progress | None = None) -> list[SegmentPower]:
    """Count toggles of every FPGA part on the build's stored samples, and price them."""
    check_frames(frames, "power")
    segments = [s for s in build.program.segments if build.platform.device(s.device).kind is Kind.FPGA]
    if not segments:
        raise BuildError(f"{build.folder}: the plan gives the FPGA nothing to do, so nothing toggles; "
                         "see the plan's reasons with `dovetail report`")
    inputs = {name: x[:frames] for name, x in build.samples().items()}
    known: dict[str, Array] = run_integer(build.graph, inputs, keep=True)
    count = len(next(iter(inputs.values())))
    stimulus = f"toggles counted by Verilator over {counted(count, 'frame')} ({build.manifest['quantization']['calibration']})"
    found = []
    for segment in build.program.segments:
        expect_partials(segment, known, build.program)
    for number, segment in enumerate(segments):
        if progress is not None:
            progress(f"count toggles of {segment.name}", number, len(segments))
        part = load_part(segment.graph, build.folder / "fpga")
        if part.emulated:
            raise BuildError(f"{segment.name}: {part.note}; give the FPGA less to do")
        found.append(_priced(segment, part, build.platform.device(segment.device), gather(segment, known), stimulus))
    return found


def power_json(build: Build, found: Sequence[SegmentPower]) -> list[dict[str, Any]]:
    """The contract of `dovetail power --json`, remembered in the build."""
    results = [{**asdict(one), "board_line": one.board_line} for one in found]
    replace_text(build.folder / POWER, json.dumps({"schema": SCHEMA, "results": results}, indent=1, allow_nan=False) + "\n")
    return results


def _priced(segment: Segment, part: FpgaPart, device: Device, inputs: Mapping[str, Array], stimulus: str) -> SegmentPower:
    """A part's toggles, shared out to nodes, times the area each node's engine is estimated to have."""
    streams = part.streams(inputs)
    toggles = by_node(part, count_toggles(part.design, streams))
    every = sum(toggles.values(), start=Toggles(0, 0, *_span(toggles)))
    engines = tuple(_engine(part, name, toggles[name], device) for name in toggles if name != BETWEEN)
    counted, low, high, planned = (sum(getattr(e, key) for e in engines)
                                   for key in ("energy_j", "energy_low_j", "energy_high_j", "planned_energy_j"))
    assert device.clock_hz is not None
    frame_s = every.clocks / every.frames / device.clock_hz
    assumed = activity_of(device)
    source = f"power {dhm_model(device.model).sources['power_w_per_logic']}; {stimulus}; glitches between clock edges not seen"
    return SegmentPower(segment.name, device.name, every.frames, every.clocks, stimulus, every.per_clock,
                        assumed * counted / planned, assumed, low, high, planned, low / frame_s, high / frame_s, engines, source)


def _span(toggles: Mapping[str, Toggles]) -> tuple[int, int]:
    one = next(iter(toggles.values()))
    return one.frames, one.clocks


def by_node(part: FpgaPart, counted: Mapping[str, Toggles]) -> dict[str, Toggles]:
    """Toggles of instances as toggles of the nodes they were made for."""
    labels = identifiers(n.name for n in part.graph.nodes)
    owners = {f"u_{label}{suffix}": name for name, label in labels.items() for suffix in ("", "_pad")}
    found: dict[str, Toggles] = {}
    for instance, toggles in counted.items():
        name = owners.get(instance, BETWEEN)
        found[name] = found[name] + toggles if name in found else toggles
    return found


def _engine(part: FpgaPart, name: str, toggles: Toggles, device: Device) -> EnginePower:
    """An engine's energy per frame; its area is the estimate that the plan was made with."""
    node, model = part.graph.node(name), dhm_model(device.model)
    assert not node.op.still
    costs = costs_of(part.graph, node, None, np.array([0]), np.array([1]), device)
    assert costs is not None
    area = {resource: float(amount[0]) for resource, amount in costs.resources.items()}
    planned, counted = float(costs.energy_j[0]), toggles.per_frame
    busy_clocks = planned / frame_energy_j(area, model, activity_of(device), activity_of(device))
    ends = [frame_energy_j(area, model, counted, block) for block in (counted, activity_of(device) * busy_clocks)]
    return EnginePower(name, toggles.bits, counted, counted / busy_clocks, ends[0], min(ends), max(ends), planned)
