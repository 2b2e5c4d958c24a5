"""Cuts moved off the candidates' grid: the last step of the exact solver.

The search proves its bound over a grid of cut positions. Between two of them lies often a slightly better one, which this
step finds with the evaluator: every cut of every divided layer, alone or together with those of the layers behind it that
keep their data in place, moves by ever smaller steps while that helps. The result is never worse than the plan it began with.
"""

from __future__ import annotations

from collections.abc import Iterator

from dovetail.errors import UnsupportedError
from dovetail.ir import Axis, Node
from dovetail.partition.candidates import divide
from dovetail.partition.evaluate import Evaluation, reevaluate
from dovetail.partition.plan import Assignment, Split
from dovetail.partition.problem import Problem
from dovetail.partition.tolerances import TOLERANCE
from dovetail.words import counted, plural

FIRST_STEP = 1 / 32
"""Part of an axis by which cuts move first: half the distance between most candidates. Chosen: as the candidates are."""
SHOWN = 5e-5
"""Relative gain below which there is nothing to tell. Chosen: what two decimals of a percentage show."""
MOST_TRIALS = 400
"""Plans judged in all; the work, not the clock, ends a refinement, so that it ends the same way everywhere.

Chosen, not measured.
"""


def refine(problem: Problem, assignment: Assignment, judged: Evaluation) -> tuple[Assignment, Evaluation]:
    """A plan at least as good, with cuts anywhere."""
    chosen, trials = dict(assignment), 0
    runs = [run for run in _runs(problem, chosen) if not any(n.name in problem.fixed for n in run)]
    most = max((len(chosen[n.name].pieces) for run in runs for n in run), default=0) - 1
    steps = [(run, cut, FIRST_STEP) for cut in range(most) for run in runs
             if cut < min(len(chosen[n.name].pieces) for n in run) - 1]
    while steps and trials < MOST_TRIALS:
        run, cut, step = steps.pop(0)
        moved = False
        for sign in (1, -1):
            while trials < MOST_TRIALS and (found := _moved(problem, chosen, judged, run, cut, sign * step)) is not None:
                trials += len(run)
                if not found[1].feasible or found[1].objective >= judged.objective * (1 - TOLERANCE):
                    break
                (chosen, judged), moved = found, True
            if moved:
                break
        extent = max(chosen[n.name].pieces[-1].stop for n in run)
        if step * extent > 1:
            steps.append((run, cut, step / 2))
    return chosen, judged


def _runs(problem: Problem, chosen: Assignment) -> Iterator[tuple[Node, ...]]:
    """Divided nodes alone, and with all that follow them in the same proportions."""
    divided = [n for n in problem.graph.nodes if chosen[n.name].axis is not None]
    used: set[str] = set()
    for node in divided:
        run = [node]
        for other in divided:
            if other.name not in used and any(t in {m.output for m in run} for t in other.inputs) \
                    and _alike(chosen[run[0].name], chosen[other.name]):
                run.append(other)
        if len(run) > 1 and node.name not in used:
            used |= {m.name for m in run}
            yield tuple(run)
    for node in divided:
        yield (node,)


def _alike(a: Split, b: Split) -> bool:
    """Whether pieces of one split read or write what those of the other hold: the same devices in like proportions."""
    if (a.axis is Axis.ROWS) != (b.axis is Axis.ROWS) or a.devices != b.devices:
        return False
    ends = zip(a.pieces, b.pieces, strict=True)
    return all(abs(p.stop / a.pieces[-1].stop - q.stop / b.pieces[-1].stop) < FIRST_STEP for p, q in ends)


def _moved(problem: Problem, chosen: Assignment, judged: Evaluation, run: tuple[Node, ...], number: int,
           share: float) -> tuple[dict[str, Split], Evaluation] | None:
    """The plan after one cut of every node of a run moves by a share of its axis; None where a piece would vanish."""
    found = dict(chosen)
    for node in run:
        split = found[node.name]
        assert split.axis is not None, "a whole node has no cuts"
        extent, cuts = split.pieces[-1].stop, [p.stop for p in split.pieces[:-1]]
        units = round(abs(share) * extent) or 1
        edges = [0, *cuts, extent]
        edges[number + 1] += units if share > 0 else -units
        if not edges[number] < edges[number + 1] < edges[number + 2]:
            return None
        changed = divide(split.axis, edges[1:-1], extent, split.devices, split.reducer)
        try:
            judged = reevaluate(problem, found, judged, node.name, changed)
        except UnsupportedError:
            return None
        found[node.name] = changed
    return found, judged


def refined_note(grid: Assignment, moved: Assignment, final: Assignment, before: float, after: float) -> tuple[str, ...]:
    """How many nodes of the `final` plan have cuts moved off the grid, and what moving cuts gained; nothing where none has."""
    gain = (before - after) / before
    count = sum(moved[n] != grid[n] and final[n] == moved[n] and moved[n].axis is not None for n in grid)
    if gain < SHOWN or not count:
        return ()
    nodes = f"{counted(count, 'node')} {plural(count, 'is', 'are')}"
    return (f"cuts: {nodes} cut between the candidates' positions; the best plan found is {100 * gain:.2f} % better than the "
            "best over which the bound holds",)
