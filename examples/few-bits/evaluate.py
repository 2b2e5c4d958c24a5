"""Accuracy of the two-bit network beside the float network it was trained from, on the first 2,000 test images.

    python examples/few-bits/evaluate.py
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "fashion"))
from dataset import DATA_DIR, load, normalise

from paired import compare

HERE = Path(__file__).resolve().parent


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("floats", type=Path, nargs="?", default=HERE / "float.onnx", help="the float network")
    parser.add_argument("integers", type=Path, nargs="?", default=HERE / "few-bits.onnx", help="the one of codes")
    parser.add_argument("--data", type=Path, default=DATA_DIR, help=f"Fashion-MNIST's four files (default: {DATA_DIR})")
    parser.add_argument("--images", type=int, default=2000, help="of the 10,000 test images, the first (default: %(default)s)")
    options = parser.parse_args()
    try:
        images, labels = load("test", options.data)
    except FileNotFoundError as error:
        sys.exit(str(error))
    x, y = normalise(images[:options.images]), labels[:options.images]
    print(compare(options.floats, options.integers, x, lambda scores: np.argmax(scores, 1) == y, "images"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
