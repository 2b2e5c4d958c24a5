"""Device files that answer as boards do: the simulated board behind an AXI DMA by PG021, XDMA's streams, and a serial line."""

from __future__ import annotations

import os
import pty
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

from dovetail.fpga.transport import SimulatedBoard, serve

ADDRESS = 0x1_2340_0000
"""The physical address of the fake buffer: beyond 4 GiB, so that the upper half matters."""
LOOK_CYCLES = 500
"""Clock cycles that pass while a driver looks at a status register."""


class FakeShellRegisters:
    """The shell's registers as they are behind UIO or XDMA."""

    def __init__(self, board: SimulatedBoard) -> None:
        self.board, self.lock, self.closed = board, threading.Lock(), False

    def read(self, offset: int) -> int:
        with self.lock:
            return self.board.read(offset)

    def write(self, offset: int, value: int) -> None:
        with self.lock:
            self.board.write(offset, value)

    def close(self) -> None:
        self.closed = True


class FakeDma:
    """An AXI DMA in direct register mode between a buffer in a file and the streams of a simulated board."""

    def __init__(self, board: SimulatedBoard, number: int, buffer: Path, length_bits: int = 26) -> None:
        self.board, self.number, self.buffer, self.length_bits = board, number, buffer, length_bits
        self.words = {0x00: 0x10002, 0x04: 1, 0x30: 0x10002, 0x34: 1}
        self.waiting: tuple[int, int] | None = None
        self.transfers = 0
        self.fails_at: tuple[int, int] | None = None
        """The transfer that fails, and the error bit of DMASR that it sets."""
        self.shortens = self.flips = self.dead = False
        self.closed = False

    def read(self, offset: int) -> int:
        if offset == 0x34 and self.waiting is not None and not self.dead:
            self._deliver(*self.waiting)
        return self.words.get(offset, 0)

    def write(self, offset: int, value: int) -> None:
        base, register = offset // 0x30 * 0x30, offset % 0x30
        if register == 0x04:
            self.words[offset] &= ~(value & 0x7000)
        elif register == 0x00 and value & 4:
            self.words, self.waiting = {0x00: 0x10002, 0x04: 1, 0x30: 0x10002, 0x34: 1}, None
            self.board.model.cancel()
        elif register == 0x00:
            self.words[offset] = 0x10002 | value & 1
            self.words[base + 0x04] = self.words[base + 0x04] & ~1 | (not value & 1)
        elif register == 0x28:
            self.words[offset] = value & (1 << self.length_bits) - 1
            if self.words[base + 0x04] & 1 == 0 and self.words[offset]:
                self._begin(base, self.words[offset])
        else:
            self.words[offset] = value

    def _begin(self, base: int, count: int) -> None:
        address = self.words[base + 0x18] | self.words[base + 0x1C] << 32
        self.transfers += 1
        if self.fails_at and self.fails_at[0] == self.transfers:
            self.words[base + 0x04] |= 0x4001 | 1 << self.fails_at[1]
            return
        self.words[base + 0x04] &= ~2
        if base:
            self.waiting = address, count
            return
        with self.buffer.open("rb") as file:
            file.seek(address - ADDRESS)
            packet = bytearray(file.read(count))
        packet[0] ^= self.flips
        self.board.send(self.number, bytes(packet))
        self.words[0x04] |= 0x1002

    def _deliver(self, address: int, count: int) -> None:
        model = self.board.model
        if not model.waiting(self.number):
            model.run([int(k == self.number) for k in range(len(model.shell.core.outputs))], LOOK_CYCLES)
        packet = model.pull(self.number)
        if packet is None:
            return
        octets = packet.words.tobytes()[: -1 if self.shortens else None]
        assert len(octets) <= count
        with self.buffer.open("r+b") as file:
            file.seek(address - ADDRESS)
            file.write(octets)
        self.words[0x58], self.waiting = len(octets), None
        self.words[0x34] |= 0x1002

    def close(self) -> None:
        self.closed = True


def make_buffer(folder: Path, size: int) -> Path:
    """A buffer of u-dma-buf with what sysfs says of it."""
    path, told = folder / "dev" / "udmabuf0", folder / "sys" / "u-dma-buf" / "udmabuf0"
    for made in (path.parent, told):
        made.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bytes(size))
    (told / "phys_addr").write_text(f"0x{ADDRESS:08x}\n")
    (told / "size").write_text(f"{size}\n")
    return path


class FakeStream(AbstractContextManager["FakeStream"]):
    """The device file of a stream of XDMA: a transfer blocks until the board has taken or given a packet."""

    def __init__(self, board: SimulatedBoard, registers: FakeShellRegisters, name: str) -> None:
        self.board, self.registers, self.name, self.port = board, registers, name, int(name[-1])
        self.flips = self.loses = self.closed = False

    def write(self, octets: memoryview) -> int:
        packet = bytes([octets[0] ^ self.flips]) + bytes(octets[1:])
        self._until(lambda: self.board.send(self.port, packet) or True)
        self._until(lambda: self.board.model.unsent(self.port) == 0)
        return len(octets)

    def readinto(self, octets: memoryview) -> int:
        found: list[bytes] = []

        def pulled() -> bool:
            packet = self.board.model.pull(self.port)
            if packet is not None and not self.loses:
                found.append(packet.words.tobytes())
            return bool(found) or self.closed
        self._until(pulled)
        octets[: len(b"".join(found))] = b"".join(found)
        return len(b"".join(found))

    def _until(self, done: Callable[[], bool]) -> None:
        while True:
            with self.registers.lock:
                if done() or self.closed:
                    return
                self.board.model.run([1 << 30] * len(self.board.model.shell.core.outputs), LOOK_CYCLES)
            time.sleep(0)

    def close(self) -> None:
        self.closed = True

    def __exit__(self, *_: object) -> None:
        self.close()


class PtyStream:
    """The board's end of a serial line."""

    def __init__(self, end: int) -> None:
        self.end, self.damage_at = end, -1

    def read(self, count: int) -> bytes:
        with suppress(OSError):  # the other end is closed
            return os.read(self.end, count)
        return b""

    def write(self, octets: bytes) -> int:
        if 0 <= self.damage_at < len(octets):
            octets = octets[: self.damage_at] + bytes([octets[self.damage_at] ^ 1]) + octets[self.damage_at + 1:]
        self.damage_at -= len(octets)
        view = memoryview(octets)
        while view:
            view = view[os.write(self.end, view):]
        return len(octets)

    def flush(self) -> None:
        """Nothing is held back."""


@contextmanager
def serial_board(board: SimulatedBoard, build_hash: int) -> Iterator[tuple[Path, PtyStream]]:
    """A terminal device at whose far end a board is served; it stays when a host goes."""
    far, near = pty.openpty()
    stream = PtyStream(far)
    thread = threading.Thread(target=serve, args=(stream, board, build_hash))
    thread.start()
    try:
        yield Path(os.ttyname(near)), stream
    finally:
        os.close(near)
        thread.join()
        os.close(far)
