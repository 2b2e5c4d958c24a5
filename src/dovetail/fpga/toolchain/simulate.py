"""Simulate designs clock by clock with Verilator and return what leaves their streams.

Verilog may report FIFO high-water marks: a line `high_water INSTANCE MARK` printed by a `final` block, with `%m` as INSTANCE,
lands in `Simulation.high_water` under the instance path below the top module, and a line `toggles INSTANCE BITS COUNT` in
`Simulation.toggles`.
"""

from __future__ import annotations

import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from dovetail import files
from dovetail.errors import MismatchError, ToolError
from dovetail.fpga.design import Design
from dovetail.fpga.packing import Integers, count_frames, pack, unpack
from dovetail.fpga.toolchain.tools import GIBIBYTE, Command, run_tool
from dovetail.fpga.toolchain.verilate import PROGRAM, build, cycles_of

RUN_TIMEOUT_S = 3600.0
RUN_MEMORY_BYTES = 8 * GIBIBYTE
QUIET_CYCLES = 20_000
"""Cycles without any beat after which a design counts as stuck, at least; a design's own latency raises it."""
DRAIN_CYCLES = 256
"""Cycles a finished design is watched for beats that nobody asked for."""
STUCK, TOO_MANY, UNSTABLE = 10, 11, 12


@dataclass(frozen=True, slots=True)
class Simulation:
    """Result of one simulation; cycles count rising clock edges, 1 being the first after reset."""

    outputs: Mapping[str, npt.NDArray[np.int64]]
    """Values by tensor name, shaped (frames, channels, height, width)."""
    cycles: int
    """Cycle in which the last beat moved."""
    first_output_cycle: int
    frame_cycles: tuple[int, ...]
    """Cycle in which the last beat of each frame left."""
    high_water: Mapping[str, int] = field(default_factory=dict)
    wall_s: float = 0.0
    """Seconds for the whole call, build included where it was not cached; a bundle's for each of its simulations."""
    run_s: float = 0.0
    """Seconds the compiled simulation ran; a bundle's for each of its simulations."""
    toggles: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Register bits and how often they changed, by instance, of designs that count them (fpga/activity.py)."""


def simulate(design: Design, inputs: Mapping[str, Integers], stall_seed: int | None = None,
             on_frame: Callable[[int], None] | None = None) -> Simulation:
    """Send frames back to back through a design and collect every output.

    `inputs` holds (frames, channels, height, width) or (frames, values) integers by tensor name, and sets of weights for inputs
    that load them. A `stall_seed` withholds valid and ready at random, in bursts. `on_frame` hears the number of finished
    frames. Raises MismatchError when the design locks up, sends too much or breaks the valid/ready protocol.
    """
    return simulate_many([(design, inputs)], stall_seed, on_frame)[0]


def simulate_many(jobs: Sequence[tuple[Design, Mapping[str, Integers]]], stall_seed: int | None = None,
                  on_frame: Callable[[int], None] | None = None, covered: Path | None = None) -> list[Simulation]:
    """Simulate many designs with one build, one after another, each as `simulate` would.

    `covered` is a file for what of the Verilog was executed, as `verilator_coverage` reads it.
    """
    if not jobs:
        return []
    start = time.monotonic()
    frames = [count_frames(design, inputs, f"simulation of {design.top}") for design, inputs in jobs]
    distinct: list[Design] = []
    for design, _ in jobs:
        if design not in distinct:
            distinct.append(design)
    cycles = sum(cycles_of(design, count) for (design, _), count in zip(jobs, frames, strict=True))
    program = build(distinct, cycles / len(distinct), covered=covered is not None)
    with scratch_folder() as folder:
        lines = []
        for index, ((design, inputs), count) in enumerate(zip(jobs, frames, strict=True)):
            for number, port in enumerate(design.inputs):
                pack(port, inputs[port.tensor], len(inputs[port.tensor])).tofile(folder / f"{index}_in{number}.bin")
            seed = 0 if stall_seed is None else 1 + stall_seed
            lines.append(f"{distinct.index(design)} {count} {seed} {quiet_cycles(design)} {DRAIN_CYCLES}\n")
        (folder / "jobs.txt").write_text("".join(lines), encoding="ascii")
        began = time.monotonic()
        told = _run(program, folder, distinct, on_frame)
        ended = time.monotonic()
        if covered is not None:
            shutil.copy(folder / "coverage.dat", covered)
        return [_collect(folder, index, design, count, told[distinct.index(design)], ended - start, ended - began)
                for index, ((design, _), count) in enumerate(zip(jobs, frames, strict=True))]


def quiet_cycles(design: Design) -> int:
    """Cycles without any beat after which a design is stuck."""
    return max(QUIET_CYCLES, 4 * (design.latency_cycles + design.interval_cycles))


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A temporary folder for beats; where it cannot be made or filled, says so."""
    try:
        with files.scratch_folder(tempfile.gettempdir(), "simulation") as folder:
            yield folder
    except OSError as error:
        raise ToolError(f"simulation: temporary files cannot be written, {error.strerror or error}; "
                        "make room or set TMPDIR to another folder") from error


