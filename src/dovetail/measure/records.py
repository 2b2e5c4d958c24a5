"""Measurements as they come: a JSON file that grows layer by layer, so that an interrupted run goes on where it ended."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from dovetail.errors import UsageError
from dovetail.files import replace_text
from dovetail.measure.layers import MeasuredLayer

SCHEMA = "dovetail measurements 1"


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
    `date` (of its beginning, ISO) and `command` say where it comes from; older records have neither.
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
            str(document.get("date", "")), str(document.get("command", "")))
    except OSError as problem:
        raise UsageError(f"{path}: not readable, {problem.strerror}; give a file of measurements") from None
    except (ValueError, KeyError, TypeError) as problem:
        raise UsageError(f"{path}: not a file of measurements, {type(problem).__name__} {problem}; measure again") from None


def _layer(entry: Mapping[str, Any]) -> MeasuredLayer:
    return MeasuredLayer(**{k: v for k, v in entry.items() if k not in ("seconds", "energy_j", "rounds")})


def _timing(entry: Mapping[str, Any]) -> Timing:
    energy = entry["energy_j"]
    return Timing(float(entry["seconds"]), None if energy is None else float(energy), int(entry.get("rounds", 1)))
