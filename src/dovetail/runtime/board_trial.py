"""A board put through its paces: identity, self-test, frames against the reference, a soft reset in mid-frame, counters."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dovetail.errors import BuildError, UsageError
from dovetail.fpga.axi.shell import Shell
from dovetail.fpga.packing import as_pixels, first_wrong, to_packets
from dovetail.fpga.part import FpgaPart, loaded_sets
from dovetail.ir import Array
from dovetail.numerics.reference import run_integer
from dovetail.runtime.build import synthetic_integers
from dovetail.runtime.driver import Accelerator, Counters, open_simulated
from dovetail.runtime.transports.board import BoardPlace
from dovetail.runtime.verification import check_frames

Frames = Mapping[str, Array]

FRAMES = 8
SEED = 1


@dataclass(frozen=True, slots=True)
class Trial:
    """What a board did; speeds are the simulation's, or a real board's with its transport."""

    equal: bool
    """Everything was as it must be."""
    top: str
    build_hash: str
    bus_bits: int
    self_test: bool
    frames: int
    mismatch: str | None
    """The first wrong beat with pixel and channel."""
    after_reset: str
    counters: Counters
    cycles: int
    cycles_per_s: float
    frames_per_s: float


def try_board(part: FpgaPart, shell: Shell, frames: int = FRAMES, stall_seed: int | None = None, trace: Path | None = None,
              progress: Callable[[int, int], None] | None = None, place: BoardPlace | None = None) -> Trial:
    """Open the board of a part, simulated unless there is a place, and compare what it computes with the reference."""
    check_frames(frames, "selftest")
    if place is not None and (stall_seed is not None or trace is not None):
        raise UsageError(f"selftest --board {place}: nothing stalls or draws a real board; leave --stall-seed and --trace out")
    if part.emulated and place is None:
        raise BuildError(f"{shell.top}: {part.note}; give the FPGA less to do, or run the self-test on a board (--board)")
    tell = progress or (lambda done, total: None)
    tell(0, frames)
    inputs = synthetic_integers(part.graph, frames, SEED)
    expected = run_integer(part.graph, inputs)
    with open_simulated(shell, stall_seed, trace, frames) if place is None else place.open(shell) as board:
        if shell.core.loads:
            board.load(loaded_sets(part.graph, shell.core))
        tested = board.self_test()
        start = time.monotonic()
        results = board.run(inputs, lambda done: tell(done, frames))
        run_s = time.monotonic() - start
        counters = board.counters()
        mismatch = compare(shell, expected, results)
        again = reset_in_mid_frame(board, inputs, expected)
    equal = tested.passed and mismatch is None and again is None
    return Trial(equal, shell.top, shell.hash_text, shell.bus_bits, tested.passed, frames, mismatch, again or "right afterwards",
                 counters, counters.cycles, counters.cycles / run_s, frames / run_s)


def compare(shell: Shell, expected: Frames, results: Frames) -> str | None:
    """The first wrong beat of any output."""
    found = (first_wrong(port, expected[port.tensor], results[port.tensor]) for port in shell.core.outputs)
    return next((wrong for wrong in found if wrong), None)


def reset_in_mid_frame(board: Accelerator, inputs: Frames, expected: Frames) -> str | None:
    """Begin a frame, forget it, and compute another one; what is wrong with that, None if nothing."""
    for number, port in enumerate(board.shell.core.streams):
        packet = to_packets(port, as_pixels(port, np.asarray(inputs[port.tensor])[:1]), board.shell.bus_bits)[0]
        board.transport.send(number, packet.tobytes())
    board.soft_reset(abandon=True)
    results = board.run({name: x[:1] for name, x in inputs.items()})
    return compare(board.shell, {name: x[:1] for name, x in expected.items()}, results)
