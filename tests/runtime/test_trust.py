"""Builds of strangers: nothing of them runs unless it is what model and plan give, or the user trusts it."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from dovetail import document
from dovetail.cli import main
from dovetail.document import Each, FieldPath, Maybe, OneOf, Text, Whole, check
from dovetail.errors import BuildError, PlatformError, UsageError
from dovetail.pipeline import export_build
from dovetail.platform.load import load_platform, platform_from_dict, platform_to_dict
from dovetail.runtime.build import Build, load_build
from dovetail.runtime.trust import KNOWN, what_runs
from lib.proofs.mutations import mutate

Change = Callable[[Path], None]


@pytest.fixture
def copy(streamed: Build, tmp_path: Path) -> Path:
    folder = tmp_path / "stranger" / "build"
    shutil.copytree(streamed.folder, folder)
    return folder


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache of a user who has made no build."""
    monkeypatch.setenv("DOVETAIL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def frames(folder: Path) -> Path:
    np.save(folder / "x.npy", np.zeros((1, 2, 8, 8), dtype=np.float32))
    return folder / "x.npy"


def edit(path: Path, change: Callable[[dict], object]) -> None:
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))


def test_a_command_in_stored_verilog_is_not_run(copy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    canary, path = tmp_path / "canary", copy / "fpga" / "fpga0" / "fpga0.v"
    path.write_text(path.read_text().replace("endmodule", f'initial $system("touch {canary}");\nendmodule'))
    for command in (["run", str(copy), "-i", str(frames(tmp_path)), "-o", str(tmp_path / "y.npy")], ["verify", str(copy)],
                    ["report", str(copy)], ["export", str(copy), "--vendor", "quartus", "-o", str(tmp_path / "project")]):
        assert main(command) == 2
        assert capsys.readouterr().err.splitlines()[-1] == (
            f"dovetail: {path}: not what Dovetail generates from this model and plan; the file was changed or another version "
            "made it: compile the model again, or give --trust to use the build's files as they are, if you trust who made them")
    assert not canary.exists()
    assert not (tmp_path / "project").exists()


def test_a_description_that_names_files_elsewhere_reads_and_writes_none(copy: Path, tmp_path: Path,
                                                                       capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "secret").write_text("secret")
    for path in (copy / "fpga" / "fpga0" / "design.json", copy / "fpga" / "fpga0" / "axi" / "shell.json"):
        before = path.read_text()
        edit(path, lambda known: known["files"].append("../../../../../secret"))
        export = ["export", str(copy), "--vendor", "quartus", "-o", str(tmp_path / "project")]
        assert main(export) == 2
        assert "not what Dovetail generates from this model and plan" in capsys.readouterr().err
        assert main([*export, "--trust"]) == 2
        assert "is '../../../../../secret'; a plain file name" in capsys.readouterr().err
        path.write_text(before)
    assert not (tmp_path / "project").exists()


@pytest.mark.parametrize(("change", "message"), [
    (lambda folder: (folder / "cpu" / "cpu0.onnx").write_bytes(b""), r"cpu0\.onnx: not what Dovetail generates"),
    (lambda folder: (folder / "cpu" / "cpu0.onnx").unlink(), r"cpu0\.onnx: missing; the file was changed"),
    (lambda folder: (folder / "fpga" / "more.v").write_text("module more; endmodule"),
     r"more\.v: nothing that Dovetail generates"),
    (lambda folder: (folder / "samples.npz").rename(folder / "s") and (folder / "samples.npz").symlink_to(folder / "s"),
     r"samples\.npz: a link; a build folder holds plain files alone"),
    (lambda folder: (folder / "plan.json").unlink() or os.mkfifo(folder / "plan.json"), r"plan\.json: not a plain file"),
    (lambda folder: edit(folder / "plan.json", lambda d: d["assignment"]["pw"]["shares"][0].update(stop=7)),
     r"node pw: 1 pieces without an axis; a whole node is one piece \[0, 1\)"),
])
def test_a_changed_build_is_refused_by_the_name_of_the_file(copy: Path, change: Change, message: str) -> None:
    change(copy)
    with pytest.raises((BuildError, UsageError), match=message):
        load_build(copy)


def test_a_build_from_elsewhere_is_generated_again_and_then_known(copy: Path, divided: Build, empty_cache: Path) -> None:
    stages: list[str] = []
    for folder in (copy, divided.folder):
        load_build(folder, progress=lambda stage, done, total: stages.append(stage))
    assert stages
    assert len(list((empty_cache / KNOWN).iterdir())) == 2
    stages.clear()
    for folder in (copy, divided.folder):
        load_build(folder, progress=lambda stage, done, total: stages.append(stage))
    assert not stages


def test_trust_says_what_it_will_run_and_lets_no_sub_model_read_other_files(copy: Path,
                                                                           capsys: pytest.CaptureFixture[str]) -> None:
    build = load_build(copy, trust=True)
    verilog, submodel = what_runs(copy, build.program, build.platform)
    assert verilog == (f"--trust: Verilog of fpga/fpga0 in {copy} is compiled, run and handed over as it is; it can run any "
                       "command in your name")
    assert submodel == f"--trust: cpu/cpu0.onnx in {copy} is run by ONNX Runtime as it is"
    assert main(["report", str(copy), "--trust"]) == 0
    assert f"dovetail: note: {verilog}" in capsys.readouterr().err
    path = copy / "cpu" / "cpu0.onnx"
    model = onnx.load(path)
    tensor = numpy_helper.from_array(np.zeros(3, dtype=np.float32), "elsewhere")
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="/etc/passwd")
    model.graph.initializer.append(tensor)
    path.write_bytes(model.SerializeToString())
    with pytest.raises(BuildError, match=r"cpu0\.onnx: tensor elsewhere lies in another file"):
        load_build(copy, trust=True)


