"""The layer program of a block of reusable engines: where maps lie, and which job waits for which.

A job is a filter block (array) or a word of channels (depthwise array) over all pixels of a map. Each engine does its jobs in
order; a job starts when as many jobs of either engine as it `needs` have written everything. Jobs of different engines overlap
unless one reads what the other writes, or both would use one port of one memory.

Memories: the input buffer, three for maps inside (0 what is kept for additions, 1 what depthwise layers read, 2 what they
write, as far as additions allow), the output buffer. Each has one read port and one write port. Maps that lie in external
memory pass through three more, stripe by stripe: what convolutions read of them, what additions read, what is written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from dovetail.hardware.arrays.layers import ArrayLayer, ArrayLayers, Config

ARRAY, DEPTHWISE = 0, 1
CONSTANT_BYTES = 8
"""Bytes of a filter's bias and multiplier, four each."""
FACTOR_BYTES = 4
"""Bytes of what the counts of a pair of planes are multiplied with."""
LAYER_BYTES, COUNTED_LAYER_BYTES = 8, 12
"""Bytes beside the constants of a word: bounds and scales of the layer, of bytes or of wider values."""
RING_BLOCKS = 2
"""Filter blocks of a map between a convolution and the depthwise layer that follows at once."""
BURST_BEATS = 32
"""Beats that are asked of the memory at once."""
ARRAY_SLOTS = 2
"""Filter blocks whose weights are kept: the one at work and the one that is loaded."""
DEPTHWISE_SLOTS = 8
"""Words of channels whose depthwise weights are kept."""


class Bank(IntEnum):
    """The memories of maps, in the order of `ArrayProgram.depths`."""

    INPUT = 0
    KEPT = 1
    EXPANDED = 2
    FILTERED = 3
    OUTPUT = 4
    LOADED = 5
    ADDED = 6
    STORED = 7


class MapPlace(NamedTuple):
    """Words of a map in a bank: word `base` belongs to the first pixel, `stride` words further is the next one's."""

    bank: Bank
    base: int
    stride: int


class TransferKind(IntEnum):
    """What a transfer moves: a job's weights, rows of a map into the chip, rows of a map out of it."""

    WEIGHTS = 0
    LOAD = 1
    STORE = 2


