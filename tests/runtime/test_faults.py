"""Devices that fail in a stream: their processes killed or stopped, their packets changed, at seeded random moments."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from threading import Timer

import numpy as np
import pytest

from dovetail.errors import ToolError, TransportError
from dovetail.fpga.axi.shell import Shell
from dovetail.fpga.part import FpgaPart
from dovetail.fpga.transport import SimulatedBoard
from dovetail.ir import Array
from dovetail.runtime.build import Build, run_stored, synthetic_integers
from dovetail.runtime.driver import Accelerator
from dovetail.runtime.record import RunRecord
from dovetail.runtime.stream import FrameStream
from dovetail.runtime.transports.board import BoardPart
from dovetail.runtime.workers import OnFailure, StreamOptions

FRAMES = 10


def single(stored: dict[str, Array]) -> Iterator[dict[str, Array]]:
    return ({name: x[i : i + 1] for name, x in stored.items()} for i in range(FRAMES))


class Planter:
    """Sends a signal to the simulator of a stage when it is about to begin a frame, or a moment later."""

    def __init__(self, build: Build, seed: int, number: signal.Signals) -> None:
        drawn = Random(seed)
        hardware = [s.name for s in build.stages() if s.pipelined]
        self.stage, self.frame, self.number = drawn.choice(hardware), drawn.randrange(FRAMES), number
        self.after_s = drawn.choice((0.0, drawn.random() * 2e-3))
        self.stream: FrameStream | None = None
        self.planted = 0

    def __call__(self, stage: str, frame: int) -> None:
        if self.planted or stage != self.stage or frame < self.frame:
            return
        assert self.stream is not None
        part = next(s.part for s in self.stream.stages if s.name == stage)
        assert isinstance(part, FpgaPart)
        assert part.simulator is not None
        self.planted += 1
        if self.after_s:
            Timer(self.after_s, _send, (part.simulator.process, self.number)).start()
        else:
            _send(part.simulator.process, self.number)


def _send(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    if process.poll() is None:
        os.kill(process.pid, number)


@pytest.mark.parametrize(("number", "seeds", "timeout_s"), [(signal.SIGKILL, range(12), 60.0), (signal.SIGSTOP, range(2), 2.0)],
                         ids=["killed", "hung"])
def test_a_simulator_that_dies_or_hangs_costs_no_frame_and_no_integer(divided: Build, number: signal.Signals, seeds: range,
                                                                      timeout_s: float) -> None:
    stored = synthetic_integers(divided.graph, FRAMES, seed=6)
    (name,) = divided.graph.outputs
    expected = run_stored(divided, stored)[name]
    planted = 0
    for seed in seeds:
        planter, record = Planter(divided, seed, number), RunRecord()
        options = StreamOptions(4, OnFailure.FALLBACK, timeout_s, FRAMES, planter)
        with divided.open_stream(options, record) as stream:
            planter.stream = stream
            found = list(stream.results(single(stored)))
        np.testing.assert_array_equal(np.concatenate([r[name] for r in found]), expected)
        failed = [f.stage for f in record.failures]
        assert len(failed) == len(set(failed)), "each is reported once"
        planted += planter.planted
        if planter.planted and not planter.after_s:  # else it may have done its last frame by then
            failure = next(f for f in record.failures if f.stage == planter.stage)
            assert failure.recovered_s is not None
            assert "died, ended by signal 9" in failure.reason or "not finished after 2 s" in failure.reason \
                or "no answer within 2 s" in failure.reason
            assert any(s.backend == "integer reference" and s.stage == planter.stage for s in record.spans)
    assert planted > len(seeds) / 2


class WrongBoard(SimulatedBoard):
    """A board whose packets are changed on the way, from a certain one on."""

    def __init__(self, shell: Shell, good: int) -> None:
        super().__init__(shell)
        self.good = good

    def receive(self, port: int) -> bytes:
        packet = super().receive(port)
        self.good -= 1
        return packet if self.good >= 0 else bytes([packet[0] ^ 1]) + packet[1:]


@dataclass(frozen=True, slots=True)
class WrongPlace:
    """Where such a board is."""

    seed: int

    def open(self, shell: Shell) -> Accelerator:
        return Accelerator(shell, WrongBoard(shell, Random(self.seed).randrange(FRAMES)))


@pytest.mark.parametrize("seed", range(3))
def test_an_answer_whose_checksum_is_wrong_is_computed_again_on_the_cpu(streamed: Build, seed: int) -> None:
    stored = synthetic_integers(streamed.graph, FRAMES, seed=7)
    (name,) = streamed.graph.outputs
    segment = next(s for s in streamed.program.segments if s.device == "fpga")
    record, parts = RunRecord(), {segment.name: BoardPart(segment.graph, streamed.folder / "fpga", WrongPlace(seed))}
    with streamed.open_stream(StreamOptions(3, OnFailure.FALLBACK, frames=FRAMES), record, parts) as stream:
        found = list(stream.results(single(stored)))
    np.testing.assert_array_equal(np.concatenate([r[name] for r in found]), run_stored(streamed, stored)[name])
    (failure,) = record.failures
    assert failure.device == "fpga"
    assert "packets were changed on the way" in failure.reason
    assert str(failure).endswith("computed on the CPU from there on, by the integer reference")


def test_unless_told_otherwise_a_failure_ends_the_stream_and_names_the_stage(streamed: Build) -> None:
    stored = synthetic_integers(streamed.graph, FRAMES, seed=8)
    planter, record = Planter(streamed, 1, signal.SIGKILL), RunRecord()
    with streamed.open_stream(StreamOptions(2, frames=FRAMES, delay=planter), record) as stream:
        planter.stream = stream
        with pytest.raises(ToolError, match=r"^fpga0 on fpga, frame \d: simulation of fpga0: its process died, ended by signal"):
            list(stream.results(single(stored)))
        with pytest.raises(ToolError, match=r"--on-failure fallback computes it on the CPU and goes on$"):
            stream.submit(next(single(stored))).result()
    (failure,) = record.failures
    assert str(failure).endswith("the run was stopped")


def test_an_answer_that_is_no_answer_is_refused(streamed: Build) -> None:
    class Short:
        backend, note = "board", ""

        def run(self, inputs: dict[str, Array], on_frame: object = None) -> dict[str, Array]:
            return {b.name: np.zeros((0,)) for b in segment.writes}

    segment = next(s for s in streamed.program.segments if s.device == "fpga")
    with streamed.open_stream(StreamOptions(2, frames=FRAMES), parts={segment.name: Short()}) as stream, \
            pytest.raises(TransportError, match="0 frames came as an answer to 1; --on-failure fallback"):
        stream.submit(next(single(synthetic_integers(streamed.graph, FRAMES, seed=8)))).result()
