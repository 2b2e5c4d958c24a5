"""The only judge of plans: latency, energy, resources and legality of an assignment.

Nodes run one after another in topological order, save for arms of a block that run at once (see `at_once`); the plan's
latency is the sum of what each adds, plus bringing every graph output home to the host (one after another). Graph inputs
start on the host.

One node: each piece needs the regions its operator's share reads. What of them lies on another device is fetched,
one transfer per piece and source device (all inputs together), over the platform's route, which it occupies from end
to end for its whole duration. Transfers start in order of their target, then of their source, in platform order; those that
share a direction of a link (or a half-duplex link) wait for each other, others overlap. A tensor lives where its pieces
were computed; copies are not kept, so every consumer pays its own transfers.

`concurrent`: a piece computes when all its input has arrived, pieces run at once, and the node takes until the last is
done. `sequential`: all transfers and computations add. In an input-channel split every piece away from the reducer then
sends int32 sums of the whole output there (links as above), the sum is added after the last arrival, and the tensor
lives on the reducer.

A streaming device (an FPGA) keeps no tensor. A piece on it flows on from its producers where every input was produced
there in exactly the region the piece reads; it then fetches nothing and costs `fused_s`. Otherwise it costs `alone_s` and
fetches all of its input, what the device made itself over the host and back. Other devices keep what they made.
Energy = energy of pieces and sums + link energy + idle power of all devices x latency. Resources add up over the whole
network (`shared_budget`) or, to reproduce papers that judge layers one at a time, must fit node by node.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from dovetail.errors import UsageError
from dovetail.ir import Node
from dovetail.ir.branches import Block
from dovetail.partition.effort import spend
from dovetail.partition.interval.busy import added, busy_of, moved
from dovetail.partition.memo import Cache
from dovetail.partition.parallel.overlap import arm_devices, beside, join_device, run_arms
from dovetail.partition.plan import Assignment, Goal, Mode, NodeCost, Split, whole_on
from dovetail.partition.problem import Problem
from dovetail.partition.tolerances import TOLERANCE
from dovetail.partition.work import Move, Place, Work, check_split, deliveries, input_places, occupy, output_place, work_of

NODE_COSTS = Cache[Work, NodeCost](lasting=True)


@dataclass(frozen=True, slots=True)
class Evaluation:
    """A judged assignment. `nodes` and the delivery of outputs add up to latency and energy (idle power included).

    `resources`: device to resource to amount used, for limited resources. `violations` name each limit missed.
    """

    latency_s: float
    energy_j: float
    objective: float
    nodes: tuple[NodeCost, ...]
    delivery_s: float
    delivery_j: float
    resources: Mapping[str, Mapping[str, float]]
    violations: tuple[str, ...]
    home_busy_s: tuple[Mapping[str, float], ...]
    """What the delivery of each output keeps busy."""
    overlapping: bool
    """Whether frames can be pipelined at all."""
    at_once: frozenset[int]
    """Which of the problem's blocks have arms that run at once."""
    known_busy_s: list[Mapping[str, float]] = field(default_factory=list, repr=False, compare=False)

    @property
    def feasible(self) -> bool:
        return not self.violations

    @property
    def busy_s(self) -> Mapping[str, float]:
        """What a frame keeps busy, added up when it is first asked for: of most plans only the objective is."""
        if not self.known_busy_s:
            self.known_busy_s.append(added([*(c.busy_s for c in self.nodes), *self.home_busy_s]))
        return self.known_busy_s[0]

    @property
    def interval_s(self) -> float:
        """Seconds between frames when they are pipelined: those of the busiest of `busy_s`."""
        return max(self.busy_s.values(), default=0.0) if self.overlapping else self.latency_s


def evaluate(problem: Problem, assignment: Assignment) -> Evaluation:
    """Judge an assignment of all nodes; UsageError if a split is illegal, `violations` if a limit is missed."""
    places = input_places(problem)
    works: dict[str, Work] = {}
    for node in problem.graph.nodes:
        if node.name not in assignment:
            raise UsageError(f"assignment: node {node.name} is missing; every node of the graph needs a split")
        split = assignment[node.name]
        check_split(problem, node, split)
        works[node.name] = work_of(problem, node, split, places)
        places[node.output] = output_place(problem, node, split)
    at_once = frozenset(i for i, block in enumerate(problem.blocks) if arm_devices(block, assignment) is not None)
    return _judged(problem, _costs(problem, assignment, works, at_once), places, at_once)


def reevaluate(problem: Problem, assignment: Assignment, judged: Evaluation, name: str, split: Split) -> Evaluation:
    """`evaluate` after one node of a judged assignment moves."""
    return reevaluate_all(problem, assignment, judged, {name: split})


