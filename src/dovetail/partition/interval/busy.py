"""What a frame keeps busy, and so how often frames can follow each other.

Frames are pipelined: while one is on the GPU, the next is on the FPGA. In the steady state a processor (CPU, GPU) and a
direction of a link serve every frame in turn, so what a frame asks of each adds up. An engine of an FPGA is hardware of its
own and works on nothing else: each counts by itself, for as long as a frame takes to pass it alone. The arrays of an
accelerator serve many layers, whose times add up, without what overlaps with the frame before; and where every layer has the
FPGA to itself (`per_layer`), it is used again and its times add up too. The busiest of all sets the *interval* between frames.
No order of tasks can go below it, and with frames buffered between tasks it is reached: every task runs once per interval, on
one thing at a time, as many intervals later as its data need. Transfers over several links are charged whole to each. In
`sequential` mode nothing overlaps, frames neither: the interval is the latency.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dovetail.cost.accelerator import part_between_frames
from dovetail.ir import Node
from dovetail.partition.memo import Cache
from dovetail.partition.plan import Split
from dovetail.partition.problem import Problem
from dovetail.partition.work import Move, Work

REUSED = "shared by layers"
"""Stands for a node's name where an engine serves many."""
OCCUPIED = Cache[str, float](lasting=True)
"""By device, `occupied` of its arrays."""


def worker(problem: Problem, device: str, node: str) -> str:
    """What a piece of a node keeps busy: its device, or the engine that it has for itself there."""
    if not problem.streams(device) or not problem.shared_budget:
        return device
    return arrays(device) if node in reusable(problem, device) else f"{device} engine {node}"


def arrays(device: str) -> str:
    """The engines that all reusable layers of an accelerator share."""
    return f"{device} engine {REUSED}"


def reusable(problem: Problem, device: str) -> tuple[str, ...]:
    """Nodes whose layers share the arrays of an FPGA."""
    accelerator = problem.platform.device(device).accelerator
    return () if accelerator is None else accelerator.reusable


def occupied(problem: Problem, device: str, node: str) -> float:
    """Of the seconds of a piece by itself, the part that keeps its engine from the next frame: arrays load one meanwhile."""
    if node not in reusable(problem, device):
        return 1.0
    known = problem.memo.of(OCCUPIED)
    if device not in known:
        known[device] = part_between_frames(problem.graph, problem.platform.device(device))
    return known[device]


def busy_of(problem: Problem, node: Node, split: Split, work: Work) -> dict[str, float]:
    """Seconds per frame that one node keeps each processor, engine and direction of a link busy."""
    found: dict[str, float] = {}
    for i, piece in enumerate(split.pieces):
        name = worker(problem, piece.device, node.name)
        own_s = work.pieces[i].alone_s
        spent = work.compute_s(i) if name == piece.device else own_s * occupied(problem, piece.device, node.name)
        found[name] = found.get(name, 0.0) + spent
    if work.reduce is not None and split.reducer is not None:
        name = worker(problem, split.reducer, f"{node.name} sum")
        found[name] = found.get(name, 0.0) + work.reduce.alone_s
    return moved(found, (*work.arrivals, *work.partials))


def moved(busy: dict[str, float], moves: Iterable[Move]) -> dict[str, float]:
    """`busy` with the time that transfers occupy their links, which may begin before their node does."""
    for m in moves:
        for lane in m.lanes:
            busy[lane] = busy.get(lane, 0.0) + m.before_s + m.seconds
    return busy


def added(parts: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """What all nodes together keep busy."""
    total: dict[str, float] = {}
    for part in parts:
        for name, seconds in part.items():
            total[name] = total.get(name, 0.0) + seconds
    return total


def busiest(problem: Problem, busy: Mapping[str, float]) -> dict[str, float]:
    """Processors, directions of links and the slowest engine of each FPGA, busiest first: the first sets the pace."""
    engines = {d: max((n for n in busy if n.startswith(f"{d} engine ")), key=busy.__getitem__, default=None)
               for d in problem.devices if problem.streams(d)}
    kept = {n: s for n, s in busy.items() if s > 0 and (" engine " not in n or n in engines.values())}
    return dict(sorted(kept.items(), key=lambda entry: (-entry[1], entry[0])))
