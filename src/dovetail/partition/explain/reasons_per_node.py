"""A sentence per node: why it is where it is, against the best whole placement elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from dovetail.ir import Graph, Node
from dovetail.partition.evaluate import Evaluation, cost_node, delivery, reevaluate
from dovetail.partition.explain.infeasibility import obstacle, quantity
from dovetail.partition.explain.runners_up import RunnerUp
from dovetail.partition.interval.busy import added, moved
from dovetail.partition.parallel.overlap import arm_devices
from dovetail.partition.plan import Assignment, Goal, NodeCost, Split, whole_on
from dovetail.partition.problem import TWINS, Problem, price_pieces
from dovetail.partition.tables.transfers import wide
from dovetail.partition.tolerances import TOLERANCE
from dovetail.partition.work import Place, deliveries, input_places, output_place, work_of
from dovetail.platform.device import Device
from dovetail.words import counted

SHOWN = 4
"""Kernels that a note names. Chosen: what fits a line."""


@dataclass(frozen=True, slots=True)
class _Local:
    """A node's own cost under a split, and with it what its consumers and the way home cost."""

    own: NodeCost
    latency_s: float
    energy_j: float
    busy_s: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class _Rival:
    """A whole placement elsewhere, and what moving the node there would add to the objective."""

    device: str
    there: _Local
    change: float


def explain(problem: Problem, assignment: Assignment, judged: Evaluation, left_out: str,
            rivals: Mapping[str, RunnerUp] | None = None) -> dict[str, str]:
    """Node name to sentence, for an assignment and its judgement; `left_out` says why a better place may be unused.

    With `rivals`, a node is compared with the best whole plan in which it is elsewhere; without, with whole placements
    elsewhere while all other nodes stay.
    """
    places = input_places(problem)
    for node in problem.graph.nodes:
        places[node.output] = output_place(problem, node, assignment[node.name])
    # Around branches a move also decides what runs at once, so everything is judged again.
    branched = {t for b in problem.blocks for t in (b.fork, *(n.output for n in b.around))}
    kernels = shared_kernels(problem, assignment)
    return {n.name: _why(problem, assignment, places, n, judged, left_out, (rivals or {}).get(n.name), n.output in branched,
                         kernels.get(n.name, ()))
            for n in problem.graph.nodes}


def _local(problem: Problem, assignment: Assignment, places: Mapping[str, Place], node: Node, split: Split) -> _Local:
    places_after = {**places, node.output: output_place(problem, node, split)}
    own = cost_node(problem, node, split, work_of(problem, node, split, places))
    others = [cost_node(problem, c, assignment[c.name], work_of(problem, c, assignment[c.name], places_after))
              for c in problem.graph.consumers(node.output)]
    home, way = (0.0, 0.0), {}
    if node.output in problem.graph.outputs:
        home = delivery(problem, node.output, places_after[node.output])
        way = moved({}, deliveries(problem, node.output, places_after[node.output]))
    return _Local(own, own.latency_s + sum(c.latency_s for c in others) + home[0],
                  own.energy_j + sum(c.energy_j for c in others) + home[1], added([own.busy_s, way, *(c.busy_s for c in others)]))


def _why(problem: Problem, assignment: Assignment, places: Mapping[str, Place], node: Node, judged: Evaluation,
         left_out: str, second: RunnerUp | None, branched: bool, kernel: tuple[str, ...]) -> str:
    split = assignment[node.name]
    here = _local(problem, assignment, places, node, split)
    start = _here(problem, node, split, here.own, work_of(problem, node, split, places).fused)
    start += f", in one kernel with {' and '.join(n for n in kernel if n != node.name)}" if kernel else ""
    start += _at_once(judged.nodes[problem.order[node.name]])
    if node.name in problem.fixed:
        chosen = any(problem.platform.device(d).accelerator is not None for d in split.devices)
        return f"{start}; {'placed by the chosen accelerator' if chosen else 'pinned'}"
    twins = {d: problem.memo.of(TWINS).get(d, d) for d in problem.devices}
    reasons = {d: obstacle(problem, node, d) for d in dict.fromkeys(twins.values())}
    obstacles = {d: reasons[twin] for d, twin in twins.items()}
    blocked = [f"{d} cannot: {reason}" for d, reason in obstacles.items() if reason is not None and d not in split.devices]
    if second is not None:
        return "; ".join([start, _second(problem, judged, second, left_out), *blocked])
    rivals = []
    for d in (d for d in _around(problem, assignment, node) if split != whole_on(d) and obstacles[d] is None):
        there = _local(problem, assignment, places, node, whole_on(d))
        change = _change(problem, judged, here, there)
        if branched:
            change = reevaluate(problem, assignment, judged, node.name, whole_on(d)).objective - judged.objective
        rivals.append(_Rival(d, there, change))
    if not rivals:
        return "; ".join([start, *blocked])
    rival = min(rivals, key=lambda r: r.change)
    return "; ".join([_against(problem, judged, start, split, here, rival, left_out, branched), *blocked])


