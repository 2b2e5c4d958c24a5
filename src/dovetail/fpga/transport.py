"""Ways to a board, all with one face: registers, one packet in, one packet out.

`SimulatedBoard` is the Verilator model of a shell behind its AXI ports; `LinkTransport` speaks the link shell of
`fpga/framing.py` over any byte stream, at whose far end `serve` answers for a board. Real boards: `runtime/transports/`.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from math import inf
from pathlib import Path
from typing import Protocol

import numpy as np

from dovetail.errors import TransportError
from dovetail.fpga.axi.model import JoinedModel, ShellModel
from dovetail.fpga.axi.registers import OKAY, addresses
from dovetail.fpga.axi.shell import Shell
from dovetail.fpga.framing import DESIGN_MASK, ENDLESS, ROOM_ADDRESS, Decoder, Message, MessageKind, encode

PATIENCE_CYCLES = 50_000
"""Cycles without a packet after which a simulated board is given up, beyond what its design's own timing says."""
STALL_FACTOR = 32
"""How much slower random back-pressure may make it; the longest pauses are 240 cycles."""
MEMORY_ADDRESS = 0x8_7654_3000
"""Where a simulated board's memory begins: beyond 4 GiB, as on boards, and at no rounder multiple of a page."""
ACCESS = struct.Struct("<II")
PROVIDED = struct.Struct("<Q")
GREETINGS = tuple(addresses(0, 0)[name] for name in ("VERSION", "CAPABILITIES", "STATUS", "LATENCY"))
"""Registers that are read to find a far end's place on a line, one after the other: late answers to one are not the next's."""


class Transport(Protocol):
    """How a driver reaches a board. Packets are whole bus words; a packet is one frame (`fpga/packing.py`)."""

    def read(self, address: int) -> int:
        """The value of a register; raises TransportError where it is refused."""

    def write(self, address: int, value: int) -> None:
        """Set a register; raises TransportError where it is refused."""

    def send(self, port: int, packet: bytes) -> None:
        """Queue a frame for an input."""

    def receive(self, port: int) -> bytes:
        """The next frame of an output; packets that a soft reset cut short are skipped."""

    def provide(self, image: bytes, size: int) -> int:
        """Memory of so many bytes that the design's AXI4 master reaches, beginning with an image: the address it has for the
        master, a multiple of 4096. What was provided before may be given up."""

    def abandon(self) -> None:
        """Reset the DMA channels: what is queued on either side of the bus is forgotten."""

    def close(self) -> None:
        """Let go of the board."""


