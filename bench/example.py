"""The bundled example in figures: accuracy beside ONNX Runtime's own int8, adders beside shared multiples, speed of each step.

`python bench/example.py --json FILE`. Peers run here and now on the same model and data: ONNX Runtime's static
quantization (per channel, same calibration samples) for accuracy, shared-multiple adder graphs (MCM) for area,
the plan's single-device baselines for latency. Fractions are fractions.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from onnxruntime import quantization

import dovetail as dt
from dovetail.files import replace_text
from dovetail.hardware.adders.graph import build as adder_graph
from dovetail.ir import Conv
from dovetail.numerics.calibration import load_arrays
from dovetail.numerics.oracle import run_onnx
from dovetail.numerics.reference import run_integer
from dovetail.runtime.execute import run_stored, store

FASHION = Path(__file__).parents[1] / "examples" / "fashion"
MODEL, CALIBRATION, TEST = (FASHION / name for name in ("fashion.onnx", "calibration.npz", "test_images.npz"))


class Reader(quantization.CalibrationDataReader):  # type: ignore[misc]
    """The calibration samples, one by one, as ONNX Runtime asks for them."""

    def __init__(self, samples: np.ndarray) -> None:
        self.rows: Iterator[np.ndarray] = iter(samples)

    def get_next(self) -> dict[str, np.ndarray] | None:
        row = next(self.rows, None)
        return None if row is None else {"image": row[None]}


def peer_int8(folder: Path) -> bytes:
    """ONNX Runtime's static int8 quantization of the same model with the same samples."""
    prepared, target = folder / "prepared.onnx", folder / "ort.onnx"
    quantization.shape_inference.quant_pre_process(str(MODEL), str(prepared), skip_symbolic_shape=True)
    quantization.quantize_static(str(prepared), str(target), Reader(load_arrays(CALIBRATION)["x"]), per_channel=True)
    return target.read_bytes()


def classes(content: bytes, images: np.ndarray) -> np.ndarray:
    return np.concatenate([run_onnx(content, {"image": x[None]})["logits"] for x in images]).argmax(1)


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    start = time.perf_counter()
    result = work()
    return result, time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    images, labels = (load_arrays(TEST)[k] for k in ("x", "y"))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        numbers, quantize_s = timed(lambda: dt.decide_numbers(MODEL, CALIBRATION))
        board = dt.load_platform("tx2-c10gx")
        plan_s = [timed(lambda: dt.make_plan(numbers.graph, board, dt.Options()))[1] for _ in range(3)]
        build, build_s = timed(lambda: dt.compile(MODEL, "tx2-c10gx", folder / "build", calibration=CALIBRATION, verify=False))
        stored = store(build.graph, {"image": images}, "bench")
        run_stored(build, {"image": stored["image"][:1]})  # compiles the simulation
        built, run_s = timed(lambda: run_stored(build, stored)["logits"])
        reference = run_integer(build.graph, stored)["logits"]
        design = next(p.design for s in build.program.segments if (p := build.part(s)).backend == "verilator")
        convs = [build.graph.constants[n.params[0]].array.reshape(n.op.filters, -1) if n.op.groups == 1 else None
                 for n in build.graph.nodes if isinstance(n.op, Conv)]
        grouped = [build.graph.constants[n.params[0]].array for n in build.graph.nodes
                   if isinstance(n.op, Conv) and n.op.groups > 1]
        matrices = [w for w in convs if w is not None] + [f.reshape(1, -1) for w in grouped for f in w]
        shared = sum(adder_graph(w.astype(np.int64), [(-128, 127)] * w.shape[1]).count for w in matrices)
        found = {
            "accuracy": {"images": len(labels), "float": float((classes(MODEL.read_bytes(), images) == labels).mean()),
                         "int8": float((reference.argmax(1) == labels).mean()),
                         "build": float((built.argmax(1) == labels).mean()),
                         "onnxruntime_int8": float((classes(peer_int8(folder), images) == labels).mean())},
            "bit_exact": bool(np.array_equal(built, reference)),
            "adders": {"ours": design.adders, "shared_multiples": shared},
            "cycles": {"latency": design.latency_cycles, "interval": design.interval_cycles},
            "plan": {"latency_s": build.plan.latency_s, "lower_bound_s": build.plan.lower_bound,
                     "gap": build.plan.gap, "baselines_s": dict(build.plan.baselines)},
            "seconds": {"quantize": quantize_s, "plan_median": sorted(plan_s)[1], "build": build_s,
                        "run_512_frames": run_s, "simulated_frames_per_s": len(labels) / run_s},
        }
    print(json.dumps(found, indent=1))
    if options.json:
        replace_text(options.json, json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
