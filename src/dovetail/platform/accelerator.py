"""The accelerator that an FPGA is to become: which layers have engines of their own, and which share arrays.

It stands in the platform of a plan, as a pace does, so that costs, budgets and hardware generation all speak of one machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from dovetail.document import NATURAL, Anything, Each, FieldPath, Maybe, OneOf, Whole, check
from dovetail.errors import BuildError, PlatformError


class Architecture(StrEnum):
    """Kinds of accelerators for whole networks, named as in Compact DNNs 2024."""

    FIBHA = "fibha"
    """Dedicated engines for the first layers, reusable ones for the rest."""
    SESL = "sesl"
    """One engine for every layer."""
    SEML = "seml"
    """One array for convolutions and one for depthwise layers, layer after layer."""
    MONOLITHIC = "monolithic"
    """One array for everything."""
    DHM = "dhm"
    """One engine for every layer, every multiplier in logic of its own."""
    AUTO = "auto"
    """Whichever is best."""


@dataclass(frozen=True, slots=True)
class AcceleratorDesign:
    """A network's engines: `dedicated` layers with their folds' sizes (None: mapped directly), `reusable` nodes on `arrays`.

    `arrays` are the numbers of a configuration of reusable engines (hardware/arrays/layers.Config); `pace_clocks` is what the
    slowest dedicated engine takes per frame.
    """

    architecture: Architecture
    dedicated: Mapping[str, tuple[int, ...] | None]
    reusable: tuple[str, ...] = ()
    arrays: Mapping[str, float] = field(default_factory=dict)
    pace_clocks: int = 1
    fused: tuple[str, ...] = ()
    """Depthwise layers whose inverted residuals are one engine."""

    def has(self, node: str) -> bool:
        return node in self.dedicated or node in self.reusable


FOLD = (Whole(1, 1 << 24),) * 3
"""Sizes of a fold: groups, inputs and outputs at once."""
PRODUCTS = Whole(0, 2)
"""What may follow them: products of a multiplier block, 0 where they are made of logic."""
ENTRIES = {"architecture": OneOf(tuple(a.value for a in Architecture)), "dedicated": Each(Maybe([NATURAL])), "reusable": [str],
           "arrays": Each(float), "pace_clocks": Whole(1, 1 << 50), "fused?": [str]}
"""An accelerator as a plan writes it."""
ARRAYS = ("inputs", "outputs", "taps", "kernel", "monolithic", "overlap", "port_bytes", "bandwidth_bytes", "latency_clocks",
          "input_buffers")
"""Sizes that every configuration of arrays has."""
RATE = "bandwidth_bytes"
"""The one of them that may be broken."""


def to_entries(accelerator: AcceleratorDesign) -> dict[str, Any]:
    """As JSON values."""
    return {"architecture": accelerator.architecture.value,
            "dedicated": {name: None if fold is None else list(fold) for name, fold in accelerator.dedicated.items()},
            "reusable": list(accelerator.reusable), "arrays": dict(accelerator.arrays), "pace_clocks": accelerator.pace_clocks,
            "fused": list(accelerator.fused)}


def check_folds(folds: Mapping[str, Any], place: FieldPath) -> None:
    """Refuse lists of numbers that are no fold; null stands for a layer without one."""
    for name, fold in folds.items():
        check(fold, Maybe(FOLD if len(fold or ()) <= len(FOLD) else (*FOLD, PRODUCTS)), place.below(name))


def from_entries(entries: Any, where: str) -> AcceleratorDesign:
    """What `to_entries` wrote; anything else is refused."""
    try:
        place = FieldPath(where, "leave it out of board files, `dovetail compile --architecture` chooses it", "accelerator")
        check(entries, ENTRIES, place)
        check_folds(entries["dedicated"], place.below("dedicated"))
        if entries["reusable"]:
            check(entries["arrays"], dict.fromkeys(ARRAYS, Anything()), place.below("arrays"))
        whole = {name: size for name, size in entries["arrays"].items() if name != RATE}
        check(whole, Each(Whole(0, 1 << 40)), place.below("arrays"))
    except BuildError as problem:
        raise PlatformError(str(problem)) from None
    folds = {name: None if fold is None else tuple(fold) for name, fold in entries["dedicated"].items()}
    return AcceleratorDesign(Architecture(entries["architecture"]), folds, tuple(entries["reusable"]), dict(entries["arrays"]),
                             entries["pace_clocks"], tuple(entries.get("fused", ())))
