"""How many boards a plan of the pool must use, and so how often a stream enters one: the limit that makes it pay for that.

Where budgets are those of all FPGAs together, the cheapest plan keeps to one of them: nothing then leaves it. But what lies on
FPGAs takes as many boards as it fills, and the first node on each has no input made there: it is an *entry*, which pays for
its input. No plan of the boards takes more of them than it has entries.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dovetail.hardware.shares import Floats
from dovetail.partition.boards.relaxation import Share
from dovetail.partition.columns import Options
from dovetail.partition.cuts import Limit, Network
from dovetail.partition.tables.costs import Table


def entry_limit(net: Network, share: Share) -> Limit:
    """What plans fill of boards, less their entries: at most nothing, which is counted from one."""
    pool = net.problem.pool
    assert pool is not None, "only the boards of a pool are entered"
    boards = [i for i, d in enumerate(net.problem.devices) if d in pool.stand_ins]
    known = {t.node.output: t.options for t in net.tables}
    found: list[Floats] = []
    for table in net.tables:
        found.append(share.taken(table.resources) * share.count - _entered(net, table, known, boards))
    for jump in net.jumps:
        taken = np.stack([(jump.devices == b).any(axis=1) for b in boards]).sum(axis=0)
        found.append(share.taken(jump.resources) * share.count - taken + 0.0 * jump.latency_s)
    first = {step.index for step in net.steps(0)}
    return Limit(f"{share.name}, boards entered", None, 1.0, given=tuple(a + (i in first) for i, a in enumerate(found)))


def stretch_limit(net: Network, share: Share) -> Limit:
    """What nodes that flow on from each other, one behind the other on one board or pair of boards, fill of it on average."""
    pool = net.problem.pool
    assert pool is not None, "only the boards of a pool are entered"
    boards = [i for i, d in enumerate(net.problem.devices) if d in pool.stand_ins]
    known = {t.node.output: t.options for t in net.tables}
    sizes: list[Floats] = []
    carries: list[Floats] = []
    before: str | None = None
    for table in net.tables:
        has = table.options.pattern.has[table.options.columns]
        count = has[:, boards].sum(axis=1)
        flows = (count > 0) & (count == has.sum(axis=1)) & (_entered(net, table, known, boards) == 0)
        carries.append((flows & (before in table.inputs)) * 1.0)
        sizes.append(share.taken(table.resources) * share.count / np.maximum(count, 1))
        before = table.node.output
    for jump in net.jumps:
        sizes.append(np.zeros(len(jump)))
        carries.append(np.zeros(jump.latency_s.shape))
    return Limit(f"{share.name}, one board", None, 1.0, given=tuple(sizes), carry=tuple(carries))


def _entered(net: Network, table: Table, known: Mapping[str, Options], boards: list[int]) -> Floats:
    """On how many boards each column begins without a stream made there, for every place of its inputs."""
    own, graph = table.options, net.problem.graph
    has = own.pattern.has[own.columns]
    found = np.zeros(table.latency_s.shape)
    produced = all(graph.producer(t) is not None for t in own.node.inputs)
    for d in (b for b in boards if has[:, b].any()):
        flows = np.full(found.shape, produced)
        for slot, tensor in enumerate(own.node.inputs if produced else ()):
            held, wanted = known[tensor].pattern.held[known[tensor].places, d], own.pattern.reads[slot][own.columns, d]
            same = (held[:, None] == wanted).all(axis=(2, 3))
            flows &= same.reshape(*(len(held) if t == tensor else 1 for t in table.inputs), len(own))
        found += has[:, d] & ~flows
    return found
