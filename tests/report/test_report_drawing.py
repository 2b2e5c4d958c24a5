"""Laws of the layered drawing and of printed numbers."""

from __future__ import annotations

import re
from itertools import combinations, pairwise
from math import floor, log10

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.report import units
from dovetail.report.hierarchy import Group, hierarchy, paths, short_names
from dovetail.report.layout import BOX_WIDTH, DOCK, Drawing, Size, arrange, fitted
from dovetail.report.markup import breakable, element, embedded_json

WIDE = 1200.0
Network = tuple[dict[str, Size], list[tuple[str, str]]]


@st.composite
def _networks(draw: st.DrawFn) -> Network:
    """Random acyclic networks of boxes of any size in which every box but the first reads something before it."""
    size = draw(st.integers(1, 25))
    sizes = {f"n{i}": (draw(st.integers(100, 400)) * 1.0, draw(st.integers(50, 300)) * 1.0) for i in range(size)}
    edges = [(f"n{draw(st.integers(max(0, i - 8), i - 1))}", f"n{i}") for i in range(1, size)
             for _ in range(draw(st.integers(1, 3)))]
    return sizes, edges


def _apart(sizes: dict[str, Size], drawing: Drawing) -> bool:
    """Whether no two boxes overlap and none lies outside."""
    spans = [(x, y, x + sizes[n][0], y + sizes[n][1]) for n, (x, y) in drawing.boxes.items()]
    inside = all(min(s) >= 0 and s[2] <= drawing.width and s[3] <= drawing.height for s in spans)
    return inside and all(a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1] for a, b in combinations(spans, 2))


@given(_networks())
def test_boxes_never_overlap_and_all_lies_inside(network: Network) -> None:
    sizes, edges = network
    drawing = arrange(sizes, edges, WIDE)
    assert set(drawing.boxes) == set(sizes)
    assert set(drawing.paths) == set(edges)
    assert _apart(sizes, drawing)
    assert _apart(sizes, fitted(sizes, edges, 2.0))
    for path in drawing.paths.values():
        for x in re.findall(r"[MLC]([\d.]+) ", path):
            assert 0 <= float(x) <= drawing.width


@given(_networks())
def test_every_edge_leaves_its_source_and_enters_its_target(network: Network) -> None:
    sizes, edges = network
    drawing = arrange(sizes, edges, WIDE)
    for (source, target), path in drawing.paths.items():
        x, y = drawing.boxes[source]
        assert path.startswith(f"M{x + sizes[source][0]:g} {y + DOCK:g}")
        assert re.search(rf"[H ,]{drawing.boxes[target][0]:g}( [\d.]+)?$", path)


def _layers(names: list[str]) -> dict[str, Size]:
    return {name: (float(BOX_WIDTH), 66.0) for name in names}


def test_a_residual_runs_beside_the_main_line() -> None:
    drawing = arrange(_layers(["in", "a", "b", "add"]), [("in", "a"), ("a", "b"), ("b", "add"), ("in", "add")], WIDE)
    assert len({y for _, y in drawing.boxes.values()}) == 1
    assert [n for n, _ in sorted(drawing.boxes.items(), key=lambda kv: kv[1][0])] == ["in", "a", "b", "add"]


def test_a_long_network_wraps_into_rows_as_wide_as_the_page() -> None:
    names = [f"n{i}" for i in range(60)]
    drawing = arrange(_layers(names), list(pairwise(names)), WIDE)
    assert drawing.width <= WIDE
    assert len({y for _, y in drawing.boxes.values()}) == 10
    wide, tall = (fitted(_layers(names), list(pairwise(names)), aspect) for aspect in (3.0, 0.5))
    assert wide.width / wide.height > 2 > 1 > tall.width / tall.height


def test_nothing_to_draw_is_drawn() -> None:
    assert arrange({}, [], WIDE).boxes == {}


def _chain(names: list[str], sizes: list[int] | None = None, skips: dict[int, int] | None = None) -> list[dict[str, object]]:
    """Layers one after another; `skips` reads the output of an earlier one as well."""
    skipped = {i: [f"t{j + 1}"] for i, j in (skips or {}).items()}
    return [{"name": name, "op": "Conv", "shape": [1, 8, s, s], "inputs": [f"t{i}", *skipped.get(i, [])], "output": f"t{i + 1}"}
            for i, (name, s) in enumerate(zip(names, sizes or [8] * len(names), strict=True))]


