"""Faults of four kinds, planted in running streams at seeded random moments: what came out wrong, was lost or came twice.

| kind | what happens |
|---|---|
| killed, hung | the process of a simulated board gets SIGKILL or SIGSTOP |
| flipped | words on links between boards are flipped, lost or doubled |
| reset | a board behind a link shell, in a process of its own, is reset so many clocks into a frame, with its link or without |
"""

from __future__ import annotations

import os
import signal
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from statistics import median
from threading import Timer
from typing import Any

import numpy as np

from dovetail.fpga.axi.model import ShellModel
from dovetail.fpga.axi.shell import Shell, load_shell
from dovetail.fpga.links.bench import Faults, SystemRun, simulate_system
from dovetail.fpga.links.stored import Boards
from dovetail.fpga.part import SHELL, FpgaPart, load_design, load_part_shell
from dovetail.fpga.transport import LinkTransport, SimulatedBoard, serve
from dovetail.ir import Array
from dovetail.numerics.reference import run_integer
from dovetail.processes import end_with_parent
from dovetail.runtime.build import Build
from dovetail.runtime.driver import Accelerator
from dovetail.runtime.record import RunRecord
from dovetail.runtime.stages import RunnablePart, Stage, SystemPart
from dovetail.runtime.stream import FrameStream
from dovetail.runtime.transports.board import BoardPart
from dovetail.runtime.verification import stimulus
from dovetail.runtime.workers import OnFailure, StreamOptions

FRAMES = 24
"""Frames of every stream."""
IN_FLIGHT = 6
HUNG_S = 1.0
"""After which a device that gives no answer has failed."""
AFTER_S = 5e-3
"""The longest time from the beginning of a frame to a signal: some frames of the bundled example. Chosen."""
TOGETHER = 4
"""Frames that travel through joined boards together, since a process is started for each such group."""
EVERY_CLOCKS = 400
"""Clocks between spoilt words, in the mean."""
PATIENCE_FRAMES = 8
"""Frames in whose clocks a board that was reset must give one, or the host is told that none comes."""
BOARD_S = 30.0
"""Seconds without a byte after which the host gives a board up."""
KEPT = 2
"""Frames that a board computes after its reset, to show that it came back."""
COLUMNS = "seed, faults that met a frame, frames wrong, lost, repeated, recovered_s, note"
"""What a moment's line in the record holds."""
SIGNALS = {"killed": signal.SIGKILL, "hung": signal.SIGSTOP}
KINDS = (*SIGNALS, "flipped", "reset")
Plant = Callable[[int], "Moment"]


def single(stored: Mapping[str, Array], each: int = 1) -> Iterator[dict[str, Array]]:
    """Frames one by one, or so many together."""
    return ({name: x[i : i + each] for name, x in stored.items()} for i in range(0, len(next(iter(stored.values()))), each))


@dataclass(frozen=True, slots=True)
class Moment:
    """What a stream with one planted fault came to."""

    seed: int
    met: int
    """Faults that met a frame: a signal behind the last one meets none. Of links, flipped words."""
    wrong: int
    lost: int
    repeated: int
    """Results that are another frame's."""
    recovered_s: float | None = None
    """From the fault to the next result of what it met; of links, what they took longer, in the boards' own time."""
    note: str = ""

    def __str__(self) -> str:
        took = "-" if self.recovered_s is None else f"{self.recovered_s:.3g}"
        return f"{self.seed} {self.met} {self.wrong} {self.lost} {self.repeated} {took} {self.note}".rstrip()


def read_moment(text: str) -> Moment:
    """A moment as it is written."""
    seed, met, wrong, lost, repeated, took, *note = text.split(" ", 6)
    counts = int(wrong), int(lost), int(repeated)
    return Moment(int(seed), int(met), *counts, None if took == "-" else float(took), "".join(note))


