"""Hundreds of random networks in bundles of one Verilator build each; they are drawn by the tests' generator."""

from __future__ import annotations

import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from dovetail.errors import MismatchError
from dovetail.fpga.toolchain.icarus import simulate_in_icarus
from dovetail.fpga.toolchain.simulate import simulate
from dovetail.fpga.toolchain.tools import find_icarus
from dovetail.numerics.reference import run_integer

NETWORKS = 300
SECOND = 200
"""Networks that a second simulator runs, too."""


def _tests() -> None:
    """The tests' generator may be imported."""
    root = str(Path(__file__).parents[3])
    if root not in sys.path:
        sys.path.insert(0, root)


def _in_both(number: int) -> str:
    """What Icarus says of a network otherwise than the reference or, without stalls, than Verilator's clocks."""
    _tests()
    from tests.fpga.random_bundles import draw

    network = draw(number)
    expected = run_integer(network.graph, network.inputs)
    middle = number % network.design.latency_cycles + 1
    try:
        clocks = simulate(network.design, network.inputs).frame_cycles
        free = simulate_in_icarus(network.design, network.inputs)
        runs = [free, simulate_in_icarus(network.design, network.inputs, number, middle, number)]
    except MismatchError as error:
        return f"network {number}: {error}"
    wrong = [tensor for run in runs for tensor, values in expected.items()
             if not np.array_equal(run.outputs[tensor].reshape(values.shape), values)]
    return f"network {number}: {', '.join(wrong)} differ" if wrong else \
        "" if free.frame_cycles == clocks else f"network {number}: {free.frame_cycles} clocks in Icarus, {clocks} in Verilator"


def two_simulators(count: int = SECOND) -> dict[str, Any]:
    """Networks `0` to `count` in Icarus, from unknown states, and from random ones with stalls and a reset amid a frame."""
    start, named = time.perf_counter(), list[str]()
    with ProcessPoolExecutor(2) as pool:
        for done, wrong in enumerate(pool.map(_in_both, range(count)), 1):
            named += [wrong] * bool(wrong)
            print(f"two_simulators     {done} of {count} networks, {len(named)} mismatches", flush=True)
    return {"two_simulators": {
        "networks": count, "mismatches": len(named), "named": named, "icarus": find_icarus().version,
        "runs_each": "Verilator; Icarus from an unknown state, clocks compared; from a random one with stalls and a reset",
        "wall_s": time.perf_counter() - start, "status": "ok" if not named else "missed"}}


def random_networks(count: int = NETWORKS) -> dict[str, Any]:
    """Networks `0` to `count` with and without stalls against the reference; what differs is named."""
    _tests()
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
