"""Fused modules of the paper's networks: the tables say what the record holds, and choices are judged by it."""

from __future__ import annotations

import json
from importlib import resources

from dovetail.kernels.fuse_estimator import FusedLayer, estimate
from dovetail.platform.gpu_specification import specification
from dovetail.reproduce.compact_2024 import pairs as compact_2024_pairs


def test_tables_say_what_the_record_holds() -> None:
    record = json.loads(resources.files("dovetail.reproduce").joinpath("records/fused_pairs.json").read_text("utf-8"))
    found = compact_2024_pairs.modules()
    for kind, batches in record["pairs"].items():
        pairs = [p for p in batches["b1"]["pairs"].values() if p["fused_us"] is not None]
        told = [m for m in found["modules"] if m["arithmetic"] == kind]
        assert sum(m["pairs"] for m in told) == len(pairs)
        faster = sum(p["fused_us"] < p["apart_us"] for p in pairs)
        assert sum(m["faster_fused"] for m in told) == faster
        (choices,) = [c for c in found["choices"] if c["arithmetic"] == kind]
        assert choices["always"]["right"] == faster
        assert choices["never"]["right"] == len(pairs) - faster
        assert all(choices[who]["time_over_best"] >= 1 for who in ("fuse_estimator", "our_estimate", "never", "always"))
        fuses = [estimate((FusedLayer(**p["layers"][0]), FusedLayer(**p["layers"][1])), specification("h200"),
                          compact_2024_pairs.ELEMENT[kind]).fuses for p in pairs]
        (here,) = [f for f in found["fuse_estimator"] if f["arithmetic"] == kind and f["gpu"] == "NVIDIA H200"]
        assert here["fused"] == sum(fuses) == sum(here["by_module"].values())
        assert choices["fuse_estimator"]["right"] == sum(
            f == (p["fused_us"] < p["apart_us"]) for f, p in zip(fuses, pairs, strict=True))


def test_the_text_has_a_row_for_every_module_and_gpu() -> None:
    found = compact_2024_pairs.modules()
    text = compact_2024_pairs.text(found)
    for m in found["modules"]:
        assert f"{m['module']} {m['arithmetic']} b{m['images']}" in text
    for name in ("GTX 1660", "RTX A4000", "Orin", "NVIDIA H200"):
        assert name in text
