"""Simulate all boards of a system at once, with links that take time, jitter, and lose, repeat or damage words when asked to."""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from dovetail.errors import MismatchError
from dovetail.fpga.design import StreamPort
from dovetail.fpga.links.kept import open_kept
from dovetail.fpga.links.system import HostPort, System
from dovetail.fpga.packing import as_pixels, pack, unpack
from dovetail.fpga.toolchain.simulate import QUIET_CYCLES, RUN_TIMEOUT_S, STUCK, TOO_MANY, run_program, scratch_folder
from dovetail.fpga.toolchain.tools import content_key
from dovetail.fpga.toolchain.verilate import PROGRAM, QUICK_CYCLES, BuildTarget, build_target, bundle_files, cycles_of
from dovetail.ir import Array, slices

REPORTED = 14
"""The bench's exit where a board reported a fault that nobody injected."""
JITTER_CLOCKS = 3
"""By how much words may be late, unless told otherwise."""
DETECT_CLOCKS = 3 * QUIET_CYCLES
"""Clocks within which an injected fault must be reported."""


@dataclass(frozen=True, slots=True)
class Faults:
    """Words to spoil: lost, duplicated or flipped (one to four bits), one at a time, `every` so many clocks in the mean.

    Where boards are switches, each is reported and ends in a reset; elsewhere links repeat what was spoilt. With `cut` a link
    is broken for good instead, until the reset that its report brings.

    Half of them are the next word of any kind on a link drawn at random, half the next that carries data, if one comes soon.
    """

    seed: int
    every: int
    cut: bool = False


@dataclass(frozen=True, slots=True)
class Fault:
    """A word that was spoilt: how, whether it carried data, whether a board reported it, after how many clocks; what is repeated
    is not reported."""

    kind: str
    data: bool
    detected: bool
    clocks: int


@dataclass(frozen=True, slots=True)
class SystemRun:
    """Outputs by (tensor, region) as the host got them, whole frames only; cycles count from 1."""

    outputs: Mapping[HostPort, Array]
    cycles: int
    first_output_cycle: int
    frame_cycles: tuple[int, ...]
    faults: tuple[Fault, ...]
    wall_s: float
    run_s: float
    carried: tuple[tuple[int, int], ...] = ()
    """Words that every wire of the system took, and those of them that carried data."""


@dataclass(frozen=True, slots=True)
class Keeping:
    """A folder where a simulation keeps its state, every so many seconds; stopped and run again, it goes on from there."""

    folder: Path
    every_s: float = 120.0


def build_bench(system: System, frames: int, savable: bool = False) -> Path:
    """Folder with the simulation of all boards, about to be sent so many frames; cached by content."""
    quick = max(cycles_of(board, frames) for board in system.boards) <= QUICK_CYCLES
    return build_target(BuildTarget(bundle_files(system.boards), Path(__file__).with_name("bench.cpp"), PROGRAM, quick=quick,
                                    savable=savable))


def simulate_system(system: System, tensors: Mapping[str, Array], stall_seed: int | None = None, jitter: int = JITTER_CLOCKS,
                    faults: Faults | None = None, on_frame: Callable[[int], None] | None = None,
                    timeout_s: float = RUN_TIMEOUT_S, keeping: Keeping | None = None,
                    on_line: Callable[[str], None] | None = None) -> SystemRun:
    """Send frames through all boards; `tensors` are whole ones, (frames, …), and one set for every input that takes weights.

    `on_line` hears what boards print. With `keeping` a run of the same system and frames goes on where it was stopped; what
    was printed before is heard again.

    Raises MismatchError when the boards lock up, send too much, or report a fault that was not injected.
    """
    start = time.monotonic()
    count = next(len(tensors[p.tensor]) for p in system.inputs if not _stream(system, p).loads)
    program = build_bench(system, count, keeping is not None)
    files = {"system.txt": "\n".join(_lines(system, count, stall_seed, jitter, faults, keeping)).encode("ascii") + b"\n"}
    for number, port in enumerate(system.inputs):
        stream = _stream(system, port)
        values = np.asarray(tensors[port.tensor])[(slice(None), *slices(port.region)[1:])]
        files[f"in{number}.bin"] = pack(stream, as_pixels(stream, values), 1 if stream.loads else count).tobytes()
    told = _Told(on_line)
    with scratch_folder() if keeping is None else nullcontext(keeping.folder) as folder:
        if keeping is not None:
            identity = content_key([program.name, *(f"{n} {zlib.crc32(data)}" for n, data in sorted(files.items()))])
            for line in open_kept(folder, identity):
                told.hear(line)
        for name, data in files.items():
            (folder / name).write_bytes(data)
        began = time.monotonic()
        _run(system, program, folder, on_frame, told, timeout_s)
        ended = time.monotonic()
        outputs = {}
        for number, port in enumerate(system.outputs):
            stream = system.boards[port.board].outputs[port.port]
            outputs[port] = unpack(stream, np.fromfile(folder / f"out{number}.bin", dtype=np.uint8), count)
        counts = [int(value) for value in np.fromfile(folder / "frames.bin", dtype=np.uint64)]
    return SystemRun(outputs, counts[0], counts[1], tuple(counts[2:]), tuple(told.faults), ended - start,
                     ended - began if keeping is None else told.ran_s, tuple(told.carried))


