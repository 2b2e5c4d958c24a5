"""Folded layers: fewer multipliers than weights, used again and again for one output pixel.

A `Fold` says how many groups, input channels of a group and filters of a group are worked on in one clock; all taps of the
kernel always are. The channels need not be multiples: the last round of each loop then works on fewer. In the order

    for each block of groups:  for each pass over its filters:  for each slice of its input channels

one clock each, an output pixel takes `Loops.clocks` clocks. Direct mapping is the corner in which nothing is folded and the
weights are constants instead of a memory's words.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dovetail.errors import UsageError
from dovetail.ir import Product


@dataclass(frozen=True, slots=True)
class Fold:
    """What works at once: groups, input channels of each, filters of each."""

    groups: int
    inputs: int
    outputs: int
    products: int = 1
    """Products of one multiplier block: 2 where the weights of two filters share one, which must be as wide as a DSP48E2;
    0 where all products are made of logic."""

    def __str__(self) -> str:
        kinds = {0: ", products in logic", 1: ""}
        return f"{self.groups}x{self.inputs}x{self.outputs}{kinds.get(self.products, f', {self.products} products a block')}"

    @property
    def sizes(self) -> tuple[int, ...]:
        """What tells folds apart."""
        own = (self.groups, self.inputs, self.outputs)
        return own if self.products == 1 else (*own, self.products)


TWIN_FIELD_BITS = 18
"""Bits of the lower of two products in one multiplier block."""


def twin_sums(x: tuple[int, int], w: tuple[int, int]) -> int:
    """Products of such values that may be added before the sum of lower ones leaves its field."""
    corners = [a * b for a in x for b in w]
    half = 1 << TWIN_FIELD_BITS - 1
    return min((half - 1) // max(1, *corners), half // max(1, *(-c for c in corners)))


@dataclass(frozen=True, slots=True)
class Channels:
    """A layer's channels: groups, and input channels and filters in each of them."""

    groups: int
    inputs: int
    outputs: int


LUT_MEMORY_DEPTH = 64
"""Words of the deepest memory that is made of look-up tables; deeper ones are block memories."""


