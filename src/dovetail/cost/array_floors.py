"""What a block of reusable engines takes at the least, without its layer program: clocks and resources, for an optimiser.

Both are at most what `cost/array.py` says of the same block, whichever of its layers comes first. Clocks: where all before a
map leads to it and all behind needs it, and a depthwise layer does not follow it word by word nor does it pass in stripes, all
before is done before anything behind starts; so what lies between two such places adds up. Resources: without control, tables and
most maps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, reduce
from itertools import accumulate
from math import floor, prod
from operator import or_
from typing import NamedTuple

from dovetail.cost.array_area import Outline, array_pieces, outline_resources, widest_sums
from dovetail.hardware.arrays import jobs
from dovetail.hardware.arrays.jobs import ARRAY, DEPTHWISE, Outside
from dovetail.hardware.arrays.layers import ArrayLayer, ArrayLayers, Config, Map
from dovetail.hardware.arrays.popcount import counted_sums
from dovetail.hardware.arrays.program import rounds_of
from dovetail.hardware.arrays.stripes import outside_maps, round_of, rows_read
from dovetail.ir.operators.pointwise import TABLE_ENTRIES


@dataclass(frozen=True, slots=True)
class _Work:
    """A layer's jobs: clocks in which either array issues work, and beats of weights."""

    array: int
    depthwise: int
    beats: int
    waiting: int
    """Beats that have no room before the layer begins."""
    edge: int
    """Clocks of the first filter block; of a depthwise layer those of its words in the last filter block in front of it."""


def barriers(layers: ArrayLayers) -> list[str | None]:
    """In front of every layer the map that all before it lead to and all from it on need; None where there is none."""
    made, needs = {layer.target: i for i, layer in enumerate(layers.layers)}, list[int]()
    for layer in layers.layers:
        sources = [made[t] for t in (layer.source, layer.residual) if t in made]
        needs.append(reduce(or_, (1 << p | needs[p] for p in sources), 0))
    found: list[str | None] = [layers.entry]
    for index in range(1, len(needs)):
        last = 1 << (index - 1)
        leads = needs[index - 1] | last == 2 * last - 1
        found.append(layers.layers[index - 1].target if leads and all(n & last for n in needs[index:]) else None)
    return found


class Floors(NamedTuple):
    """By the layer that a block begins with, clocks at the least: between frames, of one frame, and of it once it is loaded."""

    between: list[float]
    alone: list[float]
    after: list[float]


def least_clocks(layers: ArrayLayers, configs: Sequence[Config]) -> list[Floors]:
    """Clocks of a block at the least, for every configuration; those that have them in common are looked at once."""
    kin = [replace(c, packed=False, soft=0, input_buffers=2) for c in configs]  # clocks depend on none of these
    found = _floors_of_all(layers.layers, (layers.entry, layers.exit), frozenset(layers.maps.items()), frozenset(kin))
    return [found[config] for config in kin]


@lru_cache(maxsize=16)
def _floors_of_all(every: tuple[ArrayLayer, ...], ends: tuple[str, str], maps: frozenset[tuple[str, Map]],
                   configs: frozenset[Config]) -> dict[Config, Floors]:
    """Those of every configuration. Remembered, as whoever chooses arrays and whoever bounds them ask the same."""
    layers = ArrayLayers(every, *ends, dict(maps))
    between, works = barriers(layers), dict[Config, list[_Work]]()
    for config in configs:
        whole = replace(config, map_bytes=0)
        if whole not in works:
            works[whole] = [_work(layer, whole) for layer in layers.layers]
    return {config: _floors(layers, config, between, list(works[replace(config, map_bytes=0)])) for config in configs}


