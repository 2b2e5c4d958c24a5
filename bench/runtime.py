"""Devices at the same time and frames in a pipeline, beside one stage after another and beside the plan; devices that fail.

`python bench/runtime.py --json FILE`: the bundled example on its board, two networks of the zoo over two simulated FPGAs each.
Results in every tensor are compared with the integer reference, in random orders of the workers. Simulated boards are judged in
virtual time: by the clocks they took. Seconds are the machine's, under the load average that is recorded. Fewer frames than asked
for are run where they would take more than `LONGEST_S`.

`--part faults`: processes killed and hung, words of links flipped, boards reset, each at so many seeded random moments of a
stream (`lib/faults.py`). FILE is written after every moment, and a run goes on from the moments it holds.

`--device cuda`, on a machine with a GPU (torch, triton, onnxruntime, onnx, SciPy): networks cut between GPU and CPU where both
take about as long, one part after another and as a stream (`lib/execution/pipelines.py`). FILE is written after every network,
and a run goes on from those it holds. With `--quick` and TRITON_INTERPRET=1 ONNX Runtime takes the GPU's part: figures of no
worth, which show that the script works.
"""

from __future__ import annotations

import argparse
import json
import os
import platform as machine
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from dovetail import pipeline, zoo
from dovetail.files import replace_bytes, replace_text
from dovetail.ir import Array, Axis, Graph
from dovetail.ir.onnx.read import read_onnx
from dovetail.ir.onnx.write import to_onnx
from dovetail.numbers import decide_numbers
from dovetail.numerics.equalize import Equalise
from dovetail.numerics.reference import run_integer
from dovetail.partition.plan import Piece, Split, whole_on
from dovetail.planning import Options
from dovetail.runtime.build import Build, run_stored
from dovetail.runtime.record import RunRecord
from dovetail.runtime.verification import expect_partials, stimulus
from dovetail.runtime.virtual import frames_per_s, steps_of, virtual_stream
from dovetail.runtime.workers import StreamOptions, random_delays
from lib.faults import COLUMNS, campaign, single
from lib.several_boards import divided_build, several
from lq import small_network

EXAMPLE = Path(__file__).parents[1] / "examples" / "fashion"
LONGEST_S = 60.0
"""What the sequential run may take. Chosen."""
ORDER_FRAMES = 6
"""Frames of every random order of the workers."""
DELAY_S = 0.02
"""The longest pause of a worker in such an order."""
WITHIN = 0.03
"""By how much a stream's frames/s in virtual time may differ from the plan's."""
ZOO = (("mobilenet-v1", 0.25, 32, "kcu105", 16_384), ("resnet18", 0.25, 32, "zcu102", 16_384))
"""Network, width, side of the image, board whose FPGA is there twice, clocks that a layer may take per frame."""
PARTS = ("streams", "faults")


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


def example(work: Path) -> Build:
    """The bundled example on its board."""
    return pipeline.compile(EXAMPLE / "fashion.onnx", "tx2-c10gx", work / "fashion", options=Options(fold="none", thrift=0.05),
                            calibration=EXAMPLE / "calibration.npz", verify=False)


def joined(work: Path) -> Build:
    """A small network over three boards in a ring, a layer of it divided over two."""
    model = work / "small.onnx"
    model.write_bytes(to_onnx(small_network()))
    places = {"first": whole_on("fpga0"), "third": whole_on("fpga1"),
              "second": Split(Axis.OUTPUT_CHANNELS, (Piece("fpga0", 0, 3), Piece("fpga2", 3, 8)))}
    return pipeline.compile(model, "fic:3", work / "small", assignment=places, verify=False)


def builds(work: Path) -> Iterator[tuple[str, Build]]:
    """The builds that are streamed through."""
    yield "fashion on tx2-c10gx", example(work)
    for name, width, size, board, clocks in ZOO:
        model = work / f"{name}.onnx"
        model.write_bytes(zoo.build(name, size=size, width=width))
        yield f"{name}-{width:g}-{size} on 2x {board}", divided_build(model, several(board, 2), clocks, work / name)


def streams(work: Path, frames: int, orders: int, keep: Callable[[dict[str, Any]], None]) -> bool:
    """All builds; whether all results are equal, and clocks as planned."""
    ok, rows = True, dict[str, Any]()
    for title, build in builds(work):
        found = timed(build, frames) | {"interleavings": ordered(build, orders)}
        found["equal"] = found["equal"] and not found["interleavings"]["wrong_or_lost"]
        ok &= found["equal"] and abs(found["virtual_beside_plan"] - 1) <= WITHIN
        rows[title] = found
        print(title, json.dumps(found), flush=True)
        keep({"builds": rows})
    return ok


