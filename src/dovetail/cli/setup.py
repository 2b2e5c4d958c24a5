"""Commands on the installation: its documentation, what is there and what is missing, and a board of one's own."""

from __future__ import annotations

from pathlib import Path

from dovetail.cli.options import Commands

TEMPLATE = "zcu102"
"""The board that a new one begins as, unless told."""


def add_commands(commands: Commands) -> None:
    """`docs`, `doctor`, `new-board`."""
    docs = commands.add("docs", "where the documentation is, as pages that need no network", "dovetail docs --open")
    docs.add_argument("--open", action="store_true", help="open it in the browser")
    commands.add("doctor", "what is installed, what is missing, what it is for and how to get it", "dovetail doctor --json -")
    board = commands.add("new-board", "a commented board file to edit, with the numbers of a board that comes along",
                         "dovetail new-board my-board -o my-board.toml --from zcu102")
    board.add_argument("name", help="what the board is called: letters, digits, - and _, a letter first")
    board.add_argument("-o", "--output", type=Path, help="the file to write (default: NAME.toml)")
    board.add_argument("--from", dest="source", default=TEMPLATE, metavar="BOARD",
                       help="the board whose numbers it begins with, by name or TOML file (default: %(default)s)")
