"""What a measured machine needs: PyTorch, onnx and NumPy; nothing that solves, runs models or prints."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from dovetail.platform.load import load_platform

MISSING = ("scipy", "onnxruntime", "rich", "platformdirs", "cvxpy")
BARE = f"""
import sys
for name in {MISSING}:
    sys.modules[name] = None
"""
MEASURING = f"""{BARE}
from dovetail import zoo
from dovetail.ir.onnx.read import read_onnx
from dovetail.measure import campaign, cuda, energy, layers
print(len(layers.designed_layers()))
"""
COMMAND = f"""{BARE}
from dovetail.cli import main
sys.exit(main(sys.argv[1:]))
"""
RECORD = Path(__file__).parents[2] / "bench" / "records" / "h200.json"


def bare(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False)


def test_measuring_a_gpu_imports_neither_solvers_nor_runtimes() -> None:
    found = bare(MEASURING)
    assert found.returncode == 0, found.stderr
    assert int(found.stdout) > 300


def test_the_command_fits_what_was_measured_into_a_board(tmp_path: Path) -> None:
    found = bare(COMMAND, "calibrate", "--from", str(RECORD), "-o", str(tmp_path / "board.toml"))
    assert found.returncode == 0, found.stderr
    assert load_platform(str(tmp_path / "board.toml")).device("gpu").model == "calibrated"


def test_a_gpu_that_is_not_there_is_said_and_nothing_is_written(tmp_path: Path) -> None:
    absent = BARE + "sys.modules['torch'] = None\n" + COMMAND.removeprefix(BARE)
    found = bare(absent, "calibrate", "--device", "gpu", "-o", str(tmp_path / "board.toml"))
    assert (found.returncode, list(tmp_path.iterdir())) == (2, [])
    assert found.stderr == "dovetail: calibrate --device gpu: PyTorch is not installed; pip install 'dovetail-accel[gpu]'\n"