def _around(problem: Problem, assignment: Assignment, node: Node) -> list[str]:
    """Devices that a node is compared on: of many equal ones those it and its neighbours are on, and the first."""
    equal = set(problem.memo.of(TWINS)) if not wide(problem) else set()
    makers = [p for t in node.inputs if (p := problem.graph.producer(t)) is not None]
    near = {d for n in (node, *makers, *problem.graph.consumers(node.output)) for d in assignment[n.name].devices}
    return [d for d in problem.devices if d not in equal or d in near]


def _second(problem: Problem, judged: Evaluation, rival: RunnerUp, left_out: str) -> str:
    """The sentence that compares the plan with the best one in which the node is elsewhere."""
    change = rival.judged.objective - judged.objective
    amount = f"{abs(change) / judged.objective:.2g} of the energy-delay" if problem.goal is Goal.EDP else shown(
        abs(change), problem.goal is Goal.ENERGY)
    where = _where(rival.split)
    with_it = "" if rival.moved == 0 else f" and {counted(rival.moved, 'other node')} moved"
    if change < -TOLERANCE * judged.objective:
        return f"better by {amount} with {where}{with_it}, {left_out}"
    return f"next best {where}{with_it}, {f'{amount} more' if change > TOLERANCE * judged.objective else 'the same'} in all"


def _where(split: Split) -> str:
    """A split in words: `gpu`, or `rows 8/24 over cpu, gpu`."""
    if split.axis is None:
        return split.devices[0]
    sizes = "/".join(str(p.stop - p.start) for p in split.pieces)
    return f"{split.axis.replace('_', ' ')} {sizes} over {', '.join(split.devices)}"


def at_once_note(problem: Problem, assignment: Assignment, judged: Evaluation) -> tuple[str, ...]:
    """How many forks run their branches on several devices at once, and what that hides; nothing where none does."""
    count = sum(arm_devices(b, assignment) is not None for b in problem.blocks)
    if not count:
        return ()
    hidden = sum(c.hidden_s for c in judged.nodes)
    return (f"branches: at {count} of {counted(len(problem.blocks), 'fork')} they run on several devices at once, which hides "
            f"{shown(hidden, False)}",)


def _at_once(own: NodeCost) -> str:
    """What a node shares its time with, and what is left of it to add."""
    if not own.beside:
        return ""
    names = " and ".join(own.beside) if len(own.beside) < 3 else f"{own.beside[0]} and {counted(len(own.beside) - 1, 'other')}"
    return f", runs at the same time as {names} and adds {shown(own.latency_s, False) if own.latency_s > 0 else 'nothing'}"


def _against(problem: Problem, judged: Evaluation, start: str, split: Split, here: _Local, rival: _Rival, left_out: str,
             branched: bool) -> str:
    """The sentence that compares a node's place with the best whole placement elsewhere."""
    energy, change, there, device = problem.goal is Goal.ENERGY, rival.change, rival.there, rival.device
    words = f"{start}; on {device} {_cost(there.own, energy)}"
    amount = "{} energy-delay" if problem.goal is Goal.EDP else shown(abs(change), energy) + " {}"
    if change < -TOLERANCE * judged.objective:
        return f"{words}, {amount.format('less')} in all, {_binding(problem, device, there, here, judged, left_out)}"
    gain = here.own.compute_s - there.own.compute_s
    stays = split.axis is None and problem.goal is Goal.LATENCY and not branched
    if stays and 0 < gain < there.latency_s - here.latency_s + gain:
        return (f"stays on {split.devices[0]}: transfer {shown(change + gain, False)} > "
                f"saving {shown(gain, False)} on {device}")
    return f"{words}, {amount.format('more') if change > TOLERANCE * judged.objective else 'the same'} in all"