class ArrayTransfer(NamedTuple):
    """Beats that pass the memory port in one go.

    A load overwrites its words once as many jobs of either engine are done as it `needs`, and asks for its rows once `stored`
    bursts have been written; a store reads its words once as many jobs are done as it `needs`.
    """

    kind: TransferKind
    address: int
    """The first beat in external memory."""
    beats: int
    job: int = 0
    """Whose weights they are."""
    bank: int = 0
    base: int = 0
    rows: int = 0
    row_words: int = 0
    needs: tuple[int, int] = (0, 0)
    stored: int = 0
    stripe: int = 0
    """The stripe that it belongs to."""
    share: float = 0.0
    """How much of the stripe's rows comes before it."""

    @property
    def words(self) -> int:
        return self.rows * self.row_words

    @property
    def bursts(self) -> int:
        """Requests that it takes: they begin and end at multiples of `BURST_BEATS`."""
        return -(-(self.address % BURST_BEATS + self.beats) // BURST_BEATS)


@dataclass(frozen=True, slots=True)
class Outside:
    """A map in external memory, row by row: its first beat and the beats of a row, at whose start a word begins a beat."""

    address: int
    row_beats: int


class Job(NamedTuple):
    """A filter block or a word of channels over all pixels of a layer, or over those of some rows of it."""

    layer: int
    part: ArrayLayer
    """The layer, as if its maps had only the rows that the job reads and writes."""
    write_row: int
    """The first row that it writes."""
    engine: int
    first: int
    """The first output word it fills."""
    words: int
    """Output words per pixel."""
    read_first: int
    read_words: int
    """Input words that it reads of a pixel."""
    steps: int
    """Words of weights: clocks in which the array works on a pixel, or phases of a depthwise output."""
    clocks: int
    """Clocks in which it issues work."""
    tail: int
    """Clocks of issuing from its last read on, until its last output is complete."""
    weight_beats: int
    constant_beats: int
    read: MapPlace
    write: MapPlace
    residual: MapPlace | None
    needs: tuple[int, int]
    needs_input: bool
    needs_output: bool
    releases_input: bool
    finishes: bool
    loads: int = 0
    """How many loads must have arrived before it starts."""
    stores: int = 0
    """How many bursts must have left before it starts, since it writes where they lay."""
    turns: int = 1
    """Groups of planes of its weights: a pixel is worked on once for each, and each has its part of the words of weights."""
    rounds: int = 1
    """Groups of planes of its input, all of which meet every group of planes of its weights."""

    @property
    def beats(self) -> int:
        return self.weight_beats + self.constant_beats

    @property
    def passes(self) -> int:
        """How often a pixel is worked on; every time sums leave, with constants of their own."""
        return self.turns * self.rounds

    @property
    def pass_steps(self) -> int:
        """Clocks of one of them."""
        return self.steps // self.turns


@dataclass(frozen=True, slots=True)
class ArrayProgram:
    """Jobs in the order in which their weights arrive, and the words every bank needs."""

    config: Config
    layers: ArrayLayers
    jobs: tuple[Job, ...]
    depths: tuple[int, ...]
    """Words of every bank; 0 where it does not exist. The input bank holds `Config.input_buffers` frames."""
    transfers: tuple[ArrayTransfer, ...] = ()
    """What passes the memory port, in order, where maps lie in external memory; else weights alone do, in the order of jobs."""
    outside: Mapping[str, Outside] = field(default_factory=dict)
    """The maps in external memory, which lie behind the weights."""

    @property
    def widths(self) -> tuple[int, ...]:
        """Bits of a word of every bank."""
        return bank_widths(self.layers, self.config)

    @property
    def weight_depth(self) -> int:
        """Words of weights of the longest filter block."""
        return max((job.steps for job in self.jobs if job.engine == ARRAY), default=0)

    @property
    def constant_depth(self) -> int:
        """Words of constants of a filter block, at the most."""
        return max((job.words * job.passes for job in self.jobs if job.engine == ARRAY), default=self.config.block_words)

    @property
    def phases(self) -> int:
        """Words of weights of the longest depthwise job."""
        return max((job.steps for job in self.jobs if job.engine == DEPTHWISE), default=0)

    @property
    def line_width(self) -> int:
        """Pixels of the longest row that a window of the depthwise array reaches over."""
        return max((self.layers.layers[job.layer].reads.width for job in self.jobs
                    if job.engine == DEPTHWISE and not self.layers.layers[job.layer].whole), default=0)

    @property
    def image_beats(self) -> int:
        """Beats of the image of weights, in which every filter block lies once."""
        return sum({(job.layer, job.first): job.beats for job in self.jobs}.values())

    @property
    def memory_beats(self) -> int:
        """Beats of weights and maps in external memory."""
        ends = (o.address + o.row_beats * self.layers.maps[t].height for t, o in self.outside.items())
        return max(self.image_beats, *ends, 0)

    def moved_bytes(self, kind: TransferKind) -> int:
        """Bytes that transfers of a kind move in a frame."""
        if kind is TransferKind.WEIGHTS:
            return sum(job.beats for job in self.jobs) * self.config.port_bytes
        return sum(t.beats for t in self.transfers if t.kind is kind) * self.config.port_bytes


def bank_widths(layers: ArrayLayers, config: Config) -> tuple[int, ...]:
    """Bits of a word of every bank; an image of few channels is stored without the zeros that fill its words up."""
    word, entry = config.word_bits, layers.maps[layers.entry].channels * config.value_bits
    return tuple(min(word, entry) if bank == Bank.INPUT else word for bank in Bank)


def depthwise_lag(layer: ArrayLayer) -> int:
    """Pixels that arrive before the first output's window is complete, if none of it were padding beyond the last row."""
    (high, wide), (top, left, _, _) = layer.window.kernel, layer.window.pads
    return 0 if layer.whole else (high - 1 - top) * layer.reads.width + wide - 1 - left


def read_range(layer: ArrayLayer, config: Config, first: int, words: int) -> tuple[int, int]:
    """First input word and number of input words that the filters of these output words read."""
    if layer.groups == 1:
        return 0, config.words(layer.reads.channels)
    per_filter, per_input = layer.writes.channels // layer.groups, layer.reads.channels // layer.groups
    last_filter = min(layer.writes.channels, (first + words) * config.inputs) - 1
    start = first * config.inputs // per_filter * per_input // config.inputs
    stop = ((last_filter // per_filter + 1) * per_input - 1) // config.inputs
    return start, stop - start + 1


def factor_bytes(config: Config) -> int:
    """Bytes of what the counts of a word of filters are multiplied with, in whole beats; none where bytes are multiplied."""
    return -(-config.inputs * config.pairs * FACTOR_BYTES // config.port_bytes) * config.port_bytes


def final_words(config: Config) -> int:
    """Numbers of a filter that its finished sum meets, four bytes each: thresholds, or bias and multiplier."""
    return max(CONSTANT_BYTES // 4, config.thresholds)


def layer_bytes(config: Config) -> int:
    """Bytes of what all filters of a layer share."""
    return COUNTED_LAYER_BYTES if config.counts else LAYER_BYTES


def constant_beats_per_word(config: Config, engine: int) -> int:
    """Beats of the constants of a word of filters and of what all of them share."""
    counted = config.counts and engine == ARRAY
    own = factor_bytes(config) + config.inputs * final_words(config) * 4 if counted else config.inputs * CONSTANT_BYTES
    return -(-(own + layer_bytes(config)) // config.port_bytes)


def row_beats(config: Config, words: int) -> int:
    """Beats of a word of weights of so many words of filters."""
    bits = config.weight_planes if config.counts else 8
    return -(-words * config.inputs * config.inputs * bits // (8 * config.port_bytes))


def fifo_depth(config: Config) -> int:
    """Beats that may be asked for and not yet used: enough that the memory never waits for its latency."""
    return 1 << (config.latency_clocks + 2 * BURST_BEATS - 1).bit_length()
