"""Shells in Verilator behind a shared library: the board that is always there."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from math import inf
from pathlib import Path
from types import TracebackType

import numpy as np

from dovetail.errors import MismatchError, ToolError
from dovetail.files import replace_bytes
from dovetail.fpga.axi.memory import MASTER, master_pins
from dovetail.fpga.axi.shell import LITE, LITE_IN, LITE_OUT, Shell
from dovetail.fpga.axi.striped import master_names, part_of
from dovetail.fpga.packing import Octets
from dovetail.fpga.toolchain.verilate import HANDLE, QUICK_CYCLES, BuildTarget, build_target, bundle_sources
from dovetail.hardware.arrays.layers import RATE_STEPS

LIBRARY = "model.so"
BURST_CYCLES = 200_000
"""Cycles of one call at most, so that Ctrl-C is heard."""
REACHED, UNSTABLE, VIOLATION = 0, 2, 3
"""What a run of the clock ended with; 1 where its cycles were over."""


ALL_DESIGNS = 0xFFFF_FFFF
"""In the place of one design's number."""


class Damage(IntEnum):
    """What can happen to a cell on its way, as cable.h numbers it."""

    LOST = 0
    TWICE = 1
    FLIPPED = 2
    CUT = 3
    """This cell and all behind it are lost."""


@dataclass(frozen=True, slots=True)
class Cable:
    """One direction of a link: from a board's n-th lane to another's."""

    source: int
    leaves: int
    target: int
    enters: int
    latency_clocks: int
    cells_per_clock: float


@dataclass(frozen=True, slots=True)
class Packet:
    """What an output sent: whole bus words, and whether a soft reset cut it short."""

    words: Octets
    aborted: bool


def build_library(shells: Sequence[Shell], trace: bool = False, cycles: float = inf) -> Path:
    """Folder with the shared library of these shells, cached by content; `cycles` says how long one is about to be simulated."""
    designs = [shell.design for shell in shells]
    pins = [[(pin, f"d{i}_{pin}", width, inward) for pin, width, inward in shell.pins]
            for i, shell in enumerate(shells)]
    files = {**bundle_sources(designs, pins), "bundle.cpp": _port_table(shells)}
    return build_target(BuildTarget(files, Path(__file__).with_name("harness.cpp"), LIBRARY, trace, quick=cycles <= QUICK_CYCLES))


def _port_table(shells: Sequence[Shell]) -> str:
    """The port table; its order is that of the structures in axi_ports.h."""
    lines = ['#include "Bundle.h"', '#include "axi_ports.h"', '#include "bundle_handle.h"',
             "std::vector<Ports> BundleHandle::describe() {", "    Bundle& m = *model_;", "    std::vector<Ports> all;"]
    for i, shell in enumerate(shells):
        lines += ["    {", "        Ports p;", f"        p.clk = &m.d{i}_clk; p.rst = &m.d{i}_rst; p.bytes = {shell.bus_bytes};"]
        lines += [f"        p.lite.{pin} = &m.d{i}_{LITE}_{pin};" for pin, _ in (*LITE_IN, *LITE_OUT)]
        for port in shell.core.inputs:
            stem = f"m.d{i}_s_axis_{port.name}_t"
            pointers = f"&{stem}valid, &{stem}ready, &{stem}last, nullptr, &{stem}data, nullptr"
            lines.append(f"        p.inputs.push_back({{{pointers}}});")
        for port in shell.core.outputs:
            stem = f"m.d{i}_m_axis_{port.name}_t"
            pointers = ", ".join(f"&{stem}{pin}" for pin in ("valid", "ready", "last", "user", "data", "keep"))
            lines.append(f"        p.outputs.push_back({{{pointers}}});")
        for lane in shell.lanes:
            rx, tx = f"m.d{i}_{lane.rx.name}", f"m.d{i}_{lane.tx.name}"
            pointers = ", ".join(f"&{end}_{part}" for end in (rx, tx) for part in ("valid", "ready", "data"))
            lines.append(f"        p.links.push_back({{{pointers}, sizeof({rx}_data)}});")
        lines += [*_memory_lines(i, shell), "        all.push_back(p);", "    }"]
    return "\n".join([*lines, "    return all;", "}", HANDLE])


def _memory_lines(index: int, shell: Shell) -> list[str]:
    """The port table's entries of the AXI4 masters, each of which has its part of memory's rate."""
    port = shell.core.memory
    if port is None:
        return []
    width, one = shell.memory_bits // 8, part_of(port)
    pins = [pin for pin, _, _ in master_pins(one, shell.memory_bits) if pin[2:] not in ("cache", "prot")]
    steps = min(int(port.bytes_per_clock * RATE_STEPS / port.masters), width * RATE_STEPS)
    return [line for name in master_names(port) for line in (
        "        {", "        AxiPins a = {};", *(f"        a.{pin} = &m.d{index}_{name}_{pin};" for pin in pins),
        f"        a.bytes = {width}; a.sixteenths = {steps}; a.latency = {port.latency_clocks}; a.writes = {port.writes:d};",
        "        p.memories.push_back(a);", "        }")]


