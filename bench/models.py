"""Device models against measurements: whole networks on this machine's CPU and on a GPU, and predictions per second.

`python bench/models.py --json FILE` measures the designed layers on this machine (a few minutes, continued from
--record), fits them, and compares the sum over a network's layers with its measured latency; the networks take no part
in the fit. The same is done with what bench/gpu_layers.py wrote on a GPU (`--gpu RECORD.json`; without it, the H200's);
`--no-cpu` leaves it at that, which takes seconds. Errors of every shipped model: `dovetail validate-models --data DIR`.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from dovetail.cost import costs_of
from dovetail.cost.predict import SquareLayers, predict
from dovetail.hardware.work import whole_units
from dovetail.ir import Graph
from dovetail.measure.board import calibrate
from dovetail.measure.campaign import Record, load_record, measure
from dovetail.measure.energy import cpu_counter
from dovetail.measure.layers import designed_layers
from dovetail.measure.processor import ProcessorDevice
from dovetail.platform.device import Device, ModelSet
from dovetail.platform.load import load_platform
from dovetail.platform.quantity import Form, quantity_model, quantity_names
from dovetail.report.model_chart import chart_entry, model_chart
from gpu_layers import NETWORKS, network

TARGET = 0.10
"""Relative error of a whole network's latency that is promised."""
H200 = Path(__file__).parent / "records" / "h200.json"
RATE = 100_000
"""Predictions per second that are promised."""


def predicted(graph: Graph, device: Device) -> tuple[float, float]:
    """Seconds and joules, idle power included: sums over the layers, as a plan on one device has them."""
    seconds, joules = device.parameters["overhead_s"], 0.0
    for node in graph.nodes:
        costs = costs_of(graph, node, None, *whole_units(), device)
        assert costs is not None
        seconds, joules = seconds + float(costs.alone_s[0]), joules + float(costs.energy_j[0])
    return seconds, joules + device.idle_power_w * seconds


def compare(record: Record, graphs: Mapping[str, Graph]) -> dict[str, Any]:
    """Fit the record's layers and hold the sums against the record's networks."""
    found = calibrate(record, "bench")
    with TemporaryDirectory() as folder:
        path = Path(folder) / "bench.toml"
        path.write_text(found.text)
        device = load_platform(str(path)).device(record.kind)
    networks = []
    for name, timing in record.networks.items():
        seconds, joules = predicted(graphs[name], device)
        error = seconds / timing.seconds - 1
        entry = {"network": name, "measured_s": timing.seconds, "predicted_s": seconds, "error": error,
                 "within": abs(error) <= TARGET}
        line = (f"{record.kind} {name:<14} measured {timing.seconds * 1e3:9.3f} ms   predicted {seconds * 1e3:9.3f} ms   "
                f"{error:+.1%}")
        if timing.energy_j is not None:
            entry |= {"measured_j": timing.energy_j, "predicted_j": joules, "energy_error": joules / timing.energy_j - 1}
            line += f"   {timing.energy_j * 1e3:.1f} mJ, predicted {joules * 1e3:.1f}   {joules / timing.energy_j - 1:+.1%}"
        networks.append(entry)
        print(line)
    print(f"{record.kind} layers left out of the fit: {found.fit.total.mean:.1%} on average, p90 {found.fit.total.p90:.1%} "
          f"({len(record.layers)} layers on {record.device})")
    return {"device": record.device, "software": record.software, "layers": len(record.layers),
            "layer_mape": found.fit.total.mean, "layer_p90": found.fit.total.p90, "networks": networks}


def prediction_rate(count: int = 200_000) -> float:
    """Predictions per second, value, interval and flag, through the vectorised interface."""
    random = np.random.default_rng(0)
    kernel = random.choice([1.0, 3.0, 5.0, 7.0, 11.0], count)
    layers = SquareLayers(random.integers(11, 101, count).astype(float), random.integers(3, 513, count).astype(float), kernel,
                          random.integers(1, 513, count).astype(float))
    model = quantity_model("measured", "tx2-gpu-latency")
    predict(model, layers)
    times = []
    for _ in range(5):
        start = time.perf_counter()
        predict(model, layers)
        times.append(time.perf_counter() - start)
    return count / float(np.median(times))


def measured_here(path: Path, threads: int, graphs: Mapping[str, Graph]) -> Record:
    """This machine's layers and networks, continued from the file."""
    load = os.getloadavg()[0]
    if load > 0.5 * (os.cpu_count() or 1):
        print(f"note: other programs keep this machine busy (load {load:.1f}); times below are unreliable", file=sys.stderr)
    return measure(ProcessorDevice(threads, cpu_counter()), "cpu", designed_layers(), graphs, path,
                   lambda stage, done, total: print(f"  {done}/{total} {stage}", file=sys.stderr, flush=True), rounds=3)


TITLES = {"tx2-gpu": "Jetson TX2 GPU", "tx2-cpu": "Jetson TX2 CPU", "c10gx": "Cyclone 10 GX"}


def draw(folder: Path) -> None:
    """One SVG per shipped quantity: rows as measured and as predicted without them."""
    for name in quantity_names(ModelSet.MEASURED):
        model = quantity_model(ModelSet.MEASURED, name)
        entry = chart_entry(model, model.errors[Form.EVALUATION])
        quantity = model.quantity if model.quantity in ("latency", "power", "fmax") else model.quantity.upper()
        chart = model_chart(f"{TITLES[model.device]}, {quantity}", entry)
        (folder / f"models-{name}.svg").write_text(f"{chart}\n", encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--record", type=Path, help="this machine's measurements, kept and continued (default: measured anew)")
    parser.add_argument("--gpu", type=Path, default=H200, help="a record of bench/gpu_layers.py (default: the H200's)")
    parser.add_argument("--no-cpu", action="store_true", help="do not measure this machine: the GPU's record and the rate alone")
    parser.add_argument("--figures", type=Path, help="only draw the shipped models against their measurements into this folder")
    parser.add_argument("--threads", type=int, default=1, help="threads of ONNX Runtime (default: %(default)s)")
    options = parser.parse_args()
    if options.figures is not None:
        draw(options.figures)
        return 0
    graphs = {name: network(name) for name in NETWORKS}
    figures: dict[str, Any] = {"predictions_per_s": prediction_rate()}
    print(f"predictions: {figures['predictions_per_s']:,.0f} per second (promised {RATE:,})")
    figures["gpu"] = compare(load_record(options.gpu), graphs)
    if not options.no_cpu:
        with TemporaryDirectory() as folder:
            figures["cpu"] = compare(measured_here(options.record or Path(folder) / "cpu.json", options.threads, graphs), graphs)
    if options.json is not None:
        options.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    networks = [n for kind in ("cpu", "gpu") for n in figures.get(kind, {}).get("networks", ())]
    kept = figures["predictions_per_s"] >= RATE and all(n["within"] for n in networks)
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
