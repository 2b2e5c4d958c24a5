"""Random legal plans for random networks on random boards, default plans for networks of the zoo, and the hardware of both."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from dovetail.cost.accelerator import arrays_of
from dovetail.cost.array import Config
from dovetail.errors import InfeasibleError, UnsupportedError
from dovetail.fpga.design import Design
from dovetail.fpga.part import load_part
from dovetail.hardware.arrays.layers import layers_of
from dovetail.hardware.arrays.program import divides
from dovetail.ir import Axis, Conv, Graph
from dovetail.numerics.calibration import synthetic
from dovetail.numerics.quantize import quantize_graph
from dovetail.partition.accelerator.architecture import accelerated_device, accelerator_of, judge
from dovetail.partition.accelerator.blocks import Blocks, cut_points
from dovetail.partition.accelerator.search import AcceleratorSearch
from dovetail.partition.plan import Assignment, Goal, Piece, Plan, Split, whole_on
from dovetail.planning import Options, decide, weighed
from dovetail.platform.accelerator import AcceleratorDesign, Architecture
from dovetail.platform.device import Kind, Platform
from dovetail.platform.load import load_platform
from dovetail.progress import silent
from dovetail.runtime.generate import Hardware, write_parts
from dovetail.schedule.program import Program, lower
from lib.clocks.networks import random_network
from lib.several_boards import several
from lib.zoo_graph import network

BOARDS = ("zc706", "zcu102", "kcu105", "ecp5-85", "tx2-c10gx")
PLANS, FIRST_SEED = 40, 1000
TRIES = 50
"""Draws of a network and a board until one has a plan of the kind asked for."""
Draw = np.random.Generator


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan with the board as it became; `bounds` are clocks that no accelerator for the same nodes goes below, by goal."""

    name: str
    kind: str
    graph: Graph
    plan: Plan
    platform: Platform
    bounds: dict[str, float]

    @property
    def program(self) -> Program:
        return lower(self.graph, self.plan.assignment)

    def priced(self, name: str) -> float:
        """Clocks that a plan charges the nodes of a segment, other devices' shares of them included."""
        (segment,) = (s for s in self.program.segments if s.name == name)
        clock_hz = self.platform.device(segment.device).clock_hz
        assert clock_hz is not None, "every FPGA has a clock"
        return sum(n.compute_s for n in self.plan.nodes if n.node in segment.nodes) * clock_hz


def random_plan(number: int) -> Planned:
    """The plan of a number: its kind follows from it, all else is drawn until there is such a plan."""
    draw, kind = np.random.default_rng(FIRST_SEED + number), list(KINDS)[number % len(KINDS)]
    for _ in range(TRIES):
        seed, goal = int(draw.integers(FIRST_SEED, 1 << 20)), Goal.LATENCY if draw.random() < 0.5 else Goal.THROUGHPUT
        graph, board = random_network(seed), load_platform(BOARDS[draw.integers(len(BOARDS))])
        try:
            plan, platform, bounds = KINDS[kind](graph, board, goal, draw)
        except (InfeasibleError, UnsupportedError):
            continue
        if plan.clocks:
            return Planned(f"plan {number}", kind, graph, plan, platform, bounds)
    raise InfeasibleError(f"plan {number}: no {kind} plan in {TRIES} draws")


Drawn = tuple[Plan, Platform, dict[str, float]]


def _decided(graph: Graph, board: Platform, options: Options, places: Assignment | None = None) -> tuple[Plan, Platform]:
    plan, _, platform = decide(graph, board, options, places)
    return plan, platform


def _bounds(graph: Graph, board: Platform) -> dict[str, float]:
    """Clocks of one frame and between frames that no accelerator for a whole graph goes below."""
    device = accelerated_device(board)
    return {name: judge(graph, device, Architecture.AUTO, goal).bound
            for name, goal in (("one_frame", Goal.LATENCY), ("interval", Goal.THROUGHPUT))}


