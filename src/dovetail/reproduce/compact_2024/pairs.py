"""Compact DNNs 2024, paper III: its fused modules over seven networks, and what three models choose beside what was measured.

Times are of bench/fused_pairs.py on a GPU. FuseEstimator decides by bytes of global memory, our estimate by time.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from statistics import median
from typing import Any

from dovetail.kernels.fuse_estimator import FusedLayer, FuseEstimate, estimate
from dovetail.platform.gpu_specification import specification, specifications
from dovetail.terminal import table

ELEMENT = {"fp32": 4, "fp16": 2, "int8": 1}
"""Bytes of a value."""
MEASURED_ON = "h200"
"""The specification of the GPU that the record is of."""


def modules() -> dict[str, Any]:
    """Per arithmetic and module what fusion gave; per arithmetic who chose as measured; per GPU what FuseEstimator would do."""
    record: dict[str, Any] = json.loads(
        resources.files("dovetail.reproduce").joinpath("records").joinpath("fused_pairs.json").read_text("utf-8"))
    found = {(kind, batch): [p for p in one["pairs"].values() if p["fused_us"] is not None]
             for kind, batches in record["pairs"].items() for batch, one in batches.items()}
    by_module = [_told(kind, batch, module, [p for p in pairs if p["module"] == module])
                 for (kind, batch), pairs in found.items() for module in sorted({p["module"] for p in pairs})]
    return {"gpu": record["gpu"], "date": record["date"], "command": record["command"], "modules": by_module,
            "choices": [_choices(kind, batch, pairs) for (kind, batch), pairs in found.items()],
            "fuse_estimator": [_fusing(kind, batch, gpu, pairs) for (kind, batch), pairs in found.items()
                               for gpu in specifications()]}


def _told(kind: str, batch: str, module: str, pairs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    apart = [p["apart_us"] / p["fused_us"] for p in pairs]
    peers = [p["cudnn_us"] / p["fused_us"] for p in pairs if "cudnn_us" in p]
    return {"arithmetic": kind, "images": int(batch[1:]), "module": module, "pairs": len(pairs),
            "faster_fused": sum(r > 1 for r in apart), "fused_over_apart": {"best": max(apart), "median": median(apart)},
            "fused_over_cudnn": {"best": max(peers), "median": median(peers)} if peers else None}


def _choices(kind: str, batch: str, pairs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """How often a model chooses what was measured to be faster, and what its choices cost against always choosing right."""
    told: dict[str, Any] = {"arithmetic": kind, "images": int(batch[1:]), "pairs": len(pairs)}
    least = sum(min(p["fused_us"], p["apart_us"]) for p in pairs)
    for name, fuses in (("fuse_estimator", lambda p: _estimate(kind, batch, MEASURED_ON, p).fuses),
                        ("our_estimate", lambda p: p["fused_estimated_us"] < p["apart_estimated_us"]),
                        ("never", lambda p: False), ("always", lambda p: True)):
        took = sum(p["fused_us"] if fuses(p) else p["apart_us"] for p in pairs)
        right = sum(fuses(p) == (p["fused_us"] < p["apart_us"]) for p in pairs)
        told[name] = {"right": right, "time_over_best": took / least}
    return told


def _fusing(kind: str, batch: str, gpu: str, pairs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What FuseEstimator would do on a GPU: pairs it fuses, and the bytes that all pairs then move, of those apart."""
    found = [_estimate(kind, batch, gpu, p) for p in pairs]
    apart = sum(e.apart_bytes for e in found)
    return {"arithmetic": kind, "images": int(batch[1:]), "gpu": specification(gpu).name, "pairs": len(found),
            "fused": sum(e.fuses for e in found), "bytes_left": sum(min(e.apart_bytes, e.fused_bytes) for e in found) / apart,
            "by_module": {m: sum(e.fuses and e.module == m for e in found)
                          for m in sorted({e.module for e in found if e.fuses})}}


def _estimate(kind: str, batch: str, gpu: str, pair: Mapping[str, Any]) -> FuseEstimate:
    first, second = (FusedLayer(**layer) for layer in pair["layers"])
    return _remembered(kind, int(batch[1:]), gpu, first, second)


@cache
def _remembered(kind: str, images: int, gpu: str, first: FusedLayer, second: FusedLayer) -> FuseEstimate:
    return estimate((first, second), specification(gpu), ELEMENT[kind], images)


def text(document: Mapping[str, Any]) -> str:
    """The three tables."""
    def ratio(one: Mapping[str, float] | None, which: str) -> str:
        return "" if one is None else f"{one[which]:.2f}x"

    rows = [[f"{m['module']} {m['arithmetic']} b{m['images']}", f"{m['faster_fused']} of {m['pairs']}",
             *(ratio(m[key], which) for key in ("fused_over_apart", "fused_over_cudnn") for which in ("best", "median"))]
            for m in document["modules"]]
    chosen = [[f"{c['arithmetic']} b{c['images']}, {c['pairs']} pairs", *(
        f"{c[who]['right'] / c['pairs']:.0%} right, {c[who]['time_over_best']:.2f}x"
        for who in ("fuse_estimator", "our_estimate", "never", "always"))] for c in document["choices"]]
    fusing = [[f["gpu"], f"{f['arithmetic']} b{f['images']}", f"{f['fused']} of {f['pairs']}", f"{f['bytes_left']:.0%}",
               ", ".join(f"{count} {module}" for module, count in f["by_module"].items())] for f in document["fuse_estimator"]]
    return "\n".join([
        f"Fused modules of the paper's networks on {document['gpu']}, {document['date']} ({document['command']})",
        table(["module", "faster fused", "over apart: best", "median", "over cuDNN: best", "median"], rows, range(1, 6)), "",
        "Who chooses as measured, and time of all pairs so chosen over that of the faster form of each",
        table(["pairs", "FuseEstimator (bytes)", "our estimate (time)", "never fuse", "always fuse"], chosen), "",
        "What FuseEstimator would fuse, and the bytes of global memory all pairs then move, of those apart (modelled)",
        table(["GPU", "pairs", "fused", "bytes left", "modules"], fusing, range(2, 4)), ""])
