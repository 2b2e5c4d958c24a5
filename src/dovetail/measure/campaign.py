"""A whole measurement: every designed layer and a few networks, saved after each, continued where it was interrupted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Protocol

from dovetail.errors import UsageError
from dovetail.ir import Graph
from dovetail.measure.layers import MeasuredLayer
from dovetail.measure.records import Record, Timing, load_record, save_record
from dovetail.progress import Progress

ENERGY_EVERY = 11
"""Energy takes two seconds a layer, so that only every so many layers tell it; power hardly depends on the layer."""


class Measured(Protocol):
    """A device that can be measured."""

    name: str
    software: str

    def idle_power_w(self) -> float | None: ...
    def layer(self, layer: MeasuredLayer, energy: bool = False) -> Timing: ...
    def network(self, graph: Graph, energy: bool = False) -> Timing: ...
    def transfers(self) -> list[tuple[str, int, float]]: ...


def measure(device: Measured, kind: str, layers: Sequence[MeasuredLayer], networks: Mapping[str, Graph], path: Path,
            progress: Progress, rounds: int = 1, command: str = "") -> Record:
    """Measure what the file at `path` does not hold yet; it is written after every layer.

    Several rounds visit everything again later, so that a busy minute of the machine spoils nothing for good. `command` is
    noted in the record: how to measure it again.
    """
    record = Record(device.name, kind, device.software, date=date.today().isoformat(), command=command)
    if path.is_file():
        record = load_record(path)
        if (record.device, record.kind) != (device.name, kind):
            raise UsageError(f"{path}: holds measurements of {record.device} ({record.kind}), this is {device.name} ({kind}); "
                             "give another file, or remove it to start again")
    total = rounds * (len(layers) + len(networks)) + 1
    if not record.transfers:
        progress("idle power and transfers", 0, total)
        record = replace(record, idle_power_w=device.idle_power_w(), transfers=tuple(device.transfers()))
        save_record(path, record)
    for visit in range(rounds):
        done = 1 + visit * (len(layers) + len(networks))
        for i, layer in enumerate(layers):
            if _visits(record.layers.get(layer)) <= visit:
                progress(str(layer), done + i, total)
                record = record.with_layer(layer, device.layer(layer, energy=visit == 0 and i % ENERGY_EVERY == 0))
                save_record(path, record)
        for i, (name, graph) in enumerate(networks.items()):
            if _visits(record.networks.get(name)) <= visit:
                progress(name, done + len(layers) + i, total)
                record = record.with_network(name, device.network(graph, energy=visit == 0))
                save_record(path, record)
    return record


def _visits(timing: Timing | None) -> int:
    return 0 if timing is None else timing.rounds
