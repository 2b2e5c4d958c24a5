"""One driver for every board: `Accelerator` speaks the register map and sends packets, whatever the transport.

    with open_simulated(shell) as accelerator:
        accelerator.self_test()
        results = accelerator.run({"image": integers})
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from math import inf
from pathlib import Path
from types import TracebackType

import numpy as np

from dovetail.errors import TransportError, UsageError
from dovetail.fpga.axi import registers
from dovetail.fpga.axi.shell import Shell
from dovetail.fpga.packing import as_pixels, count_frames, from_packets, to_packets
from dovetail.fpga.toolchain.verilate import cycles_of
from dovetail.fpga.transport import SimulatedBoard, Transport
from dovetail.ir import Array

IN_FLIGHT = 8
"""Frames sent before the first result is fetched: enough to keep the pipeline full, few enough for any buffer."""
POLLS = 200_000
"""Reads of STATUS after which something that should end is given up."""
PATIENCE_S = 1.0
"""Seconds before that, at the least: mapped registers are read in well under a microsecond, and a frame may take longer."""


@dataclass(frozen=True, slots=True)
class InputCounters:
    """Of one input since the last clear; `stalls` and `starved` in clock cycles, `high_water` in bus words."""

    frames: int
    stalls: int
    starved: int
    early: int
    late: int
    high_water: int


@dataclass(frozen=True, slots=True)
class OutputCounters:
    """Of one output since the last clear; `stalls` in clock cycles, `high_water` in bus words."""

    frames: int
    stalls: int
    aborted: int
    high_water: int


@dataclass(frozen=True, slots=True)
class Counters:
    """What a shell counted since the last clear."""

    cycles: int
    inputs: tuple[InputCounters, ...]
    outputs: tuple[OutputCounters, ...]


@dataclass(frozen=True, slots=True)
class SelfTest:
    """Checksums of the self-test's packets, one per output."""

    passed: bool
    found: tuple[int, ...]
    expected: tuple[int, ...]


