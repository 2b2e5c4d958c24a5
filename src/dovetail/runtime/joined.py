"""One host, several boards that are joined by links: their shells' registers, one reset for all, packets through the network.

    with open_joined(system, shells) as (host, _):
        results = host.run({"image": integers})
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf
from pathlib import Path

import numpy as np

from dovetail.errors import BuildError, TransportError, UsageError
from dovetail.fpga.axi import registers
from dovetail.fpga.axi.model import JoinedModel
from dovetail.fpga.axi.shell import Shell
from dovetail.fpga.design import StreamPort
from dovetail.fpga.links.bench import JITTER_CLOCKS
from dovetail.fpga.links.receive import Cause
from dovetail.fpga.links.shells import cables_of
from dovetail.fpga.links.stored import Boards
from dovetail.fpga.links.system import HostPort, System
from dovetail.fpga.packing import as_pixels, first_wrong, from_packets, to_packets
from dovetail.fpga.toolchain.verilate import cycles_of
from dovetail.fpga.transport import JoinedBoard, Transport
from dovetail.ir import Array, Graph, slices
from dovetail.numerics.reference import run_integer
from dovetail.progress import Progress, silent
from dovetail.runtime.board_trial import SEED
from dovetail.runtime.build import synthetic_integers
from dovetail.runtime.driver import IN_FLIGHT, PATIENCE_S, POLLS, Accelerator
from dovetail.runtime.verification import check_frames, expect_partials
from dovetail.schedule.program import Program
from dovetail.words import counted

DRAIN_CLOCKS = 256
"""Beyond twice the links' own latency, for which all boards are held in reset: transceivers and jitter (chosen)."""


@dataclass(frozen=True, slots=True)
class LinkState:
    """One end of a link, and what it counted since the last clear."""

    board: str
    link: int
    up: bool
    cause: Cause
    spoilt: int
    received: int
    sent: int