INJECTED = "10CX220YF780E5G; exec touch x"


def test_a_part_is_an_order_code_and_never_a_command(streamed: Build, copy: Path, tmp_path: Path,
                                                     capsys: pytest.CaptureFixture[str]) -> None:
    for part in (INJECTED, "a b", "a\nb", "[exec touch x]", "$x", "{x}", "-part", "x" * 65):
        with pytest.raises(UsageError, match=r"not an order code; letters, digits, - \. and _ are possible"):
            export_build(streamed, "quartus", tmp_path / "project", part)
    edit(copy / "manifest.json", lambda d: d["platform"]["device"][-1].update(part=INJECTED))
    assert main(["export", str(copy), "--vendor", "quartus", "-o", str(tmp_path / "project")]) == 2
    assert f"key part is {INJECTED!r}; an order code of letters, digits, - . and _ is needed" in capsys.readouterr().err
    assert not (tmp_path / "project").exists()
    entries = platform_to_dict(load_platform("tx2-c10gx"))
    fpga = next(d for d in entries["device"] if d["kind"] == "fpga")
    fpga["part"] = INJECTED
    with pytest.raises(PlatformError, match="an order code of letters"):
        platform_from_dict(entries)


@pytest.mark.parametrize(("file", "change", "message"), [
    ("manifest.json", lambda d: d["quantization"].update(samples="many"),
     "field quantization.samples is 'many'; a whole number from 0 is needed"),
    ("manifest.json", lambda d: d["model"].pop("sha256"), "field model.sha256 is missing"),
    ("manifest.json", lambda d: d.update(warnings=[3]), r"field warnings\[0\] is 3; a text is needed"),
    ("manifest.json", lambda d: d.update(schema=2), "schema 2; this version reads schema 1"),
    ("plan.json", lambda d: d["nodes"][0].update(latency_s="soon"), r"field nodes\[0\].latency_s is 'soon'; a number is needed"),
    ("plan.json", lambda d: d["nodes"][1].update(interval_s=[1]), r"field nodes\[1\].interval_s is a list of 1; a list of 2 is"),
    ("plan.json", lambda d: d["assignment"]["dw"].update(axis="depth"), "field assignment.dw.axis is 'depth'; one of "),
    ("plan.json", lambda d: d.update(objective=float("nan")), r"plan.json: unreadable \(NaN is no number of JSON\)"),
    ("plan.json", lambda d: d["busy_s"].update(cpu=None), "field busy_s.cpu is null; a number is needed"),
    ("plan.json", lambda d: d.update(clocks={"fpga0": {"one_frame": "soon"}}), "field clocks.fpga0.one_frame is 'soon'"),
])
def test_a_damaged_field_is_named_with_its_value_and_what_belongs_there(copy: Path, file: str, change: Callable[[dict], object],
                                                                       message: str) -> None:
    edit(copy / file, change)
    with pytest.raises(BuildError, match=message) as refused:
        load_build(copy)
    assert str(refused.value).startswith(str(copy / file))


