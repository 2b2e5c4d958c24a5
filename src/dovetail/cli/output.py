"""What every command prints the same way: results, notes and progress."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from dovetail.errors import Interrupted
from dovetail.files import replace_text
from dovetail.progress import Progress


def emit(target: str | None, document: object, text: Callable[[], str]) -> None:
    """JSON where asked for, else words."""
    if target is None:
        print(text())
        return
    content = json.dumps(document, indent=1, allow_nan=False) + "\n"
    if target == "-":
        print(content, end="")
    else:
        replace_text(target, content)


@contextmanager
def progress_bar() -> Iterator[Progress]:
    """A progress bar on standard error, for people only."""
    if not sys.stderr.isatty():
        last = [""]

        def line(stage: str, done: int, total: int) -> None:
            if stage != last[0]:
                print(f"  {stage}", file=sys.stderr, flush=True)
                last[0] = stage

        yield line
        return
    from rich import console, progress
    with progress.Progress(progress.SpinnerColumn(), progress.TextColumn("{task.description}"), progress.BarColumn(),
                           progress.TimeElapsedColumn(), console=console.Console(stderr=True), transient=True) as bar:
        task = bar.add_task("start", total=None)
        yield lambda stage, done, total: bar.update(task, description=stage, completed=done, total=total)


@contextmanager
def keeping(path: Path, what: str) -> Iterator[None]:
    """Where the work inside is interrupted, say that `path` keeps what of it is done, if it does.

    Raises:
        Interrupted: in the place of KeyboardInterrupt.
    """
    try:
        yield
    except KeyboardInterrupt as stop:
        if not path.exists():
            raise
        raise Interrupted(f"{path} keeps {what}; the same command goes on from there") from stop


def warn(warnings: Sequence[str]) -> None:
    """Notes on standard error, so that results stay clean."""
    for warning in warnings:
        print(f"dovetail: note: {warning}", file=sys.stderr)
