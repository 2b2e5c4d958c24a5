"""Accuracy of the example three ways: the float model, the int8 reference, and the compiled build on its devices.

    python examples/fashion/accuracy.py build/fashion --images examples/fashion/test_images.npz
    python examples/fashion/accuracy.py build/fashion --all        # 10,000 test images, Debian package dataset-fashion-mnist
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import numpy as np

import dovetail as dt
from dovetail.files import replace_text
from dovetail.numerics.calibration import load_arrays
from dovetail.numerics.fixed import dequantize
from dovetail.numerics.oracle import run_onnx
from dovetail.numerics.reference import run_integer
from dovetail.runtime.accuracy import build_outputs, right
from dovetail.runtime.build import store

HERE = Path(__file__).resolve().parent
CHUNK = 256
"""Images the reference computes at once."""


def labelled(options: argparse.Namespace) -> tuple[np.ndarray, np.ndarray]:
    """Images and labels: a file's, or the whole test split."""
    if options.all:
        sys.path.insert(0, str(HERE))
        from dataset import load, normalise
        images, labels = load("test")
        return normalise(images), labels
    arrays = load_arrays(options.images)
    return arrays["x"], arrays["y"]


def measure(folder: Path, images: np.ndarray, labels: np.ndarray) -> dict[str, object]:
    """Fractions of right answers, and whether the build's outputs are the reference's, bit for bit."""
    build = dt.load_build(folder)
    (name,), (output,) = build.graph.inputs, build.graph.outputs
    float_model = (HERE / "fashion.onnx").read_bytes()
    floats = np.concatenate([run_onnx(float_model, {name: x[None]})[output] for x in images])
    stored, scheme = store(build.graph, {name: images}, "images")[name], build.graph.tensors[output].scheme
    integers = np.concatenate([run_integer(build.graph, {name: stored[i:i + CHUNK]})[output]
                               for i in range(0, len(stored), CHUNK)])
    reference, built = dequantize(integers, scheme), build_outputs(build, {name: images})[output]
    return {
        "images": len(labels),
        "float": right(floats, labels),
        "int8_reference": right(reference, labels),
        "build": right(built, labels),
        "build_equals_reference": bool(np.array_equal(built, reference)),
        "backends": {s.name: build.part(s).backend for s in build.program.segments},
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=Path)
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--images", type=Path, help="an .npz with x (images) and y (labels)")
    which.add_argument("--all", action="store_true", help="all 10,000 test images of the Debian package dataset-fashion-mnist")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    try:
        found = measure(options.build, *labelled(options))
    except dt.DovetailError as error:
        print(f"accuracy: {error}", file=sys.stderr)
        return error.exit_code
    if options.json:
        replace_text(options.json, json.dumps(found, indent=1) + "\n")
    print(f"accuracy on {found['images']} test images: float {found['float']:.4f}, int8 reference {found['int8_reference']:.4f}, "
          f"build {found['build']:.4f} ({', '.join(f'{k} in {v}' for k, v in found['backends'].items())})")
    print("build equals the int8 reference on every output bit" if found["build_equals_reference"]
          else "build DIFFERS from the int8 reference")
    return 0 if found["build_equals_reference"] else 1


if __name__ == "__main__":
    sys.exit(main())
