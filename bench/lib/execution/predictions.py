"""What is predicted of a network before it runs: alone on either device, and by plans, part by part."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dovetail.cost.calibrated import class_of, measured_class
from dovetail.cost.gpu_kernels import kernels_of
from dovetail.ir import Graph
from dovetail.numerics.reference import fixes_batch
from dovetail.partition.options import Options
from dovetail.partition.plan import Goal, whole_on
from dovetail.partition.plan_json import plan_to_json
from dovetail.planning import make_plan
from dovetail.platform.calibrated import CLASSES, TERMS
from dovetail.platform.device import Platform
from dovetail.platform.load import platform_from_dict, platform_to_dict
from dovetail.schedule.program import lower
from lib.execution import calibration
from lib.execution.parts import Manner, noise
from lib.execution.sessions import Sessions, profiled

ALONE = ("cpu", "gpu")
PLANS = tuple(f"plan {goal}" for goal in (Goal.LATENCY, Goal.THROUGHPUT))
STREAMED = 32
"""Frames of a stream on the CPU, which one session takes at once."""
BOUNDS = (0.01, 1000.0)
"""Of what a network's kernels take over what its layers say (chosen)."""


@dataclass(frozen=True, slots=True)
class Machine:
    """What was fitted to this machine."""

    board: Platform
    alone: tuple[Manner, Sessions]
    """A CPU part that nothing runs beside."""
    batched: tuple[Manner, Sessions]
    """One that takes the frames of a stream at once."""
    beside: tuple[Manner, Sessions]
    """One in turn with parts on the GPU."""
    waking_s: float
    """What a GPU part takes longer behind a CPU part."""
    host_s: Callable[[Graph], float]
    """Seconds of the host per frame of a stream through the GPU."""
    overlap: float
    """Seconds per frame of a stream over those of its kernels, where the GPU is what limits it."""
    streamed: int = STREAMED


def session_s(graph: Graph, model: tuple[Manner, Sessions], images: int = 1) -> dict[str, Any]:
    """What a session is predicted to take; its kernels and their sizes are those of a run whose times are dropped."""
    frames = {name: np.concatenate([x] * images) for name, x in noise(graph, 1).items()}
    return model[1].predicted(profiled(graph, model[0], frames, 1))


def network_board(graph: Graph, board: Platform, nodes: Mapping[str, float]) -> Platform:
    """The board with the CPU as a session runs this graph: classes of layers as their kernels take.

    Kernels of no node, such as changes of layout, are shared out among all nodes in proportion.
    """
    cpu, said, found = board.device("cpu"), dict[str, float](), dict[str, float]()
    own = {name: seconds for name, seconds in nodes.items() if name}
    more = 1 + nodes.get("", 0.0) / max(sum(own.values()), 1e-12)
    for cost in calibration.judged(graph, board, calibration.everything_on(graph, "cpu")).nodes:
        node = graph.node(cost.node)
        group = "" if node.op.foreign else measured_class(class_of(graph, node), cpu.parameters) or ""
        said[group] = said.get(group, 0.0) + cost.compute_s
        found[group] = found.get(group, 0.0) + own.get(node.name, 0.0) * more
    factors = {g: min(max(found[g] / said[g], BOUNDS[0]), BOUNDS[1]) for g in said if said[g] > 0}
    parameters = dict(cpu.parameters)
    for group, factor in factors.items():
        if not group:
            parameters["launch_s"] *= factor
            parameters["bandwidth_bytes_per_s"] /= factor
        for key in (k for k in cpu.parameters if group and _class_of_term(k) == group):
            parameters[key] *= factor
    cpu = replace(cpu, parameters=parameters)
    devices = tuple(cpu if d.name == cpu.name else d for d in board.devices)
    return platform_from_dict(platform_to_dict(replace(board, devices=devices)))


def _class_of_term(key: str) -> str:
    """The class whose term a parameter is; empty of all others."""
    return next((group for group in CLASSES for term in TERMS if key == f"{group}_{term}"), "")


def predicted(graph: Graph, machine: Machine) -> dict[str, Any]:
    """A network alone on either device, and by plans; a plan of several parts stands where it is better than either alone.

    The planner charges no start of parts on the host, so a plan is judged again part by part.
    """
    board, found = machine.board, dict[str, Any]()
    able = kernels_of(graph, board.device("gpu")).prices
    without = [n for n in graph.nodes if n.name not in able]
    one = session_s(graph, machine.alone)
    batch = 1 if fixes_batch(graph) else machine.streamed
    many = session_s(graph, machine.batched, batch) if batch > 1 else one
    found["cpu"] = {"latency_s": one["seconds"], "stream_s": many["seconds"] / batch,
                    **{key: one[key] for key in ("extrapolated_s", "kernels")}}
    if not without:
        gpu = calibration.said(calibration.judged(graph, board, calibration.everything_on(graph, "gpu")))
        found["gpu"] = {**gpu, "stream_s": max(machine.overlap * gpu["compute_s"], machine.host_s(graph))}
    else:
        found["gpu"] = {"not possible": f"no kernel for {len(without)} nodes, the first {without[0].name} ({without[0].op.kind})"}
    own = network_board(graph, board, one["nodes"])
    for key, goal in zip(PLANS, (Goal.LATENCY, Goal.THROUGHPUT), strict=True):
        begun = time.perf_counter()
        pins = {n.name: whole_on("cpu") for n in without}
        plan, _ = make_plan(graph, own, Options(goal=goal, explained=False, rivals=False), pins)
        taken = time.perf_counter() - begun
        program = lower(graph, plan.assignment)
        counts = {device: sum(s.device == device for s in program.segments) for device in ALONE}
        alone = next((d for d in ALONE if counts[d] == len(program.segments) == 1), None)
        row = {} if alone else by_parts(graph, machine, plan.assignment)
        term = "latency_s" if goal is Goal.LATENCY else "stream_s"
        best = min((d for d in ALONE if term in found[d]), key=lambda d: float(found[d][term]))
        kept = {} if alone or row[term] < found[best][term] else {"divided": row, "instead": best}
        alone = alone or (best if kept else None)
        found[key] = {**(found[alone] if alone else row), **kept, "planning_s": taken, "segments": counts, "alone_on": alone,
                      "planned_s": plan.objective, "lower_bound_s": plan.lower_bound, "plan": plan_to_json(plan, own)}
    return found


def by_parts(graph: Graph, machine: Machine, assignment: Any) -> dict[str, Any]:
    """A plan of several parts, one after the other as they run: kernels, copies and starts on the GPU, sessions on the CPU."""
    segments = lower(graph, assignment).segments
    busy = calibration.judged(graph, machine.board, assignment).busy_s
    cpu = sum(session_s(s.graph, machine.beside)["seconds"] for s in segments if s.device == "cpu")
    gpu = sum(s for name, s in busy.items() if name != "cpu") + machine.waking_s * sum(s.device == "gpu" for s in segments)
    return {"latency_s": cpu + gpu, "stream_s": max(cpu, gpu), "cpu_s": cpu, "gpu_s": gpu}
