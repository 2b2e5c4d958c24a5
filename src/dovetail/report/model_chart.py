"""Device models against measurements: every row by what was measured and what was predicted without it, as one SVG."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import ceil, floor, log10
from typing import Any

from dovetail.platform.quantity import Errors, QuantityModel
from dovetail.report import units
from dovetail.report.markup import Markup, element
from dovetail.report.palette import Report
from dovetail.words import counted

WIDTH, HEIGHT = 410, 456
LEFT, RIGHT, TOP = 68, 18, 78
SIDE = WIDTH - LEFT - RIGHT
BAND = 0.10
"""Relative error that the band around the diagonal shows."""
MARGIN = 0.06
"""Part of the axes beyond the rows at either end, where models extrapolate."""
STYLE = """
.mc-t { fill: var(--ink, #1c1f26); } .mc-m { fill: var(--muted, #5a6070); } .mc-g { stroke: var(--line, #dcdee4); }
.mc-f { fill: var(--soft, #eceef2); } .mc-p { fill: var(--card, #ffffff); } .mc-c { fill: var(--accent, #2f5bb7); }
.mc-b { fill: var(--good, #17663a); fill-opacity: .13; } .mc-d { stroke: var(--ink, #1c1f26); stroke-opacity: .55; }
@media (prefers-color-scheme: dark) {
.mc-t { fill: var(--ink, #e8eaf0); } .mc-m { fill: var(--muted, #a6adbd); } .mc-g { stroke: var(--line, #343946); }
.mc-f { fill: var(--soft, #262a34); } .mc-p { fill: var(--card, #1c1f27); } .mc-c { fill: var(--accent, #8fb4ff); }
.mc-b { fill: var(--good, #7fdca0); fill-opacity: .16; } .mc-d { stroke: var(--ink, #e8eaf0); }
}"""
"""Colours of the report where the chart stands in one, and the same by the reader's own preference elsewhere."""
UNITS: Mapping[str, tuple[tuple[float, str], ...]] = {
    "s": ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")), "Hz": ((1e6, "MHz"),), "W": ((1.0, "W"),)}
"""Units that axes may be marked in; others are counts."""


def chart_entry(model: QuantityModel, errors: Errors) -> dict[str, Any]:
    """What a chart needs to know of a model's form; None for a scatter that was not recorded."""
    scatter = errors.scatter
    return {"quantity": model.quantity, "unit": model.unit, "rows": model.rows, "mean": errors.mean, "p50": errors.p50,
            "p90": errors.p90, "low": errors.low, "high": errors.high, "coverage": errors.coverage,
            "scatter": None if scatter is None else [scatter.start, scatter.step, [list(c) for c in scatter.cells]]}


def model_charts(report: Report) -> list[Markup]:
    """One chart per measured quantity of the report's devices; nothing where no device has published rows."""
    return [element("figure", model_chart(f"{device['name']} {entry['quantity']}", entry), class_="model-chart")
            for device in report["platform"]["devices"] for entry in device.get("accuracy") or [] if entry.get("scatter")]


def model_chart(title: str, entry: Mapping[str, Any]) -> Markup:
    """Predicted against measured, both logarithmic, with the line of perfect prediction and a band of a tenth around it."""
    start, step, cells = entry["scatter"]
    scale = _Scale(start, step, cells)
    lines = captions(entry)
    return element(
        "svg",
        element("title", f"{title}: {'; '.join(lines)}"),
        element("style", Markup(STYLE)),
        element("text", title, x=LEFT, y="19", font_size="14", font_weight="600", class_="mc-t"),
        [element("text", line, x=LEFT, y=36 + 15 * i, font_size="11", class_="mc-m") for i, line in enumerate(lines)],
        element("rect", x=LEFT, y=TOP, width=SIDE, height=SIDE, class_="mc-f"),
        element("rect", x=_n(scale.at(scale.low)), y=_n(scale.up(scale.high)), width=_n(scale.inner), height=_n(scale.inner),
                class_="mc-p"),
        list(_grid(scale, entry["unit"])),
        _diagonal(scale),
        [_cell(scale, start, step, cell, max(c[2] for c in cells)) for cell in cells],
        list(_legend()),
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        width=WIDTH,
        height=HEIGHT,
        role="img",
        font_family="system-ui, sans-serif",
    )


def captions(entry: Mapping[str, Any]) -> tuple[str, ...]:
    """How far the rows are off, in lines."""
    percent = {key: f"{units.significant(100 * entry[key], 2)} %" for key in ("mean", "p50", "p90")}
    met = "" if entry["coverage"] is None else f", {100 * entry['coverage']:.0f} % of rows in it"
    return (f"{counted(entry['rows'], 'row')}, each left out of its fit: {percent['mean']} off on average",
            f"half within {percent['p50']}, nine of ten within {percent['p90']}",
            f"90 % interval: prediction × {entry['low']:.3f} to {entry['high']:.3f}{met}")


class _Scale:
    """The same logarithmic axis to the right and upwards; `low` and `high` are where the rows end, in powers of ten."""

    def __init__(self, start: float, step: float, cells: list[list[int]]) -> None:
        self.low, self.high = start, start + step * (1 + max(max(i, j) for i, j, _ in cells))
        beyond = MARGIN * (self.high - self.low)
        self.first, self.last = self.low - beyond, self.high + beyond

    @property
    def inner(self) -> float:
        """Length of the axis on which rows lie."""
        return self.at(self.high) - self.at(self.low)

    def at(self, power: float) -> float:
        return LEFT + SIDE * (power - self.first) / (self.last - self.first)

    def up(self, power: float) -> float:
        return TOP + SIDE * (self.last - power) / (self.last - self.first)


def _n(value: float) -> str:
    return f"{value:.1f}"


def _cell(scale: _Scale, start: float, step: float, cell: list[int], most: int) -> Markup:
    """Rows of one cell, the more the stronger."""
    i, j, rows = cell
    size = scale.at(start + step) - scale.at(start)
    shade = 0.35 + 0.65 * (log10(1 + rows) / log10(1 + most))
    return element("rect", x=_n(scale.at(start + i * step) + 0.1), y=_n(scale.up(start + (j + 1) * step) + 0.1),
                   width=_n(size), height=_n(size), rx="0.8", class_="mc-c", fill_opacity=f"{shade:.2f}")


def _diagonal(scale: _Scale) -> list[Markup]:
    """The line where prediction and measurement agree, and the band of a tenth around it."""
    wide = log10(1 + BAND)
    ends = [(scale.first, scale.first), (scale.last, scale.last)]
    corners = [(scale.first, min(scale.first + wide, scale.last)), (scale.last - wide, scale.last), (scale.last, scale.last),
               (scale.last, scale.last - wide), (scale.first + wide, scale.first), (scale.first, scale.first)]
    band = " ".join(f"{_n(scale.at(x))},{_n(scale.up(y))}" for x, y in corners)
    (x1, y1), (x2, y2) = ((_n(scale.at(x)), _n(scale.up(y))) for x, y in ends)
    return [element("polygon", points=band, class_="mc-b", stroke="none"),
            element("line", x1=x1, y1=y1, x2=x2, y2=y2, class_="mc-d", stroke_width="1")]


def _ticks(scale: _Scale) -> list[float]:
    """Round numbers: powers of ten over wide ranges, also 2 and 5 over narrow ones, equal steps over less than a decade."""
    span = scale.last - scale.first
    if span < 0.7:
        low, high = 10**scale.first, 10**scale.last
        step = 10 ** floor(log10((high - low) / 3))
        step *= next(m for m in (1, 2, 5, 10) if (high - low) / (m * step) <= 6)
        return [step * i for i in range(ceil(low / step), floor(high / step) + 1)]
    marks = (1,) if span > 2.6 else (1, 2, 5) if span < 1.7 else (1, 3)
    powers = range(floor(scale.first), ceil(scale.last) + 1)
    return [m * 10.0**p for p in powers for m in marks if scale.first <= log10(m * 10.0**p) <= scale.last]


def _grid(scale: _Scale, unit: str) -> Iterator[Markup]:
    ticks = _ticks(scale)
    options = UNITS.get(unit, ((1.0, unit),))
    factor, name = next((u for u in options if ticks[0] >= u[0]), options[-1])
    for tick in ticks:
        x, y = scale.at(log10(tick)), scale.up(log10(tick))
        yield element("line", x1=_n(x), x2=_n(x), y1=TOP, y2=TOP + SIDE, class_="mc-g")
        yield element("line", x1=LEFT, x2=LEFT + SIDE, y1=_n(y), y2=_n(y), class_="mc-g")
        number = f"{float(f'{tick / factor:.3g}'):,g}"
        yield element("text", number, x=_n(x), y=TOP + SIDE + 15, font_size="10.5", text_anchor="middle", class_="mc-m")
        yield element("text", number, x=LEFT - 6, y=_n(y + 3.5), font_size="10.5", text_anchor="end", class_="mc-m")
    middle = TOP + SIDE / 2
    yield element("text", f"measured, {name}", x=LEFT + SIDE / 2, y=TOP + SIDE + 36, font_size="11.5", text_anchor="middle",
                  class_="mc-t")
    yield element("text", f"predicted, {name}", x="14", y=middle, font_size="11.5", text_anchor="middle", class_="mc-t",
                  transform=f"rotate(-90 14 {middle:g})")


def _legend() -> Iterator[Markup]:
    """What the marks mean, in the corner where no row of a fair model lies."""
    left, top = LEFT + SIDE - 184, TOP + SIDE - 84
    yield element("line", x1=left, x2=left + 16, y1=top, y2=top, class_="mc-d", stroke_width="1.5")
    yield element("rect", x=left, y=top + 11, width="16", height="9", class_="mc-b")
    yield element("rect", x=left + 4, y=top + 29, width="8", height="8", rx="1", class_="mc-c")
    yield element("rect", x=left, y=top + 46, width="16", height="10", class_="mc-f mc-g")
    for i, words in enumerate(("predicted = measured", f"within {BAND:.0%}".replace("%", " %"), "rows, the more the stronger",
                               "beyond the rows: extrapolated")):
        yield element("text", words, x=left + 22, y=top + 4 + 17 * i, font_size="10", class_="mc-m")
