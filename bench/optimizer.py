"""How long plans take, and how far other solvers are behind: `planning.py --part speed`, growth, front and quality in one.

`python bench/optimizer.py --json FILE [--part NAME ...] [--resume]` writes all four into one file.
"""

from __future__ import annotations

from lib.planning.solvers import NAMES, main

PARTS = NAMES

if __name__ == "__main__":
    main()
