"""What every command prints the same way: results, notes and progress, on streams as they are.

Standard output and standard error may have any encoding, be closed, full or a pipe nobody reads any more.
"""

from __future__ import annotations

import codecs
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from dovetail.errors import Interrupted
from dovetail.files import replace_text
from dovetail.progress import Progress

PLAIN = {"─": "-", "…": "...", "µ": "u", "·": ".", "–": "-", "—": "-", "±": "+-", "×": "x", "→": "->", "≥": ">=", "≤": "<=",
         "∞": "inf", "✓": "+", "✗": "x", "\u202f": " ", "\u00a0": " "}
"""What stands for our signs where the encoding lacks them."""
LINES_S = 2.0
"""Seconds between two lines on the progress of one stage. Chosen, not measured."""


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


def progress_lines(write: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> Progress:
    """Progress as lines: one per stage, and while it lasts one every `LINES_S` with its count and the time left."""
    stage, began, told = "", 0.0, 0.0

    def line(now: str, done: int, total: int) -> None:
        nonlocal stage, began, told
        at = clock()
        if now != stage:
            stage, began, told = now, at, at
            write(now)
        elif at - told >= LINES_S and 0 < done < total:
            told = at
            write(f"{now}: {done} of {total}, about {(at - began) * (total - done) / done:.0f} s left")

    return line


@contextmanager
def progress_bar() -> Iterator[Progress]:
    """Progress on standard error: a bar, or, where it is no terminal, lines with count and time left every few seconds."""
    if not sys.stderr.isatty():
        yield progress_lines(lambda text: print(f"  {text}", file=sys.stderr, flush=True))
        return
    from rich import console, progress
    with progress.Progress(progress.SpinnerColumn(), progress.TextColumn("{task.description}"), progress.BarColumn(),
                           progress.MofNCompleteColumn(), progress.TimeElapsedColumn(), progress.TimeRemainingColumn(),
                           console=console.Console(stderr=True), transient=True) as bar:
        task, last = bar.add_task("start", total=None), [""]

        def show(stage: str, done: int, total: int) -> None:
            if stage != last[0]:  # what one stage takes says nothing of the next
                bar.reset(task)
                last[0] = stage
            bar.update(task, description=stage, completed=done, total=total)

        yield show


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


def plain(problem: UnicodeError) -> tuple[str, int]:
    """An encoding error handler that writes the nearest ASCII."""
    if not isinstance(problem, UnicodeEncodeError):
        raise problem
    return "".join(PLAIN.get(c, "?") for c in problem.object[problem.start:problem.end]), problem.end


def prepare_streams() -> None:
    """Let no name or sign that the terminal cannot show end in a traceback."""
    codecs.register_error("plain", plain)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="plain")


def flush_output() -> None:
    """Meet errors of standard output here, where they can still be answered."""
    if sys.stdout is not None:
        sys.stdout.flush()


def abandon_output(problem: OSError) -> int:
    """The exit code after an error of the system: 0 where the reader of a pipe has seen enough, else 2 and one line."""
    if sys.stdout is not None:  # what is still to be written goes nowhere, or the interpreter complains at its end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if isinstance(problem, BrokenPipeError):
        return 0
    print(f"dovetail: {problem.filename or 'output'}: {(problem.strerror or str(problem)).lower()}; "
          "check the path, its permissions and the free space", file=sys.stderr)
    return 2