def _change(problem: Problem, judged: Evaluation, here: _Local, there: _Local) -> float:
    """What moving a node from `here` to `there` adds to the objective, its consumers included."""
    latency, energy = judged.latency_s + there.latency_s - here.latency_s, judged.energy_j + there.energy_j - here.energy_j
    if problem.goal is Goal.THROUGHPUT:
        busy = dict(judged.busy_s)
        for sign, local in ((-1.0, here), (1.0, there)):
            for name, seconds in local.busy_s.items():
                busy[name] = busy.get(name, 0.0) + sign * seconds
        return max(busy.values()) - judged.interval_s
    return problem.score(latency, energy) - judged.objective


def shown(value: float, energy: bool) -> str:
    """A time or an energy for people, in the prefix that keeps it short."""
    scale, prefix = next(((k, p) for k, p in ((1e3, "m"), (1e6, "µ")) if abs(value) * k >= 1), (1e9, "n"))
    return f"{value * scale:.3g} {prefix}{'J' if energy else 's'}"


def _here(problem: Problem, node: Node, split: Split, own: NodeCost, fused: tuple[bool, ...]) -> str:
    where = _where(split)
    piece = split.pieces[0]
    known = price_pieces(problem, node, split.axis, piece.device, [(piece.start, piece.stop)])
    streams = split.axis is None and problem.streams(piece.device) and all(fused) and known is not None and (
        known[piece.start, piece.stop].fused_s < known[piece.start, piece.stop].alone_s)
    behind = " and ".join(p.name for t in dict.fromkeys(node.inputs) if (p := problem.graph.producer(t)) is not None)
    cost = _cost(own, problem.goal is Goal.ENERGY)
    return f"{where}: pipelined after {behind}, {cost}" if streams else f"{where}: {cost}"


def _cost(own: NodeCost, energy: bool) -> str:
    nothing = "nothing to compute"
    if energy:
        return shown(own.energy_j, True) if own.energy_j > 0 else nothing
    return (shown(own.compute_s, False) if own.compute_s > 0 else nothing) + (
        f" + {shown(own.transfer_s, False)} transfer" if own.transfer_s > 0 else "")


def _binding(problem: Problem, device: str, there: _Local, here: _Local, judged: Evaluation, left_out: str) -> str:
    """What keeps a node from a place that would be better by itself."""
    used = judged.resources
    limits = problem.limits[device]
    for resource, amount in there.own.resources.get(device, {}).items():
        held = here.own.resources.get(device, {}).get(resource, 0.0)
        left = limits.get(resource, float("inf")) - used.get(device, {}).get(resource, 0.0) + held
        if amount > left:
            return f"but it needs {quantity(amount)} {resource} of {quantity(max(left, 0.0))} left"
    limited = problem.max_latency_s is not None or problem.max_energy_j is not None
    return "but a limit on the plan keeps it here" if limited else left_out


@runtime_checkable
class KernelCosts(Protocol):
    """A cost model that knows kernels of several nodes."""

    def together(self, graph: Graph, nodes: frozenset[str], device: Device) -> tuple[tuple[str, ...], ...]:
        """Nodes that share a kernel, where all the given ones are whole on a device."""
        ...


def shared_kernels(problem: Problem, assignment: Assignment) -> Mapping[str, tuple[str, ...]]:
    """Of every node that shares its kernel, all the nodes of that kernel."""
    costs, found = problem.costs, dict[str, tuple[str, ...]]()
    if isinstance(costs, KernelCosts):
        for device in problem.platform.devices:
            whole = whole_on(device.name)
            here = frozenset(name for name, split in assignment.items() if split == whole)
            found |= {name: nodes for nodes in costs.together(problem.graph, here, device) for name in nodes} if here else {}
    return found


def kernels_note(problem: Problem, assignment: Assignment) -> tuple[str, ...]:
    """Which nodes share a kernel; nothing where none do."""
    kernels = list(dict.fromkeys(shared_kernels(problem, assignment).values()))
    if not kernels:
        return ()
    named = ", ".join(" + ".join(nodes) for nodes in sorted(kernels, key=len, reverse=True)[:SHOWN])
    more = f" and {len(kernels) - SHOWN} more" if len(kernels) > SHOWN else ""
    return (f"kernels: {len(kernels)} compute several nodes each: {named}{more}",)
