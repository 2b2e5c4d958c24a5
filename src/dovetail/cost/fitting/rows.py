"""Measured rows as columns of numbers, and their division into folds."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from dovetail.errors import UsageError
from dovetail.hardware.shares import Flags, Floats, Ints

SOURCE = "SysIdentif repository of the authors of GP partitioning 2023, commit 4b4b4e4"
FILES = {"tx2-gpu": "jetson_tx2_gpu_conv.csv", "tx2-cpu": "jetson_tx2_cpu_conv.csv", "c10gx": "cyclone10gx_dhm_conv.csv"}
LEVEL_COLUMNS = ("hw", "c", "k", "n")
"""Side of the square input, channels, side of the square kernel, filters."""
FOLDS = 5

Columns = Mapping[str, Floats]


def read_rows(path: Path, columns: Sequence[str]) -> dict[str, Floats]:
    """The named columns of a CSV file with one line of headings; every complaint names row and column."""
    names, lines = _read(path)
    for name in columns:
        if name not in names:
            raise UsageError(f"{path}: no column {name}, found {', '.join(names) or 'none'}; needed are {', '.join(columns)}")
    if not lines:
        raise UsageError(f"{path}: no rows below the headings; at least one is needed")
    return {name: np.array([_number(path, i + 2, name, line[name]) for i, line in enumerate(lines)]) for name in columns}


def headings(path: Path) -> tuple[tuple[str, ...], int]:
    """The columns a CSV file has, and how many rows."""
    names, lines = _read(path)
    return names, len(lines)


def _read(path: Path) -> tuple[tuple[str, ...], list[dict[str, str | None]]]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file, skipinitialspace=True)
            names = tuple(name.strip() for name in reader.fieldnames or () if name is not None)
            reader.fieldnames = names
            return names, list(reader)
    except FileNotFoundError:
        raise UsageError(f"{path}: no such file; the measurements are read from it") from None
    except (OSError, UnicodeDecodeError, csv.Error) as problem:
        raise UsageError(f"{path}: not readable as CSV, {problem}; give comma-separated text with a line of headings") from None


def _number(path: Path, row: int, column: str, text: str | None) -> float:
    try:
        value = float(text or "")
    except ValueError:
        raise UsageError(f"{path}: row {row}, column {column}: {text!r} is not a number; give one, without unit") from None
    if not np.isfinite(value) or value < 0:
        raise UsageError(f"{path}: row {row}, column {column}: {text} is not possible; a finite number from 0 is needed")
    return value


def fold_numbers(points: Floats, folds: int = FOLDS) -> Ints:
    """The fold of every row, seeded; rows of one configuration share theirs, so that no repeat is judged by its twin."""
    _, group = np.unique(points, axis=0, return_inverse=True)
    fold_of_group = np.random.default_rng(0).permutation(np.arange(group.max() + 1) % folds)
    return np.asarray(fold_of_group[group.ravel()], dtype=np.int64)


def divisions(points: Floats, folds: int = FOLDS) -> Iterator[tuple[Flags, Flags]]:
    """(seen, kept back) rows, fold after fold."""
    fold = fold_numbers(points, folds)
    for k in range(int(fold.max()) + 1):
        yield fold != k, fold == k
