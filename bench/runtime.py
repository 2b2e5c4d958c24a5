"""Devices at the same time and frames in a pipeline, beside one stage after another and beside the plan; devices that fail.

`python bench/runtime.py --json FILE`: the bundled example on its board, two networks of the zoo over two simulated FPGAs each.
Results in every tensor are compared with the integer reference, in random orders of the workers. Simulated boards are judged in
virtual time: by the clocks they took. Seconds are the machine's, under the load average that is recorded. Fewer frames than asked
for are run where they would take more than `LONGEST_S`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform as machine
import signal
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

import numpy as np

from dovetail import pipeline, zoo
from dovetail.fpga.part import FpgaPart
from dovetail.ir import Array
from dovetail.numerics.reference import run_integer
from dovetail.planning import Options
from dovetail.runtime.build import Build, run_stored
from dovetail.runtime.record import RunRecord
from dovetail.runtime.stream import FrameStream
from dovetail.runtime.verification import expect_partials, stimulus
from dovetail.runtime.virtual import frames_per_s, steps_of, virtual_stream
from dovetail.runtime.workers import OnFailure, StreamOptions, random_delays
from lib.several_boards import divided_build, several

EXAMPLE = Path(__file__).parents[1] / "examples" / "fashion"
LONGEST_S = 60.0
"""What the sequential run may take. Chosen."""
ORDER_FRAMES = 6
"""Frames of every random order of the workers."""
DELAY_S = 0.02
"""The longest pause of a worker in such an order."""
HUNG_S = 1.0
"""After which a simulator that was stopped has failed, in the part on faults."""
WITHIN = 0.03
"""By how much a stream's frames/s in virtual time may differ from the plan's."""
ZOO = (("mobilenet-v1", 0.25, 32, "kcu105", 16_384), ("resnet18", 0.25, 32, "zcu102", 16_384))
"""Network, width, side of the image, board whose FPGA is there twice, clocks that a layer may take per frame."""


def single(stored: dict[str, Array]) -> Iterator[dict[str, Array]]:
    return ({name: x[i : i + 1] for name, x in stored.items()} for i in range(len(next(iter(stored.values())))))


def reference(build: Build, stored: dict[str, Array]) -> dict[str, Array]:
    """Every tensor that crosses between stages."""
    expected = run_integer(build.graph, stored, keep=True)
    for segment in build.program.segments:
        expect_partials(segment, expected, build.program)
    return expected


def wrong_frames(found: list[dict[str, Array]], expected: dict[str, Array]) -> int:
    """Frames with a tensor that is not the reference's, and frames that are lost or too many."""
    count = len(next(iter(expected.values())))
    return abs(len(found) - count) + sum(any(not np.array_equal(x[0], expected[name][i]) for name, x in frame.items())
                                         for i, frame in enumerate(found[:count]))


def timed(build: Build, frames: int) -> dict[str, Any]:
    """One build, run one stage after another and as a stream."""
    few = stimulus(build, 4)
    run_stored(build, few)  # compiles simulators
    start = time.monotonic()
    run_stored(build, few)
    chosen = max(8, min(frames, int(LONGEST_S / ((time.monotonic() - start) / 4))))
    stored = stimulus(build, chosen)
    expected = reference(build, stored)
    run_stored(build, stored)
    one, start = RunRecord(), time.monotonic()
    outputs = run_stored(build, stored, record=one)
    sequential_s = time.monotonic() - start
    many, in_flight = RunRecord(), build.in_flight
    with build.open_stream(StreamOptions(in_flight, frames=chosen, keep=True), many) as stream:
        start = time.monotonic()
        found = list(stream.results(single(stored)))
        concurrent_s = time.monotonic() - start
    equal = not wrong_frames(found, expected) and all(np.array_equal(outputs[name], expected[name]) for name in outputs)
    virtual = frames_per_s(virtual_stream(steps_of(build, build.stages(), one.cycles), 64, in_flight))
    planned = 1 / build.plan.interval_s
    return {"frames": chosen, "load_average": os.getloadavg()[0], "in_flight": in_flight, "stages": len(build.stages()),
            "simulated_boards": sum(s.pipelined for s in build.stages()),
            "sequential_s": sequential_s, "concurrent_s": concurrent_s,
            "planned_s": build.plan.latency_s + (chosen - 1) * build.plan.interval_s,
            "frames_per_s": {"sequential": chosen / sequential_s, "concurrent": chosen / concurrent_s, "planned": planned,
                             "virtual": virtual},
            "virtual_beside_plan": virtual / planned, "clocks": {n: [c[0], c[-1] - c[-2]] for n, c in one.cycles.items()},
            "tensors": len(found[0]), "equal": equal}


