"""Boards whose processor runs Linux (Zynq): registers through UIO, an AXI DMA per port, buffers of u-dma-buf.

    uio:/dev/uio0,/dev/uio1,/dev/udmabuf0      registers of the shell; AXI DMA of input 0 and output 0; buffer

AXI DMA number n serves input n (MM2S) and output n (S2MM). It is in direct register mode, without scatter-gather: AMD's PG021,
"Direct Register Mode Register Address Map" and "Direct Register Mode (Simple DMA)". A buffer's physical address and size stand
in sysfs; reads and writes of a buffer opened with O_SYNC write back and invalidate caches (u-dma-buf's Readme and source).
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from dovetail.errors import TransportError
from dovetail.fpga.axi import registers as shell_map
from dovetail.fpga.axi.shell import Shell
from dovetail.fpga.packing import packet_bytes
from dovetail.runtime.transports.device_files import MappedRegisters, Registers, open_device, refused
from dovetail.words import counted

MM2S, S2MM = 0x00, 0x30
"""Where the registers of a channel begin: memory to stream, stream to memory."""
CONTROL, STATUS, ADDRESS, ADDRESS_MSB, LENGTH = 0x00, 0x04, 0x18, 0x1C, 0x28
"""Registers of a channel: DMACR, DMASR, SA or DA with its upper half, LENGTH in bytes, whose write begins a transfer."""
RUN, ALWAYS, RESET = 1 << 0, 1 << 1, 1 << 2
"""Of DMACR: Run/Stop, a reserved bit that always reads 1, and Reset, which clears itself."""
HALTED, COMPLETE, FAILED = 1 << 0, 1 << 12, 1 << 14
"""Of DMASR: Halted, IOC_Irq and Err_Irq; the latter two are cleared by writing 1."""
ERRORS = {4: "DMAIntErr: a transfer failed inside, or a packet was longer than its buffer",
          5: "DMASlvErr: memory answered with SLVERR", 6: "DMADecErr: no memory at that address"}
"""Of DMASR, by bit."""
DMA_BYTES = 0x1000
"""Bytes of registers that are mapped of an AXI DMA: a page, of which 0x5C are used."""
PAGE_BYTES = 4096
"""Buffers begin at multiples of it, as `provide` promises; aligned for every width of a bus."""
SYSFS = Path("/sys/class")
SYSFS_CLASSES = ("u-dma-buf", "udmabuf")
"""Where u-dma-buf describes its buffers, under its present and its former name."""
WAIT_S = 20e-6
"""Between two looks at channels in which nothing has moved; a choice."""


class DmaBuffer:
    """Memory of u-dma-buf that DMA channels and the design's AXI4 master reach."""

    def __init__(self, path: Path) -> None:
        self.path = path
        folders = [SYSFS / name / path.name for name in SYSFS_CLASSES]
        folder = next((f for f in folders if f.is_dir()), None)
        if folder is None:
            raise TransportError(f"{path}: {folders[0]} is not there; is it a buffer of u-dma-buf, and is that module loaded?")
        try:
            self.address, self.size = (int((folder / name).read_text(), 0) for name in ("phys_addr", "size"))
        except (OSError, ValueError) as error:
            raise TransportError(f"{path}: phys_addr or size in {folder} cannot be read, {error}; is it u-dma-buf's?") from None
        self.file, self.used = open_device(path, os.O_RDWR | os.O_SYNC), 0

    def check_room(self, size: int, use: str) -> None:
        """Raises TransportError where so many bytes are not free."""
        if self.used + size > self.size:
            raise TransportError(f"{self.path}: {self.size:,} bytes, of which {self.used:,} are taken; {use} needs {size:,}, "
                                 f"load u-dma-buf with {self.path.name}={self.used + size}")

    def take(self, size: int, use: str) -> int:
        """The offset of so many bytes that nobody else has."""
        self.check_room(size, use)
        offset, self.used = self.used, self.used + -(-size // PAGE_BYTES) * PAGE_BYTES
        return offset

    def write(self, offset: int, octets: bytes) -> None:
        try:
            done = os.pwrite(self.file.fileno(), octets, offset)
        except OSError as error:
            raise refused(self.path, error) from None
        self._check_whole(done, len(octets))

    def read(self, offset: int, count: int) -> bytes:
        try:
            octets = os.pread(self.file.fileno(), count, offset)
        except OSError as error:
            raise refused(self.path, error) from None
        self._check_whole(len(octets), count)
        return octets

    def _check_whole(self, done: int, wanted: int) -> None:
        if done != wanted:
            raise TransportError(f"{self.path}: {done} of {wanted} bytes were moved; is the buffer as large as sysfs says, "
                                 f"{self.size:,} bytes?")

    def close(self) -> None:
        self.file.close()


class DmaChannel:
    """One direction of an AXI DMA with its place in the buffer: one packet at a time, others wait in `queue`."""

    def __init__(self, where: str, dma: Registers, base: int, buffer: DmaBuffer, size: int) -> None:
        """`size` in bytes is that of the port's packets."""
        self.where, self.dma, self.base, self.buffer, self.size = where, dma, base, buffer, size
        self.offset = buffer.take(size, where)
        self.queue = deque[bytes]()
        self.busy = False

    def _read(self, register: int) -> int:
        return self.dma.read(self.base + register)

    def _write(self, register: int, value: int) -> None:
        self.dma.write(self.base + register, value)

    def reset(self, timeout_s: float) -> None:
        """Forget the packet under way; the other direction of the same AXI DMA is reset with it."""
        self.busy = False
        if not (found := self._read(CONTROL)) & ALWAYS:
            raise TransportError(f"{self.where}: DMACR reads 0x{found:08X}, but bit 1 of every AXI DMA is set; are UIO devices "
                                 "named in the right order?")
        self._write(CONTROL, RESET)
        self._until(CONTROL, RESET, timeout_s, "its reset does not end; does its clock run?")

    def run(self, timeout_s: float) -> None:
        """Leave the halted state: a length written there would begin nothing."""
        self._write(CONTROL, RUN)
        self._until(STATUS, HALTED, timeout_s, "it stays halted; is it an AXI DMA without scatter-gather, with this direction?")

    def _until(self, register: int, mask: int, timeout_s: float, otherwise: str) -> None:
        end = time.monotonic() + timeout_s
        while (found := self._read(register)) & mask:
            if time.monotonic() > end:
                raise TransportError(f"{self.where}: register 0x{self.base + register:02X} reads 0x{found:08X}; {otherwise}")

    def start(self, packet: bytes | None = None) -> None:
        """Begin to send a packet, or to receive one."""
        if packet is not None:
            self.buffer.write(self.offset, packet)
        count, address = len(packet) if packet is not None else self.size, self.buffer.address + self.offset
        self._write(STATUS, COMPLETE | FAILED)
        self._write(ADDRESS, address & 0xFFFF_FFFF)
        self._write(ADDRESS_MSB, address >> 32)
        self._write(LENGTH, count)
        if packet is not None and (found := self._read(LENGTH)) != count:
            raise TransportError(f"{self.where}: {count} bytes were asked for and {found} stand in the length register; give the "
                                 f"AXI DMA a buffer length register of {max(8, count.bit_length())} bits or more")
        self.busy = True

    def ended(self) -> bool:
        """Whether the transfer is over; raises TransportError where it failed."""
        status = self._read(STATUS)
        wrong = [text for bit, text in ERRORS.items() if status >> bit & 1]
        if wrong:
            raise TransportError(f"{self.where}: DMASR reads 0x{status:08X}, {'; '.join(wrong)}; are the buffer's addresses "
                                 "those of the AXI DMA, and its length register wide enough?")
        self.busy = not status & COMPLETE
        return not self.busy

    def arrived(self) -> bytes:
        """What the ended transfer has written: as long as the packet was."""
        return self.buffer.read(self.offset, min(self._read(LENGTH), self.size))


class UioTransport:
    """A board behind UIO devices; packets move while somebody sends or receives."""

    def __init__(self, shell: Shell, registers: Registers, dmas: Sequence[Registers], buffer: DmaBuffer,
                 timeout_s: float) -> None:
        core, bits = shell.core, shell.bus_bits
        needed = max(len(core.inputs), len(core.outputs))
        if len(dmas) != needed:
            ports = f"{counted(len(core.inputs), 'input')} and {counted(len(core.outputs), 'output')}"
            raise TransportError(f"board: named were {counted(len(dmas), 'AXI DMA')}; {shell.top} has {ports}, name {needed}")
        self.registers, self.dmas, self.buffer, self.timeout_s = registers, dmas, buffer, timeout_s
        self.inputs = [DmaChannel(f"AXI DMA of input {n}", dmas[n], MM2S, buffer, packet_bytes(port, bits))
                       for n, port in enumerate(core.inputs)]
        self.outputs = [DmaChannel(f"AXI DMA of output {n}", dmas[n], S2MM, buffer, packet_bytes(port, bits))
                        for n, port in enumerate(core.outputs)]
        self.short, self.begun = 0, False

    def read(self, address: int) -> int:
        return self.registers.read(address)

    def write(self, address: int, value: int) -> None:
        self.registers.write(address, value)

    def send(self, port: int, packet: bytes) -> None:
        self.inputs[port].queue.append(packet)
        self._move()

    def receive(self, port: int) -> bytes:
        arrived, end = self.outputs[port].queue, time.monotonic() + self.timeout_s
        while not arrived:
            if self._move():
                end = time.monotonic() + self.timeout_s
            elif time.monotonic() > end:
                cut = f"{self.short} packets came cut short; " if self.short else ""
                raise TransportError(f"board: no packet from output {port} within {self.timeout_s:g} s; {cut}was a frame sent to "
                                     "every input, and is the design enabled?")
            else:
                time.sleep(WAIT_S)
        return arrived.popleft()

    def _move(self) -> bool:
        """Begin and end what can be; whether anything has moved."""
        if not self.begun:
            self._begin()
        moved = False
        for channel in self.inputs:
            moved |= channel.busy and channel.ended()
            if not channel.busy and channel.queue:
                channel.start(channel.queue.popleft())
        for channel in self.outputs:
            if channel.busy and channel.ended():
                moved, packet = True, channel.arrived()
                if len(packet) == channel.size:
                    channel.queue.append(packet)
                else:
                    self.short += 1
            if not channel.busy:
                channel.start()
        return moved

    def provide(self, image: bytes, size: int) -> int:
        self.buffer.check_room(size, "the design's memory")
        self.buffer.write(self.buffer.used, image)
        return self.buffer.address + self.buffer.used

    def abandon(self) -> None:
        for channel in (*self.inputs, *self.outputs):
            channel.queue.clear()
        self._begin()

    def _begin(self) -> None:
        """Reset all channels first, because both directions of an AXI DMA are reset at once, and let them run then."""
        for act in (DmaChannel.reset, DmaChannel.run):
            for channel in (*self.inputs, *self.outputs):
                act(channel, self.timeout_s)
        self.begun = True

    def close(self) -> None:
        self.registers.close()
        for dma in self.dmas:
            dma.close()
        self.buffer.close()


def open_uio(shell: Shell, files: Sequence[Path], timeout_s: float) -> UioTransport:
    """The board behind the shell's UIO device, those of its AXI DMAs, and a buffer of u-dma-buf, in this order."""
    with ExitStack() as stack:
        registers = MappedRegisters(files[0], 1 << shell_map.ADDRESS_BITS)
        stack.callback(registers.close)
        dmas = []
        for path in files[1:-1]:
            dmas.append(MappedRegisters(path, DMA_BYTES))
            stack.callback(dmas[-1].close)
        buffer = DmaBuffer(files[-1])
        stack.callback(buffer.close)
        board = UioTransport(shell, registers, dmas, buffer, timeout_s)
        stack.pop_all()
        return board
