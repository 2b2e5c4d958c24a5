"""The link shell: messages on a byte stream (UART, USB, socket, PCIe queue), each with a checked header and payload.

    offset  bytes  field (little-endian)
         0      4  magic "DVLK"
         4      1  version of this format, 1
         5      1  kind: 1 data, 2 fetch, 3 read, 4 write, 5 value, 6 reset, 7 fault, 8 provide
         6      2  port, of data and fetch
         8      8  design: lower half of the build hash; 0 where it does not matter
        16      4  sequence: counts the messages of one direction from 0, modulo 2**32
        20      4  length of the payload in bytes
        24      4  CRC-32 of bytes 0 to 23
        28    ...  payload
                4  CRC-32 of the payload

A register of the link itself, at 0x1000 behind those of the shell, says how many frames may be sent before one is fetched.
Whatever changes, goes missing or comes twice on the way is noticed: by a checksum, by the sequence, or by the missing magic.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass, field
from enum import IntEnum

from dovetail.errors import TransportError

MAGIC = b"DVLK"
VERSION = 1
HEADER = struct.Struct("<4sBBHQII")
CHECK = struct.Struct("<I")
HEADER_BYTES = HEADER.size + CHECK.size
MOST_PAYLOAD = 1 << 28
DESIGN_MASK = (1 << 64) - 1
SEQUENCES = 1 << 32
ROOM_ADDRESS = 0x1000
"""The register of the link's room."""
ENDLESS = (1 << 32) - 1
"""What it says where a far end keeps any number of frames."""


class MessageKind(IntEnum):
    """What a message is."""

    DATA = 1
    FETCH = 2
    READ = 3
    WRITE = 4
    VALUE = 5
    RESET = 6
    FAULT = 7
    PROVIDE = 8


@dataclass(frozen=True, slots=True)
class Message:
    """One message as both ends understand it."""

    kind: MessageKind
    payload: bytes = b""
    port: int = 0
    design: int = 0


def encode(message: Message, sequence: int) -> bytes:
    """The bytes of a message."""
    if len(message.payload) > MOST_PAYLOAD:
        raise TransportError(f"link: a payload of {len(message.payload)} bytes; at most {MOST_PAYLOAD} fit into a message")
    head = HEADER.pack(MAGIC, VERSION, message.kind, message.port, message.design & DESIGN_MASK, sequence % SEQUENCES,
                       len(message.payload))
    return b"".join((head, CHECK.pack(zlib.crc32(head)), message.payload, CHECK.pack(zlib.crc32(message.payload))))


@dataclass(slots=True)
class Decoder:
    """Takes bytes in pieces of any size and gives messages; damage raises TransportError once, naming what was found.

    `wanted` says how many bytes can be read without reading beyond the message.
    """

    held: bytearray = field(default_factory=bytearray)
    expected: int | None = 0
    """The next message's sequence; None accepts any."""

    @property
    def wanted(self) -> int:
        if len(self.held) < HEADER_BYTES:
            return HEADER_BYTES - len(self.held)
        length = min(MOST_PAYLOAD, int(HEADER.unpack_from(self.held)[6]))
        return max(0, HEADER_BYTES + length + CHECK.size - len(self.held))

    def feed(self, octets: bytes) -> None:
        self.held += octets

    def next(self) -> Message | None:
        """The next whole message, None where more bytes are needed."""
        if len(self.held) < HEADER_BYTES:
            return None
        magic, version, kind, port, design, sequence, length = HEADER.unpack_from(self.held)
        (check,) = CHECK.unpack_from(self.held, HEADER.size)
        if magic != MAGIC:
            raise TransportError(f"link: a message begins with {bytes(magic)!r}; {MAGIC!r} was expected, bytes were lost")
        if zlib.crc32(self.held[: HEADER.size]) != check:
            raise TransportError("link: a message's header was damaged on the way, its checksum differs; check the link")
        if version != VERSION or kind not in MessageKind.__members__.values() or length > MOST_PAYLOAD:
            raise TransportError(f"link: a message of version {version}, kind {kind}, {length} bytes; version {VERSION} and "
                                 f"kinds 1 to {max(MessageKind):d} are understood, update the older end")
        end = HEADER_BYTES + length
        if len(self.held) < end + CHECK.size:
            return None
        payload = bytes(self.held[HEADER_BYTES:end])
        if zlib.crc32(payload) != CHECK.unpack_from(self.held, end)[0]:
            raise TransportError(f"link: the {length} bytes of message {sequence} were damaged on the way, their checksum "
                                 "differs; check the link")
        if self.expected is not None and sequence != self.expected:
            raise TransportError(f"link: message {sequence} came where {self.expected} was expected; messages were lost or "
                                 "repeated")
        del self.held[: end + CHECK.size]
        self.expected = (sequence + 1) % SEQUENCES
        return Message(MessageKind(kind), payload, port, design)

    def finish(self) -> None:
        """The stream is over: raises TransportError where it ended inside a message."""
        found = len(self.held)
        self.held.clear()
        if found:
            raise TransportError(f"link: the stream ended after {found} bytes of a message; the rest was lost")

    def resynchronise(self) -> None:
        """After damage: skip to where a message may begin, and accept its sequence whatever it is."""
        start = self.held.find(MAGIC, 1)
        kept = start if start >= 0 else max(0, len(self.held) - len(MAGIC) + 1)
        del self.held[:kept]
        self.expected = None
