"""Help in groups, what is installed and missing, boards of one's own, plans beside each other, tables that are not cut."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from dovetail import doctor
from dovetail.cli import main
from dovetail.cli.program import ACTIONS, GROUPS, parser
from dovetail.doctor import EXTRAS, Presence, examine
from dovetail.platform.load import load_platform, platform_names
from dovetail.terminal import table, wide

ROOT = Path(__file__).parents[1]
MODEL = str(ROOT / "examples" / "fashion" / "fashion.onnx")


def test_help_lists_every_command_in_one_group() -> None:
    listed = [name for names in GROUPS.values() for name in names]
    assert sorted(listed) == sorted(ACTIONS)
    said = parser().format_help()
    assert [line.strip(":") for line in said.splitlines() if re.fullmatch(r"[a-z ]+:", line)] == [*GROUPS, "examples"]
    assert all(re.search(rf"^  {name}\s", said, re.M) for name in listed)


def test_help_loads_no_planner() -> None:
    script = ("import sys; from dovetail.cli.program import parser; parser().format_help(); "
              "print([m for m in ('scipy', 'onnxruntime', 'rich', 'dovetail.partition.evaluate') if m in sys.modules])")
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert told.stdout == "[]\n"


def test_every_command_answers_scripts_and_wide_terminals() -> None:
    (group,) = (a for a in parser()._actions if isinstance(a.choices, dict))
    offered = {name: {option for action in command._actions for option in action.option_strings}
               for name, command in group.choices.items()}
    assert {name for name, options in offered.items() if {"--json", "--wide"} <= options} == set(ACTIONS)


def test_a_long_last_column_is_wrapped_and_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    why = "gpu: 50.5 µs + 30 µs transfer; next best fpga, which would take longer because its link is slow, and more energy"
    lines = table(["layer", "why"], [["conv1", why], ["conv2", "short"]]).splitlines()
    assert all(len(line) <= 60 for line in lines)
    assert " ".join(line.strip() for line in lines[2:-1]) == f"conv1  {why}"
    assert lines[-1] == "conv2  short"
    assert table(["a", "why"], [["b", f"{'word ' * 20}dovetail-accel[gpu]"]]).splitlines()[-1].strip() == "dovetail-accel[gpu]"
    with wide():
        assert f"conv1  {why}" in table(["layer", "why"], [["conv1", why]]).splitlines()


def test_the_extras_are_those_of_the_package() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    for name, extra in EXTRAS.items():
        assert [re.split(r"[\[<>=!;]", line)[0].strip() for line in extras[name]] == list(extra.packages)
    assert set(extras) - set(EXTRAS) == {"bench", "peers", "docs", "exporters", "fuzz", "dev"}


def test_doctor_tells_missing_from_broken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
                                          capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("DOVETAIL_CACHE", str(tmp_path))
    monkeypatch.setenv("DOVETAIL_VERILATOR", "/nowhere/verilator")
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(doctor, "EXTRAS", {"gone": doctor.Extra(("no-such-package",), "nothing")})
    monkeypatch.setattr(doctor.gpu, "cuda_devices", lambda: ())
    monkeypatch.setattr(doctor.shutil, "which", lambda name: None)
    found = {f.name: f for f in examine()}
    assert found["no-such-package"].state is Presence.MISSING
    assert found["no-such-package"].remedy == "pip install 'dovetail-accel[gone]'"
    assert found["Verilator"].state is Presence.BROKEN
    assert found["Verilator"].remedy == "correct or unset DOVETAIL_VERILATOR"
    assert found["C++ compiler"].remedy == "apt-get install g++, or name yours in CXX"
    assert found["Vivado"].state is Presence.MISSING
    assert found["numpy"].state is Presence.FOUND
    assert main(["doctor", "--json", "-"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert "Verilator" in document["broken"]
    assert main(["doctor"]) == 1
    assert "not work; " in capsys.readouterr().out
    monkeypatch.setattr("dovetail.cli.actions.setup.examine", lambda: [found["numpy"], found["Vivado"]])
    assert main(["doctor"]) == 0
    assert "nothing is broken; 1 optional part is missing" in capsys.readouterr().out


@pytest.mark.parametrize("source", [name.partition(":")[0] for name in platform_names() if name != "this-machine"])
def test_a_new_board_loads_and_marks_what_it_took_over(source: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mine.toml"
    assert main(["new-board", "mine", "-o", str(path), "--from", source, "--json", "-"]) == 0
    numbers = json.loads(capsys.readouterr().out)["numbers"]
    text = path.read_text(encoding="utf-8")
    assert text.count(f'source = "assumed: taken over from {source} (') == numbers > 5
    found = load_platform(f"{path}:2" if "[repeat]" in text else str(path))
    assert found.name.startswith("mine")
    again = tmp_path / "again.toml"
    assert main(["new-board", "again", "-o", str(again), "--from", str(path)]) == 0
    assert "taken over from mine.toml (taken over from" in again.read_text(encoding="utf-8")


@pytest.mark.parametrize(("arguments", "message"), [
    (["new-board", "zcu102"], "new board zcu102: a board of this name comes along; choose another one"),
    (["new-board", "2 boards"], "new board '2 boards': letters, digits, - and _ are possible, a letter first"),
    (["new-board", "mine", "--from", "zcu10"], "new board from zcu10: no board file of this name (did you mean zcu102?)"),
    (["new-board", "mine", "--from", "./absent.toml"], "new board from ./absent.toml: cannot be read"),
    (["compare", "absent", "absent"], "absent: no such file; give a file of `dovetail plan -o`, or a build folder"),
    (["compare", ".", "."], ".: holds no plan.json; give a file of `dovetail plan -o`, or a build folder"),
])
def test_what_cannot_be_is_said_in_a_line(arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                          capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_two_plans_are_compared_in_words_and_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, two = str(tmp_path / "one.json"), str(tmp_path / "two.json")
    assert main(["plan", MODEL, "--fold", "none", "-o", one]) == 0
    assert main(["plan", MODEL, "--fold", "none", "--pin", "conv1=gpu", "-o", two]) == 0
    (tmp_path / "build").mkdir()
    (tmp_path / "build" / "plan.json").write_text(Path(two).read_text(encoding="utf-8"), encoding="utf-8")
    (tmp_path / "build" / "synthesis.json").write_text(json.dumps({"schema": 1, "results": [
        {"device": "fpga", "segment": "fpga0", "family": "cyclonev", "tool": "yosys", "resources": {"alm": 7.0}, "notes": []}]}))
    capsys.readouterr()
    assert main(["compare", one, str(tmp_path / "build"), "--json", "-"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {row["layer"] for row in found["moved"]} >= {"conv1"}
    assert found["figures"]["latency_s"]["ratio"] == pytest.approx(
        found["figures"]["latency_s"]["second"] / found["figures"]["latency_s"]["first"])
    assert found["resources"]["fpga"]["alm"]["second_counted"] == 7.0
    assert main(["compare", one, str(tmp_path / "build")]) == 0
    said = capsys.readouterr().out
    assert f"of {len(json.loads(Path(one).read_text())['assignment'])} layers elsewhere:" in said
    assert "counted 7" in said
    assert main(["compare", one, one]) == 0
    assert "layers are where they were" in capsys.readouterr().out


def test_a_network_is_called_as_its_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "shirts.v2.onnx").write_bytes(Path(MODEL).read_bytes())
    assert main(["inspect", str(tmp_path / "shirts.v2.onnx"), "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["name"] == "shirts.v2"


def test_quantize_answers_scripts_without_a_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = str(tmp_path / "q.onnx")
    assert main(["quantize", MODEL, "--calibration", str(ROOT / "examples/fashion/calibration.npz"), "-o", target,
                 "--json", "-"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["output"], found["format"], found["samples"]) == (target, "QDQ", 128)




@pytest.mark.parametrize(("error", "said"), [
    (MemoryError(), "dovetail: out of memory; use a smaller model or fewer frames\n"),
    (SystemError("<ufunc 'add'> returned NULL without setting an exception"),
     "dovetail: out of memory (<ufunc 'add'> returned NULL without setting an exception); use a smaller model or fewer frames\n"),
    (ValueError("out of memory"), "dovetail: out of memory; use a smaller model or fewer frames\n"),
])
def test_a_machine_without_memory_ends_a_command_in_one_line(error: BaseException, said: str, monkeypatch: pytest.MonkeyPatch,
                                                             capsys: pytest.CaptureFixture[str]) -> None:
    def refused(options: object) -> int:
        raise error

    monkeypatch.setattr("dovetail.cli.program.action_of", lambda command: refused)
    assert main(["platforms"]) == 2
    assert capsys.readouterr().err == said


def test_a_mistake_of_ours_is_not_taken_for_a_lack_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(options: object) -> int:
        raise ValueError("not enough values to unpack")

    monkeypatch.setattr("dovetail.cli.program.action_of", lambda command: wrong)
    with pytest.raises(ValueError, match="unpack"):
        main(["platforms"])
