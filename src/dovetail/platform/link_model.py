"""Measured transfers over a link: time against size in each direction, as a readable file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import lru_cache

import numpy as np

from dovetail.platform.quantity import Errors, Floats, Form, read_errors
from dovetail.platform.schema import Limits, TomlTable, shipped


@dataclass(frozen=True, slots=True)
class Transfer:
    """Seconds of a transfer in one direction.

    Posynomial: line_start_s + size * line_s_per_byte. Evaluation: max(floor_s, start_s + size * s_per_byte); small
    transfers all take the floor.
    """

    line_start_s: float
    line_s_per_byte: float
    floor_s: float
    start_s: float
    s_per_byte: float

    def seconds(self, size_bytes: Floats, form: Form) -> Floats:
        """Time of each transfer."""
        if form is Form.POSYNOMIAL:
            return self.line_start_s + size_bytes * self.line_s_per_byte
        return np.maximum(self.floor_s, self.start_s + size_bytes * self.s_per_byte)


@dataclass(frozen=True, slots=True)
class LinkModel:
    """Transfer times per direction (the rows do not say which is which) with their cross-validated errors.

    `left_out` holds, per form and direction, what fits without a row's fold predict at the measured `sizes_bytes`.
    """

    name: str
    device: str
    source: str
    rows: int
    box_bytes: tuple[float, float]
    directions: Mapping[str, Transfer]
    errors: Mapping[Form, Errors]
    sizes_bytes: Floats
    left_out: Mapping[Form, Mapping[str, Floats]]

    def left_out_seconds(self, direction: str, size_bytes: Floats, form: Form) -> Floats:
        """Times as if the fit had seen none of these transfers; sizes that were measured are predicted without their fold."""
        at = np.clip(np.searchsorted(self.sizes_bytes, size_bytes), 0, len(self.sizes_bytes) - 1)
        known = self.sizes_bytes[at] == size_bytes
        return np.where(known, self.left_out[form][direction][at], self.directions[direction].seconds(size_bytes, form))


@lru_cache(maxsize=4)
def link_model(name: str) -> LinkModel:
    """A shipped link model by name."""
    return parse_link_model(shipped("models/links", name))


def parse_link_model(table: TomlTable) -> LinkModel:
    """A checked link model from the entries of its file."""
    forms = tuple(form.value for form in Form)
    table.check_keys(("version", "name", "device", "source", "rows", "sizes_bytes", "direction", *forms))
    table.check_version()
    sizes, keys = np.array(table.values["sizes_bytes"], dtype=np.float64), [f.name for f in fields(Transfer)]
    found: dict[str, Transfer] = {}
    left_out: dict[Form, dict[str, Floats]] = {form: {} for form in Form}
    for entry in table.tables("direction"):
        entry.check_keys(("name", *keys, *(f"left_out_{form}_s" for form in Form)))
        for form in Form:
            left_out[form][entry.text("name")] = np.array(entry.values[f"left_out_{form}_s"], dtype=np.float64)
        found[entry.text("name")] = Transfer(*(entry.plain_number(k, Limits(0.0, 1.0, "s")) for k in keys))
    return LinkModel(table.text("name"), table.text("device"), table.text("source"),
                     int(table.plain_number("rows", Limits(1, 1e9, "rows"))), (float(sizes[0]), float(sizes[-1])), found,
                     {form: read_errors(table.table(form.value)) for form in Form}, sizes, left_out)
