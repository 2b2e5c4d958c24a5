"""The trained example over 200 real images: as planned, its FPGA part in Verilator, and as one folded design."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import dovetail as dt
from dovetail.cost.folded import folds_of
from dovetail.fpga.assemble import build_design
from dovetail.fpga.part import as_pixels
from dovetail.fpga.toolchain.simulate import simulate
from dovetail.ir import Array, Graph
from dovetail.numerics.calibration import load_arrays
from dovetail.numerics.reference import run_integer
from dovetail.platform.load import load_platform
from dovetail.runtime.build import run_stored, store

FASHION = Path(__file__).parents[3] / "examples" / "fashion"
BOARD = "tx2-c10gx"
IMAGES = 200
WHOLE_PACE = 8_192
"""Clocks per frame that a layer of the whole network may take where it is one design."""


def same(found: Mapping[str, Array], expected: Mapping[str, Array]) -> bool:
    return all(np.array_equal(found[name].reshape(x.shape), x) for name, x in expected.items())


def example_images(count: int = IMAGES) -> dict[str, Any]:
    """Test images through the compiled build and through the network as one design, both against the integer reference."""
    with TemporaryDirectory() as folder:
        build = dt.compile(FASHION / "fashion.onnx", BOARD, Path(folder) / "build", verify=False,
                           calibration=FASHION / "calibration.npz", options=dt.Options(thrift=0.05, fold="none"))
        (name,) = build.graph.inputs
        inputs = store(build.graph, {name: load_arrays(FASHION / "test_images.npz")["x"][:count]}, "images")
        expected = run_integer(build.graph, inputs)
        planned = {"bit_exact": same(run_stored(build, inputs), expected),
                   "backends": {s.name: build.part(s).backend for s in build.program.segments}}
    whole = whole_network(build.graph, inputs, expected)
    fine = planned["bit_exact"] and whole["bit_exact"]
    said = {True: "exact", False: "NOT EXACT"}
    print(f"example            {count} images: plan {said[planned['bit_exact']]} {planned['backends']}, "
          f"one design {said[whole['bit_exact']]}, a frame every {whole['interval_cycles']} cycles", flush=True)
    return {"example_images": {"images": count, "as_planned": planned, "one_design": whole, "status": "ok" if fine else "missed"}}


def whole_network(graph: Graph, inputs: Mapping[str, Array], expected: Mapping[str, Array]) -> dict[str, Any]:
    """Every node in one design, fully connected layers included, multipliers shared where that takes less of the device."""
    folds = folds_of(graph, load_platform(BOARD).with_pace(WHOLE_PACE).device("fpga"))
    design = build_design(graph, "fashion", folds=folds)
    result = simulate(design, {p.tensor: as_pixels(p, inputs[p.tensor]) for p in design.inputs})
    return {"bit_exact": same(result.outputs, expected), "nodes": len(graph.nodes), "folded": len(folds),
            "latency_cycles": design.latency_cycles, "interval_cycles": design.interval_cycles,
            "simulated_cycles": result.cycles, "first_frame_cycles": result.frame_cycles[0]}
