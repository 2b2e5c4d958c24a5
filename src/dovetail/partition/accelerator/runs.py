"""Which shorter run of layers an accelerator may be better for, where other devices take the rest."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, combinations

from dovetail.ir import Graph
from dovetail.partition.accelerator.architecture import AcceleratedRegion
from dovetail.partition.accelerator.blocks import cut_points
from dovetail.partition.accelerator.dedicated import multiplications_of

WORTH = 0.03
"""By which fraction a run has to promise to be better to be looked at. Chosen, not measured."""


def promising_run(graph: Graph, held: AcceleratedRegion, taken_s: float, others_s: Sequence[float], overlapping: bool,
                  reached_s: float) -> AcceleratedRegion | None:
    """The run within those layers that an accelerator holds which promises most, or None where none promises to be worth it.

    The accelerator takes `taken_s`, thought to fall with its multiplications; the nodes outside take what they do on the fastest
    other device. Both work at once where frames overlap, else one after the other. Transfers are left out: it is a guess, and
    only a search says what a run is worth.
    """
    work = [0, *accumulate(multiplications_of(graph, [node]) for node in graph.nodes)]
    elsewhere = [0.0, *accumulate(others_s)]
    whole = work[held.stop] - work[held.start]
    cuts = [cut for cut in cut_points(graph) if held.start <= cut <= held.stop]
    best, least = None, reached_s * (1 - WORTH)
    for start, stop in combinations(cuts, 2):
        inside = taken_s * (work[stop] - work[start]) / max(1, whole)
        outside = elsewhere[-1] - (elsewhere[stop] - elsewhere[start])
        promised = max(inside, outside) if overlapping else inside + outside
        if (start, stop) != (held.start, held.stop) and work[stop] > work[start] and promised < least:
            best, least = AcceleratedRegion(start, stop), promised
    return best
