"""A layered drawing of boxes, read like text: layers run left to right and wrap into rows.

Layers are longest paths from the inputs. An edge that spans several layers passes through bends, one per layer
between, so every piece of it joins neighbouring layers; the order within a layer follows the mean position of
what feeds it (the barycentre rule of Sugiyama, Tagawa, Toda, 1981), with the main line on top. Boxes may have any size:
those of groups hold drawings of their own.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

BOX_WIDTH, BOX_HEIGHT = 156, 66
"""Of a layer."""
GAP_ACROSS, GAP_DOWN = 34, 30
BEND_HEIGHT = 12
MARGIN_ACROSS, MARGIN_DOWN = 34, 14
ROW_GAP = 34
LANE = 7
"""Distance between edges that return to the next row side by side."""
DOCK = 33
"""Below the top of its box, where an edge leaves and the first one enters; straight lines join boxes of any height."""
PORT = 13
"""Distance between edges that enter the same box."""
GROWTH = 1.25
"""Between widths that are tried for a drawing. Chosen."""

Point = tuple[float, float]
Size = tuple[float, float]
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


@dataclass(frozen=True, slots=True)
class _Rows:
    """Layers in rows: of every layer its row and left side, of every row its top and bottom."""

    row: Sequence[int]
    left: Sequence[float]
    wide: Sequence[float]
    tops: Sequence[float]
    bottoms: Sequence[float]
    width: float


def fitted(sizes: Mapping[str, Size], edges: Sequence[Edge], aspect: float) -> Drawing:
    """The drawing that shows largest where there is room `aspect` times as wide as high."""
    width = max((w for w, _ in sizes.values()), default=BOX_WIDTH)
    most, tried = sum(w + GAP_ACROSS for w, _ in sizes.values()), list[Drawing]()
    while True:
        tried.append(arrange(sizes, edges, width + 2 * MARGIN_ACROSS))
        if width >= most:
            return min(tried, key=lambda d: max(d.width / aspect, d.height))
        width *= GROWTH


def arrange(sizes: Mapping[str, Size], edges: Sequence[Edge], limit: float) -> Drawing:
    """Place boxes (`sizes` in topological order) and route `edges`; rows end before they are wider than `limit`."""
    edges = tuple(dict.fromkeys(edges))
    depth = _layers(tuple(sizes), edges)
    layers = _ordered(tuple(sizes), edges, depth)
    rows = _rows(layers, edges, depth, sizes, limit)
    places = _places(layers, rows, sizes)
    lanes: dict[int, int] = {}
    ports = _ports(edges, depth, places, sizes)
    paths = {e: _route(e, depth, places, sizes, ports[e], rows, lanes) for e in edges}
    boxes = {item: at for item, at in places.items() if isinstance(item, str)}
    return Drawing(rows.width, (rows.bottoms[-1] if rows.bottoms else 0) + MARGIN_DOWN, boxes, paths)


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


def _high(item: Item, sizes: Mapping[str, Size]) -> float:
    return sizes[item][1] if isinstance(item, str) else BEND_HEIGHT


def _rows(layers: Sequence[Sequence[Item]], edges: Sequence[Edge], depth: Mapping[str, int], sizes: Mapping[str, Size],
          limit: float) -> _Rows:
    """Layers one after another, in the next row where one would end beyond the limit; rows part where many edges return."""
    wide = [max((sizes[i][0] for i in layer if isinstance(i, str)), default=0.0) for layer in layers]
    row, left, x = list[int](), list[float](), float(MARGIN_ACROSS)
    for i, own in enumerate(wide):
        new = bool(i) and x + own + MARGIN_ACROSS > limit
        x = MARGIN_ACROSS if new else x
        row.append(row[-1] + new if row else 0)
        left.append(x)
        x += own + GAP_ACROSS
    tops, bottoms, top = list[float](), list[float](), float(MARGIN_DOWN)
    for number in range(row[-1] + 1 if row else 0):
        mine = [layer for layer, own in zip(layers, row, strict=True) if own == number]
        tops.append(top)
        bottoms.append(top + max(sum(_high(i, sizes) + GAP_DOWN for i in layer) for layer in mine))
        crossing = sum(row[depth[s]] <= number < row[depth[t]] for s, t in edges)
        top = bottoms[-1] + ROW_GAP + LANE * max(0, crossing - 1)
    width = max((x + w for x, w in zip(left, wide, strict=True)), default=0.0) + MARGIN_ACROSS
    return _Rows(row, left, wide, tops, bottoms, width)


def _places(layers: Sequence[Sequence[Item]], rows: _Rows, sizes: Mapping[str, Size]) -> dict[Item, Point]:
    places: dict[Item, Point] = {}
    for index, layer in enumerate(layers):
        y = rows.tops[rows.row[index]]
        for item in layer:
            places[item] = (rows.left[index], y)
            y += _high(item, sizes) + GAP_DOWN
    return places


def _ports(edges: Sequence[Edge], depth: Mapping[str, int], places: Mapping[Item, Point],
           sizes: Mapping[str, Size]) -> dict[Edge, float]:
    """How far below its dock each edge enters its target: the topmost straight in, the others under it."""
    entering: dict[str, list[tuple[float, Edge]]] = {}
    for edge in edges:
        layer = depth[edge[1]] - 1
        last: Item = edge[0] if depth[edge[0]] == layer else (edge, layer)
        entering.setdefault(edge[1], []).append((places[last][1], edge))
    return {edge: min(PORT * i, sizes[edge[1]][1] - DOCK - 4)
            for arriving in entering.values() for i, (_, edge) in enumerate(sorted(arriving))}


def _route(edge: Edge, depth: Mapping[str, int], places: Mapping[Item, Point], sizes: Mapping[str, Size], port: float,
           rows: _Rows, lanes: dict[int, int]) -> str:
    """One edge from the right side of its source over its bends to the left side of its target."""

    def dock(item: Item) -> Point:
        x, y = places[item]
        return x, y + (DOCK if isinstance(item, str) else BEND_HEIGHT / 2)

    x, y = dock(edge[0])
    x += sizes[edge[0]][0]
    path = [f"M{x:g} {y:g}"]
    for layer in range(depth[edge[0]] + 1, depth[edge[1]] + 1):
        item: Item = edge[1] if layer == depth[edge[1]] else (edge, layer)
        to_x, to_y = dock(item)
        to_y += port if item == edge[1] else 0
        row = rows.row[layer - 1]
        end = rows.left[layer - 1] + rows.wide[layer - 1]
        if x < end:  # past what is wider above it
            path.append(f"H{end:g}")
            x = end
        if rows.row[layer] != row:
            lane = lanes[row] = lanes.get(row, -1) + 1
            turn = min(16 + lane * 4, MARGIN_ACROSS - 4)
            path.append(_return((x, y), (to_x, to_y), (end + turn, MARGIN_ACROSS - turn), rows.bottoms[row] + LANE * lane))
        elif abs(to_y - y) < 1:
            path.append(f"H{to_x:g}")
        else:
            bend = (x + to_x) / 2
            path.append(f"C{bend:g} {y:g} {bend:g} {to_y:g} {to_x:g} {to_y:g}")
        x, y = to_x, to_y
        if item != edge[1]:
            x += rows.wide[layer]
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
