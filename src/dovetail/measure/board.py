"""A board file from measurements: the device fitted, its link, and a host where it needs one; usable at once with -p."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dovetail.cost.fitting.layers import LayerFit, fit_energy, fit_layers
from dovetail.cost.fitting.link import fit_line
from dovetail.cost.fitting.rows import read_rows
from dovetail.errors import DovetailError, UsageError
from dovetail.measure.campaign import Record, Timing, load_record
from dovetail.measure.layers import ACTIVATIONS, MeasuredLayer, shape_of
from dovetail.platform.device import ASSUMED
from dovetail.platform.load import this_machine_entries
from dovetail.words import counted

NUMBERS = ("channels", "side", "filters", "kernel", "stride", "groups", "inputs")
LEFT_OUT = "90th percentile of layers left out"
POWERS = ("idle_power_w", "busy_power_w")
ASSUMED_POWER_W = {"cpu": (10.0, 40.0), "gpu": (30.0, 150.0)}
"""Idle and busy power where no counter could be read."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """A board's text and how well the device's layers are predicted."""

    text: str
    fit: LayerFit


def read_measurements(path: Path, kind: str | None) -> Record:
    """A record (.json), or a user's table (.csv) with COLUMNS; complaints name row and column."""
    if path.suffix != ".csv":
        return load_record(path)
    if kind is None:
        raise UsageError(f"{path}: a table does not say what was measured; add --device cpu or --device gpu")
    numbers = read_rows(path, (*NUMBERS, "seconds"))
    with path.open(newline="", encoding="utf-8-sig") as file:
        lines = list(csv.DictReader(file, skipinitialspace=True))
    layers: dict[MeasuredLayer, Timing] = {}
    for i, line in enumerate(lines):
        where = f"{path}: row {i + 2}"
        sizes = {name: _whole(where, name, float(numbers[name][i])) for name in NUMBERS}
        seconds = float(numbers["seconds"][i])
        if not seconds > 0:
            raise UsageError(f"{where}, column seconds: {seconds:g} is not possible; a time above 0 is needed")
        layer = MeasuredLayer((line.get("op") or "").strip(), activation=(line.get("activation") or "none").strip(), **sizes)
        _check(where, layer)
        layers[layer] = Timing(seconds, _joules(where, line.get("energy_j")))
    return Record(path.stem, kind, f"table {path.name}", layers=layers)


def _check(where: str, layer: MeasuredLayer) -> None:
    """A layer that cannot be is complained about at the column that makes it so."""
    if layer.op == "conv" and (layer.channels % layer.groups or layer.filters % layer.groups or not layer.filters):
        raise UsageError(f"{where}, column groups: {layer.groups} groups do not divide {counted(layer.channels, 'channel')} "
                         f"and {counted(layer.filters, 'filter')}; give a number that divides both")
    try:
        shape_of(layer)
    except (DovetailError, ValueError) as problem:
        column = "activation" if layer.activation not in ACTIVATIONS else "op"
        raise UsageError(f"{where}, column {column}: {problem}") from None


def _whole(where: str, column: str, value: float) -> int:
    if value != int(value) or value < (0 if column == "filters" else 1):
        raise UsageError(f"{where}, column {column}: {value:g} is not possible; a whole number from 1 is needed")
    return int(value)


def _joules(where: str, text: str | None) -> float | None:
    if not text:
        return None
    try:
        joules = float(text)
    except ValueError:
        raise UsageError(f"{where}, column energy_j: {text!r} is not a number; give joules, or leave it empty") from None
    if not 0 < joules < float("inf"):
        raise UsageError(f"{where}, column energy_j: {joules:g} is not possible; give joules above 0, or leave it empty")
    return joules


def calibrate(record: Record, name: str) -> Calibration:
    """The board of a measured device; a GPU gets this machine's CPU, with assumed rates, as its host."""
    if not record.layers:
        raise UsageError(f"{record.device}: no layers were measured; nothing can be fitted")
    layers = list(record.layers)
    fit = fit_layers([shape_of(layer) for layer in layers], np.array([record.layers[layer].seconds for layer in layers]))
    device = _device_lines(record, fit)
    lines = [f"# Written by dovetail calibrate: {counted(len(layers), 'layer')} on {record.device}.",
             *([f"# Measured by: {_plain(record.command)}"] if record.command else []),
             f"# Layers left out of the fit, a fifth at a time, are predicted within {fit.total.mean:.1%} on average, "
             f"{fit.total.p90:.1%} for nine of ten.", "# Every number is { value, source }; SI units, named in the key.", "",
             f'name = "{name}"', f'description = "{_plain(record.device)}, measured layer by layer"', 'host = "cpu"', ""]
    if record.kind == "gpu":
        lines += [*_host_lines(), *device, *_link_lines(record)]
    else:
        lines += device
    return Calibration("\n".join(lines) + "\n", fit)


