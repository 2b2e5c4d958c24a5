"""How often registers toggle: a copy of a design that counts, in every module, the bits that change from clock to clock.

Registers stand for all signals: every adder has one behind it. What a simulation without delays cannot see are the glitches
between two clock edges, and what a memory's cells do inside it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from dovetail.fpga.design import Design, is_verilog, without_comments
from dovetail.fpga.packing import Integers
from dovetail.fpga.toolchain.simulate import simulate

REGISTER = re.compile(r"^reg (?:\[(\d+):0\] )?(\w+);", re.MULTILINE)
"""A register as `fpga/rtl/verilog.py` declares it; memories have a second range."""
SIMULATION_ONLY = re.compile(r"^`ifdef .*?^`endif", re.MULTILINE | re.DOTALL)
"""What no hardware is made of."""
WORD_BITS = 64
"""Registers are counted together in words of about this many bits, which a processor counts at once."""


@dataclass(frozen=True, slots=True)
class Toggles:
    """Register bits, and how often they changed over so many frames and clocks."""

    bits: int
    toggles: int
    frames: int
    clocks: int

    @property
    def per_clock(self) -> float:
        """Toggles per clock and bit: the activity of power models."""
        return self.toggles / (self.bits * self.clocks) if self.bits else 0.0

    @property
    def per_frame(self) -> float:
        """Toggles per frame and bit."""
        return self.toggles / (self.bits * self.frames) if self.bits else 0.0

    def __add__(self, other: Toggles) -> Toggles:
        return replace(self, bits=self.bits + other.bits, toggles=self.toggles + other.toggles)


def count_toggles(design: Design, inputs: Mapping[str, Integers]) -> dict[str, Toggles]:
    """Toggles by instance of the top module: its engines (`u_...`), FIFOs and forks, each with all that is in it."""
    simulation = simulate(watched(design), inputs)
    frames, found = len(simulation.frame_cycles), dict[str, Toggles]()
    for path, (bits, toggles) in simulation.toggles.items():
        top = path.partition(".")[0]
        one = Toggles(bits, toggles, frames, simulation.cycles)
        found[top] = found[top] + one if top in found else one
    return found


def watched(design: Design) -> Design:
    """The same design, whose modules count toggles from reset on and print them when the simulation ends."""
    return replace(design, files={name: _counting(text) if is_verilog(name) else text for name, text in design.files.items()})


def _counting(text: str) -> str:
    """A module's text with its counters before `endmodule`; one without registers stays as it is."""
    built = SIMULATION_ONLY.sub("", without_comments(text))
    words = _words([(name, int(high or 0) + 1) for high, name in REGISTER.findall(built)])
    if not words:
        return text
    bits = sum(width for _, width in words)
    lines = ["integer activity_count;", "reg [63:0] activity_toggles;"]
    for index, (names, width) in enumerate(words):
        lines += [f"wire [{width - 1}:0] activity_now_{index} = {{{', '.join(names)}}};",
                  f"reg [{width - 1}:0] activity_before_{index};"]
    lines += ["always @(posedge clk) begin", "  activity_count = 0;"]
    for index in range(len(words)):
        lines += [f"  activity_count = activity_count + $countones(activity_now_{index} ^ activity_before_{index});",
                  f"  activity_before_{index} <= activity_now_{index};"]
    lines += ["  activity_toggles <= rst ? 64'd0 : activity_toggles + {32'd0, activity_count};", "end",
              f'final $display("toggles %m {bits} %0d", activity_toggles);']
    head, _, tail = text.rpartition("endmodule")
    return f"{head}{chr(10).join(lines)}\nendmodule{tail}"


def _words(registers: list[tuple[str, int]]) -> list[tuple[list[str], int]]:
    """Registers in groups of at most WORD_BITS bits; a wider one is a group of its own."""
    words: list[tuple[list[str], int]] = []
    for name, width in registers:
        if words and words[-1][1] + width <= WORD_BITS:
            words[-1] = ([*words[-1][0], name], words[-1][1] + width)
        else:
            words.append(([name], width))
    return words
