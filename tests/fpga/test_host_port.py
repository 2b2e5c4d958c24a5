"""The paper's port of four pins with rx32, and wider ones: frames and weights cross it whole, whatever stalls."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dovetail import pipeline
from dovetail.errors import UsageError
from dovetail.fpga.assemble import build_design
from dovetail.fpga.host_port import WIDTHS, from_beats, to_beats, with_host_port
from dovetail.fpga.part import load_design, weight_sets
from dovetail.fpga.toolchain.simulate import simulate, simulate_many
from dovetail.fpga.toolchain.synthesize import synthesize
from dovetail.hardware.folds import Fold
from dovetail.ir.onnx.write import to_onnx
from dovetail.numerics.reference import run_integer
from dovetail.partition.options import Options
from dovetail.partition.plan import whole_on
from tests.fpga.joined_boards import chain

GRAPH = chain(1, 3, 4)
FRAMES = {"x": np.random.default_rng(2).integers(0, 4, (3, 3, 4, 4)).astype(np.uint8)}
RIGHT = run_integer(GRAPH, FRAMES)["y0"]


@pytest.mark.verilator
def test_frames_cross_ports_of_every_width_and_weights_are_loaded_through_them() -> None:
    core, fold = build_design(GRAPH, "core"), {"n0": Fold(1, 3, 1)}
    loads, first = build_design(GRAPH, "loads", folds=fold, loaded=("n0",)), {"x": FRAMES["x"][:1]}
    jobs = [(with_host_port(core, width), to_beats(core, FRAMES, width)) for width in WIDTHS]
    assert [job[0].inputs[0].width for job in jobs] == [128 // width for width in WIDTHS]
    jobs.append((with_host_port(loads), to_beats(loads, {**first, **weight_sets(GRAPH, fold, ("n0",))})))
    *every, filled = simulate_many(jobs, stall_seed=4)
    for width, found in zip(WIDTHS, every, strict=True):
        np.testing.assert_array_equal(from_beats(core, found.outputs, width)["y0"], RIGHT, err_msg=str(width))
    np.testing.assert_array_equal(from_beats(loads, filled.outputs)["y0"], RIGHT[:1])
    assert with_host_port(core).interval_cycles == max(core.interval_cycles, 128 // 4)


@pytest.mark.verilator
def test_a_build_has_its_hardware_behind_pins_too(tmp_path: Path) -> None:
    (tmp_path / "chain.onnx").write_bytes(to_onnx(GRAPH))
    build = pipeline.compile(tmp_path / "chain.onnx", "fic:1", tmp_path / "build", verify=False,
                             options=Options(host_pins=4, pins={"n0": whole_on("fpga0")}))
    (segment,) = build.program.segments
    core, behind = (load_design(build.folder / "fpga" / segment.name / sub) for sub in ("", "pins"))
    found = simulate(behind, to_beats(core, FRAMES))
    np.testing.assert_array_equal(from_beats(core, found.outputs)["y0"], RIGHT)


@pytest.mark.yosys
def test_rx32_is_small_and_other_widths_are_refused() -> None:
    core = build_design(GRAPH, "core")
    alone, behind = (synthesize(d, "ecp5").resources["lut4"] for d in (core, with_host_port(core)))
    assert 0 < behind - alone < 400
    with pytest.raises(UsageError, match="core: a host port of 3 bits; 1, 2, 4, 8, 16, 32 are possible, wider ones are a bus"):
        with_host_port(core, 3)
