"""Every module of the networks of Heterogeneity 2021, and the whole networks, on the Jetson TX2 with a Cyclone 10 GX.

`python bench/heterogeneity.py --json FILE [--network NAME ...]` fills `networks` by the models of docs/method/models.md; entries
are written as they are known.
"""

from __future__ import annotations

import argparse
import json
from datetime import date
from pathlib import Path
from typing import Any

from dovetail.files import replace_text
from lib.heterogeneity import NETWORKS, of_network


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--network", action="append", choices=list(NETWORKS), help="repeatable (default: all)")
    options = parser.parse_args()
    found: dict[str, Any] = {"command": "python bench/heterogeneity.py --json FILE", "date": date.today().isoformat(),
                             "networks": {}}
    for name in options.network or NETWORKS:
        found["networks"][name] = of_network(name, lambda stage, done, total: print(stage, done, total, flush=True))
        replace_text(options.json, json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
