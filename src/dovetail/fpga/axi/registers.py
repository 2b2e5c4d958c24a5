"""The register map of a shell: one table that the hardware, the driver, the C header and the documentation are made from.

Registers are 32 bits wide and lie on an AXI4-Lite port with 12 address bits. Reads of anything else, and writes to what cannot
be written, are answered with SLVERR and change nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

IDENTITY = int.from_bytes(b"DVTL", "little")
VERSION = 0x0001_0002
"""Of the map: major in the upper half (a driver refuses another one), minor in the lower (adds registers)."""
ADDRESS_BITS = 12
LINK_BASE, LINK_BYTES = 0x40, 0x10
MEMORY_BASE, INPUT_BASE, OUTPUT_BASE, BLOCK_BYTES = 0x80, 0x100, 0x800, 0x40
MOST_LINKS = (MEMORY_BASE - LINK_BASE) // LINK_BYTES
MOST_INPUTS = (OUTPUT_BASE - INPUT_BASE) // BLOCK_BYTES
MOST_OUTPUTS = ((1 << ADDRESS_BITS) - OUTPUT_BASE) // BLOCK_BYTES
HASH_WORDS = 4
OKAY, SLVERR = 0, 2


@dataclass(frozen=True, slots=True)
class Field:
    """Bits [start + count - 1 : start] of a register."""

    name: str
    start: int
    count: int
    text: str

    @property
    def mask(self) -> int:
        return ((1 << self.count) - 1) << self.start

    def of(self, value: int) -> int:
        """The field's value in a register's."""
        return (value >> self.start) & ((1 << self.count) - 1)


@dataclass(frozen=True, slots=True)
class AxiRegister:
    """One register: offset from the start of its block; `access` is RO or RW."""

    name: str
    offset: int
    access: str
    text: str
    fields: tuple[Field, ...] = ()


ENABLE = Field("ENABLE", 0, 1, "inputs may start new frames; 1 after reset")
SOFT_RESET = Field("SOFT_RESET", 1, 1, "write 1: forget every frame whose first word came before; reads 0")
ABANDON = Field("ABANDON", 2, 1, "with SOFT_RESET: packets in progress are not ended, the DMA channels are reset too; reads 0")
CLEAR = Field("CLEAR", 3, 1, "write 1: counters, checksums and marks restart; reads 0")
SELF_TEST = Field("SELF_TEST", 4, 1, "write 1: clear, soft reset, then one frame of the test pattern; reads 0; not with links")
HOLD = Field("HOLD", 5, 1, "with links: keeps the soft reset until written 0")

RESETTING = Field("RESETTING", 0, 1, "a soft reset is not over: an input waits for the end of a packet, an output ends one, or "
                                     "memory has not answered")
TESTING = Field("TESTING", 1, 1, "the self-test is running")
TEST_DONE = Field("TEST_DONE", 2, 1, "the self-test has ended since the last CLEAR")
TEST_PASSED = Field("TEST_PASSED", 3, 1, "every output's checksum was the expected one")
INPUT_ACTIVE = Field("INPUT_ACTIVE", 4, 1, "an input is inside a frame")
OUTPUT_ACTIVE = Field("OUTPUT_ACTIVE", 5, 1, "an output is inside a packet")
ERROR = Field("ERROR", 6, 1, "a packet of the wrong length came since the last CLEAR")
MEMORY_ERROR = Field("MEMORY_ERROR", 7, 1, "memory answered a burst with an error since the last CLEAR")

LINKS_UP = Field("LINKS_UP", 8, 1, "all links to other boards are up")
LINK_ALARM = Field("LINK_ALARM", 9, 1, "a link has stopped, here or at another board")

LINK_UP = Field("UP", 0, 1, "the far end answers")
LINK_CAUSE = Field("CAUSE", 1, 3, "why it stopped: 1 damaged, 2 out of order, 3 overflow, 4 silent, 5 restarted, 6 foreign")

MEMORY_ENABLE = Field("ENABLE", 0, 1, "the image lies at BASE, bursts may begin; 0 after reset")
MEMORY_ACTIVE = Field("ACTIVE", 0, 1, "bursts are under way")
READ_ERROR = Field("READ_ERROR", 1, 1, "a read was answered with an error since the last CLEAR")
WRITE_ERROR = Field("WRITE_ERROR", 2, 1, "a write was answered with an error since the last CLEAR")
READ_RESPONSE = Field("READ_RESPONSE", 4, 2, "RRESP of the first such read: 2 SLVERR, 3 DECERR")
WRITE_RESPONSE = Field("WRITE_RESPONSE", 6, 2, "BRESP of the first such write")

GLOBAL = (
    AxiRegister("ID", 0x00, "RO", 'always 0x4C545644, "DVTL" in memory'),
    AxiRegister("VERSION", 0x04, "RO", "version of this map: major in the upper half, minor in the lower"),
    AxiRegister("CAPABILITIES", 0x08, "RO", "what the shell has", (
        Field("INPUTS", 0, 8, "input streams"), Field("OUTPUTS", 8, 8, "output streams"),
        Field("BUS_BYTES", 16, 8, "bytes of a bus word"), Field("FIFO_WORDS_LOG2", 24, 8, "words of each stream FIFO, log2"))),
    AxiRegister("CONTROL", 0x0C, "RW", "what the host asks for", (ENABLE, SOFT_RESET, ABANDON, CLEAR, SELF_TEST, HOLD)),
    AxiRegister("STATUS", 0x10, "RO", "what goes on",
                (RESETTING, TESTING, TEST_DONE, TEST_PASSED, INPUT_ACTIVE, OUTPUT_ACTIVE, ERROR, MEMORY_ERROR, LINKS_UP,
                 LINK_ALARM)),
    AxiRegister("SCRATCH", 0x14, "RW", "keeps what is written; for trying the link"),
    AxiRegister("CYCLES_LO", 0x18, "RO", "clock cycles since CLEAR, lower half; reading it holds the upper half still"),
    AxiRegister("CYCLES_HI", 0x1C, "RO", "upper half, as of the last read of CYCLES_LO"),
    *(AxiRegister(f"BUILD_HASH{i}", 0x20 + 4 * i, "RO", f"bits {32 * i + 31} to {32 * i} of the build hash")
      for i in range(HASH_WORDS)),
    AxiRegister("LATENCY", 0x30, "RO", "cycles of the core from a frame's first pixel to its last result, nobody stalling"),
    AxiRegister("INTERVAL", 0x34, "RO", "cycles of the core from frame to frame, nobody stalling"),
)
LINK = (
    AxiRegister("STATUS", 0x00, "RO", "the link", (LINK_UP, LINK_CAUSE)),
    AxiRegister("SPOILT", 0x04, "RO", "cells damaged or missing since CLEAR"),
    AxiRegister("RECEIVED", 0x08, "RO", "cells since CLEAR"),
    AxiRegister("SENT", 0x0C, "RO", "cells since CLEAR"),
)
MEMORY = (
    AxiRegister("BASE_LO", 0x00, "RW", "byte address of the image, lower half; a multiple of 4096, the lowest 12 bits read 0"),
    AxiRegister("BASE_HI", 0x04, "RW", "upper half"),
    AxiRegister("CONTROL", 0x08, "RW", "whether memory is used", (MEMORY_ENABLE,)),
    AxiRegister("STATUS", 0x0C, "RO", "what memory does",
                (MEMORY_ACTIVE, READ_ERROR, WRITE_ERROR, READ_RESPONSE, WRITE_RESPONSE)),
    AxiRegister("BYTES", 0x10, "RO", "bytes from BASE on that the design reads or writes"),
    AxiRegister("IMAGE_BYTES", 0x14, "RO", "bytes of the image at their beginning, which is only read"),
    AxiRegister("IMAGE_CRC", 0x18, "RO", "CRC-32 of the image"),
    AxiRegister("READS", 0x1C, "RO", "bus words read since CLEAR"),
    AxiRegister("WRITES", 0x20, "RO", "bus words written since CLEAR"),
    AxiRegister("WAITS", 0x24, "RO", "cycles since CLEAR in which a burst waited for its address to be taken"),
    AxiRegister("FAULTS", 0x28, "RO", "bus words and bursts answered with an error since CLEAR"),
)

_SHAPE = (
    AxiRegister("SIZE", 0x00, "RO", "pixels of a frame", (Field("WIDTH", 0, 16, "columns"), Field("HEIGHT", 16, 16, "rows"))),
    AxiRegister("FORMAT", 0x04, "RO", "of one pixel", (
        Field("CHANNELS", 0, 16, "values"), Field("BITS", 16, 8, "bits of each"), Field("SIGNED", 24, 1, "two's complement"))),
    AxiRegister("WORDS", 0x08, "RO", "bus words of a packet"),
    AxiRegister("AT_ONCE", 0x28, "RO", "channels of a beat: zeros fill pixels up to a multiple of them"),
)
INPUT = (
    *_SHAPE,
    AxiRegister("FRAMES", 0x0C, "RO", "frames taken whole since CLEAR"),
    AxiRegister("STALLS", 0x10, "RO", "cycles in which the source had a word and had to wait"),
    AxiRegister("STARVED", 0x14, "RO", "cycles inside a frame in which the core waited for a word"),
    AxiRegister("EARLY", 0x18, "RO", "packets that ended too soon; zeros took the place of what was missing"),
    AxiRegister("LATE", 0x1C, "RO", "packets that did not end in time; what was too much was dropped"),
    AxiRegister("CRC", 0x20, "RO", "CRC-32 of all words taken since CLEAR"),
    AxiRegister("HIGH_WATER", 0x24, "RO", "most words seen in the FIFO since CLEAR"),
)
OUTPUT = (
    *_SHAPE,
    AxiRegister("FRAMES", 0x0C, "RO", "packets delivered whole since CLEAR"),
    AxiRegister("STALLS", 0x10, "RO", "cycles in which a word was there and nobody took it"),
    AxiRegister("ABORTED", 0x14, "RO", "packets that a soft reset cut short since CLEAR"),
    AxiRegister("TEST_CRC", 0x18, "RO", "CRC-32 that the self-test's packet must have"),
    AxiRegister("CRC", 0x20, "RO", "CRC-32 of all words computed since CLEAR"),
    AxiRegister("HIGH_WATER", 0x24, "RO", "most words seen in the FIFO since CLEAR"),
)


@dataclass(frozen=True, slots=True)
class PlacedRegister:
    """A register at its address; `name` says which port's it is."""

    name: str
    address: int
    register: AxiRegister


