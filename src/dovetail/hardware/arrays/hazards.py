"""The jobs and transfers of a layer program as they are added: each finds out what it has to wait for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod

from dovetail.hardware.arrays import jobs
from dovetail.hardware.arrays.jobs import ArrayTransfer, Bank, Job, MapPlace, Outside, TransferKind
from dovetail.hardware.arrays.layers import ArrayLayer, ArrayLayers, Config
from dovetail.hardware.arrays.stripes import SLOTS, Stripe, row_words

CHUNK_BEATS = 192
"""Beats that a transfer of rows has at least, where there are as many: between two of them weights may pass."""


@dataclass(frozen=True, slots=True)
class Stored:
    """Where tensors lie: bank, first word, words of a pixel; for those in a ring also the words of a block's pixel."""

    bank: Bank
    base: int
    size: int
    pixel_words: int
    pixels: int
    ring: bool = False

    def place(self, config: Config, word: int, skipped: int = 0) -> MapPlace:
        """The place of a word of every pixel, `skipped` pixels left out; a ring has only the pixels at work."""
        if not self.ring:
            return MapPlace(self.bank, self.base + skipped * self.pixel_words + word, self.pixel_words)
        block, inside = divmod(word, config.block_words)
        slot = block % jobs.RING_BLOCKS
        return MapPlace(self.bank, self.base + slot * config.block_words * self.pixels + inside, config.block_words)


@dataclass(slots=True)
class AccessRecord:
    """What happened to a map, a stripe of it, or a block of a ring.

    Jobs of each engine that wrote and read it, loads that brought it, bursts that took it away, and what writing it waits for.
    """

    bank: Bank
    start: int
    stop: int
    waits: list[int]
    written: list[int] = field(default_factory=lambda: [0, 0])
    used: list[int] = field(default_factory=lambda: [0, 0])
    loads: int = 0
    leaves: int = 0
    """Bursts after which it has left."""
    free: int = 0
    """Bursts after which what lay there before has left."""


