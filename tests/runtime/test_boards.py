"""Builds over several boards: written with their links, run through them, verified with and without them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from dovetail import pipeline, terminal
from dovetail.ir.onnx.write import to_onnx
from dovetail.numerics.reference import run_integer
from dovetail.partition.plan import whole_on
from dovetail.platform.load import load_platform
from dovetail.platform.topology import joined_as
from dovetail.runtime import verification
from dovetail.runtime.build import load_build, run_stored
from tests.fpga.joined_boards import chain, narrow


def test_a_build_over_two_boards_runs_through_their_links_and_says_what_a_damaged_board_does(tmp_path: Path) -> None:
    model, folder = tmp_path / "chain.onnx", tmp_path / "build"
    model.write_bytes(to_onnx(chain(2)))
    platform = narrow(load_platform("fic:2"))
    build = pipeline.compile(model, platform, folder, assignment={"n0": whole_on("fpga0"), "n1": whole_on("fpga1")}, verify=False)
    stored = json.loads((folder / "fpga" / "boards0" / "system.json").read_text())
    assert stored["circuits"] == ["y0: fpga0 > fpga1, 4 cells per frame", "y1: fpga1 > fpga0, 4 cells per frame"]
    x = verification.stimulus(build, 3)
    found = run_stored(build, x)
    expected = run_integer(build.graph, x)
    np.testing.assert_array_equal(found["y1"], expected["y1"])
    outcome = pipeline.verify_build(build, 3)
    assert outcome.equal
    assert {"name": "boards0", "device": "fpga0+fpga1", "backend": "verilator",
            "note": "2 boards and 1 link simulated together in Verilator"} in outcome.segments
    assert [name for name, *_ in pipeline.hardware_of(build)] == ["boards0_fpga0", "boards0_fpga1"]
    tried = {t["segment"]: t for t in pipeline.try_boards(build, 3, stall_seed=1)}
    assert all(t["equal"] for t in tried.values())
    assert all(t["frames_per_s"] * t["cycles"] == pytest.approx(t["cycles_per_s"] * t["frames"]) for t in tried.values())
    assert [(s["board"], s["up"], s["spoilt"]) for s in tried["boards0"]["links"]] == [("fpga0", True, 0), ("fpga1", True, 0)]
    assert "reset of all boards in mid-frame: right afterwards" in terminal.trial_text(list(tried.values()))
    projects = pipeline.export_build(build, "vivado", tmp_path / "projects")
    page = (projects[1] / "README.md").read_text()
    assert tried["boards0"]["build_hashes"]["fpga1"] in page
    assert "`link0_rx_valid`, `ready`, `data` | a cell of" in page
    assert "LINK0_SPOILT" in (projects[1] / "host" / "registers.json").read_text()
    board = folder / "fpga" / "boards0" / "fpga1" / "boards0_fpga1_tx0.v"
    text = board.read_text()
    assert "new_payload : 32'd" in text, "a cell without data carries the build's identity"
    board.write_text(text.replace("new_payload : 32'd", "new_payload : ~32'd"))
    wrong = verification.verify(load_build(folder, trust=True), 2).first_mismatch
    assert wrong is not None
    assert "a board reports a fault of a link that nobody injected" in wrong.fault
    assert "status of fpga0, fpga1: " in wrong.fault


def test_a_build_of_switches_shows_its_time_slots_and_says_where_they_are_too_few(tmp_path: Path) -> None:
    """Two tensors of 16 cells each cross a link; layers take 21 clocks, so no slots are enough."""
    model = tmp_path / "chain.onnx"
    model.write_bytes(to_onnx(chain(3, 16)))
    platform = joined_as(narrow(load_platform("fic:3")), "line+switch")
    places = {"n0": whole_on("fpga2"), "n1": whole_on("fpga0"), "n2": whole_on("fpga2")}
    build = pipeline.compile(model, platform, tmp_path / "build", assignment=places, verify=False)
    (boards,) = build.systems().values()
    assert load_build(build.folder).platform.switch == platform.switch
    assert boards.system.slots[0] == "frames of 16 time slots carry a frame of the network in 32 clocks of a link"
    slow = ("boards0: time slots carry a frame in 32 clocks, where its layers take 21: link serial0 from fpga0 has x, y1, "
            "and no frame of up to 64 slots is faster")
    assert boards.system.warnings == (slow,)
    (note,) = (n for n in build.plan.notes if n.startswith("boards0: frames of 16 time slots carry a frame of the network in 32"))
    assert " clocks of a link, and a frame comes every " in note, "the host's port is slower still"
    page = (build.folder / "report.html").read_text(encoding="utf-8")
    assert "Circuits between boards" in page
    assert f"The boards are circuit switches: {boards.system.slots[0]}." in page
    assert "serial0 from fpga0 in 0, 2, 4," in page
    assert slow in page
