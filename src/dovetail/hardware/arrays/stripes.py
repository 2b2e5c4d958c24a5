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


@dataclass(frozen=True, slots=True)
class Round:
    """Layers that overlap, and which rows each reads and writes in every stripe, from top to bottom."""

    parts: tuple[ArrayLayer, ...]
    reads: tuple[list[tuple[int, int]], ...]
    writes: tuple[list[tuple[int, int]], ...]
    divided: bool
    """Whether it works on stripes; else on all rows at once."""

    @property
    def count(self) -> int:
        """How many stripes there are."""
        return len(self.writes[-1])

    def totals(self) -> list[tuple[int, int]]:
        """The rows that each of the layers reads and writes in all stripes."""
        return [(sum(map(_height, own)), sum(map(_height, out))) for own, out in zip(self.reads, self.writes, strict=True)]

    def stripes(self) -> tuple[Stripe, ...]:
        """Its stripes."""
        if not self.divided:
            return (Stripe(self.parts, 0, (0,) * len(self.parts)),)
        return tuple(Stripe(tuple(_rows(layer, *rows) for layer, rows in zip(self.parts, written, strict=True)), read[0][0],
                            tuple(start for start, _ in written))
                     for read, written in zip(zip(*self.reads, strict=True), zip(*self.writes, strict=True), strict=True))


def round_of(layers: ArrayLayers, config: Config, group: tuple[int, ...], outside: dict[str, Outside]) -> Round:
    """How the layers of a group, by number, work together."""
    parts = tuple(layers.layers[n] for n in group)
    rows = _rows_at_once(config, parts, outside)
    if rows is None:
        return Round(parts, tuple([(0, p.reads.height)] for p in parts), tuple([(0, p.writes.height)] for p in parts), False)
    height, reads, writes = parts[-1].writes.height, list[list[tuple[int, int]]](), list[list[tuple[int, int]]]()
    pieces = [(start, min(start + rows, height)) for start in range(0, height, rows)]
    for layer in reversed(parts):
        writes.insert(0, pieces)
        pieces = [_inside(layer, start, stop) for start, stop in pieces]
        reads.insert(0, pieces)
    return Round(parts, tuple(reads), tuple(writes), True)


def _height(rows: tuple[int, int]) -> int:
    return rows[1] - rows[0]


def tallest(pieces: Sequence[tuple[int, int]]) -> int:
    """The most rows of a stripe."""
    return max(map(_height, pieces))


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


def _rows(layer: ArrayLayer, start: int, stop: int) -> ArrayLayer:
    """A layer reduced to output rows [start, stop)."""
    _, left, _, right = layer.window.pads
    (above, below), (first, last) = _under(layer, start, stop), _inside(layer, start, stop)
    reduced = replace(layer.window, pads=(first - above, left, below - last, right))
    return replace(layer, window=reduced, reads=replace(layer.reads, height=last - first),
                   writes=replace(layer.writes, height=stop - start))


def _under(layer: ArrayLayer, start: int, stop: int) -> tuple[int, int]:
    """The rows [first, last) that windows of output rows [start, stop) cover, padding among them."""
    window = layer.window
    above = start * window.stride[0] - window.pads[0]
    return above, above + (stop - 1 - start) * window.stride[0] + (window.kernel[0] - 1) * window.dilation[0] + 1


def _inside(layer: ArrayLayer, start: int, stop: int) -> tuple[int, int]:
    """The input rows among them."""
    above, below = _under(layer, start, stop)
    return max(0, above), min(layer.reads.height, below)
