"""Bundles of random networks for one Verilator build each: every shape of network, mapped directly, folded, at any scale."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from dovetail.errors import MismatchError
from dovetail.fpga.assemble import build_design, unsupported
from dovetail.fpga.design import Design
from dovetail.fpga.toolchain.simulate import simulate_many
from dovetail.ir import Array, Graph
from dovetail.numerics.reference import run_integer
from tests.fpga.random_graphs import NETWORKS, SIZES, Sketch, random_folds, random_inputs
from tests.scales import with_arbitrary_scales

BUNDLE = 25
FRAMES = 2
TRIES = 1_000


@dataclass(frozen=True, slots=True)
class Drawn:
    """A random network with its hardware, the frames it is given, and how it was drawn."""

    number: int
    graph: Graph
    design: Design
    inputs: dict[str, Array]

    @property
    def operators(self) -> frozenset[str]:
        return frozenset(node.op.kind for node in self.graph.nodes)


def draw(number: int) -> Drawn:
    """Network `number`, always the same: shapes take turns; of four, one is folded, one has arbitrary scales, one has both.

    Shapes that no hardware has (a pooling window in the padding alone, say) are drawn again.
    """
    for attempt in range(TRIES):
        rng = np.random.default_rng((number, attempt))
        s = Sketch(rng)
        height, width = SIZES[(number + number // len(SIZES)) % len(SIZES)]
        x = s.input((1, s.integer(1, 4), height, width), signed=bool(rng.random() < 0.6), exponent=s.integer(-8, -4))
        graph = NETWORKS[number % len(NETWORKS)](s, x)
        kind = number // len(NETWORKS) % 4
        if kind in (2, 3):
            graph = with_arbitrary_scales(graph, number)
        if all(unsupported(graph, node) is None for node in graph.nodes):
            folds = random_folds(graph, number) if kind in (1, 3) else {}
            return Drawn(number, graph, build_design(graph, f"n{number}", folds=folds), random_inputs(graph, FRAMES, number))
    raise AssertionError(f"network {number}: nothing that can be mapped in {TRIES} tries")


def mismatches(bundle: Iterable[Drawn]) -> list[str]:
    """What differs from the reference, without and with stalls at both ends, or from the promised clocks."""
    networks, found = list(bundle), list[str]()
    for stall_seed in (None, networks[0].number):
        simulations = simulate_many([(n.design, n.inputs) for n in networks], stall_seed)
        for network, simulation in zip(networks, simulations, strict=True):
            expected = run_integer(network.graph, network.inputs)
            stalls = "with stalls" if stall_seed is not None else "without stalls"
            found += [f"network {network.number} {stalls}: {tensor} differs" for tensor in network.graph.outputs
                      if not np.array_equal(simulation.outputs[tensor].reshape(expected[tensor].shape), expected[tensor])]
            if stall_seed is None and simulation.frame_cycles[0] != network.design.latency_cycles:
                found.append(f"network {network.number}: {simulation.frame_cycles[0]} clocks instead of "
                             f"{network.design.latency_cycles}")
    return found


@dataclass(frozen=True, slots=True)
class Campaign:
    """What many networks showed."""

    networks: int
    mismatches: tuple[str, ...]
    operators: dict[str, int]
    """Networks by the operators they contain."""


def run_bundles(numbers: Sequence[int], on_bundle: Callable[[int, int], None] | None = None) -> Campaign:
    """Networks of these numbers, a bundle at a time; `on_bundle` hears how many are done and how many differ.

    A design that locks up or breaks the protocol ends its bundle; the bundle is then run network by network to name it.
    """
    wrong, operators = list[str](), dict[str, int]()
    for start in range(0, len(numbers), BUNDLE):
        bundle = [draw(number) for number in numbers[start:start + BUNDLE]]
        try:
            wrong += mismatches(bundle)
        except MismatchError:
            for network in bundle:
                try:
                    wrong += mismatches([network])
                except MismatchError as error:
                    wrong.append(str(error))
        for kind in (kind for network in bundle for kind in network.operators):
            operators[kind] = operators.get(kind, 0) + 1
        if on_bundle is not None:
            on_bundle(start + len(bundle), len(wrong))
    return Campaign(len(numbers), tuple(wrong), dict(sorted(operators.items())))
