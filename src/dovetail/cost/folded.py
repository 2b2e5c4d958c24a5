"""Which fold a device takes for a layer, and what it then costs.

A device with the parameter `pace_clocks` may share multipliers as long as no layer takes more clocks than that per frame. For
every layer (or share of one) the fold is chosen that needs the smallest parts of the device, added up over its resources;
direct mapping is kept where the largest of its parts is no larger. The choice depends on nothing but the share and
the device, so whoever builds a plan finds the folds its costs were made of.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import islice
from math import ceil

import numpy as np

from dovetail.cost.dhm import SKIP_BLOCK_BITS, dhm_costs, ram_blocks
from dovetail.cost.estimate import ShareCosts
from dovetail.cost.folded_area import (
    NARROW_FACTOR_BITS,
    WEIGHT_BITS,
    WIDE_FACTOR_BITS,
    FoldedCost,
    FoldTable,
    Shape,
    resource_names,
)
from dovetail.cost.lq_folds import CodedShape, best_coded_fold
from dovetail.cost.power import activity_of, dynamic_power_w
from dovetail.hardware.engines import gate_layers, waiting_beats
from dovetail.hardware.folds import Fold, channels_of
from dovetail.hardware.rounding import input_bits
from dovetail.hardware.scans import keeps, window_of
from dovetail.hardware.shares import Floats, Ints, Question
from dovetail.hardware.streaming import Raster
from dovetail.ir import Axis, Coded, Graph, Node, Rounding
from dovetail.ir.operators.lq import steps_of
from dovetail.platform.device import Device
from dovetail.platform.fitted import dhm_model
from dovetail.words import plural

PRODUCTS = "products_per_dsp"
"""The parameter of a device: products that one multiplier block can make, where that is not what its family's can."""
PACE = "pace_clocks"
"""The parameter of a device: clocks per frame that a folded layer may take."""
GATE_PART = 8
"""Of the pace, at the most one part in so many is what a layer takes that a map waits for. Chosen: two of them lengthen the wait,
and so the memory for the map, by a quarter, and hardly need multipliers, since they work on one pixel per frame."""
LEAST_FIELDS = 8
"""Channels at once that folded layers mostly leave at least."""
TWIN_MODELS = frozenset({"dhm-xcu", "dhm-xcup"})
"""Families whose multiplier blocks are 27 x 18 bits, which is enough for two products (UltraScale DSP slices, UG579)."""


