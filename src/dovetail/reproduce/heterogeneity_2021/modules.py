"""Heterogeneity 2021, every module: SqueezeNet's fires, MobileNetV2 0.5's bottlenecks, ShuffleNetV2 0.5's units, whole networks.

The paper shows averages over one block of each network. Here every module stands at its own place in a 224x224 network, and as a
mean over the paper's input sizes. `bench/heterogeneity.py` makes the record that comes along; what does not fit has no gain.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import resources
from math import log10
from typing import Any

from dovetail.reproduce import gains
from dovetail.reproduce.heterogeneity_2021.figures import Point, scatter
from dovetail.terminal import table

PARTS = 16
"""Filters of the authors' nodes are given to the FPGA in so many equal parts. Chosen, not measured."""
METRICS = ("energy", "latency", "edp")
WAYS = ("hand", "part", "folded", "best")
"""The authors' nodes on the FPGA mapped directly, the part of their filters that fits, folded; and our own choice of nodes."""


def recorded() -> dict[str, Any]:
    """The record that comes along: by network, as `of_network` found it."""
    source = resources.files("dovetail.reproduce") / "records" / "heterogeneity.json"
    found: dict[str, Any] = json.loads(source.read_text(encoding="utf-8"))
    return found


HEADER = ("module", "input", "GPU ms", "GPU mJ", *(f"{mark} {way}" for mark in ("mJ:", "ms:") for way in WAYS), "EDP: best",
          "part")
WHOLE = {"hand": "hand where it fits, an FPGA for every module", "part": "part, an FPGA for every module",
         "folded": "folded, one FPGA"}
NOTE = ("hand: the authors' nodes mapped directly; part: as many sixteenths of their filters as fit; folded: shared multipliers; "
        "best: our optimum. What does not fit has no gain. 'An FPGA for every module' counts as the paper does: each module may "
        "fill the FPGA, and changing it takes nothing.")


def text(record: Mapping[str, Any]) -> str:
    """A table of modules and one of totals for every network."""
    lines = list[str]()
    for name, network in record["networks"].items():
        rows = [[m["module"], "x".join(map(str, m["input"])), *_totals(m["gpu"])[:2],
                 *(gains.told(m["gain"][way][key]) for key in ("energy", "latency") for way in WAYS),
                 gains.told(m["gain"]["best"]["edp"]), f"{m['sixteenths']}/{PARTS}"] for m in network["modules"]]
        whole = network["whole"]
        totals = [["GPU alone", *_totals(whole["gpu"]), *("",) * 3],
                  *([told, *_totals(whole[way]), *map(gains.told, whole["gain"][way].values())] for way, told in WHOLE.items()),
                  *([f"best for {goal}", *_totals(one), *map(gains.told, whole["gain"][f"best for {goal}"].values())]
                    for goal, one in whole["best"].items())]
        lines += [f"{name}, every module at its place, gains over the GPU alone:", table(HEADER, rows, range(2, 14)), "",
                  f"{name}, whole:",
                  table(("", "ms", "mJ", "uJ s", *(f"gain, {key}" for key in METRICS)), totals, range(1, 7)), ""]
    return "\n".join([*lines, NOTE])


def _totals(side: Mapping[str, Any]) -> tuple[str, str, str]:
    mark = "" if side["fits"] else "!"
    return f"{side['latency'] * 1e3:.3f}{mark}", f"{side['energy'] * 1e3:.3f}{mark}", f"{side['edp'] * 1e6:.3f}{mark}"


def figures(record: Mapping[str, Any]) -> dict[str, str]:
    """File name to drawing: Figure 4 as the paper draws it, energy to the right and latency upwards, a point for each module."""
    found = {}
    for name, network in record["networks"].items():
        shown: dict[str, list[Point]] = {"GPU alone": [], "by hand": [], "optimum": []}
        for m in network["modules"]:
            sides = {"GPU alone": m["gpu"], "by hand": m["part"], "optimum": m["best"]["edp"]}
            for what, side in sides.items():
                shown[what].append(Point(log10(side["energy"] * 1e3), log10(side["latency"] * 1e3), m["module"]))
        found[f"figure_4_{name.replace('.', '')}.svg"] = scatter(f"Figure 4: modules of {name}", shown, "log10 of millijoules",
                                                                 "log10 of milliseconds")
    return found