@dataclass(slots=True)
class Jobs:
    """Jobs as they are added, with what the hazards between them are found from; `needs` are counts of jobs done."""

    config: Config
    layers: ArrayLayers
    stored: Mapping[str, Stored]
    outside: Mapping[str, Outside]
    slots: Mapping[Bank, int]
    """Words of a stripe's place in the banks that stripes pass through."""
    jobs: list[Job] = field(default_factory=list)
    made: list[ArrayTransfer] = field(default_factory=list)
    """Weights, loads and stores in the order in which they were thought of: each waits only for earlier ones."""
    counts: list[int] = field(default_factory=lambda: [0, 0])
    records: list[dict[tuple[str, int, int], AccessRecord]] = field(default_factory=lambda: [{} for _ in Bank])
    """By bank."""
    read_ports: list[list[int]] = field(default_factory=lambda: [[0, 0] for _ in Bank])
    write_ports: list[list[int]] = field(default_factory=lambda: [[0, 0] for _ in Bank])
    """By bank: jobs of each engine that must be done before the other engine uses that port."""
    late_reads: list[int] = field(default_factory=lambda: [0] * len(Bank))
    """By bank: jobs of the array that must be done before the array reads it as input, since additions read late."""
    filtering: ArrayLayer | None = None
    """The layer whose rows are in the line buffers."""
    leaving: int = 0
    """Words in which the array's last pixel leaves, a clock each."""
    stripe: Stripe = field(default_factory=lambda: Stripe((), 0, ()))
    stripes: int = 0
    passed: dict[Bank, int] = field(default_factory=lambda: {Bank.LOADED: 0, Bank.ADDED: 0, Bank.STORED: 0})
    """Stripes that passed through a bank."""
    loads: int = 0
    bursts: int = 0
    left: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    """By tensor: rows in external memory once so many bursts have been written."""
    weights: dict[tuple[int, int], int] = field(default_factory=dict)
    """Where a layer's filter block lies in the image of weights."""
    image_beats: int = 0

    def add(self, group: tuple[int, ...], stripe: Stripe) -> None:
        """Append the jobs of a stripe of a layer, or of two: then channels are filtered behind the next block's convolution."""
        self.stripe, self.stripes = stripe, self.stripes + 1
        first, last = stripe.parts[0], stripe.parts[-1]
        if first.source in self.outside:
            self._load(first.source, Bank.LOADED, stripe.read_row, first.reads.height)
        if last.residual is not None and last.residual in self.outside:
            self._load(last.residual, Bank.ADDED, stripe.write_row, last.writes.height)
        self.passed[Bank.STORED] += last.target in self.outside
        self._compute(group)
        if last.target in self.outside:
            self._store(last)

    def _compute(self, group: tuple[int, ...]) -> None:
        config, per = self.config, self.config.block_words
        first, last = self.stripe.parts[0], self.stripe.parts[-1]
        if len(group) == 1 and first.filtered(config):
            for plane in range(config.words(first.writes.channels)):
                self._depthwise(group[0], first, plane)
            return
        starts = list(range(0, config.words(first.writes.channels), per))
        for number, start in enumerate(starts):
            if len(group) == 1 or number == 0:
                self._array(group[0], first, start)
            if len(group) == 2:
                if number + 1 < len(starts):
                    self._array(group[0], first, starts[number + 1])
                for plane in range(start, min(start + per, config.words(last.writes.channels))):
                    self._depthwise(group[1], last, plane)

    def _load(self, tensor: str, bank: Bank, row: int, rows: int) -> None:
        """Bring rows of a map in, in pieces between which weights may pass."""
        shape, where = self.layers.maps[tensor], self.outside[tensor]
        self.passed[bank] += 1
        record = self._record(tensor, 0, bank)
        words = row_words(self.config, shape)
        for at, count in _pieces(rows, where.row_beats):
            stored = next((bursts for known, bursts in self.left[tensor] if known >= row + at + count))
            self.made.append(ArrayTransfer(TransferKind.LOAD, where.address + (row + at) * where.row_beats,
                                           count * where.row_beats, bank=bank,
                                           base=record.start + at * words, rows=count, row_words=words,
                                           needs=(record.waits[0], record.waits[1]), stored=stored, stripe=self.stripes,
                                           share=at / rows))
            self.loads += 1
        record.loads = self.loads

    def _store(self, last: ArrayLayer) -> None:
        """Take a stripe's output away."""
        where, row = self.outside[last.target], self.stripe.write_row
        record = self._record(last.target, 0, Bank.STORED)
        words = row_words(self.config, last.writes)
        for at, count in _pieces(last.writes.height, where.row_beats):
            made = ArrayTransfer(TransferKind.STORE, where.address + (row + at) * where.row_beats, count * where.row_beats,
                                 bank=Bank.STORED, base=record.start + at * words, rows=count, row_words=words,
                                 needs=(record.written[0], record.written[1]), stripe=self.stripes, share=at / last.writes.height)
            self.made.append(made)
            self.bursts += made.bursts
            self.left.setdefault(last.target, []).append((row + at + count, self.bursts))
        record.leaves = self.bursts

    def _array(self, number: int, layer: ArrayLayer, first: int) -> None:
        config = self.config
        words = min(config.block_words, config.words(layer.writes.channels) - first)
        start, count = jobs.read_range(layer, config, first, words)
        each, turns, rounds = count * prod(layer.window.kernel), layer.turns(config), layer.rounds(config)
        clocks = layer.writes.pixels * turns * rounds * max(each, words)
        self._append(number, layer, jobs.ARRAY, first, words, start, count, each * turns, clocks, 0,
                     each * turns * jobs.row_beats(config, words), turns, rounds)

    def _depthwise(self, number: int, layer: ArrayLayer, plane: int) -> None:
        config = self.config
        phases, tail = 1, 0
        if not layer.whole:
            phases = config.phases(layer.window)
            last = ((layer.writes.height - 1) * layer.window.stride[0] * layer.reads.width
                    + (layer.writes.width - 1) * layer.window.stride[1])
            tail = jobs.depthwise_lag(layer) + last + 1 - layer.reads.pixels
        clocks = layer.reads.pixels + (phases - 1) * layer.writes.pixels
        beats = -(-config.inputs * config.taps // config.port_bytes)
        self._append(number, layer, jobs.DEPTHWISE, plane, 1, plane, 1, phases, clocks, tail, phases * beats)

    def _append(self, number: int, layer: ArrayLayer, engine: int, first: int, words: int, read_first: int, read_words: int,
                steps: int, clocks: int, tail: int, weight_beats: int, turns: int = 1, rounds: int = 1) -> None:
        entry = self.layers.entry
        residual = None if layer.residual is None else self._other(layer.residual, first)
        row = self.stripe.write_rows[0 if layer is self.stripe.parts[0] else -1]
        read = self._place(layer.source, Bank.LOADED, read_first, self.stripe.read_row)
        write = self._place(layer.target, Bank.STORED, first, row)
        needs, loads, free = self._needs(layer, engine, first, read_first)
        if engine == jobs.ARRAY:
            if steps // turns < self.leaving:  # its first pixel would be done before the last one has left
                needs = (self.counts[engine] - 1, needs[1])
            self.leaving = words
        beats = words * turns * rounds * jobs.constant_beats_per_word(self.config, engine)
        at = self.weights.get((number, first))
        if at is None:
            at = self.weights[number, first] = self.image_beats
            self.image_beats += weight_beats + beats
        self.made.append(ArrayTransfer(TransferKind.WEIGHTS, at, weight_beats + beats, len(self.jobs), stripe=self.stripes))
        self.jobs.append(Job(number, layer, row, engine, first, words, read_first, read_words, steps, clocks, tail,
                             weight_beats, beats, read, write, residual, needs, entry in (layer.source, layer.residual),
                             layer.target == self.layers.exit, False, False, loads, free, turns, rounds))

    def _place(self, tensor: str, bank: Bank, word: int, row: int) -> MapPlace:
        """Where a word of the pixels from a row on lies: in a bank of stripes if the map is outside."""
        shape = self.layers.maps[tensor]
        if tensor in self.outside:
            return MapPlace(bank, self._slot(bank) + word, self.config.words(shape.channels))
        return self.stored[tensor].place(self.config, word, row * shape.width)

    def _other(self, tensor: str, word: int) -> MapPlace:
        """Where the other operand of an addition or a product lies; one value per channel is read again for every pixel."""
        if self.layers.maps[tensor].pixels == 1:
            return self._place(tensor, Bank.ADDED, word, 0)._replace(stride=0)
        return self._place(tensor, Bank.ADDED, word, self.stripe.write_row)

    def _slot(self, bank: Bank) -> int:
        """The first word of the stripe that passes through a bank now."""
        return self.passed[bank] % SLOTS * self.slots[bank]

    def _needs(self, layer: ArrayLayer, engine: int, first: int, read_first: int) -> tuple[tuple[int, int], int, int]:
        """How many jobs of each engine must be done before this one starts, loads and bursts likewise; later ones wait for it."""
        other = 1 - engine
        source, target = self._record(layer.source, read_first, Bank.LOADED), self._record(layer.target, first, Bank.STORED)
        ports = [self.read_ports[source.bank], self.write_ports[target.bank]]
        needs = [max(target.waits[0], source.written[0]), max(target.waits[1], source.written[1])]
        late, loads = None, source.loads
        if layer.residual is not None:
            late = self._record(layer.residual, first, Bank.ADDED)
            ports.append(self.read_ports[late.bank])
            needs = [max(needs[0], late.written[0]), max(needs[1], late.written[1])]
            loads = max(loads, late.loads)
        for port in ports:
            needs[other] = max(needs[other], port[other])
        if engine == jobs.ARRAY:
            needs[engine] = max(needs[engine], self.late_reads[source.bank])
        elif (layer is not self.filtering and layer != self.filtering) or jobs.depthwise_lag(layer) >= layer.reads.pixels:
            needs[engine], self.filtering = self.counts[engine], layer  # rows of another length, or outputs too late
        if self.config.monolithic:
            needs[other] = self.counts[other]
        self.counts[engine] = done = self.counts[engine] + 1
        source.used[engine] = target.written[engine] = done
        if late is not None:
            late.used[engine] = self.late_reads[late.bank] = done
        for port in ports:
            port[engine] = done
        return (needs[0], needs[1]), loads, target.free

    def _record(self, tensor: str, word: int, bank: Bank) -> AccessRecord:
        """The record of a map, a stripe or a ring's block; a new one takes the place of all that lay there before."""
        where = self.stored.get(tensor)
        if where is None:
            key, start = (tensor, self.stripes, int(bank)), self._slot(bank)
            size = self.slots[bank]
        else:
            block = word // self.config.block_words if where.ring else 0
            key, bank = (tensor, block, self.stripes if where.ring else -1), where.bank
            size = where.pixels * (self.config.block_words if where.ring else where.pixel_words)
            start = where.base + (block % jobs.RING_BLOCKS * size if where.ring else 0)
        records = self.records[bank]
        known = records.get(key)
        if known is not None:
            return known
        made = AccessRecord(bank, start, start + size, [0, 0])
        for each, old in list(records.items()):
            if old.start < made.stop and made.start < old.stop:
                made.waits = [max(w) for w in zip(made.waits, old.waits, old.written, old.used, strict=True)]
                made.free = max(made.free, old.leaves, old.free)
                if made.start <= old.start and old.stop <= made.stop:
                    del records[each]
        records[key] = made
        return made

    def finished(self) -> list[Job]:
        """The jobs, with the last reader of the input marked, and the last writer of the output."""
        last = max(i for i, job in enumerate(self.jobs) if job.needs_input)
        self.jobs[last] = self.jobs[last]._replace(releases_input=True)
        final = max(i for i, job in enumerate(self.jobs) if job.needs_output)
        self.jobs[final] = self.jobs[final]._replace(finishes=True)
        return self.jobs


def _pieces(rows: int, row_beats: int) -> list[tuple[int, int]]:
    """Rows in runs of at least `CHUNK_BEATS` beats, as (first, count)."""
    per = max(1, -(-CHUNK_BEATS // row_beats))
    return [(at, min(per, rows - at)) for at in range(0, rows, per)]
