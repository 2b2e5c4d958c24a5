"""How near plans are to their bounds, on boards that no search was chosen on too, and how long they take.

`python bench/planning.py --json FILE [--part NAME] [options of the part, see --part NAME --help]`. What FILE holds is kept:
`boards` and `quality` go on where they stopped.

| part | claim |
|---|---|
| boards | gaps over networks, boards of equal FPGAs and link speeds (docs/method/many-fpgas.md) |
| speed | milliseconds to a proven plan (docs/method/search-results.md) |
| growth | the same for chains of 20 to 400 layers |
| front | seconds of a front of 20 points |
| quality | distance of every other solver from the exact one (docs/method/geometric-programming.md) |
| branches | what branches that run at once are worth (docs/method/plan-cost.md) |
| effort | work that searches count against seconds of computing (docs/method/search.md) |
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from lib.parts import Part, run
from lib.planning import boards, branches, effort, solvers


def of_solvers(name: str) -> Part:
    """One part of `solvers`, added to what the file holds."""
    def part(asked: Sequence[str]) -> None:
        solvers.main(["--part", name, "--resume", *asked])
    return part


PARTS: dict[str, Part] = {"boards": boards.main, **{name: of_solvers(name) for name in solvers.NAMES},
                          "branches": branches.main, "effort": effort.main}

if __name__ == "__main__":
    sys.exit(run(__doc__, PARTS, sys.argv[1:]))
