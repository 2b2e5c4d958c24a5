"""CRC-32 as in zlib and Ethernet (polynomial 0x04C11DB7, reflected), and its update by a whole bus word as parities."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from functools import cache

from dovetail.fpga.hardware import Expr, Module, Signal, pack, parity

ONES = 0xFFFF_FFFF


def advance(state: int, octets: bytes) -> int:
    """The bare shift register after these bytes: without the inversions at both ends, so that it is linear."""
    return zlib.crc32(octets, state ^ ONES) ^ ONES


@cache
def update_masks(bus_bits: int) -> tuple[int, ...]:
    """For each bit of the next state: which bits of {word, state} it is the parity of; the state is in the low 32."""
    columns = [advance(1 << i, bytes(bus_bits // 8)) for i in range(32)]
    columns += [advance(0, (1 << i).to_bytes(bus_bits // 8, "little")) for i in range(bus_bits)]
    return tuple(sum(((column >> row) & 1) << index for index, column in enumerate(columns)) for row in range(32))


def updated(module: Module, state: Signal, word: Signal) -> Expr:
    """The state after one more word, whose lowest byte came first."""
    both = module.wire("crc_and_word", pack([(state, 32), (word, word.width)]))
    return parities(module, "crc", both, update_masks(word.width))


def parities(module: Module, name: str, value: Signal, masks: Sequence[int]) -> Expr:
    """A word of parities, the first in the lowest bit, one line of text each."""
    return pack([(module.wire(f"{name}_bit{index}", parity(value, mask)), 1) for index, mask in enumerate(masks)])
