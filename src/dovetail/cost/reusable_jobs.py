"""The layer program of a block of reusable engines: where maps lie, and which job waits for which.

A job is a filter block (array) or a word of channels (depthwise array) over all pixels of a map. Each engine does its jobs in
order; a job starts when as many jobs of either engine as it `needs` have written everything. Jobs of different engines overlap
unless one reads what the other writes, or both would use one port of one memory.

Memories: the input buffer, three for maps inside (0 what is kept for additions, 1 what depthwise layers read, 2 what they
write, as far as additions allow), the output buffer. Each has one read port and one write port.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod

from dovetail.cost.reusable_layers import Config, Layer, Layers
from dovetail.errors import UnsupportedError

ARRAY, DEPTHWISE = 0, 1
INPUT, KEPT, EXPANDED, FILTERED, OUTPUT = range(5)
BANKS = ("input", "kept", "expanded", "filtered", "output")
CONSTANT_BYTES = 8
"""Bytes of a filter's bias and multiplier, four each."""
LAYER_BYTES = 8
"""Bytes beside the constants of a word: bounds and scales of the layer."""
RING_BLOCKS = 2
"""Filter blocks of a map between a convolution and the depthwise layer that follows at once."""
BURST_BEATS = 32
"""Beats that are asked of the memory at once."""
ARRAY_SLOTS = 2
"""Filter blocks whose weights are kept: the one at work and the one that is loaded."""
DEPTHWISE_SLOTS = 8
"""Words of channels whose depthwise weights are kept."""


@dataclass(frozen=True, slots=True)
class Place:
    """Words of a map in a bank: word `base` belongs to the first pixel, `stride` words further is the next one's."""

    bank: int
    base: int
    stride: int


@dataclass(frozen=True, slots=True)
class Job:
    """A filter block or a word of channels over all pixels of a layer."""

    layer: int
    engine: int
    first: int
    """The first output word it fills."""
    words: int
    """Output words per pixel."""
    read_first: int
    read_words: int
    """Input words that it reads of a pixel."""
    steps: int
    """Clocks in which the array works on a pixel, or phases of a depthwise output."""
    clocks: int
    """Clocks in which it issues work."""
    tail: int
    """Clocks of issuing from its last read on, until its last output is complete."""
    weight_beats: int
    constant_beats: int
    read: Place
    write: Place
    residual: Place | None
    needs: tuple[int, int]
    needs_input: bool
    needs_output: bool
    releases_input: bool
    finishes: bool

    @property
    def beats(self) -> int:
        return self.weight_beats + self.constant_beats


@dataclass(frozen=True, slots=True)
class Program:
    """Jobs in the order in which their weights arrive, and the words every bank needs."""

    config: Config
    layers: Layers
    jobs: tuple[Job, ...]
    depths: tuple[int, ...]
    """Words of every bank; 0 where it does not exist. The input bank holds `Config.input_buffers` frames."""

    @property
    def widths(self) -> tuple[int, ...]:
        """Bits of a word of every bank; an image of few channels is stored without the zeros that fill its words up."""
        word = self.config.inputs * 8
        entry = self.layers.maps[self.layers.entry].channels * 8
        return tuple(min(word, entry) if bank == INPUT else word for bank in range(len(BANKS)))

    @property
    def weight_depth(self) -> int:
        """Words of weights of the longest filter block."""
        return max((job.steps for job in self.jobs if job.engine == ARRAY), default=0)

    @property
    def phases(self) -> int:
        """Words of weights of the longest depthwise job."""
        return max((job.steps for job in self.jobs if job.engine == DEPTHWISE), default=0)

    @property
    def line_width(self) -> int:
        """Pixels of the longest row that a window of the depthwise array reaches over."""
        return max((self.layers.layers[job.layer].reads.width for job in self.jobs
                    if job.engine == DEPTHWISE and not self.layers.layers[job.layer].whole), default=0)


@dataclass(frozen=True, slots=True)
class _Stored:
    """Where tensors lie: bank, first word, words of a pixel; for those in a ring also the words of a block's pixel."""

    bank: int
    base: int
    size: int
    pixel_words: int
    pixels: int
    ring: bool = False

    def place(self, config: Config, word: int) -> Place:
        if not self.ring:
            return Place(self.bank, self.base + word, self.pixel_words)
        block, inside = divmod(word, config.block_words)
        slot = block % RING_BLOCKS
        return Place(self.bank, self.base + slot * config.block_words * self.pixels + inside, config.block_words)