def _told(group: Group, names: list[str]) -> object:
    return {c.name: _told(c, names) for c in group.children if isinstance(c, Group)} | {
        names[c]: None for c in group.children if isinstance(c, int)}


def test_names_lose_what_they_have_in_common() -> None:
    exported = ["/features/features.0/features.0.0/Conv", "/features/features.1/conv/conv.0/Conv",
                "/classifier/classifier.1/Conv"]
    assert short_names(_chain(exported)) == ["features.0.0", "features.1.conv.0", "classifier.1"]
    assert paths(["model/a/x", "model/b/x"]) == [("a", "x"), ("b", "x")]
    assert short_names(_chain(["block.conv", "block", "block.add"])) == ["block.conv", "block", "block.add"]
    assert short_names(_chain(["conv"])) == ["conv"]


def test_stages_have_one_resolution_and_blocks_follow_the_names() -> None:
    names = ["stem", *(f"layer{1 + i // 6}.{i // 3 % 2}.{('a', 'b', 'add')[i % 3]}" for i in range(12)), "pool", "fc"]
    skips = {i: i - 3 for i in (3, 6, 9, 12)}
    root = hierarchy(_chain(names, [16] * 7 + [8] * 6 + [1, 1], skips), ("t15",))
    assert _told(root, names) == {
        "stage 1": {"stem": None, "layer1.0": dict.fromkeys(names[1:4]), "layer1.1": dict.fromkeys(names[4:7])},
        "stage 2": {"layer2.0": dict.fromkeys(names[7:10]), "layer2.1": dict.fromkeys(names[10:13])},
        "stage 3": {"pool": None, "fc": None}}
    assert [root.members, len(root.children)] == [tuple(range(15)), 3]


@given(st.lists(st.sampled_from(["a", "b", "a.b", "a.b.c", "x.y.z", "conv"]), min_size=1, max_size=60), st.integers(1, 9))
def test_every_layer_is_in_one_group_in_order_and_no_group_is_too_large(stems: list[str], change: int) -> None:
    names = [f"{stem}.{i}" for i, stem in enumerate(stems)]
    nodes = _chain(names, [1 + i // change for i in range(len(names))])
    root = hierarchy(nodes, (f"t{len(names)}",))
    assert root.members == tuple(range(len(names)))
    assert len(set(short_names(nodes))) == len(names)

    def largest(group: Group) -> int:
        return max(len(group.children), *(largest(c) for c in group.children if isinstance(c, Group)), 0)

    assert largest(root) <= 16 or len(root.children) > 16


def test_a_thousand_layers_without_names_are_few_groups() -> None:
    root = hierarchy(_chain([f"n{i}" for i in range(1000)]), ("t1000",))
    assert len(root.children) <= 16
    assert all(isinstance(c, Group) and len(c.children) <= 16 for c in root.children)


@given(st.floats(1e-6, 1e12))
def test_three_significant_digits_are_near_enough_and_no_more(value: float) -> None:
    shown = units.significant(value)
    assert "e" not in shown
    plain = shown.replace(",", "")
    assert abs(float(plain) - value) <= 0.5000001 * 10.0 ** (floor(log10(value)) - 2) + 1e-12 * value
    if value < 1e3:
        assert len(plain.replace(".", "").lstrip("0")) <= 3


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (units.seconds(0.00042), "420 µs"),
        (units.seconds(1.3e-3), "1.30 ms"),
        (units.seconds(0.9999e-3), "1.00 ms"),
        (units.seconds(0), "0 ns"),
        (units.seconds(None), "–"),
        (units.joules(3.14159e-3), "3.14 mJ"),
        (units.size(1_500_000), "1.50 MB"),
        (units.count(80_330.0), "80,330"),
        (units.percent(0.155), "15.5 %"),
        (units.percent(0.0), "0 %"),
        (units.accuracy(0.91291), "91.29 %"),
        (units.hertz(150e6), "150 MHz"),
        (units.quantity(759_712), "760 k"),
        (units.shape([1, 3, 8, 8]), "1×3×8×8"),
        (units.millis(2.5e-5), "0.0250"),
    ],
)
def test_numbers_read_as_people_write_them(shown: str, expected: str) -> None:
    assert shown == expected


@given(st.text())
def test_text_can_neither_open_nor_close_markup(words: str) -> None:
    written = element("b", words, title=words)
    assert written.count("<") == 2
    assert written.count('"') == 2
    assert "<" not in embedded_json(words)
    assert breakable(words).replace("<wbr>", "").count("<") == 0
