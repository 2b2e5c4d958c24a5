"""Cells: what travels over a link between two FPGAs, one link word each, always, also when there is nothing to say.

    bits      field
    0…11      number: cells of one direction that carried data before this one, modulo 2**12; 0 in a greeting
    12        epoch: turns when the sender begins to repeat
    13…15     0
    16…23     circuit of the payload
    24…31     circuit the credit is for, of the other direction; 254 and 255: the credit is an answer
    32…43     credit: cells of that circuit taken out of the receiver's buffer so far, modulo 2**12
    44        data: the payload belongs to the circuit, else it is the build's identity
    45        greeting: the sender has not been heard by the receiver yet
    46        heard: the sender has heard the receiver
    47        alarm: some board of the system has found a fault
    48…       payload
    last 32   CRC-32 of all bits before, as in zlib and in fpga/framing.py

An answer says the number of the cell with data that is expected next, and by its circuit the epoch in which it is expected. A
receiver that sees another number turns the epoch and drops everything until cells of the new epoch come; a sender that is asked
for another epoch goes back to that number (go-back-N). Links of circuit switches repeat nothing, because slots cannot wait: there
bits 0 to 15 count all cells, and the first that is damaged or missing is a fault.

The messages of `framing.py` carry whole frames over byte streams and are judged when they are complete; a cell is judged before
anything of it is used, so that no word of a damaged frame reaches a layer. Because cells never cease, the next one tells of one
that went missing, and silence is a fault. Wide pixels are cut into words of channels; narrow ones share a cell.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from dovetail.fpga.engines.stream import Format
from dovetail.fpga.rtl.expressions import Signal, all_of, any_of, choose, compare, const, odd_of, pack, parity, select, successor
from dovetail.fpga.rtl.modules import Module

SEQUENCE_BITS = 16
NUMBER_BITS = 12
"""Of a cell with data where lost ones are repeated: twice as many numbers as cells that a sender keeps."""
MOST_KEPT = 1 << NUMBER_BITS - 1
"""Cells that a sender keeps for repetition, at most."""
CIRCUIT_BITS = 8
CREDIT_BITS = 12
HEADER_BITS = SEQUENCE_BITS + 2 * CIRCUIT_BITS + CREDIT_BITS + 4
CHECK_BITS = 32
OVERHEAD_BITS = HEADER_BITS + CHECK_BITS
IDENTITY_BITS = 32
ANSWER = (1 << CIRCUIT_BITS) - 2
"""The circuit that a credit is for if it is an answer of epoch 0; the next is that of epoch 1."""
MOST_CIRCUITS = ANSWER
MOST_DEPTH = (1 << CREDIT_BITS) - 1
"""Cells a circuit's buffer may hold: beyond that, credits could not be told apart."""
PART_BITS = 64
"""Bits whose parity is taken at once."""
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


def parities(m: Module, name: str, word: Signal, masks: Sequence[tuple[int, int]]) -> list[Signal]:
    """Of every (mask, constant): the parity of the masked bits and the constant."""
    # By parts, because a simulator is fast up to 64 bits.
    parts = [(at, m.wire(f"{name}_part{at}", word.bits(at, min(PART_BITS, word.width - at))))
             for at in range(0, word.width, PART_BITS)]
    return [m.wire(f"{name}_bit{i}", odd_of(const(constant), *(parity(part, mask >> at & (1 << part.width) - 1)
                                                               for at, part in parts)))
            for i, (mask, constant) in enumerate(masks)]


@dataclass(frozen=True, slots=True)
class Carriage:
    """A stream's beats as they travel, `group` of them in a cell; the last cell of a frame may have fewer."""

    form: Format
    group: int = 1

    @property
    def bits(self) -> int:
        """Of a cell's payload that are used."""
        return self.form.data_bits * self.group

    @property
    def cells(self) -> int:
        """Per frame."""
        return -(-self.form.beats // self.group)


def carried(form: Format, payload_bits: int) -> Carriage:
    """As many pixels per cell as fit, or as many channels of a pixel."""
    whole = form.channels * form.bits
    if whole > payload_bits:
        return Carriage(form.in_words(payload_bits // form.bits))
    return Carriage(form, min(payload_bits // whole, form.beats))


def _place(m: Module, carriage: Carriage, step: Signal) -> tuple[Signal, Signal]:
    """The place of a beat in its cell, and whether it is the cell's last: the group is complete, or the frame ends."""
    place = Signal(0, carriage.group - 1, "place")
    _, frame_ends = m.rounds("beat", carriage.form.beats, step)
    last = m.wire("last", any_of(compare("==", place, carriage.group - 1), frame_ends))
    m.drive(place, select(last, 0, successor(place)), step, 0)
    return place, last


def gather_module(name: str, carriage: Carriage) -> Module:
    """Beats in, cells out: a cell leaves with its last beat."""
    width, group = carriage.form.data_bits, carriage.group
    m = Module(name, (f"{group} beats of {width} bits to a cell.",))
    valid, data, ready = m.input("in_valid"), m.input("in_data", width), m.input("out_ready")
    step = Signal(0, 1, "step")
    place, last = _place(m, carriage, step)
    takes = m.wire("takes", any_of(~last, ready))
    m.wires.append((step, all_of(valid, takes)))
    held = [m.register(f"held_{i}", data, all_of(step, compare("==", place, i))) for i in range(group - 1)]
    fields = [(select(compare("==", place, i), data, held[i]), width) for i in range(group - 1)]
    m.drive_outputs(in_ready=takes, out_valid=all_of(valid, last), out_data=pack([*fields, (data, width)]))
    return m


def scatter_module(name: str, carriage: Carriage) -> Module:
    """Cells in, beats out: a cell is taken with its last beat."""
    width, group = carriage.form.data_bits, carriage.group
    m = Module(name, (f"Cells to {group} beats of {width} bits.",))
    valid, data, ready = m.input("in_valid"), m.input("in_data", width * group), m.input("out_ready")
    step = Signal(0, 1, "step")
    place, last = _place(m, carriage, step)
    m.wires.append((step, all_of(valid, ready)))
    m.drive_outputs(in_ready=all_of(ready, last), out_valid=valid,
                    out_data=choose(place, [data.bits(i * width, width) for i in range(group)]))
    return m