def ordered(build: Build, orders: int) -> dict[str, Any]:
    """The same frames in random orders of the workers."""
    stored = stimulus(build, ORDER_FRAMES)
    expected, wrong = reference(build, stored), 0
    for seed in range(orders):
        options = StreamOptions(1 + seed % ORDER_FRAMES, frames=ORDER_FRAMES, delay=random_delays(seed, DELAY_S), keep=True)
        with build.open_stream(options) as stream:
            wrong += wrong_frames(list(stream.results(single(stored))), expected)
    return {"orders": orders, "frames_of_each": ORDER_FRAMES, "wrong_or_lost": wrong}


class Fault:
    """A signal to the simulator of a stage at a seeded random moment."""

    def __init__(self, build: Build, seed: int) -> None:
        drawn = Random(seed)
        self.stage = drawn.choice([s.name for s in build.stages() if s.pipelined])
        self.number = drawn.choice((signal.SIGKILL, signal.SIGSTOP))
        self.frame, self.after_s = drawn.randrange(ORDER_FRAMES), drawn.random() * 5e-3
        self.stream: FrameStream | None = None

    def __call__(self, stage: str, frame: int) -> None:
        if self.stream is None or stage != self.stage or frame < self.frame:
            return
        part = next(s.part for s in self.stream.stages if s.name == stage)
        assert isinstance(part, FpgaPart)
        assert part.simulator is not None
        self.stream = None
        time.sleep(self.after_s)
        os.kill(part.simulator.process.pid, self.number)


def faulty(build: Build, moments: int) -> dict[str, Any]:
    """Simulators killed and stopped; nothing may be wrong or lost."""
    stored = stimulus(build, ORDER_FRAMES)
    expected, wrong, recovered = reference(build, stored), 0, list[float]()
    for seed in range(moments):
        fault, record = Fault(build, seed), RunRecord()
        options = StreamOptions(3, OnFailure.FALLBACK, HUNG_S, ORDER_FRAMES, fault, True)
        with build.open_stream(options, record) as stream:
            fault.stream = stream
            wrong += wrong_frames(list(stream.results(single(stored))), expected)
        recovered += [f.recovered_s for f in record.failures if f.recovered_s is not None]
    return {"moments": moments, "failures_reported": len(recovered), "wrong_or_lost": wrong, "timeout_s": HUNG_S,
            "recovered_s": {"median": median(recovered), "worst": max(recovered)} if recovered else None}


def builds(work: Path) -> Iterator[tuple[str, Build]]:
    """The builds that are run."""
    yield "fashion on tx2-c10gx", pipeline.compile(
        EXAMPLE / "fashion.onnx", "tx2-c10gx", work / "fashion", options=Options(fold="none", thrift=0.05),
        calibration=EXAMPLE / "calibration.npz", verify=False)
    for name, width, size, board, clocks in ZOO:
        model = work / f"{name}.onnx"
        model.write_bytes(zoo.build(name, size=size, width=width))
        yield f"{name}-{width:g}-{size} on 2x {board}", divided_build(model, several(board, 2), clocks, work / name)


def main() -> int:
    """Run all builds and write the record."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--frames", type=int, default=64)
    arguments.add_argument("--orders", type=int, default=20)
    arguments.add_argument("--faults", type=int, default=40, help="moments at which a simulator of the first build fails")
    arguments.add_argument("--json", type=Path, required=True)
    options = arguments.parse_args()
    record: dict[str, Any] = {
        "command": f"python bench/runtime.py --frames {options.frames} --orders {options.orders} --faults {options.faults} "
                   f"--json {options.json}", "date": datetime.now(UTC).date().isoformat(),
        "versions": f"Python {machine.python_version()}, {machine.machine()}, {os.cpu_count()} cores", "builds": {}}
    ok = True
    with tempfile.TemporaryDirectory() as name:
        for title, build in builds(Path(name)):
            found = timed(build, options.frames) | {"interleavings": ordered(build, options.orders)}
            found["equal"] = found["equal"] and not found["interleavings"]["wrong_or_lost"]
            if options.faults and not record["builds"]:
                found["faults"] = faulty(build, options.faults)
                ok &= not found["faults"]["wrong_or_lost"]
            ok &= found["equal"] and abs(found["virtual_beside_plan"] - 1) <= WITHIN
            record["builds"][title] = found
            print(title, json.dumps(found), flush=True)
            options.json.write_text(json.dumps(record, indent=1) + "\n")
    return 0 if ok else 1


if __name__ == "__main__":
    raise SystemExit(main())
