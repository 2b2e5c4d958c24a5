"""The estimate of kernel times (FuseEstimator) against a GPU: measure tiles, fit the costs, judge the estimate.

On a GPU (torch, triton, onnx, NumPy alone): `PYTHONPATH=src python bench/gpu_estimator.py --measure FILE [--case NAME:IMAGES ...]
[--kernel NAME] [--tiles N] [--seconds N]` times the estimate's first tiles and a random choice of others, of every kernel of some
networks, the best one twice. Anywhere: `python bench/gpu_estimator.py --fit FILE` writes the costs that come with the
package from such a file; `--judge FILE --json OUT` says how well estimates rank tiles: Spearman's correlation over
everything measured, and for how many kernels the first choice, or the best of those that are timed anyway, is within 5 % of the
fastest tile measured. Judge with a file not fitted, or fit to five sixths of the layers and judge with the others (`--hold-out
FILE`, bench/lib/gpu/held_out.py; `--divisions N` times, divided anew).
"""

from __future__ import annotations

import argparse
import json
import random
import shlex
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from functools import lru_cache
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from dovetail.files import replace_text
from dovetail.kernels.calls import Call
from dovetail.kernels.estimator import (
    CANDIDATES,
    FITTED_KIND,
    FITTED_ON,
    Config,
    Costs,
    costs,
    costs_from,
    seconds,
    tiles_of,
)
from dovetail.kernels.lower import lower
from dovetail.kernels.moves import MovedShape
from dovetail.kernels.table import work_of
from dovetail.platform.gpu_specification import specification
from lib.zoo_graph import network

CASES = (("mobilenet-v2", 1), ("mobilenet-v2", 64), ("efficientnet-lite0", 1), ("mobilenet-v1", 8))
UNSEEN = (("mobilenet-v3-large", 1), ("resnet18", 8))
"""Networks to judge with: none of them is fitted."""
TILES, PROMISING, LIMIT_S = 12, CANDIDATES, 200.0
"""Tiles timed per kernel, how many of them the estimate chooses, and when to stop."""
AT_ONCE = 8
"""Kernels whose tiles are compiled together: results are written after them."""
CLOSE, LEAST_TILES = 1.05, 4
Timed = tuple[Call, Sequence[tuple[float, Mapping[str, int]]]]
Placed = tuple[Call, Sequence[tuple[float, Mapping[str, int]]], tuple[str, int, int]]
"""A call, times of its tiles, and where it could be: a network, a batch, in how many places."""
LAYERS = ("conv", "deep", "depthwise", "bytewise", "vector")
"""Kernels of one layer; the others are modules of several."""
COSTS = Path(__file__).parents[1] / "src/dovetail/kernels/costs.toml"


def tiled(name: str, images: int, kind: str = FITTED_KIND) -> dict[str, Call]:
    """Every kernel with tiles that some part of a network could use."""
    return {key: call for key, (call, _) in counted(name, images, kind).items()}


@lru_cache(maxsize=64)
def counted(name: str, images: int, kind: str = FITTED_KIND) -> dict[str, tuple[Call, int]]:
    """The same with the number of places where it could."""
    if kind == "int8":
        from lib.gpu.networks import quantized
        graph = quantized(name)[0]
    else:
        graph = network(name)
    lowered = lower(graph, kind, specification(FITTED_ON), images)
    found: dict[str, tuple[Call, int]] = {}
    for run in lowered.runs:
        for call in (run,) if isinstance(run, Call) else (c for *_, c in lowered.options(run, float("inf"))):
            if not isinstance(call.shape, MovedShape):
                first, count = found.get(call.key, (call, 0))
                found[call.key] = first, count + 1
    return found


