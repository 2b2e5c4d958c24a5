"""When a design does what: latency and interval from closed forms, and the FIFOs without which it would be slower.

The design is timed three times. *Eager* times assume that sources send at once and no FIFO ever fills: they are the earliest
possible, and those of the outputs are the promise. *Late* times are the latest that still keep it; from them come the latest
times of the graph's inputs. The *paced* schedule starts from those, each engine as soon as it can: a fast engine before a slow
one no longer computes ahead. An engine that lets a map wait for one value per channel takes it as late as it may, so that the
map waits once, in front of it, and not again behind it. FIFOs that hold what waits in the paced schedule are deep enough:
engines that run as soon as they can, held up by full FIFOs alone, are never later than any schedule those FIFOs allow.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dovetail.fpga.engines.stream import Engine
from dovetail.fpga.network import Station, StreamNetwork
from dovetail.hardware.streaming import CREDIT_RESERVE, CREDIT_RETURN_CYCLES, FIFO_LATENCY_CYCLES, Cycles, high_water, issue_times

FIFO_MARGIN = 2
"""Beats a branch FIFO holds beyond the most it needs in the unstalled design."""
MODEL_FRAMES = (3, 6, 12, 24)
"""Frames over which branch FIFOs are sized: as many as it takes until more frames ask for the same depths."""


@dataclass(frozen=True, slots=True)
class DesignTiming:
    """The unstalled design in time: cycle 1 takes the first beat."""

    latency_cycles: int
    interval_cycles: int
    fifo_depths: dict[tuple[str, int], int]
    """By (node, input): depth of the FIFO in front of it."""


Links = dict[tuple[str, int], Cycles]
"""By (node, input): a clock for every beat."""
NEVER = np.iinfo(np.int64).max // 4


def time_network(network: StreamNetwork) -> DesignTiming:
    """Latency, interval and FIFO depths, with no stalls at either end."""
    every = [e for station in network.stations for e in station.engines]
    interval = max([1, *(e.steps for e in every), *(network.formats[t].beats for t in network.inputs)])
    holding, found = links_that_hold_up(network), None
    for frames in MODEL_FRAMES:
        before, found = found, _timed(network, frames, interval, holding)
        if not found.fifo_depths or found == before:
            break
    assert found is not None, "there are numbers of frames"
    return found


def _timed(network: StreamNetwork, frames: int, interval: int, holding: dict[tuple[str, int], str]) -> DesignTiming:
    """The design in time over so many frames that follow each other."""
    beats = {t: 1 + np.arange(network.formats[t].beats) + interval * np.arange(frames)[:, None] for t in network.inputs}
    buffered = frozenset[tuple[str, int]]()
    while True:
        eager, arrivals, _ = run_freely(network, beats, {}, buffered)
        paced, _, taken = run_freely(network, *late_inputs(network, eager, arrivals, buffered), buffered)
        more = {link for link, stream in holding.items()
                if link not in buffered and _must_wait(network, stream, paced[stream], taken[link])}
        if not more:
            break
        buffered |= more
    depths = {link: high_water(paced[holding[link]].reshape(-1), taken[link].reshape(-1)) + FIFO_MARGIN
              for link in sorted(buffered)}
    latency = max(int(eager[t][0, -1]) for t in network.outputs)
    return DesignTiming(latency, interval, depths)


def run_freely(network: StreamNetwork, inputs: dict[str, Cycles], waits: dict[str, Cycles],
               buffered: frozenset[tuple[str, int]]) -> tuple[dict[str, Cycles], Links, Links]:
    """The earliest clocks from those of the inputs' beats: when tensors can be taken, reach a node, and are taken by it.

    Nodes in `waits`, of one engine each, make no step before the clock given there.
    """
    ready = dict(inputs)
    arrivals: Links = {}
    taken: Links = {}
    for node in network.stations:
        links = [(node.name, index) for index in range(len(node.inputs))]
        for link, stream in zip(links, node.inputs, strict=True):
            arrivals[link] = ready[stream] + FIFO_LATENCY_CYCLES * (link in buffered)
        times = [arrivals[link] for link in links]
        for position, engine in enumerate(node.engines):
            issued = issue_times(times, [engine.asks(i) for i in range(len(times))], engine.steps)
            if node.name in waits:
                issued = np.maximum(issued, waits[node.name])
            if not position:
                taken |= {link: issued[:, engine.takes(i)] for i, link in enumerate(links)}
            times = [_leaves(engine, issued)]
        ready[node.output] = times[0]
    return ready, arrivals, taken


def _leaves(engine: Engine, issued: Cycles) -> Cycles:
    """When the outputs of issued steps can be taken."""
    return issued[:, engine.output_steps] + engine.stages + FIFO_LATENCY_CYCLES


def late_inputs(network: StreamNetwork, ready: dict[str, Cycles], arrivals: Links,
                buffered: frozenset[tuple[str, int]]) -> tuple[dict[str, Cycles], dict[str, Cycles]]:
    """The latest clocks of the graph inputs' beats with which every graph output is as early as `ready` says.

    Then the same of the steps of engines that keep one input for the whole map of another.
    """
    needed, steps = {t: ready[t] for t in network.outputs}, dict[str, Cycles]()
    for node in reversed(network.stations):
        latest = _late_steps(node, needed.get(node.output, ready[node.output]), arrivals)
        times = [latest[:, node.engines[0].asks(i)] for i in range(len(node.inputs))]
        if node.engines[0].keeps:
            steps[node.name] = latest
        for index, stream in enumerate(node.inputs):
            before = times[index] - FIFO_LATENCY_CYCLES * ((node.name, index) in buffered)
            needed[stream] = np.minimum(needed.get(stream, before), before)
    return {t: _latest(needed.get(t, ready[t]).reshape(-1), ready[t]) for t in network.inputs}, steps


def _late_steps(node: Station, deadline: Cycles, arrivals: Links) -> Cycles:
    """The latest clocks of a node's first engine's steps so that its output can be taken at its deadlines."""
    times = [arrivals[node.name, index] for index in range(len(node.inputs))]
    issues = []
    for engine in node.engines:
        issues.append(issue_times(times, [engine.asks(i) for i in range(len(times))], engine.steps))
        times = [_leaves(engine, issues[-1])]
    for engine, issued in zip(reversed(node.engines), reversed(issues), strict=True):
        limits = np.full(issued.shape, NEVER)
        limits[:, engine.output_steps] = deadline - engine.stages - FIFO_LATENCY_CYCLES
        latest = _latest(limits.reshape(-1), issued)
        deadline = latest[:, engine.asks(0)]
    return latest


def _latest(limits: Cycles, eager: Cycles) -> Cycles:
    """The latest clocks within limits, one per clock and in order; where nothing limits them, the eager ones."""
    index = np.arange(limits.size, dtype=np.int64)
    slots = (np.minimum.accumulate((limits - index)[::-1])[::-1] + index).reshape(eager.shape)
    return np.where(slots > NEVER // 2, eager, slots)


def _must_wait(network: StreamNetwork, stream: str, ready: Cycles, taken: Cycles) -> bool:
    """Whether beats wait in front of an input longer than their producer's own output FIFO can bear."""
    if int((taken - ready).max()) <= 1:
        return False
    producer = network.producer(stream)
    if producer is None or len(network.takers[stream]) > 1:
        return True
    return _credits(producer.engines[-1], ready, taken) > producer.engines[-1].fifo_depth


def links_that_hold_up(network: StreamNetwork) -> dict[tuple[str, int], str]:
    """Inputs where a wait would hold up other streams; a source that feeds nothing else, beside strangers, may wait."""
    sources = {t: frozenset([t]) for t in network.inputs}
    found: dict[tuple[str, int], str] = {}
    for node in network.stations:
        for index, stream in enumerate(node.inputs):
            shared = any(sources[stream] & sources[other] for i, other in enumerate(node.inputs) if i != index)
            if shared or stream not in network.inputs or len(network.takers[stream]) > 1:
                found[node.name, index] = stream
        sources[node.output] = frozenset().union(*(sources[s] for s in node.inputs))
    return found


def _credits(engine: Engine, ready: Cycles, taken: Cycles) -> int:
    """Entries an output FIFO needs so that beats, ready at these clocks, may wait until they are taken.

    A step asks whether the FIFO had room three clocks ago, with all that was issued until now.
    """
    after = (ready - engine.stages - FIFO_LATENCY_CYCLES).reshape(-1) + 1
    left = np.searchsorted(taken.reshape(-1), after - CREDIT_RETURN_CYCLES, side="right")
    return int((np.arange(1, len(after) + 1) - left).max()) + CREDIT_RESERVE + 1
