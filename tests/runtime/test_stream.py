"""Streams: devices and frames at the same time, results in order and equal to those of one stage after another."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from threading import Barrier, Event

import numpy as np
import pytest

from dovetail import pipeline
from dovetail.errors import UsageError
from dovetail.ir import Array
from dovetail.ir.onnx.write import to_onnx
from dovetail.numerics.reference import run_integer
from dovetail.partition.plan import whole_on
from dovetail.platform.load import load_platform
from dovetail.runtime.build import Build, run_stored, synthetic_integers
from dovetail.runtime.record import RunRecord
from dovetail.runtime.stages import emulate, gather, needs
from dovetail.runtime.verification import expect_partials
from dovetail.runtime.workers import StreamOptions, random_delays
from tests.fpga.joined_boards import chain, narrow

FRAMES = 12


def single(stored: dict[str, Array]) -> Iterator[dict[str, Array]]:
    """Frames one by one."""
    return ({name: x[i : i + 1] for name, x in stored.items()} for i in range(len(next(iter(stored.values())))))


def joined(results: list[dict[str, Array]], name: str) -> Array:
    return np.concatenate([r[name] for r in results])


def test_twenty_orders_of_all_workers_give_the_integers_of_the_sequential_run(divided: Build) -> None:
    stored = synthetic_integers(divided.graph, FRAMES, seed=3)
    expected = run_integer(divided.graph, stored, keep=True)
    for segment in divided.program.segments:
        expect_partials(segment, expected, divided.program)
    (name,) = divided.graph.outputs
    np.testing.assert_array_equal(run_stored(divided, stored)[name], expected[name])
    orders = set()
    for seed in range(20):
        record, options = RunRecord(), StreamOptions(1 + seed % 5, frames=FRAMES, delay=random_delays(seed, 0.003), keep=True)
        with divided.open_stream(options, record) as stream:
            found = list(stream.results(single(stored)))
        for tensor in found[0]:
            np.testing.assert_array_equal(joined(found, tensor), expected[tensor])
        computed = [s for s in record.spans if s.kind == "compute"]
        assert {s.name for s in divided.program.segments} == {s.stage for s in computed}
        for stage in {s.stage for s in computed}:
            seen = [f for s in computed if s.stage == stage for f in range(s.frame, s.frame + s.frames)]
            assert sorted(seen) == list(range(FRAMES))
        orders.add(tuple((s.stage, s.frame) for s in computed))
    assert len(orders) > 10, "workers overtake each other"


def test_stages_begin_when_what_they_read_is_there_and_branches_overlap(divided: Build) -> None:
    """The first two stages begin together or not at all; the last one holds frame 0 until the first has begun frame 1."""
    first_frame, second_frame = single(synthetic_integers(divided.graph, 2, seed=4))
    stages, record = divided.stages(), RunRecord()
    waits = needs(stages)
    first = [stage.name for stage, before in zip(stages, waits, strict=True) if not before]
    branches, held, begun = Barrier(len(first)), Event(), Event()

    def hold(stage: str, frame: int) -> None:
        if stage in first:
            branches.wait(60) if frame == 0 else begun.set()
        if (stage, frame) == (stages[-1].name, 0):
            held.set()
            assert begun.wait(60)

    with divided.open_stream(StreamOptions(frames=2, delay=hold), record) as stream:
        results = [stream.submit(first_frame)]
        assert held.wait(60)
        results.append(stream.submit(second_frame))
        for result in results:
            result.result(60)
    spans = {(s.stage, s.frame): s for s in record.spans if s.kind == "compute"}
    assert len(first) == 2
    assert all(spans[stages[i].name, frame].stop_s <= spans[stage.name, frame].start_s
               for stage, before in zip(stages, waits, strict=True) for i in before for frame in (0, 1))


def test_a_stage_emulated_on_the_cpu_gives_the_same_integers(divided: Build) -> None:
    stored = synthetic_integers(divided.graph, 3, seed=5)
    memory = dict(stored)
    for stage in divided.stages():
        inputs = gather(stage, memory)
        results = stage.part.run(inputs)
        again = emulate(stage, inputs, divided.program)
        for binding in stage.writes:
            np.testing.assert_array_equal(again[binding.name], results[binding.name].reshape(again[binding.name].shape))
            memory.setdefault(binding.tensor, np.zeros((3, *divided.program.tensors[binding.tensor].shape[1:]),
                                                       divided.program.tensors[binding.tensor].dtype))
            memory[binding.tensor][(slice(None), *(slice(*r) for r in binding.region[1:]))] = again[binding.name]


def test_the_source_is_asked_only_when_there_is_room_and_results_look_as_those_of_run(streamed: Build) -> None:
    frames = np.random.default_rng(1).random((10, 2, 8, 8), dtype=np.float32)
    asked = 0

    def source() -> Iterator[Array]:
        nonlocal asked
        for frame in frames:
            asked += 1
            yield frame[None]

    results = []
    for number, result in enumerate(streamed.stream(source(), options=StreamOptions(3, frames=10))):
        assert asked <= number + 3
        results.append(result)
    assert isinstance(results[0], np.ndarray)
    np.testing.assert_array_equal(np.concatenate(results), streamed.run(frames))
    named = list(streamed.stream([{"image": frames[:4]}, {"image": frames[4:]}]))
    np.testing.assert_array_equal(np.concatenate([r["fc_out"] for r in named]), streamed.run(frames))


def test_a_reader_that_leaves_early_ends_workers_and_simulators(streamed: Build) -> None:
    frames = np.zeros((8, 1, 2, 8, 8), dtype=np.float32)
    results = streamed.stream(list(frames), in_flight=4)
    next(results)
    results.close()
    assert len(list(streamed.stream(list(frames)))) == 8, "the next stream begins anew"


def test_results_of_an_asynchronous_stream_do_not_wait_for_later_frames(streamed: Build) -> None:
    frames = np.random.default_rng(2).random((5, 1, 2, 8, 8), dtype=np.float32)

    async def collect() -> list[Array]:
        came, found = asyncio.Semaphore(1), []

        async def source() -> AsyncIterator[Array]:
            for frame in frames:
                await came.acquire()  # the next frame comes after the last result was seen
                yield frame

        async for result in streamed.stream_async(source(), options=StreamOptions(3, frames=5)):
            found.append(result)
            came.release()
        return found

    np.testing.assert_array_equal(np.concatenate(asyncio.run(asyncio.wait_for(collect(), 60))), streamed.run(frames[:, 0]))


def test_boards_joined_by_links_are_one_stage_of_a_stream(tmp_path: Path) -> None:
    model = tmp_path / "chain.onnx"
    model.write_bytes(to_onnx(chain(2)))
    build = pipeline.compile(model, narrow(load_platform("fic:2")), tmp_path / "build",
                             assignment={"n0": whole_on("fpga0"), "n1": whole_on("fpga1")}, verify=False)
    stored = synthetic_integers(build.graph, 3, seed=1)
    record = RunRecord()
    with build.open_stream(StreamOptions(3, frames=3), record) as stream:
        found = list(stream.results(single(stored)))
    np.testing.assert_array_equal(joined(found, "y1"), run_stored(build, stored)["y1"])
    assert {s.stage: s.resource for s in record.spans if s.kind == "compute"} == {"boards0": "fpga0+fpga1"}
    assert set(record.cycles) == {"boards0"}


@pytest.mark.quick
@pytest.mark.parametrize(("options", "message"), [
    ({"in_flight": 0}, "stream: 0 frames in flight; at least 1 is needed"),
    ({"timeout_s": 0.0}, "stream: a timeout of 0 s; more than 0 is needed")])
def test_options_that_make_no_stream_are_refused(options: dict[str, int], message: str) -> None:
    with pytest.raises(UsageError, match=f"^{message}$"):
        StreamOptions(**options)