@lru_cache(maxsize=4096)
def rounds_of(count: int) -> tuple[int, ...]:
    """The smallest numbers at once for every number of rounds, rising: as few as leave no smaller number of rounds unused."""
    return tuple(sorted({-(-count // rounds) for rounds in range(1, count + 1)}))


@lru_cache(maxsize=4096)
def parts_at_once(groups: int, inputs: int) -> Ints:
    """Groups and inputs at once that folds of so many have, row by row: all inputs of several groups, or some of one group."""
    pairs = {(1, i) for i in rounds_of(inputs)} | {(g, inputs) for g in rounds_of(groups)}
    return np.array(sorted(pairs), dtype=np.int64)


def twins_allowed(device: Device) -> bool:
    """Whether a multiplier block of the device can make two products: its family says so, unless the board says otherwise."""
    return device.model in TWIN_MODELS and device.parameters.get(PRODUCTS, 2.0) >= 2


def folds_offered(shapes: Sequence[Shape], clocks: int, twins: bool = False, soft: bool = False) -> FoldTable:
    """Folds of at most `clocks` clocks per frame that use no more multipliers than each number of slices asks for.

    Where multiplier blocks are wide enough for `twins`, also with two products in each. With `soft` also with all products in
    logic, for devices whose multiplier blocks run out.
    """
    pairs = [parts_at_once(shape.channels.groups, shape.channels.inputs) for shape in shapes]
    which = np.repeat(np.arange(len(shapes)), [len(own) for own in pairs])
    groups, inputs = np.concatenate([*pairs, np.zeros((0, 2), dtype=np.int64)]).T
    known = [(s.channels.groups, s.channels.inputs, s.channels.outputs, s.raster.steps, s.raster.outputs) for s in shapes]
    all_groups, all_inputs, outputs, steps, pixels = np.array(known, dtype=np.int64).reshape(-1, 5).T[:, which]
    words = -(-all_groups // groups) * -(-all_inputs // inputs)
    passes = (clocks - (steps - pixels) * words) // (pixels * words)
    plain = np.column_stack([groups, inputs, -(-outputs // np.clip(passes, 1, outputs)), np.ones_like(groups)])[passes >= 1]
    which, several = which[passes >= 1], plain[:, 2] > 1
    kinds = [(which, plain)] + ([(which[several], plain[several] + (0, 0, 0, 1))] if twins else [])
    kinds += [(which, plain - (0, 0, 0, 1))] if soft else []
    return FoldTable(shapes, np.concatenate([w for w, _ in kinds]), np.concatenate([f for _, f in kinds]))


Limits = tuple[tuple[str, float], ...]


@lru_cache(maxsize=256)
def _known_folds(model_name: str, resources: Limits, clocks: int, twins: bool) -> dict[Shape, FoldedCost | None]:
    """What `best_folds` found on a device at a pace; nothing at first."""
    return {}


def best_folds(shapes: Sequence[Shape], model_name: str, resources: Limits, clocks: int,
               twins: bool = False) -> list[FoldedCost | None]:
    """Of every shape the fold of at most `clocks` clocks per frame that needs the smallest parts of a device, if any."""
    known = _known_folds(model_name, resources, clocks, twins)
    if new := [shape for shape in dict.fromkeys(shapes) if shape not in known]:
        model, limits, table = dhm_model(model_name), dict(resources), folds_offered(new, clocks, twins)
        needs = table.resources(model)
        limited = [(amounts, limits[r]) for r, amounts in zip(resource_names(model), needs.T, strict=True) if limits.get(r)]
        parts = sum((amounts / limit for amounts, limit in limited), np.zeros(len(needs)))
        order = np.lexsort((table.steps, parts, table.which))
        rows = order[np.unique(table.which[order], return_index=True)[1]]
        known.update(dict.fromkeys(new))
        known.update(zip([new[i] for i in table.which[rows].tolist()], table.costs(rows, needs, model), strict=True))
    return [known[shape] for shape in shapes]


def sum_of_parts(used: Mapping[str, float], limits: Mapping[str, float]) -> float:
    """The parts of all resources that are used, added up; resources without a limit are free."""
    return sum(amount / limits[r] for r, amount in used.items() if limits.get(r))


def largest_part(used: Mapping[str, float], limits: Mapping[str, float]) -> float:
    """The part of the resource of which most is used; resources without a limit are free."""
    return max((amount / limits[r] for r, amount in used.items() if limits.get(r)), default=0.0)


def coded_shape(graph: Graph, node: Node, axis: Axis | None = None, start: int = 0, stop: int = 1) -> CodedShape:
    """A layer of codes, or the units [start, stop) of an axis of it."""
    op = node.op
    assert isinstance(op, Coded)
    plain = shape_of(graph, replace(node, op=op.body), axis, start, stop)
    return CodedShape(plain.channels, plain.window.kernel, plain.raster, op.weight_bits, op.input_bits,
                      op.weight_bits or WEIGHT_BITS, plain.input_bits, steps_of(op.output_bits) if op.output_bits else 0)


def shape_of(graph: Graph, node: Node, axis: Axis | None = None, start: int = 0, stop: int = 1) -> Shape:
    """A Conv or Gemm, or the units [start, stop) of an axis of it."""
    (found,) = shapes_of(graph, (node, ((axis, np.array([start]), np.array([stop])),)))
    return found


def shapes_of(graph: Graph, question: Question) -> list[Shape]:
    """Shares of a Conv or Gemm."""
    node, segments = question
    op, found = node.op.product, list[Shape]()
    assert op is not None
    window, channels, height, width = window_of(graph, node)
    every, reads = channels_of(op, channels, graph.shape(node.output)[1]), int(input_bits(graph, node))
    bits, factor = weight_bits(graph, node), factor_bits(graph, node)
    for axis, starts, stops in segments:
        partial = op.partial or axis is Axis.INPUT_CHANNELS
        extent = node.op.extent(axis, graph.input_shapes(node)) if axis is Axis.INPUT_CHANNELS else 0
        for start, stop in zip(starts.tolist(), stops.tolist(), strict=True):
            has, seen, rows = every, window, height
            match axis:
                case Axis.OUTPUT_CHANNELS:
                    has = replace(every, outputs=(stop - start) // every.groups)
                case Axis.INPUT_CHANNELS:
                    has = replace(every, inputs=-(-(stop - start) * every.inputs // extent))
                case Axis.GROUPS:
                    has = replace(every, groups=stop - start)
                case Axis.ROWS:
                    seen, (first, last) = window.rows(start, stop, height)
                    rows = last - first
            found.append(Shape(has, seen, rows, width, reads, 32 if partial else 8, bits, 0 if partial else factor))
    return found


def factor_bits(graph: Graph, node: Node) -> int:
    """Bits of the factor between a layer's sums and its results; 0 where it is a shift, or not known yet."""
    source, target = (graph.tensors[t].scheme for t in (node.inputs[0], node.output))
    schemes = source, graph.constants[node.params[0]].scheme, target
    if target is None or all(s is None or s.fixed_point for s in schemes):
        return 0
    return WIDE_FACTOR_BITS if target.rounding is Rounding.EVEN else NARROW_FACTOR_BITS


def weight_bits(graph: Graph, node: Node) -> int:
    """Bits of a layer's weights; eight where they are not quantized yet."""
    scheme = graph.constants[node.params[0]].scheme
    return WEIGHT_BITS if scheme is None else scheme.bits


def pace_of(device: Device) -> int | None:
    """Clocks per frame that the device allows a layer; None where everything is mapped directly."""
    pace = device.parameters.get(PACE)
    return None if pace is None else int(pace)


def layer_pace(graph: Graph, node: Node, clocks: int) -> int:
    """Clocks per frame that a layer may take at a pace: few where a map waits for what it makes of one pixel."""
    return max(1, clocks // GATE_PART) if node.op.layer and node.name in gate_layers(graph) else clocks


def chosen_fold(graph: Graph, node: Node, device: Device, direct: Mapping[str, float]) -> FoldedCost | None:
    """The fold a device takes for a node whose direct mapping needs `direct`; None where it is mapped directly."""
    ((found,),) = folds_of_shares(graph, [(node, ((None, np.zeros(1, dtype=np.int64), np.ones(1, dtype=np.int64)),))], device)
    if found is None or largest_part(direct, device.resources) <= largest_part(dict(found.resources), device.resources):
        return None
    return found


def folds_of_shares(graph: Graph, questions: Sequence[Question], device: Device) -> list[list[FoldedCost | None]]:
    """By question the fold of every share that needs the smallest parts of a device at its pace; None where there is none."""
    pace, limits = pace_of(device), tuple(sorted(device.resources.items()))
    found: list[list[FoldedCost | None]] = [[None] * sum(len(starts) for _, starts, _ in own) for _, own in questions]
    if pace is None:
        return found
    by_pace = dict[int, list[int]]()
    for i, (node, segments) in enumerate(questions):
        own = layer_pace(graph, node, pace)
        if node.op.coded:
            shares = [coded_shape(graph, node, axis, start, stop) for axis, starts, stops in segments
                      for start, stop in zip(starts.tolist(), stops.tolist(), strict=True)]
            best = (best_coded_fold(shape, device.model, limits, own) for shape in shares)
            found[i] = [None if coded is None else FoldedCost(*coded) for coded in best]
        elif node.op.layer:
            by_pace.setdefault(own, []).append(i)
    for own, alike in by_pace.items():
        shapes = [shapes_of(graph, questions[i]) for i in alike]
        folds = iter(best_folds([s for some in shapes for s in some], device.model, limits, own, twins_allowed(device)))
        for i, some in zip(alike, shapes, strict=True):
            found[i] = list(islice(folds, len(some)))
    return found


def folds_of(graph: Graph, device: Device) -> dict[str, Fold]:
    """The folds of a graph's nodes on a device, as its costs assume them."""
    found: dict[str, Fold] = {}
    one = np.zeros(1, dtype=np.int64), np.ones(1, dtype=np.int64)
    for node in graph.nodes:
        if pace_of(device) is not None and node.op.layer:
            direct = dhm_costs(graph, node, None, *one, device).resources
            chosen = chosen_fold(graph, node, device, {r: float(v[0]) for r, v in direct.items()})
            if chosen is not None:
                found[node.name] = chosen.fold
    return found


def paced_costs(graph: Graph, question: Question, direct: ShareCosts, device: Device,
                folds: Sequence[FoldedCost | None] | None = None) -> ShareCosts:
    """Costs of shares on a device that may fold them, from those of direct mapping; the same where it may not.

    Every share alone takes at least the pace, since one that is slower behind it would make it wait. Behind its producer it
    adds what it still does after the last beat, or, if that is more, what fills its window at the pace of the stream. `folds`
    are those of `folds_of_shares`, where they are known.
    """
    pace = pace_of(device)
    if pace is None or device.clock_hz is None:
        return direct
    (node, _), model = question, dhm_model(device.model)
    second, fill, part = 1 / device.clock_hz, filled(graph, node) * pace, word_part(graph, node, device)
    alone, fused = np.maximum(direct.alone_s, pace * second), np.maximum(direct.fused_s, fill * second)
    energy = direct.energy_j.copy()
    resources = {r: v * part if r in (model.logic, "register", "dsp") else v.copy() for r, v in direct.resources.items()}
    if keeps(graph, node):
        resources[model.block] = _waiting_blocks(graph, node, part, direct, device)
    own, at, used = _worth_folding(folds_of_shares(graph, [question], device)[0] if folds is None else folds, direct, device)
    if own:
        steps, tails, stages = np.array([(f.steps, f.tail, f.stages) for f in own]).T
        alone[at] = np.maximum(pace, steps + stages) * second
        fused[at] = (np.maximum(tails, fill) + stages) * second
        energy[at] = dynamic_power_w(used, model, device.clock_hz, activity_of(device)) * steps * second
        for r, values in resources.items():
            values[at] = used.get(r, 0.0)
    spread = 1 + model.clock_error
    source = f"{direct.source}; multipliers shared, at most {pace} {plural(pace, 'clock')} per frame" if own else direct.source
    return ShareCosts(alone, fused, alone / spread, alone * spread, energy, resources, direct.extrapolated, source)


def _worth_folding(folds: Sequence[FoldedCost | None], direct: ShareCosts,
                   device: Device) -> tuple[list[FoldedCost], Ints, dict[str, Floats]]:
    """Folds that need less of some resource than direct mapping does of any, which shares have them, and what they occupy."""
    at, limits = np.flatnonzero([fold is not None for fold in folds]), device.resources
    own = [fold for fold in folds if fold is not None]
    parts = [dict(fold.resources) for fold in own]
    used = {r: np.array([amounts.get(r, 0.0) for amounts in parts]) for r in dict.fromkeys(r for some in parts for r in some)}

    def largest(amounts: Mapping[str, Floats]) -> Floats:
        return np.asarray(np.max([np.zeros(len(at)), *(v / limits[r] for r, v in amounts.items() if limits.get(r))], axis=0))

    kept = np.flatnonzero(largest({r: v[at] for r, v in direct.resources.items()}) > largest(used))
    return [own[i] for i in kept.tolist()], at[kept], {r: v[kept] for r, v in used.items()}


def word_part(graph: Graph, node: Node, device: Device) -> float:
    """The part of its channels that a layer without weights works on at once behind folded ones; 1 where it takes whole pixels.

    Which one is its neighbours' choice: at least what keeps the pace, and mostly a few more.
    """
    pace, alike = pace_of(device), node.op.uniform or ((node.op.table or node.op.formula) and not node.op.per_channel)
    if pace is None or not alike:
        return 1.0
    _, channels, height, width = window_of(graph, node)
    fields = max(LEAST_FIELDS, 2 * ceil(channels * height * width / pace))
    return min(1.0, fields / channels)


def _waiting_blocks(graph: Graph, node: Node, part: float, direct: ShareCosts, device: Device) -> Floats:
    """RAM blocks of the FIFO in which a map waits for its gate, in words of a part of its channels; of row shares the same."""
    depth, bits = waiting_beats(graph, node)
    words, model = ceil(1 / part), dhm_model(device.model)
    deep = ceil(depth * words * (1 + 2 / GATE_PART))
    blocks = ram_blocks(deep, np.array([float(ceil(bits / words))]), model.shapes) / model.parts
    return np.where(deep * bits / words >= SKIP_BLOCK_BITS, np.full(len(direct.alone_s), float(blocks[0])), 0.0)


def filled(graph: Graph, node: Node) -> float:
    """The part of a frame that a node's window holds before its first output; one over a whole map leaves with its last pixel."""
    if node.op.still or keeps(graph, node):  # after one value per channel all of the map follows
        return float(not node.op.still)
    window, _, height, width = window_of(graph, node)
    raster = Raster(window, height, width)
    return max(0, raster.first) / (height * width) if raster.outputs > 1 else raster.flush / (height * width)
