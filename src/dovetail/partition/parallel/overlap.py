"""Arms of a block at once: who runs beside whom, and when each node is done.

In concurrent mode the arms of a block (see `branches`) run at the same time if every arm lies on one device, each of its
nodes whole, and they are not all on the same one. That is decided by the assignment alone, so a plan file needs no word
about it. Everything starts where the block does and follows the rules of single nodes: in topological order each transfer
takes its lanes as soon as they are free and what it moves is there, and each node its device as soon as its input has come;
arms on the same device therefore run one after the other. If the join follows right behind and is whole too, it belongs to
the block: what an arm made is on its way there while others still run. The block ends with its last node. As nothing waits
longer than it would one after another, it never takes longer than the sum of its nodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf

from dovetail.ir.branches import Block
from dovetail.partition.plan import Assignment
from dovetail.partition.work import Work, occupy


@dataclass(frozen=True, slots=True)
class ArmRun:
    """One node of a block at work, in seconds since the block began."""

    node: str
    device: str
    start_s: float
    stop_s: float


def arm_devices(block: Block, assignment: Assignment) -> tuple[str, ...] | None:
    """The device of every arm if the arms run at once, None if they do not."""
    found: list[str] = []
    for arm in block.arms:
        first = assignment[arm[0].name]
        if first.axis is not None or any(assignment[n.name] != first for n in arm[1:]):
            return None
        found.append(first.devices[0])
    return tuple(found) if len(set(found)) > 1 else None


def join_device(block: Block, assignment: Assignment) -> str | None:
    """The device of the join if it belongs to a block whose arms run at once."""
    split = assignment[block.join.name] if block.meets else None
    return split.devices[0] if split is not None and split.axis is None else None


def run_arms(block: Block, devices: tuple[str, ...], join: str | None, works: Mapping[str, Work]) -> tuple[ArmRun, ...]:
    """When each node of a block runs whose arms are at work on the given devices at once, and its join (None: later)."""
    lanes: dict[str, float] = {}
    free: dict[str, float] = {}
    made: dict[str, tuple[str, float]] = {}
    found: list[ArmRun] = []
    placed = [(n, d) for arm, d in zip(block.arms, devices, strict=True) for n in arm]
    for node, device in (*placed, *([(block.join, join)] if join is not None else [])):
        work, ready = works[node.name], dict[str, float]()
        for where, at in (made[t] for t in node.inputs if t in made):
            ready[where] = max(ready.get(where, 0.0), at)
        begin = max(free.get(device, 0.0), ready.get(device, 0.0))
        start, first, arrived = inf, begin, begin
        for m in work.arrivals:  # what no node of the block made was there before it
            stop = occupy(lanes, m, ready.get(m.source, 0.0))
            start = min(start, stop - m.seconds)
            first = max(first, stop - m.seconds - m.before_s + m.lead_s)
            arrived = max(arrived, stop)
        free[device] = work.done_s(0, first, arrived)
        made[node.output] = device, free[device]
        found.append(ArmRun(node.name, device, min(start, begin), free[device]))
    return tuple(found)


def beside(runs: tuple[ArmRun, ...], own: ArmRun) -> tuple[str, ...]:
    """The nodes on other devices that are at work while a given one is."""
    return tuple(r.node for r in runs if r.device != own.device and r.start_s < own.stop_s and own.start_s < r.stop_s)