def faults(work: Path, count: int, known: dict[str, Any], keep: Callable[[dict[str, Any]], None]) -> bool:
    """So many faults of every kind; whether nothing was wrong, lost or repeated."""
    found = campaign(example(work), joined(work), count, known, lambda rows: keep({"faults": rows}))
    keep({"columns": COLUMNS, "faults": found})
    for kind, row in found.items():
        took = row["recovered_s"]
        print(f"{kind}: {row['met']} met a frame in {row['streams']} streams; {row['wrong']} wrong, {row['lost']} lost, "
              f"{row['repeated']} repeated; recovered in {took['median']:.3g} s in the median, {took['worst']:.3g} s at worst")
    return not any(row[key] for row in found.values() for key in ("wrong", "lost", "repeated"))


def both_devices(folder: Path, quick: bool, known: dict[str, Any], keep: Callable[[dict[str, Any]], None]) -> bool:
    """Networks over a GPU and a CPU; whether all that promise enough reach it, and one does promise it."""
    import torch  # here, since simulated boards need none

    from lib.execution import pipelines
    from lib.execution.timing import Effort
    if not quick and not torch.cuda.is_available():
        raise SystemExit("runtime: --device cuda: PyTorch sees no CUDA device; run it on a machine with one, or add --quick")
    rows, devices, effort = dict(known), pipelines.Here(quick), Effort(0.0, 1, 1) if quick else Effort()
    keep({"gpu": "none" if quick else torch.cuda.get_device_name(), "torch": torch.__version__})
    for name, images in pipelines.SMALL if quick else pipelines.NETWORKS:
        title = f"{name} x{images}"
        if title not in rows:
            graph = integers(name, folder)
            rows[title] = pipelines.case(graph, images, devices, os.cpu_count() or 1, effort, *((4, 1) if quick else ()))
            keep({"devices": rows})
        print(title, json.dumps({k: v for k, v in rows[title].items() if k != "rounds"}), flush=True)
    judged = [row for row in rows.values() if row.get("judged")]
    return bool(judged or quick) and all(row.get("ok", True) for row in rows.values())


def integers(name: str, folder: Path) -> Graph:
    """A network of the zoo in 8-bit integers, `NAME@SIZE` for images of another size; quantized once, then read."""
    path, (own, _, size) = folder / f"{name}.onnx", name.partition("@")
    if not path.exists():
        source = folder / f"{name}.float.onnx"
        source.write_bytes(zoo.build(own, size=int(size)) if size else zoo.build(own))
        replace_bytes(path, to_onnx(decide_numbers(source, equalise=Equalise.OFF).graph))
        source.unlink()
    return read_onnx(path).graph


def main() -> int:
    """Run what is asked for and write the record."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--part", action="append", choices=PARTS, help="default: all")
    arguments.add_argument("--frames", type=int, default=64)
    arguments.add_argument("--orders", type=int, default=20)
    arguments.add_argument("--faults", type=int, default=40, help="moments of every kind of fault")
    arguments.add_argument("--device", choices=["cuda"], help="measure GPU and CPU in a pipeline, and nothing else")
    arguments.add_argument("--networks", type=Path, help="folder for networks in integers (default: beside the record)")
    arguments.add_argument("--quick", action="store_true", help="of --device: a small network, without a GPU")
    arguments.add_argument("--json", type=Path, required=True)
    options = arguments.parse_args()
    parts = options.part or list(PARTS)
    record: dict[str, Any] = json.loads(options.json.read_text(encoding="utf-8")) if options.json.is_file() else {}
    known = record.get("faults", {})

    def keep(found: dict[str, Any]) -> None:
        record.update(found)
        replace_text(options.json, json.dumps(record, indent=1) + "\n")

    keep({"command": " ".join(["python", *sys.argv]),
          "date": datetime.now(UTC).date().isoformat(),
          "versions": f"Python {machine.python_version()}, {machine.machine()}, {os.cpu_count()} cores"})
    if options.device:
        networks = options.networks or options.json.parent / "networks"
        networks.mkdir(parents=True, exist_ok=True)
        return 0 if both_devices(networks, options.quick, record.get("devices", {}), keep) else 1
    ok = True
    with tempfile.TemporaryDirectory() as name:
        if "streams" in parts:
            ok &= streams(Path(name), options.frames, options.orders, keep)
        if "faults" in parts:
            ok &= faults(Path(name), options.faults, known, keep)
    return 0 if ok else 1


if __name__ == "__main__":
    raise SystemExit(main())
