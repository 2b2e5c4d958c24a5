"""The new engine is planned, generated and simulated, and the build equals its integer reference bit for bit."""

import json
import sys
from pathlib import Path

import numpy as np

from dovetail.cli import main

np.savez("images.npz", x=np.random.default_rng(4).normal(size=(8, 3, 8, 8)).astype(np.float32))
arguments = ["compile", sys.argv[1], "-p", "tx2-c10gx", "--calibration", "images.npz", "--pin", "*=fpga", "--frames", "3",
             "-o", "build"]
assert main(arguments) == 0, "built, simulated, and equal to the integer reference"
assert "_larger_0_max" in "".join(path.read_text(encoding="utf-8") for path in Path("build/fpga").rglob("*.v"))
assert json.loads(Path("build/verification.json").read_text(encoding="utf-8"))["equal"]
