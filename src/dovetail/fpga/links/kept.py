"""The folder of a long simulation that may be stopped: its state as `bench.cpp` keeps it, and what was said until then."""

from __future__ import annotations

import shutil
from pathlib import Path

from dovetail.files import replace_text

KEPT, LOG, TOLD, IDENTITY = "kept.txt", "simulation.log", "told.log", "identity.txt"


def open_kept(folder: Path, identity: str) -> list[str]:
    """Make a folder ready for a run of this identity; returns the lines of earlier ones that its state includes.

    State of another system, or of other inputs, is removed.
    """
    mark = folder / IDENTITY
    if folder.is_dir() and (not mark.is_file() or mark.read_text(encoding="ascii") != identity):
        shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)
    replace_text(mark, identity)
    if not (folder / KEPT).is_file():
        return []
    last = f"checkpoint {(folder / KEPT).read_text(encoding='ascii').strip()}"
    told = _lines(folder / TOLD)
    if not told or told[-1] != last:
        said = _lines(folder / LOG)
        told += said[:said.index(last) + 1]
        replace_text(folder / TOLD, "\n".join(told) + "\n")
    return told


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
