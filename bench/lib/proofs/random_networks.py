"""Hundreds of random networks in bundles of one Verilator build each; they are drawn by the tests' generator."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

NETWORKS = 300


def random_networks(count: int = NETWORKS) -> dict[str, Any]:
    """Networks `0` to `count` with and without stalls against the reference; what differs is named."""
    root = str(Path(__file__).parents[3])
    if root not in sys.path:
        sys.path.insert(0, root)
    from tests.fpga.random_bundles import BUNDLE, FRAMES, SIZES, run_bundles

    start = time.perf_counter()
    found = run_bundles(range(count), lambda done, wrong: print(f"random             {done} of {count} networks, "
                                                                f"{wrong} mismatches", flush=True))
    return {"random_networks": {
        "networks": found.networks, "mismatches": len(found.mismatches), "named": list(found.mismatches),
        "networks_with": found.operators, "sizes": [f"{h}x{w}" for h, w in SIZES], "frames": FRAMES,
        "runs_each": "without stalls, clocks counted; with random stalls at both ends",
        "networks_per_build": BUNDLE, "wall_s": time.perf_counter() - start,
        "status": "ok" if not found.mismatches else "missed"}}