def measure(path: Path, cases: Sequence[tuple[str, int]], kind: str = FITTED_KIND, until: float | None = None,
            kernels: Sequence[str] = (), tiles_each: int = TILES) -> bool:
    """Time tiles of kernels in random order into a file, which is written every few kernels and continued by a second call.

    Whether all were timed before `until` (a time of the process's clock). The fastest tile is timed once more (`again`): how far
    two times of the same launch are apart is what no estimate can beat.
    """
    import torch
    import triton

    from dovetail.gpu.launcher import launcher_here
    from dovetail.gpu.precompile import precompile
    from dovetail.gpu.tuning import Tuner
    until = time.perf_counter() + LIMIT_S if until is None else until
    launcher = launcher_here(kind)
    held: dict[str, Any] = json.loads(path.read_text()) if path.is_file() else {"kernels": []}
    done = {(k["network"], k["images"], k["kernel"], tuple(k["nodes"])) for k in held["kernels"]}
    jobs = [job for job in to_time(cases, kind, kernels, tiles_each)
            if (job[0], job[1], job[2].kernel, job[2].nodes) not in done]
    held |= {"gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else "none", "date": date.today().isoformat(),
             "torch": torch.__version__, "triton": triton.__version__, "kind": kind,
             "command": "PYTHONPATH=src python bench/gpu_estimator.py " + shlex.join(sys.argv[1:])}
    tuner = Tuner(launcher, timing=True)
    batches = [jobs[first:first + AT_ONCE] for first in range(0, len(jobs), AT_ONCE)]

    def compiled(some: Sequence[tuple[str, int, Call, list[Config]]]) -> None:
        precompile([launcher.described(call, config) for *_, call, tiles in some for config in tiles])
    with ThreadPoolExecutor(1) as ahead:  # what comes next is compiled while this is timed
        coming = [ahead.submit(compiled, batches[0])] if batches else []
        for i, some in enumerate(batches):
            if time.perf_counter() > until:
                return False
            coming.pop().result()
            coming += [ahead.submit(compiled, batches[i + 1])] if i + 1 < len(batches) else []
            for name, images, call, tiles in some:
                launcher.buffers.clear()
                times = [(t, dict(c)) for c in tiles if (t := tuner.timed(call, c)) < float("inf")]
                if times:
                    again = tuner.timed(call, min(times, key=lambda t: t[0])[1])
                    held["kernels"].append({"network": name, "images": images, "kernel": call.kernel, "nodes": call.nodes,
                                            "times": times, "again": again})
            replace_text(path, json.dumps(held) + "\n")
            print(f"{len(held['kernels'])} of {len(jobs) + len(done)} kernels timed", flush=True)
    return True


def to_time(cases: Sequence[tuple[str, int]], kind: str, kernels: Sequence[str] = (),
            tiles_each: int = TILES) -> list[tuple[str, int, Call, list[Config]]]:
    """Network, batch, kernel and its tiles, in random order: whatever there is time for stands for all."""
    rng = random.Random(0)
    jobs = [(name, images, call) for name, images in cases for call in tiled(name, images, kind).values()
            if not kernels or call.kernel in kernels]
    rng.shuffle(jobs)
    return [(*job, chosen_tiles(job[2], rng, tiles_each)) for job in jobs]


