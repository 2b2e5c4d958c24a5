"""A layered drawing of a network, read like text: layers run left to right and wrap into rows.

Layers are longest paths from the inputs. An edge that spans several layers passes through bends, one per layer
between, so every piece of it joins neighbouring layers; the order within a layer follows the mean position of
what feeds it (the barycentre rule of Sugiyama, Tagawa, Toda, 1981), with the main line on top.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil

BOX_WIDTH, BOX_HEIGHT = 156, 74
GAP_ACROSS, GAP_DOWN = 34, 30
BEND_HEIGHT = 12
MARGIN_ACROSS, MARGIN_DOWN = 46, 14
ROW_GAP = 34
LANE = 7
"""Distance between edges that return to the next row side by side."""
PORT = 13
"""Distance between edges that enter the same box."""
LAYERS_PER_ROW = 6

Point = tuple[float, float]
Edge = tuple[str, str]
Item = str | tuple[Edge, int]
"""A box by name, or the bend of an edge in a layer."""


@dataclass(frozen=True, slots=True)
class Drawing:
    """Pixel sizes, the top left corner of every box, and the SVG path of every edge."""

    width: float
    height: float
    boxes: Mapping[str, Point]
    paths: Mapping[Edge, str]


def arrange(names: Sequence[str], edges: Sequence[Edge]) -> Drawing:
    """Place boxes (`names` in topological order) and route `edges`."""
    edges = tuple(dict.fromkeys(edges))
    depth = _layers(names, edges)
    layers = _ordered(names, edges, depth)
    rows = max(1, ceil(len(layers) / LAYERS_PER_ROW))
    per_row = max(1, ceil(len(layers) / rows))
    tops, bottoms = _rows(layers, edges, depth, per_row)
    places = _places(layers, per_row, tops)
    columns = min(per_row, len(layers)) if layers else 0
    width = 2 * MARGIN_ACROSS + columns * BOX_WIDTH + max(0, columns - 1) * GAP_ACROSS
    lanes: dict[int, int] = {}
    ports = _ports(edges, depth, places)
    paths = {e: _route(e, depth, places, ports[e], per_row, width, bottoms, lanes) for e in edges}
    boxes = {item: at for item, at in places.items() if isinstance(item, str)}
    return Drawing(width, (bottoms[-1] if bottoms else 0) + MARGIN_DOWN, boxes, paths)


def _layers(names: Sequence[str], edges: Sequence[Edge]) -> dict[str, int]:
    """Longest path from a source; sources themselves sit right before what reads them."""
    feeds: dict[str, list[str]] = {n: [] for n in names}
    reads: dict[str, list[str]] = {n: [] for n in names}
    for source, target in edges:
        feeds[target].append(source)
        reads[source].append(target)
    depth: dict[str, int] = {}
    for name in names:
        depth[name] = 1 + max((depth[s] for s in feeds[name]), default=-1)
    for name in names:
        if not feeds[name] and reads[name]:
            depth[name] = min(depth[t] for t in reads[name]) - 1
    return depth


def _ordered(names: Sequence[str], edges: Sequence[Edge], depth: Mapping[str, int]) -> list[list[Item]]:
    """Boxes and bends of each layer, top to bottom."""
    layers: list[list[Item]] = [[] for _ in range(max(depth.values(), default=-1) + 1)]
    feeds: dict[Item, list[Item]] = {n: [] for n in names}
    for name in names:
        layers[depth[name]].append(name)
    for edge in edges:
        chain: list[Item] = [edge[0], *((edge, layer) for layer in range(depth[edge[0]] + 1, depth[edge[1]])), edge[1]]
        for before, after in itertools.pairwise(chain):
            feeds.setdefault(after, []).append(before)
            if not isinstance(after, str):
                layers[after[1]].append(after)
    position: dict[Item, int] = {}
    for layer in layers:
        rank = {item: i for i, item in enumerate(layer)}
        mean = {item: sum(position[f] for f in feeds[item]) / len(feeds[item]) if feeds[item] else 0.0 for item in layer}
        # A box that merges stays on the line of its topmost feed; a bend keeps below the box it runs beside.
        layer.sort(
            key=lambda item: (mean[item] if not isinstance(item, str) else min((position[f] for f in feeds[item]), default=0),
                              not isinstance(item, str), rank[item])
        )
        position |= {item: i for i, item in enumerate(layer)}
    return layers


def _height(layer: Sequence[Item]) -> float:
    return sum((BOX_HEIGHT if isinstance(i, str) else BEND_HEIGHT) for i in layer) + GAP_DOWN * len(layer)


def _rows(layers: Sequence[Sequence[Item]], edges: Sequence[Edge], depth: Mapping[str, int],
          per_row: int) -> tuple[list[float], list[float]]:
    """Top and bottom of every row; rows part further where many edges return."""
    tops: list[float] = []
    bottoms: list[float] = []
    top = float(MARGIN_DOWN)
    for first in range(0, len(layers), per_row):
        tops.append(top)
        bottoms.append(top + max(_height(layer) for layer in layers[first : first + per_row]))
        crossing = sum(depth[s] < first + per_row <= depth[t] for s, t in edges)
        top = bottoms[-1] + ROW_GAP + LANE * max(0, crossing - 1)
    return tops, bottoms


def _places(layers: Sequence[Sequence[Item]], per_row: int, tops: Sequence[float]) -> dict[Item, Point]:
    places: dict[Item, Point] = {}
    for index, layer in enumerate(layers):
        x = float(MARGIN_ACROSS + (index % per_row) * (BOX_WIDTH + GAP_ACROSS))
        y = tops[index // per_row]
        for item in layer:
            places[item] = (x, y)
            y += (BOX_HEIGHT if isinstance(item, str) else BEND_HEIGHT) + GAP_DOWN
    return places


def _ports(edges: Sequence[Edge], depth: Mapping[str, int], places: Mapping[Item, Point]) -> dict[Edge, float]:
    """How far below the middle of its target each edge enters: the topmost straight in, the others under it."""
    entering: dict[str, list[tuple[float, Edge]]] = {}
    for edge in edges:
        layer = depth[edge[1]] - 1
        last: Item = edge[0] if depth[edge[0]] == layer else (edge, layer)
        entering.setdefault(edge[1], []).append((places[last][1], edge))
    return {
        edge: min(PORT * i, BOX_HEIGHT / 2 - 4) for arriving in entering.values() for i, (_, edge) in enumerate(sorted(arriving))
    }


def _route(edge: Edge, depth: Mapping[str, int], places: Mapping[Item, Point], port: float, per_row: int, width: float,
           bottoms: Sequence[float], lanes: dict[int, int]) -> str:
    """One edge from the right side of its source over its bends to the left side of its target."""

    def middle(item: Item) -> Point:
        x, y = places[item]
        return x, y + (BOX_HEIGHT if isinstance(item, str) else BEND_HEIGHT) / 2

    x, y = middle(edge[0])
    x += BOX_WIDTH
    path = [f"M{x:g} {y:g}"]
    for layer in range(depth[edge[0]] + 1, depth[edge[1]] + 1):
        item: Item = edge[1] if layer == depth[edge[1]] else (edge, layer)
        to_x, to_y = middle(item)
        to_y += port if item == edge[1] else 0
        if layer % per_row == 0:
            row = layer // per_row - 1
            lane = lanes[row] = lanes.get(row, -1) + 1
            turn = min(22 + lane * 4, MARGIN_ACROSS - 4)
            path.append(
                _return((x, y), (to_x, to_y), (width - MARGIN_ACROSS + turn, MARGIN_ACROSS - turn), bottoms[row] + LANE * lane))
        elif abs(to_y - y) < 1:
            path.append(f"H{to_x:g}")
        else:
            bend = (x + to_x) / 2
            path.append(f"C{bend:g} {y:g} {bend:g} {to_y:g} {to_x:g} {to_y:g}")
        x, y = to_x, to_y
        if item != edge[1]:
            x += BOX_WIDTH
            path.append(f"H{x:g}")
    return "".join(path)


def _return(start: Point, stop: Point, turns: Point, gutter: float, radius: float = 7) -> str:
    """From the end of a row, down, back through the gutter between the rows and down to the start of the next."""
    right, left = turns
    r = radius
    return (f"L{right - r:g} {start[1]:g}Q{right:g} {start[1]:g} {right:g} {start[1] + r:g}"
            f"V{gutter - r:g}Q{right:g} {gutter:g} {right - r:g} {gutter:g}"
            f"H{left + r:g}Q{left:g} {gutter:g} {left:g} {gutter + r:g}"
            f"V{stop[1] - r:g}Q{left:g} {stop[1]:g} {left + r:g} {stop[1]:g}H{stop[0]:g}")