def _device_lines(record: Record, fit: LayerFit) -> list[str]:
    source = f"measured: {_plain(record.device)}, {_plain(record.software)}{_when(record)}"
    powers, joules = _power_lines(record)
    lines = ["[[device]]", f'name = "{record.kind}"', f'kind = "{record.kind}"', f'description = "{_plain(record.device)}"',
             'model = "calibrated"', *powers]
    if record.dispatch_s is not None:
        lines.append(_number("dispatch_s", record.dispatch_s,
                             f"measured: a part of one small kernel through the runtime{_when(record)}"))
    lines += ["", "[device.parameters]", *joules]
    common = {"launch_s": fit.coefficients.get("add", {}).get("launch_s", 5e-6), "bandwidth_bytes_per_s": _bandwidth(fit),
              "overhead_s": record.overhead_s}
    lines += [_number(key, value, source) for key, value in common.items()]
    lines.append(_number("interval_fraction", min(fit.total.p90, 10.0), LEFT_OUT))
    for group, terms in fit.coefficients.items():
        count, errors = fit.counts[group], fit.errors[group]
        lines.append(f"# {group}: {counted(count, 'layer')}, left out {errors.mean:.1%} on average")
        lines += [_number(f"{group}_{term}", value, source) for term, value in terms.items()]
        lines.append(_number(f"{group}_interval_fraction", min(errors.p90, 10.0), LEFT_OUT))
    return [*lines, ""]


def _bandwidth(fit: LayerFit) -> float:
    """Bytes per second at which elements are moved: from additions, the plainest of movers."""
    terms: Mapping[str, float] = fit.coefficients.get("add", {})
    per_element = max(terms.get("s_per_read", 0.0), terms.get("s_per_write", 0.0), 1e-13)
    return min(4.0 / per_element, 1e13)


def _power_lines(record: Record) -> tuple[list[str], list[str]]:
    """Idle and busy power, and the energy of what is done, from the layers whose energy was read; networks are left to judge."""
    read = {layer: timing for layer, timing in record.layers.items() if timing.energy_j is not None}
    if not read or record.idle_power_w is None:
        source = f"{ASSUMED}: no energy counter could be read"
        return [_number(key, value, source) for key, value in zip(POWERS, ASSUMED_POWER_W[record.kind], strict=True)], []
    fit = fit_energy([shape_of(layer) for layer in read], np.array([t.seconds for t in read.values()]),
                     np.array([t.energy_j for t in read.values()]), record.idle_power_w)
    source = f"measured: energy of {counted(fit.layers, 'layer')}, left out {fit.errors.mean:.1%} on average"
    powers = [_number("idle_power_w", record.idle_power_w, f"measured: ready, with nothing to do{_when(record)}"),
              _number("busy_power_w", record.idle_power_w + fit.running_w,
                      f"{source}; while a layer runs, before j_per_mac and j_per_element")]
    return powers, [_number("j_per_mac", fit.j_per_mac, source), _number("j_per_element", fit.j_per_element, source)]


def _when(record: Record) -> str:
    return f", {_plain(record.date)}" if record.date else ""


def _link_lines(record: Record) -> list[str]:
    source, start, per_byte = f"{ASSUMED}: nothing was measured", 1e-5, 1 / 10e9
    if len(record.transfers) >= 4:
        sizes, seconds = (np.array([t[i] for t in record.transfers], dtype=np.float64) for i in (1, 2))
        start, per_byte = fit_line(sizes, seconds)
        source = f"measured: {len(record.transfers)} copies, both directions together"
    return ["[[link]]", 'name = "bus"', f'ends = ["cpu", "{record.kind}"]',
            _number("bandwidth_bytes_per_s", 1 / max(per_byte, 1e-13), source), _number("latency_s", start, source),
            _number("energy_j_per_byte", 0.1e-9, f"{ASSUMED}: 5 W of link power at 50 GB/s")]


def _host_lines() -> list[str]:
    (entries,) = this_machine_entries()["device"]
    lines = ["[[device]]", 'name = "cpu"', 'kind = "cpu"', f'description = "{entries["description"]}"', 'model = "roofline"']
    lines += [_number(key, entries[key]["value"], entries[key]["source"]) for key in ("idle_power_w", "busy_power_w")]
    lines += ["", "[device.parameters]"]
    return [*lines, *(_number(key, e["value"], e["source"]) for key, e in entries["parameters"].items()), ""]


def _number(key: str, value: float, source: str) -> str:
    return f'{key} = {{ value = {value:.6g}, source = "{source}" }}'


def _plain(text: str) -> str:
    """Text on one line, without what would end a string of the file."""
    return " ".join(text.split()).replace("\\", "/").replace('"', "'")
