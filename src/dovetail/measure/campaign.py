"""A whole measurement: every designed layer and a few networks, saved after each, continued where it was interrupted.

Its record is a JSON file that grows layer by layer.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import Any, Protocol

from dovetail.errors import UsageError
from dovetail.files import replace_text
from dovetail.ir import Graph
from dovetail.measure.layers import MeasuredLayer
from dovetail.progress import Progress

SCHEMA = "dovetail measurements 1"
ENERGY_EVERY = 11
"""Energy takes two seconds a layer, so that only every so many layers tell it; power hardly depends on the layer."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of one run of a layer or network, batch 1; `energy_j` above nothing (idle included), None where not read.

    `rounds` counts the visits it was measured in; other programs only ever slow a run down, so the fastest visit counts.
    """

    seconds: float
    energy_j: float | None = None
    rounds: int = 1

    def again(self, other: Timing) -> Timing:
        """This and another visit together."""
        energy = other.energy_j if self.energy_j is None else self.energy_j
        return Timing(min(self.seconds, other.seconds), energy, self.rounds + other.rounds)


@dataclass(frozen=True, slots=True)
class Record:
    """What was measured on one device so far.

    `transfers` are (direction, bytes, seconds); `overhead_s` is what one run of a network takes besides its layers.
    `date` (of its beginning, ISO) and `command` say where it comes from; older records have neither. `dispatch_s` is what
    starting a part takes through the runtime, None where it was not measured.
    """

    device: str
    kind: str
    software: str
    idle_power_w: float | None = None
    overhead_s: float = 0.0
    layers: Mapping[MeasuredLayer, Timing] = field(default_factory=dict)
    networks: Mapping[str, Timing] = field(default_factory=dict)
    transfers: tuple[tuple[str, int, float], ...] = ()
    date: str = ""
    command: str = ""
    dispatch_s: float | None = None

    def with_layer(self, layer: MeasuredLayer, timing: Timing) -> Record:
        """One more visit of a layer."""
        known = self.layers.get(layer)
        return replace(self, layers={**self.layers, layer: timing if known is None else known.again(timing)})

    def with_network(self, name: str, timing: Timing) -> Record:
        """One more visit of a network."""
        known = self.networks.get(name)
        return replace(self, networks={**self.networks, name: timing if known is None else known.again(timing)})


def save_record(path: Path, record: Record) -> None:
    """Write the whole record, in one step."""
    document = {
        "schema": SCHEMA, "device": record.device, "kind": record.kind, "software": record.software,
        "date": record.date, "command": record.command, "idle_power_w": record.idle_power_w, "overhead_s": record.overhead_s,
        "dispatch_s": record.dispatch_s,
        "layers": [{**asdict(layer), **asdict(timing)} for layer, timing in record.layers.items()],
        "networks": [{"name": name, **asdict(timing)} for name, timing in record.networks.items()],
        "transfers": [{"direction": d, "bytes": size, "seconds": s} for d, size, s in record.transfers]}
    replace_text(path, json.dumps(document, indent=1) + "\n")


def load_record(path: Path) -> Record:
    """A record as `save_record` wrote it."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if document["schema"] != SCHEMA:
            raise UsageError(f"{path}: schema is {document['schema']!r}; {SCHEMA!r} is needed, measure again")
        return Record(
            document["device"], document["kind"], document["software"], document["idle_power_w"], document["overhead_s"],
            {_layer(entry): _timing(entry) for entry in document["layers"]},
            {entry["name"]: _timing(entry) for entry in document["networks"]},
            tuple((t["direction"], int(t["bytes"]), float(t["seconds"])) for t in document["transfers"]),
            str(document.get("date", "")), str(document.get("command", "")),
            None if document.get("dispatch_s") is None else float(document["dispatch_s"]))
    except OSError as problem:
        raise UsageError(f"{path}: not readable, {problem.strerror}; give a file of measurements") from None
    except (ValueError, KeyError, TypeError) as problem:
        raise UsageError(f"{path}: not a file of measurements, {type(problem).__name__} {problem}; measure again") from None


def _layer(entry: Mapping[str, Any]) -> MeasuredLayer:
    return MeasuredLayer(**{k: v for k, v in entry.items() if k not in ("seconds", "energy_j", "rounds")})


def _timing(entry: Mapping[str, Any]) -> Timing:
    energy = entry["energy_j"]
    return Timing(float(entry["seconds"]), None if energy is None else float(energy), int(entry.get("rounds", 1)))


class Measured(Protocol):
    """A device that can be measured."""

    name: str
    software: str

    def idle_power_w(self) -> float | None: ...
    def layer(self, layer: MeasuredLayer, energy: bool = False) -> Timing: ...
    def network(self, graph: Graph, energy: bool = False) -> Timing: ...
    def transfers(self) -> list[tuple[str, int, float]]: ...
    def dispatch_s(self) -> float: ...


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
        progress("idle power, transfers and starts", 0, total)
        record = replace(record, idle_power_w=device.idle_power_w(), transfers=tuple(device.transfers()),
                         dispatch_s=device.dispatch_s())
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