class JoinedAccelerator:
    """All boards of a system; opening it makes sure of each and lets them begin together."""

    def __init__(self, system: System, shells: Sequence[Shell], transports: Sequence[Transport]) -> None:
        """Shells and ways to the boards in the system's order of boards."""
        self.system = system
        self.boards = [Accelerator(shell, transport) for shell, transport in zip(shells, transports, strict=True)]
        if not any(port.loads for board in self.boards for port in board.shell.core.inputs):
            self.reset()

    def close(self) -> None:
        """Let go of all boards."""
        for board in self.boards:
            board.transport.close()

    def load(self, sets: Mapping[str, Array]) -> None:
        """Let all boards begin again with these weights, sets by the names of their inputs."""
        wanted = {p.tensor for board in self.boards for p in board.shell.core.loads}
        if wanted != set(sets):
            raise UsageError(f"{self.system.name}: sets for {', '.join(sorted(sets)) or 'none'}; boards load "
                             f"{', '.join(sorted(wanted)) or 'none'}")
        for board in self.boards:
            core = board.shell.core
            board.weights = {core.inputs.index(p): to_packets(p, as_pixels(p, np.asarray(sets[p.tensor])),
                                                              board.shell.bus_bits).tobytes() for p in core.loads}
        self.reset()

    def reset(self) -> None:
        """All boards forget their frames, links included, and begin at once; counters restart."""
        held = registers.ENABLE.mask | registers.SOFT_RESET.mask | registers.ABANDON.mask | registers.HOLD.mask
        for board in self.boards:
            board.transport.abandon()
            board.write("CONTROL", held)
        self._drain()
        for board in self.boards:
            board.write("CONTROL", registers.ENABLE.mask)
        for board in self.boards:
            board.poll(registers.RESETTING, 0, "the reset of all boards did not end")
        for board in self.boards:
            board.poll(registers.LINKS_UP, 1, f"the links of {board.shell.core.top} did not come up; are all boards programmed "
                                              "with one build, and their links plugged as system.json has them?")
            board.clear()
        for board in self.boards:
            board.fill()

    def _drain(self) -> None:
        """Wait until no cell is on its way any more: one from before a reset would be taken for the far end's answer."""
        clocks = DRAIN_CLOCKS + max((2 * wire.latency_clocks for wire in self.system.wires), default=0)
        board = self.boards[-1]
        start, end, reads = board.read("CYCLES_LO"), time.monotonic() + PATIENCE_S, 0
        while (board.read("CYCLES_LO") - start) % (1 << 32) < clocks:
            reads += 1
            if reads > POLLS and time.monotonic() > end:
                passed = f"{counted(clocks, 'clock')} did not pass"
                raise TransportError(f"board {board.shell.core.top}: its clock stands still, {passed}")

    def links(self) -> tuple[LinkState, ...]:
        """Every end of every link."""
        found = []
        for device, board in zip(self.system.devices, self.boards, strict=True):
            for n in range(len(board.shell.lanes)):
                status = board.read(f"LINK{n}_STATUS")
                counts = (board.read(f"LINK{n}_{name}") for name in ("SPOILT", "RECEIVED", "SENT"))
                found.append(LinkState(device, n, bool(registers.LINK_UP.of(status)), Cause(registers.LINK_CAUSE.of(status)),
                                       *counts))
        return tuple(found)

    def run(self, frames: Mapping[str, Array], on_frame: Callable[[int], None] | None = None) -> dict[HostPort, Array]:
        """Stored integers of all inputs in, (frames, …); what the host takes from every port of a board out.

        Counters restart. Raises TransportError where a link has stopped or a packet was changed, and names it.
        """
        sent, taken = self._packets(frames), {p: list[bytes]() for p in self.system.outputs}
        count = min(len(packets) for packets in sent.values())
        for board in self.boards:
            board.clear()
        try:
            for frame in range(count):
                for port, packets in sent.items():
                    self.boards[port.board].transport.send(port.port, packets[frame].tobytes())
                if frame + 1 >= IN_FLIGHT:
                    self._fetch(taken, on_frame)
            while any(len(got) < count for got in taken.values()):
                self._fetch(taken, on_frame)
        except TransportError as error:
            raise self._blamed(error) from None
        for n, board in enumerate(self.boards):
            board.check({p.port: packets for p, packets in sent.items() if p.board == n},
                        {p.port: got for p, got in taken.items() if p.board == n})
        found = {}
        for port, got in taken.items():
            bits, stream = self.boards[port.board].shell.bus_bits, self.boards[port.board].shell.core.outputs[port.port]
            found[port] = from_packets(stream, np.frombuffer(b"".join(got), dtype=np.uint8).reshape(count, -1), bits)
        return found

    def _stream(self, port: HostPort) -> StreamPort:
        return self.boards[port.board].shell.core.inputs[port.port]

    def send(self, frames: Mapping[str, Array]) -> None:
        """Queue frames for all inputs."""
        for port, packets in self._packets(frames).items():
            for packet in packets:
                self.boards[port.board].transport.send(port.port, packet.tobytes())

    def _packets(self, frames: Mapping[str, Array]) -> dict[HostPort, Array]:
        """What every input gets of these tensors, a packet a frame."""
        found = {}
        for port in (p for p in self.system.inputs if not self._stream(p).loads):
            if port.tensor not in frames:
                raise UsageError(f"{self.system.name}: no frames of {port.tensor}, which {self.system.devices[port.board]} reads")
            part = np.asarray(frames[port.tensor])[(slice(None), *slices(port.region)[1:])]
            found[port] = to_packets(self._stream(port), as_pixels(self._stream(port), part),
                                     self.boards[port.board].shell.bus_bits)
        if len({len(packets) for packets in found.values()}) != 1:
            raise UsageError(f"{self.system.name}: inputs differ in frames; give every input the same number")
        return found

    def _fetch(self, taken: Mapping[HostPort, list[bytes]], on_frame: Callable[[int], None] | None) -> None:
        """One frame from every output."""
        for port, got in taken.items():
            got.append(self.boards[port.board].transport.receive(port.port))
        if on_frame is not None:
            on_frame(min(len(got) for got in taken.values()))

    def _blamed(self, error: TransportError) -> TransportError:
        """The same with the links that have stopped."""
        stopped = [f"link {s.link} of {s.board}: {s.cause.name.lower().replace('_', ' ')}" for s in self.links() if s.cause]
        return TransportError(f"{'; '.join(stopped)}; reset all boards and send the frames again") if stopped else error


