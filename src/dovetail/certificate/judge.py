"""What a plan costs by the rules, in fractions: nothing is rounded but the prices themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from dovetail.certificate.columns import Columns, DividedNode, Numbers, columns_of, limits_of
from dovetail.certificate.rules import ArmClock, Rules, Spent, TensorPlaces, delivery, run
from dovetail.errors import BuildError
from dovetail.ir import Axis, Graph
from dovetail.ir.branches import Block, in_order
from dovetail.platform.device import Platform


@dataclass(frozen=True, slots=True)
class ExactFigures:
    """Seconds and joules of one frame, seconds between frames, and what of each limited resource is taken."""

    latency_s: Fraction
    energy_j: Fraction
    interval_s: Fraction
    taken: Mapping[tuple[str, str], Fraction]


def judge(graph: Graph, platform: Platform, splits: Mapping[str, DividedNode]) -> ExactFigures:
    """The exact cost of a plan; BuildError names the first node whose split cannot be."""
    graph, forks = in_order(graph)
    for node in graph.nodes:
        if node.name not in splits:
            raise BuildError(f"assignment: node {node.name} is missing; make the plan again")
        _check(graph, platform, node.name, splits[node.name])
    rules = Rules(graph, platform, exact=True)
    own = columns_of(graph, platform, {n.name: [splits[n.name]] for n in graph.nodes}, exact=True)
    for node in graph.nodes:
        if not len(own[node.name]):
            raise BuildError(f"node {node.name}: {_words(splits[node.name])} cannot run there, or exceeds the device alone")
    places = {t: rules.home(t) for t in graph.inputs} | {
        n.output: TensorPlaces(own[n.name].held, own[n.name].stream_s) for n in graph.nodes}
    alone = {n.name: run(rules, own[n.name], [places[t] for t in n.inputs]) for n in graph.nodes}
    latency: Any = Fraction(0)
    hidden: set[str] = set()
    for block in forks:
        devices = arm_devices(block, splits)
        if devices is not None and block.nodes[0].name not in hidden:
            whole_join = block.meets and splits[block.join.name].axis is None
            around = [(n, d) for arm, d in zip(block.arms, devices, strict=True) for n in arm]
            around += [(block.join, splits[block.join.name].pieces[0][0])] if whole_join else []
            hidden |= {n.name for n, _ in around}
            latency += at_once(rules, [(own[n.name], rules.names.index(d)) for n, d in around], places)[0].item()
    latency += sum(alone[n.name].done_s.item() for n in graph.nodes if n.name not in hidden)
    home = [delivery(rules, t, places[t]) for t in graph.outputs]
    latency += sum(h.done_s.item() for h in home)
    joules = sum((own[n.name].energy_j.item() + alone[n.name].moved_j.item() for n in graph.nodes), Fraction(0))
    joules += sum((h.moved_j.item() for h in home), Fraction(0)) + rules.idle_w * latency
    busy: dict[str, Fraction] = {}
    for spent in (*alone.values(), *home):
        for name, seconds in spent.busy_s.items():
            busy[name] = busy.get(name, Fraction(0)) + seconds.item()
    amounts = sum((own[n.name].amounts[0] for n in graph.nodes), np.full(len(limits_of(platform)), Fraction(0)))
    return ExactFigures(latency, joules, max(busy.values(), default=Fraction(0)),
                     dict(zip(limits_of(platform), amounts.tolist(), strict=True)))


def arm_devices(block: Block, splits: Mapping[str, DividedNode]) -> tuple[str, ...] | None:
    """The device of every arm if arms run at once: each whole on one device, and not all on the same."""
    found = [{splits[n.name] for n in arm} for arm in block.arms]
    if any(len(own) > 1 or next(iter(own)).axis is not None for own in found):
        return None
    devices = tuple(next(iter(own)).pieces[0][0] for own in found)
    return devices if len(set(devices)) > 1 else None


def at_once(rules: Rules, around: Sequence[tuple[Columns, int]],
            places: Mapping[str, TensorPlaces]) -> tuple[Numbers, list[Spent]]:
    """When the last of some nodes is done that begin together, each whole on a device (one column); and what each spent."""
    lanes: dict[str, Numbers] = {}
    made: dict[str, tuple[int, Numbers]] = {}
    free: dict[int, Numbers] = {}
    spent: list[Spent] = []
    for own, d in around:
        ready: dict[int, Numbers] = {}
        for t in own.node.inputs:
            if t in made:
                where, at = made[t]
                ready[where] = np.maximum(ready[where], at) if where in ready else at
        begin = np.maximum(free.get(d, rules.zeros(1, 1)), ready.get(d, rules.zeros(1, 1)))
        found = run(rules, own, [places[t] for t in own.node.inputs], ArmClock(lanes, ready, {d: begin}))
        made[own.node.output], free[d] = (d, found.done_s), found.done_s
        spent.append(found)
    latest = spent[0].done_s
    for found in spent[1:]:
        latest = np.maximum(latest, found.done_s)
    return latest, spent


def _check(graph: Graph, platform: Platform, name: str, split: DividedNode) -> None:
    node, where = graph.node(name), f"node {name}"
    shapes = graph.input_shapes(node)
    devices = [d for d, _, _ in split.pieces]
    if not devices or len(set(devices)) != len(devices) or not {d.name for d in platform.devices}.issuperset(
            [*devices, *([split.reducer] if split.reducer is not None else [])]):
        raise BuildError(f"{where}: {_words(split)} names a device twice, or one that the board does not have")
    if split.axis is not None and split.axis not in node.op.axes(shapes):
        raise BuildError(f"{where}: {node.op.kind} cannot be divided along {split.axis}")
    extent = 1 if split.axis is None else node.op.extent(split.axis, shapes)
    edges = [0, *(stop for _, _, stop in split.pieces)]
    if [start for _, start, _ in split.pieces] != edges[:-1] or edges[-1] != extent or sorted(set(edges)) != edges:
        raise BuildError(f"{where}: {_words(split)} does not cover {split.axis or 'the whole node'} [0, {extent}) once, in order")
    if (split.axis is Axis.INPUT_CHANNELS) != (split.reducer is not None) or (split.axis is None and len(devices) > 1):
        raise BuildError(f"{where}: {_words(split)} needs a reducer, or names one that it does not need")


def _words(split: DividedNode) -> str:
    parts = ", ".join(f"{d} [{a}, {b})" for d, a, b in split.pieces)
    return f"{split.axis or 'whole'} over {parts}" + (f", added on {split.reducer}" if split.reducer else "")