@cache
def _load(folder: Path) -> ctypes.CDLL:
    try:
        library = ctypes.CDLL(str(folder / LIBRARY))
    except OSError as error:
        raise ToolError(f"simulation: {folder / LIBRARY} cannot be loaded, {error}; delete the cache and try again") from None
    handle, u32, u64 = ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint64
    octets, words = ctypes.c_void_p, ctypes.POINTER(ctypes.c_uint32)
    signatures = {
        "shell_open": ([u32, u64, ctypes.c_char_p, ctypes.c_char_p], handle), "shell_close": ([handle], None),
        "shell_choose": ([handle, u32], None), "shell_join": ([handle, u32, u32, u32, u32, u64, u64, u64], None),
        "shell_spoil": ([handle, u32, u32, u64], None),
        "shell_mend": ([handle], None),
        "shell_stall": ([handle, u64], None), "shell_read": ([handle, u32, words], ctypes.c_int),
        "shell_write": ([handle, u32, u32, u32], ctypes.c_int), "shell_push": ([handle, u32, octets, octets, u64], None),
        "shell_run": ([handle, ctypes.POINTER(u64), u64], ctypes.c_int), "shell_waiting": ([handle, u32], u64),
        "shell_unsent": ([handle, u32], u64), "shell_refused": ([handle, u32, ctypes.c_int], u64),
        "shell_cycles": ([handle], u64),
        "shell_pull": ([handle, u32, octets, u64, words, words], u64), "shell_cancel": ([handle], None),
        "shell_place": ([handle, u64, u64], None), "shell_copy": ([handle, u64, octets, u64, ctypes.c_int], ctypes.c_int),
        "shell_fault": ([handle, ctypes.c_int, u64, u32], None), "shell_violation": ([handle], ctypes.c_char_p)}
    for name, (arguments, result) in signatures.items():
        function = getattr(library, name)
        function.argtypes, function.restype = arguments, result
    return library


class ShellModel:
    """One running simulation of a shell, after reset; words that are sent wait until the clock runs.

    `stall_seed` makes both ends of every stream pause at random, in bursts. `trace` draws every signal into an FST file.
    """

    def __init__(self, shell: Shell, stall_seed: int | None = None, trace: Path | None = None,
                 bundle: Sequence[Shell] | None = None, cycles: float = inf) -> None:
        """`bundle` names the shells that share one build, this one among them, `cycles` how long it is about to be simulated."""
        if trace is not None:
            replace_bytes(trace, b"")  # where nobody may write, say so now: the waveform writer would end the process
        together = list(bundle or [shell])
        self.shell = shell
        self._library, self._open = _opened(together, together.index(shell), stall_seed, trace, cycles)

    def __enter__(self) -> ShellModel:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End the simulation; a trace is complete then."""
        if self._open is not None:
            self._library.shell_close(self._open)
            self._open = None

    @property
    def _handle(self) -> int | None:
        """What calls of the library are about."""
        return self._open

    @property
    def cycles(self) -> int:
        """Clock cycles since reset."""
        return int(self._library.shell_cycles(self._handle))

    def stall(self, seed: int | None) -> None:
        """Pause at random from now on, or not any more."""
        self._library.shell_stall(self._handle, _seed(seed))

    def read(self, address: int) -> tuple[int, int]:
        """An AXI4-Lite read: (response, value); response -1 where none came."""
        value = ctypes.c_uint32()
        response = int(self._library.shell_read(self._handle, address, ctypes.byref(value)))
        return response, value.value

    def write(self, address: int, value: int, strobes: int = 15) -> int:
        """An AXI4-Lite write; returns the response, -1 where none came."""
        return int(self._library.shell_write(self._handle, address, value, strobes))

    def push(self, port: int, words: Octets, last: Sequence[bool] | Octets | None = None) -> None:
        """Queue bus words of an input; `last` marks ends of packets, at the end of `words` unless given."""
        octets = np.ascontiguousarray(words, dtype=np.uint8).reshape(-1)
        count = len(octets) // self.shell.bus_bytes
        ends = np.zeros(count, dtype=np.uint8) if last is None else np.ascontiguousarray(last, dtype=np.uint8)
        if last is None and count:
            ends[-1] = 1
        assert len(ends) * self.shell.bus_bytes == len(octets), "whole words only, one mark each"
        self._library.shell_push(self._handle, port, octets.ctypes.data, ends.ctypes.data, count)

    def run(self, wanted: Sequence[int], most_cycles: int) -> bool:
        """Let the clock run until every output has so many packets waiting; whether that happened in so many cycles."""
        counts = (ctypes.c_uint64 * len(wanted))(*wanted)
        left = most_cycles
        while True:
            burst = min(left, BURST_CYCLES)
            code = self._library.shell_run(self._handle, counts, burst)
            if code == UNSTABLE:
                raise MismatchError(f"simulation of {self.shell.top}: cycle {self.cycles}: an output changed or withdrew a word "
                                    "before it was taken; hold it until ready")
            if code == VIOLATION:
                raise MismatchError(f"simulation of {self.shell.top}: cycle {self.cycles}: {self.violation} on {MASTER}; "
                                    "AXI4 does not allow it")
            left -= burst
            if code == REACHED or left <= 0:
                return bool(code == REACHED)

    def waiting(self, port: int) -> int:
        """Packets of an output that can be pulled."""
        return int(self._library.shell_waiting(self._handle, port))

    def unsent(self, port: int) -> int:
        """Words of an input that the design has not taken."""
        return int(self._library.shell_unsent(self._handle, port))

    def refused(self, port: int, inward: bool) -> int:
        """Cycles since reset in which a port's word had to wait, as the host saw it."""
        return int(self._library.shell_refused(self._handle, port, inward))

    def pull(self, port: int) -> Packet | None:
        """The next packet of an output, None where none waits."""
        kept, aborted = ctypes.c_uint32(), ctypes.c_uint32()
        ask = self._library.shell_pull
        count = int(ask(self._handle, port, None, 0, ctypes.byref(kept), ctypes.byref(aborted)))
        if not count:
            return None
        words = np.empty(count * self.shell.bus_bytes, dtype=np.uint8)
        ask(self._handle, port, words.ctypes.data, count, ctypes.byref(kept), ctypes.byref(aborted))
        return Packet(words, bool(aborted.value))

    def place(self, base: int, size: int) -> None:
        """Let memory begin at an address and have so many bytes, of no particular content."""
        self._library.shell_place(self._handle, base, size)

    def store(self, address: int, octets: bytes) -> bool:
        """Bytes into memory, past the master; whether they lie in it."""
        buffer = ctypes.create_string_buffer(octets, len(octets))
        return bool(self._library.shell_copy(self._handle, address, buffer, len(octets), True))

    def stored(self, address: int, count: int) -> bytes | None:
        """Bytes of memory, None where they do not lie in it."""
        buffer = ctypes.create_string_buffer(count)
        return buffer.raw if self._library.shell_copy(self._handle, address, buffer, count, False) else None

    def fail(self, writes: bool, after: int, response: int) -> None:
        """Let memory answer one burst of a direction, after so many others, with a response of its own."""
        self._library.shell_fault(self._handle, writes, after, response)

    @property
    def violation(self) -> str:
        """The first rule of AXI4 that the master broke; empty where it kept all."""
        return str(self._library.shell_violation(self._handle).decode())

    def cancel(self) -> None:
        """Forget what waits on the host's side, as resetting the DMA channels does."""
        self._library.shell_cancel(self._handle)


