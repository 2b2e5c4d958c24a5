"""Tensors that are alive at once never share memory, and those that are not do."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from dovetail.gpu.memory import planned
from dovetail.kernels.calls import Call
from dovetail.kernels.items import TensorLayout
from dovetail.kernels.launch import NOTHING


def place(name: str, channels: int) -> TensorLayout:
    return TensorLayout(name, 1, 3, 5, channels, channels)


def call(reads: list[TensorLayout], writes: TensorLayout) -> Call:
    return Call("add", (), (*reads, NOTHING, writes, 3), {}, lambda c: (1, 1, 1), ({},), (0.0,), writes)


@st.composite
def chains(draw: st.DrawFn) -> tuple[list[Call], list[TensorLayout]]:
    places, calls = [place("t0", draw(st.integers(1, 400)))], []
    for i in range(1, draw(st.integers(2, 12))):
        reads = draw(st.lists(st.sampled_from(places), min_size=1, max_size=3, unique=True))
        places.append(place(f"t{i}", draw(st.integers(1, 400))))
        calls.append(call(reads, places[-1]))
    return calls, [places[0], places[-1]]


@given(chains())
def test_what_is_alive_at_once_lies_apart(chain: tuple[list[Call], list[TensorLayout]]) -> None:
    calls, kept = chain
    memory = planned(calls, kept)
    ends = {n: at + memory.sizes[n] for n, at in memory.offsets.items()}
    for when, one in enumerate(calls):
        later = {o.buffer for c in calls[when:] for o in c.operands if isinstance(o, TensorLayout)}
        made = {c.output.buffer for c in calls[:when + 1]} | {o.buffer for o in one.operands if isinstance(o, TensorLayout)}
        alive = sorted((made & later) | {k.buffer for k in kept} | {one.output.buffer})
        for i, a in enumerate(alive):
            for b in alive[i + 1:]:
                assert ends[a] <= memory.offsets[b] or ends[b] <= memory.offsets[a], (when, a, b)
    assert max(ends.values()) == memory.elements


def test_a_chain_takes_four_places_however_long_it_is() -> None:
    places = [place(f"t{i}", 256) for i in range(20)]
    calls = [call([a], b) for a, b in pairwise(places)]
    assert planned(calls, [places[0], places[-1]]).elements == 4 * 15 * 256  # the ends, and two in between