class SimulatedBoard:
    """A shell in Verilator."""

    def __init__(self, shell: Shell, stall_seed: int | None = None, trace: Path | None = None,
                 bundle: Sequence[Shell] | None = None, cycles: float = inf) -> None:
        """Builds the simulation where it is not cached; `bundle` names the shells that share one build.

        `cycles` says for how many clocks of the design it is about to be used.
        """
        self._use(ShellModel(shell, stall_seed, trace, bundle, cycles), shell.core.latency_cycles + shell.core.interval_cycles)

    def _use(self, model: ShellModel, frame_cycles: int) -> None:
        """Speak to a model, whose frames take so long."""
        self.model = model
        fill = max((p.beats * max(1, p.data_bits // model.shell.bus_bits + 1) for p in model.shell.core.inputs), default=0)
        self.patience = PATIENCE_CYCLES + STALL_FACTOR * (frame_cycles + fill)

    def read(self, address: int) -> int:
        response, value = self.model.read(address)
        return _answered(address, response, value)

    def write(self, address: int, value: int) -> None:
        _answered(address, self.model.write(address, value), 0)

    def send(self, port: int, packet: bytes) -> None:
        self.model.push(port, np.frombuffer(packet, dtype=np.uint8))

    def receive(self, port: int) -> bytes:
        wanted = [int(k == port) for k in range(len(self.model.shell.core.outputs))]
        while True:
            self.model.run(wanted, self.patience)
            packet = self.model.pull(port)
            if packet is None:
                raise TransportError(f"simulation of {self.model.shell.top}: no packet from output {port} within "
                                     f"{self.patience} cycles; was a frame sent to every input, and is the design enabled?")
            if not packet.aborted:
                return packet.words.tobytes()

    def provide(self, image: bytes, size: int) -> int:
        self.model.place(MEMORY_ADDRESS, size)
        self.model.store(MEMORY_ADDRESS, image)
        return MEMORY_ADDRESS

    def abandon(self) -> None:
        self.model.cancel()

    def close(self) -> None:
        self.model.close()


class JoinedBoard(SimulatedBoard):
    """One of several boards that are joined by links and simulated together; a frame may pass through all of them."""

    def __init__(self, model: JoinedModel, number: int) -> None:
        frame = sum(board.shell.core.latency_cycles + board.shell.core.interval_cycles for board in model.boards)
        self._use(model.boards[number], frame)


def _answered(address: int, response: int, value: int) -> int:
    if response != OKAY:
        what = "no answer" if response < 0 else f"response {response}"
        raise TransportError(f"register 0x{address:03X}: {what}; the register map has nothing to read or write there")
    return value


class ByteStream(Protocol):
    """A socket's file, a pipe, a serial port."""

    def read(self, count: int, /) -> bytes | None: ...
    def write(self, octets: bytes, /) -> int | None: ...
    def flush(self) -> None: ...


class Messenger:
    """One end of a link: numbers what it sends, checks what it gets."""

    def __init__(self, stream: ByteStream) -> None:
        self.stream, self.decoder, self.sent = stream, Decoder(), 0

    def send(self, message: Message) -> None:
        octets = encode(message, self.sent)
        try:
            self.stream.write(octets)
            self.stream.flush()
        except (OSError, ValueError) as error:
            raise TransportError(f"link: cannot be written, {error}; is the board still there?") from None
        self.sent += 1

    def receive(self) -> Message | None:
        """The next message; None at the end of the stream."""
        while (message := self.decoder.next()) is None:
            try:
                octets = self.stream.read(self.decoder.wanted)
            except (OSError, ValueError) as error:
                raise TransportError(f"link: cannot be read, {error}; is the board still there?") from None
            if not octets:
                self.decoder.finish()
                return None
            self.decoder.feed(octets)
        return message


class LinkTransport:
    """A board at the far end of a byte stream, where `serve` or its equal in logic or firmware answers."""

    def __init__(self, stream: ByteStream, build_hash: int) -> None:
        self.messenger, self.design = Messenger(stream), build_hash & DESIGN_MASK

    def greet(self) -> None:
        """Begin on a line whose far end may have talked before: numbers go on from wherever they are, channels are reset."""
        failure = TransportError("link: the far end refuses every message; reset the board")
        for address in GREETINGS:
            self.messenger.decoder.resynchronise()
            try:
                self.messenger.send(Message(MessageKind.READ, ACCESS.pack(address, 0)))
                while (found := self.messenger.receive()) is not None and found.kind is not MessageKind.FAULT:
                    if found.kind is MessageKind.VALUE and found.payload[:4] == ACCESS.pack(address, 0)[:4]:
                        return self.abandon()
            except TransportError as error:
                failure = error
        raise failure

    def _ask(self, message: Message, answer: MessageKind) -> Message:
        self.messenger.send(message)
        found = self.messenger.receive()
        if found is None:
            raise TransportError("link: the far end closed the stream; is the board still there?")
        if found.kind is MessageKind.FAULT:
            raise TransportError(found.payload.decode("utf-8", "replace"))
        if found.kind is not answer:
            raise TransportError(f"link: {found.kind.name} came as an answer; {answer.name} was expected")
        return found

    def read(self, address: int) -> int:
        return int(ACCESS.unpack(self._ask(Message(MessageKind.READ, ACCESS.pack(address, 0)), MessageKind.VALUE).payload)[1])

    def write(self, address: int, value: int) -> None:
        self._ask(Message(MessageKind.WRITE, ACCESS.pack(address, value)), MessageKind.VALUE)

    def send(self, port: int, packet: bytes) -> None:
        self.messenger.send(Message(MessageKind.DATA, packet, port, self.design))

    def receive(self, port: int) -> bytes:
        return self._ask(Message(MessageKind.FETCH, b"", port, self.design), MessageKind.DATA).payload

    def provide(self, image: bytes, size: int) -> int:
        payload = PROVIDED.pack(size) + image
        return int(PROVIDED.unpack(self._ask(Message(MessageKind.PROVIDE, payload, 0, self.design),
                                             MessageKind.VALUE).payload)[0])

    def abandon(self) -> None:
        self._ask(Message(MessageKind.RESET), MessageKind.VALUE)

    def close(self) -> None:
        """The stream belongs to whoever opened it."""


def serve(stream: ByteStream, board: Transport, build_hash: int) -> None:
    """Answer for a board until the other end is gone. It is told what goes wrong, and the next message is looked for."""
    messenger = Messenger(stream)
    while True:
        try:
            message = messenger.receive()
            if message is None:
                return
            answer = _act(message, board, build_hash & DESIGN_MASK)
        except TransportError as error:
            if messenger.decoder.held:
                messenger.decoder.resynchronise()
            answer = Message(MessageKind.FAULT, str(error).encode())
        try:
            if answer is not None:
                messenger.send(answer)
        except TransportError:
            return


def _act(message: Message, board: Transport, design: int) -> Message | None:
    """Do what a message asks; data is not answered."""
    if message.kind in (MessageKind.DATA, MessageKind.FETCH, MessageKind.PROVIDE) and message.design != design:
        raise TransportError(f"link: a frame for design {message.design:016x}; the board holds {design:016x}, load the matching "
                             "bitstream")
    if message.kind is MessageKind.DATA:
        board.send(message.port, message.payload)
        return None
    if message.kind is MessageKind.FETCH:
        return Message(MessageKind.DATA, board.receive(message.port), message.port, design)
    if message.kind is MessageKind.PROVIDE and len(message.payload) >= PROVIDED.size:
        (size,) = PROVIDED.unpack_from(message.payload)
        return Message(MessageKind.VALUE, PROVIDED.pack(board.provide(message.payload[PROVIDED.size:], size)))
    if message.kind is MessageKind.RESET:
        board.abandon()
        return Message(MessageKind.VALUE, ACCESS.pack(0, 0))
    if message.kind not in (MessageKind.READ, MessageKind.WRITE) or len(message.payload) != ACCESS.size:
        raise TransportError(f"link: {message.kind.name} with {len(message.payload)} bytes is no request")
    address, value = ACCESS.unpack(message.payload)
    if message.kind is MessageKind.WRITE:
        board.write(address, value)
        return Message(MessageKind.VALUE, ACCESS.pack(address, value))
    return Message(MessageKind.VALUE, ACCESS.pack(address, ENDLESS if address == ROOM_ADDRESS else board.read(address)))
