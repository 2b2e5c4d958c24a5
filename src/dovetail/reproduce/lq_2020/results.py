"""LQ multi-FPGA 2020: AlexNet in two bits, its layers in folded engines, and the whole network on boards of FiC.

The paper stopped at one layer on one board. Its tables stand here as far as they are legible in the text: table 5.2 is, the
cells of table 5.1 and of table 4.1 are not, and nothing is put in their place. Ours are by the model of engines that we build;
what was simulated and synthesized (`bench/lq.py`) is in the records.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from dovetail.cost.folded import coded_shape
from dovetail.cost.lq_folds import coded_cost, coded_folds
from dovetail.errors import InfeasibleError
from dovetail.fpga.assemble import build_design
from dovetail.fpga.links.system import cells_over_links, slots_over_links, systems_of
from dovetail.fpga.toolchain.simulate import simulate
from dovetail.hardware.folds import Fold
from dovetail.ir import Axis, Coded, Conv, Graph, Scheme, Tensor, Window
from dovetail.numerics.lq import LearnedLayer, coded_node
from dovetail.numerics.lq_alexnet import lq_alexnet, weight_bits_of
from dovetail.numerics.reference import run_integer
from dovetail.partition.plan import Assignment, Goal, Piece, Plan, Split
from dovetail.planning import Options, make_plan
from dovetail.platform.device import Device, Kind, Platform
from dovetail.platform.fitted import dhm_model
from dovetail.platform.load import load_platform
from dovetail.platform.topology import with_switch
from dovetail.progress import Progress
from dovetail.reproduce.lq_2020 import layers
from dovetail.reproduce.lq_2020.boards import boards_lines
from dovetail.schedule.program import lower
from dovetail.terminal import table

TABLE_5_2 = {
    "trad_1": (261_367_581, 262_756_056), "pps_1": (261_367_581, 262_756_056),
    "trad_2": (2_393_524_791, 2_393_697_847), "pps_2": (1_739_580_726, 1_739_753_782)}
"""Least and most clock cycles of layers 1 and 2: FP32 (trad) and quantized with a table of floats (pps)."""
CLAIMS = {
    "table 5.1": "cells are not legible in the text; it says: BRAM of layer 2 down to a third, FF and LUT up but below 20 %, "
                 "BRAM of the FP32 layer up to 50 %; BRAM of layer 1 a little less",
    "table 4.1": "latencies of three placements of pragmas are not legible; the text says the best is below 1 % of none",
    "one layer": "one board is enough for a convolution: below 50 % of its BRAM and 30 % of its logic; so all of AlexNet can be "
                 "on more than 20 boards (of fully connected layers, which hold 95 % of the weights, it says nothing)",
    "layer 2": "latency reduced by nearly 30 %",
    "accuracy": "57.4 / 80.1 top-1 / top-5 on ImageNet at W2A2 (LQ-Nets; cited, not reproduced)"}
SLIPS = (
    "An XCKU095 has 59.1 Mbit of block RAM (1,680 of 36 Kbit), not 59.1 MB.",
    "AND and popcount alone (figure 4.4) are wrong for weights of ±1: a cleared weight bit subtracts, so the sum needs "
    "2·popcount(w ∧ a) − popcount(a).",
    "Loops over range(31−5) leave out the last row and column: a 5x5 window has 27 places in 31, not 26.",
    "The latency of layer 2 falls by 27.3 % (2,393,697,847 to 1,739,753,782), not by nearly 30 %; 450 million products of layer "
    "2 in 1.7 billion clocks are 0.26 per clock: nothing works in parallel.",
)
PACES = tuple(int(51_529 * 1.1**k) for k in range(20))
"""Clocks per frame that are tried for whole networks: from one per pixel of the image, which enters one a clock, to 315,000."""
BOARDS = ("fic", "fic-ku115")
COUNTS = (1, 2, 3, 4, 6, 8, 12, 24)
RECORD = "lq_2020.json"
HOST_LINK_BYTES_PER_S = 4.25e9
BLOCK_FILTERS = 128
SEARCH_S = 10.0
"""Seconds to search for each plan of a whole network (chosen)."""
ROUTABLE = 0.7
"""The part of a board's look-up tables that plans of whole networks use at most."""