def reevaluate_all(problem: Problem, assignment: Assignment, judged: Evaluation, moves: Assignment) -> Evaluation:
    """`evaluate` after some nodes of a judged assignment move: only they, their consumers and what runs beside them change."""
    changed, graph = {**assignment, **moves}, problem.graph
    touched = {n.name: n for name in moves for n in (graph.node(name), *graph.consumers(graph.node(name).output))}
    around, blocks = problem.blocks_around, problem.blocks
    hit = {i for name in moves for i in around.get(name, ())}
    at_once = (judged.at_once - hit) | {i for i in hit if arm_devices(blocks[i], changed) is not None}
    waiting, seen = list(touched), set[int]()
    for name in waiting:  # grows: a block that changes may lie in another one, or hold one
        for i in around.get(name, ()):
            if i not in seen and (i in at_once or i in judged.at_once):
                waiting += [n.name for n in blocks[i].around if n.name not in touched]
                touched |= {n.name: n for n in blocks[i].around}
            seen.add(i)
    near = {*graph.outputs, *(t for n in touched.values() for t in n.inputs)}
    places = input_places(problem) | {t: output_place(problem, p, changed[p.name])
                                        for t in near if (p := graph.producer(t)) is not None}
    works = {n.name: work_of(problem, n, changed[n.name], places) for n in touched.values()}
    again = {c.node: c for c in _costs(problem, changed, works, at_once)}
    return _judged(problem, [again.get(c.node, c) for c in judged.nodes], places, at_once)


def _costs(problem: Problem, assignment: Assignment, works: Mapping[str, Work], at_once: frozenset[int]) -> list[NodeCost]:
    """What each of the given nodes adds to a plan; they are given in order, blocks whose arms run at once complete."""
    found: dict[str, NodeCost] = {}
    spend("nodes", len(works))
    for block in (problem.blocks[i] for i in sorted(at_once)):
        if block.arms[0][0].name in works and (devices := arm_devices(block, assignment)) is not None:
            found |= _cost_arms(problem, block, devices, join_device(block, assignment), works)
    return [found[name] if name in found else cost_node(problem, problem.graph.node(name), assignment[name], work)
            for name, work in works.items()]


def _cost_arms(problem: Problem, block: Block, devices: tuple[str, ...], join: str | None,
               works: Mapping[str, Work]) -> dict[str, NodeCost]:
    """Costs of a block whose arms run at once: each node adds what it lasts beyond those before it."""
    found: dict[str, NodeCost] = {}
    latest = 0.0
    runs = run_arms(block, devices, join, works)
    for node, run in zip(block.around, runs, strict=False):
        split, work = whole_on(run.device), works[node.name]
        more = max(run.stop_s - latest, 0.0)
        alone = cost_node(problem, node, split, work).latency_s
        cost = _costed(problem, node, split, work, more, [0])
        others = beside(runs[:len(block.nodes)], run) if node is not block.join else ()
        found[node.name] = replace(cost, hidden_s=max(alone - more, 0.0), beside=others)
        latest = max(latest, run.stop_s)
    return found


def _judged(problem: Problem, costs: list[NodeCost], places: Mapping[str, Place], at_once: frozenset[int]) -> Evaluation:
    """The sums over all nodes, and the limits they miss; `places` must hold the graph's outputs."""
    home = [delivery(problem, t, places[t]) for t in problem.graph.outputs]
    delivery_s, delivery_j = sum(s for s, _ in home), sum(j for _, j in home)
    latency = sum(c.latency_s for c in costs) + delivery_s
    energy = sum(c.energy_j for c in costs) + delivery_j
    used = _usage(problem, costs)
    spend("judgements", 1, len(costs) + len(problem.budgets))
    found = Evaluation(latency, energy, problem.score(latency, energy), tuple(costs), delivery_s, delivery_j, used,
                       _violations(problem, used, latency, energy),
                       tuple(moved({}, deliveries(problem, t, places[t])) for t in problem.graph.outputs),
                       problem.mode is not Mode.SEQUENTIAL, at_once)
    if problem.max_interval_s is not None and found.interval_s > problem.max_interval_s * (1 + TOLERANCE):
        found = replace(found, violations=(*found.violations, _over("interval between frames", found.interval_s * 1e3,
                                                                    problem.max_interval_s * 1e3, " ms")))
    return found if problem.goal is not Goal.THROUGHPUT else replace(found, objective=found.interval_s)


def cost_node(problem: Problem, node: Node, split: Split, work: Work) -> NodeCost:
    """What one node adds to a plan that runs it by itself.

    Remembered with the work, which `work_of` remembers: the same object means the same node, split and places.
    """
    known = problem.memo.of(NODE_COSTS)
    found = known.get(work)
    if found is None:
        found = known[work] = _cost(problem, node, split, work)
    return found


def _cost(problem: Problem, node: Node, split: Split, work: Work) -> NodeCost:
    if problem.mode is Mode.CONCURRENT:
        latency, last = _overlapped(split, work)
        return _costed(problem, node, split, work, latency, [last] if last is not None else [])
    return _costed(problem, node, split, work, _added(work), list(range(len(work.pieces))))


