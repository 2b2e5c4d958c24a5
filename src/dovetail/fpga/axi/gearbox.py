"""Between bus words and pixels: both are units of their greatest common divisor, shifted through one buffer.

Neither gearbox loses a clock: bus and core move in every cycle that the slower of them allows.
"""

from __future__ import annotations

from math import gcd

from dovetail.fpga.design import StreamPort
from dovetail.fpga.packing import packet_words, pixel_bytes
from dovetail.fpga.rtl.expressions import Expr, Signal, all_of, any_of, compare, overlay, select, signal
from dovetail.fpga.rtl.modules import Module


def lifted(m: Module, value: Signal, position: Signal, unit_bits: int, limit_bits: int) -> Signal:
    """The value moved up by `position` units: a row of choices, one per bit of the position."""
    for index in range(position.width if position.hi else 0):
        moved = value << (unit_bits << index)
        chosen = select(position.bit(index), moved, value)
        value = m.wire(f"lifted_{index}", chosen, (0, (1 << min(limit_bits, chosen.width)) - 1))
    return value


def reaches(level: Signal, size: int, pop: Signal, ends: Signal, more: int = 0) -> Expr:
    """Whether `size` units are held when those of a clock have left, all of them where a frame `ends`, and `more` have come."""
    return select(ends, int(more >= size), select(pop, compare(">=", level, 2 * size - more), compare(">=", level, size - more)))


def frame_in_module(name: str, port: StreamPort, bus_bits: int) -> Module:
    """Words of packets in, pixels of frames out; `may_start` lets a frame begin.

    A packet that ends too soon is filled up with zeros (`early` for one cycle), one that does not end in time is dropped up
    to its end (`late`). `taken` marks words that count, `done` the last word of a frame.
    """
    pixel_bits, words = 8 * pixel_bytes(port), packet_words(port, bus_bits)
    m = Module(name, (f"Packets of {words} words of {bus_bits} bits to {port.beats} pixels of {port.data_bits} bits.",))
    in_valid, in_data, in_last = m.input("in_valid"), m.input("in_data", bus_bits), m.input("in_last")
    may_start, out_ready = m.input("may_start"), m.input("out_ready")
    filling, dropping, push, started = (signal(s) for s in ("filling", "dropping", "push", "started"))
    _, last = m.counted("word", words, push)
    m.drive(started, ~last, push, 0)
    m.wire("wanted", all_of(~dropping, any_of(started, may_start)))
    offered = m.wire("offered", any_of(filling, all_of(in_valid, signal("wanted"))))
    ready = _words_to_pixels(m, port, bus_bits, pixel_bits, offered, in_data, filling, out_ready)
    taken = m.wire("from_packet", all_of(push, ~filling))
    early = m.wire("ends_early", all_of(taken, in_last, ~last))
    late = m.wire("ends_late", all_of(taken, last, ~in_last))
    m.drive(filling, select(early, 1, select(all_of(push, last), 0, filling)), reset=0)
    m.drive(dropping, select(late, 1, select(all_of(in_valid, in_last), 0, dropping)), reset=0)
    m.drive_outputs(in_ready=any_of(dropping, all_of(ready, ~filling, signal("wanted"))),
                    active=any_of(started, filling, dropping), starved=all_of(started, ready, ~offered), taken=taken,
                    done=all_of(push, last), early=early, late=late)
    return m


def _words_to_pixels(m: Module, port: StreamPort, bus_bits: int, pixel_bits: int, offered: Signal, in_data: Signal,
                     filling: Signal, out_ready: Signal) -> Signal:
    """The buffer of a frame's way in; returns whether it takes a word, and defines `push`."""
    unit = gcd(bus_bits, pixel_bits)
    word, pixel = bus_bits // unit, pixel_bits // unit
    level, held = signal("level", 0, word + pixel - 1), signal("held", 0, (1 << (word + pixel - 1) * unit) - 1)
    valid, push = signal("valid"), signal("push")
    pop = m.wire("pop", all_of(valid, out_ready))
    _, end = m.counted("pixel", port.beats, pop)
    ends = m.wire("ends", all_of(pop, end))
    left = select(ends, 0, select(pop, level - pixel, level))
    after = m.wire("after", left, (0, word + pixel - 1))
    kept = m.wire("kept", select(ends, 0, select(pop, held >> pixel_bits, held)), (0, held.hi))
    ready = m.wire("takes", ~reaches(level, pixel, pop, ends))
    m.wire("push", all_of(offered, ready))
    m.drive(valid, select(push, reaches(level, pixel, pop, ends, word), ~ready), reset=0)
    fresh = m.wire("fresh", select(filling, 0, in_data), (0, (1 << bus_bits) - 1))
    place = m.wire("place", after, (0, pixel - 1))
    moved = lifted(m, fresh, place, unit, held.width)
    m.drive(level, select(push, after + word, after), reset=0)
    m.drive(held, select(push, overlay(kept, moved), kept), reset=0)
    m.drive_outputs(out_valid=valid, out_data=held.bits(0, port.data_bits))
    return ready


def frame_out_module(name: str, port: StreamPort, bus_bits: int) -> Module:
    """Pixels of frames in, words of packets out; zeros fill the last word."""
    pixel_bits, words = 8 * pixel_bytes(port), packet_words(port, bus_bits)
    unit = gcd(bus_bits, pixel_bits)
    word, pixel = bus_bits // unit, pixel_bits // unit
    m = Module(name, (f"{port.beats} pixels of {port.data_bits} bits to packets of {words} words of {bus_bits} bits.",))
    in_valid, in_data, out_ready = m.input("in_valid"), m.input("in_data", port.data_bits), m.input("out_ready")
    level, held = signal("level", 0, word + pixel - 1), signal("held", 0, (1 << (word + pixel - 1) * unit) - 1)
    ending, valid, pop, push = (signal(s) for s in ("ending", "valid", "pop", "push"))
    m.wire("pop", all_of(valid, out_ready))
    _, last = m.counted("word", words, pop)
    ends = m.wire("ends", all_of(pop, last))
    left = select(ends, 0, select(pop, level - word, level))
    after = m.wire("after", left, (0, word + pixel - 1))
    kept = m.wire("kept", select(ends, 0, select(pop, held >> bus_bits, held)), (0, held.hi))
    whole, goes_on = m.wire("whole", reaches(level, word, pop, ends)), m.wire("goes_on", all_of(ending, ~ends))
    ready = m.wire("takes", ~any_of(whole, goes_on))
    m.wire("push", all_of(in_valid, ready))
    _, end = m.counted("pixel", port.beats, push)
    m.drive(valid, select(push, any_of(reaches(level, word, pop, ends, pixel), end), ~ready), reset=0)
    place = m.wire("place", after, (0, word - 1))
    fresh = m.wire("fresh", in_data, (0, (1 << pixel_bits) - 1))
    moved = lifted(m, fresh, place, unit, held.width)
    m.drive(level, select(push, after + pixel, after), reset=0)
    m.drive(held, select(push, overlay(kept, moved), kept), reset=0)
    m.drive(ending, select(all_of(push, end), 1, goes_on), reset=0)
    m.drive_outputs(in_ready=ready, out_valid=valid, out_data=held.bits(0, bus_bits), out_last=last)
    return m
