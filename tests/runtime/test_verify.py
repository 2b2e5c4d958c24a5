"""Builds run on their devices and equal the reference; planted faults are caught and named."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from dovetail.errors import BuildError, UsageError
from dovetail.numerics.fixed import dequantize
from dovetail.numerics.oracle import run_onnx
from dovetail.numerics.reference import run_integer
from dovetail.pipeline import verification_json, verify_build
from dovetail.runtime import verification
from dovetail.runtime.build import SAMPLES, Build, load_build, run
from dovetail.runtime.verification import stimulus
from dovetail.terminal import verification_line


def test_a_network_divided_in_every_way_equals_the_reference(divided: Build) -> None:
    axes = {split.axis for split in divided.plan.assignment.values()}
    assert len(axes) == 5  # whole, and all four ways to divide
    outcome = verify_build(divided)
    assert outcome.equal, str(outcome.first_mismatch)
    assert outcome.frames == 64  # 20 stored samples, topped up
    assert {s["backend"] for s in outcome.segments} == {"onnxruntime", "verilator", "emulated"}
    crossing = sum(len(s.writes) for s in divided.program.segments)
    assert outcome.tensors_compared == crossing >= 10


def test_more_frames_than_stored_are_topped_up_with_seeded_ones(streamed: Build) -> None:
    outcome = verify_build(streamed, frames=24)
    assert outcome.equal, str(outcome.first_mismatch)
    assert outcome.frames == 24


def test_run_returns_what_plain_onnx_runtime_computes_from_the_exported_model(streamed: Build) -> None:
    x = np.random.default_rng(4).random((3, 2, 8, 8), dtype=np.float32)
    found = run(streamed, {"image": x})["fc_out"]
    expected = run_onnx((streamed.folder / "model.onnx").read_bytes(), {"image": x})["fc_out"]
    np.testing.assert_array_equal(found, expected)


def test_simulated_cycles_are_the_promised_ones(streamed: Build) -> None:
    outcome = verify_build(streamed)
    part = streamed.part(streamed.program.segments[0])
    assert outcome.cycles["fpga0"]["first_frame"] == part.design.latency_cycles
    for fifo in part.design.fifos:
        assert outcome.high_water["fpga0"][fifo.name] <= fifo.depth


def test_slow_simulation_leaves_two_frames_and_says_so(streamed: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verification, "QUICK_CYCLES", 0)
    monkeypatch.setattr(verification, "SIMULATED_S", 1e-9)
    told: list[str] = []
    outcome = verify_build(streamed, progress=lambda stage, done, total: told.append(stage))
    assert outcome.equal, str(outcome.first_mismatch)
    assert outcome.frames == 2
    assert re.fullmatch(r"chosen: one takes \S+ s to simulate; --frames N verifies more", outcome.frames_note)
    assert f"over 2 frames ({outcome.frames_note}); " in verification_line(verification_json(outcome))
    assert "verify fpga0: compile the simulator" in told
    assert outcome.cycles["fpga0"]["first_frame"] == streamed.part(streamed.program.segments[0]).design.latency_cycles


def test_quick_simulation_takes_all_frames_without_a_word(streamed: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verification, "QUICK_CYCLES", 0)
    monkeypatch.setattr(verification, "SIMULATED_S", 1e9)
    outcome = verify_build(streamed)
    assert (outcome.equal, outcome.frames, outcome.frames_note) == (True, 64, "")


def planted(build: Build, folder: Path, file: str, change: Callable[[str], str]) -> Build:
    """A copy of a build with one generated file changed."""
    copy = folder / "planted"
    shutil.copytree(build.folder, copy)
    path = copy / "fpga" / "fpga0" / file
    before = path.read_text()
    after = change(before)
    assert after != before, f"the fault found nothing to change in {file}"
    path.write_text(after)
    return load_build(copy, trust=True)


def flip_rounding(text: str) -> str:
    """Ties go up instead of to even."""
    return re.sub(r"(_quotient\[0\]) & \(\|\w+_acc_\d+\[[\d:]+\]\)", r"\1", text)


def drop_halo_row(text: str) -> str:
    """The window's last row counts as padding one row too early."""
    return re.sub(r"(wire row_inside_2 = out_row != \d+'d)(\d+)", lambda m: f"{m[1]}{int(m[2]) - 1}", text, count=1)


def swap_channels(text: str) -> str:
    """The two lowest channels of every beat change places."""
    return re.sub(r"(beat = \{.*, )([^,]+), ([^,]+)\};", r"\1\3, \2};", text, count=1)


@pytest.mark.parametrize(("fault", "node"), [(flip_rounding, "last"), (drop_halo_row, "dw"), (swap_channels, "pw")])
def test_a_planted_fault_is_caught_and_its_engine_named(streamed: Build, tmp_path: Path, fault: Callable[[str], str],
                                                       node: str) -> None:
    build = planted(streamed, tmp_path, f"fpga0_{node}.v", fault)
    outcome = verify_build(build, frames=600)  # ties are rare: about one accumulator in a thousand
    first = outcome.first_mismatch
    assert not outcome.equal
    assert first is not None
    assert first.tensor == "last_out"
    assert first.segment == "fpga0"
    assert first.engine == node
    truth = run_integer(build.graph, stimulus(build, 600), keep=True)["last_out"]
    assert truth[(first.frame, *first.index)] == first.expected != first.found
    assert f"expected {first.expected}, found {first.found}" in str(first)
    assert f"the engine of {node} is wrong by itself" in str(first)