def boards_alone(platform: Platform) -> Platform:
    """The platform as its FPGAs see it: a host that feeds them at a link's rate and computes nothing itself in useful time.

    Of the look-up tables a part stays free, as routing and the boards' switch need it.
    """
    idle = {"peak_flop_per_s": 1e6, "bandwidth_bytes_per_s": 1e5, "launch_s": 1.0}
    return replace(
        platform,
        devices=tuple(replace(d, parameters={**d.parameters, **idle}) if d.kind is Kind.CPU
                      else replace(d, resources={**d.resources, "lut": ROUTABLE * d.resources["lut"]}) for d in platform.devices),
        links=tuple(replace(x, bandwidth_bytes_per_s=HOST_LINK_BYTES_PER_S, latency_s=1e-6, full_duplex=True)
                    if platform.host in x.ends else x for x in platform.links)).with_fill(1.0)


def large_layers_shared(graph: Graph, platform: Platform) -> Assignment:
    """Layers with more weights than half a board's block RAM, divided evenly over as many boards as memory asks for and one more.

    Where memory is nearly full a search over boards may end without a place for the last of them. Shares are whole numbers of
    `BLOCK_FILTERS`, whose words fill block memories of any depth.
    """
    boards = platform.of_kind(Kind.FPGA)
    count = min(len(boards), least_boards(graph, boards[0]) + 1)
    half = boards[0].resources["bram36"] * 36 * 1024 / 2
    found: Assignment = {}
    for node in graph.nodes:
        filters = node.op.extent(Axis.OUTPUT_CHANNELS, graph.input_shapes(node)) if isinstance(node.op, Coded) else 0
        if count > 1 and filters >= count * BLOCK_FILTERS and weight_bits_of(graph, node) > half:
            edges = [*(round(filters * i / count / BLOCK_FILTERS) * BLOCK_FILTERS for i in range(count)), filters]
            pieces = tuple(Piece(d.name, a, b) for d, a, b in zip(boards, edges[:-1], edges[1:], strict=False))
            found = {**found, node.name: Split(Axis.OUTPUT_CHANNELS, pieces)}
    return found


def plan_at(graph: Graph, platform: Platform, pace: int) -> Plan | None:
    """The plan of all layers on the boards at a pace, large ones shared evenly, else in any way; None where none was found."""
    options = Options(goal=Goal.THROUGHPUT, time_limit_s=SEARCH_S, thrift=0.0)
    pinned = large_layers_shared(graph, platform)
    for given in (pinned, {}) if pinned else ({},):
        try:
            plan, _ = make_plan(graph, boards_alone(platform).with_pace(pace), options, given)
        except InfeasibleError:
            continue
        if not any(d == platform.host for s in plan.assignment.values() for d in s.devices):
            return plan
    return None


def fastest(graph: Graph, platform: Platform, paces: Sequence[int] = PACES,
            progress: Progress | None = None) -> tuple[int, Plan] | None:
    """The least pace, of some that ascend, at which the boards hold the network, with its plan: the first, else by halving."""
    low, high, middle, best = 0, len(paces) - 1, 0, None
    while low <= high:
        if progress is not None:
            progress(f"{platform.name} at {paces[middle]:,} clocks", 0, 1)
        plan = plan_at(graph, platform, paces[middle])
        if plan is None:
            low = middle + 1
        else:
            best, high = (paces[middle], plan), middle - 1
        middle = (low + high) // 2
    return best


