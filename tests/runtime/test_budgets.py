"""A build whose hardware cannot fit ends before a tool is started or a file is written."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dovetail import pipeline
from dovetail.cost.dhm import dhm_costs
from dovetail.errors import InfeasibleError, ToolError, UsageError
from dovetail.fpga.toolchain.place import Placement
from dovetail.fpga.toolchain.synthesize import Synthesis
from dovetail.ir import Graph
from dovetail.partition.plan import whole_on
from dovetail.planning import Options
from dovetail.platform.device import Platform
from dovetail.platform.load import load_platform
from dovetail.terminal import synthesis_table

EXAMPLE = Path(__file__).parents[2] / "examples" / "fashion"
NO_TOOL = {"DOVETAIL_YOSYS": "/nowhere/yosys", "DOVETAIL_VERILATOR": "/nowhere/verilator"}


def board_with(lut4: float) -> Platform:
    """An ECP5 board with so many look-up tables and plenty of everything else."""
    board = load_platform("ecp5-85")
    devices = tuple(replace(d, resources={r: lut4 if r == "lut4" else 1e9 for r in d.resources}) if d.name == "fpga" else d
                    for d in board.devices)
    return replace(board, devices=devices)


def lut4_by_node(graph: Graph, board: Platform) -> list[float]:
    one = np.zeros(1, dtype=np.int64), np.ones(1, dtype=np.int64)
    return [float(dhm_costs(graph, node, None, *one, board.device("fpga")).resources["lut4"][0]) for node in graph.nodes
            if node.op.kind in ("Conv", "MaxPool", "Relu")]


def test_layers_that_fit_one_by_one_but_not_together_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, path in NO_TOOL.items():
        monkeypatch.setenv(name, path)
    model, calibration = EXAMPLE / "fashion.onnx", EXAMPLE / "calibration.npz"
    graph = pipeline.decide_numbers(model, calibration).graph
    needs = lut4_by_node(graph, board_with(1e9))
    assert sum(needs) > 1.3 * max(needs)
    pinned = {node.name: whole_on("fpga") for node in graph.nodes if node.op.kind in ("Conv", "MaxPool", "Relu")}
    with pytest.raises(InfeasibleError, match=r"does not fit fpga .* by estimate: lut4 [\d,]+ of [\d,]+, [\d,]+ too many"):
        pipeline.compile(model, board_with(max(needs) * 1.01), tmp_path / "build", calibration=calibration, assignment=pinned,
                         options=Options(budget="per_layer"))
    assert not (tmp_path / "build").exists()


def test_synthesis_of_what_cannot_fit_is_refused_before_the_synthesizer_is_looked_for(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, calibration = EXAMPLE / "fashion.onnx", EXAMPLE / "calibration.npz"
    first = next(n for n in pipeline.decide_numbers(model, calibration).graph.nodes if n.op.kind == "Conv")
    build = pipeline.compile(model, "ecp5-85", tmp_path / "build", calibration=calibration, verify=False,
                             assignment={first.name: whole_on("fpga")})
    for name, path in NO_TOOL.items():
        monkeypatch.setenv(name, path)
    small = replace(build, platform=board_with(100.0))
    with pytest.raises(InfeasibleError, match=r"does not fit fpga .*: lut4 [\d,]+ of 100, [\d,]+ too many") as caught:
        pipeline.synthesize_build(small)
    assert caught.value.exit_code == 1
    with pytest.raises(ToolError, match="/nowhere/yosys is not an executable file"):
        pipeline.synthesize_build(small, "ecp5")
    with pytest.raises(UsageError, match=r"^--route: .* for xcup; open tools route ecp5 and gw2a alone, pass --family ecp5$"):
        pipeline.synthesize_build(small, "xcup", seeds=1)


def test_routing_needs_the_router_and_tells_the_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, calibration = EXAMPLE / "fashion.onnx", EXAMPLE / "calibration.npz"
    first = next(n for n in pipeline.decide_numbers(model, calibration).graph.nodes if n.op.kind == "Conv")
    build = pipeline.compile(model, "ecp5-85", tmp_path / "build", calibration=calibration, verify=False,
                             assignment={first.name: whole_on("fpga")})
    monkeypatch.setenv("DOVETAIL_NEXTPNR", "/nowhere/nextpnr-ecp5")
    with pytest.raises(ToolError, match="/nowhere/nextpnr-ecp5 is not an executable file; correct or unset DOVETAIL_NEXTPNR"):
        pipeline.synthesize_build(build, seeds=1)
    assert not (build.folder / "synthesis.json").exists()
    counted = Synthesis("ecp5", "Yosys", "0.0", {}, {"lut4": 1.0}, (), 0.0, False)
    monkeypatch.setattr(pipeline, "synthesize", lambda design, family, progress: counted)
    monkeypatch.setattr(pipeline, "place_design", lambda design, flow, size, seed, freq_mhz, pins: Placement(
        60.0 + seed, {size: 1}, {}, f"from a to {design.top}", False))
    (found,) = pipeline.synthesize_build(build, seeds=3)
    assert found["fmax_hz"] == 62e6
    assert found["routed"].endswith("_axi")
    said = synthesis_table([found], build)
    assert (f"clock of {found['routed']} after place and route: 62.0 MHz in the median of 3 seeds, 61.0 MHz to 63.0 MHz; "
            "planned at 100 MHz, assumed") in said
    assert f"  seed 3: 63.0 MHz, from a to {found['routed']}" in said
    assert found["board_line"] == (f'clock_hz = {{ value = 6.1e+07, source = "routed: {found["routed"]} on an LFE5U-85F, the '
                                   'slowest of 3 seeds, 61.0 to 63.0 MHz" }')
    assert found["board_line"] in said
    pipeline.write_report(build)
    assert "62.0 MHz (61.0 MHz to 63.0 MHz, 3 seeds)" in (build.folder / "report.html").read_text(encoding="utf-8")
