"""What a network's kernels take on a GPU: from their estimates, corrected class by class, or from each of them timed alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, inf, isfinite, log
from statistics import median

from dovetail.gpu.executor import options_of
from dovetail.gpu.remembered import Tiles
from dovetail.kernels.calls import Call, Lowered
from dovetail.kernels.conv import ConvShape
from dovetail.kernels.estimator import Config

LEAST_KERNELS = 3
"""Kernels of a class that a factor of its own needs (chosen); with fewer, that of its kernel counts, or of all."""


def classes_of(call: Call) -> tuple[str, ...]:
    """Classes of a kernel, the narrowest first; convolutions by what they read: an image, windows or pixels."""
    shape, read = call.shape, ""
    if isinstance(shape, ConvShape):
        read = " of an image" if shape.scattered else " of windows" if shape.steps_of > 1 else " of pixels"
    return tuple(dict.fromkeys((call.kernel + read, call.kernel, "")))


def copied_channels(call: Call) -> int:
    """Channels of another map that a kernel copies beside its own work, as shuffles of channels do; no estimate counts them."""
    return int(call.constants.get("AC", 0))


@dataclass(frozen=True, slots=True)
class Factors:
    """What kernels take alone over what they are estimated to, by class; and kernels in a network over the same ones alone."""

    by_class: Mapping[str, float]
    copied_s: float
    """Seconds per channel that a kernel copies beside."""
    in_place: float

    def alone_s(self, call: Call) -> float:
        """Seconds of a kernel alone, as estimated and corrected."""
        factor = next(self.by_class[c] for c in classes_of(call) if c in self.by_class)
        return call.estimates_s[0] * factor + self.copied_s * copied_channels(call)

    def network_s(self, lowered: Lowered) -> float:
        """Seconds of a network's kernels in their places: the division that is fastest by corrected estimates."""
        return self.in_place * sum(self.run_s(ways) for ways in options_of(lowered))

    def run_s(self, ways: Sequence[tuple[int, int, Call]]) -> float:
        """Seconds of the fastest division of one run of layers."""
        best = [0.0]
        for stop in range(1, 2 + max(last for _, last, _ in ways)):
            best.append(min((best[first] + self.alone_s(call) for first, last, call in ways if last == stop - 1), default=inf))
        return best[-1]


@dataclass(frozen=True, slots=True)
class TimedKernel:
    """A kernel that was timed alone with its best tile."""

    classes: tuple[str, ...]
    seconds: float
    estimated_s: float
    copied: int


def chosen_s(calls: Sequence[tuple[Call, Config]], tiles: Mapping[str, Tiles]) -> float:
    """Sum of what a network's kernels took when each was timed alone, with the tiles that were chosen."""
    return sum(next((s for s, tile in tiles[call.key] if dict(tile) == dict(config)), tiles[call.key][0][0])
               for call, config in calls)


def timed_kernels(lowered: Lowered, tiles: Mapping[str, Tiles]) -> list[TimedKernel]:
    """Every kernel that could compute a part of a network and was timed, once."""
    known = {call.key: call for ways in options_of(lowered) for *_, call in ways
             if tiles.get(call.key) and isfinite(tiles[call.key][0][0])}
    return [TimedKernel(classes_of(call), tiles[key][0][0], call.estimates_s[0], copied_channels(call))
            for key, call in known.items()]


def fitted(kernels: Sequence[TimedKernel], in_place: Sequence[float]) -> Factors:
    """Factors from kernels of networks that calibrate; `in_place`: their kernels in their places over the same alone."""
    logs: dict[str, list[float]] = {}
    for kernel in kernels:
        for name in kernel.classes if not kernel.copied else ():
            logs.setdefault(name, []).append(log(kernel.seconds / kernel.estimated_s))
    own = {"": 1.0, **{name: exp(sum(v) / len(v)) for name, v in logs.items() if len(v) >= LEAST_KERNELS or not name}}
    beside = [(k.seconds - k.estimated_s * next(own[c] for c in k.classes if c in own)) / k.copied for k in kernels if k.copied]
    return Factors(own, max(0.0, median(beside)) if beside else 0.0, exp(sum(log(x) for x in in_place) / len(in_place)))
