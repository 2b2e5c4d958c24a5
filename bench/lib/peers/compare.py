"""The table of peers: every case through ours, NNgen and makers of adder graphs, and what papers print of hls4ml."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail.fpga.assemble import build_design
from dovetail.fpga.toolchain.simulate import simulate
from dovetail.ir import Conv, Graph
from dovetail.numerics.reference import run_integer
from lib.peers import core, nngen_rtl
from lib.peers.adder_graph_rtl import GENERATORS
from lib.peers.layers import CASES, Case, frames_for, integer_network, matrix_of
from lib.peers.measured import FAMILY, Measured, count

PUBLISHED = {
    "hls4ml conv 28x28x3, 32 filters 4x4 stride 4": {"lut": 75_413, "dsp": 792, "cycles": 52},
    "hls4ml depthwise2d streaming": {"lut": 7_768, "dsp": 18, "cycles": 1_028},
}
"""Synthesis baselines of hls4ml's own tests, Vitis 2024.1; another tool, so beside the table and in no ratio."""
WHOLE_NETWORK = "generates constant matrices; windows and pooling between them are not part of it"

DELAYS = ("fewer adder LUTs and far fewer registers, but Yosys puts our longer delays into LUTs (SRL16E) where the peer's "
          "stay registers, and a LUT counts while a register does not")
"""Why an arithmetic core of ours may count more LUTs than one with as many adders."""


def compare_all() -> dict[str, Any]:
    cases = {case.name: compare(case) for case in CASES}
    ratios = [entry["area_cycles_ratio"] for case in cases.values() for entry in case.values() if "area_cycles_ratio" in entry]
    behind = [f"{name}: {peer}" for name, case in cases.items() for peer, entry in case.items()
              if entry.get("area_cycles_ratio", 2.0) < 1.0]
    return {**cases, "family": FAMILY, "count": "Yosys", "published": PUBLISHED, "area_cycles_ratio_min": min(ratios),
            "behind": behind, "status": "ok" if not behind else "behind where said, with the reason"}


def compare(case: Case) -> dict[str, Any]:
    """One case: whole layers against NNgen's, arithmetic against adder graphs; a ratio above 1: so much more the peer takes."""
    graph = integer_network(case.ops, case.shape)
    ours = measure_ours(graph)
    found = {"ours": report(case.name, "ours", ours)}
    tried = [nngen_rtl.measure(case, frames_for(graph, 1)[0], *parallel) for parallel in case.parallel]
    found["nngen"] = report(case.name, "nngen", min(tried, key=lambda m: m.area_cycles), ours)
    if len(case.ops) > 1 or not isinstance(case.ops[0], Conv):
        return {**found, **{peer: {"note": WHOLE_NETWORK} for peer in GENERATORS}}
    matrix = matrix_of(graph, graph.nodes[0])
    own = core.measure_ours(matrix)
    found["ours_core"] = report(case.name, "ours, core", own)
    for peer, generator in GENERATORS.items():
        theirs = report(case.name, f"{peer}, core", generator.measure(matrix), own)
        found[peer] = {**theirs, **({"reason": DELAYS} if theirs["area_cycles_ratio"] < 1.0 else {})}
    return found


def measure_ours(graph: Graph) -> Measured:
    design, frames = build_design(graph, "layer"), frames_for(graph, 3)
    found = simulate(design, {"x": frames})
    (output,) = graph.outputs
    exact = np.array_equal(found.outputs[output], run_integer(graph, {"x": frames})[output])
    interval = found.frame_cycles[-1] - found.frame_cycles[-2]
    return Measured(**count(design), cycles_per_frame=interval, latency_cycles=found.frame_cycles[0], bit_exact=bool(exact),
                    note=f"{design.adders} adders, streams in and out")


def report(case: str, who: str, measured: Measured, ours: Measured | None = None) -> dict[str, Any]:
    ratio: dict[str, float] = {}
    if ours is not None:
        cycles = measured.cycles_per_frame / ours.cycles_per_frame
        ratio = {"area_cycles_ratio": measured.area_cycles / ours.area_cycles,
                 "lut_cycles_ratio": measured.lut / ours.lut * cycles}
    more = f"; {ratio['area_cycles_ratio']:.2f} x our area x cycles" if ratio else ""
    print(f"{case:20} {who:12} {measured.lut:7.0f} LUT {measured.register:7.0f} FF {measured.bram36:5.1f} BRAM36 "
          f"{measured.dsp:4.0f} DSP {measured.cycles_per_frame:7d} cycles, "
          f"{'exact' if measured.bit_exact else 'NOT EXACT'}{more}", flush=True)
    return {**measured.entry(), **ratio}
