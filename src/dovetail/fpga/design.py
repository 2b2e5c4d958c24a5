"""A finished hardware design: Verilog text with its stream ports, ready to simulate or synthesize."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

COMMENT_OR_STRING = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\])*\"", re.DOTALL)
MODULE = re.compile(r"\bmodule\s+([A-Za-z_][A-Za-z0-9_$]*)\b.*?\bendmodule\b", re.DOTALL)


class Beats:
    """How pixels are cut into beats: all of their channels, or so many `at_once`."""

    __slots__ = ()
    channels: int
    bits: int
    height: int
    width: int
    at_once: int | None

    @property
    def fields(self) -> int:
        """Channels of a beat."""
        return self.at_once or self.channels

    @property
    def words(self) -> int:
        """Beats of a pixel."""
        return -(-self.channels // self.fields)

    @property
    def beats(self) -> int:
        """Beats of a frame."""
        return self.height * self.width * self.words

    @property
    def data_bits(self) -> int:
        return self.fields * self.bits


@dataclass(frozen=True, slots=True)
class StreamPort(Beats):
    """A valid/ready stream at the top level: `NAME_valid`, `NAME_ready`, `NAME_data`.

    One beat is one pixel in raster order; channel c sits at bits [bits*c + bits-1 : bits*c]. With `at_once` a pixel is several
    beats, of so many channels each, in order; what the last one has too many says nothing. A port that `loads` takes sets of
    weights (`fpga.part.weight_sets`) in the place of frames.
    """

    name: str
    tensor: str
    channels: int
    bits: int
    signed: bool
    height: int
    width: int
    at_once: int | None = None
    loads: bool = False


@dataclass(frozen=True, slots=True)
class Fifo:
    """A FIFO of the design: closed-form depth in beats, and where its high-water mark can be read."""

    name: str
    width_bits: int
    depth: int


@dataclass(frozen=True, slots=True)
class MemoryPort:
    """A port that reads memory in bursts: `NAME_request_valid`, `_ready`, `_address`, `_beats`, then `NAME_valid`, `NAME_data`.

    Addresses count beats of `bytes` bytes, and a burst does not cross a multiple of 32 of them; every beat that was asked for
    is taken when it comes. With `writes` a request may also be one to write (`NAME_request_write`): its beats follow in the
    order of requests (`NAME_write_valid`, `_ready`, `_data`), and `NAME_written` is set for a clock when a burst may be read.
    A simulation answers from `image`, a file of the design with a beat per line, hexadecimal, which is the beginning of a
    memory of `beats`: requests in their order, `bytes_per_clock` at most both ways together, `latency_clocks` after a request.
    With several `masters` each brings an equal part of every beat, the lowest bytes first, and has a bit of `NAME_valid`.
    """

    name: str
    bytes: int
    image: str
    bytes_per_clock: float
    latency_clocks: int
    beats: int = 0
    writes: bool = False
    masters: int = 1

    @property
    def signals(self) -> list[tuple[str, int, bool]]:
        """Its signals without its name, as (name, bits, whether it is the design's input)."""
        width = self.bytes * 8
        parts = [("request_valid", 1, False), ("request_ready", 1, True), ("request_address", 32, False),
                 ("request_beats", 8, False), ("valid", self.masters, True), ("data", width, True)]
        if self.writes:
            parts += [("request_write", 1, False), ("write_valid", 1, False), ("write_ready", 1, True),
                      ("write_data", width, False), ("written", 1, True)]
        return parts


@dataclass(frozen=True, slots=True)
class Design:
    """Top module name, files (name to text), ports, and what the generator knows about its own result."""

    top: str
    files: Mapping[str, str]
    inputs: tuple[StreamPort, ...]
    outputs: tuple[StreamPort, ...]
    fifos: tuple[Fifo, ...] = ()
    adders: int = 0
    latency_cycles: int = 0
    """Clock cycles from the first input beat to the last output beat of one frame, without stalls."""
    interval_cycles: int = 0
    """Clock cycles between frames in steady state."""
    notes: tuple[str, ...] = field(default=())
    folds: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Nodes whose multipliers are shared: groups, input channels and filters at once, and products of a block if not one."""
    words: Mapping[str, int] = field(default_factory=dict)
    """Nodes without weights that work on so many channels at once, not on all of a pixel."""
    fused: tuple[str, ...] = ()
    """Depthwise nodes whose inverted residuals are one engine."""
    memory: MemoryPort | None = None
    """Where weights are read from that the design does not hold."""
    datapath: str = "popcount"
    """How products of codes are summed in layers that are mapped directly."""

    @property
    def streams(self) -> tuple[StreamPort, ...]:
        """Inputs that take the network's frames; they come before those that take weights."""
        return tuple(port for port in self.inputs if not port.loads)

    @property
    def loads(self) -> tuple[StreamPort, ...]:
        """Inputs that take weights."""
        return tuple(port for port in self.inputs if port.loads)


def is_verilog(file_name: str) -> bool:
    """Whether a file of a design is source text; the others are memory images it reads."""
    return file_name.endswith((".v", ".sv"))


def without_comments(text: str, keep_strings: bool = True) -> str:
    """Verilog with blanks for comments, and for strings where they are not to be mistaken for code."""
    return COMMENT_OR_STRING.sub(lambda match: match[0] if keep_strings and match[0].startswith('"') else " ", text)


def module_texts(design: Design) -> dict[str, str]:
    """Verilog of every module of a design by module name."""
    texts: dict[str, str] = {}
    for name, text in design.files.items():
        if is_verilog(name):
            texts.update({match[1]: match[0] for match in MODULE.finditer(without_comments(text))})
    return texts
