"""Standard output and standard error as they are: any encoding, closed, full or a pipe nobody reads any more."""

from __future__ import annotations

import codecs
import os
import sys

PLAIN = {"─": "-", "…": "...", "µ": "u", "·": ".", "–": "-", "—": "-", "±": "+-", "×": "x", "→": "->", "≥": ">=", "≤": "<=",
         "∞": "inf", "\u202f": " ", "\u00a0": " "}
"""What stands for our signs where the encoding lacks them."""


def plain(problem: UnicodeError) -> tuple[str, int]:
    """An encoding error handler that writes the nearest ASCII."""
    if not isinstance(problem, UnicodeEncodeError):
        raise problem
    return "".join(PLAIN.get(c, "?") for c in problem.object[problem.start:problem.end]), problem.end


def prepare() -> None:
    """Let no name or sign that the terminal cannot show end in a traceback."""
    codecs.register_error("plain", plain)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="plain")


def flush() -> None:
    """Meet errors of standard output here, where they can still be answered."""
    if sys.stdout is not None:
        sys.stdout.flush()


def abandon(problem: OSError) -> int:
    """The exit code after an error of the system: 0 where the reader of a pipe has seen enough, else 2 and one line."""
    if sys.stdout is not None:  # what is still to be written goes nowhere, or the interpreter complains at its end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if isinstance(problem, BrokenPipeError):
        return 0
    print(f"dovetail: {problem.filename or 'output'}: {(problem.strerror or str(problem)).lower()}; "
          "check the path, its permissions and the free space", file=sys.stderr)
    return 2
