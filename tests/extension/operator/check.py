"""The new operator is read, quantized, planned and built, and the build equals its integer reference bit for bit."""

import json
import sys
from pathlib import Path

import numpy as np

from dovetail.cli import main

np.savez("images.npz", x=np.random.default_rng(4).normal(size=(8, 3, 8, 8)).astype(np.float32))
arguments = ["compile", sys.argv[1], "-p", "tx2", "--calibration", "images.npz", "--pin", "conv1=gpu", "-o", "build"]
assert main(arguments) == 0, "built, and equal to the integer reference"
assert main(["inspect", "build/model.onnx", "--json", "layers.json"]) == 0
kinds = {layer["name"]: layer["operator"] for layer in json.loads(Path("layers.json").read_text(encoding="utf-8"))["layers"]}
assert kinds == {"conv1": "Conv", "conv2": "Conv", "larger": "Maximum", "conv3": "Conv"}, kinds
