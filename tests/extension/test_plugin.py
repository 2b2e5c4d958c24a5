"""A package of somebody else brings a board, an operator, a solver and an engine, by entry points alone."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.extension.changes import HERE, small_model

PLUGIN = HERE / "plugin"


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A folder for sys.path, as pip leaves it: the package, and what its pyproject.toml says in a dist-info folder."""
    site = tmp_path / "site"
    shutil.copytree(PLUGIN / "src", site, ignore=shutil.ignore_patterns("__pycache__"))
    project = tomllib.loads((PLUGIN / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    known = site / "dovetail_example-1.0.dist-info"
    known.mkdir()
    (known / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    (known / "entry_points.txt").write_text("\n".join(
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in own.items())
        for group, own in project["entry-points"].items()))
    onnx.save(small_model(), tmp_path / "small.onnx")
    return site


def dovetail(site: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command with the package on the path."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(site), *sys.path]), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run([sys.executable, "-m", "dovetail", *arguments], cwd=site.parent, env=environment, capture_output=True,
                          text=True, check=False)


@pytest.mark.slow("starts the command for each kind")
def test_a_board_a_solver_and_an_operator_are_used_as_ours_are(installed: Path) -> None:
    done = dovetail(installed, "plan", "small.onnx", "-p", "bench-top", "--solver", "host-alone", "--bits", "6", "--json", "-")
    assert done.returncode == 0, done.stderr
    plan = json.loads(done.stdout)
    assert (plan["platform"]["name"], plan["solver"]) == ("bench-top", "host-alone")
    assert plan["objective"] > plan["lower_bound"], "judged by the evaluator, not by the solver"
    done = dovetail(installed, "inspect", "small.onnx", "--json", "-")
    layers = {layer["name"]: layer for layer in json.loads(done.stdout)["layers"]}
    assert layers["larger"]["operator"] == "Maximum"
    assert layers["larger"]["devices"]["fpga"], "its engine has a formula"
    done = dovetail(installed, "quantize", "small.onnx", "-o", "q.onnx")
    assert done.returncode == 0, done.stderr
    assert "Max" in {node.op_type for node in onnx.load(installed.parent / "q.onnx").graph.node}


def test_without_the_package_there_is_none_of_it(installed: Path) -> None:
    shutil.rmtree(installed / "dovetail_example-1.0.dist-info")
    done = dovetail(installed, "plan", "small.onnx", "-p", "bench-top")
    assert done.returncode == 2
    assert "platform bench-top: unknown" in done.stderr
    assert "invalid choice: 'host-alone'" in dovetail(installed, "plan", "small.onnx", "--solver", "host-alone").stderr


@pytest.mark.parametrize(("entry", "arguments", "said"), [
    ("[dovetail.solvers]\nhost-alone = dovetail_example.gone:solve\n", ("--solver", "host-alone"),
     "plug-in dovetail-example: solver host-alone cannot be loaded (ModuleNotFoundError: No module named "),
    ("[dovetail.operators]\nMax = dovetail_example:BOARD\n", (),
     "plug-in dovetail-example: operator Max is a PosixPath; an OperatorPlugin is needed"),
    ("[dovetail.boards]\nzcu102 = dovetail_example:BOARD\n", ("-p", "zcu102"),
     "plug-in board zcu102: one of this name comes along; uninstall the plug-in, or rename it"),
])
def test_a_package_that_does_not_work_is_named(installed: Path, entry: str, arguments: tuple[str, ...], said: str) -> None:
    (installed / "dovetail_example-1.0.dist-info" / "entry_points.txt").write_text(entry)
    done = dovetail(installed, "plan", "small.onnx", *arguments)
    assert (done.returncode, len(done.stderr.strip().splitlines()[-1:])) == (2, 1)
    assert said in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.verilator
def test_an_engine_is_generated_and_simulated_bit_for_bit(installed: Path) -> None:
    images = np.random.default_rng(4).normal(size=(8, 3, 8, 8)).astype(np.float32)
    np.savez(installed.parent / "images.npz", x=images)
    done = dovetail(installed, "compile", "small.onnx", "--calibration", "images.npz", "--pin", "*=fpga", "--fold", "none",
                    "--frames", "3", "-o", "build")
    assert done.returncode == 0, done.stderr
    build = installed.parent / "build"
    assert "_larger_0_max" in "".join(path.read_text(encoding="utf-8") for path in (build / "fpga").rglob("*.v"))
    assert json.loads((build / "verification.json").read_text(encoding="utf-8"))["equal"]
