"""PCIe boards with AMD's XDMA core and driver: registers in `xdma0_user`, streams in `xdma0_h2c_N` and `xdma0_c2h_N`.

    xdma:/dev/xdma0

The core has AXI4-Stream interfaces, channel n of each direction at input and output n, and an AXI4-Lite master at the shell's
registers (PG195; driver: github.com/Xilinx/dma_ip_drivers, XDMA/linux-kernel). One write is one packet. A read ends with the
packet where the file was opened with O_TRUNC (`char_sgdma_open`). Transfers block, so every port has a thread.
"""

from __future__ import annotations

import mmap
import os
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from io import FileIO
from pathlib import Path

from dovetail.errors import TransportError
from dovetail.fpga.axi import registers as shell_map
from dovetail.fpga.axi.shell import Shell
from dovetail.fpga.packing import packet_bytes
from dovetail.runtime.transports.device_files import DRIVER_GAVE_UP, FileRegisters, Registers, open_device, refused

CONTROL = shell_map.addresses(0, 0)["CONTROL"]
LOOK_S = 0.05
"""Between two looks at whether an input has failed while an output is waited for; a choice."""
SETTLE_S = 0.02
"""Without any transfer after which what XDMA and the shell can move has been moved: far longer than a packet takes; a choice."""


class StreamFile:
    """The device file of one stream: a thread, and a buffer that begins at a page, which any width of a bus allows."""

    def __init__(self, file: FileIO, size: int) -> None:
        """`size` in bytes is that of the port's packets."""
        self.file, self.path, self.size = file, Path(str(file.name)), size
        self.buffer = memoryview(mmap.mmap(-1, size))
        self.thread = ThreadPoolExecutor(1)
        self.pending = deque[Future[bytes]]()

    def write(self, packet: bytes) -> None:
        self.pending.append(self.thread.submit(self._write, packet))

    def read(self) -> None:
        self.pending.append(self.thread.submit(self._read))

    def _write(self, packet: bytes) -> bytes:
        self.buffer[:len(packet)] = packet
        done = self.file.write(self.buffer[:len(packet)])
        if done != len(packet):
            raise TransportError(f"{self.path}: {done} of {len(packet)} bytes were taken; a packet must go in one transfer")
        return packet

    def _read(self) -> bytes:
        try:
            found = self.file.readinto(self.buffer)
        except OSError as error:
            if error.errno in DRIVER_GAVE_UP:
                return b""
            raise
        if not found:
            raise TransportError(f"{self.path}: the stream has ended; is the board still there?")
        return bytes(self.buffer[:found])

    def check(self) -> None:
        """Drop transfers that are over; raises the error of one that failed."""
        while self.pending and self.pending[0].done():
            self.result(0)

    def result(self, timeout_s: float) -> bytes | None:
        """What the oldest transfer moved, empty where the driver gave up; None where it goes on."""
        wait((self.pending[0],), timeout_s)
        if not self.pending[0].done():
            return None
        try:
            return self.pending.popleft().result()
        except OSError as error:
            raise refused(self.path, error) from None

    def forget(self) -> None:
        """Forget transfers that are over or have not begun; what is under way goes on."""
        self.pending = deque(f for f in self.pending if not f.cancel() and not f.done())

    def close(self) -> None:
        """A transfer that still waits ends with the driver's own limit (`c2h_timeout`, 10 s unless it was loaded otherwise)."""
        self.thread.shutdown(wait=False, cancel_futures=True)
        self.file.close()


class XdmaTransport:
    """A board behind XDMA's device files.

    Nothing cuts a transfer of XDMA short. So a reset never asks the shell to abandon packets: the shell ends them itself, and
    `abandon` lets come in what is under way, for the driver's own reset to forget.
    """

    def __init__(self, shell: Shell, registers: Registers, inputs: Sequence[FileIO], outputs: Sequence[FileIO],
                 timeout_s: float) -> None:
        core, bits = shell.core, shell.bus_bits
        self.shell, self.registers, self.timeout_s = shell, registers, timeout_s
        self.inputs = [StreamFile(f, packet_bytes(p, bits)) for f, p in zip(inputs, core.inputs, strict=True)]
        self.outputs = [StreamFile(f, packet_bytes(p, bits)) for f, p in zip(outputs, core.outputs, strict=True)]
        self.asked = [0 for _ in outputs]

    def read(self, address: int) -> int:
        return self.registers.read(address)

    def write(self, address: int, value: int) -> None:
        self.registers.write(address, value & ~shell_map.ABANDON.mask if address == CONTROL else value)

    def send(self, port: int, packet: bytes) -> None:
        self.inputs[port].check()
        self.inputs[port].write(packet)

    def receive(self, port: int) -> bytes:
        stream, end, cut = self.outputs[port], time.monotonic() + self.timeout_s, 0
        self.asked[port] += 1
        for number, other in enumerate(self.outputs):  # none may hold back what another waits for
            if self.asked[number] - (number == port) + len(other.pending) < max(self.asked):
                other.read()
        while time.monotonic() < end:
            for source in self.inputs:
                source.check()
            if not stream.pending:
                stream.read()
            packet = stream.result(LOOK_S)
            if packet is not None and len(packet) == stream.size:
                return packet
            cut += bool(packet)
        raise TransportError(f"board: no packet from output {port} within {self.timeout_s:g} s; "
                             f"{f'{cut} packets came cut short; ' if cut else ''}was a frame sent to every input, and is the "
                             "design enabled?")

    def provide(self, image: bytes, size: int) -> int:
        raise TransportError(f"board: {self.shell.top} needs {size:,} bytes of memory, and XDMA with streams fills none; "
                             "give its AXI4 master a memory and a transport of your own, or build without --architecture")

    def abandon(self) -> None:
        for stream in self.inputs:
            stream.forget()
        self.registers.write(CONTROL, shell_map.ENABLE.mask | shell_map.SOFT_RESET.mask)  # lets go of packets that are held back
        self._settle()
        self.asked = [0 for _ in self.outputs]

    def _settle(self) -> None:
        """Drop what outputs send, until nothing moves any more; every output is left with a read for its next packet."""
        moved, end = time.monotonic(), time.monotonic() + self.timeout_s
        while (now := time.monotonic()) < moved + SETTLE_S or (any(s.pending for s in self.inputs) and now < end):
            for stream in (*self.inputs, *self.outputs):
                before = len(stream.pending)
                stream.forget()
                if len(stream.pending) < before:
                    moved = now
            for stream in self.outputs:
                if not stream.pending:
                    stream.read()
            time.sleep(SETTLE_S / 40)

    def close(self) -> None:
        for stream in (*self.inputs, *self.outputs):
            stream.close()
        self.registers.close()


def open_xdma(shell: Shell, prefix: Path, base: int, timeout_s: float) -> XdmaTransport:
    """The board whose device files begin so; `base` is where the shell lies behind the AXI4-Lite master."""
    with ExitStack() as stack:
        registers = FileRegisters(Path(f"{prefix}_user"), base)
        stack.callback(registers.close)
        inputs, outputs = ([stack.enter_context(open_device(Path(f"{prefix}_{way}_{n}"), flags)) for n in range(len(ports))]
                           for way, flags, ports in (("h2c", os.O_WRONLY, shell.core.inputs),
                                                     ("c2h", os.O_RDONLY | os.O_TRUNC, shell.core.outputs)))
        board = XdmaTransport(shell, registers, inputs, outputs, timeout_s)
        stack.pop_all()
        return board