def _floors(layers: ArrayLayers, config: Config, between: Sequence[str | None], works: list[_Work]) -> Floors:
    """Those of one configuration; `between` are the block's `barriers`, `works` what its layers do where they are whole.

    One frame is loaded before anything starts and leaves when all is done.
    """
    groups = rounds_of(layers, config)
    outside = outside_maps(layers, config, groups) if config.map_bytes else {}
    striped, maps = _in_stripes(layers, config, groups, outside, works)
    followers = {group[1] for group in groups if len(group) == 2}
    rate = config.bandwidth_bytes / config.port_bytes
    found, alone, after = ([0.0] * len(works) for _ in range(3))
    behind, port, stop = 0.0, 0.0, len(works)
    last = layers.maps[layers.exit]
    leave = last.pixels * config.words(last.channels)
    for start in range(len(works) - 1, -1, -1):
        port += (works[start].beats + maps[start]) / rate
        for number, work in striped.get(start, ()):
            port += (work.beats - works[number].beats) / rate
            works[number] = work
        follows, moved = start + 1 in followers, sum(maps[start:stop]) - jobs.fifo_depth(config)
        own = max(_together(works[start:stop], config, follows), (_waiting(works[start:stop], follows) + moved) / rate)
        entry = layers.layers[start].reads
        load = entry.pixels * config.words(entry.channels)
        found[start] = _whole(max(own + behind, port, load))
        alone[start] = _whole(max(load + own + behind, port)) + leave
        after[start] = _whole(own + behind) + leave
        if start not in followers and between[start] is not None and between[start] not in outside:
            behind, stop = own + behind, start
    return Floors(found, alone, after)


def _whole(clocks: float) -> float:
    """Whole clocks at the least: the port's beats come at a broken rate, and a price may be the smaller whole number."""
    return float(floor(clocks))


def _in_stripes(layers: ArrayLayers, config: Config, groups: Sequence[tuple[int, ...]], outside: dict[str, Outside],
                works: Sequence[_Work]) -> tuple[dict[int, list[tuple[int, _Work]]], list[int]]:
    """What layers do in stripes, with their numbers, and by layer the beats of the map it writes.

    Layers are listed under the last layer that a block may begin with: then all their maps in external memory are its own. That a
    block begins with a map keeps it on the chip, and those who read it may have fewer stripes.
    """
    made, found = {layer.target: i for i, layer in enumerate(layers.layers)}, dict[int, list[tuple[int, _Work]]]()
    rows = [rows_read(layer) for layer in layers.layers] if outside else []
    for group in groups if config.map_bytes else ():
        together = round_of(layers, config, group, outside)
        if not together.divided:
            continue
        moved, parts = together.totals(), together.parts
        entering = [made[t] for x in parts for t in (x.source, x.residual) if t is not None and t in outside]
        for number, part, (reads, writes) in zip(group, parts, moved, strict=True):
            found.setdefault(min([group[0], *entering]), []).append(
                (number, _repeated(works[number], part, config, together.count, reads, writes)))
        if len(entering) == 1 and parts[0].source in outside:
            rows[group[0]] = moved[0][0]
    return found, _map_beats(layers, outside, rows)


def _repeated(work: _Work, layer: ArrayLayer, config: Config, stripes: int, reads: int, writes: int) -> _Work:
    """The same in stripes, which read and write so many rows: every stripe needs all weights."""
    words, phases = config.words(layer.writes.channels), 1 if layer.whole else config.phases(layer.window)
    clocks = reads * layer.reads.width + (phases - 1) * writes * layer.writes.width
    return replace(work, array=work.array * writes // layer.writes.height, depthwise=words * clocks if work.depthwise else 0,
                   beats=work.beats * stripes)


def _together(works: Sequence[_Work], config: Config, follows: bool) -> float:
    """Clocks of layers of which nothing is known but that each array does its own one after the other."""
    array, depthwise = sum(w.array for w in works), sum(w.depthwise for w in works)
    if config.monolithic:
        return float(array + depthwise)
    if follows and len(works) == 2 and not config.map_bytes:  # stripes begin and end with less than a whole map
        return float(max(array + works[1].edge, works[0].edge + depthwise))
    return float(max(array, depthwise))


def _waiting(works: Sequence[_Work], follows: bool) -> int:
    """Beats that only fit once some of these layers' jobs are done: of several layers at least those of one."""
    return sum(w.waiting for w in works) if follows and len(works) == 2 else max(w.waiting for w in works)


