"""Networks of codes through the whole tool: planned, built, run and verified, with what moves codes on other devices."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dovetail import pipeline
from dovetail.cost import costs_of, why_not
from dovetail.fpga.engines.lq import Datapath
from dovetail.fpga.part import load_design
from dovetail.ir import Axis
from dovetail.ir.onnx.write import to_onnx
from dovetail.numerics.reference import run_integer
from dovetail.partition.plan import Piece, Split, whole_on
from dovetail.platform.load import load_platform
from dovetail.runtime.verification import verify
from dovetail.schedule.program import lower
from tests.numerics.lq_networks import coded, images, network
from tests.schedule.test_program import run_program


@pytest.mark.parametrize(("bits", "hardware"), [(1, ("pool",)), (2, ("second", "pool", "third"))])
def test_a_network_of_codes_is_built_and_bit_exact_with_parts_in_hardware(tmp_path: Path, bits: int,
                                                                          hardware: tuple[str, ...]) -> None:
    graph, pinned = network(1, 2, bits), {name: whole_on("fpga") for name in hardware}
    path = tmp_path / "lq.onnx"
    path.write_bytes(to_onnx(graph))
    build = pipeline.compile(path, "tx2-c10gx", tmp_path / "build", assignment=pinned, frames=4)
    assert all(build.plan.assignment[name] == whole_on("fpga") for name in hardware)
    found = verify(build, 6)
    assert found.first_mismatch is None
    frames = images(3, 2)["x"]
    expected = run_integer(graph, {"x": frames})["last_y"].astype(np.float64) * 2.0**-8
    np.testing.assert_array_equal(build.run(frames.astype(np.float32) / 256), expected)


def test_builds_for_look_up_tables_of_four_inputs_count_with_full_adders(tmp_path: Path) -> None:
    path = tmp_path / "lq.onnx"
    path.write_bytes(to_onnx(network(1, 2, 2)))
    tops = {}
    for board in ("ecp5-85", "tx2-c10gx"):
        build = pipeline.compile(path, board, tmp_path / board, assignment={"second": whole_on("fpga")}, verify=False)
        (segment,) = (s for s in build.program.segments if "second" in s.nodes)
        tops[board] = load_design(build.folder / "fpga" / segment.graph.name)
    assert tops["ecp5-85"].datapath == Datapath.FULL_ADDERS
    assert tops["tx2-c10gx"].datapath == Datapath.POPCOUNT
    assert tops["ecp5-85"].adders > tops["tx2-c10gx"].adders, "three bits a counter, not six"


def test_layers_of_codes_run_on_cpu_and_fpga_and_the_gpu_says_why_not() -> None:
    graph, board = network(1, 2, 2), load_platform("tx2-c10gx")
    for node in coded(graph):
        said = {d.name: why_not(graph, node, d) for d in board.devices}
        assert said["cpu"] is said["fpga"] is None
        assert "works on codes, for which it has no kernel" in str(said["gpu"])


def test_the_area_of_codes_is_said_to_be_extrapolated() -> None:
    graph, board = network(1, 2, 2), load_platform("tx2-c10gx")
    node, one = graph.node("second"), np.ones(1, dtype=np.int64)
    costs = costs_of(graph, node, None, one - 1, one, board.device("fpga"))
    assert costs is not None
    assert costs.extrapolated.all()
    assert "not fitted" in costs.source
    halves = costs_of(graph, node, Axis.OUTPUT_CHANNELS, one - 1, 4 * one, board.device("fpga"))
    assert halves is not None
    assert all(halves.resources[r][0] <= costs.resources[r][0] for r in costs.resources)


def test_sums_beyond_float32_run_in_exact_integers(tmp_path: Path) -> None:
    graph = network(1, 4, 4, product_bits=24)
    path = tmp_path / "lq.onnx"
    path.write_bytes(to_onnx(graph))
    pinned = {n.name: whole_on("cpu") for n in graph.nodes}
    build = pipeline.compile(path, "tx2-c10gx", tmp_path / "build", assignment=pinned, frames=4)
    found = verify(build, 4)
    assert found.first_mismatch is None
    assert "numpy" in {p.backend for p in (build.part(s) for s in build.program.segments)}


def test_layers_divided_among_devices_give_the_codes_of_the_whole() -> None:
    graph, frames = network(1, 2, 2), images(5, 3)
    apart = {"second": Split(Axis.OUTPUT_CHANNELS, (Piece("a", 0, 3), Piece("b", 3, 8))),
             "third": Split(Axis.GROUPS, (Piece("a", 0, 1), Piece("b", 1, 2))),
             "first": Split(Axis.ROWS, (Piece("b", 0, 5), Piece("a", 5, 8))),
             "last": Split(Axis.OUTPUT_CHANNELS, (Piece("a", 0, 4), Piece("b", 4, 10)))}
    program = lower(graph, {n.name: apart.get(n.name, whole_on("a")) for n in graph.nodes})
    assert {s.device for s in program.segments} == {"a", "b"}
    found, expected = run_program(program, frames), run_integer(graph, frames)
    np.testing.assert_array_equal(found["last_y"], expected["last_y"])
