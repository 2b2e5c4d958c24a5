"""The command line as scripts use it: contracts of the JSON, exit codes, messages, nothing half-written."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dovetail import files
from dovetail.cli import main
from dovetail.cli.output import progress_lines
from dovetail.ir.onnx.read import read_onnx
from dovetail.numerics.calibration import load_arrays
from dovetail.numerics.fixed import dequantize
from dovetail.numerics.oracle import run_onnx
from dovetail.numerics.reference import run_integer
from dovetail.runtime.build import load_build, run_stored, store
from tests.report.report_browser import browse

pytestmark = pytest.mark.verilator

FASHION = Path(__file__).parents[1] / "examples" / "fashion"
MODEL = str(FASHION / "fashion.onnx")
CALIBRATION = str(FASHION / "calibration.npz")


def output_json(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> dict:
    assert main([*arguments, "--json", "-"]) == code
    return json.loads(capsys.readouterr().out)


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cli") / "fashion"
    assert main(["compile", MODEL, "-p", "tx2-c10gx", "--calibration", CALIBRATION, "--thrift", "0.05", "--fold", "none", "-o",
                 str(folder)]) == 0
    return folder


def test_the_build_folder_holds_what_the_contract_names(build: Path) -> None:
    for name in ("manifest.json", "plan.json", "model.onnx", "report.html", "trace.json", "verification.json"):
        assert (build / name).is_file(), name
    assert (build / "cpu").is_dir()
    assert list((build / "fpga").glob("*/*.v"))
    assert [p.name for p in build.parent.iterdir()] == ["fashion"]


def test_a_thrifty_plan_uses_several_devices_and_stays_small(build: Path) -> None:
    loaded = load_build(build)
    assert {s.device for s in loaded.program.segments} >= {"cpu", "fpga"}
    part = loaded.part(next(s for s in loaded.program.segments if s.device == "fpga"))
    assert part.design.adders <= 1200
    assert part.backend == "verilator"


def test_the_build_classifies_as_the_int8_reference_does(build: Path) -> None:
    images = load_arrays(FASHION / "test_images.npz")
    loaded = load_build(build)
    stored = store(loaded.graph, {"image": images["x"]}, "test")
    reference = run_integer(loaded.graph, stored)["logits"]
    built = run_stored(loaded, stored)["logits"]
    np.testing.assert_array_equal(built, reference)
    floats = np.concatenate([run_onnx(Path(MODEL).read_bytes(), {"image": x[None]})["logits"] for x in images["x"]])
    right = [float((y.argmax(1) == images["y"]).mean()) for y in (floats, reference)]
    assert right[1] >= right[0] - 0.01


def test_verify_prints_its_contract(build: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = output_json(capsys, "verify", str(build), "--frames", "50")
    assert found["equal"] is True
    assert found["frames"] == 50
    assert found["tensors_compared"] >= 2
    assert found["first_mismatch"] is None


def test_verify_asks_a_second_simulator(build: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    found = output_json(capsys, "verify", str(build), "--frames", "2", "--icarus")
    assert [s["backend"] for s in found["segments"]].count("icarus") == 1
    assert main(["verify", str(build), "--frames", "2", "--icarus"]) == 0
    assert "fpga0 (icarus)" in capsys.readouterr().out
    monkeypatch.setenv("DOVETAIL_ICARUS", "/nowhere/iverilog")
    assert main(["verify", str(build), "--icarus"]) == 2
    assert "DOVETAIL_ICARUS=/nowhere/iverilog is not an executable file" in capsys.readouterr().err


def test_verify_holds_the_simulated_clocks_against_the_plan(build: Path, tmp_path: Path,
                                                            capsys: pytest.CaptureFixture[str]) -> None:
    found = output_json(capsys, "verify", str(build), "--frames", "4")["clocks"]
    name, own = next(iter(found.items()))
    simulated = own["simulated"]
    assert own["within"] is True
    assert own["holds"] == {"one_frame": True, "interval": True}
    assert simulated["interval"] <= simulated["one_frame"]
    assert json.loads((build / "verification.json").read_text())["clocks"] == found
    assert main(["verify", str(build), "--frames", "4"]) == 0
    assert f"\n{name}: simulated clocks are within the plan's stated error of " in capsys.readouterr().out
    wrong = tmp_path / "wrong"
    shutil.copytree(build, wrong)
    plan = json.loads((wrong / "plan.json").read_text())
    plan["clocks"][name]["one_frame"] *= 1.6
    (wrong / "plan.json").write_text(json.dumps(plan))
    assert main(["verify", str(wrong), "--frames", "4"]) == 0
    told = (f"{name}: simulated clocks are outside the plan's stated error of {own['error']:.0%} or 16 clocks: one frame "
            f"{simulated['one_frame']:,} (planned {own['planned']['one_frame'] * 1.6:,.0f}); the plan's times of this segment ")
    assert f"\nWARNING: {told}" in capsys.readouterr().out
    assert f"✗ Clocks. </strong>{told}".replace("'", "&#x27;") in (wrong / "report.html").read_text()
    assert main(["verify", str(wrong), "--frames", "1", "--json", "-"]) == 0
    printed = capsys.readouterr()
    assert told in printed.err
    again = json.loads(printed.out)["clocks"][name]
    assert (again["within"], again["simulated"]["interval"]) == (False, None)
    assert again["holds"] == {"one_frame": False, "interval": True}


def test_a_mismatch_is_exit_code_one_and_named(build: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    copy = tmp_path / "bad"
    shutil.copytree(build, copy)
    path = copy / "fpga" / "fpga0" / "fpga0_add1.v"
    text = path.read_text()
    swapped = re.sub(r"(beat = \{.*, )([^,]+), ([^,]+)\};", r"\1\3, \2};", text, count=1)
    assert swapped != text
    path.write_text(swapped)
    assert main(["verify", str(copy), "--trust", "--json", "-"]) == 1
    printed = capsys.readouterr()
    found = json.loads(printed.out)
    assert found["equal"] is False
    assert found["first_mismatch"]["engine"] == "add1"
    assert re.match(r"out0 frame \d+, beat \d+: row \d+, column \d+, channel \d+ is -?\d+, expected -?\d+$",
                    found["first_mismatch"]["beat"])
    assert printed.err.strip().splitlines()[-1].startswith("MISMATCH: tensor ")


def test_selftest_drives_the_hardware_behind_its_ports(build: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["selftest", str(build), "--frames", "3", "--stall-seed", "1"]) == 0
    printed = capsys.readouterr().out
    assert "self-test passed" in printed
    assert "3 frames bit-exact; soft reset in mid-frame: right afterwards" in printed
    copy = tmp_path / "foreign"
    shutil.copytree(build, copy)
    described = copy / "fpga" / "fpga0" / "axi" / "shell.json"
    known = json.loads(described.read_text())
    described.write_text(json.dumps({**known, "build_hash": "0" * 32}))
    assert main(["selftest", str(copy), "--trust"]) == 1
    assert capsys.readouterr().err.splitlines()[-1] == (
        f"dovetail: board: build hash {known['build_hash']}; this build has {'0' * 32}, load the bitstream made from this build "
        "or open the build the board was made from")
    assert main(["selftest", str(copy), "--trust", "--frames", "0"]) == 2


def test_export_hands_over_what_was_compiled_behind_its_axi_ports(build: Path, tmp_path: Path,
                                                                 capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", str(build), "--vendor", "quartus", "-o", str(tmp_path / "project")]) == 0
    project = tmp_path / "project" / "fpga0"
    assert capsys.readouterr().out == f"{project}: build it there with `quartus_sh -t build.tcl`\n"
    for name in ("fpga0_axi.v", "fpga0_axi_control.v"):
        assert (project / "rtl" / name).read_text() == (build / "fpga" / "fpga0" / "axi" / name).read_text()
    known = json.loads((project / "host" / "shell.json").read_text())
    assert known["build_hash"] in (project / "README.md").read_text()


def test_power_counts_toggles_and_says_what_to_plan_with(build: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    copy = tmp_path / "counted"
    shutil.copytree(build, copy)
    assert main(["power", str(copy), "--frames", "3"]) == 0
    printed = capsys.readouterr().out
    assert "toggles counted by Verilator over 3 frames" in printed
    assert "put into the board file under [device.parameters]: activity = { value = 0." in printed
    remembered = json.loads((copy / "power.json").read_text())["results"][0]
    assert 0 < remembered["energy_low_j"] <= remembered["energy_high_j"]
    assert "toggles counted by Verilator over 3 frames" in (copy / "report.html").read_text(encoding="utf-8")
    assert main(["power", str(copy), "--frames", "0"]) == 2
    assert capsys.readouterr().err.splitlines()[-1] == "dovetail: power: 0 frames; at least 1 is needed"


def test_the_report_opens_without_console_errors(build: Path, tmp_path: Path) -> None:
    document, console = browse((build / "report.html").read_text(encoding="utf-8"), tmp_path)
    assert console == []
    for node in load_build(build).graph.nodes:
        assert node.name in document


def test_run_writes_the_results_of_the_devices(build: Path, tmp_path: Path) -> None:
    x = load_arrays(FASHION / "test_images.npz")["x"][:3]
    np.save(tmp_path / "x.npy", x)
    assert main(["run", str(build), "-i", str(tmp_path / "x.npy"), "-o", str(tmp_path / "y.npy")]) == 0
    expected = run_onnx((build / "model.onnx").read_bytes(), {"image": x})["logits"]
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), expected)


def test_plan_prints_its_contract(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = output_json(capsys, "plan", MODEL, "-p", "tx2-c10gx", "--calibration", CALIBRATION, "-o", str(tmp_path / "plan.json"))
    assert {"objective", "goal", "lower_bound", "gap", "status", "solver", "makespan_s", "baselines", "assignment",
            "resources"} <= set(found)
    assert found["goal"] == "latency"
    assert found["status"] in ("optimal", "feasible")
    assert 0 < found["lower_bound"] <= found["objective"]
    assert found["makespan_s"] <= found["objective"] * (1 + 1e-9)
    assert set(found["baselines"]) == {"cpu", "gpu", "fpga", "greedy", "balanced", "random"}
    assert found["objective"] <= min(found["baselines"][alone] for alone in ("cpu", "gpu", "fpga"))
    graph = read_onnx(MODEL).graph
    assert set(found["assignment"]) == {n.name for n in graph.nodes}
    for split in found["assignment"].values():
        assert set(split) >= {"axis", "shares"}
        assert all(set(s) == {"device", "start", "stop"} for s in split["shares"])
    assert json.loads((tmp_path / "plan.json").read_text()) == found


@pytest.mark.parametrize("goal", ["energy", "edp"])
def test_every_goal_can_be_asked_for(goal: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = output_json(capsys, "plan", MODEL, "--objective", goal, "--time", "2")
    assert found["goal"] == goal
    assert found["lower_bound"] <= found["objective"]


@pytest.mark.parametrize("board", ["ecp5-85", "this-machine"])
def test_other_boards_get_plans_too(board: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = output_json(capsys, "plan", MODEL, "-p", board, "--time", "2")
    assert found["objective"] <= found["baselines"]["cpu"]


def test_plans_are_words_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", MODEL, "--calibration", CALIBRATION, "--fold", "none"]) == 0
    text = capsys.readouterr().out
    for word in ("conv1", "fpga", "pipelined after", "compared with", "alm", "extrapolated", "one step up: a 25 % faster ",
                 "intervals: errors of one device's model add up over its layers"):
        assert word in text
    verdict = text.splitlines()[0]
    for word in ("fashion on tx2-c10gx: ", " frames/s (−", " µs (−", " per frame, at 90 % confidence; ",
                 "× faster than cpu alone (",
                 "; proven optimal over all whole placements and candidate cuts of direct mapping; limited by ",
                 " % of the latency)"):
        assert word in verdict


def test_frames_per_second_are_a_limit(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["plan", MODEL, "--fold", "none", "-o", str(tmp_path / "free.json")]) == 0
    free = json.loads((tmp_path / "free.json").read_text())["interval_s"]
    assert main(["plan", MODEL, "--fold", "none", "--min-fps", str(0.9 / free), "-o", str(tmp_path / "paced.json")]) == 0
    assert json.loads((tmp_path / "paced.json").read_text())["interval_s"] <= free / 0.9 * (1 + 1e-9)
    capsys.readouterr()
    assert main(["plan", MODEL, "--fold", "none", "--min-fps", "1e9"]) == 1
    assert "interval between frames: every plan within the other limits needs at least" in capsys.readouterr().err


def test_a_saved_plan_is_taken_as_it_is(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    saved, again = tmp_path / "plan.json", tmp_path / "again.json"
    assert main(["plan", MODEL, "--devices", "fpga:2", "--pin", "conv1=fpga1", "--pin", "fc*=cpu", "--objective", "energy",
                 "-o", str(saved)]) == 0
    assert main(["plan", MODEL, "--plan", str(saved), "-o", str(again)]) == 0
    first, second = (json.loads(f.read_text()) for f in (saved, again))
    assert {d["name"] for d in first["platform"]["device"]} == {"cpu", "gpu", "fpga0", "fpga1"}
    assert [first["assignment"][n]["shares"][0]["device"] for n in ("conv1", "fc1", "fc2")] == ["fpga1", "cpu", "cpu"]
    same = ("goal", "platform", "assignment", "objective", "latency_s", "energy_j", "interval_s", "makespan_s", "resources")
    assert {k: first[k] for k in same} == {k: second[k] for k in same}
    assert (first["pinned"], second["pinned"]) == (3, len(first["assignment"]))
    capsys.readouterr()
    for arguments, message in (
            (["--plan", str(saved), "-p", "tx2"], "it holds the board and the place of every node; leave out -p"),
            (["--plan", "none.json"], "none.json: missing; write one with `dovetail plan MODEL -o none.json`"),
            (["--pin", "conv9=cpu"], "pin conv9: fashion has no such node (did you mean conv1?); `dovetail inspect MODEL` lists"),
            (["--pin", "conv1"], "--pin conv1: not NODE=DEVICE; write for example --pin conv1=fpga"),
            (["--pin", "conv1=gpuu"], "platform tx2-c10gx: no device gpuu; it has cpu, gpu, fpga"),
            (["--devices", "gpu:2"], "devices gpu:2: gpu of tx2-c10gx is a gpu; only FPGAs can be repeated"),
            (["--devices", "fpga:0"], "devices fpga:0: a whole number from 1 to 64 devices is needed after the colon"),
            (["--devices", "xcku095"], "devices xcku095: the count is missing; write fpga:N or xcku095:N or xcku115:N with N")):
        assert main(["plan", MODEL, *arguments]) == 2
        assert message in capsys.readouterr().err


def test_an_impossible_limit_is_infeasible_with_a_reason(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", MODEL, "--fold", "none", "--max-latency-ms", "0.000001", "--json", "-"]) == 1
    printed = capsys.readouterr()
    found = json.loads(printed.out)
    assert found["status"] == "infeasible"
    assert found["objective"] is None
    assert "latency" in printed.err


def test_quantize_writes_a_model_plain_onnx_runtime_loads(tmp_path: Path) -> None:
    target = tmp_path / "int8.onnx"
    assert main(["quantize", MODEL, "--bits", "8", "--calibration", CALIBRATION, "-o", str(target)]) == 0
    graph = read_onnx(target).graph
    assert graph.quantized
    x = load_arrays(FASHION / "test_images.npz")["x"][:16]
    found = run_onnx(target.read_bytes(), {"image": x})["logits"]
    reference = run_integer(graph, store(graph, {"image": x}, "test"))["logits"]
    np.testing.assert_array_equal(found, dequantize(reference.astype(float), graph.tensors["logits"].scheme))


def test_a_quantized_model_keeps_its_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target, again = tmp_path / "int8.onnx", tmp_path / "again.onnx"
    assert main(["quantize", MODEL, "--calibration", CALIBRATION, "-o", str(target)]) == 0
    assert main(["quantize", str(target), "-o", str(again)]) == 0
    first = read_onnx(target).graph
    assert replace(read_onnx(again).graph, name=first.name) == first, "a network is called as its file is"


def test_missing_calibration_is_said_aloud(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["quantize", MODEL, "-o", str(tmp_path / "q.onnx")]) == 0
    assert "no calibration data was given" in capsys.readouterr().err


def test_inspect_and_platforms_answer_people_and_scripts(capsys: pytest.CaptureFixture[str]) -> None:
    found = output_json(capsys, "inspect", MODEL)
    assert found["macs"] == read_onnx(MODEL).graph.macs
    assert [layer["name"] for layer in found["layers"]][:2] == ["conv1", "dw1"]
    assert main(["inspect", MODEL]) == 0
    assert "MACs" in capsys.readouterr().out
    assert main(["platforms"]) == 0
    listed = capsys.readouterr().out
    assert all(name in listed for name in ("tx2-c10gx", "ecp5-85", "this-machine"))
    assert main(["platforms", "tx2-c10gx"]) == 0
    assert "assumed" in capsys.readouterr().out


def test_every_command_explains_itself(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("inspect", "platforms", "plan", "quantize", "compile", "verify", "run", "power", "synth", "export", "report"):
        with pytest.raises(SystemExit) as ended:
            main([command, "--help"])
        assert ended.value.code == 0
        assert "example:" in capsys.readouterr().out


BAD = [
    (["plan", "absent.onnx"], "absent.onnx: no such file; give the path of an ONNX model"),
    (["plan", MODEL, "-p", "zcu9000"], "zcu9000"),
    (["plan", MODEL, "--calibration", "absent.npz"], "absent.npz: no such file; give an .npz with key 'x', one sample per row"),
    (["plan", MODEL, "--max-latency-ms", "-1"], "--max-latency-ms -1: must be above 0"),
    (["plan", MODEL, "--min-fps", "0"], "--min-fps 0: must be above 0"),
    (["plan", MODEL, "--thrift", "2"], "thrift 2: a fraction of the objective"),
    (["plan", MODEL, "--fold", "few"], "--fold few: a number of clocks per frame above 0, auto or none is needed"),
    (["plan", MODEL, "--shape", "image"], "--shape image: not INPUT=SIZES; write for example --shape image=1,3,224,224"),
    (["quantize", MODEL, "--bits", "9", "-o", "q.onnx"], "quantize: 9 bits; 2 to 8 are supported"),
    (["quantize", MODEL, "-o", "no/such/folder/q.onnx"], "cannot be written, no such file or directory"),
    (["verify", "absent"], "absent: no such build folder; make one with `dovetail compile MODEL -p BOARD -o absent`"),
    (["compile", MODEL, "-o", "/dev/null/build"], "cannot be written"),
]


@pytest.mark.parametrize(("arguments", "message"), BAD, ids=[" ".join(Path(w).name for w in a) for a, _ in BAD])
def test_bad_input_is_one_line_and_exit_code_two(arguments: list[str], message: str, tmp_path: Path,
                                                 monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("dovetail: ") and "note:" not in line]
    assert len(lines) == 1
    assert message in lines[0]
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_ours_is_not_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    assert main(["compile", MODEL, "-o", str(tmp_path)]) == 2
    assert "exists and is not a folder of ours" in capsys.readouterr().err
    assert (tmp_path / "thesis.tex").read_text() == "years of work"


def test_a_missing_simulator_says_how_to_get_it_and_keeps_the_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                                   capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("DOVETAIL_VERILATOR", str(tmp_path / "none"))
    monkeypatch.setenv("DOVETAIL_CACHE", str(tmp_path / "cache"))
    assert main(["compile", MODEL, "--calibration", CALIBRATION, "--fold", "none", "-o", str(tmp_path / "build")]) == 2
    said = capsys.readouterr().err
    assert "erilator" in said
    assert f"then run `dovetail verify {tmp_path / 'build'}`" in said
    assert not (tmp_path / "build" / "verification.json").exists()
    assert load_build(tmp_path / "build").plan.assignment
    assert not list(tmp_path.glob(".build*"))


def test_a_full_disk_is_one_line_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                   capsys: pytest.CaptureFixture[str]) -> None:
    def full(path: str | Path, content: bytes) -> None:
        raise OSError(28, "No space left on device")
    monkeypatch.setattr(files.os, "replace", full)
    assert main(["quantize", MODEL, "-o", str(tmp_path / "q.onnx")]) == 2
    assert "q.onnx: cannot be written, no space left on device" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_an_interrupt_is_exit_code_130_and_leaves_nothing(tmp_path: Path) -> None:
    environment = {**os.environ, "DOVETAIL_CACHE": str(tmp_path / "cache")}
    process = subprocess.Popen(
        [sys.executable, "-m", "dovetail.cli", "compile", MODEL, "--calibration", CALIBRATION, "--fold", "none", "-o",
         str(tmp_path / "build")],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))  # tests in the background inherit it ignored
    assert process.stderr is not None
    seen = ""
    deadline = time.monotonic() + 600
    while "generate" not in seen and time.monotonic() < deadline:  # hardware is compiled and simulated after that
        seen += process.stderr.readline()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=600)
    assert process.returncode == 130
    assert "interrupted; nothing half-written was left behind" in err
    assert "Traceback" not in err
    assert not [p for p in tmp_path.iterdir() if p.name != "cache"]


def test_the_package_is_the_command_too() -> None:
    told = subprocess.run([sys.executable, "-m", "dovetail", "--version"], capture_output=True, text=True, check=True)
    assert told.stdout.startswith("dovetail ")


def test_a_long_stage_tells_its_count_and_the_time_left() -> None:
    said, at = list[str](), [0.0]
    progress = progress_lines(said.append, lambda: at[0])
    for second, stage, done in ((0, "generate", 0), (2, "generate", 2), (6, "generate", 3), (7, "generate", 4), (8, "plan", 0)):
        at[0] = float(second)
        progress(stage, done, 10)
    assert said == ["generate", "generate: 2 of 10, about 8 s left", "generate: 3 of 10, about 14 s left", "plan"]
