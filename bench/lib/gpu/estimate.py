"""The estimate of kernel times against measured ones: costs fitted to them, and how well tiles are ranked."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from dovetail.files import replace_text
from dovetail.kernels.estimator import CANDIDATES, FITTED_KIND, FITTED_ON, Costs, costs, costs_from, seconds, tiles_of
from dovetail.kernels.table import work_of
from dovetail.platform.gpu_specification import specification
from lib.gpu.tiles import Timed, by_kernel, matched, once

CLOSE = 1.05
"""Times the fastest tile's that a choice may take to count as right."""
LEAST_TILES = 4
"""Timed tiles of a kernel from which on its choice counts."""
LAYERS = ("conv", "deep", "depthwise", "bytewise", "vector")
"""Kernels of one layer; the others are modules of several."""
COSTS = Path(__file__).parents[3] / "src/dovetail/kernels/costs.toml"
"""What comes with the package."""


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