@dataclass(frozen=True, slots=True)
class _Told:
    """What a design printed about its instances."""

    high_water: dict[str, int] = field(default_factory=dict)
    toggles: dict[str, tuple[int, int]] = field(default_factory=dict)


def run_program(program: Path, folder: Path, name: str, accept: tuple[int, ...], on_frame: Callable[[int], None] | None,
                on_line: Callable[[str], None], timeout_s: float = RUN_TIMEOUT_S) -> tuple[int, str]:
    """Run a compiled simulation over the files of a folder; returns its exit code, one of `accept`, and what it says of failing.

    `on_line` hears what is said of neither frames nor failing.
    """
    failure: list[str] = []

    def listen(line: str) -> None:
        word, _, rest = line.partition(" ")
        if word == "failed":
            failure.append(rest)
        elif word != "frame":
            on_line(line)
        elif on_frame is not None:
            on_frame(int(rest))

    code = run_tool(Command("simulation", (str(program / PROGRAM), str(folder)), program, folder / "simulation.log", timeout_s,
                            RUN_MEMORY_BYTES, on_line=listen, accept=accept))
    if code and not failure:
        raise ToolError(f"{name}: exit code {code} without a reason; delete the cache and try again")
    return code, "".join(failure)


def _run(program: Path, folder: Path, designs: Sequence[Design], on_frame: Callable[[int], None] | None) -> list[_Told]:
    """Run the program over the jobs of a folder; returns what each design told."""
    told = [_Told() for _ in designs]

    def listen(line: str) -> None:
        if match := re.fullmatch(r"high_water (?:\S*?\.)??d(\d+)\.(\S+) +(\d+)", line):
            told[int(match[1])].high_water[match[2]] = int(match[3])
        elif match := re.fullmatch(r"toggles (?:\S*?\.)??d(\d+)\.(\S+) +(\d+) +(\d+)", line):
            told[int(match[1])].toggles[match[2]] = (int(match[3]), int(match[4]))

    code, report = run_program(program, folder, "simulation", (0, STUCK, TOO_MANY, UNSTABLE), on_frame, listen)
    if code:
        raise MismatchError(explain(code, report, designs))
    return told


def explain(code: int, report: str, designs: Sequence[Design]) -> str:
    """Sentence for a failed run; `report` is `DESIGN CYCLE WHAT| input counts| output counts`."""
    head, sent, taken = report.split("|")
    index, cycle, what = head.split(" ", 2)
    where = f"simulation of {designs[int(index)].top}: cycle {cycle}"
    beats = f"beats sent:{sent}; beats received:{taken}"
    return {
        STUCK: f"{where}: deadlock, no beat moved for long; {beats}; check FIFO depths and ready logic",
        TOO_MANY: f"{where}: output {what} sends more beats than its frames hold; {beats}; check counters and valid logic",
        UNSTABLE: f"{where}: output {what} changed or withdrew a beat before it was taken; {beats}; hold it until ready",
    }[code]


def _collect(folder: Path, index: int, design: Design, frames: int, told: _Told, wall_s: float, run_s: float) -> Simulation:
    outputs = {port.tensor: unpack(port, np.fromfile(folder / f"{index}_out{number}.bin", dtype=np.uint8), frames)
               for number, port in enumerate(design.outputs)}
    counts = [int(value) for value in np.fromfile(folder / f"{index}_frames.bin", dtype=np.uint64)]
    return Simulation(outputs, counts[0], counts[1], tuple(counts[2:]), told.high_water, wall_s, run_s, told.toggles)
