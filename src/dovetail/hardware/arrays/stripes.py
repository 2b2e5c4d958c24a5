"""Maps too large for the chip: which of them lie in external memory, and the stripes of rows in which layers work.

With `Config.map_bytes` no memory of maps is larger than that, except for what cannot be divided. A map that is larger lies in
external memory, row by row; layers that read, add or write it work on a stripe of rows at a time, of which two fit into the
memories that maps pass through. So does a convolution with a depthwise layer behind it whose ring would be too large. Rows that a
window reads twice are computed or loaded twice.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace

from dovetail.hardware.arrays.jobs import RING_BLOCKS, Outside
from dovetail.hardware.arrays.layers import ArrayLayer, ArrayLayers, Config, Map

SLOTS = 2
"""Stripes that a memory holds: the one at work and the one that is loaded or leaves."""


@dataclass(frozen=True, slots=True)
class Stripe:
    """Some rows of a round: its layers as if their maps had no others, the first row read, and the first that each writes."""

    parts: tuple[ArrayLayer, ...]
    read_row: int
    write_rows: tuple[int, ...]

    @property
    def write_row(self) -> int:
        """The first row of what leaves the round."""
        return self.write_rows[-1]


def beats_per_word(config: Config) -> int:
    """Beats of a word of a map in external memory."""
    return -(-config.word_bits // (8 * config.port_bytes))


def words_per_beat(config: Config) -> int:
    """Words of a map in a beat of external memory."""
    return max(1, 8 * config.port_bytes // config.word_bits)


def row_words(config: Config, shape: Map) -> int:
    return shape.width * config.words(shape.channels)


def row_beats(config: Config, shape: Map) -> int:
    """Beats of a row, of which the last is filled up."""
    return -(-row_words(config, shape) // words_per_beat(config)) * beats_per_word(config)


def outside_maps(layers: ArrayLayers, config: Config, groups: Sequence[tuple[int, ...]]) -> dict[str, Outside]:
    """The maps that lie in external memory, one behind the other."""
    found: dict[str, Outside] = {}
    beats = 0
    inside = {layers.entry, layers.exit, *(layers.layers[g[0]].target for g in groups if len(g) == 2)}
    for layer in layers.layers:
        tensor = layer.target
        if not config.map_bytes or tensor in inside or row_words(config, layer.writes) * layer.writes.height <= _most(config):
            continue
        users = [g for g in groups if any(tensor in (x.source, x.residual, x.target) for x in (layers.layers[n] for n in g))]
        if all(_divisible(layers.layers[n]) for g in users for n in g):
            found[tensor] = Outside(beats, row_beats(config, layer.writes))
            beats += row_beats(config, layer.writes) * layer.writes.height
    return found


def _most(config: Config) -> int:
    """Words that a memory of maps may have."""
    return 8 * config.map_bytes // config.word_bits


def _divisible(layer: ArrayLayer) -> bool:
    """Whether rows of its output need only some rows of its input, of which none is padding alone."""
    (high, _), (top, _, bottom, _) = layer.window.kernel, layer.window.pads
    reach = (high - 1) * layer.window.dilation[0] + 1
    return not layer.whole and layer.writes.height > 1 and top < reach and bottom < reach


def stripes_of(layers: ArrayLayers, config: Config, group: tuple[int, ...], outside: dict[str, Outside]) -> tuple[Stripe, ...]:
    """The stripes of a round, from top to bottom; one of all rows where nothing is too large."""
    parts = [layers.layers[n] for n in group]
    rows = _rows_at_once(config, parts, outside)
    if rows is None:
        return (Stripe(tuple(parts), 0, (0,) * len(parts)),)
    return tuple(_stripe(parts, start, stop) for start, stop in _pieces(parts[-1].writes.height, rows))


def passes_of(layers: ArrayLayers, config: Config, group: tuple[int, ...],
              outside: dict[str, Outside]) -> tuple[int, list[tuple[int, int]]] | None:
    """How many stripes `stripes_of` makes of a round, and the rows that each of its layers reads and writes in all of them.

    No stripe is made; None where all rows are worked on at once.
    """
    parts = [layers.layers[n] for n in group]
    rows = _rows_at_once(config, parts, outside)
    if rows is None:
        return None
    pieces, found = _pieces(parts[-1].writes.height, rows), list[tuple[int, int]]()
    count = len(pieces)
    for layer in reversed(parts):
        under = [_inside(layer, start, stop) for start, stop in pieces]
        found.insert(0, (_total(under), _total(pieces)))
        pieces = under
    return count, found


def _rows_at_once(config: Config, parts: Sequence[ArrayLayer], outside: dict[str, Outside]) -> int | None:
    """Output rows of a round's stripes, the last of which may have fewer; None where it has all at once."""
    height = parts[-1].writes.height
    if not config.map_bytes or not all(map(_divisible, parts)):
        return None
    leaves = any(t in outside for p in parts for t in (p.source, p.residual, p.target))
    if not leaves and _needed(config, parts, outside, height) <= _most(config):
        return None
    fitting = bisect_right(range(1, height + 1), _most(config), key=lambda r: _needed(config, parts, outside, r))
    rows = max(1, fitting)  # more rows need no fewer words
    return -(-height // -(-height // rows))


def _pieces(height: int, rows: int) -> list[tuple[int, int]]:
    return [(start, min(start + rows, height)) for start in range(0, height, rows)]


def _total(pieces: Sequence[tuple[int, int]]) -> int:
    return sum(stop - start for start, stop in pieces)


def _needed(config: Config, parts: Sequence[ArrayLayer], outside: dict[str, Outside], rows: int) -> int:
    """Words of the largest memory that stripes of so many rows pass through."""
    first, last = parts[0], parts[-1]
    sizes = [0]
    if last.target in outside or last.residual in outside:
        sizes.append(SLOTS * rows * row_words(config, last.writes))
    middle = rows
    if len(parts) == 2:
        middle = _reach(last, rows)
        blocks = min(RING_BLOCKS, -(-config.words(first.writes.channels) // config.block_words))
        sizes.append(middle * first.writes.width * config.block_words * blocks)
    if first.source in outside:
        sizes.append(SLOTS * _reach(first, middle) * row_words(config, first.reads))
    return max(sizes)


def _reach(layer: ArrayLayer, rows: int) -> int:
    """Input rows of so many output rows, at the most."""
    window = layer.window
    return min(layer.reads.height, (rows - 1) * window.stride[0] + (window.kernel[0] - 1) * window.dilation[0] + 1)


def rows_read(layer: ArrayLayer) -> int:
    """Input rows of all output rows."""
    first, last = _inside(layer, 0, layer.writes.height)
    return last - first


def _stripe(parts: Sequence[ArrayLayer], start: int, stop: int) -> Stripe:
    made: list[ArrayLayer] = []
    written: list[int] = []
    first, last = start, stop
    for layer in reversed(parts):
        written.insert(0, first)
        part, first, last = _rows(layer, first, last)
        made.insert(0, part)
    return Stripe(tuple(made), first, tuple(written))


def _rows(layer: ArrayLayer, start: int, stop: int) -> tuple[ArrayLayer, int, int]:
    """A layer reduced to output rows [start, stop), and the input rows that it then reads."""
    _, left, _, right = layer.window.pads
    (above, below), (first, last) = _under(layer, start, stop), _inside(layer, start, stop)
    reduced = replace(layer.window, pads=(first - above, left, below - last, right))
    return replace(layer, window=reduced, reads=replace(layer.reads, height=last - first),
                   writes=replace(layer.writes, height=stop - start)), first, last


def _under(layer: ArrayLayer, start: int, stop: int) -> tuple[int, int]:
    """The rows [first, last) that windows of output rows [start, stop) cover, padding among them."""
    window = layer.window
    above = start * window.stride[0] - window.pads[0]
    return above, above + (stop - 1 - start) * window.stride[0] + (window.kernel[0] - 1) * window.dilation[0] + 1


def _inside(layer: ArrayLayer, start: int, stop: int) -> tuple[int, int]:
    """The input rows among them."""
    above, below = _under(layer, start, stop)
    return max(0, above), min(layer.reads.height, below)
