"""Inverted residual bottlenecks as one fine-grained pipeline (FIRB of *Compact DNNs 2024*): expand, depthwise, project, add.

All three layers work on the same slice of the expanded channels, one after the other: a word the expander finishes is a word of
the depthwise window, a word of that is a word the projection adds to all its sums, at once or in as many passes as the expander
takes clocks. Nothing is cut anew between them, no expanded pixel is ever whole, and only the depthwise layer's rows (and the
block's input, where it is added) are kept.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from dovetail.cost.folded import rounds_of, shape_of
from dovetail.cost.folded_area import Shape, content_of, fold_rows, folds_of_one, resource_names, resources_of
from dovetail.hardware.folds import Fold
from dovetail.hardware.shares import Floats, Ints
from dovetail.hardware.streaming import Raster
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


@dataclass(frozen=True, slots=True)
class FirbTable:
    """Engines of an inverted residual, row by row: folds of its three layers, clocks per frame, `resource_names`."""

    folds: Ints
    steps: Ints
    resources: Floats

    def cost(self, row: int, model_name: str) -> FirbCost:
        """One row."""
        first, middle, last = (Fold(*sizes) for sizes in self.folds[row].tolist())
        return FirbCost((first, middle, last), int(self.steps[row]),
                        tuple(zip(resource_names(dhm_model(model_name)), self.resources[row].tolist(), strict=True)))


def firb_table(shapes: tuple[Shape, Shape, Shape], folds: Ints, joined: bool, model_name: str) -> FirbTable:
    """Cycles and area of engines: their three parts less what lies between engines, with the block's input where it is added."""
    tables = [folds_of_one(shape, folds[:, place]) for place, shape in enumerate(shapes)]
    used, clocks, pixel = np.zeros((len(folds), 4)), tables[0].clocks, np.full(len(folds), shapes[2].channels.outputs * 8)
    for place, table in enumerate(tables):
        content = content_of(table, table.passes > 1 if place == 2 else None)
        content = content.without(place < 2, place > 0, table.input_width * table.input_bits)
        if joined and place == 2:
            waits = shapes[1].raster.first + STAGES // clocks + 3
            content = replace(content, adders=content.adders + 2 * pixel, registers=content.registers + 4 * pixel,
                              memories=(*content.memories, (waits, pixel, False)))
        used = used + resources_of(content, table, dhm_model(model_name))
    return FirbTable(folds, shapes[1].raster.steps * clocks, used)


def firb_cost(shapes: tuple[Shape, Shape, Shape], folds: tuple[Fold, Fold, Fold], joined: bool, model_name: str) -> FirbCost:
    """Cycles and area of one engine."""
    return firb_table(shapes, fold_rows(folds)[None], joined, model_name).cost(0, model_name)


def firb_options(graph: Graph, block: Bottleneck, model_name: str, twins: bool, clocks: int) -> tuple[FirbCost, ...]:
    """`firb_engines`, one by one."""
    found = firb_engines(graph, block, model_name, twins, clocks)
    return () if found is None else tuple(found.cost(row, model_name) for row in range(len(found.steps)))


def firb_engines(graph: Graph, block: Bottleneck, model_name: str, twins: bool, clocks: int) -> FirbTable | None:
    """Engines of a block of at most `clocks` clocks per frame: for every number of words in which it is expanded one whose
    projection takes a clock for a word, and one in which it takes as long as the expander. None where there are none."""
    first, middle, last = (shape_of(graph, node) for node in block.layers)
    if not Raster(middle.window, middle.height, middle.width).masks_suffice or middle.raster.steps > clocks:
        return None
    return _options((first, middle, last), block.join is not None, model_name, twins, clocks)


@lru_cache(maxsize=1024)
def _options(shapes: tuple[Shape, Shape, Shape], joined: bool, model_name: str, twins: bool, clocks: int) -> FirbTable:
    """Remembered, as many blocks of a network are alike."""
    first, last, steps = shapes[0], shapes[2], shapes[1].raster.steps
    at_once = np.array(rounds_of(first.channels.outputs)[::-1])
    words = -(-first.channels.outputs // at_once)
    at_once, words = at_once[words <= clocks // steps], words[words <= clocks // steps]
    inputs = -(-first.channels.inputs // np.minimum(first.channels.inputs, clocks // (steps * words)))
    return firb_table(shapes, engine_folds(first, last, inputs, at_once, twins), joined, model_name)


def engine_folds(first: Shape, last: Shape, inputs: Ints, at_once: Ints, twins: bool) -> Ints:
    """Folds with so many inputs and expanded channels at once: projections of a clock per word, or as long as the expander.

    Of every row the three layers', one after the other; where `twins` are allowed, also with two products a multiplier block.
    """
    filters, one = last.channels.outputs, np.ones_like(inputs)
    fewer = -(-filters // -(-first.channels.inputs // inputs))
    found = []
    for products in (1, 2):
        for leaving, able in ((filters * one, one > 0), (fewer, fewer < filters)):
            own = np.stack([one, inputs, at_once, products * one, at_once, one, one, one, one, at_once, leaving,
                            np.where(leaving > 1, products, 1)], axis=1).reshape(-1, 3, 4)
            found.append((own, able & (products == 1 or twins) & ((products == 1) | (at_once > 1))))
    rows, able = np.stack([own for own, _ in found], axis=1), np.stack([mask for _, mask in found], axis=1)
    return np.asarray(rows.reshape(-1, 3, 4)[able.reshape(-1)], dtype=np.int64)
