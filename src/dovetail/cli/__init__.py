"""The command line, one module per group of commands; `main` is the program `dovetail`."""

from dovetail.cli.program import main

__all__ = ["main"]
