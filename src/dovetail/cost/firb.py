"""Inverted residual bottlenecks as one fine-grained pipeline (FIRB of *Compact DNNs 2024*): expand, depthwise, project, add.

All three layers work on the same slice of the expanded channels, one after the other: a word the expander finishes is a word of
the depthwise window, a word of that is a word the projection adds to all its sums, at once or in as many passes as the expander
takes clocks. Nothing is cut anew between them, no expanded pixel is ever whole, and only the depthwise layer's rows (and the
block's input, where it is added) are kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from dovetail.cost.folded import shape_of
from dovetail.cost.folded_area import Shape, content_of, resources_of
from dovetail.hardware.folds import Fold, Loops
from dovetail.hardware.streaming import FoldedRaster, Raster
from dovetail.ir import Add, Graph, Node
from dovetail.platform.fitted import dhm_model

STAGES = 40
"""Clock edges from the last word of a pixel to its output, about: three trees with their rounding."""


@dataclass(frozen=True, slots=True)
class Bottleneck:
    """Nodes of an inverted residual block; `join` adds the block's input where it has a residual."""

    expand: Node
    depthwise: Node
    project: Node
    join: Node | None

    @property
    def layers(self) -> tuple[Node, Node, Node]:
        return self.expand, self.depthwise, self.project


def bottlenecks(graph: Graph) -> tuple[Bottleneck, ...]:
    """All blocks of a pointwise, a depthwise and a pointwise convolution that only each other read, in the graph's order."""
    readers: dict[str, list[Node]] = {}
    for node in graph.nodes:
        for tensor in node.inputs:
            readers.setdefault(tensor, []).append(node)

    def only_reader(node: Node) -> Node | None:
        found = readers.get(node.output, [])
        return found[0] if len(found) == 1 and node.output not in graph.outputs else None

    blocks = []
    for expand in graph.nodes:
        depthwise = only_reader(expand) if _is_pointwise(expand) else None
        project = only_reader(depthwise) if depthwise is not None and _is_depthwise(graph, depthwise) else None
        if depthwise is None or project is None or not _is_pointwise(project):
            continue
        after = only_reader(project)
        joins = after is not None and isinstance(after.op, Add) and expand.inputs[0] in after.inputs
        blocks.append(Bottleneck(expand, depthwise, project, after if joins else None))
    return tuple(blocks)


def _is_pointwise(node: Node) -> bool:
    op = node.op.product
    return op is not None and op.window is not None and op.groups == 1 and op.window.kernel == op.window.stride == (1, 1)


def _is_depthwise(graph: Graph, node: Node) -> bool:
    op = node.op.product
    return op is not None and op.window is not None and op.groups == op.filters == graph.shape(node.inputs[0])[1] > 1


@dataclass(frozen=True, slots=True)
class FirbCost:
    """An inverted residual as one engine: its folds, clocks per frame, resources."""

    folds: tuple[Fold, Fold, Fold]
    steps: int
    resources: tuple[tuple[str, float], ...]


@lru_cache(maxsize=1 << 16)
def firb_cost(shapes: tuple[Shape, Shape, Shape], folds: tuple[Fold, Fold, Fold], joined: bool, model_name: str) -> FirbCost:
    """Cycles and area of the engine: its three parts less what lies between engines, with the block's input where it is added."""
    used, clocks = dict[str, float](), Loops(shapes[0].channels, folds[0]).clocks
    waits = shapes[1].raster.first + STAGES // clocks + 3 if joined else 0
    for place, (shape, fold) in enumerate(zip(shapes, folds, strict=True)):
        for resource, amount in _part(shape, fold, place, waits if place == 2 else 0, model_name):
            used[resource] = used.get(resource, 0.0) + amount
    return FirbCost(folds, shapes[1].raster.steps * clocks, tuple(used.items()))


@lru_cache(maxsize=1 << 16)
def _part(shape: Shape, fold: Fold, place: int, waits: int, model_name: str) -> tuple[tuple[str, float], ...]:
    """Area of one of the three parts; the block's input `waits` for so many pixels where it is added to the last.

    Remembered, as many engines have a part in common.
    """
    loops = Loops(shape.channels, fold)
    folded = FoldedRaster(shape.raster, loops)
    turned = place == 2 and loops.passes > 1
    content = content_of(shape, loops, folded, turned).without(place < 2, place > 0, loops.input_width * shape.input_bits)
    if waits:
        pixel = shape.channels.outputs * 8
        content = replace(content, adders=content.adders + 2 * pixel, registers=content.registers + 4 * pixel,
                          memories=(*content.memories, (waits, pixel, False)))
    return resources_of(content, loops, folded, dhm_model(model_name))


def firb_options(graph: Graph, block: Bottleneck, model_name: str, twins: bool, clocks: int) -> tuple[FirbCost, ...]:
    """Engines of a block of at most `clocks` clocks per frame: for every number of words in which it is expanded one whose
    projection takes a clock for a word, and one in which it takes as long as the expander."""
    first, middle, last = (shape_of(graph, node) for node in block.layers)
    if not Raster(middle.window, middle.height, middle.width).masks_suffice:
        return ()
    return _options((first, middle, last), block.join is not None, model_name, twins, clocks)


@lru_cache(maxsize=1024)
def _options(shapes: tuple[Shape, Shape, Shape], joined: bool, model_name: str, twins: bool, clocks: int) -> tuple[FirbCost, ...]:
    """Remembered, as many blocks of a network are alike."""
    (first, middle, last), found = shapes, []
    steps = middle.raster.steps
    for words in range(1, min(first.channels.outputs, clocks // steps) + 1):
        at_once = -(-first.channels.outputs // words)
        if -(-first.channels.outputs // at_once) != words:
            continue
        inputs = -(-first.channels.inputs // min(first.channels.inputs, clocks // (steps * words)))
        found += [firb_cost(shapes, folds, joined, model_name) for folds in engine_folds(first, last, inputs, at_once, twins)]
    return tuple(found)


def engine_folds(first: Shape, last: Shape, inputs: int, at_once: int, twins: bool) -> Iterator[tuple[Fold, Fold, Fold]]:
    """Folds with so many inputs and expanded channels at once: projections of a clock per word, or as long as the expander."""
    filters, slices = last.channels.outputs, -(-first.channels.inputs // inputs)
    for products in (1, 2) if twins and at_once > 1 else (1,):
        for leaving in dict.fromkeys((filters, -(-filters // slices))):
            yield (Fold(1, inputs, at_once, products), Fold(at_once, 1, 1),
                   Fold(1, at_once, leaving, products if leaving > 1 else 1))