def _on_fpga(graph: Graph, board: Platform) -> dict[str, Split]:
    return {node.name: whole_on(accelerated_device(board).name) for node in graph.nodes}


def direct(graph: Graph, board: Platform, goal: Goal, _: Draw) -> Drawn:
    """Every layer mapped directly."""
    return *_decided(graph, board, Options(goal, fold="none"), _on_fpga(graph, board)), _bounds(graph, board)


def folded(graph: Graph, board: Platform, goal: Goal, draw: Draw) -> Drawn:
    """Layers that share multipliers at a random pace."""
    pixels = int(np.prod(graph.shape(graph.inputs[0])[2:]))
    options = Options(goal, fold=int(pixels * 2 ** draw.uniform(0, 6)))
    return *_decided(graph, board, options, _on_fpga(graph, board)), _bounds(graph, board)


def divided(graph: Graph, board: Platform, goal: Goal, draw: Draw) -> Drawn:
    """Nodes on random devices, some convolutions' filters on two."""
    fpga, places = accelerated_device(board).name, dict[str, Split]()
    for node in graph.nodes:
        places[node.name] = whole_on(fpga if draw.random() < 0.7 else board.host)
        if isinstance(node.op, Conv) and node.op.groups == 1 and draw.random() < 0.3:
            cut, both = int(draw.integers(1, node.op.filters)), [d.name for d in board.devices if d.name in (fpga, board.host)]
            places[node.name] = Split(Axis.OUTPUT_CHANNELS, (Piece(both[0], 0, cut), Piece(both[1], cut, node.op.filters)))
    pace = None if draw.random() < 0.5 else int(2 ** draw.uniform(7, 12))
    return *_decided(graph, board, Options(goal, fold=pace or "none"), places), {}


def _accelerated(graph: Graph, board: Platform, goal: Goal, made: AcceleratorDesign, bounds: dict[str, float]) -> Drawn:
    device = accelerated_device(board)
    return *_decided(graph, board.with_accelerator(device.name, made), Options(goal), _on_fpga(graph, board)), bounds


def hybrid(graph: Graph, board: Platform, goal: Goal, draw: Draw) -> Drawn:
    """Dedicated engines up to a random cut and arrays behind it, on a random part of the board."""
    small = board.with_area(float(draw.choice([0.1, 0.2, 0.4])))
    cut, device = int(draw.choice(cut_points(graph)[1:-1])), accelerated_device(small)
    search = AcceleratorSearch(graph, device, (cut,), Blocks(graph, device))
    found = search.fastest() if goal is Goal.THROUGHPUT else search.quickest()
    return _accelerated(graph, board, goal, accelerator_of(graph, found, Architecture.FIBHA), _bounds(graph, small))


def arrays(graph: Graph, board: Platform, goal: Goal, draw: Draw) -> Drawn:
    """One or two arrays for all layers, on a random part of the board."""
    small, kind = board.with_area(float(draw.choice([0.05, 0.1, 0.3]))), draw.choice([Architecture.SEML, Architecture.MONOLITHIC])
    found = judge(graph, accelerated_device(small), Architecture(kind), goal)
    return _accelerated(graph, board, goal, found.accelerator, _bounds(graph, small))


def outside(graph: Graph, board: Platform, goal: Goal, draw: Draw) -> Drawn:
    """Arrays of random size with memories too small for the maps, which lie in external memory."""
    width = int(draw.choice([4, 8]))
    config = Config(width, width * int(draw.choice([1, 2, 4])), int(draw.choice([3, 5, 9])),
                    bandwidth_bytes=int(draw.choice([4, 8, 16])), latency_clocks=int(draw.integers(8, 100)),
                    map_bytes=int(draw.choice([128, 256, 512])))
    if not divides(layers_of(graph, tuple(n.name for n in graph.nodes), False), config):
        raise UnsupportedError("all maps lie on the chip")
    made = AcceleratorDesign(Architecture.SEML, {}, tuple(n.name for n in graph.nodes), arrays_of(config))
    return _accelerated(graph, board, goal, made, _bounds(graph, board))


