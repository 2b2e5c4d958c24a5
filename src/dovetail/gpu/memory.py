"""Where tensors lie in one piece of memory: those that are never alive at once share their place."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from dovetail.kernels.calls import Call, LibraryPart
from dovetail.kernels.items import TensorLayout

ALIGNED = 256
"""Elements at whose multiples buffers begin (chosen: a multiple of every vector and cache line)."""


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Offsets of buffers and the size of all, in elements."""

    offsets: Mapping[str, int]
    sizes: Mapping[str, int]
    elements: int


def planned(calls: Sequence[Call | LibraryPart], kept: Collection[TensorLayout]) -> MemoryPlan:
    """Places for the buffers of calls that run one after another; `kept` ones (inputs, outputs) hold their values throughout.

    Largest first, of equal ones the earliest, each at the lowest place that nothing alive at the same time takes.
    """
    sizes: dict[str, int] = {}
    alive: dict[str, tuple[int, int]] = {}

    def used(place: TensorLayout, first: int, last: int) -> None:
        begun, ended = alive.get(place.buffer, (first, last))
        alive[place.buffer] = (min(begun, first), max(ended, last))
        sizes[place.buffer] = max(sizes.get(place.buffer, 0), place.pixels * place.pitch)

    for place in kept:
        used(place, 0, len(calls))
    for when, call in enumerate(calls):
        for operand in call.operands if isinstance(call, LibraryPart) else (*call.operands, call.output):
            if isinstance(operand, TensorLayout):
                used(operand, when, when)
    offsets: dict[str, int] = {}
    for name in sorted(sizes, key=lambda n: (-sizes[n], alive[n], n)):
        taken = sorted((offsets[o], offsets[o] + sizes[o]) for o in offsets
                       if alive[o][0] <= alive[name][1] and alive[name][0] <= alive[o][1])
        at = 0
        for begin, end in taken:
            if at + sizes[name] <= begin:
                break
            at = max(at, -(-end // ALIGNED) * ALIGNED)
        offsets[name] = at
    return MemoryPlan(offsets, sizes, max((offsets[n] + sizes[n] for n in sizes), default=0))