@dataclass(slots=True)
class _Told:
    """What the bench said."""

    on_line: Callable[[str], None] | None
    faults: list[Fault] = field(default_factory=list)
    carried: list[tuple[int, int]] = field(default_factory=list)
    ran_s: float = 0.0

    def hear(self, line: str) -> None:
        word, *rest = line.split(" ")
        if word == "fault":
            kind, carried, detected, clocks = rest
            self.faults.append(Fault(kind, carried == "data", detected == "1", int(clocks)))
        elif word == "carried":
            self.carried.append((int(rest[1]), int(rest[2])))
        elif word == "ran":
            self.ran_s = float(rest[0])
        elif self.on_line is not None:
            self.on_line(line)


def _stream(system: System, port: HostPort) -> StreamPort:
    """The board's input that a stream of the host enters by."""
    return system.boards[port.board].inputs[port.port]


def _lines(system: System, count: int, stall_seed: int | None, jitter: int, faults: Faults | None,
           keeping: Keeping | None) -> list[str]:
    """What the bench is told."""
    bits = next((system.boards[w.source].outputs[w.output].data_bits for w in system.wires), 0)
    quiet = max(QUIET_CYCLES, 4 * sum(b.latency_cycles + b.interval_cycles for b in system.boards))
    spoil = (0, 0, 0, 0) if faults is None else (1 + faults.seed, faults.every, faults.cut,
                                                 DETECT_CLOCKS if system.slots or faults.cut else 0)
    lines = [f"run {count} {0 if stall_seed is None else 1 + stall_seed} {quiet} {jitter} {bits} "
             f"{' '.join(str(int(number)) for number in spoil)}"]
    lines += [f"{'load' if _stream(system, p).loads else 'in'} {p.board} {p.port}" for p in system.inputs]
    lines += [f"out {p.board} {p.port}" for p in system.outputs]
    lines += [f"status {n} {len(b.outputs) - 1}" for n, b in enumerate(system.boards)]
    entries = sorted({p.board for p in (*system.inputs, *system.outputs)})
    lines += [f"host {n} {len(system.boards[n].outputs) - 1}" for n in entries]
    lines += [f"wire {w.source} {w.output} {w.target} {w.input} {w.latency_clocks} {int(w.cells_per_clock * 1e6)}"
              for w in system.wires]
    return lines if keeping is None else [*lines, f"keep {keeping.every_s}"]


def _run(system: System, program: Path, folder: Path, on_frame: Callable[[int], None] | None, told: _Told,
         timeout_s: float) -> None:
    name = f"simulation of {system.name}"
    code, report = run_program(program, folder, name, (0, STUCK, TOO_MANY, REPORTED), on_frame, told.hear, timeout_s)
    if code:
        cycle, sent, taken, status = report.split("|")
        what = {STUCK: "deadlock, no beat moved for long; check FIFO depths and credits",
                TOO_MANY: "more beats left than their frames hold; check counters and valid logic",
                REPORTED: "a board reports a fault of a link that nobody injected; check sequence, credits and checksums"}[code]
        raise MismatchError(f"{name}: cycle {cycle}: {what}; beats sent:{sent}; beats received:{taken}; "
                            f"status of {', '.join(system.devices)}:{status}")
