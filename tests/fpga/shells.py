"""Shells of a few networks, all in one Verilator build, for the tests of the shell, the transports and the driver."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from dovetail.fpga.assemble import build_design
from dovetail.fpga.axi.shell import Shell, build_shell
from dovetail.fpga.packing import as_pixels, to_packets
from dovetail.fpga.toolchain.verilate import cycles_of
from dovetail.fpga.transport import SimulatedBoard
from dovetail.hardware.folds import Fold
from dovetail.ir import Array, Graph, Window
from dovetail.numerics.reference import run_integer
from dovetail.runtime.build import synthetic_integers
from dovetail.runtime.driver import Accelerator
from tests.fpga.random_graphs import Sketch, random_graph

FRAMES = 6


@dataclass(frozen=True)
class Case:
    """A shell with frames and what the reference makes of them."""

    shell: Shell
    graph: Graph
    inputs: dict[str, Array]
    expected: dict[str, Array]

    def packets(self, port: int) -> Array:
        """The frames of an input as packets."""
        stream = self.shell.core.inputs[port]
        return to_packets(stream, as_pixels(stream, self.inputs[stream.tensor]), self.shell.bus_bits)

    def board(self, stall_seed: int | None = None) -> SimulatedBoard:
        return SimulatedBoard(self.shell, stall_seed, bundle=[c.shell for c in (*cases(), tampered())],
                              cycles=cycles_of(self.shell.core, FRAMES))

    def accelerator(self, stall_seed: int | None = None) -> Accelerator:
        return Accelerator(self.shell, self.board(stall_seed))

    def check(self, results: dict[str, Array], frames: int = FRAMES) -> None:
        for port in self.shell.core.outputs:
            right = as_pixels(port, self.expected[port.tensor])[:frames]
            np.testing.assert_array_equal(results[port.tensor], right, err_msg=f"{self.shell.top} {port.name}")


def narrow() -> Graph:
    """Pixels of 3 x 5 bits, which fill no whole bytes, of a range that no bits fill."""
    s = Sketch(np.random.default_rng(5))
    return s.graph((s.conv(s.input((1, 3, 5, 6), bits=5, exponent=-3), 2, Window((3, 3), pads=(1, 1, 1, 1))),))


def case(graph: Graph, name: str, bus_bits: int, folds: dict[str, Fold] | None = None) -> Case:
    inputs = synthetic_integers(graph, FRAMES, seed=3)
    return Case(build_shell(build_design(graph, name, folds=folds), graph, bus_bits), graph, inputs, run_integer(graph, inputs))


@cache
def folded() -> Case:
    """Two layers that share multipliers, with weights in memory images."""
    s = Sketch(np.random.default_rng(8))
    padded = Window((3, 3), pads=(1, 1, 1, 1))
    graph = s.graph((s.conv(s.conv(s.input((1, 4, 6, 7)), 5, padded), 3, padded),))
    return case(graph, "folded", 64, {node.name: Fold(1, 2, 2) for node in graph.nodes})


@cache
def cases() -> tuple[Case, ...]:
    """Pixels narrower and wider than the bus, whole and broken bytes, packets of one word, several inputs and outputs."""
    chosen = ((0, 64), (1, 256), (4, 32), (5, 32))
    return (*(case(random_graph(seed), f"r{seed}", bits) for seed, bits in chosen), case(narrow(), "narrow", 64),
            folded(), case(random_graph(1), "oneword", 512))


def two_inputs() -> Case:
    """The case with two inputs and two outputs, of different widths."""
    return next(c for c in cases() if len(c.shell.core.inputs) == 2 and len(c.shell.core.outputs) == 2)


@cache
def tampered() -> Case:
    """The first case with one adder of its core made a subtractor, but the shell of the right one."""
    right = cases()[0]
    core = right.shell.core
    name = next(n for n, text in core.files.items() if "_acc_" in text and " + " in text)
    wrong = replace(core, files={**core.files, name: core.files[name].replace(" + ", " - ", 1)})
    return replace(right, shell=replace(right.shell, core=wrong))