@dataclass(frozen=True, slots=True)
class Loops:
    """A layer's channels under a fold, as counts of rounds."""

    channels: Channels
    fold: Fold

    def __post_init__(self) -> None:
        for name in ("groups", "inputs", "outputs"):
            at_once, most = getattr(self.fold, name), getattr(self.channels, name)
            if not 1 <= at_once <= most:
                raise UsageError(f"fold {self.fold}: {at_once} {name} at once; the layer has {most}, so 1 to {most}")

    @property
    def blocks(self) -> int:
        """Rounds over the groups."""
        return -(-self.channels.groups // self.fold.groups)

    @property
    def slices(self) -> int:
        """Rounds over a group's input channels: clocks between two results."""
        return -(-self.channels.inputs // self.fold.inputs)

    @property
    def passes(self) -> int:
        """Rounds over a group's filters."""
        return -(-self.channels.outputs // self.fold.outputs)

    @property
    def words(self) -> int:
        """Words in which a pixel enters the window."""
        return self.blocks * self.slices

    @property
    def results(self) -> int:
        """Words in which an output pixel is finished."""
        return self.blocks * self.passes

    @property
    def clocks(self) -> int:
        """Clocks per output pixel, and words of the weight memory."""
        return self.blocks * self.passes * self.slices

    @property
    def lanes(self) -> int:
        """Filters worked on at once."""
        return self.fold.groups * self.fold.outputs

    @property
    def twins(self) -> int:
        """Lanes of two filters; the last of a group may have one."""
        return self.fold.groups * -(-self.fold.outputs // 2) if self.fold.products == 2 else 0

    @property
    def soft(self) -> bool:
        """Whether products are made of logic, not of multiplier blocks."""
        return self.fold.products == 0

    @property
    def holds_weights(self) -> bool:
        """Whether weights wait in a register before the multiplier, which moves into it: block memories give words late."""
        return self.clocks > LUT_MEMORY_DEPTH and not self.soft

    @property
    def reads_words(self) -> bool:
        """Whether the input arrives in the words worked on: those are runs of channels, of which only the last may be short."""
        divides = self.channels.inputs % self.fold.inputs == 0
        return self.slices == 1 or (self.fold.groups == 1 and (self.blocks == 1 or divides))

    @property
    def writes_words(self) -> bool:
        """Whether results leave as they are finished: a result word is then a run of channels, only the last may be short."""
        divides = self.channels.outputs % self.fold.outputs == 0
        return self.passes == 1 or (self.fold.groups == 1 and (self.blocks == 1 or divides))

    @property
    def input_width(self) -> int:
        """Input channels of a beat: a word, or the whole pixel where words are no runs of channels."""
        return self.fold.groups * self.fold.inputs if self.reads_words else self.channels.groups * self.channels.inputs

    @property
    def output_width(self) -> int:
        """Output channels of a beat."""
        return self.lanes if self.writes_words else self.channels.groups * self.channels.outputs

    def input_channel(self, word: int, group: int, place: int) -> int | None:
        """The channel at a place of a group of an input word; None where the fold reaches beyond the channels."""
        return self._channel(word, self.slices, group, place, self.fold.inputs, self.channels.inputs)

    def filter(self, result: int, group: int, place: int) -> int | None:
        """The filter a lane finishes in a result word; None where the fold reaches beyond the filters."""
        return self._channel(result, self.passes, group, place, self.fold.outputs, self.channels.outputs)

    def _channel(self, word: int, rounds: int, group: int, place: int, at_once: int, each: int) -> int | None:
        """Of a word of a block of groups, which has `rounds` with `at_once` of the `each` channels of a group."""
        block, turn = divmod(word, rounds)
        group, channel = block * self.fold.groups + group, turn * at_once + place
        return group * each + channel if group < self.channels.groups and channel < each else None


SOFT_EDGE_BITS = 4
"""Bits of a row of a product in logic beside those of the activation: sign, doubling, and the two of the next row."""
SOFT_ROWS: Mapping[str, tuple[float, float]] = {"lut": (1.0, 3.0), "lut4": (29 / 12, 9.0), "alm": (14 / 12, 1.0)}
"""By kind of logic: cells of a row's bit, and by how many the last row is cheaper."""


def soft_digits(weight_bits: int) -> int:
    """Digits of a weight, two bits each: rows of a product in logic, and clock edges until it is there."""
    return -(-weight_bits // 2)


def soft_registers(input_bits: int, weight_bits: int) -> int:
    """Registers of a product in logic beyond those that hold it: sums between rows, and what later rows still need.

    Yosys 0.70 counts 70 and 13 for activations of 0..255 and weights of 8 and 4 bits, none for 2 bits.
    """
    return max(0, 2 * soft_digits(weight_bits) - 3) * (input_bits + SOFT_EDGE_BITS + 1)


def soft_logic(logic: str, input_bits: float, weight_bits: int) -> float:
    """Logic of one product; `logic` names the device's cells. Every two bits of the weight are a row (fpga/engines/soft.py).

    Yosys 0.70, eight products between registers, activations of 0..255 and weights of 8, 4 and 2 bits: 45, 21 and 9 look-up
    tables of six inputs (xcu, xcup), 107, 49 and 20 of four (ecp5), 55, 27 and 13 ALM (cyclonev); signed activations take a tenth
    less. In folded layers the first two families delay bits of 8-bit products in four more, as shift registers. Activations of
    0..15 and weights of 4 and 2 bits: 13 and 5 look-up tables of six inputs. The lines meet all of these.
    """
    per_bit, less = SOFT_ROWS[logic]
    return soft_digits(weight_bits) * per_bit * (input_bits + SOFT_EDGE_BITS) - less


def regrouped_clocks(channels: int, taken: int, left: int) -> int:
    """Clocks in which a pixel that comes in beats of `taken` channels is cut into words of `left` (fpga/engines/regroup.py).

    Every clock looks at one beat and one word ends at the most. Only the last beat may end two words that are longer than beats.
    """
    beats, words = -(-channels // taken), -(-channels // left)
    if left < taken:
        return words
    return beats + (taken != left and words > 1 and (words - 1) * left > (beats - 1) * taken)


def channels_of(op: Product, input_channels: int, filters: int) -> Channels:
    """The channels of a layer that reads `input_channels` of a stream; a fully connected layer is one group."""
    return Channels(op.groups, input_channels // op.groups, filters // op.groups)