def placed(inputs: int, outputs: int, memory: bool = False, links: int = 0) -> Iterator[PlacedRegister]:
    """Every register of a shell with so many ports, and with `memory` those of its memory port; block by block.

    `links` are those of a board that is joined to others.
    """
    for register in GLOBAL:
        yield PlacedRegister(register.name, register.offset, register)
    for link in range(links):
        for register in LINK:
            yield PlacedRegister(f"LINK{link}_{register.name}", LINK_BASE + link * LINK_BYTES + register.offset, register)
    for register in MEMORY if memory else ():
        yield PlacedRegister(f"MEMORY_{register.name}", MEMORY_BASE + register.offset, register)
    for kind, base, count, block in (("IN", INPUT_BASE, inputs, INPUT), ("OUT", OUTPUT_BASE, outputs, OUTPUT)):
        for port in range(count):
            for register in block:
                yield PlacedRegister(f"{kind}{port}_{register.name}", base + port * BLOCK_BYTES + register.offset, register)


def addresses(inputs: int, outputs: int, memory: bool = False, links: int = 0) -> dict[str, int]:
    """Addresses by name: `CONTROL`, `LINK0_STATUS`, `MEMORY_STATUS`, `IN0_FRAMES`, `OUT1_CRC`."""
    return {p.name: p.address for p in placed(inputs, outputs, memory, links)}