def judge(found: Sequence[Mapping[str, Array]], expected: Mapping[str, Array]) -> tuple[int, int, int]:
    """Frames that are wrong, lost, and another frame's."""
    count, wrong, repeated = len(next(iter(expected.values()))), 0, max(0, len(found) - len(next(iter(expected.values()))))

    def equals(frame: Mapping[str, Array], i: int) -> bool:
        return all(np.array_equal(frame[name][0], expected[name][i]) for name in frame)

    for i, frame in enumerate(found[:count]):
        if not equals(frame, i):
            another = any(equals(frame, j) for j in range(count) if j != i)
            wrong, repeated = wrong + (not another), repeated + another
    return wrong, max(0, count - len(found)), repeated


@dataclass(slots=True, eq=False)
class Streams:
    """Streams of the same frames through a build, and what must come out."""

    build: Build
    stored: dict[str, Array] = field(init=False)
    expected: dict[str, Array] = field(init=False)
    stages: list[Stage] = field(init=False)
    clean: dict[int, int] = field(default_factory=dict)
    """Clocks that so many frames take joined boards without a fault."""

    def __post_init__(self) -> None:
        self.stages = self.build.stages()
        self.stored = stimulus(self.build, FRAMES)
        self.expected = {name: x for name, x in run_integer(self.build.graph, self.stored).items()
                         if name in self.build.graph.outputs}

    def options(self, delay: Callable[[str, int], None] | None = None, timeout_s: float = BOARD_S) -> StreamOptions:
        return StreamOptions(IN_FLIGHT, OnFailure.FALLBACK, timeout_s, FRAMES, delay)

    def results(self, stream: FrameStream, each: int = 1) -> tuple[int, int, int]:
        """What is wrong, lost and another's of a stream's results; so many frames travel together."""
        found = list[dict[str, Array]]()
        with suppress(Exception):  # what has not come by then is lost, and counts as such
            for several in stream.results(single(self.stored, each)):
                found.extend(single(several))
        return judge(found, self.expected)


def recovered_s(record: RunRecord, stage: str, planted: float) -> float | None:
    """Seconds from a fault to the result of the frame at which it was reported; None where nothing was."""
    failure = next((f for f in record.failures if f.stage == stage), None)
    if failure is None:
        return None
    return next(record.began + s.stop_s for s in record.spans
                if s.kind == "compute" and s.stage == stage and s.frame == failure.frame) - planted


