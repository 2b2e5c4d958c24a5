"""Every stream of a design told beat by beat while it is simulated, and held against the reference as it comes.

Probes are text between `ifdef VERILATOR` and `endif`: synthesis sees the design without them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from dovetail.fpga.assemble import Top, built_top, design_of, stream_port
from dovetail.fpga.design import Design, StreamPort
from dovetail.fpga.network import make_network
from dovetail.fpga.packing import Octets, as_pixels, pixel_octets
from dovetail.hardware.folds import Fold
from dovetail.ir import Array, Graph

PIECE_BITS = 1024
"""Of a beat, printed at once; simulators refuse numbers that are much wider. A multiple of a hexadecimal digit's bits."""


def probed_design(graph: Graph, name: str, folds: Mapping[str, Fold]) -> tuple[Design, tuple[StreamPort, ...]]:
    """The design of a graph that tells every beat of every tensor where it is made or comes in, and those streams."""
    top = built_top(name, make_network(graph, name, folds=folds))
    streams = tuple(stream_port(wires.valid.name.removesuffix("_valid"), tensor, top.network.formats[tensor])
                    for tensor, wires in top.streams.items() if tensor in graph.tensors)
    _probe(top, streams)
    return design_of(graph, top, folds), streams


def _probe(top: Top, streams: tuple[StreamPort, ...]) -> None:
    """Print `beat core.TOP.STREAM CLOCK DATA` for every beat that is taken; clocks count from the reset.

    Behind a point a name stays what it is where bundles rename modules.
    """
    lines = ["reg [63:0] probe_clock;", "always @(posedge clk) probe_clock <= rst ? 64'd0 : probe_clock + 64'd1;"]
    for stream in streams:
        pieces = [f"{stream.name}_data[{min(low + PIECE_BITS, stream.data_bits) - 1}:{low}]"
                  for low in range(0, stream.data_bits, PIECE_BITS)][::-1]
        lines += [f"always @(posedge clk) if (!rst && {stream.name}_valid && {stream.name}_ready)",
                  f'  $display("beat core.{top.name}.{stream.name} %0d {"%h" * len(pieces)}", probe_clock, {", ".join(pieces)});']
    top.module.simulation_only += tuple(lines)


@dataclass(slots=True)
class Watched:
    """What was seen of one stream."""

    stream: StreamPort
    expected: Octets
    """Every beat of all frames."""
    taken: int = 0
    first_clock: int = 0
    last_clock: int = 0
    wrong: int = 0
    """Beats that were not the reference's."""

    @property
    def right(self) -> bool:
        return self.taken == len(self.expected) and not self.wrong

    def said(self, number: int, data: int) -> int:
        """What a beat says: channels that the last one of a pixel has too many are left out."""
        port = self.stream
        many = port.channels - port.fields * (port.words - 1) if (number + 1) % port.words == 0 else port.fields
        return data & (1 << port.bits * many) - 1


@dataclass(slots=True)
class Watch:
    """All probes of a simulation; `hear` takes what it prints."""

    streams: dict[tuple[str, str], Watched] = field(default_factory=dict)
    first_wrong: str | None = None

    def add(self, top: str, streams: tuple[StreamPort, ...], values: Mapping[str, Array]) -> None:
        """Expect of a design's streams these values of their tensors."""
        for stream in streams:
            x = np.asarray(values[stream.tensor])
            self.streams[top, stream.name] = Watched(stream, pixel_octets(stream, as_pixels(stream, x), len(x)))

    def hear(self, line: str) -> None:
        """Hold a beat against the reference; other lines are not for us."""
        word, *rest = line.split(" ")
        if word != "beat":
            return
        where, clock, digits = rest
        _, top, name = where.split(".")
        seen, at = self.streams[top, name], int(clock)
        number, seen.taken = seen.taken, seen.taken + 1
        seen.first_clock, seen.last_clock = at if not number else seen.first_clock, at
        found = seen.said(number, int(digits, 16))
        right = int.from_bytes(seen.expected[number].tobytes(), "little") if number < len(seen.expected) else None
        if found != right:
            seen.wrong += 1
            self.first_wrong = self.first_wrong or (
                f"{top}.{name}, {seen.stream.tensor}: beat {number} of {len(seen.expected)} at clock {at} is {found:x}, "
                + ("none was expected" if right is None else f"expected {right:x}"))