def markdown() -> str:
    """The map as tables for people."""
    parts = []
    starts = [f"0x{base:03X} + 0x{BLOCK_BYTES:02X} n" for base in (INPUT_BASE, OUTPUT_BASE)]
    memory = f"0x{MEMORY_BASE:03X}, of designs that use memory"
    links = f"0x{LINK_BASE:03X} + 0x{LINK_BYTES:02X} n, where boards are joined"
    for title, base, block in (("Global", "0x000", GLOBAL), ("Link n", links, LINK), ("Memory", memory, MEMORY),
                               ("Input n", starts[0], INPUT), ("Output n", starts[1], OUTPUT)):
        lines = [f"**{title}**, from {base}", "", "| offset | register | access | meaning |", "|---|---|---|---|"]
        for r in block:
            lines.append(f"| 0x{r.offset:02X} | {r.name} | {r.access} | {r.text} |")
            lines += [f"| | {_span(f)} {f.name} | | {f.text} |" for f in r.fields]
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


def _span(field: Field) -> str:
    last = field.start + field.count - 1
    return f"[{last}:{field.start}]" if field.count > 1 else f"[{last}]"


def as_json(inputs: int, outputs: int, memory: bool = False, links: int = 0) -> list[dict[str, object]]:
    """The map for programs."""
    return [{"name": p.name, "address": p.address, "access": p.register.access, "text": p.register.text,
             "fields": [{"name": f.name, "start": f.start, "count": f.count, "text": f.text} for f in p.register.fields]}
            for p in placed(inputs, outputs, memory, links)]


def c_header(name: str, inputs: int, outputs: int, build_hash: int, memory: bool = False, links: int = 0) -> str:
    """The map for C: addresses and field masks, and the build hash to expect."""
    prefix, guard = name.upper(), f"{name.upper()}_REGISTERS_H"
    lines = [f"/* Registers of {name}; generated. Addresses in bytes, registers of 32 bits. */",
             f"#ifndef {guard}", f"#define {guard}", "", f"#define {prefix}_ID_VALUE 0x{IDENTITY:08X}u",
             f"#define {prefix}_VERSION_VALUE 0x{VERSION:08X}u"]
    lines += [f"#define {prefix}_BUILD_HASH{i}_VALUE 0x{(build_hash >> 32 * i) & 0xFFFF_FFFF:08X}u" for i in range(HASH_WORDS)]
    for p in placed(inputs, outputs, memory, links):
        lines += ["", f"#define {prefix}_{p.name} 0x{p.address:03X}u /* {p.register.access}: {p.register.text} */"]
        lines += [f"#define {prefix}_{p.name}_{f.name} 0x{f.mask:08X}u /* {f.text} */" for f in p.register.fields]
    return "\n".join([*lines, "", "#endif", ""])