def least_boards(graph: Graph, device: Device) -> int:
    """Boards that a network needs at least, by the bits of its weights alone."""
    return -(-weight_bits_of(graph) // int(device.resources["bram36"] * 36 * 1024))


def row_of(graph: Graph, pace: int, plan: Plan, platform: Platform) -> dict[str, Any]:
    """Frames per second and the fullest board of a plan, ends of links included; what the real host allows stands beside it.

    So do the time slots that circuit switches need for it, and the clocks in which those carry a frame.
    """
    program = lower(graph, plan.assignment)
    systems = systems_of(program, platform).values()
    loads = [n for s in systems for n in cells_over_links(s, program, platform).values()]
    device = platform.of_kind(Kind.FPGA)[0]
    assert device.clock_hz is not None
    slots = [slots_over_links(s, program, with_switch(platform), int(plan.interval_s * device.clock_hz)) for s in systems]
    used = {d: r for d, r in plan.resources.items() if "bram36" in r}
    linked = {d: platform.link_logic(d) for d in used}
    gpio = min(x.bandwidth_bytes_per_s for x in platform.links if platform.host in x.ends)
    fps = min([1 / plan.interval_s, *(device.clock_hz / load for load in loads)])
    return {"pace_clocks": pace, "fps": fps, "cells_of_busiest_link": max(loads, default=0),
            "switch_slots": max((s.slots for s in slots if s is not None), default=0),
            "switch_clocks": max((s.clocks for s in slots if s is not None), default=0),
            "fps_through_gpio": min(fps, gpio / (3 * 227 * 227)),
            **{f"{name}_max": max((r[key][0] + linked[d].get(key, 0.0)) / device.resources[key] for d, r in used.items())
               for name, key in (("bram", "bram36"), ("lut", "lut"), ("dsp", "dsp"))},
            "boards_used": sum(any(amount for amount, _ in r.values()) for r in used.values()),
            "divided": sorted(n for n, s in plan.assignment.items() if s.axis is not None)}


def folds_of_conv2(graph: Graph, device: Device) -> list[dict[str, Any]]:
    """The exploration of pragmas as folds of our engine: clocks, area, and products at once, by the model."""
    node = graph.node("conv2")
    shape, model = coded_shape(graph, node), dhm_model(device.model)
    rows, seen = list[dict[str, Any]](), set[str]()
    for clocks in (450_000_000, 45_000_000, 4_500_000, 900_000, 450_000, 180_000, 90_000, 45_000, 22_500):
        fits = [(fold, *coded_cost(shape, fold, model)) for fold in coded_folds(shape, clocks)]
        if not fits:
            continue
        fold, steps, _, _, used = min(fits, key=lambda f: sum(v / device.resources[r] for r, v in f[4] if r in device.resources))
        if str(fold) in seen:
            continue
        seen.add(str(fold))
        needs, limits = dict(used), device.resources
        rows.append({"fold": str(fold), "products_at_once": fold.inputs * fold.outputs * 25, "cycles": steps,
                     "times_faster_than_paper": TABLE_5_2["pps_2"][1] / steps, **{k: needs[k] for k in ("lut", "bram36", "dsp")},
                     "bram_part": needs["bram36"] / limits["bram36"], "lut_part": needs["lut"] / limits["lut"]})
    return rows


def figure_4_8(simulated: bool = False) -> dict[str, Any]:
    """Figure 4.8's test program, one 5x5 filter over one map of 31x31, as our engines: mapped directly, and folded.

    `simulated` runs a frame of seeded codes through both, which needs Verilator.

    Its loops over the window (places 3 to 5) are always unrolled here, those over the image (1 and 2) always pipelined. Cycles
    are the designs' closed forms, which simulations hold exactly; a fold cannot share what one filter of one map has.
    """
    op, rng = Conv(1, Window((5, 5))), np.random.default_rng(0)
    codes = rng.integers(0, 4, (1, 1, 5, 5)).astype(np.uint8)
    layer = LearnedLayer(op, codes, 2, np.asarray([[0.5, 1.1]]), 2, np.asarray([0.52, 1.05]), np.ones(1), np.zeros(1))
    node, constants = coded_node("layer", layer, "x", "y", [0.3, 0.8, 1.3])
    scheme = Scheme(2, False, (0,))
    tensors = {"x": Tensor("x", (1, 1, 31, 31), scheme), "y": Tensor("y", (1, 1, 27, 27), scheme)}
    graph = Graph("figure_4_8", ("x",), ("y",), (node,), tensors, {c.name: c for c in constants})
    forms: dict[str, dict[str, Fold]] = {"mapped directly": {}, "weights in memory": {"layer": Fold(1, 1, 1)}}
    rows = {form: build_design(graph, "figure_4_8", folds=folds) for form, folds in forms.items()}
    found: dict[str, Any] = {"places": 27 * 27, "forms": {
        form: {"latency_cycles": d.latency_cycles, "interval_cycles": d.interval_cycles} for form, d in rows.items()}}
    if simulated:
        frame = {"x": rng.integers(0, 4, (1, 1, 31, 31))}
        expected, runs = run_integer(graph, frame)["y"], {form: simulate(d, frame) for form, d in rows.items()}
        found["simulated"] = {form: {"places": run.outputs["y"].size, "latency_cycles": run.cycles,
                                     "bit_exact": bool(np.array_equal(run.outputs["y"], expected))} for form, run in runs.items()}
    return found


def reproduce(progress: Progress, boards: Sequence[str] = BOARDS, counts: Sequence[int] = COUNTS,
              training: Path | None = None, simulated: bool = False) -> dict[str, Any]:
    """The paper's legible figures beside ours: every layer on one board, layer 2 by folds and bits, the network on boards.

    `training` is a record of `bench/lq_training.py` in the place of the committed one; `simulated` runs Figure 4.8's program.
    """
    trained = layers.load_training(training)
    progress("draw LQ AlexNet", 0, 1)
    graph = lq_alexnet()
    found: dict[str, Any] = {}
    for board in boards:
        device = load_platform(f"{board}:1").of_kind(Kind.FPGA)[0]
        least = least_boards(graph, device)
        for number, count in enumerate(counts):
            progress(f"{board}:{count}", number, len(counts))
            platform = load_platform(f"{board}:{count}")
            best = None if count < least else fastest(graph, platform, progress=progress)
            found.setdefault(board, {})[str(count)] = None if best is None else row_of(graph, *best, platform)
        found[board]["least_by_memory"] = least
    progress("boards", 1, 1)
    record = json.loads((resources.files("dovetail.reproduce") / "records" / RECORD).read_text(encoding="utf-8"))
    device = load_platform("fic:1").of_kind(Kind.FPGA)[0]
    return {"paper": "lq-2020", "table_5_2": TABLE_5_2, "claims": CLAIMS, "slips": list(SLIPS),
            "weights_mbit": weight_bits_of(graph) / 1e6, "conv2_folds": folds_of_conv2(graph, device),
            "figure_4_8": figure_4_8(simulated), "one_board": layers.layers_on_one_board(graph, device, layers.LAYER_PACES),
            "float_layers": layers.float_layers(record, device), "conv2_bits": layers.bits_of_conv2(graph, device, trained),
            "training": trained, "boards": found, "measured": record}


def _ratios(measured: Mapping[str, Any]) -> list[str]:
    """What the record says about popcounts, faults, a cut and memories, a line each."""
    peers = {"int8 adder graphs": measured["popcount_vs_int8"], "tables": measured["popcount_vs_table"]}
    faults, repeats, cut = measured["faults"], measured["repeats"], measured["fic_cut"]
    parts = ", ".join(f"{row['part']:.1%}" for row in measured["memories"]["boards"].values())
    return [*(f"Popcounts take at most {row['value']:.3f} of the logic of {peer} (asked {row['target']:.2f}), over "
              f"{', '.join(row['by_layer'])}." for peer, row in peers.items()),
            f"Words of links lost, duplicated or flipped over {repeats['frames']:,} frames: {repeats['injected']:,}, repeated at "
            f"{repeats['clocks_per_fault']:.1f} clocks each, wrong outputs {repeats['wrong_outputs']}; of circuit switches "
            f"{faults['injected']:,}, reported {faults['detected']:,}, wrong outputs {faults['wrong_outputs']}.",
            f"A small AlexNet cut over two boards, links simulated: {'bit-exact' if cut['bit_exact'] else 'WRONG'} over "
            f"{cut['frames']} frames.",
            f"Block memories of the network on fic:3 as Yosys counts them, board by board: {parts}."]


def text(document: Mapping[str, Any]) -> str:
    """Tables for a terminal."""
    paper = [(name, f"{least:,}", f"{most:,}") for name, (least, most) in document["table_5_2"].items()]
    folds = [(r["fold"], f"{r['products_at_once']:,}", f"{r['cycles']:,}", f"{r['times_faster_than_paper']:,.0f}x",
              f"{r['lut']:,.0f}", f"{r['bram36']:,.0f} ({r['bram_part']:.0%})") for r in document["conv2_folds"]]
    rows = []
    for board, entries in document["boards"].items():
        for count, row in entries.items():
            if not count.isdigit():
                continue
            rows.append((f"{board}:{count}", "", "does not fit", "", "", "", "", "") if row is None else
                        (f"{board}:{count}", str(row["boards_used"]), f"{row['fps']:,.0f}", f"{row['fps_through_gpio']:,.0f}",
                         *(f"{row[part]:.1%}" for part in ("bram_max", "lut_max", "dsp_max")), ", ".join(row["divided"])))
    measured = document["measured"]["alexnet_conv2_cycles"]
    area = measured["area_xcku095"]
    paths = [(name, family, *(f"{row.get(key, 0):,.0f}" for key in ("lut", "ff", "bram", "dsp")))
             for name, families in document["measured"]["datapaths"].items() for family, row in families.items() if row]
    return "\n".join([
        "Table 5.2, clock cycles (table 5.1's cells are not legible in the text):", table(("", "least", "most"), paper), "",
        f"Layer 2 simulated: {measured['value']:,} cycles, bit-exact, fold {measured['fold']}; {area['lut']:,.0f} LUT, "
        f"{area['bram']:,.0f} BRAM36, {area['dsp']:,.0f} DSP by Yosys.", "",
        "Tables 5.1 and 5.2 in single precision, folded (trad multiplies and adds FP32, pps ends in codes, pps_2 looks products "
        "up), simulated and by Yosys:",
        layers.float_table(document["float_layers"], document["table_5_2"]), "",
        *_ratios(document["measured"]), "",
        "Datapaths of codes, int8, and the paper's baselines in FP32, whole engines with constant weights, by Yosys:",
        table(("layer and datapath", "family", "LUT, LUT4, ALM", "registers", "RAM blocks", "DSP"), paths), "",
        "Layer 2 by folds (the paper's placements of pipeline and unroll pragmas), by the model:",
        table(("fold", "products", "cycles", "paper / ours", "LUT", "BRAM36"), folds), "",
        f"Figure 4.8's test program (5x5 over 31x31, {document['figure_4_8']['places']} places), a window a clock: " + "; ".join(
            f"{form} {row['latency_cycles']:,} cycles" for form, row in document["figure_4_8"]["forms"].items()) + ".", "",
        "Every layer by itself on one XCKU095, at the least pace at which it is as the paper claims of convolutions, by the "
        "model:",
        layers.layer_table(document["one_board"]), "",
        "Accuracy against resources: layer 2 over bit widths in at most 90,000 clocks, by the model:",
        layers.bits_table(document["conv2_bits"]), "",
        "Trained networks (bench/lq_training.py):", layers.training_table(document["training"]), "",
        f"The network ({document['weights_mbit']:.1f} Mbit of weights) on N boards, by the model; a host that feeds them, and "
        "beside it the paper's, whose port has 4 bits:",
        table(("boards", "used", "frames/s", "through 4-bit port", "BRAM of the fullest", "LUT", "DSP", "divided"), rows), "",
        *boards_lines(document["measured"]), "",
        "What the paper says:", *(f"  {what}: {claim}" for what, claim in document["claims"].items()), "",
        "Its slips:", *(f"  {slip}" for slip in document["slips"])])
