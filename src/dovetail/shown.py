"""Results as Python shows them: one line by `repr`, a table in a notebook, a data frame for pandas, a file of rows."""

from __future__ import annotations

import csv
import io
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from html import escape
from importlib import import_module
from pathlib import Path
from typing import Any

from dovetail.errors import ToolError, UsageError
from dovetail.files import check_file, replace_bytes, replace_text
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

    def save_table(self, path: str | Path) -> Path:
        """Write the table as CSV, or as Parquet where the file is called so (`pip install pyarrow`)."""
        write_table(Path(path), self.rows())
        return Path(path)


def check_table(path: Path | None) -> None:
    """Refuse at once a table that could not be written after all the work.

    Raises:
        UsageError: the name does not say the format, or nothing can be written there.
        ToolError: pyarrow is not installed.
    """
    if path is None:
        return
    if path.suffix not in (".csv", ".parquet"):
        raise UsageError(f"--table {path}: a name that ends in .csv or .parquet is needed")
    check_file(path)
    if path.suffix == ".parquet":
        _pyarrow(path)


def write_table(path: Path, rows: Rows) -> None:
    """Rows under the names of their columns, in SI units; shapes are written as `1x3x8x8`."""
    check_table(path)
    plain = [{name: "x".join(map(str, v)) if isinstance(v, list | tuple) else v for name, v in row.items()} for row in rows]
    if path.suffix == ".parquet":
        sink = io.BytesIO()
        arrow = _pyarrow(path)
        import_module("pyarrow.parquet").write_table(arrow.Table.from_pylist(plain), sink)
        replace_bytes(path, sink.getvalue())
        return
    text = io.StringIO()
    writer = csv.DictWriter(text, list(plain[0]) if plain else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(plain)
    replace_text(path, text.getvalue())


def _pyarrow(path: Path) -> Any:
    try:
        return import_module("pyarrow")
    except ImportError:
        raise ToolError(f"{path}: Parquet is written by pyarrow, which is not installed; get it with pip install pyarrow, or "
                        "name a .csv") from None


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
