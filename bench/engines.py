"""Engines that share multipliers take the clocks and the area that the models say, bit for bit.

`python bench/engines.py --part NAME --json FILE [options of the part, see --part NAME --help]`.

| part | claim |
|---|---|
| area | area of folded layers, counted by Yosys and predicted (docs/method/folded.md) |
| network | a whole network in folded engines on one FPGA (docs/method/folded.md) |
| firb | inverted residuals as one engine and four other ways (docs/method/folded.md) |
| arrays | a network, or its end, on reusable arrays (docs/method/arrays.md) |
| sharing | constants of `hardware.adders.sharing`, fitted to what the search for shared adders finds |
| codes | constants of `hardware.lq_engines`, read off adder graphs as they are built |
"""

from __future__ import annotations

import sys

from lib.engines import area, arrays, codes, firb, network, sharing
from lib.parts import Part, run

PARTS: dict[str, Part] = {"area": area.main, "network": network.main, "firb": firb.main, "arrays": arrays.main,
                          "sharing": sharing.main, "codes": codes.main}

if __name__ == "__main__":
    sys.exit(run(__doc__, PARTS, sys.argv[1:]))