class Accelerator:
    """A board that holds the build's design; opening it makes sure of that."""

    def __init__(self, shell: Shell, transport: Transport, recover: bool = False) -> None:
        """`shell` is the build's own, from its folder; the board at the transport must be made from the same.

        `recover` forgets frames that somebody else has left in the board.
        """
        self.shell, self.transport = shell, transport
        self.weights: dict[int, bytes] = {}
        core = shell.core
        self.addresses = registers.addresses(len(core.inputs), len(core.outputs), core.memory is not None, len(shell.lanes))
        self.identify()
        self._control(0)
        if recover:
            self.soft_reset(abandon=True)
        if core.memory is not None:
            self.provide_memory()

    def __enter__(self) -> Accelerator:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.transport.close()

    def read(self, name: str) -> int:
        """A register by name: `STATUS`, `IN0_FRAMES`."""
        return self.transport.read(self.addresses[name])

    def write(self, name: str, value: int) -> None:
        self.transport.write(self.addresses[name], value)

    def _control(self, wanted: int) -> None:
        self.write("CONTROL", registers.ENABLE.mask | wanted)

    def identify(self) -> str:
        """The board's build hash; raises TransportError where the board is foreign, of another map or of another build."""
        identity, version = self.read("ID"), self.read("VERSION")
        if identity != registers.IDENTITY:
            raise TransportError(f"board: ID register reads 0x{identity:08X}; 0x{registers.IDENTITY:08X} was expected, this is "
                                 "no design of ours or its registers lie at another address")
        if version >> 16 != registers.VERSION >> 16:
            raise TransportError(f"board: register map {version >> 16}.{version & 0xFFFF}; this driver speaks major version "
                                 f"{registers.VERSION >> 16}, use the driver of the board's version")
        words = [self.read(f"BUILD_HASH{i}") for i in range(registers.HASH_WORDS)]
        found = sum(word << 32 * i for i, word in enumerate(words))
        if found != self.shell.build_hash:
            raise TransportError(f"board: build hash {found:032x}; this build has {self.shell.hash_text}, load the bitstream "
                                 "made from this build or open the build the board was made from")
        return self.shell.hash_text

    def provide_memory(self) -> int:
        """Place the image of the design's weights, tell the board where, and let it begin; returns the address."""
        image, size = self.shell.memory_image, self.read("MEMORY_BYTES")
        if self.read("MEMORY_IMAGE_CRC") != zlib.crc32(image):
            raise TransportError(f"board: memory image of {len(image)} bytes has checksum 0x{zlib.crc32(image):08X}; the design "
                                 "was made with another, use the image of its build")
        self.write("MEMORY_CONTROL", 0)
        self.soft_reset()
        address = self.transport.provide(image, size)
        self.write("MEMORY_BASE_LO", address & 0xFFFF_FFFF)
        self.write("MEMORY_BASE_HI", address >> 32)
        self.write("MEMORY_CONTROL", registers.MEMORY_ENABLE.mask)
        return address

    def load(self, sets: Mapping[str, Array]) -> None:
        """Fill the memories of all layers whose weights are loaded, by the names of their inputs (`fpga.part.weight_sets`).

        Frames under way are forgotten. What was loaded is loaded again after every reset, until there is something else.
        """
        core = self.shell.core
        if {port.tensor for port in core.loads} != set(sets):
            wanted, found = (", ".join(sorted(names)) or "none" for names in ({p.tensor for p in core.loads}, sets))
            raise UsageError(f"accelerator {core.top}: sets for {found}; it loads {wanted}")
        self.weights = {core.inputs.index(port): to_packets(port, as_pixels(port, np.asarray(sets[port.tensor])),
                                                            self.shell.bus_bits).tobytes() for port in core.loads}
        self.soft_reset()

    def _check_weights(self) -> None:
        core = self.shell.core
        if len(self.weights) != len(core.loads):
            raise UsageError(f"accelerator {core.top}: no weights for {', '.join(p.tensor for p in core.loads)}; load them first")

    def fill(self) -> None:
        """Send the weights into a design that was just reset; counters must have restarted."""
        for number, packet in self.weights.items():
            self.transport.send(number, packet)
        for number, packet in self.weights.items():
            for _ in range(POLLS):
                if self.read(f"IN{number}_FRAMES"):
                    break
            else:
                raise TransportError(f"board, input {number}: weights were not taken after {POLLS} reads; is a DMA channel at "
                                     "that input, and is the design enabled?")
            self._agree(f"IN{number}_CRC", zlib.crc32(packet), f"input {number}")

    def clear(self) -> None:
        """Counters and checksums restart."""
        self._control(registers.CLEAR.mask)

    def soft_reset(self, abandon: bool = False) -> None:
        """Forget all frames under way.

        Packets that a DMA channel has begun are ended first, so it must keep running, and nothing may be queued behind them;
        with `abandon`, channels are reset too and nothing is waited for. Weights that were loaded are loaded again; counters
        then restart.
        """
        if abandon:
            self.transport.abandon()
        self._control(registers.SOFT_RESET.mask | (registers.ABANDON.mask if abandon else 0))
        self.poll(registers.RESETTING, 0,
                   "the soft reset did not end; does a DMA channel hold a packet back? reset with abandon=True")
        if abandon:  # what the board still sent between the two resets
            self.transport.abandon()
        if self.weights:
            self.clear()
            self.fill()

    def self_test(self) -> SelfTest:
        """Let the board compute its built-in frame; frames under way are forgotten, counters restart.

        A design that loads weights passes with those of its own build.
        """
        self._check_weights()
        self._control(registers.SELF_TEST.mask)
        if self.weights:
            self.poll(registers.RESETTING, 0, "the reset before the self-test did not end")
            self.fill()
        status = self.poll(registers.TEST_DONE, 1, "the self-test did not end; the core is stuck or its clock stands still")
        outputs = range(len(self.shell.core.outputs))
        found = tuple(self.read(f"OUT{i}_CRC") for i in outputs)
        expected = tuple(self.read(f"OUT{i}_TEST_CRC") for i in outputs)
        self.clear()
        return SelfTest(bool(registers.TEST_PASSED.of(status)) and found == expected == self.shell.test_crcs, found, expected)

    def poll(self, field: registers.Field, value: int, otherwise: str) -> int:
        """Read STATUS until a field has a value; TransportError says what `otherwise` did not happen."""
        reads, end = 0, time.monotonic() + PATIENCE_S
        while reads < POLLS or time.monotonic() < end:
            status, reads = self.read("STATUS"), reads + 1
            if field.of(status) == value:
                return status
        raise TransportError(f"board: STATUS reads 0x{status:08X} after {reads} reads; {otherwise}")

    def counters(self) -> Counters:
        """What happened since the last clear."""
        low = self.read("CYCLES_LO")
        inputs = tuple(InputCounters(*(self.read(f"IN{i}_{field.name.upper()}") for field in fields(InputCounters)))
                       for i in range(len(self.shell.core.inputs)))
        outputs = tuple(OutputCounters(*(self.read(f"OUT{i}_{field.name.upper()}") for field in fields(OutputCounters)))
                        for i in range(len(self.shell.core.outputs)))
        return Counters(low | self.read("CYCLES_HI") << 32, inputs, outputs)

    def run(self, frames: Mapping[str, Array], on_frame: Callable[[int], None] | None = None) -> dict[str, Array]:
        """Stored integers of all inputs in, stored integers of all outputs out, shaped (frames, channels, height, width).

        Weights of layers that load them must have been loaded.

        Counters restart. Checksums on both sides of the link must agree at the end, else TransportError names the port.
        """
        core, bits = self.shell.core, self.shell.bus_bits
        self._check_weights()
        arrays = {name: np.asarray(x) for name, x in frames.items()}
        count = count_frames(replace(core, inputs=core.streams), arrays, f"accelerator {core.top}")
        packets = [to_packets(port, as_pixels(port, arrays[port.tensor]), bits) for port in core.streams]
        self.clear()
        received: list[list[bytes]] = [[] for _ in core.outputs]
        for frame in range(count):
            for number, of_port in enumerate(packets):
                self.transport.send(number, of_port[frame].tobytes())
            if frame + 1 >= IN_FLIGHT:
                self._fetch(received, on_frame)
        while len(received[0]) < count:
            self._fetch(received, on_frame)
        self.check(dict(enumerate(packets)), dict(enumerate(received)))
        found = {}
        for port, got in zip(core.outputs, received, strict=True):
            octets = np.frombuffer(b"".join(got), dtype=np.uint8)
            found[port.tensor] = from_packets(port, octets.reshape(count, -1), bits)
        return found

    def _fetch(self, received: list[list[bytes]], on_frame: Callable[[int], None] | None) -> None:
        """One frame from every output."""
        for number, of_port in enumerate(received):
            of_port.append(self.transport.receive(number))
        if on_frame is not None:
            on_frame(len(received[0]))

    def check(self, packets: Mapping[int, Array], received: Mapping[int, list[bytes]]) -> None:
        """Compare the board's view of what moved over its ports with ours."""
        if self.shell.core.memory is not None and registers.MEMORY_ERROR.of(self.read("STATUS")):
            status, faults = self.read("MEMORY_STATUS"), self.read("MEMORY_FAULTS")
            read, write = registers.READ_RESPONSE.of(status), registers.WRITE_RESPONSE.of(status)
            raise TransportError(f"board: memory answered {faults} times with an error, MEMORY_STATUS reads 0x{status:08X} "
                                 f"(RRESP {read}, BRESP {write}); are all {self.read('MEMORY_BYTES'):,} bytes from MEMORY_BASE "
                                 "on there for the master?")
        for number, of_port in packets.items():
            wrong = {n: self.read(f"IN{number}_{n}") for n in ("EARLY", "LATE")}
            if any(wrong.values()):
                raise TransportError(f"board, input {number}: {wrong['EARLY']} packets ended early and {wrong['LATE']} late; "
                                     "words were lost or repeated on the way")
            self._agree(f"IN{number}_CRC", zlib.crc32(of_port.tobytes()), f"input {number}")
        for number, got in received.items():
            self._agree(f"OUT{number}_CRC", zlib.crc32(b"".join(got)), f"output {number}")

    def _agree(self, name: str, ours: int, where: str) -> None:
        theirs = self.read(name)
        if theirs != ours:
            raise TransportError(f"board, {where}: checksum 0x{theirs:08X} there, 0x{ours:08X} here; packets were changed on the "
                                 "way")


def open_simulated(shell: Shell, stall_seed: int | None = None, trace: Path | None = None, frames: float = inf) -> Accelerator:
    """The board that is always there: the build's own Verilog behind its AXI ports, in Verilator; for about so many frames."""
    return Accelerator(shell, SimulatedBoard(shell, stall_seed, trace, cycles=cycles_of(shell.core, frames)))
