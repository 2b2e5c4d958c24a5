"""Trained ImageNet networks on labelled photos: float, our integers, and ONNX Runtime's static int8 side by side.

`python bench/numerics.py --part pretrained --json FILE [--network NAME ...]`. Weights and photos come out of published packages,
into the cache folder. Twenty photos show that weights and numbers are right; they do not measure an accuracy drop. Each half is
scored with scales from the other half (`crossed`), then all with scales from all (`all`). Where top-1 differs from the float
network, the float margin (largest minus second logit) says how tied the float network was. Ends with 1 where integers lose an
answer that the float network had right and clear.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from math import log
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from dovetail.errors import DovetailError
from dovetail.files import replace_text
from dovetail.ir import Graph
from dovetail.ir.onnx.read import read_onnx
from dovetail.numerics import quality
from dovetail.numerics.calibration import Samples
from dovetail.numerics.quality import powers, snr_db
from dovetail.numerics.quantize import quantize_network
from lib.imagenet.networks import NETWORKS, Pretrained
from lib.imagenet.photos import labelled_photos

WAYS = ("float", "int8", "onnxruntime_int8")
NEARLY_TIED = log(2.0)
"""Difference of logits: the float network gives its second choice more than half the probability of its first.

The margin itself is printed, so that another threshold can be applied.
"""


def show(stage: str, done: int, total: int) -> None:
    if sys.stderr.isatty():
        print(f"\r\x1b[K  {stage} {done}/{total}", end="\n" if done == total else "", file=sys.stderr, flush=True)


def scores(graph: Graph, calibration: np.ndarray, images: np.ndarray) -> tuple[dict[str, np.ndarray], str]:
    name, output = graph.inputs[0], graph.outputs[0]
    samples = Samples({name: calibration}, "photos")
    numbers = quantize_network(graph, samples, progress=show)
    found, missing = quality.compare(graph, numbers.graph, samples, {name: images}, show)
    if missing:
        raise DovetailError(missing)
    return {way: found[way][output] for way in WAYS}, numbers.note


def judge(found: dict[str, np.ndarray], labels: np.ndarray) -> dict[str, Any]:
    """Counts right, agreement, noise, and every photo on which integers and float differ."""
    exact = found["float"]
    top = exact.argmax(1)
    ranked = np.sort(exact, axis=1)
    margins = ranked[:, -1] - ranked[:, -2]
    differing = [{"photo": int(i), "label": int(labels[i]), "float": int(top[i]), "int8": int(found["int8"][i].argmax()),
                  "float_margin": float(margins[i]), "float_right": bool(top[i] == labels[i]),
                  "nearly_tied": bool(margins[i] < NEARLY_TIED)}
                 for i in np.flatnonzero(top != found["int8"].argmax(1))]
    return {"photos": len(labels), "right": {way: int((x.argmax(1) == labels).sum()) for way, x in found.items()},
            "agreement": {way: int((found[way].argmax(1) == top).sum()) for way in WAYS[1:]},
            "snr_db": {way: snr_db(*powers(exact, found[way])) for way in WAYS[1:]},
            "mean_float_margin": float(margins.mean()), "differing": differing,
            "holds": all(d["nearly_tied"] or not d["float_right"] for d in differing)}


def measure(network: Pretrained, pixels: np.ndarray, labels: np.ndarray) -> dict[str, Any]:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        path.write_bytes(network.onnx())
        graph = read_onnx(path).graph
    images = network.normalise(pixels)
    halves = np.arange(len(labels)) % 2
    crossed = {way: np.empty((len(labels), quality.classes(graph) or 0), dtype=np.float64) for way in WAYS}
    for half in (0, 1):
        found, _ = scores(graph, images[halves != half], images[halves == half])
        for way in WAYS:
            crossed[way][halves == half] = found[way]
    start = time.perf_counter()
    found, note = scores(graph, images, images)
    return {"crossed": judge(crossed, labels), "all": judge(found, labels), "seconds": time.perf_counter() - start, "note": note}


def say(name: str, calibrated: str, result: dict[str, Any]) -> None:
    count = result["photos"]
    print(f"{name:20} calibrated on {calibrated:14} right of {count}: "
          + ", ".join(f"{way} {n}" for way, n in result["right"].items())
          + f"; top-1 as float: {result['agreement']['int8']} ({result['agreement']['onnxruntime_int8']}); "
          f"logit SNR {result['snr_db']['int8']:.1f} dB ({result['snr_db']['onnxruntime_int8']:.1f})")
    for d in result["differing"]:
        state = "float is wrong" if not d["float_right"] else "nearly tied" if d["nearly_tied"] else "NOT TIED"
        print(f"  photo {d['photo']}: float {d['float']}, int8 {d['int8']}, label {d['label']}, "
              f"float margin {d['float_margin']:.2f} (mean {result['mean_float_margin']:.2f}): {state}")


def main(asked: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--network", action="append", choices=[n.name for n in NETWORKS])
    options = parser.parse_args(asked)
    try:
        pixels, labels = labelled_photos()
        found = {}
        for network in NETWORKS:
            if options.network is None or network.name in options.network:
                found[network.name] = result = measure(network, pixels, labels)
                say(network.name, "the other half", result["crossed"])
                say(network.name, "all photos", result["all"])
                print(f"  {result['note']}", flush=True)
    except DovetailError as error:
        print(f"pretrained: {error}", file=sys.stderr)
        return error.exit_code
    if options.json:
        replace_text(options.json, json.dumps(found, indent=1) + "\n")
    return 0 if all(r[k]["holds"] for r in found.values() for k in ("crossed", "all")) else 1

