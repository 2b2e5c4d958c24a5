"""The self-test's frame, made by hardware and host from the same recipe, so that none is stored; and the CRC-32 of its results.

Both are linear in the bits of a 32-bit state: each bit of the next state is a parity. The CRC is that of zlib and Ethernet
(polynomial 0x04C11DB7, reflected). Pixels are pseudo-random: a xorshift generator (Marsaglia 2003: shifts 13, 17, 5) steps once
per beat: a pixel, or a word of one. Channel c of a beat takes its value from the state rotated right by 7c: as many low bits as
all stay in the stream's range, counted from the lowest value it can have.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from functools import cache

import numpy as np
import numpy.typing as npt

from dovetail.fpga.design import StreamPort
from dovetail.fpga.rtl.expressions import Expr, Signal, all_of, const, odd_of, pack, parity, signal
from dovetail.fpga.rtl.modules import Module

ONES = 0xFFFF_FFFF
ROTATION = 7


def advance(state: int, octets: bytes) -> int:
    """The bare shift register after these bytes: without the inversions at both ends, so that it is linear."""
    return zlib.crc32(octets, state ^ ONES) ^ ONES


def _masks(columns: Sequence[int]) -> tuple[int, ...]:
    """For each bit of the next state: which bits it is the parity of, given the state that each of them alone leads to."""
    return tuple(sum(((column >> row) & 1) << index for index, column in enumerate(columns)) for row in range(32))


@cache
def update_masks(bus_bits: int) -> tuple[int, ...]:
    """For each bit of the next state: which bits of {word, state} it is the parity of; the state is in the low 32."""
    columns = [advance(1 << i, bytes(bus_bits // 8)) for i in range(32)]
    columns += [advance(0, (1 << i).to_bytes(bus_bits // 8, "little")) for i in range(bus_bits)]
    return _masks(columns)


def updated(module: Module, state: Signal, word: Signal) -> Expr:
    """The state after one more word, whose lowest byte came first: that of a clock ago."""
    masks = update_masks(word.width)
    share = module.register("crc_share", parities(module, "crc_word", [parity(word, mask >> 32) for mask in masks]))
    return parities(module, "crc", [odd_of(parity(state, mask & ONES), share.bit(i)) for i, mask in enumerate(masks)])


def parities(module: Module, name: str, values: Sequence[Expr]) -> Expr:
    """Bits as a word, the first the lowest, one line of text each."""
    return pack([(module.wire(f"{name}_bit{index}", value), 1) for index, value in enumerate(values)])


def seed(number: int) -> int:
    """The generator's first state for input `number`: different for each, never zero."""
    return (0x9E37_79B9 * (number + 1)) & ONES


def step(state: int) -> int:
    state ^= (state << 13) & ONES
    state ^= state >> 17
    return state ^ (state << 5) & ONES


@cache
def step_masks() -> tuple[int, ...]:
    """For each bit of the next state: which bits of the state it is the parity of."""
    return _masks([step(1 << i) for i in range(32)])


def random_bits(lo: int, hi: int) -> int:
    """How many random bits, added to lo, never exceed hi; 31 at most."""
    return min(31, (hi - lo + 1).bit_length() - 1)


def channel_bits(channel: int, count: int) -> list[int]:
    """Which bits of the state make a channel's value, lowest first."""
    return [(ROTATION * channel + i) % 32 for i in range(count)]


def pattern_frame(port: StreamPort, number: int, lo: int, hi: int) -> npt.NDArray[np.int64]:
    """The frame that input `number` gets in the self-test, shaped (channels, height, width)."""
    states = np.empty(port.beats, dtype=np.uint64)
    state = seed(number)
    for beat in range(port.beats):
        states[beat] = state
        state = step(state)
    frame = np.zeros((port.fields, port.beats), dtype=np.int64)
    for channel in range(port.fields):
        for place, bit in enumerate(channel_bits(channel, random_bits(lo, hi))):
            frame[channel] |= (((states >> np.uint64(bit)) & np.uint64(1)) << np.uint64(place)).astype(np.int64)
    pixels = (frame + lo).T.reshape(port.height, port.width, port.words * port.fields)[:, :, :port.channels]
    return np.ascontiguousarray(pixels.transpose(2, 0, 1))


def pattern_module(name: str, port: StreamPort, number: int, lo: int, hi: int) -> Module:
    """One frame of the pattern after each reset, while `run` is set."""
    m = Module(name, (f"Test pattern of {port.beats} beats, {port.fields} x {port.bits} bits.",))
    run, out_ready = m.input("run"), m.input("out_ready")
    state, ended = signal("state", 0, ONES), signal("ended")
    valid = m.wire("valid", all_of(run, ~ended))
    taken = m.wire("taken", all_of(valid, out_ready))
    _, last = m.counted("pixel", port.beats, taken)
    m.drive(ended, const(1), all_of(taken, last), 0)
    m.drive(state, parities(m, "state", [parity(state, mask) for mask in step_masks()]), taken, seed(number))
    count = random_bits(lo, hi)
    fields = []
    for channel in range(port.fields):
        chosen = [(state.bit(bit), 1) for bit in channel_bits(channel, count)]
        drawn = m.wire(f"drawn{channel}", pack(chosen) if chosen else const(0))
        value = m.wire(f"channel{channel}", drawn + lo)
        fields.append((value, port.bits))
    m.drive_outputs(out_valid=valid, out_data=pack(fields))
    return m