def test_damaged_records_are_named_by_the_command_that_makes_them_again(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = {"schema": 1, "results": [{"device": "fpga", "segment": "fpga0", "family": "cyclone10gx", "tool": "Yosys",
                                      "resources": {"alm": "many"}, "notes": []}]}
    (copy / "synthesis.json").write_text(json.dumps(good))
    assert main(["report", str(copy)]) == 2
    assert capsys.readouterr().err.splitlines()[-1] == (
        f"dovetail: {copy / 'synthesis.json'}: field results[0].resources.alm is 'many'; a number is needed; remove it, or run "
        "`dovetail synth` again")


def test_damaged_clocks_of_a_verification_are_named(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (copy / "verification.json").write_text(json.dumps({
        "schema": 1, "equal": True, "frames": 1, "tensors_compared": 1, "elements_compared": 1, "first_mismatch": None,
        "segments": [], "high_water": {}, "cycles": {}, "clocks": {"fpga0": {"planned": {"one_frame": 9, "interval": 9}}}}))
    assert main(["report", str(copy)]) == 2
    assert "verification.json: field clocks.fpga0.error is missing" in capsys.readouterr().err


def test_a_report_of_a_baseline_of_nothing_compares_with_none(copy: Path) -> None:
    edit(copy / "plan.json", lambda d: d.update(baselines=dict.fromkeys(d["baselines"], 0)))
    assert main(["report", str(copy)]) == 0
    assert "best single device" not in (copy / "report.html").read_text().split("</head>")[0]


@pytest.mark.parametrize(("value", "shape", "message"), [
    (True, int, "the file is true; a whole number is needed"),
    (2**60, int, "a whole number is needed"),
    (-1, Whole(0, 9), "the file is -1; a whole number from 0 to 9 is needed"),
    ("a b", Text("[a-z]+", "a word"), "the file is 'a b'; a word is needed"),
    ("c", OneOf(("a", "b")), "the file is 'c'; one of a, b is needed"),
    ({"k": {"l": [0, "x"]}}, {"k": Each([float])}, r"field k.l\[1\] is 'x'; a number is needed"),
    ({"k": 1}, {"k": Maybe(str)}, "field k is 1; a text is needed"),
    ("\ud800", str, "a text is needed"),
    (1e308, float, "a number is needed"),
    ("x" * 100, bool, "x{40,}…; true or false is needed"),
])
def test_a_value_of_another_shape_is_refused_in_words(value: object, shape: document.Shape, message: str) -> None:
    with pytest.raises(BuildError, match=message):
        check(value, shape, FieldPath("file.json", "make it again"))


def test_mutated_builds_are_refused_or_opened_without_traceback_stray_file_or_command(
        streamed: Build, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A sample of `bench/mutated_builds.py`, which takes a thousand through `run` and `verify` as well."""
    canary, outside, codes = tmp_path / "canary", tmp_path / "outside", []
    for index in range(20):
        folder, cwd = tmp_path / f"case{index}" / "build", tmp_path / f"case{index}" / "cwd"
        cwd.mkdir(parents=True)
        outside.mkdir(exist_ok=True)
        (outside / "secret.txt").write_text("secret")
        monkeypatch.chdir(cwd)
        shutil.copytree(streamed.folder, folder)
        (folder / "power.json").write_text('{"schema": 1, "results": []}')
        mutate(folder, index, 29, canary, outside)
        for command in (["report", str(folder)],
                        ["export", str(folder), "--vendor", "quartus", "-o", str(folder.parent / "project")]):
            codes.append(main(command))
            assert codes[-1] in (0, 2), capsys.readouterr().err
        assert not canary.exists()
        assert not list(cwd.iterdir())
        assert [p.name for p in outside.iterdir()] == ["secret.txt"]
        shutil.rmtree(tmp_path / "moved", ignore_errors=True)
    assert {0, 2} == set(codes)