def chosen_tiles(call: Call, rng: random.Random, count: int) -> list[Config]:
    """The most promising tiles of a kernel, and some others from the better half."""
    promising = min(PROMISING, count)
    rest = call.configs[promising:max(count, len(call.configs) // 2)]
    return [*call.configs[:promising], *rng.sample(rest, max(0, min(count - promising, len(rest))))]


def matched(path: Path) -> Iterator[tuple[Call, list[tuple[float, dict[str, int]]], tuple[str, int, int]]]:
    """Kernels as they are now, the times measured of them, and where they could be."""
    held = json.loads(path.read_text())
    kernels, kind = held["kernels"], held.get("kind", FITTED_KIND)
    calls = {(name, images, call.kernel, call.nodes): (call, count)
             for name, images in {(k["network"], k["images"]) for k in kernels}
             for call, count in counted(name, images, kind).values()}
    for kernel in kernels:
        call, count = calls.get((kernel["network"], kernel["images"], kernel["kernel"], tuple(kernel["nodes"])), (None, 0))
        if call is not None:
            yield call, kernel["times"], (kernel["network"], kernel["images"], count)


def once(times: Sequence[tuple[float, Mapping[str, int]]]) -> list[tuple[float, Mapping[str, int]]]:
    """Times of tiles; that of a tile timed more than once is the median."""
    found: dict[str, tuple[list[float], Mapping[str, int]]] = {}
    for taken, tile in times:
        known = sorted((name, size) for name, size in tile.items() if (name, size) != ("SUMS", 1))
        found.setdefault(str(known), ([], tile))[0].append(taken)
    return [(median(each), tile) for each, tile in found.values()]


def by_kernel(paths: Sequence[Path]) -> dict[str, list[Placed]]:
    """Timed calls of every kernel; files of other arithmetic count for kernels the first lacks."""
    own, found = {k["kernel"] for k in json.loads(paths[0].read_text())["kernels"]}, dict[str, list[Placed]]()
    for call, times, place in (m for i, path in enumerate(paths) for m in matched(path) if not i or m[0].kernel not in own):
        found.setdefault(call.kernel, []).append((call, times, place))
    return found


def fit_kernel(kernel: str, found: Sequence[Timed]) -> dict[str, Any]:
    """Costs of a kernel, with factors by tile sizes where there are tiles enough to fit them."""
    from lib.gpu.cost_fit import TABLES, fitted, sampled
    gpu = specification(FITTED_ON)
    return fitted(sampled(gpu, found), kernel) if kernel in TABLES else least_squares(found)


def least_squares(found: Sequence[Timed]) -> dict[str, Any]:
    """Costs, none negative, by least squares of relative errors; fast tiles weigh more, since only they are chosen."""
    from scipy.optimize import nnls
    gpu, rows, weights, taken = specification(FITTED_ON), list[dict[str, float]](), list[float](), list[float]()
    for call, times in found:
        best, work = min(t for t, _ in times), work_of(gpu, call.shape, tiles_of([c for _, c in times]))
        columns = {name: np.broadcast_to(amount, len(times)) for name, amount in work.amounts.items()}
        for i in np.flatnonzero(np.broadcast_to(work.fits, len(times))).tolist():
            rows.append({n: float(a[i]) for n, a in columns.items()})
            taken.append(times[i][0])
            weights.append((best / taken[-1]) ** 1.5 / taken[-1])
    names = list(rows[0])
    matrix, weight = np.array([[row[n] for n in names] for row in rows]), np.array(weights)
    scale = np.maximum(matrix.max(0), 1e-30)
    each, _ = nnls(matrix / scale * weight[:, None], np.array(taken) * weight)
    return {n: float(c) for n, c in zip(names, each / scale, strict=True) if c > 0}


def fit(paths: Sequence[Path], target: Path = COSTS) -> None:
    """Write costs, keeping those of kernels that no file times."""
    from lib.gpu.cost_fit import written
    measured = json.loads(paths[0].read_text())
    found: dict[str, list[Timed]] = {k: [(c, t) for c, t, _ in own] for k, own in by_kernel(paths).items()}
    lines = [f'# Seconds each; by "python bench/gpu_estimator.py --fit FILE", {measured["gpu"]}, {measured["date"]}']
    made = dict(costs())
    for kernel in sorted({*found, *made}):
        held = fit_kernel(kernel, found[kernel]) if kernel in found else dict(made[kernel].each)
        made[kernel] = costs_from(held)
        own = written(kernel, held)
        lines += own if kernel in found else [own[0], f"{own[1]}  # not fitted", *own[2:]]
        print(f"{kernel}: {sum(len(times) for _, times in found.get(kernel, ()))} tiles", flush=True)
    lines += ["", "[judged]  # errors where costs were fitted", f"fitted = {json.dumps(sorted(found))}",
              *(f"{n} = {v:.4g}" for n, v in errors(paths[0], made).items())]
    replace_text(target, "\n".join(lines) + "\n")


def errors(path: Path, each: Mapping[str, Costs]) -> dict[str, float]:
    """How far estimates with given costs are from measured times: of all tiles, and of the best tile of each kernel."""
    gpu, every, best = specification(FITTED_ON), list[float](), list[float]()
    for call, times, _ in matched(path):
        work = work_of(gpu, call.shape, tiles_of([c for _, c in times]))
        found, taken = seconds(gpu, call.kernel, FITTED_KIND, work, each[call.kernel]), np.array([t for t, _ in times])
        every += np.abs(found / taken - 1)[np.isfinite(found)].tolist()
        best.append(abs(float(found.min()) / float(taken.min()) - 1))
    return {"kernels": len(best), "tiles": len(every), "error_median": median(every), "best_error_median": median(best),
            "best_error_90": float(np.percentile(best, 90))}


def spearman(a: list[float], b: list[float]) -> float:
    ranks = [np.argsort(np.argsort(np.array(v))) for v in (a, b)]
    return float(np.corrcoef(*ranks)[0, 1])


def judge(path: Path) -> dict[str, Any]:
    gpu, kind = specification(FITTED_ON), json.loads(path.read_text()).get("kind", FITTED_KIND)
    estimates, taken, errors, inside = [], [], [], []
    firsts: dict[str, list[tuple[bool, bool]]] = {}
    for call, raw, _ in matched(path):
        times = once(raw)
        tiles = tiles_of([c for _, c in times])
        found = seconds(gpu, call.kernel, kind, work_of(gpu, call.shape, tiles))
        judged = sorted((float(e), t) for e, (t, _) in zip(found, times, strict=True) if e < float("inf"))
        estimates += [e for e, _ in judged]
        taken += [t for _, t in judged]
        errors += [abs(e / t - 1) for e, t in judged]
        if len(judged) >= LEAST_TILES:
            inside.append(spearman([e for e, _ in judged], [t for _, t in judged]))
            limit = CLOSE * min(t for _, t in judged)
            first = [times[i][0] <= limit for i in np.argsort(found, kind="stable")[:CANDIDATES]]
            firsts.setdefault(call.kernel, []).append((first[0], any(first)))
    every = [f for found in firsts.values() for f in found]
    return {"tiles": len(taken), "kernels": len(every), "spearman": spearman(estimates, taken),
            "spearman_within_kernel": median(inside), "error_median": median(errors),
            "first_within_5_percent": sum(f for f, _ in every) / len(every),
            "timed_within_5_percent": sum(f for _, f in every) / len(every), "timed_tiles": CANDIDATES,
            "by_kernel": {k: {"kernels": len(v), "first": sum(f for f, _ in v) / len(v), "timed": sum(t for _, t in v) / len(v)}
                          for k, v in sorted(firsts.items())}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", type=Path, help="time tiles on this machine's GPU into a file")
    parser.add_argument("--kind", default=FITTED_KIND, choices=["float16", "float32", "tf32", "int8"], help="with --measure")
    parser.add_argument("--unseen", action="store_true", help="with --measure: the networks to judge with")
    parser.add_argument("--case", action="append", metavar="NAME:IMAGES",
                        help="with --measure: a network and a batch, repeatable")
    parser.add_argument("--kernel", action="append", default=[], help="with --measure: only these kernels, repeatable")
    parser.add_argument("--tiles", type=int, default=TILES, help=f"with --measure: tiles of each kernel (default: {TILES})")
    parser.add_argument("--seconds", type=float, default=LIMIT_S, help=f"with --measure: when to stop (default: {LIMIT_S:.0f})")
    parser.add_argument("--fit", type=Path, nargs="+", help="fit the costs to measured files, that of float16 first")
    parser.add_argument("--hold-out", type=Path, nargs="+", help="fit to a part of these files, judge with the rest, and again")
    parser.add_argument("--divisions", type=int, default=2, help="with --hold-out: how often to divide layers anew (default: 2)")
    parser.add_argument("--judge", type=Path, help="how well estimates rank the tiles of a measured file")
    parser.add_argument("--json", type=Path, help="with --judge: write the figures here")
    options = parser.parse_args()
    if options.measure:
        named = [(name, int(images)) for name, images in (case.rsplit(":", 1) for case in options.case or ())]
        measure(options.measure, named or (UNSEEN if options.unseen else CASES), options.kind,
                time.perf_counter() + options.seconds, options.kernel, options.tiles)
    if options.fit:
        fit(options.fit)
    if options.hold_out:
        from lib.gpu.held_out import hold_out
        print(json.dumps(hold_out(options.hold_out, options.divisions), indent=1))
    if options.judge:
        found = judge(options.judge)
        print(json.dumps(found, indent=1))
        if options.json:
            replace_text(options.json, json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
