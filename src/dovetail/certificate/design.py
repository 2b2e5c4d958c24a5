"""Whether the accelerator of a plan is one of the stated space: its cut, the engine of every layer, its arrays, its pace."""

from __future__ import annotations

from dovetail.certificate.accelerators import Accelerators
from dovetail.certificate.engines import Dedicated, beats_of, folds_of, joined_folds
from dovetail.cost.accelerator import config_of
from dovetail.cost.folded import shape_of, twins_allowed
from dovetail.hardware.folds import Fold, Loops
from dovetail.hardware.streaming import FoldedRaster, Raster
from dovetail.ir import Conv, Gemm
from dovetail.platform.accelerator import AcceleratorDesign


def fault_of(space: Accelerators, design: AcceleratorDesign) -> str | None:
    """What keeps a design out of a space, in words; None where it is in it."""
    nodes = [n.name for n in space.graph.nodes[space.start:space.stop]]
    if set(nodes) != {*design.dedicated, *design.reusable} or len(nodes) != len(design.dedicated) + len(set(design.reusable)):
        return f"it computes other nodes than the {len(nodes)} from {nodes[0]} to {nodes[-1]}"
    cut = space.start + len(design.dedicated)
    if set(design.reusable) != set(nodes[len(design.dedicated):]):
        return "nodes with engines of their own and nodes on arrays take turns"
    fault = _fault_of_arrays(space, design, cut)
    return fault or _fault_of_engines(space.dedicated, design, cut)


def _fault_of_arrays(space: Accelerators, design: AcceleratorDesign, cut: int) -> str | None:
    """What is wrong with the cut, or with the arrays behind it."""
    here = [ending for ending in space.endings if ending.cut == cut]
    if not here:
        return f"accelerators of the kinds stated are not cut behind {cut - space.start} nodes"
    try:
        config = config_of(design)
    except KeyError as missing:
        return f"its arrays have no {missing}"
    if config is None:
        return None if any(ending.arrays is None for ending in here) else "its nodes behind the cut have no arrays"
    offers = [ending.arrays for ending in here if ending.arrays is not None and config in ending.arrays.configs]
    if not any(a.layers(cut) is not None and a.offered(cut, config) for a in offers):
        return f"arrays {config} are not on offer there"
    return None


def _fault_of_engines(own: Dedicated, design: AcceleratorDesign, cut: int) -> str | None:
    """What is wrong with the engines before the cut."""
    slowest, fused = 1, set[int]()
    twins = twins_allowed(own.device)
    for block, members in own.blocks:
        if block.depthwise.name not in design.fused:
            continue
        folds = [design.dedicated.get(n.name) for n in block.layers]
        if fused & set(members) or max(members) >= cut or None in folds:
            return f"{block.depthwise.name} cannot be one engine with its neighbours"
        first, middle, last = (shape_of(own.graph, n) for n in block.layers)
        sizes = tuple(Fold(*f) for f in folds if f is not None)
        rows = joined_folds(first, last, twins).tolist()
        if [[f.groups, f.inputs, f.outputs, f.products] for f in sizes] not in rows or not Raster(
                middle.window, middle.height, middle.width).masks_suffice:
            return f"{block.depthwise.name} is in an engine of folds {', '.join(map(str, sizes))}, which are not on offer"
        fused |= set(members)
        slowest = max(slowest, middle.raster.steps * Loops(first.channels, sizes[0]).clocks)
    if len(design.fused) != len({b.depthwise.name for b, m in own.blocks if set(m) <= fused} & set(design.fused)):
        return "a node is called part of an inverted residual that is none"
    for i in range(own.start, cut):
        node, fold = own.graph.nodes[i], design.dedicated[own.graph.nodes[i].name]
        if i in fused:
            continue
        if fold is None:
            slowest = max(slowest, beats_of(own.graph, node))
            continue
        if not isinstance(node.op, Conv | Gemm):
            return f"{node.name} has a fold and no weights"
        shape, given = shape_of(own.graph, node), Fold(*fold)
        if [given.groups, given.inputs, given.outputs, given.products] not in folds_of(shape, twins).tolist():
            return f"{node.name} has the fold {given}, which is not on offer"
        slowest = max(slowest, FoldedRaster(shape.raster, Loops(shape.channels, given)).steps)
    if design.pace_clocks < slowest:
        return f"its pace is {design.pace_clocks:,} clocks, and its slowest engine takes {slowest:,}"
    return None
