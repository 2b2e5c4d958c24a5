"""What a measured machine needs: PyTorch, onnx and NumPy; nothing that fits, solves or prints."""

from __future__ import annotations

import subprocess
import sys

BARE = """
import sys
for name in ("scipy", "onnxruntime", "rich", "platformdirs"):
    sys.modules[name] = None
from dovetail import zoo
from dovetail.ir.onnx_read import read_onnx
from dovetail.measure import campaign, cuda, energy, layers, records
print(len(layers.designed_layers()))
"""


def test_measuring_a_gpu_imports_neither_solvers_nor_runtimes() -> None:
    found = subprocess.run([sys.executable, "-c", BARE], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    assert int(found.stdout) > 200