def _work(layer: ArrayLayer, config: Config) -> _Work:
    words, per = config.words(layer.writes.channels), config.block_words
    if layer.filtered(config):
        constants = jobs.constant_beats_per_word(config, DEPTHWISE)
        phases = 1 if layer.whole else config.phases(layer.window)
        clocks = layer.reads.pixels + (phases - 1) * layer.writes.pixels
        beats = phases * -(-config.inputs * config.taps // config.port_bytes) + constants
        waiting = max(0, words - jobs.DEPTHWISE_SLOTS) * beats
        return _Work(0, words * clocks, words * beats, waiting, clocks * ((words - 1) % per + 1))
    constants = layer.turns(config) * layer.rounds(config) * jobs.constant_beats_per_word(config, ARRAY)
    sizes = [per] * (words // per) + [words % per] * (words % per > 0)
    known = {size: _job(layer, config, 0, size) for size in set(sizes)} if layer.groups == 1 else {}
    blocks = [known.get(size) or _job(layer, config, number * per, size) for number, size in enumerate(sizes)]
    each = [b + size * constants for (_, b), size in zip(blocks, sizes, strict=True)]
    return _Work(sum(c for c, _ in blocks), 0, sum(each), sum(each[jobs.ARRAY_SLOTS:]), blocks[0][0])


def _job(layer: ArrayLayer, config: Config, first: int, words: int) -> tuple[int, int]:
    """Clocks and beats of weights of a filter block."""
    steps = jobs.read_range(layer, config, first, words)[1] * prod(layer.window.kernel)
    turns = layer.turns(config)
    return layer.writes.pixels * turns * layer.rounds(config) * max(steps, words), steps * turns * jobs.row_beats(config, words)


def _map_beats(layers: ArrayLayers, outside: Mapping[str, Outside], rows: Sequence[int]) -> list[int]:
    """By layer that writes it, beats in which a map leaves the chip and returns to those that read it, each so many rows."""
    found = [0] * len(layers.layers)
    for number, layer in enumerate(layers.layers if outside else ()):
        if layer.target in outside:
            moved = layer.writes.height + sum(x.writes.height for x in layers.layers if layer.target == x.residual)
            moved += sum(count for x, count in zip(layers.layers, rows, strict=True) if layer.target == x.source)
            found[number] = moved * outside[layer.target].row_beats
    return found


@dataclass(frozen=True, slots=True)
class BlockNeeds:
    """What layers need of a block, without memories of maps: the most that any of them does."""

    config: Config
    layers: tuple[ArrayLayer, ...] = ()
    depth: int = 0
    phases: int = 0
    sums: tuple[int, int] = (0, 0)
    tables: tuple[frozenset[str], frozenset[str]] = (frozenset(), frozenset())

    def before(self, layer: ArrayLayer) -> BlockNeeds:
        """With a layer in front of them."""
        config, filtered = self.config, layer.filtered(self.config)
        depth = 0 if filtered else jobs.read_range(layer, config, 0, 1)[1] * prod(layer.window.kernel) * layer.turns(config)
        phases = (1 if layer.whole else config.phases(layer.window)) if filtered else 0
        array, depthwise = widest_sums(config, [(layer, DEPTHWISE if filtered else ARRAY)])
        tables = list(self.tables)
        if layer.table is not None:
            tables[filtered] |= {layer.table}
        return BlockNeeds(config, (layer, *self.layers), max(self.depth, depth), max(self.phases, phases),
                          (max(self.sums[0], array), max(self.sums[1], depthwise)), (tables[0], tables[1]))

    def resources(self, model_name: str, banks: Sequence[tuple[int, int]] | None = None) -> dict[str, float]:
        """Resources at the least, by the names boards use.

        `banks` are the words and widths of memories of maps; without them only that of the first map is counted.
        """
        config, entry = self.config, self.layers[0].reads
        if banks is None:
            width = min(config.inputs, entry.channels) * config.value_bits
            banks = [(entry.pixels * config.words(entry.channels) * config.input_buffers, width)]
        memories = [(1, words, width) for words, width in banks if words]
        if self.depth:
            memories.append((array_pieces(config), jobs.ARRAY_SLOTS * self.depth, config.port_bytes * 8))
        # One table by itself may lie in look-up tables.
        memories += [(config.inputs, TABLE_ENTRIES * len(tables), 8) for tables in self.tables if len(tables) > 1]
        outline = Outline(config, self.depth, self.phases, self.sums, any(x.add is not None for x in self.layers), False,
                          tuple(memories), counted_sums(config, self.layers) if config.counts else None,
                          any(x.gated for x in self.layers))
        return dict(outline_resources(outline, model_name))


def needs_behind(layers: Sequence[ArrayLayer], config: Config) -> list[BlockNeeds]:
    """What blocks need that begin with each of these layers and end with the last."""
    return list(accumulate(reversed(layers), BlockNeeds.before, initial=BlockNeeds(config)))[:0:-1]


def least_resources(layers: Sequence[ArrayLayer], config: Config, model_name: str,
                    banks: Sequence[tuple[int, int]] | None = None) -> dict[str, float]:
    """Resources of a block of these layers, at the least, by the names boards use."""
    return needs_behind(layers, config)[0].resources(model_name, banks)
