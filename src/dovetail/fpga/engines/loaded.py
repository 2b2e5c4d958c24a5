"""Weights that are loaded: memories of a folded engine that a stream fills, and for how many frames what it brought holds.

A set of weights begins with a beat whose lowest bits say how many frames it is for, 0 for all that come. Then follow the words
of every memory in their order, each in columns of a beat. The engine works on exactly those frames, waits until nothing in
flight reads its memories, and takes the next set: which weights a frame saw never depends on when they arrived.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dovetail.fpga.engines.stream import READ_STAGES, Format, Pipeline, Staged, in_blocks
from dovetail.fpga.rtl.expressions import ZERO, Const, Expr, Signal, all_of, any_bit, any_of, compare, const, pack, select, signal
from dovetail.fpga.rtl.modules import Memory, Module

BEAT_BYTES = 9
"""Of a beat: 72 bits, the widest word of a block memory of Xilinx's."""
BEAT_BITS = 8 * BEAT_BYTES
FRAME_BITS = 16
"""Of the number of frames that a set is for."""
MOST_MEMORIES = 3
"""Memories of an engine: the counter over them has two bits."""
MAY_WORK = signal("weights_hold")
"""Whether a set is loaded and holds for the frame that comes; defined by `Store.close`."""


def columns_of(width: int) -> list[int]:
    """Bits of the columns in which a word is written."""
    return [min(BEAT_BITS, width - at) for at in range(0, width, BEAT_BITS)]


def beats_of(words: Sequence[Sequence[int]], widths: Sequence[int], frames: int) -> NDArray[np.uint8]:
    """A set for so many frames as (beats, bytes): for every memory its words, each of its width."""
    beats = [frames]
    for own, width in zip(words, widths, strict=True):
        beats += [word >> c * BEAT_BITS & (1 << size) - 1 for word in own for c, size in enumerate(columns_of(width))]
    return np.frombuffer(b"".join(b.to_bytes(BEAT_BYTES, "little") for b in beats), dtype=np.uint8).reshape(-1, BEAT_BYTES)


@dataclass(slots=True)
class LoadedMemories:
    """The loaded memories of an engine under construction: (name, width, depth) in the order in which they are filled."""

    module: Module
    memories: list[tuple[str, int, int]] = field(default_factory=list)

    def read(self, pipeline: Pipeline, name: str, width: int, depth: int, at: Signal | Const, stage: int) -> Signal:
        """A word at `stage`, from an address of stage 0."""
        module, part = self.module, len(self.memories)
        address = pipeline.at(Staged(at, 0), stage - READ_STAGES)
        self.memories.append((name, width, depth))
        columns = columns_of(width)
        written_at = ZERO if depth == 1 else signal(f"{name}_written_at", 0, depth - 1)
        column = ZERO if len(columns) == 1 else signal(f"{name}_column", 0, len(columns) - 1)
        fields: list[tuple[Expr, int]] = []
        for c, size in enumerate(columns):
            read = signal(f"{name}_read_{c}", 0, (1 << size) - 1)
            chosen = all_of(signal("load_takes"), compare("==", signal("load_part", 0, MOST_MEMORIES), part + 1),
                            compare("==", column, c))
            write = module.register(f"{name}_write_{c}", chosen, reset=0)
            value = signal("loaded", 0, (1 << BEAT_BITS) - 1).bits(0, size)
            module.memories.append(Memory(f"{name}_store_{c}", size, depth, write, written_at, value, address, read,
                                          in_blocks(depth, size)))
            fields.append((read, size))
        return module.register(f"{name}_word", pack(fields))

    @property
    def form(self) -> Format:
        """Of the stream that fills them: a frame is a set."""
        beats = 1 + sum(depth * len(columns_of(width)) for _, width, depth in self.memories)
        return Format(BEAT_BYTES, 8, False, 0, 255, 1, beats)

    def close(self, slot: Signal, steps: int, stages: int) -> None:
        """Ports and order of loading: `slot` is a step of `steps` per frame, of which nothing is read `stages` clocks later."""
        m = self.module
        valid, data = m.input("load_valid"), m.input("load_data", BEAT_BITS)
        rest = signal("load_rest", 0, stages)
        working = signal("load_working")
        ready = m.wire("load_may_take", all_of(~working, compare("==", rest, 0)))
        takes = m.wire("load_takes", all_of(valid, ready))
        m.output("load_ready", ready)
        m.register("loaded", data)
        part = signal("load_part", 0, MOST_MEMORIES)
        ends = compare("==", part, 0)
        finished: Expr = ZERO
        for k, (name, width, depth) in enumerate(self.memories):
            own = m.wire(f"{name}_takes", all_of(takes, compare("==", part, k + 1)))
            _, last_column = m.counted(f"{name}_column", len(columns_of(width)), own)
            _, last_word = m.counted(f"{name}_address", depth, all_of(own, last_column))
            if depth > 1:
                m.register(f"{name}_written_at", signal(f"{name}_address", 0, depth - 1))
            finished = m.wire(f"{name}_full", all_of(own, last_column, last_word))
            ends = select(compare("==", part, k + 1), all_of(last_column, last_word), ends)
        m.drive(part, select(finished, 0, part - const(-1)), all_of(takes, ends), 0)
        self._frames(data, all_of(takes, compare("==", part, 0)), finished, slot, steps, working, rest, stages)

    def _frames(self, data: Signal, begins: Expr, finished: Expr, slot: Signal, steps: int, working: Signal, rest: Signal,
                stages: int) -> None:
        """How long a set holds. The last word is written a clock after it was taken, so work begins a clock later too."""
        m = self.module
        left = signal("set_frames_left", 0, (1 << FRAME_BITS) - 1)
        _, last_step = m.counted("set_frame_step", steps, slot)
        ended = m.wire("set_frame_ends", all_of(slot, last_step))
        counted = m.wire("set_frames_counted", any_bit(left.bits(0, FRAME_BITS)))
        m.drive(left, select(ended, left - counted, data.bits(0, FRAME_BITS)), any_of(ended, begins), 0)
        stops = m.wire("set_ends", all_of(ended, compare("==", left, 1)))
        m.drive(working, select(stops, 0, 1), any_of(stops, finished), 0)
        begun = m.register("load_done", all_of(working, ~stops), reset=0)
        m.wires.append((MAY_WORK, all_of(working, begun)))
        m.drive(rest, select(stops, stages, rest - any_bit(rest.bits(0, rest.width))), reset=0)
