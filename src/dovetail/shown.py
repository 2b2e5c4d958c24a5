"""Results as Python shows them: one line by `repr`, a table in a notebook, a data frame for pandas."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from html import escape
from importlib import import_module
from typing import Any

from dovetail.errors import ToolError
from dovetail.report import units
from dovetail.words import counted

Rows = Sequence[Mapping[str, Any]]
"""A table: values by column, in SI units that end the column's name (`latency_s`)."""
MOST_ROWS = 200
"""Rows that a notebook shows. Chosen: a page of a browser stays quick."""
UNITS: Mapping[str, Callable[[float | None], str]] = {"_s": units.seconds, "_j": units.joules, "_bytes": units.size,
                                                      "_db": lambda x: f"{units.significant(x or 0.0)} dB"}
"""How values are written, by the end of their column's name."""


class Shown(ABC):
    """A result that says itself in one line, and holds one table."""

    __slots__ = ()

    @abstractmethod
    def headline(self) -> str:
        """The result in one sentence."""

    @abstractmethod
    def rows(self) -> Rows:
        """The result's table, values in SI units by column."""

    def caption(self) -> str:
        """What stands above the table in a notebook."""
        return self.headline()

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.headline()}>"

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        rows = self.rows()
        left = len(rows) - MOST_ROWS
        more = f"<p>and {counted(left, 'row')} more: <code>to_pandas()</code></p>" if left > 0 else ""
        return f"<p>{escape(self.caption())}</p>{_html(rows[:MOST_ROWS])}{more}"

    def to_pandas(self) -> Any:
        """The table as a `pandas.DataFrame`; pandas is the extra `notebook`.

        Raises:
            ToolError: pandas is not installed.
        """
        try:
            pandas = import_module("pandas")
        except ImportError:
            raise ToolError("to_pandas: pandas is not installed; get it with pip install 'dovetail-accel[notebook]', or take "
                            "rows(), which needs none") from None
        return pandas.DataFrame(list(self.rows()))


def _html(rows: Rows) -> str:
    if not rows:
        return ""
    names = list(rows[0])
    ends = {name: next((end for end in UNITS if name.endswith(end)), "") for name in names}
    head = "".join(f"<th>{escape(name.removesuffix(ends[name]).replace('_', ' '))}</th>" for name in names)
    body = "".join("<tr>" + "".join(_cell(row[name], ends[name]) for name in names) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(value: Any, end: str) -> str:
    if isinstance(value, bool) or value is None or isinstance(value, str):
        said = value if isinstance(value, str) else "yes" if value else "no" if value is False else ""
        return f'<td style="text-align:left">{escape(said)}</td>'
    if isinstance(value, list | tuple):
        return f'<td style="text-align:left">{escape("×".join(map(str, value)))}</td>'
    return f"<td>{escape(UNITS[end](value) if end else units.count(value))}</td>"