def _costed(problem: Problem, node: Node, split: Split, work: Work, latency: float, critical: list[int]) -> NodeCost:
    """A node's costs; `compute_s` is that of the critical pieces, which finish last, the rest of its time is transfers."""
    compute = [(work.compute_s(i), work.pieces[i]) for i in critical]
    compute += [(work.reduce.alone_s, work.reduce)] if work.reduce else []
    # Added one after another, in plain loops: there are few of each, and all plans of a search are judged here.
    whole_s = low_s = high_s = spent_j = moved_j = 0.0
    for s, _ in compute:
        whole_s += s
    compute_s = min(latency, whole_s)
    shown = compute_s / whole_s if whole_s > 0 else 1.0
    for s, c in compute:
        scale = shown * s / c.alone_s if c.alone_s > 0 else shown
        low_s, high_s = low_s + scale * c.low_s, high_s + scale * c.high_s
    parts, moved_bytes, extrapolated = (*work.pieces, work.reduce) if work.reduce else work.pieces, 0, False
    for c in parts:
        spent_j, extrapolated = spent_j + c.energy_j, extrapolated or c.extrapolated
    for m in (*work.arrivals, *work.partials):
        moved_j, moved_bytes = moved_j + m.joules, moved_bytes + m.size_bytes
    source = parts[0].source if len(parts) == 1 else "; ".join(dict.fromkeys([c.source for c in parts]))
    return NodeCost(
        node=node.name, latency_s=latency, compute_s=compute_s, transfer_s=latency - compute_s,
        energy_j=spent_j + moved_j + problem.idle_power_w * latency, transfer_bytes=moved_bytes,
        resources=_resources(split, work), interval_s=(low_s, high_s), extrapolated=extrapolated, source=source,
        busy_s=busy_of(problem, node, split, work))


def _overlapped(split: Split, work: Work) -> tuple[float, int | None]:
    """Concurrent latency of a node and the piece it waits for longest."""
    free: dict[str, float] = {}
    first, arrived = [0.0] * len(work.pieces), [0.0] * len(work.pieces)
    for m in work.arrivals:
        stop = occupy(free, m, 0.0)
        first[m.piece] = max(first[m.piece], stop - m.seconds - m.before_s + m.lead_s)
        arrived[m.piece] = max(arrived[m.piece], stop)
    done = [work.done_s(i, *times) for i, times in enumerate(zip(first, arrived, strict=True))]
    if work.reduce is None:
        return max(done), done.index(max(done))
    arrived = [at for at, p in zip(done, split.pieces, strict=True) if p.device == split.reducer]
    arrived += [occupy(free, m, done[m.piece]) for m in work.partials]
    return max(arrived) + work.reduce.alone_s, done.index(max(done))


def _added(work: Work) -> float:
    transfers = sum(m.seconds for m in (*work.arrivals, *work.partials))
    return transfers + sum(work.compute_s(i) for i in range(len(work.pieces))) + (work.reduce.alone_s if work.reduce else 0.0)


def delivery(problem: Problem, tensor: str, place: Place) -> tuple[float, float]:
    """Seconds and joules (idle power included) to bring one graph output home."""
    moves = deliveries(problem, tensor, place)
    seconds = _together(moves) if problem.mode is Mode.CONCURRENT else sum(m.seconds for m in moves)
    return seconds, sum(m.joules for m in moves) + problem.idle_power_w * seconds


def _together(moves: tuple[Move, ...]) -> float:
    free: dict[str, float] = {}
    return max((occupy(free, m, 0.0) for m in moves), default=0.0)


def _resources(split: Split, work: Work) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for device, cost in [*zip(split.devices, work.pieces, strict=True), *([(split.reducer, work.reduce)] if work.reduce else [])]:
        if device is not None:
            held = found.setdefault(device, {})
            for resource, amount in cost.resources:
                held[resource] = held.get(resource, 0.0) + amount
    return {d: r for d, r in found.items() if r}


def _usage(problem: Problem, costs: list[NodeCost]) -> dict[str, dict[str, float]]:
    shared = problem.shared_budget
    used: dict[str, dict[str, float]] = {}
    for device, resource, _ in problem.budgets:
        used.setdefault(device, {})[resource] = 0.0
    for cost in costs:
        for device, amounts in cost.resources.items():
            own = used.get(device, {})
            for resource, more in amounts.items():
                if resource in own:
                    own[resource] = own[resource] + more if shared else max(own[resource], more)
    return used


def _violations(problem: Problem, used: Mapping[str, Mapping[str, float]], latency: float, energy: float) -> tuple[str, ...]:
    limits = [(f"{d} {r}", used[d][r], limit, "") for d, r, limit in problem.budgets if used[d][r] > limit]
    limits += [("latency", latency * 1e3, problem.max_latency_s * 1e3, " ms")] if problem.max_latency_s is not None else []
    limits += [("energy", energy * 1e3, problem.max_energy_j * 1e3, " mJ")] if problem.max_energy_j is not None else []
    return tuple(_over(*found) for found in limits if found[1] > found[2] * (1 + TOLERANCE))


def _over(what: str, found: float, limit: float, unit: str) -> str:
    return f"{what}: {found:.6g}{unit} used, {limit:.6g}{unit} allowed, {found - limit:.6g}{unit} too much"
