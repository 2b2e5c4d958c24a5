"""Heterogeneity 2021, Figure 1: single convolutions on the FPGA and on the TX2's GPU, and how large they may become.

The input is 224x224 with 3 channels; filters go from 2 to 64, kernels from 1x1 to 11x11. No TX2 row is larger than 100x100,
so every GPU value is extrapolated. The paper's FPGA limit is compared with the authors' own area rows and with the hardware
we generate, weights drawn from a normal distribution and rounded to int8. Its bars are not printed as numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import log10
from typing import Any

import numpy as np

from dovetail.cost.costs import costs_of
from dovetail.cost.estimate import ShareCosts
from dovetail.ir import Graph
from dovetail.measure.layers import MeasuredLayer, normal_graph
from dovetail.platform.device import Device, ModelSet
from dovetail.platform.load import load_platform
from dovetail.progress import Progress
from dovetail.reproduce import gains
from dovetail.reproduce.heterogeneity_2021.figures import Bar, bars
from dovetail.terminal import table

SIDE, CHANNELS = 224, 3
FILTERS = (2, 4, 8, 16, 32, 64)
KERNELS = (1, 3, 5, 7, 9, 11)
BOARD = "tx2-c10gx"
PAPER_LIMIT = (64, 5)
"""Filters and kernel at which the authors' hardware fills the FPGA."""
WHY = (
    "The FPGA takes a pixel per clock whatever the kernel, so its time hardly grows where the GPU's does; that is the paper's "
    "point, and our models share it.",
    "The paper stops at 64 filters of 5x5. A model of the authors' rows, which end at 5x5 and 14x14, puts their limit near: "
    "half as many filters fit. Our adder graphs share sums between filters and need a quarter to a third of their logic.",
    "Only ALMs decide whether the authors' hardware fits: their M20K counts stand at the device's 587 in many rows, where "
    "Quartus goes on in logic.",
    "Energies are of the part alone with its own idle power, without the other device and the link, as in the figure.",
)


def reproduce(progress: Progress = lambda *_: None) -> dict[str, Any]:
    """Every layer on both devices, the area of both hardwares, and the largest layers that fit."""
    board = load_platform(BOARD)
    gpu, fpga = board.device("gpu"), board.device("fpga")
    authors = board.with_models(ModelSet.MEASURED).device("fpga")
    rows = []
    for i, kernel in enumerate(KERNELS):
        progress(f"heterogeneity-2021: Figure 1, {kernel}x{kernel}", i, len(KERNELS))
        rows += [_row(filters, kernel, gpu, fpga, authors, gains.times_of(board)) for filters in FILTERS]
    return {"paper": "heterogeneity-2021", "figure": 1, "board": BOARD, "input": [CHANNELS, SIDE, SIDE], "layers": rows,
            "limit": {"paper": list(PAPER_LIMIT), "authors_rows": _limit(rows, "authors"), "ours": _limit(rows, "ours")},
            "why": list(WHY)}


def _row(filters: int, kernel: int, gpu: Device, fpga: Device, authors: Device, times: gains.Times) -> dict[str, Any]:
    layer = MeasuredLayer("conv", CHANNELS, SIDE, filters, kernel, activation="relu")
    graph = normal_graph(layer, seed=1000 * kernel + filters)
    mine = _whole(graph, fpga)
    ours, alone = _area(mine, fpga, tuple(fpga.resources)), _whole(graph, gpu)
    sides = {"gpu": {**_figures(alone, gpu), "fits": True, "times": times.value},
             "fpga": {**_figures(mine, fpga), "fits": ours["fits"], "times": times.value}}
    return {"filters": filters, "kernel": kernel, **sides, "ours": ours,
            "authors": _area(_whole(graph, authors), authors, ("alm",)),
            "gain": {key: gains.gain([sides["gpu"]], [sides["fpga"]], key) for key in ("latency_s", "energy_j")}}


