"""The estimate of kernel times (FuseEstimator) ranks tiles: times of tiles, costs fitted to them, estimates judged.

On a GPU (torch, triton, onnx, NumPy alone): `PYTHONPATH=src python bench/gpu_estimator.py --measure FILE [--case NAME:IMAGES ...]
[--kernel NAME] [--tiles N] [--seconds N]` times the estimate's first tiles and a random choice of others, of every kernel of some
networks, the best one twice. Anywhere: `python bench/gpu_estimator.py --fit FILE` writes the costs that come with the
package from such a file; `--judge FILE --json OUT` says how well estimates rank tiles: Spearman's correlation over
everything measured, and for how many kernels the first choice, or the best of those that are timed anyway, is within 5 % of the
fastest tile measured. Judge with a file not fitted, or fit to five sixths of the layers and judge with the others (`--hold-out
FILE`, bench/lib/gpu/held_out.py; `--divisions N` times, divided anew).

| part | claim |
|---|---|
| estimate | what is said above (docs/method/gpu-estimator.md) |
| products | the share of a GPU's rate that float32 products reach (docs/method/gpu-tuning.md) |
| tuned | no claim: takes what tuning timed into a file of timed tiles (docs/reference/records.md) |
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from dovetail.files import replace_text
from dovetail.kernels.estimator import FITTED_KIND
from lib.gpu import estimate, products, tiles, tuned
from lib.gpu.cases import CASES, UNSEEN
from lib.gpu.held_out import hold_out
from lib.parts import Part, run


def main(asked: Sequence[str]) -> None:
    """Measure, fit, hold out or judge, as asked."""
    parser = argparse.ArgumentParser(description=estimate.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", type=Path, help="time tiles on this machine's GPU into a file")
    parser.add_argument("--kind", default=FITTED_KIND, choices=["float16", "float32", "tf32", "int8"], help="with --measure")
    parser.add_argument("--unseen", action="store_true", help="with --measure: the networks to judge with")
    parser.add_argument("--case", action="append", metavar="NAME:IMAGES",
                        help="with --measure: a network and a batch, repeatable")
    parser.add_argument("--kernel", action="append", default=[], help="with --measure: only these kernels, repeatable")
    parser.add_argument("--tiles", type=int, default=tiles.TILES,
                        help=f"with --measure: tiles of each kernel (default: {tiles.TILES})")
    parser.add_argument("--seconds", type=float, default=tiles.LIMIT_S,
                        help=f"with --measure: when to stop (default: {tiles.LIMIT_S:.0f})")
    parser.add_argument("--fit", type=Path, nargs="+", help="fit the costs to measured files, that of float16 first")
    parser.add_argument("--hold-out", type=Path, nargs="+", help="fit to a part of these files, judge with the rest, and again")
    parser.add_argument("--divisions", type=int, default=2, help="with --hold-out: how often to divide layers anew (default: 2)")
    parser.add_argument("--judge", type=Path, help="how well estimates rank the tiles of a measured file")
    parser.add_argument("--json", type=Path, help="with --judge: write the figures here")
    options = parser.parse_args(asked)
    if options.measure:
        named = [(name, int(images)) for name, images in (case.rsplit(":", 1) for case in options.case or ())]
        tiles.measure(options.measure, named or (UNSEEN if options.unseen else CASES), options.kind,
                time.perf_counter() + options.seconds, options.kernel, options.tiles)
    if options.fit:
        estimate.fit(options.fit)
    if options.hold_out:
        print(json.dumps(hold_out(options.hold_out, options.divisions), indent=1))
    if options.judge:
        found = estimate.judge(options.judge)
        print(json.dumps(found, indent=1))
        if options.json:
            replace_text(options.json, json.dumps(found, indent=1) + "\n")



PARTS: dict[str, Part] = {"estimate": main, "products": products.main, "tuned": tuned.main}

if __name__ == "__main__":
    sys.exit(run(__doc__, PARTS, sys.argv[1:]))