class Signal:
    """A signal to the simulator of a stage, at a moment of a frame."""

    def __init__(self, build: Build, seed: int, number: signal.Signals) -> None:
        drawn = Random(seed)
        self.stage = drawn.choice([s.name for s in build.stages() if s.pipelined])
        self.frame, self.after_s, self.number = drawn.randrange(FRAMES), drawn.random() * AFTER_S, number
        self.stream: FrameStream | None = None
        self.timer: Timer | None = None
        self.planted = 0.0

    def __call__(self, stage: str, frame: int) -> None:
        if self.timer is None and stage == self.stage and frame >= self.frame:
            self.timer = Timer(self.after_s, self._send)
            self.timer.start()

    def _send(self) -> None:
        assert self.stream is not None
        part = next(s.part for s in self.stream.stages if s.name == self.stage)
        assert isinstance(part, FpgaPart)
        assert part.simulator is not None
        self.planted = time.monotonic()
        with suppress(ProcessLookupError):
            os.kill(part.simulator.process.pid, self.number)

    def end(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer.join()


def signalled(streams: Streams, number: signal.Signals, seed: int) -> Moment:
    """A stream one of whose simulators gets a signal."""
    fault, record = Signal(streams.build, seed, number), RunRecord()
    with streams.build.open_stream(streams.options(fault, HUNG_S if number == signal.SIGSTOP else BOARD_S), record) as stream:
        fault.stream = stream
        counts = streams.results(stream)
        fault.end()
    took = recovered_s(record, fault.stage, fault.planted)
    return Moment(seed, int(took is not None), *counts, took)


@dataclass(frozen=True, slots=True)
class SpoiltBoards(Boards):
    """Joined boards whose links spoil words."""

    seed: int = 0
    spoilt: list[tuple[SystemRun, int]] = field(default_factory=list)
    """Of every run, what happened and how many clocks longer it took."""
    clean: dict[int, int] = field(default_factory=dict)
    """Clocks of so many frames without a fault: they do not depend on numbers."""

    def run(self, tensors: Mapping[str, Array], stall_seed: int | None = None,
            on_frame: Callable[[int], None] | None = None, timeout_s: float = BOARD_S) -> SystemRun:
        given = {**tensors, **self.weights}
        count = len(next(iter(tensors.values())))
        if count not in self.clean:
            self.clean[count] = simulate_system(self.system, given, timeout_s=timeout_s).cycles
        faults = Faults(self.seed * FRAMES + len(self.spoilt), EVERY_CLOCKS)
        found = simulate_system(self.system, given, faults=faults, timeout_s=timeout_s)
        self.spoilt.append((found, found.cycles - self.clean[count]))
        return found


def flipped(streams: Streams, seed: int) -> Moment:
    """A stream through joined boards whose links spoil words; the boards repeat them, and nothing is reported."""
    build, record, spoilt = streams.build, RunRecord(), list[tuple[SystemRun, int]]()
    stages = list(streams.stages)
    for index, stage in enumerate(stages):
        if isinstance(part := stage.part, SystemPart):
            own = part.boards
            boards = SpoiltBoards(own.system, own.segments, own.weights, seed, spoilt, streams.clean)
            stages[index] = replace(stage, part=replace(part, boards=boards))
    with FrameStream(stages, build.program, record, streams.options()) as stream:
        counts = streams.results(stream, TOGETHER)
    kinds = [fault.kind for run, _ in spoilt for fault in run.faults]
    clock_hz = min(d.clock_hz for d in build.platform.devices if d.clock_hz)
    worst = max((clocks for run, clocks in spoilt if run.faults), default=0)
    note = ", ".join(f"{kinds.count(k)} {k}" for k in ("lost", "duplicated"))
    note += f"; {len(record.failures)} reported" if record.failures else ""
    return Moment(seed, 0 if record.failures else kinds.count("flipped"), *counts, max(0, worst) / clock_hz, note)


@dataclass(frozen=True, slots=True)
class Reset:
    """When a board is reset: so many frames later, so many clocks into what it computes; with its link, or without."""

    frame: int
    clocks: int
    link: bool


class LinkLostError(Exception):
    """The board's end of its link went down with it."""


class ResetBoard(SimulatedBoard):
    """A board that forgets everything in the middle of a frame, once; the pipe says when, and hears of it."""

    def __init__(self, shell: Shell, pipe: Connection) -> None:
        super().__init__(shell)
        self.pipe, self.planned, self.fetched = pipe, Reset(0, 0, False), -1

    def receive(self, port: int) -> bytes:
        while self.pipe.poll():
            self.planned, self.fetched = self.pipe.recv(), 0
        if port == 0 and self.fetched >= 0:
            self.fetched += 1
            if self.fetched > self.planned.frame:
                self._reset(self.planned)
        return super().receive(port)

    def _reset(self, planned: Reset) -> None:
        shell, self.fetched = self.model.shell, -1
        self.model.run([1 << 30 for _ in shell.core.outputs], planned.clocks)
        self.model.close()
        self.model, self.patience = ShellModel(shell), PATIENCE_FRAMES * (shell.core.latency_cycles + shell.core.interval_cycles)
        self.pipe.send(time.monotonic())
        if planned.link:
            raise LinkLostError


def be_a_board(folder: Path, path: str, pipe: Connection) -> None:
    """Answer for the board of a part's folder at a socket: the whole life of its process."""
    end_with_parent()
    shell = load_shell(load_design(folder), folder / SHELL)
    board = ResetBoard(shell, pipe)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        listening.listen()
        pipe.send("listens")
        while True:
            host, _ = listening.accept()
            with host, host.makefile("rwb") as stream, suppress(LinkLostError, OSError):
                serve(stream, board, shell.build_hash)


class SocketTransport(LinkTransport):
    """A board at a socket."""

    def __init__(self, shell: Shell, path: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(BOARD_S)
        self.socket.connect(path)
        self.file = self.socket.makefile("rwb")
        super().__init__(self.file, shell.build_hash)

    def close(self) -> None:
        with suppress(OSError):
            self.file.close()
        self.socket.close()


@dataclass(frozen=True, slots=True)
class SocketPlace:
    """Where such a board is."""

    path: str

    def open(self, shell: Shell) -> Accelerator:
        transport = SocketTransport(shell, self.path)
        transport.greet()
        return Accelerator(shell, transport, recover=True)


class ResetCampaign:
    """A build one of whose FPGAs is a board in a process of its own."""

    def __init__(self, streams: Streams) -> None:
        self.streams, build = streams, streams.build
        self.segment = next(s for s in build.program.segments for stage in build.stages() if stage.pipelined
                            and not stage.joined and s is stage.segments[0])
        self.folder = build.folder / "fpga"
        core = load_part_shell(self.segment.graph, self.folder).core
        self.most_clocks = core.latency_cycles + core.interval_cycles
        self._open = ExitStack()
        self.path = f"{self._open.enter_context(tempfile.TemporaryDirectory())}/board"
        context = get_context("spawn")
        self.pipe, theirs = context.Pipe()
        process = context.Process(target=be_a_board, args=(self.folder / self.segment.name, self.path, theirs), daemon=True)
        process.start()
        self._open.callback(process.join)
        self._open.callback(process.kill)
        theirs.close()
        self.pipe.recv()

    def close(self) -> None:
        self._open.close()

    def __call__(self, seed: int) -> Moment:
        """A stream whose board is reset; it computes a few frames more afterwards, which must be right."""
        drawn, record = Random(seed), RunRecord()
        planned = Reset(drawn.randrange(FRAMES), 1 + drawn.randrange(self.most_clocks), drawn.random() < 0.5)
        part = BoardPart(self.segment.graph, self.folder, SocketPlace(self.path))
        parts: dict[str, RunnablePart] = {self.segment.name: part}
        self.pipe.send(planned)
        with self.streams.build.open_stream(self.streams.options(), record, parts) as stream:
            counts = self.streams.results(stream)
        planted = self.pipe.recv() if self.pipe.poll() else 0.0
        took = recovered_s(record, self.segment.name, planted) if planted else None
        return Moment(seed, int(took is not None), *counts, took,
                      f"{'link too' if planned.link else 'link kept'}, {'came back' if self._is_back(part) else 'STAYED AWAY'}")

    def _is_back(self, part: BoardPart) -> bool:
        inputs = {name: np.zeros((KEPT, *self.segment.graph.shape(name)[1:]), self.segment.graph.tensors[name].dtype)
                  for name in self.segment.graph.inputs}
        expected, found = run_integer(self.segment.graph, inputs), part.run(inputs)
        part.close()
        return all(np.array_equal(found[name], expected[name]) for name in found)


def campaign(board: Build, joined: Build, count: int, known: Mapping[str, Any], keep: Callable[[dict[str, Any]], None]) \
        -> dict[str, Any]:
    """So many faults of every kind that met a frame, seed after seed; `keep` hears of each, `known` are not run again."""
    one, several = Streams(board), Streams(joined)
    moments = {kind: [read_moment(text) for text in known.get(kind, {}).get("moments", ())] for kind in KINDS}
    with ExitStack() as stack:
        for kind, own in moments.items():
            plant: Plant | None = None
            while sum(m.met for m in own) < count:
                plant = plant or _plant(kind, one, several, stack)
                own.append(plant(len(own)))
                keep({k: told(m) for k, m in moments.items()})
    return {kind: told(own) for kind, own in moments.items()}


def _plant(kind: str, one: Streams, several: Streams, stack: ExitStack) -> Plant:
    """What plants a fault of a kind."""
    if kind == "reset":
        board = ResetCampaign(one)
        stack.callback(board.close)
        return board
    return partial(flipped, several) if kind == "flipped" else partial(signalled, one, SIGNALS[kind])


def told(moments: Sequence[Moment]) -> dict[str, Any]:
    """Moments of a kind in figures, and one by one."""
    took = [m.recovered_s for m in moments if m.met and m.recovered_s is not None]
    return {"met": sum(m.met for m in moments), "streams": len(moments), "wrong": sum(m.wrong for m in moments),
            "lost": sum(m.lost for m in moments), "repeated": sum(m.repeated for m in moments),
            "recovered_s": {"median": median(took), "worst": max(took)} if took else None, "moments": list(map(str, moments))}
