"""A board, an operator, a solver and an engine for Dovetail, in a package of their own."""

from pathlib import Path

BOARD = Path(__file__).with_name("bench-top.toml")
