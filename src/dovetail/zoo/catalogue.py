"""From a name and a few numbers to an ONNX file, or to its counts without the weights."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from math import isfinite

from dovetail.errors import UsageError
from dovetail.ir.onnx.builder import OnnxBuilder
from dovetail.words import counted
from dovetail.zoo.network import Net
from dovetail.zoo.table import TABLE, ZooEntry

GREATEST_SIZE = 4096
"""Pixels a side; above it one map alone would fill a machine."""
GREATEST_WIDTH = 8.0


@dataclass(frozen=True, slots=True)
class Count:
    """Trainable parameters, and multiply-accumulates for one image."""

    parameters: int
    macs: int


def names() -> tuple[str, ...]:
    """Every network, in the order of the table."""
    return tuple(TABLE)


def entry(name: str) -> ZooEntry:
    """The table's row of a network; case, and `_` for `-`, do not matter."""
    key = name.strip().lower().replace("_", "-")
    if key not in TABLE:
        close = get_close_matches(key, TABLE, n=1)
        hint = f"did you mean {close[0]}? " if close else ""
        raise UsageError(f"zoo: no network is called {name!r}; {hint}known are {', '.join(TABLE)}")
    return TABLE[key]


def build(name: str, *, size: int | None = None, width: float | None = None, batch_norm: bool = True, classes: int = 1000,
          seed: int = 0) -> bytes:
    """The network as a serialized ONNX model: opset 17, IR 8, float32 weights inside.

    `size` is the image's side in pixels, `width` multiplies every channel count, each the network's own by
    default. Without `batch_norm` the convolutions that had it carry a bias instead. The same arguments give
    the same bytes.
    """
    if seed < 0:
        raise UsageError(f"zoo: seed {seed} is negative; give 0 or more")
    builder, output = _written(name, size, width, batch_norm, classes)
    return builder.serialize([output], seed)


def count(name: str, *, size: int | None = None, width: float | None = None, batch_norm: bool = True,
          classes: int = 1000) -> Count:
    """What `build` would give, counted from its nodes and shapes; no weight is drawn."""
    builder, _ = _written(name, size, width, batch_norm, classes)
    return Count(builder.parameters(), builder.macs())


def _written(name: str, size: int | None, width: float | None, batch_norm: bool, classes: int) -> tuple[OnnxBuilder, str]:
    row = entry(name)
    size = row.size if size is None else size
    width = row.width if width is None else width
    _check(row, size, width, classes)
    builder = OnnxBuilder(row.name, row.free_batch)
    return builder, row.write(Net(builder, size, width, batch_norm), classes)


def _check(row: ZooEntry, size: int, width: float, classes: int) -> None:
    if not row.least_size <= size <= GREATEST_SIZE:
        raise UsageError(f"zoo: {row.name} at size {size}; allowed are {row.least_size} to {GREATEST_SIZE} pixels, "
                         f"{row.size} is its own")
    if row.widths is not None and width not in row.widths:
        raise UsageError(f"zoo: {row.name} at width {width:g}; it exists at {', '.join(f'{w:g}' for w in row.widths)}")
    if not (isfinite(width) and 0.0 < width <= GREATEST_WIDTH):
        raise UsageError(f"zoo: {row.name} at width {width:g}; allowed is above 0 and up to {GREATEST_WIDTH:g}")
    if classes < 1:
        raise UsageError(f"zoo: {row.name} with {counted(classes, 'class', 'classes')}; give 1 or more")
