"""What leaves a module that moves beats: which bit of which beat each of its outputs is, in order, without loss or repetition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dovetail.fpga.engines.stream import Format
from dovetail.fpga.proofs.exploration import StateWatch
from dovetail.fpga.proofs.tokens import OFFERED, OLDEST, Integers, token
from dovetail.hardware.streaming import Raster

Flags = NDArray[np.bool_]
"""A truth of every state."""
Place = tuple[int, int, int] | int | None
"""(input, beat of the period, bit), a constant 0 or 1, or None where a bit says nothing."""


@dataclass(frozen=True, slots=True)
class Flow:
    """Names of a stream's wires, its data from the lowest up; without `ready` it is always taken."""

    valid: str
    ready: str | None
    data: tuple[str, ...]


@dataclass(frozen=True)
class Moves:
    """Streams in and streams out, over a period of `taken` beats of every input; `places` of every output, by beat and bit."""

    inputs: tuple[Flow, ...]
    taken: tuple[int, ...]
    outputs: tuple[Flow, ...]
    places: tuple[tuple[tuple[Place, ...], ...], ...]
    patience: int = 16
    most: int = 200
    """Beats of an input that are inside at the most; more are a loss."""

    @property
    def numbers(self) -> int:
        """Per output its beat of the period, and per input the beats taken since that period began."""
        return len(self.outputs) * (1 + len(self.inputs))

    def observe(self, watch: StateWatch, numbers: Integers) -> tuple[Integers, Mapping[int, NDArray[np.bool_]],
                                                                 Mapping[str, NDArray[np.bool_]], NDArray[np.bool_]]:
        """As `Monitor` says."""
        after, broken, one = numbers.copy(), dict[str, NDArray[np.bool_]](), len(self.inputs) + 1
        every: Flags = np.ones(len(numbers), dtype=np.bool_)
        always = every, every
        ready_of = [watch.flag(s.ready) if s.ready else always for s in (*self.inputs, *self.outputs)]
        took = {s: watch.flag(i.valid)[0] & ready_of[s][0] for s, i in enumerate(self.inputs)}
        somewhere = np.zeros(len(numbers), dtype=np.bool_)
        for s, stream in enumerate(self.inputs):
            broken[f"{stream.ready} is known"] = ~ready_of[s][1]
            broken[f"no beat of input {s} is lost"] = np.asarray((numbers[:, 1 + s::one] > self.most).any(axis=1))
        for o, (stream, places) in enumerate(zip(self.outputs, self.places, strict=True)):
            valid, known = watch.flag(stream.valid)
            ready, _ = ready_of[len(self.inputs) + o]
            beat, since = numbers[:, o * one], numbers[:, o * one + 1:(o + 1) * one]
            broken[f"{stream.valid} is known"] = ~known
            data = np.concatenate([watch.codes(name) for name in stream.data], axis=1)
            broken[f"output {o} is the beat whose turn it is"] = valid & ~self._as_due(data, places, beat, since)
            left = valid & ready
            somewhere |= left
            ends = left & (beat == len(places) - 1)
            after[:, o * one] = np.where(ends, 0, beat + left)
            for s in took:
                after[:, o * one + 1 + s] = since[:, s] + took[s] - np.where(ends, self.taken[s], 0)
        return after, took, broken, somewhere

    def owes(self, numbers: Integers) -> Flags:
        """States in which all that an output needs is inside."""
        found, one = np.zeros(len(numbers), dtype=np.bool_), len(self.inputs) + 1
        for o, places in enumerate(self.places):
            for beat, expected in enumerate(places):
                needed = [(p[0], p[1]) for p in expected if isinstance(p, tuple)]
                last = [max((b for s, b in needed if s == stream), default=-1) for stream in range(len(self.inputs))]
                complete = (numbers[:, o * one + 1:(o + 1) * one] > np.array(last)).all(axis=1)
                found |= (numbers[:, o * one] == beat) & complete & bool(needed)
        return found

    def _as_due(self, codes: NDArray[np.int32], places: Sequence[Sequence[Place]], beat: Integers,
                since: Integers) -> NDArray[np.bool_]:
        """Whether every state's data are those of its beat."""
        good = np.zeros(len(codes), dtype=np.bool_)
        for number, expected in enumerate(places):
            here, right = beat == number, np.ones(len(codes), dtype=np.bool_)
            for bit, place in enumerate(expected):
                if isinstance(place, int):
                    right &= codes[:, bit] == place
                elif place is not None:
                    stream, source, source_bit = place
                    right &= codes[:, bit] == due(stream, since[:, stream] - 1 - source, source_bit)
            good |= here & right
        return good


