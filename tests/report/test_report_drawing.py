"""Laws of the layered drawing and of printed numbers."""

from __future__ import annotations

import re
from itertools import combinations, pairwise
from math import floor, log10

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.report import units
from dovetail.report.layout import BOX_HEIGHT, BOX_WIDTH, LAYERS_PER_ROW, arrange
from dovetail.report.markup import breakable, element, embedded_json


@st.composite
def _networks(draw: st.DrawFn) -> tuple[list[str], list[tuple[str, str]]]:
    """Random acyclic networks in which every box but the first reads something before it."""
    size = draw(st.integers(1, 25))
    names = [f"n{i}" for i in range(size)]
    edges = [
        (names[draw(st.integers(max(0, i - 8), i - 1))], names[i]) for i in range(1, size) for _ in range(draw(st.integers(1, 3)))
    ]
    return names, edges


@given(_networks())
def test_boxes_never_overlap_and_all_lies_inside(network: tuple[list[str], list[tuple[str, str]]]) -> None:
    names, edges = network
    drawing = arrange(names, edges)
    assert set(drawing.boxes) == set(names)
    assert set(drawing.paths) == set(edges)
    for (ax, ay), (bx, by) in combinations(drawing.boxes.values(), 2):
        assert abs(ax - bx) >= BOX_WIDTH or abs(ay - by) >= BOX_HEIGHT
    for x, y in drawing.boxes.values():
        assert 0 <= x <= drawing.width - BOX_WIDTH
        assert 0 <= y <= drawing.height - BOX_HEIGHT
    for path in drawing.paths.values():
        for x in re.findall(r"[MLC]([\d.]+) ", path):
            assert 0 <= float(x) <= drawing.width


@given(_networks())
def test_every_edge_leaves_its_source_and_enters_its_target(network: tuple[list[str], list[tuple[str, str]]]) -> None:
    drawing = arrange(*network)
    for (source, target), path in drawing.paths.items():
        x, y = drawing.boxes[source]
        assert path.startswith(f"M{x + BOX_WIDTH:g} {y + BOX_HEIGHT / 2:g}")
        assert re.search(rf"[H ,]{drawing.boxes[target][0]:g}( [\d.]+)?$", path)


def test_a_residual_runs_beside_the_main_line() -> None:
    drawing = arrange(["in", "a", "b", "add"], [("in", "a"), ("a", "b"), ("b", "add"), ("in", "add")])
    assert len({y for _, y in drawing.boxes.values()}) == 1
    assert [n for n, _ in sorted(drawing.boxes.items(), key=lambda kv: kv[1][0])] == ["in", "a", "b", "add"]


def test_a_long_network_wraps_into_rows_as_wide_as_the_page() -> None:
    names = [f"n{i}" for i in range(60)]
    drawing = arrange(names, list(pairwise(names)))
    assert drawing.width <= 1200
    assert len({y for _, y in drawing.boxes.values()}) == 60 // LAYERS_PER_ROW


def test_nothing_to_draw_is_drawn() -> None:
    assert arrange([], []).boxes == {}


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