class JoinedModel:
    """Shells of boards in one simulation, on one clock, joined by links; `boards` are a host's view of each."""

    def __init__(self, shells: Sequence[Shell], cables: Sequence[Cable], stall_seed: int | None = None,
                 trace: Path | None = None, jitter: int = 0, cycles: float = inf) -> None:
        self._library, self._open = _opened(shells, ALL_DESIGNS, stall_seed, trace, cycles)
        self.cables = tuple(cables)
        for c in self.cables:
            self._library.shell_join(self._open, c.source, c.leaves, c.target, c.enters, c.latency_clocks,
                                     int(c.cells_per_clock * 1e6), jitter)
        self.boards = tuple(BoardModel(shell, self, number) for number, shell in enumerate(shells))

    def chosen(self, number: int) -> int | None:
        """The simulation, whose next call is about a board."""
        if self._open is not None:
            self._library.shell_choose(self._open, number)
        return self._open

    @property
    def library(self) -> ctypes.CDLL:
        return self._library

    def spoil(self, cable: int, damage: Damage, cell_bits: int) -> None:
        """Spoil the next cell with data that a cable takes."""
        self._library.shell_spoil(self._open, cable, damage, cell_bits)

    def mend(self) -> None:
        """All cables carry cells again; what was under way is lost, so all boards have to be reset."""
        self._library.shell_mend(self._open)

    def close(self) -> None:
        """End the simulation of all boards."""
        if self._open is not None:
            self._library.shell_close(self._open)
            self._open = None


class BoardModel(ShellModel):
    """One of several boards in a simulation; to close it leaves the others as they are."""

    def __init__(self, shell: Shell, joined: JoinedModel, number: int) -> None:
        self.shell, self._library, self._joined, self._number = shell, joined.library, joined, number

    @property
    def _handle(self) -> int | None:
        return self._joined.chosen(self._number)

    def close(self) -> None:
        """Nothing: the simulation belongs to all boards."""


def _opened(shells: Sequence[Shell], number: int, stall_seed: int | None, trace: Path | None,
            cycles: float) -> tuple[ctypes.CDLL, int | None]:
    """The library of these shells, and a simulation of one of them, or of all on one clock."""
    folder = build_library(shells, trace is not None, cycles)
    library, path = _load(folder), None if trace is None else str(trace.absolute()).encode()
    handle: int | None = library.shell_open(number, _seed(stall_seed), str(folder).encode(), path)
    if handle is None:
        top = ", ".join(shell.top for shell in shells)
        raise ToolError(f"simulation of {top}: {folder} cannot be entered; delete the cache and try again")
    return library, handle


def _seed(stall_seed: int | None) -> int:
    return 0 if stall_seed is None else 1 + stall_seed
