"""Small boards on a serial line: the link shell of `fpga/framing.py` over a terminal device.

    serial:/dev/ttyUSB0,baud=921600

8 data bits, no parity, one stop bit, no flow control (POSIX termios).
"""

from __future__ import annotations

import os
import select
import termios
import time
import tty
from collections import deque
from contextlib import suppress
from pathlib import Path

from dovetail.errors import TransportError, UsageError
from dovetail.fpga.axi.shell import Shell
from dovetail.fpga.framing import ENDLESS, ROOM_ADDRESS
from dovetail.fpga.transport import LinkTransport
from dovetail.runtime.transports.device_files import open_device

SPEEDS = {int(name[1:]): int(code) for name, code in vars(termios).items() if name[0] == "B" and name[1:].isdigit() and code}
"""Bits per second that the system's termios knows, by its name for them."""

QUIET_S = 0.05
"""Seconds without a byte after which a line is quiet: three times the latency timer of an FTDI chip (AN232B-04: 16 ms)."""
DRAINED_BYTES = 4096


class SerialStream:
    """A terminal device as a byte stream; reads and writes that stand still for too long end with an error."""

    def __init__(self, path: Path, baud: int, timeout_s: float) -> None:
        if baud not in SPEEDS:
            raise UsageError(f"{path}: {baud} baud; this system knows {', '.join(map(str, sorted(SPEEDS)))}")
        self.timeout_s = timeout_s
        self.file = open_device(path, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)
        try:
            tty.setraw(self.file.fileno(), termios.TCSANOW)
            line = termios.tcgetattr(self.file)
            line[2] = line[2] & ~(termios.CSTOPB | termios.CRTSCTS) | termios.CLOCAL | termios.CREAD
            line[4] = line[5] = SPEEDS[baud]
            termios.tcsetattr(self.file, termios.TCSANOW, line)
            termios.tcflush(self.file, termios.TCIOFLUSH)
        except termios.error as error:
            self.file.close()
            raise TransportError(f"{path}: no terminal device, {error.args[-1]}; name the serial line of the board") from None

    def _wait(self, writing: bool) -> None:
        reads, writes = ([], [self.file]) if writing else ([self.file], [])
        if not any(select.select(reads, writes, [], self.timeout_s)):
            raise TimeoutError(f"nothing {'was taken' if writing else 'came'} for {self.timeout_s:g} s")

    def read(self, count: int) -> bytes:
        """Some bytes, at most so many; none where the line is gone."""
        self._wait(writing=False)
        return self.file.read(count) or b""

    def write(self, octets: bytes) -> int:
        view = memoryview(octets)
        while view:
            self._wait(writing=True)
            view = view[self.file.write(view) or 0:]
        return len(octets)

    def flush(self) -> None:
        """Nothing is held back here."""

    def drain(self) -> None:
        """Forget what still comes, until nothing does: the rest of an answer that somebody else asked for."""
        end = time.monotonic() + self.timeout_s
        with suppress(OSError):  # whoever speaks next on a line that is gone is told
            while time.monotonic() < end and select.select([self.file], [], [], QUIET_S)[0]:
                self.file.read(DRAINED_BYTES)


class SerialTransport(LinkTransport):
    """A board on a serial line."""

    def __init__(self, shell: Shell, stream: SerialStream) -> None:
        super().__init__(stream, shell.build_hash)
        self.line = stream
        self.room = ENDLESS
        self.sent, self.fetched = 0, [0] * len(shell.core.outputs)
        self.early: list[deque[bytes]] = [deque() for _ in shell.core.outputs]

    def send(self, port: int, packet: bytes) -> None:
        """Results that there is no room for beside another frame are fetched first."""
        if port == 0:  # the first that takes frames
            if self.sent - min(self.fetched) >= self.room:
                for output in [n for n, count in enumerate(self.fetched) if self.sent - count >= self.room]:
                    self.early[output].append(self._fetch(output))
            self.sent += 1
        super().send(port, packet)

    def _fetch(self, port: int) -> bytes:
        packet = super().receive(port)
        self.fetched[port] += 1
        return packet

    def receive(self, port: int) -> bytes:
        return self.early[port].popleft() if self.early[port] else self._fetch(port)

    def abandon(self) -> None:
        super().abandon()
        self.sent, self.fetched = 0, [0] * len(self.fetched)
        for waiting in self.early:
            waiting.clear()

    def close(self) -> None:
        self.line.file.close()


def open_serial(shell: Shell, path: Path, baud: int, timeout_s: float) -> SerialTransport:
    """The board on a serial line of so many bits per second."""
    board = SerialTransport(shell, SerialStream(path, baud, timeout_s))
    try:
        board.line.drain()
        board.greet()
        board.room = board.read(ROOM_ADDRESS)
    except TransportError:
        board.close()
        raise
    return board