def program_of(layers: Layers, config: Config) -> Program:
    """The layer program of a block; raises UnsupportedError where additions leave no memory for a map."""
    for layer in layers.layers:
        if layer.largest and not layer.filtered(config):
            raise UnsupportedError(f"node {layer.node}: the largest of {layer.window}; windows of the depthwise array have at "
                                   f"most {config.kernel} rows and columns, enlarge them or leave the node out of the block")
    groups = _rounds(layers, config)
    stored, depths = _allocate(layers, config, groups)
    maker = _Jobs(config, layers, stored, constant_beats=constant_beats_per_word(config))
    for group in groups:
        maker.add(group)
    return Program(config, layers, tuple(maker.finished()), depths)


def _rounds(layers: Layers, config: Config) -> list[tuple[int, ...]]:
    """Layers by number, those that overlap together."""
    found: list[tuple[int, ...]] = []
    number, every = 0, layers.layers
    while number < len(every):
        pair = number + 1 < len(every) and config.overlap and _overlaps(layers, number, config)
        found.append((number, number + 1) if pair else (number,))
        number += 2 if pair else 1
    return found


def _overlaps(layers: Layers, number: int, config: Config) -> bool:
    """Whether a depthwise layer may follow a convolution block by block: it alone reads what the convolution writes."""
    first, second = layers.layers[number:number + 2]
    readers = sum((x.source == first.target) + (x.residual == first.target) for x in layers.layers)
    return (not first.filtered(config) and second.filtered(config) and second.source == first.target and readers == 1
            and first.target != layers.exit)


