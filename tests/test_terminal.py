"""What people see: any encoding, any width, pipes that close, and rooms that open without the heavy packages."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dovetail.cli import main
from dovetail.terminal import table
from dovetail.words import shortened

FASHION = Path(__file__).parents[1] / "examples" / "fashion"
MODEL = [str(FASHION / "fashion.onnx"), "--calibration", str(FASHION / "calibration.npz")]


def dovetail(*arguments: str, stdout: int = subprocess.PIPE, **environment: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([sys.executable, "-m", "dovetail.cli", *arguments], stdout=stdout, stderr=subprocess.PIPE,
                          env={**os.environ, **environment}, check=False)


def test_a_terminal_without_our_signs_gets_the_nearest_ascii() -> None:
    found = dovetail("inspect", MODEL[0], PYTHONIOENCODING="ascii", LC_ALL="C", PYTHONUTF8="0")
    assert found.returncode == 0, found.stderr
    assert b"-------" in found.stdout.splitlines()[3]


def test_a_full_disk_is_one_line_and_exit_code_two() -> None:
    with open("/dev/full", "wb") as full:
        found = dovetail("inspect", MODEL[0], stdout=full.fileno())
    assert found.returncode == 2
    assert found.stderr == b"dovetail: output: no space left on device; check the path, its permissions and the free space\n"


def test_a_narrow_terminal_gets_sentences_below_their_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    lines = table(["layer", "why"], [["conv" * 10, "a sentence of many words that needs more than one line"]]).splitlines()
    assert all(len(line) <= 40 for line in lines)
    assert lines[-1].startswith("    ")
    assert lines[-1].endswith("one line")


@pytest.mark.slow("weighs accelerators")
def test_a_plan_for_an_accelerator_says_what_its_devices_would_do_alone(capsys: pytest.CaptureFixture[str]) -> None:
    ask = ["plan", *MODEL, "-p", "zcu102", "--objective", "throughput", "--json", "-"]
    assert main([*ask, "--architecture", "seml"]) == 0
    pinned = json.loads(capsys.readouterr().out)
    assert main(ask) == 0
    free = json.loads(capsys.readouterr().out)
    assert pinned["baselines"]["cpu"] == free["baselines"]["cpu"]
    assert pinned["baselines"]["fpga"] == pinned["objective"] == pinned["baselines"]["greedy"]
    assert (pinned["pinned"], free["pinned"]) == (11, 0)
    assert free["lower_bound"] <= pinned["lower_bound"] <= pinned["objective"]
    assert free["objective"] <= pinned["objective"]
    assert main([*ask[:-2], "--architecture", "seml"]) == 0
    printed = capsys.readouterr().out
    assert "; not possible: gpu alone (11 of 11 nodes are pinned: greedy, balanced and random keep that, " \
           "single devices run everything themselves)" in printed


def test_a_long_name_keeps_both_ends() -> None:
    assert shortened("features.0.conv.weight", 12) == "featu…weight"
    assert shortened("short", 12) == "short"


def test_an_infeasible_plan_keeps_the_whole_contract(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", *MODEL, "--max-latency-ms", "0.0805", "--fold", "none", "--json", "-"]) == 1
    printed = capsys.readouterr()
    found = json.loads(printed.out)
    assert found["status"] == "infeasible"
    assert found["baselines"] == dict.fromkeys(["cpu", "gpu", "fpga", "greedy", "balanced", "random"])
    assert "0.0805 ms allowed" in printed.err.splitlines()[-1]
    assert "too much" in printed.err.splitlines()[-1]


@pytest.mark.parametrize("room", ["dovetail", "dovetail.ir", "dovetail.ir.onnx.read", "dovetail.numerics.reference"])
def test_rooms_that_only_need_numpy_and_onnx_open_without_the_rest(room: str) -> None:
    blocked = "import sys\nfor name in ('onnxruntime', 'scipy', 'rich'): sys.modules[name] = None\n"
    found = subprocess.run([sys.executable, "-c", f"{blocked}import {room}"], capture_output=True, check=False)
    assert found.returncode == 0, found.stderr
