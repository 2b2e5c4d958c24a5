"""GP partitioning 2023 (Carballo-Hernández, Pelcat, Berry): Figures 3, 4, 5, 7, 8, 9, Equations 9 and 10, and Table 1.

The method is the paper's, its costs are ours. Every division it gives is counted again without its two fictions: transfers
are paid in full, not weighted by S(x), and a device without filters costs nothing. Beside it stand one device, an even
division, and the best division there is, found by trying all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from time import process_time
from typing import Any

import numpy as np

from dovetail.hardware.shares import Floats
from dovetail.measure.layers import MeasuredLayer, normal_graph
from dovetail.partition.geometric import paper
from dovetail.partition.geometric.rounding import whole_units
from dovetail.partition.options import PROOF
from dovetail.partition.plan import Mode
from dovetail.partition.solve import plan
from dovetail.platform.device import Platform
from dovetail.platform.load import load_platform
from dovetail.progress import Progress
from dovetail.reproduce.gp_2023 import peers as gp_peers
from dovetail.reproduce.gp_2023.layers import (
    DEVICES,
    NETWORKS,
    Convolution,
    FpgaTime,
    at,
    by_filters,
    needed,
    paper_layer,
    readings,
)
from dovetail.terminal import table

BOARD = "tx2-c10gx"
EXAMPLE = Convolution(112, 16, 1, 32)
"""The layer of Figures 3 to 5, whose 16 input channels are divided."""
CHANNEL_US = {"fpga": 9.18, "gpu": 64.25}
"""Microseconds per channel that make the method stop where Figure 3 does; calibrated to it, so no evidence for it."""
ALPHA_STEP = 10.0
PRINTED_FILTERS = {"first_on_fpga": "61/64", "last_on_gpu": "352/512"}
"""Sec. 5.2, of ResNet18."""
PRINTED_OVER_BALANCED = {"latency": 1.20, "energy": 1.15}
"""The abstract's 20 % and 15 %."""
PRINTED: dict[str, tuple[float, float]] = {"AlexNet": (3.1, 5.7), "VGG16": (2.8, 6.4), "ResNet18": (2.8, 6.3)}
"""Table 1: lowest and highest gain of a layer over the CPU."""
KAPPAS = (1, 2, 5, 10, 50, 100)
WHY = (
    "Figure 3: an FPGA that serves a channel in 9.18 us with its link makes the method stop where the paper does; the "
    "published rows, serial over channels, take milliseconds for that, and on them the method gives the layer to the GPU.",
    "Figure 8: the distance of S(x) from a step is 0.050 at kappa = 100, the square root of 1 / 401; the paper reads 0.12.",
    "61 of 64: beside a streaming FPGA without limits the GPU alone leaves it 62 filters, GPU and CPU 58, whatever kappa and "
    "the step; a GPU nine times as fast per filter would leave it 61.",
    "352 of 512: with its area one filter of the deepest layer is too much for the FPGA, and CPU and GPU share in the ratio of "
    "their slopes, 425 to 87; a CPU 2.3 times as fast would give 352, and so would the FPGA without limits at a fifth of its "
    "serial time, so no single reading gives both points.",
    "Table 1: it counts single layers over the CPU; the highest gains come near on a streaming FPGA without limits, and over "
    "whole networks the GPU alone is faster than what the method gives.",
    "Abstract: with a streaming FPGA within its area the gain over an even division is near the printed 20 %; where times add "
    "an even division is a weak opponent, and the GPU alone is faster than both.",
)


AREAS = ("free", "limited", "shared")
"""No limit, one FPGA for each layer (Setup 2), one FPGA for all (Eq. 10)."""
ROOM = 0.99
"""Part of the shared FPGA that single filters of all layers may take. Chosen: a solver needs some room to begin in."""