def two_fpgas(graph: Graph, board: Platform, goal: Goal, draw: Draw) -> Drawn:
    """Two FPGAs, one behind the other."""
    if board.name not in ("zc706", "zcu102", "kcu105"):
        raise UnsupportedError(f"{board.name}: not among the boards that are doubled")
    both, cut = several(board.name, 2), int(draw.integers(1, len(graph.nodes)))
    places = {node.name: whole_on(f"fpga{int(i >= cut)}") for i, node in enumerate(graph.nodes)}
    pace = None if draw.random() < 0.5 else int(2 ** draw.uniform(7, 12))
    return *_decided(graph, both, Options(goal, fold=pace or "none"), places), {}


def default(graph: Graph, board: Platform, goal: Goal, draw: Draw) -> Drawn:
    """Whatever is best, without a switch; a random part of the board."""
    return *_decided(graph, board.with_area(float(draw.choice([0.1, 0.3, 1.0]))), Options(goal)), {}


KINDS: dict[str, Callable[[Graph, Platform, Goal, Draw], Drawn]] = {
    "direct": direct, "folded": folded, "hybrid": hybrid, "arrays": arrays, "external maps": outside, "divided": divided,
    "two FPGAs": two_fpgas, "default": default}
"""Kinds of plans, drawn in turn."""

ZOO: dict[str, tuple[str, Goal, Architecture | None]] = {
    "mobilenet-v3-small@64": ("zcu102", Goal.LATENCY, None),
    "mobilenet-v1@32": ("ecp5-85", Goal.THROUGHPUT, Architecture.SEML),
    "proxylessnas-mobile@32": ("ecp5-85", Goal.THROUGHPUT, Architecture.MONOLITHIC),
    "mnasnet@32": ("ecp5-85", Goal.LATENCY, Architecture.SEML),
    "efficientnet-b0@32": ("ecp5-85", Goal.LATENCY, Architecture.SEML),
    "efficientnet-lite0@32": ("ecp5-85", Goal.LATENCY, Architecture.MONOLITHIC),
    "resnet18@32": ("ecp5-85", Goal.LATENCY, Architecture.SEML),
    "mobilenet-v2-0.5@32": ("zc706", Goal.THROUGHPUT, Architecture.FIBHA),
    "squeezenet1.1@32": ("kcu105", Goal.LATENCY, None),
    "mobilenet-v2": ("zcu102", Goal.LATENCY, None),
    "unet-small@32": ("zcu102", Goal.LATENCY, None),
    "shufflenet-v2-0.5@32": ("zcu102", Goal.THROUGHPUT, None),
}
"""Networks of the zoo with board, goal and architecture, None for default plans.

`@32`: images of 32 x 32 pixels, so that compiling and simulating takes a few minutes at most.
"""


def zoo_plan(name: str) -> Planned:
    """The plan of a network of the zoo, as `ZOO` has it; the bound is what its accelerator was chosen with."""
    board, goal, architecture = ZOO[name]
    graph = network(name)
    graph = quantize_graph(graph, synthetic(graph, 4, 0))
    plan, _, space = weighed(graph, load_platform(board), Options(goal, architecture=architecture))
    form, clocks = space.forms[space.best], "interval" if goal is Goal.THROUGHPUT else "one_frame"
    bounds = {} if form.judged is None else {clocks: form.judged.bound}
    return Planned(name, architecture.value if architecture else "default", graph, plan, form.platform, bounds)


def parts_of(planned: Planned) -> dict[str, tuple[Graph, Design]]:
    """The segments on FPGAs by name, as `dovetail compile` writes them."""
    program, fpgas = planned.program, {d.name for d in planned.platform.of_kind(Kind.FPGA)}
    with TemporaryDirectory() as folder:
        write_parts(Path(folder), program, planned.platform, Hardware(), silent)
        return {s.name: (s.graph, load_part(s.graph, Path(folder) / Kind.FPGA.value).design)
                for s in program.segments if s.device in fpgas}