def forget_credits(text: str) -> str:
    """The engine issues steps whether or not its output FIFO has room."""
    return re.sub(r"may_step <= ~spare\[\d+\];", "may_step <= 1'd1;", text)


def test_a_fault_that_only_back_pressure_shows_is_caught_and_its_engine_named(streamed: Build, tmp_path: Path) -> None:
    build = planted(streamed, tmp_path, "fpga0_last.v", forget_credits)
    outcome = verify_build(build, frames=4)
    assert not outcome.equal
    assert outcome.first_mismatch is not None
    assert outcome.first_mismatch.engine == "last"


def test_a_fault_between_the_engines_is_told_from_one_inside(streamed: Build, tmp_path: Path) -> None:
    build = planted(streamed, tmp_path, "fpga0.v", lambda text: re.sub(r"(u_last \([^;]*\.in0_data\()(\w+)", r"\1~\2", text))
    outcome = verify_build(build, frames=4)
    assert outcome.first_mismatch is not None
    assert outcome.first_mismatch.engine is None
    assert "every engine is right by itself" in str(outcome.first_mismatch)


def test_a_design_that_never_answers_is_a_mismatch_and_not_a_hang(streamed: Build, tmp_path: Path) -> None:
    build = planted(streamed, tmp_path, "fpga0.v", lambda text: text.replace("in0_ready = ", "in0_ready = 1'd0 & ", 1))
    outcome = verify_build(build, frames=1)
    assert not outcome.equal
    assert outcome.first_mismatch is not None
    assert outcome.first_mismatch.fault


def test_a_wrong_weight_in_a_cpu_part_is_named(divided: Build, tmp_path: Path) -> None:
    copy = tmp_path / "planted"
    shutil.copytree(divided.folder, copy)
    path = next(p for p in sorted((copy / "cpu").glob("*.onnx")) if b"fc_weight" in p.read_bytes())
    model = onnx.load(path)
    weight = next(t for t in model.graph.initializer if t.name == "fc_weight")
    values = numpy_helper.to_array(weight).copy()
    values[2] = -values[2]
    weight.CopyFrom(numpy_helper.from_array(values, "fc_weight"))
    path.write_bytes(model.SerializeToString())
    first = verify_build(load_build(copy, trust=True)).first_mismatch
    assert first is not None
    assert (first.tensor, first.index) == ("fc_out", (2,))
    assert first.backend == "onnxruntime"


def test_a_build_without_its_parts_says_what_is_missing(divided: Build, tmp_path: Path) -> None:
    copy = tmp_path / "broken"
    shutil.copytree(divided.folder, copy)
    (copy / "plan.json").unlink()
    with pytest.raises(BuildError, match=r"plan\.json: missing; this is not a complete build folder, run `dovetail compile`"):
        load_build(copy)
    with pytest.raises(BuildError, match=r"nothing: no such build folder"):
        load_build(tmp_path / "nothing")
    (copy / "plan.json").write_text('{"schema": 99}')
    with pytest.raises(BuildError, match=r"schema 99; this version reads schema 1, build again with it"):
        load_build(copy)
    manifest = json.loads((copy / "manifest.json").read_text())
    shutil.copy(divided.folder / "plan.json", copy)
    (copy / SAMPLES).unlink()
    with pytest.raises(BuildError, match=r"samples\.npz: no samples of input image; this is not a complete build folder"):
        load_build(copy).samples()
    for key, field in (("platform", "platform"), ("model", "model.file"), ("quantization", "quantization.calibration")):
        (copy / "manifest.json").write_text(json.dumps({**manifest, key: {}} if key != "platform" else {"schema": 1}))
        with pytest.raises(BuildError, match=f"manifest.json: field {field} is missing; this is not a complete build folder"):
            load_build(copy)
    (copy / "model.onnx").unlink()
    (copy / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(BuildError, match=r"model\.onnx: missing; this is not a complete build folder"):
        load_build(copy)


def test_inputs_of_the_wrong_shape_are_refused(streamed: Build) -> None:
    with pytest.raises(UsageError, match=r"array of shape \[1, 2, 8, 9\] for input image; \[samples, 2, 8, 8\] is needed"):
        run(streamed, {"image": np.zeros((1, 2, 8, 9))})
    with pytest.raises(UsageError, match="no values for input image; inputs are image"):
        run(streamed, {"other": np.zeros((1, 2, 8, 8))})


def test_outputs_are_dequantized_integers(streamed: Build) -> None:
    found = run(streamed, {"image": np.zeros((1, 2, 8, 8), dtype=np.float32)})["fc_out"]
    scheme = streamed.graph.tensors["fc_out"].scheme
    stored = run_integer(streamed.graph, {"image": np.zeros((1, 2, 8, 8), dtype=np.uint8)})["fc_out"]
    np.testing.assert_array_equal(found, dequantize(stored.astype(float), scheme))


def test_a_build_runs_plain_arrays_and_named_ones(streamed: Build) -> None:
    x = np.random.default_rng(8).random((2, 2, 8, 8), dtype=np.float32)
    named = streamed.run({"image": x})
    np.testing.assert_array_equal(streamed.run(x), named["fc_out"])
