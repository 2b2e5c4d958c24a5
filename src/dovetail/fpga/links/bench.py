"""Simulate all boards of a system at once, with links that take time, jitter, and lose, repeat or damage words when asked to."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dovetail.errors import MismatchError
from dovetail.fpga.design import StreamPort
from dovetail.fpga.links.system import HostPort, System
from dovetail.fpga.packing import as_pixels, pack, unpack
from dovetail.fpga.toolchain.simulate import QUIET_CYCLES, RUN_TIMEOUT_S, STUCK, TOO_MANY, run_program, scratch_folder
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


def build_bench(system: System, frames: int) -> Path:
    """Folder with the simulation of all boards, about to be sent so many frames; cached by content."""
    quick = max(cycles_of(board, frames) for board in system.boards) <= QUICK_CYCLES
    return build_target(BuildTarget(bundle_files(system.boards), Path(__file__).with_name("bench.cpp"), PROGRAM, quick=quick))


def simulate_system(system: System, tensors: Mapping[str, Array], stall_seed: int | None = None, jitter: int = JITTER_CLOCKS,
                    faults: Faults | None = None, on_frame: Callable[[int], None] | None = None,
                    timeout_s: float = RUN_TIMEOUT_S) -> SystemRun:
    """Send frames through all boards; `tensors` are whole ones, (frames, …), and one set for every input that takes weights.

    Raises MismatchError when the boards lock up, send too much, or report a fault that was not injected.
    """
    start = time.monotonic()
    count = next(len(tensors[p.tensor]) for p in system.inputs if not _stream(system, p).loads)
    program = build_bench(system, count)
    with scratch_folder() as folder:
        for number, port in enumerate(system.inputs):
            stream = _stream(system, port)
            values = np.asarray(tensors[port.tensor])[(slice(None), *slices(port.region)[1:])]
            pack(stream, as_pixels(stream, values), 1 if stream.loads else count).tofile(folder / f"in{number}.bin")
        (folder / "system.txt").write_text("\n".join(_lines(system, count, stall_seed, jitter, faults)) + "\n", encoding="ascii")
        began = time.monotonic()
        found = _run(system, program, folder, on_frame, timeout_s)
        ended = time.monotonic()
        outputs = {}
        for number, port in enumerate(system.outputs):
            stream = system.boards[port.board].outputs[port.port]
            outputs[port] = unpack(stream, np.fromfile(folder / f"out{number}.bin", dtype=np.uint8), count)
        counts = [int(value) for value in np.fromfile(folder / "frames.bin", dtype=np.uint64)]
    return SystemRun(outputs, counts[0], counts[1], tuple(counts[2:]), tuple(found), ended - start, ended - began)


def _stream(system: System, port: HostPort) -> StreamPort:
    """The board's input that a stream of the host enters by."""
    return system.boards[port.board].inputs[port.port]


def _lines(system: System, count: int, stall_seed: int | None, jitter: int, faults: Faults | None) -> list[str]:
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
    return lines


def _run(system: System, program: Path, folder: Path, on_frame: Callable[[int], None] | None, timeout_s: float) -> list[Fault]:
    faults: list[Fault] = []

    def listen(line: str) -> None:
        if line.startswith("fault "):
            _, kind, carried, detected, clocks = line.split()
            faults.append(Fault(kind, carried == "data", detected == "1", int(clocks)))

    name = f"simulation of {system.name}"
    code, report = run_program(program, folder, name, (0, STUCK, TOO_MANY, REPORTED), on_frame, listen, timeout_s)
    if code:
        cycle, sent, taken, status = report.split("|")
        what = {STUCK: "deadlock, no beat moved for long; check FIFO depths and credits",
                TOO_MANY: "more beats left than their frames hold; check counters and valid logic",
                REPORTED: "a board reports a fault of a link that nobody injected; check sequence, credits and checksums"}[code]
        raise MismatchError(f"{name}: cycle {cycle}: {what}; beats sent:{sent}; beats received:{taken}; "
                            f"status of {', '.join(system.devices)}:{status}")
    return faults