def _whole(graph: Graph, device: Device) -> ShareCosts:
    found = costs_of(graph, graph.nodes[0], None, np.array([0]), np.array([1]), device)
    assert found is not None, f"{device.name} runs every convolution"
    return found


def _figures(costs: ShareCosts, device: Device) -> dict[str, Any]:
    seconds = float(costs.alone_s[0])
    return {"latency_s": seconds, "energy_j": float(costs.energy_j[0]) + device.idle_power_w * seconds,
            "extrapolated": bool(costs.extrapolated[0]), "source": costs.source}


def _area(costs: ShareCosts, device: Device, deciding: tuple[str, ...]) -> dict[str, Any]:
    used = {name: float(amount[0]) for name, amount in costs.resources.items() if name in deciding}
    return {"resources": used, "fits": all(amount <= device.resources[name] for name, amount in used.items()),
            "extrapolated": bool(costs.extrapolated[0])}


def _limit(rows: list[dict[str, Any]], whose: str) -> dict[str, int | None]:
    """By kernel, the most filters of those tried that fit."""
    return {f"{k}x{k}": max((r["filters"] for r in rows if r["kernel"] == k and r[whose]["fits"]), default=None) for k in KERNELS}


def text(document: Mapping[str, Any]) -> str:
    """Both parts of the figure as one table, then the limits, then why."""
    head = ["kernel", "filters", "GPU ms", "FPGA ms", "gain", "GPU mJ", "FPGA mJ", "gain", "ALM ours", "ALM authors' rows"]
    rows = [[f"{r['kernel']}x{r['kernel']}", str(r["filters"]), *_pair(r, "latency_s"), *_pair(r, "energy_j"),
             _alm(r["ours"]), _alm(r["authors"])] for r in document["layers"]]
    limits = [[name, _filters(document["limit"]["authors_rows"][name]), _filters(document["limit"]["ours"][name])]
              for name in document["limit"]["ours"]]
    filters, kernel = document["limit"]["paper"]
    return "\n".join([
        f"Heterogeneity 2021, Figure 1: {SIDE}x{SIDE}x{CHANNELS} input on {document['board']}; GPU values extrapolated from rows "
        "up to 100x100", "", table(head, rows, range(1, 10)), "",
        "! does not fit a 10CX220, and has no gain; ~ extrapolated beyond the rows",
        "", table(["kernel", "most filters: authors' rows", "ours"], limits, range(1, 3)),
        f"The paper's limit: {filters} filters of {kernel}x{kernel}.", *(f"  {sentence}" for sentence in document["why"])])


def figures(document: Mapping[str, Any]) -> dict[str, str]:
    """File name to drawing: latency (a) and energy (b) of every layer, as bars; extrapolated values have dashed outlines."""
    found = {}
    for key, part, unit in (("latency_s", "a", "milliseconds"), ("energy_j", "b", "millijoules")):
        for kernel in KERNELS:
            groups = {f"{r['filters']}": [Bar("FPGA", log10(r["fpga"][key] * 1e3), r["fpga"]["extrapolated"], r["fpga"]["fits"]),
                                          Bar("GPU", log10(r["gpu"][key] * 1e3), r["gpu"]["extrapolated"])]
                      for r in document["layers"] if r["kernel"] == kernel}
            found[f"figure_1{part}_{kernel}x{kernel}.svg"] = bars(
                f"Figure 1{part}: {kernel}x{kernel} on {SIDE}x{SIDE}x{CHANNELS}, by filters", groups, f"log10 of {unit}")
    return found


def _pair(row: Mapping[str, Any], key: str) -> list[str]:
    return [f"{row['gpu'][key] * 1e3:.3f}", f"{row['fpga'][key] * 1e3:.3f}", gains.told(row["gain"][key], "{:.1f}x")]


def _alm(area: Mapping[str, Any]) -> str:
    amount = area["resources"].get("alm", 0.0)
    return f"{'~' if area['extrapolated'] else ''}{amount:,.0f}{'' if area['fits'] else '!'}"


def _filters(count: int | None) -> str:
    return "none" if count is None else str(count)
