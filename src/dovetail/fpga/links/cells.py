"""Cells: what travels over a link between two FPGAs, one link word each, always, also when there is nothing to say.

    bits      field
    0…15      sequence: counts the cells of one direction from 0, modulo 2**16; 0 in a greeting
    16…23     circuit of the payload
    24…31     circuit the credit is for, of the other direction
    32…43     credit: cells of that circuit taken out of the receiver's buffer so far, modulo 2**12
    44        data: the payload belongs to the circuit, else it is the build's identity
    45        greeting: the sender has not been heard by the receiver yet
    46        heard: the sender has heard the receiver
    47        alarm: some board of the system has found a fault
    48…       payload
    last 32   CRC-32 of all bits before, as in zlib and in fpga/framing.py

The messages of `framing.py` carry whole frames over byte streams and are judged when they are complete; a cell is judged before
anything of it is used, so that no word of a damaged frame reaches a layer. Because cells never cease, the next one tells of one
that went missing, and silence is a fault as well.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from functools import lru_cache

SEQUENCE_BITS = 16
CIRCUIT_BITS = 8
CREDIT_BITS = 12
HEADER_BITS = SEQUENCE_BITS + 2 * CIRCUIT_BITS + CREDIT_BITS + 4
CHECK_BITS = 32
OVERHEAD_BITS = HEADER_BITS + CHECK_BITS
IDENTITY_BITS = 32
MOST_CIRCUITS = 1 << CIRCUIT_BITS
MOST_DEPTH = (1 << CREDIT_BITS) - 1
"""Cells a circuit's buffer may hold: beyond that, credits could not be told apart."""
SILENCE_CLOCKS = 4096
"""Clocks without a cell after which a link that was up counts as broken."""


@dataclass(frozen=True, slots=True)
class CellFormat:
    """How wide a link's words are."""

    payload_bits: int

    def __post_init__(self) -> None:
        assert self.payload_bits % 8 == 0
        assert self.payload_bits >= IDENTITY_BITS

    @property
    def body_bits(self) -> int:
        return HEADER_BITS + self.payload_bits

    @property
    def bits(self) -> int:
        return self.body_bits + CHECK_BITS


FLAGS = ("data", "greeting", "heard", "alarm")


@lru_cache(maxsize=16)
def syndrome_masks(form: CellFormat) -> tuple[tuple[int, int], ...]:
    """For each bit of the checksum: which bits of the body it is the parity of, and what it is for a body of zeros."""
    octets = form.body_bits // 8
    zero = zlib.crc32(bytes(octets))
    columns = [zlib.crc32((1 << i).to_bytes(octets, "little")) ^ zero for i in range(form.body_bits)]
    return tuple((sum((column >> row & 1) << i for i, column in enumerate(columns)), zero >> row & 1)
                 for row in range(CHECK_BITS))