def reproduce(progress: Progress = lambda *_: None, networks: Sequence[str] = tuple(NETWORKS),
              peers: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """All figures as numbers; `peers` are arguments of `gp_peers.reproduce`."""
    board = load_platform(BOARD)
    progress("gp-2023: Figures 3 to 8", 0, 1)
    links = _links(board)  # first, as it loads the solver that Figure 3 is timed with
    found: dict[str, Any] = {
        "paper": "gp-2023", "board": BOARD, "figure_3_and_4": _example(("fpga", "gpu"), CHANNEL_US),
        "figure_5": _example(("fpga", "gpu", "cpu"), {**CHANNEL_US, "cpu": _cpu_channel_us()}),
        "figure_3_on_published_models": _example_on_rows(), "figure_3_on_fitted_models": _example_on_fits(board),
        "figure_7": {str(k): [paper.communication_weight(x / 20, k) for x in range(21)] for k in KAPPAS},
        "figure_8": {str(k): paper.step_norm(k) for k in KAPPAS}, "figure_8_printed": {str(paper.KAPPA): 0.12},
        "printed_filters_of_resnet18": PRINTED_FILTERS, "printed_gain_over_balanced": PRINTED_OVER_BALANCED}
    found["figure_9"] = []
    for i, name in enumerate(networks):
        progress(f"gp-2023: Figure 9, {name}", i, len(networks))
        found["figure_9"] += [_network(name, reading, area, board) for reading in FpgaTime for area in AREAS]
    found["readings_of_printed_filters"], found["needed_for_printed_filters"] = readings(board), needed(board)
    found["equation_9"] = links
    found["peers"] = gp_peers.reproduce(board, progress, **(peers or {}))
    found["energy"] = [_energy(name, kind, board) for name in networks for kind in ("constant", "rows")]
    return found


def _cpu_channel_us() -> float:
    """The CPU's slope over input channels, by the authors' form of model."""
    one, whole = (sum(c for c, _ in by_filters("tx2-cpu-latency", replace(EXAMPLE, channels=n))) for n in (1, EXAMPLE.channels))
    return (whole - one) / (EXAMPLE.channels - 1) * 1e6


def _steps(layer: paper.PaperLayer, step: float | None) -> dict[str, Any]:
    start = process_time()
    found = paper.tighten(paper.PaperProblem((layer,), kappa=None), step=step)
    seconds = process_time() - start
    units = [whole_units(layer.channels, s.shares[0]) for s in found.steps]
    return {"devices": list(layer.devices), "met": found.met[0], "iteration": len(found.steps),
            "alpha": found.answer.alphas[0], "channels": list(units[-1]), "solve_s": seconds,
            "steps": [{"alpha": s.alphas[0], "channels": [x * layer.channels for x in s.shares[0]], "sum": s.tightness(0),
                       "us": s.cost} for s in found.steps]}


def _example(devices: tuple[str, ...], channel_us: Mapping[str, float]) -> dict[str, Any]:
    """Figures 3 to 5: the tightening, and the best there is."""
    count = EXAMPLE.channels
    compute = {d: ((channel_us[d] * count, 1.0),) for d in devices}
    found = _steps(paper.PaperLayer("example", count, compute, {d: () for d in devices}, {}), ALPHA_STEP)
    us = sum(n * channel_us[d] for n, d in zip(found["channels"], devices, strict=True))
    best = min(devices, key=channel_us.__getitem__)
    return {**found, "us": us, "best_channels": [count if d == best else 0 for d in devices], "best_us": count * channel_us[best]}


def _example_on_rows() -> dict[str, Any]:
    """The layer of Figure 3 with the authors' form of model, channels divided, transfers at the measured rate."""
    count = EXAMPLE.channels
    shares: Floats = np.arange(1, count + 1) / count
    compute = {}
    for device, model in (("fpga", "c10gx-latency"), ("gpu", "tx2-gpu-latency")):
        us = [1e6 * sum(c for c, _ in by_filters(model, replace(EXAMPLE, channels=n))) for n in range(1, count + 1)]
        slope, start = np.polyfit(shares, us, 1)
        compute[device] = tuple((float(c), e) for c, e in ((start, 0.0), (slope, 1.0)) if c > 0)
    return _steps(paper.PaperLayer("example", count, compute, {d: () for d in compute}, {}), None)


def _example_on_fits(board: Platform) -> dict[str, Any]:
    """The layer of Figure 3 on our own models, its filters divided: the paper's method, exact when times add, exact at once."""
    graph = normal_graph(MeasuredLayer("conv", EXAMPLE.channels, EXAMPLE.side, EXAMPLE.filters), seed=0)
    found = {}
    for name, solver, mode in (("gp_paper", "gp-paper", Mode.SEQUENTIAL), ("exact", "exact", Mode.SEQUENTIAL),
                               ("exact_at_once", "exact", Mode.CONCURRENT)):
        made = plan(graph, board, replace(PROOF, mode=mode, solver=solver))
        split = made.assignment[graph.nodes[0].name]
        units = {p.device: p.stop - p.start for p in split.pieces} if split.axis is not None else {
            split.devices[0]: EXAMPLE.filters}
        found[name] = {"axis": None if split.axis is None else str(split.axis), "units": units, "us": made.latency_s * 1e6}
    return found


def _links(board: Platform) -> list[dict[str, Any]]:
    """Eq. 9 on the layer of Figure 3, filters divided, streaming FPGA: the answer with more and more of its three links.

    CPU-FPGA and CPU-GPU bring shares of the input, FPGA-GPU the FPGA's share of the output, each in full (kappa None).
    """
    layer = paper_layer("example", EXAMPLE, FpgaTime.STREAMING, False, board)
    read, made = (float(EXAMPLE.side**2 * n) for n in (EXAMPLE.channels, EXAMPLE.filters))
    transfer: dict[str, paper.Terms] = {d: () for d in DEVICES}
    found = []
    for device, other, size in (("fpga", "", 0.0), ("fpga", "cpu", read), ("gpu", "cpu", read), ("fpga", "gpu", made)):
        way = board.route(device, other) if other else ()
        transfer[device] = (*transfer[device], (sum(x.latency_s for x in way), 0.0),
                            (size * sum(1 / x.bandwidth_bytes_per_s for x in way), 1.0))
        answer = paper.tighten(paper.PaperProblem((replace(layer, transfer=dict(transfer)),), kappa=None)).answer
        units = whole_units(layer.channels, answer.shares[0])
        found.append({"added": f"{device}-{other}" if other else None, "us": answer.cost * 1e6,
                      "filters": dict(zip(layer.devices, units, strict=True))})
    return found


def _network(name: str, reading: FpgaTime, area: str, board: Platform) -> dict[str, Any]:
    """Figure 9 and Table 1 for one network under one reading."""
    layers = tuple(paper_layer(f"{name}.{i}", x, reading, area != "free", board) for i, x in enumerate(NETWORKS[name], 1))
    layers = _sharing(layers) if area == "shared" else layers
    start = process_time()
    found = paper.tighten(paper.PaperProblem(layers, shared_budget=area == "shared"))
    seconds = process_time() - start
    shares = _within(layers, found.answer.shares) if area == "shared" else found.answer.shares
    rows = [_layer_row(x, s) for x, s in zip(layers, shares, strict=True)]
    total = {k: sum(r["seconds"][k] for r in rows) for k in rows[0]["seconds"]}
    first = paper.PaperProblem(layers[:3], shared_budget=False)
    schedules = {s.value: len(paper.tighten(first, s).steps) for s in paper.TighteningSchedule}
    return {"network": name, "fpga": reading.value, "area": area, "area_limited": area != "free", "layers": rows,
            "total_s": total, "programs": len(found.steps), "programs_of_first_three_layers": schedules,
            "sums_met": all(found.met),
            "solve_s": seconds, "smallest_sum": [min(map(sum, step.shares)) for step in found.steps],
            "gain_over_cpu": {k: [min(g), max(g)] for k in ("as_counted", "paid")
                              if (g := [r["seconds"]["cpu"] / r["seconds"][k] for r in rows])},
            "printed_gain_over_cpu": list(PRINTED[name]), "gain_over_balanced": total["balanced"] / total["paid"],
            "gap_to_best": total["paid"] / total["best"] - 1}


def _sharing(layers: tuple[paper.PaperLayer, ...]) -> tuple[paper.PaperLayer, ...]:
    """The same layers, the FPGA left out of the largest until one filter of each other fits: no program leaves a device out."""
    kept = list(layers)
    for resource in dict.fromkeys(r for x in layers for _, r in x.resources):
        while sum(parts := [_area(x, 1, resource) for x in kept]) > ROOM:
            largest = int(np.argmax(parts))
            without = {d: kept[largest].compute[d] for d in ("cpu", "gpu")}
            kept[largest] = replace(kept[largest], compute=without, transfer={d: () for d in without}, resources={})
    return tuple(kept)


def _area(layer: paper.PaperLayer, filters: int, resource: str) -> float:
    """The part of a resource that so many filters take; none take nothing."""
    terms = layer.resources.get(("fpga", resource), ())
    return float(at(terms, np.array([filters / layer.channels]))[0]) if filters and terms else 0.0


def _within(layers: Sequence[paper.PaperLayer], shares: Sequence[Sequence[float]]) -> list[list[float]]:
    """Shares of whole filters that keep the shared budget: rounding may exceed it, then the largest part loses a filter."""
    units = [list(whole_units(x.channels, s)) for x, s in zip(layers, shares, strict=True)]

    for resource in dict.fromkeys(r for x in layers for _, r in x.resources):
        while sum(parts := [_area(x, dict(zip(x.devices, own, strict=True)).get("fpga", 0), resource)
                            for x, own in zip(layers, units, strict=True)]) > 1:
            worst = int(np.argmax(parts))
            devices = layers[worst].devices
            units[worst][devices.index("fpga")] -= 1
            units[worst][devices.index("gpu")] += 1
    return [[n / x.channels for n in own] for x, own in zip(layers, units, strict=True)]


def _layer_row(layer: paper.PaperLayer, shares: Sequence[float]) -> dict[str, Any]:
    units = dict(zip(layer.devices, whole_units(layer.channels, list(shares)), strict=True))
    even = dict(zip(layer.devices, whole_units(layer.channels, [1.0] * len(layer.devices)), strict=True))
    best, best_s = _best(layer)
    seconds = {"as_counted": _counted(layer, units, weighted=True), "paid": _counted(layer, units), "best": best_s,
               "balanced": _counted(layer, even), **{d: _counted(layer, {d: layer.channels}) for d in ("cpu", "gpu")}}
    return {"layer": layer.name, "filters": units, "best_filters": best, "seconds": seconds,
            "device_seconds": {d: _counted(layer, {d: n}) for d, n in units.items()},
            "speed_up": seconds["cpu"] / seconds["paid"]}


def _costs(layer: paper.PaperLayer, device: str, units: Floats, weighted: bool) -> Floats:
    """Time of so many filters on a device; nothing for none. `weighted` scales transfers by S(x)."""
    shares = units / layer.channels
    moved = at(layer.transfer[device], shares) * (shares ** (2 * paper.KAPPA) if weighted else 1.0)
    return np.where(units > 0, at(layer.compute[device], shares) + moved, 0.0)


def _counted(layer: paper.PaperLayer, units: Mapping[str, int], weighted: bool = False) -> float:
    return float(sum(_costs(layer, d, np.array([float(n)]), weighted)[0] for d, n in units.items()))


def _best(layer: paper.PaperLayer) -> tuple[dict[str, int], float]:
    """The best division of all, within the area: every number of filters on FPGA and GPU tried, the rest on the CPU."""
    units = np.arange(layer.channels + 1, dtype=np.float64)
    fits = np.ones(len(units), dtype=np.bool_)
    for terms in layer.resources.values():
        fits &= at(terms, units / layer.channels) <= 1
    cost = {d: _costs(layer, d, units, False) if d in layer.devices else np.where(units > 0, np.inf, 0.0) for d in DEVICES}
    fpga, gpu = np.meshgrid(units.astype(int), units.astype(int), indexing="ij")
    rest = layer.channels - fpga - gpu
    total = np.where((rest >= 0) & fits[fpga], cost["fpga"][fpga] + cost["gpu"][gpu] + cost["cpu"][np.maximum(rest, 0)], np.inf)
    f, g = np.unravel_index(int(total.argmin()), total.shape)
    return {"cpu": int(layer.channels - f - g), "gpu": int(g), "fpga": int(f)}, float(total.min())


def _energy(name: str, kind: str, board: Platform) -> dict[str, Any]:
    """Eq. 15 on a streaming FPGA without limits: the gain of a layer's energy over the CPU's.

    The paper takes Table 1's gains for those of energy where power is constant, and says nothing of them where it is not.
    """
    layers = tuple(paper_layer(f"{name}.{i}", x, FpgaTime.STREAMING, False, board, kind) for i, x in enumerate(NETWORKS[name], 1))
    found = paper.tighten(paper.PaperProblem(layers, shared_budget=False))
    rows = [_layer_row(x, s) for x, s in zip(layers, found.answer.shares, strict=True)]
    gains = [r["seconds"]["cpu"] / r["seconds"]["paid"] for r in rows]
    balanced, paid = (sum(r["seconds"][k] for r in rows) for k in ("balanced", "paid"))
    return {"network": name, "power": kind, "gain_over_cpu": [min(gains), max(gains)], "gain_over_balanced": balanced / paid,
            "printed_gain_over_cpu": list(PRINTED[name]) if kind == "constant" else None}


def text(document: Mapping[str, Any]) -> str:
    """The figures as tables."""
    lines = [f"GP partitioning 2023 on {document['board']}", ""]
    for title, key in (("Figures 3 and 4", "figure_3_and_4"), ("Figure 5", "figure_5")):
        e = document[key]
        lines += [f"{title}: stops at {_division(e['devices'], e['channels'])} in iteration {e['iteration']}, "
                  f"alpha {e['alpha']:g}, {e['us']:.0f} us; "
                  f"best {_division(e['devices'], e['best_channels'])}, {e['best_us']:.0f} us"]
    rows = document["figure_3_on_published_models"]
    lines += [f"The same layer on the published models: {_division(rows['devices'], rows['channels'])}"]
    lines += [f"The same layer on the fitted models, {name.replace('_', ' ')}: "
              + ", ".join(f"{d.upper()} {n}" for d, n in e["units"].items()) + f", {e['us']:.0f} us"
              for name, e in document["figure_3_on_fitted_models"].items()] + [""]
    steps = document["figure_3_and_4"]["steps"]
    lines += [table(["iteration", "alpha", "FPGA", "GPU", "sum", "us"],
                    [[str(i), f"{s['alpha']:g}", *(f"{c:.2f}" for c in s["channels"]), f"{s['sum']:.3f}", f"{s['us']:.1f}"]
                     for i, s in enumerate(steps, 1)], range(6)), "",
              "Figures 7 and 8: " + ", ".join(f"kappa {k}: {v:.3f}" for k, v in document["figure_8"].items())
              + f" (printed: 0.12 at {paper.KAPPA}); S(61/64) = {paper.communication_weight(61 / 64):.1e}", ""]
    lines += ["Eq. 9 on that layer, filters divided, streaming FPGA, links added one after another",
              table(["with", "CPU", "GPU", "FPGA", "us"],
                    [[f"and {r['added']}" if r["added"] else "no link", *(str(r["filters"][d]) for d in DEVICES),
                      f"{r['us']:.0f}"] for r in document["equation_9"]], range(1, 5)), ""]
    head = ["network", "FPGA", "area", "first on FPGA", "last on GPU", "printed", "as counted", "paid", "whole", "GPU", "best",
            "over even"]
    lines += ["Figure 9 and Table 1: gains over the CPU, lowest and highest of the layers, then of the whole network",
              table(head, [_network_cells(n) for n in document["figure_9"]], range(3, 12)), "",
              "as counted: transfers weighted by S(x); paid: in full; whole: all layers, paid, beside the GPU alone and the best "
              "division; over even: gain over an even division (printed: 1.20); shared: one FPGA for all layers (Eq. 10); the "
              "best division has one for each", *_solve_times(document), *_figure_9(document["figure_9"]),
              "printed for ResNet18: 61/64 of the first layer on the FPGA, 352/512 of deep layers on the GPU", "",
              "ResNet18's printed points under every reading",
              table(["devices", "FPGA", "area", "first on FPGA (61)", "last on GPU (352)"],
                    [[" ".join(r["devices"]), r["fpga"], "limited" if r["area_limited"] else "free", str(r["first_on_fpga"]),
                      str(r["last_on_gpu"])] for r in document["readings_of_printed_filters"]], (3, 4)),
              *(f"{n['printed']} of the {name} layer's filters on the {n['device'].upper()} need {n['changed'].upper()} times "
                f"{n['factor']:.2g} of those in the nearest reading, which gives {n['ours']}"
                for name, n in document["needed_for_printed_filters"].items()), "",
              "Eq. 15, gain of a layer's energy over the CPU, and of all of them over an even division (printed: 1.15); "
              "printed are Table 1's speed-ups, which the paper takes for gains of energy too where power is constant",
              table(["network", "power", "printed", "paid", "over even"],
                    [[e["network"], e["power"], _range(printed) if (printed := e["printed_gain_over_cpu"]) else "-",
                      _range(e["gain_over_cpu"]), f"{e['gain_over_balanced']:.2f}"] for e in document["energy"]],
                    range(2, 5)), "", *gp_peers.text(document["peers"])]
    return "\n".join([*lines, *WHY])


def _solve_times(document: Mapping[str, Any]) -> list[str]:
    """How long the method takes, beside the paper's words."""
    example = document["figure_3_and_4"]
    rows = [["Figure 3", f"{example['solve_s'] * 1e3:.0f}", str(example["iteration"]), "200"]]
    rows += [[f"{n['network']}, {n['fpga']}, {n['area']}", f"{n['solve_s'] * 1e3:.0f}", str(n["programs"]), "-"]
             for n in document["figure_9"]]
    return ["", "Milliseconds of computing (printed: \"less than a couple of hundred of milliseconds\" for Figure 3)",
            table(["problem", "ms", "programs", "printed"], rows, (1, 2, 3))]


def _figure_9(networks: Sequence[Mapping[str, Any]]) -> list[str]:
    """Layer by layer with a streaming FPGA: filters and milliseconds of every device, the CPU alone, the gain."""
    rows = [[row["layer"], n["area"], *(f"{row['filters'].get(d, 0)}" for d in DEVICES),
             *(f"{row['device_seconds'].get(d, 0.0) * 1e3:.2f}" for d in DEVICES),
             *(f"{row['seconds'][k] * 1e3:.2f}" for k in ("paid", "cpu")), f"{row['speed_up']:.1f}"]
            for n in networks if n["fpga"] == FpgaTime.STREAMING.value and n["area"] != "shared" for row in n["layers"]]
    return ["", "Figure 9 by layer, streaming FPGA: filters, then milliseconds of each share, of all and of the CPU alone",
            table(["layer", "area", *(d.upper() for d in DEVICES), *(f"{d.upper()} ms" for d in DEVICES), "ms", "CPU alone",
                   "speed-up"], rows, range(2, 11)), ""]


def _division(devices: Sequence[str], channels: Sequence[int]) -> str:
    return ", ".join(f"{d.upper()} {n}" for d, n in zip(devices, channels, strict=True))


def _range(pair: Sequence[float]) -> str:
    return f"{pair[0]:.1f}–{pair[1]:.1f}"


def _network_cells(n: Mapping[str, Any]) -> list[str]:
    first, last, total = n["layers"][0]["filters"], n["layers"][-1]["filters"], n["total_s"]
    gain = n["gain_over_cpu"]
    return [n["network"], n["fpga"], n["area"],
            f"{first.get('fpga', 0)}/{sum(first.values())}", f"{last['gpu']}/{sum(last.values())}",
            _range(n["printed_gain_over_cpu"]), _range(gain["as_counted"]), _range(gain["paid"]),
            *(f"{total['cpu'] / total[k]:.1f}" for k in ("paid", "gpu", "best")), f"{n['gain_over_balanced']:.2f}"]