@contextmanager
def open_joined(system: System, shells: Sequence[Shell], stall_seed: int | None = None,
                trace: Path | None = None, frames: float = inf) -> Iterator[tuple[JoinedAccelerator, JoinedModel]]:
    """Boards that are always there: their Verilog behind AXI ports, joined by links, in one simulation; and that simulation.

    It is for about so many frames.
    """
    cycles = max(cycles_of(shell.core, frames) for shell in shells)
    model = JoinedModel(shells, cables_of(system, shells), stall_seed, trace, JITTER_CLOCKS, cycles)
    try:
        yield JoinedAccelerator(system, shells, [JoinedBoard(model, n) for n in range(len(shells))]), model
    finally:
        model.close()


@dataclass(frozen=True, slots=True)
class JoinedTrial:
    """What joined boards did, driven by one host; speeds are the simulation's."""

    equal: bool
    """Everything was as it must be."""
    build_hashes: Mapping[str, str]
    """By board."""
    bus_bits: int
    frames: int
    mismatch: str | None
    """The first wrong beat with pixel and channel."""
    after_reset: str
    links: tuple[LinkState, ...]
    """With what they counted while frames passed."""
    cycles: int
    cycles_per_s: float
    frames_per_s: float


def try_joined(boards: Boards, shells: Sequence[Shell], graph: Graph, program: Program, frames: int,
               stall_seed: int | None = None, trace: Path | None = None, progress: Progress = silent) -> JoinedTrial:
    """Drive all boards of a system as one host would, and compare what it takes with the reference; then once more after a reset
    of all in mid-frame."""
    check_frames(frames, "selftest")
    if boards.emulated:
        raise BuildError(f"{boards.system.name}: {boards.note}; give the FPGAs less to do")
    inputs = synthetic_integers(graph, frames, SEED)
    expected: dict[str, Array] = {**run_integer(graph, inputs, keep=True), **inputs}
    for segment in program.segments:
        expect_partials(segment, expected, program)
    where = f"{boards.system.name} behind AXI"
    with open_joined(boards.system, shells, stall_seed, trace, frames) as (host, _):
        if boards.weights:
            host.load(boards.weights)
        start = time.monotonic()
        results = host.run(expected, lambda done: progress(where, done, frames))
        run_s = time.monotonic() - start
        cycles, links = host.boards[0].counters().cycles, host.links()
        mismatch = wrong_beat(host, expected, results)
        again = _after_reset(host, expected)
    equal = mismatch is None and again is None and all(s.up and s.cause is Cause.NONE for s in links)
    hashes = {device: shell.hash_text for device, shell in zip(boards.system.devices, shells, strict=True)}
    return JoinedTrial(equal, hashes, shells[0].bus_bits, frames, mismatch, again or "right afterwards", links, cycles,
                       cycles / run_s, frames / run_s)


def wrong_beat(host: JoinedAccelerator, expected: Mapping[str, Array], results: Mapping[HostPort, Array]) -> str | None:
    """The first wrong beat of any board's output."""
    for port, values in results.items():
        right = expected[port.tensor][(slice(len(values)), *slices(port.region)[1:])]
        if wrong := first_wrong(host.boards[port.board].shell.core.outputs[port.port], right, values):
            return f"{host.system.devices[port.board]}: {wrong}"
    return None


def _after_reset(host: JoinedAccelerator, expected: Mapping[str, Array]) -> str | None:
    """Begin a frame, let all boards forget it, and compute another one; what is wrong with that, None if nothing."""
    first = {name: x[:1] for name, x in expected.items()}
    host.send(first)
    host.reset()
    return wrong_beat(host, first, host.run(first))