def _allocate(layers: Layers, config: Config, groups: Sequence[tuple[int, ...]]) -> tuple[dict[str, _Stored], tuple[int, ...]]:
    banks = _banks(layers, config)
    ring = {layers.layers[g[0]].target for g in groups if len(g) == 2}
    when = {number: at for at, group in enumerate(groups) for number in group}
    born, dies = {layers.entry: -1}, {layers.exit: len(groups)}
    for number, layer in enumerate(layers.layers):
        born[layer.target] = when[number]
        for tensor in (layer.source, layer.residual):
            if tensor is not None:
                dies[tensor] = max(dies.get(tensor, -1), when[number])
    stored: dict[str, _Stored] = {}
    depths = [0] * len(BANKS)
    for tensor in (layers.entry, *(x.target for x in layers.layers)):
        shape, bank = layers.maps[tensor], banks[tensor]
        words = config.words(shape.channels)
        size = shape.pixels * words
        if tensor in ring:
            size = shape.pixels * config.block_words * min(RING_BLOCKS, -(-words // config.block_words))
        alive = [(s.base, s.base + s.size) for t, s in stored.items() if s.bank == bank and dies.get(t, born[t]) >= born[tensor]]
        base = 0
        for start, stop in sorted(alive):
            if start - base >= size:
                break
            base = max(base, stop)
        stored[tensor] = _Stored(bank, base, size, words, shape.pixels, tensor in ring)
        depths[bank] = max(depths[bank], base + size)
    depths[INPUT] *= config.input_buffers
    return stored, tuple(depths)


def _banks(layers: Layers, config: Config) -> dict[str, int]:
    """A bank per tensor: what an addition reads must not lie where its convolution reads."""
    apart: dict[str, set[str]] = {}
    for layer in layers.layers:
        if layer.residual is not None:
            if layer.residual == layer.source:
                raise UnsupportedError(f"node {layer.add}: adds what {layer.node} reads; reusable engines read both at once and "
                                       "have one port for them, leave it out of the block")
            apart.setdefault(layer.residual, set()).add(layer.source)
            apart.setdefault(layer.source, set()).add(layer.residual)
    banks = {layers.entry: INPUT, layers.exit: OUTPUT}
    for layer in layers.layers:
        tensor = layer.target
        if tensor in banks:
            continue
        readers = [x for x in layers.layers if tensor in (x.source, x.residual)]
        first = FILTERED if layer.filtered(config) else EXPANDED if all(x.filtered(config) for x in readers) else KEPT
        taken = {banks[t] for t in apart.get(tensor, ()) if t in banks}
        free = [b for b in (first, KEPT, EXPANDED, FILTERED) if b not in taken]
        if not free:
            raise UnsupportedError(f"tensor {tensor}: additions keep it out of all three memories of reusable engines; "
                                   "end the block before it")
        banks[tensor] = free[0]
    return banks


@dataclass(slots=True)
class _Record:
    """What happened to a map, or to a block of a ring: jobs of each engine that wrote and read it, what writing waits for."""

    bank: int
    start: int
    stop: int
    waits: list[int]
    written: list[int] = field(default_factory=lambda: [0, 0])
    used: list[int] = field(default_factory=lambda: [0, 0])


@dataclass(slots=True)
class _Jobs:
    """Jobs as they are added, with what the hazards between them are found from; `needs` are counts of jobs done."""

    config: Config
    layers: Layers
    stored: Mapping[str, _Stored]
    jobs: list[Job] = field(default_factory=list)
    counts: list[int] = field(default_factory=lambda: [0, 0])
    records: dict[tuple[str, int], _Record] = field(default_factory=dict)
    read_ports: list[list[int]] = field(default_factory=lambda: [[0, 0] for _ in BANKS])
    write_ports: list[list[int]] = field(default_factory=lambda: [[0, 0] for _ in BANKS])
    """By bank: jobs of each engine that must be done before the other engine uses that port."""
    late_reads: list[int] = field(default_factory=lambda: [0] * len(BANKS))
    """By bank: jobs of the array that must be done before the array reads it as input, since additions read late."""

    constant_beats: int = 0
    filtering: int = -1
    """The layer whose rows are in the line buffers."""

    def add(self, group: tuple[int, ...]) -> None:
        """Append the jobs of a layer, or of two: then a block of channels is filtered behind the next one's convolution."""
        config, per = self.config, self.config.block_words
        first, last = self.layers.layers[group[0]], self.layers.layers[group[-1]]
        if len(group) == 1 and first.filtered(config):
            for plane in range(config.words(first.writes.channels)):
                self._depthwise(group[0], plane)
            return
        starts = list(range(0, config.words(first.writes.channels), per))
        for number, start in enumerate(starts):
            if len(group) == 1 or number == 0:
                self._array(group[0], start)
            if len(group) == 2:
                if number + 1 < len(starts):
                    self._array(group[0], starts[number + 1])
                for plane in range(start, min(start + per, config.words(last.writes.channels))):
                    self._depthwise(group[1], plane)

    def _array(self, number: int, first: int) -> None:
        layer, config = self.layers.layers[number], self.config
        words = min(config.block_words, config.words(layer.writes.channels) - first)
        start, count = read_range(layer, config, first, words)
        steps = count * prod(layer.window.kernel)
        row_beats = -(-words * config.inputs * config.inputs // config.port_bytes)
        clocks = layer.writes.pixels * max(steps, words)
        self._append(number, ARRAY, first, words, start, count, steps, clocks, 0, steps * row_beats)

    def _depthwise(self, number: int, plane: int) -> None:
        layer, config = self.layers.layers[number], self.config
        phases, tail = 1, 0
        if not layer.whole:
            phases = config.phases(layer.window)
            last = ((layer.writes.height - 1) * layer.window.stride[0] * layer.reads.width
                    + (layer.writes.width - 1) * layer.window.stride[1])
            tail = depthwise_lag(layer) + last + 1 - layer.reads.pixels
        clocks = layer.reads.pixels + (phases - 1) * layer.writes.pixels
        row_beats = -(-config.inputs * config.taps // config.port_bytes)
        self._append(number, DEPTHWISE, plane, 1, plane, 1, phases, clocks, tail, phases * row_beats)

    def _append(self, number: int, engine: int, first: int, words: int, read_first: int, read_words: int, steps: int, clocks: int,
                tail: int, weight_beats: int) -> None:
        layer, config, stored, entry = self.layers.layers[number], self.config, self.stored, self.layers.entry
        residual = None if layer.residual is None else stored[layer.residual].place(config, first)
        read, write = stored[layer.source].place(config, read_first), stored[layer.target].place(config, first)
        needs = self._needs(layer, number, engine, first, read_first)
        self.jobs.append(Job(number, engine, first, words, read_first, read_words, steps, clocks, tail, weight_beats,
                             words * self.constant_beats, read, write, residual, needs, entry in (layer.source, layer.residual),
                             layer.target == self.layers.exit, False, False))

    def _needs(self, layer: Layer, number: int, engine: int, first: int, read_first: int) -> tuple[int, int]:
        """How many jobs of each engine must be done before this one starts; and what later ones wait for because of it."""
        other = 1 - engine
        source, target = self._record(layer.source, read_first), self._record(layer.target, first)
        ports = [self.read_ports[source.bank], self.write_ports[target.bank]]
        needs = [max(target.waits[0], source.written[0]), max(target.waits[1], source.written[1])]
        late = None
        if layer.residual is not None:
            late = self._record(layer.residual, first)
            ports.append(self.read_ports[late.bank])
            needs = [max(needs[0], late.written[0]), max(needs[1], late.written[1])]
        for port in ports:
            needs[other] = max(needs[other], port[other])
        if engine == ARRAY:
            needs[ARRAY] = max(needs[ARRAY], self.late_reads[source.bank])
        elif number != self.filtering or depthwise_lag(layer) >= layer.reads.pixels:
            needs[DEPTHWISE], self.filtering = self.counts[DEPTHWISE], number  # rows of another length, or outputs too late
        if self.config.monolithic:
            needs[other] = self.counts[other]
        self.counts[engine] = done = self.counts[engine] + 1
        source.used[engine] = target.written[engine] = done
        if late is not None:
            late.used[engine] = self.late_reads[late.bank] = done
        for port in ports:
            port[engine] = done
        return needs[0], needs[1]

    def _record(self, tensor: str, word: int) -> _Record:
        """The record of a map or of a ring's block; a new one takes the place of all that lay there before."""
        stored = self.stored[tensor]
        block = word // self.config.block_words if stored.ring else 0
        known = self.records.get((tensor, block))
        if known is not None:
            return known
        size = stored.pixels * (self.config.block_words if stored.ring else stored.pixel_words)
        start = stored.base + (block % RING_BLOCKS * size if stored.ring else 0)
        made = _Record(stored.bank, start, start + size, [0, 0])
        for key, old in list(self.records.items()):
            if old.bank == made.bank and old.start < made.stop and made.start < old.stop:
                made.waits = [max(w) for w in zip(made.waits, old.waits, old.written, old.used, strict=True)]
                if made.start <= old.start and old.stop <= made.stop:
                    del self.records[key]
        self.records[tensor, block] = made
        return made

    def finished(self) -> list[Job]:
        """The jobs, with the last reader of the input marked, and the last writer of the output."""
        last = max(i for i, job in enumerate(self.jobs) if job.needs_input)
        self.jobs[last] = replace(self.jobs[last], releases_input=True)
        final = max(i for i, job in enumerate(self.jobs) if job.needs_output)
        self.jobs[final] = replace(self.jobs[final], finishes=True)
        return self.jobs


def depthwise_lag(layer: Layer) -> int:
    """Pixels that arrive before the first output's window is complete, if none of it were padding beyond the last row."""
    (high, wide), (top, left, _, _) = layer.window.kernel, layer.window.pads
    return 0 if layer.whole else (high - 1 - top) * layer.reads.width + wide - 1 - left


def read_range(layer: Layer, config: Config, first: int, words: int) -> tuple[int, int]:
    """First input word and number of input words that the filters of these output words read."""
    if layer.groups == 1:
        return 0, config.words(layer.reads.channels)
    per_filter, per_input = layer.writes.channels // layer.groups, layer.reads.channels // layer.groups
    last_filter = min(layer.writes.channels, (first + words) * config.inputs) - 1
    start = first * config.inputs // per_filter * per_input // config.inputs
    stop = ((last_filter // per_filter + 1) * per_input - 1) // config.inputs
    return start, stop - start + 1


def constant_beats_per_word(config: Config) -> int:
    """Beats of the constants of a word of filters and of what all of them share."""
    return -(-(config.inputs * CONSTANT_BYTES + LAYER_BYTES) // config.port_bytes)


def fifo_depth(config: Config) -> int:
    """Beats that may be asked for and not yet used: enough that the memory never waits for its latency."""
    return 1 << (config.latency_clocks + 2 * BURST_BEATS - 1).bit_length()