def due(stream: int, age: Integers, bit: Integers | int) -> Integers:
    """The code of a beat that came so many beats before the newest; -1 is the one that is offered."""
    known = np.where(age == -1, OFFERED, np.clip(age, 0, OLDEST))
    return np.where(age < -1, -1, token(stream, known, bit))


@dataclass(frozen=True)
class TokenWindow:
    """The sliding window of an engine: behind every output's step, its taps are its pixels, and the fill in the padding.

    `taps` are (channel, row, column) to wire; `emit` is the wire that says that a step has an output, `delay` clocks before
    the taps are there.
    """

    raster: Raster
    form: Format
    fill: int
    emit: str
    delay: int
    taps: Mapping[tuple[int, int, int], str]
    step: str = "step"

    @property
    def patience(self) -> int:
        return self.raster.steps + self.raster.first + self.raster.stages + 4

    def owes(self, numbers: Integers) -> Flags:
        """None: outputs may leave with a later pixel."""
        return np.zeros(len(numbers), dtype=np.bool_)

    @property
    def numbers(self) -> int:
        """Pixels taken since the frame of the next output began, the next output, and the last outputs' steps."""
        return 2 + self.delay

    def observe(self, watch: StateWatch, numbers: Integers) -> tuple[Integers, Mapping[int, NDArray[np.bool_]],
                                                                 Mapping[str, NDArray[np.bool_]], NDArray[np.bool_]]:
        """As `Monitor` says."""
        since, output = numbers[:, 0], numbers[:, 1]
        emits, known = watch.flag(self.emit)
        steps, sure = watch.flag(self.step)
        history = [emits, *(numbers[:, 2 + age] == 1 for age in range(self.delay))]
        there = history[self.delay]
        took = watch.flag("in0_valid")[0] & watch.flag("in0_ready")[0]
        right = np.ones(len(numbers), dtype=np.bool_)
        for name, wire in self.taps.items():
            right &= self._as_due(name, watch.codes(wire), since, output)
        broken = {"whether a step has an output is known": ~known | ~sure,
                  "the taps are the window's": there & ~right,
                  "all outputs leave before the next frame": since > self.raster.beats + self.raster.stages,
                  "a step is made when it may": watch.flag("may_step")[0] & watch.flag("in0_valid")[0] & ~steps}
        ends = there & (output == self.raster.outputs - 1)
        after = numbers.copy()
        after[:, 0] = since + took - np.where(ends, self.raster.beats, 0)
        after[:, 1] = np.where(ends, 0, output + there)
        for age in range(self.delay):
            after[:, 2 + age] = history[age]
        return after, {0: took}, broken, there

    def _as_due(self, name: tuple[int, int, int], codes: NDArray[np.int32], since: Integers,
                output: Integers) -> NDArray[np.bool_]:
        """Whether a tap holds its pixel's channel, or the fill, of every state's output."""
        channel, row, column = name
        window, bits = self.raster.window, np.arange(codes.shape[1])
        y = output // self.raster.output_size[1] * window.stride[0] + row * window.dilation[0] - window.pads[0]
        x = output % self.raster.output_size[1] * window.stride[1] + column * window.dilation[1] - window.pads[1]
        inside = (y >= 0) & (y < self.raster.height) & (x >= 0) & (x < self.raster.width)
        source = channel * self.form.bits + np.minimum(bits, self.form.bits - 1)
        pixel = due(0, (since - 1 - (y * self.raster.width + x))[:, None], source)
        expected = np.where(inside[:, None], pixel, self.fill >> bits & 1)
        return np.asarray((codes == expected).all(axis=1))
