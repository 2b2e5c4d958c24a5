"""CRC-32 as in zlib and Ethernet (polynomial 0x04C11DB7, reflected), and its update by a whole bus word as parities."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from functools import cache

from dovetail.fpga.rtl.expressions import Expr, Signal, odd_of, pack, parity
from dovetail.fpga.rtl.modules import Module

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
    masks = update_masks(word.width)
    # Two parities instead of one over both, because a simulator is fast up to 64 bits.
    return parities(module, "crc", [odd_of(parity(state, mask & ONES), parity(word, mask >> 32)) for mask in masks])


def parities(module: Module, name: str, values: Sequence[Expr]) -> Expr:
    """Bits as a word, the first the lowest, one line of text each."""
    return pack([(module.wire(f"{name}_bit{index}", value), 1) for index, value in enumerate(values)])
