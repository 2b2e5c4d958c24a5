"""Datapaths for layers of learned quantization: popcounts, tables, conditionals, and int8 as Direct Hardware Mapping builds it.

`python bench/lq.py --json FILE [--resume] [--quick] [--part NAME ...] [--layer NAME ...] [--family NAME ...]`. FILE is written
after every figure of `datapaths` and after every other part, so that an interrupted run goes on with `--resume`. All of it from
nothing takes hours of one core's time; `--quick` has every key of the figures from small cases, in minutes.
docs/method/lq-hardware.md has the figures.

`datapaths`: every layer exists three times with the same drawn weights (Gaussian, seed 0): as 2-bit codes over a basis per filter
that quantization error minimisation found, read by 2-bit activations over a basis per layer, in popcounts and in tables; and as
int8 between bytes, in adder graphs. The first layer exists also as conditionals and in the paper's baselines: a table of float
products whose entries are added in FP32, and FP32 multiply-add. All of them are whole engines: line memories, arithmetic, output
stage (thresholds, or rounding) and FIFO. Areas are Yosys counts before place and route; adders of floats are synthesized once and
counted as often as they are used, multipliers each with its own constant weight. What Yosys did not end with, or was not asked
for, is null, and `not_counted` says why.

`conv2`: AlexNet's second layer in a folded engine, simulated and synthesized.

`floats`: AlexNet's first two layers in folded engines of floats, the paper's baselines, simulated and synthesized
(`lib/lq_floats.py`); FILE is written after every figure, and `--filters N` simulates the first N filters of a layer alone.

`loaded`: folded engines with memories that a stream fills in place of ROM, synthesized, beside engines with ROM.

`links`, `port`, `rom`: what joins boards, the paper's port of four pins and wider ones, and layers whose area plans go by the
model (`lib/lq_parts.py`).

`memories`: every block memory of the network on three boards by synthesis (`lib/lq_memories.py`).

`fic`: the whole network planned for boards of FiC, all weights in their block RAM, at the least clocks per frame they hold it at;
and a small network of the same layers over two boards, simulated with the links between them.

`reduced`, `pair`, `cut`, `network`: all layers with an eighth of the channels over three boards; two layers at full width over
two boards, those up to fc6 over two, and all of them over three, simulated with their links (`lib/lq_network.py`); the latter
two only where they are asked for. Every stream of every board is compared as it comes. Their state is kept beside FILE (FILE
with the suffix .state), and a run that was stopped goes on.

`faults`: a small network over three boards in a ring, a layer of it divided over two of them, all boards and links simulated at
once; words of any link are lost, duplicated or get one to four bits flipped, about one in 400 clocks. Links repeat what was
spoilt (`repeats`). The same boards as circuit switches report it (`faults`): the host resets them and sends again what did not
come back. Every frame the host took is held against the reference.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dovetail.cost.folded import folds_of
from dovetail.errors import DovetailError, ToolError, UsageError
from dovetail.files import replace_text
from dovetail.fpga.assemble import build_design
from dovetail.fpga.design import Design
from dovetail.fpga.engines.lq import FLOATS, Datapath, datapath_of
from dovetail.fpga.links.bench import Faults, simulate_system
from dovetail.fpga.links.system import build_system, systems_of
from dovetail.fpga.part import weight_sets
from dovetail.fpga.toolchain.simulate import simulate
from dovetail.fpga.toolchain.synthesize import FAMILIES, UNIT_BYTES, synthesize
from dovetail.hardware.folds import Fold
from dovetail.ir import RELU, Axis, Constant, Conv, Graph, Node, Real, Scheme, Tensor, Window
from dovetail.numerics.lq import LearnedLayer, boundaries_of, coded_node, fit_weights, ranked
from dovetail.numerics.lq_alexnet import lq_alexnet
from dovetail.numerics.reference import run_integer
from dovetail.partition.plan import Piece, Split, whole_on
from dovetail.platform.device import Platform
from dovetail.platform.load import load_platform
from dovetail.platform.topology import joined_as
from dovetail.reproduce.lq_2020.results import TABLE_5_2, fastest, least_boards, row_of
from dovetail.schedule.program import lower
from lib.lq_floats import float_layers
from lib.lq_memories import memories
from lib.lq_network import cut, network, pair, reduced
from lib.lq_parts import host_ports, link_ends, roms

SAME = (2, 2, 2, 2)
SMALL = "5x5, 8 to 4"
LAYERS: dict[str, tuple[Conv, tuple[int, int, int]]] = {
    SMALL: (Conv(4, Window((5, 5), pads=SAME)), (8, 27, 27)),
    "slice of AlexNet conv2, 5x5, 24 to 4": (Conv(4, Window((5, 5), pads=SAME)), (24, 27, 27)),
}
IN_ALL_FORMS = (SMALL,)
"""Layers that exist also as conditionals and in floats: of larger ones these are not worth the hours."""
COMPARED = ("popcount", "table", "int8")
FLOAT_UNIT_BYTES = 1_400
"""Text from which a module is a part of its own in float engines: their adders are."""
COUNTS = {"lut": ("lut", "lut4", "alm"), "ff": ("register",), "bram": ("bram36", "bram", "m10k", "m20k"), "dsp": ("dsp",)}
"""What each family calls it; Cyclone's unit is the ALM."""
FORMS = (*(str(d) for d in Datapath if d is not Datapath.FULL_ADDERS), "int8")
SLOW_FORMS = {str(Datapath.FP32): "left out unless asked for (--form fp32): 800 multipliers by constants, synthesized one by one"}
COUNTED_FAMILIES = ("xcup", "ecp5", "cyclonev")
BITS = 2
ACTIVATIONS = np.asarray([0.52, 1.05])
"""A basis near the best for half a normal distribution of deviation 1, as BatchNorm and ReLU leave it."""
TARGETS = {"popcount_vs_int8": 0.30, "popcount_vs_table": 0.42}
FRAMES = 10_000
FAULT_EVERY = 400
"""Clocks between faults, in the mean."""
KEYS = {"datapaths": "datapaths", "fic": "fic", "faults": "faults", "conv2": "alexnet_conv2_cycles", "links": "link_ends",
        "port": "host_ports", "rom": "parts", "memories": "memories", "loaded": "loaded_weights", "floats": "float_layers",
        "reduced": "reduced_network", "pair": "full_pair", "cut": "full_cut", "network": "full_network"}
"""Every part and the key of its figures."""
LONG_PARTS = ("cut", "network")
"""Those that run where they are named alone."""
GROWING_PARTS = ("datapaths", "floats")
"""Those that look for themselves which of their figures are there."""
PARTS = tuple(part for part in KEYS if part not in LONG_PARTS)
FIC_BOARDS = (2, 3, 4, 6, 12, 24)
QUICK = {"part": ["datapaths", "conv2", "fic", "faults"], "layer": [SMALL], "family": ["xcup"],
         "form": list(COMPARED), "boards": [2, 3], "frames": 500}
"""What `--quick` asks for, where nothing else is; of conv2 clocks are then the engine's closed form alone."""
CUT_PACE = 12_000
"""Clocks per frame of the small network over two boards."""
CONV2_FOLD = Fold(1, 16, 13)
"""Six slices of 16 input channels, 20 passes over 13 filters: 120 clocks per pixel."""
CONV2_CYCLES = 90_000
PAPER_CYCLES = TABLE_5_2["pps_2"][1]
LOADED = {SMALL: (*LAYERS[SMALL], Fold(1, 4, 2)),
          "conv2": (Conv(256, Window((5, 5), pads=SAME)), (96, 27, 27), CONV2_FOLD)}
"""Layers whose weights are also loaded, and their folds."""


def drawn(op: Conv, shape: tuple[int, int, int]) -> tuple[Real, Real, Real]:
    """Weights, gains and offsets of a layer whose outputs are spread like those behind BatchNorm."""
    rng = np.random.default_rng(0)
    weights = rng.normal(size=(op.filters, shape[0], *op.window.kernel))
    spread = np.sqrt(weights[0].size) * 0.9
    return weights, rng.normal(1.0, 0.2, op.filters) / spread, rng.normal(0.0, 0.3, op.filters)


def coded_graph(op: Conv, shape: tuple[int, int, int]) -> Graph:
    weights, gain, offset = drawn(op, shape)
    codes, basis = fit_weights(weights, BITS)
    boundaries = boundaries_of(ranked(ACTIVATIONS)[0]).tolist()
    node, constants = coded_node("conv", LearnedLayer(op, codes, BITS, basis, BITS, ACTIVATIONS, gain, offset), "x", "y",
                                 boundaries)
    scheme = Scheme(BITS, False, (0,))
    tensors = {"x": Tensor("x", (1, *shape), scheme), "y": Tensor("y", op.infer(((1, *shape),)), scheme)}
    return Graph("codes", ("x",), ("y",), (node,), tensors, {c.name: c for c in constants})


def byte_graph(op: Conv, shape: tuple[int, int, int]) -> Graph:
    """The same weights as int8, every filter scaled to 127, from bytes to bytes with ReLU."""
    weights, _, offset = drawn(op, shape)
    peaks = np.abs(weights).max(axis=(1, 2, 3), keepdims=True)
    integers = np.rint(weights * 127 / peaks).astype(np.int8)
    limited = Conv(op.filters, op.window, op.groups, RELU)
    scheme = Scheme(8, False, (-6,))
    constants = [Constant("w", integers, Scheme(8, True, (-11,) * op.filters, 0)),
                 Constant("b", np.rint(offset * 2.0**17).astype(np.int32), Scheme(32, True, (-17,) * op.filters, 0))]
    tensors = {"x": Tensor("x", (1, *shape), scheme), "y": Tensor("y", op.infer(((1, *shape),)), scheme)}
    return Graph("bytes", ("x",), ("y",), (Node("conv", limited, ("x",), ("w", "b"), "y"),), tensors,
                 {c.name: c for c in constants})


def counted(graph: Graph, family: str, datapath: Datapath) -> dict[str, float]:
    design = build_design(graph, f"lq_{datapath.name.lower()}", datapath=datapath)
    return counted_design(design, family, FLOAT_UNIT_BYTES if datapath in FLOATS else UNIT_BYTES)


def counted_design(design: Design, family: str, unit_bytes: int = UNIT_BYTES) -> dict[str, float]:
    found = synthesize(design, family, unit_bytes=unit_bytes).resources
    row = {key: float(next((found[n] for n in names if n in found), 0.0)) for key, names in COUNTS.items()}
    return {**row, "adders": float(design.adders)}


def forms_of(name: str, wanted: Sequence[str]) -> list[tuple[str, Graph, Datapath]]:
    """The forms of a layer that are asked for: name, graph and datapath of each."""
    codes, whole = coded_graph(*LAYERS[name]), byte_graph(*LAYERS[name])
    forms = [*((str(d), codes, d) for d in (Datapath.POPCOUNT, Datapath.TABLE, Datapath.MUX)), ("int8", whole, Datapath.POPCOUNT)]
    forms += [(str(d), codes, d) for d in FLOATS]
    return [f for f in forms if f[0] in wanted and (name in IN_ALL_FORMS or f[0] in COMPARED)]


def measure(layers: list[str], families: list[str], wanted: list[str], known: Mapping[str, Any],
            keep: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Areas of all forms of some layers; `keep` hears of every one, and those that are `known` are not synthesized again."""
    datapaths = {name: dict(row) for name, row in known.get("datapaths", {}).items()}
    reasons, seconds = dict(known.get("not_counted", {})), dict(known.get("datapath_s", {}))
    asked = [(name, form, family) for name in layers for form in forms_of(name, wanted) for family in families
             if datapaths.get(f"{name}: {form[0]}", {}).get(family) is None]
    for number, (name, (form, graph, datapath), family) in enumerate(asked, 1):
        print(f"{number} of {len(asked)}: {name}, {form}, {family} …", flush=True)
        began, row = time.monotonic(), None
        try:
            row = counted(graph, family, datapath_of(family) if form == Datapath.POPCOUNT else datapath)
            reasons.pop(f"{name}: {form}: {family}", None)
        except ToolError as error:
            reasons[f"{name}: {form}: {family}"] = str(error)
        datapaths.setdefault(f"{name}: {form}", {})[family] = row
        seconds[f"{name}: {form}: {family}"] = round(time.monotonic() - began, 1)
        print(f"{name}, {form}, {family}: not counted, {reasons[f'{name}: {form}: {family}']}" if row is None else
              f"{name:38} {form:11} {family:12} {row['lut']:8.0f} LUT {row['ff']:8.0f} FF {row['bram']:4.0f} BRAM "
              f"{row['adders']:6.0f} adders, {time.monotonic() - began:.0f} s", flush=True)
        keep({"datapaths": datapaths, **ratios_of(datapaths), "not_counted": reasons, "datapath_s": seconds})
    for form, why in SLOW_FORMS.items():
        for name in (n for n in layers if n in IN_ALL_FORMS):
            for family in families:
                if datapaths.setdefault(f"{name}: {form}", {}).setdefault(family, None) is None:
                    reasons.setdefault(f"{name}: {form}: {family}", why)
    return {"datapaths": datapaths, **ratios_of(datapaths), "not_counted": reasons}


def ratios_of(datapaths: Mapping[str, Any]) -> dict[str, Any]:
    """Popcounts against both peers, wherever both were counted."""
    ratios: dict[str, Any] = {}
    for key, target in TARGETS.items():
        peer, by = key.removeprefix("popcount_vs_"), dict[str, Any]()
        for name in LAYERS:
            own, other = (datapaths.get(f"{name}: {form}", {}) for form in ("popcount", peer))
            if shared := [f for f in own if own[f] and other.get(f)]:
                by[name] = {f: own[f]["lut"] / other[f]["lut"] for f in shared}
        if by:
            largest = max(r for row in by.values() for r in row.values())
            ratios[key] = {"value": largest, "target": target, "status": "ok" if largest <= target else "missed", "by_layer": by}
    return ratios


def small_network() -> Graph:
    """Image → 8-bit convolution → two coded convolutions; drawn weights."""
    rng = np.random.default_rng(0)
    scheme, boundaries = Scheme(BITS, False, (0,)), boundaries_of(ranked(ACTIVATIONS)[0]).tolist()
    tensors, nodes, constants = [Tensor("x", (1, 3, 8, 8), Scheme(8, False, (-8,)))], list[Node](), list[Constant]()
    for name, bits, filters in (("first", 0, 8), ("second", BITS, 8), ("third", BITS, 4)):
        source = tensors[-1]
        body = Conv(filters, Window((3, 3), pads=(1, 1, 1, 1)))
        weights = rng.normal(size=(filters, source.shape[1], 3, 3))
        codes, basis = fit_weights(weights, BITS)
        if not bits:
            codes, basis = np.rint(weights * 40).astype(np.int8), np.full((filters, 1), 1 / 40)
        inputs = ACTIVATIONS if bits else np.asarray([2.0**-8])
        layer = LearnedLayer(body, codes, bits, basis, bits, inputs, rng.normal(1, 0.2, filters) / 5, rng.normal(0, 0.3, filters))
        node, own = coded_node(name, layer, source.name, f"{name}_y", boundaries, 255)
        nodes.append(node)
        constants += own
        tensors.append(Tensor(f"{name}_y", body.infer((source.shape,)), scheme))
    return Graph("small", ("x",), ("third_y",), tuple(nodes), {t.name: t for t in tensors}, {c.name: c for c in constants})


def faulty_links(frames: int) -> dict[str, Any]:
    """Faults over so many frames: of links that repeat, and of circuit switches, which report."""
    clean = _faulty(load_platform("fic:3"), frames, None)
    repeats = _faulty(load_platform("fic:3"), frames, Faults(1, FAULT_EVERY))
    lost = (repeats["cycles"] - clean["cycles"]) / repeats["injected"]
    repeats |= {"cycles_without": clean["cycles"], "clocks_per_fault": lost}
    faults = _faulty(joined_as(load_platform("fic:3"), "ring+switch"), frames, Faults(1, FAULT_EVERY))
    return {"faults": faults, "repeats": repeats}


def _faulty(board: Platform, frames: int, faults: Faults | None) -> dict[str, Any]:
    """A small network over three boards, with words of links spoilt."""
    graph = small_network()
    shares = Split(Axis.OUTPUT_CHANNELS, (Piece("fpga0", 0, 3), Piece("fpga2", 3, 8)))
    program = lower(graph, {"first": whole_on("fpga0"), "second": shares, "third": whole_on("fpga1")})
    (name, segments), = systems_of(program, board).items()
    system = build_system(name, segments, {s.name: build_design(s.graph, s.name) for s in segments}, program, board)
    x = {"x": np.random.default_rng(1).integers(0, 256, (frames, 3, 8, 8)).astype(np.uint8)}
    found = simulate_system(system, x, faults=faults,
                            on_frame=lambda n: print(f"{n} frames", flush=True) if n % 1000 == 0 else None)
    right = run_integer(graph, x)["third_y"]
    (taken,) = found.outputs.values()
    wrong = int((taken.reshape(right.shape) != right).any(axis=(1, 2, 3)).sum())
    kinds = {k: sum(f.kind == k for f in found.faults) for k in ("lost", "duplicated", "flipped")}
    row: dict[str, Any] = {"frames": frames, "injected": len(found.faults), "wrong_outputs": wrong, "kinds": kinds,
                           "in_data": sum(f.data for f in found.faults), "cycles": found.cycles}
    if reported := [f.clocks for f in found.faults if f.detected]:
        row |= {"detected": len(reported), "clocks_to_report": {"most": max(reported), "mean": sum(reported) / len(reported)}}
    print(f"{name}, {'switches' if system.slots else 'links that repeat'}: {row}", flush=True)
    return row


def alexnet_conv2(quick: bool = False) -> dict[str, Any]:
    """The second layer of AlexNet at 2 bits, 96 to 256 channels of 27x27 by 5x5: simulated clocks, and its area by Yosys.

    Quick: the clocks that the generator promises, which a test holds to simulations of small layers, and nothing else.
    """
    op, shape = Conv(256, Window((5, 5), pads=SAME)), (96, 27, 27)
    graph = coded_graph(op, shape)
    design = build_design(graph, "conv2", folds={"conv": CONV2_FOLD})
    if quick:
        return {"alexnet_conv2_cycles": {"value": design.latency_cycles, "target": CONV2_CYCLES, "paper": PAPER_CYCLES,
                                         "status": "ok" if design.latency_cycles <= CONV2_CYCLES else "missed",
                                         "simulated": False, "fold": str(CONV2_FOLD), "interval_cycles": design.interval_cycles}}
    print(f"conv2: fold {CONV2_FOLD}, {design.interval_cycles} clocks per frame by the model; simulating", flush=True)
    x = {"x": np.random.default_rng(2).integers(0, 4, (1, *shape)).astype(np.uint8)}
    found = simulate(design, x)
    equal = bool((found.outputs["y"] == run_integer(graph, x)["y"]).all())
    row = {"fold": str(CONV2_FOLD), "latency_cycles": found.frame_cycles[0], "interval_cycles": design.interval_cycles,
           "bit_exact": equal, "products_at_once": CONV2_FOLD.inputs * 25 * CONV2_FOLD.outputs,
           "simulated_cycles_per_s": found.cycles / found.run_s}
    print(f"conv2: {found.frame_cycles[0]} clocks from first beat to last (target {CONV2_CYCLES}), "
          f"{'bit-exact' if equal else 'WRONG'}; synthesizing", flush=True)
    area = counted_design(design, "xcu")
    limits = load_platform("fic:1").device("fpga0").resources
    parts = {"lut": area["lut"] / limits["lut"], "bram": area["bram"] / limits["bram36"], "dsp": area["dsp"] / limits["dsp"]}
    print(f"conv2: {area}", flush=True)
    return {"alexnet_conv2_cycles": {"value": found.frame_cycles[0], "target": CONV2_CYCLES, "paper": PAPER_CYCLES,
                                     "status": "ok" if equal and found.frame_cycles[0] <= CONV2_CYCLES else "missed",
                                     **row, "area_xcku095": area, "parts_of_xcku095": parts}}


def loaded_layers(names: list[str]) -> dict[str, Any]:
    """Folded layers with ROM and with weights that are loaded: area on an XCKU095, and beats of a set."""
    found: dict[str, Any] = {}
    for name in names:
        op, shape, fold = LOADED[name]
        graph, row = coded_graph(op, shape), dict[str, Any]()
        for form, loaded in (("rom", ()), ("loaded", ("conv",))):
            row[form] = counted_design(build_design(graph, f"with_{form}", folds={"conv": fold}, loaded=loaded), "xcu")
            print(f"{name}, fold {fold}, {form}: {row[form]}", flush=True)
        (beats,) = weight_sets(graph, {"conv": fold}, ("conv",)).values()
        found[name] = {**row, "fold": str(fold), "beats_of_a_set": beats.shape[3], "bytes_of_a_beat": beats.shape[1]}
    return {"loaded_weights": found}


def boards_of_fic(counts: list[int]) -> dict[str, Any]:
    """The whole network on boards of FiC, and a small one of the same layers on two of them, simulated with their links."""
    graph, found = lq_alexnet(), dict[str, Any]()
    least = least_boards(graph, load_platform("fic:1").device("fpga0"))
    for count in counts:
        board = load_platform(f"fic:{count}")
        best = fastest(graph, board) if count >= least else None
        found[str(count)] = None if best is None else row_of(graph, *best, board)
        print(f"fic:{count}: {found[str(count)]}", flush=True)
    return {"fic": found, "fic_least_by_memory": least, "fic_cut": cut_in_two()}


def cut_in_two() -> dict[str, Any]:
    """AlexNet of 99x99 images and an eighth of the channels in folded engines over two boards, fc6 divided, links included."""
    graph, board = lq_alexnet(99, 12, 48, 10), load_platform("fic:2").with_pace(CUT_PACE)
    on = {n.name: whole_on("fpga0" if n.name.startswith(("conv1", "conv2")) else "fpga1") for n in graph.nodes}
    on["fc6"] = Split(Axis.OUTPUT_CHANNELS, (Piece("fpga0", 0, 16), Piece("fpga1", 16, 48)))
    program = lower(graph, on)
    ((name, segments),) = systems_of(program, board).items()
    cores = {s.name: build_design(s.graph, s.name, folds=folds_of(s.graph, board.device(s.device))) for s in segments}
    system = build_system(name, segments, cores, program, board)
    x = {"image": np.random.default_rng(3).integers(0, 256, (2, 3, 99, 99)).astype(np.uint8)}
    run, right = simulate_system(system, x), run_integer(graph, x)["fc8_y"]
    (taken,) = run.outputs.values()
    equal = bool((taken.reshape(right.shape) == right).all())
    row = {"bit_exact": equal, "frames": 2, "distinct_outputs": len(np.unique(right)), "cycles": run.cycles,
           "frame_cycles": list(run.frame_cycles), "circuits": list(system.circuits),
           "folds": {k: list(v) for c in cores.values() for k, v in c.folds.items()}}
    print(f"cut over two boards: {row}", flush=True)
    return row


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--resume", action="store_true", help="keep what FILE holds of earlier runs, and measure the rest")
    parser.add_argument("--quick", action="store_true", help="every key of the figures from small cases")
    parser.add_argument("--part", action="append", choices=list(KEYS), help=f"default: all but {' and '.join(LONG_PARTS)}")
    parser.add_argument("--frames", type=int, help=f"of the faults (default: {FRAMES:,})")
    parser.add_argument("--boards", type=int, action="append", help=f"of FiC (default: {', '.join(map(str, FIC_BOARDS))})")
    parser.add_argument("--filters", type=int, help="of layers in floats that are simulated (default: all)")
    parser.add_argument("--layer", action="append", choices=list(LAYERS), help="default: all")
    parser.add_argument("--loaded", action="append", choices=list(LOADED), help="layers of that part (default: all)")
    parser.add_argument("--form", action="append", choices=FORMS,
                        help=f"of datapaths (default: all but {', '.join(SLOW_FORMS)}, which takes longest)")
    parser.add_argument("--family", action="append", help=f"of {', '.join(FAMILIES)} (default: {', '.join(COUNTED_FAMILIES)})")
    options = parser.parse_args()
    for name, value in QUICK.items() if options.quick else ():
        setattr(options, name, getattr(options, name) or value)
    return options


def main() -> int:
    options = arguments()
    families, frames = options.family or list(COUNTED_FAMILIES), options.frames or FRAMES
    for family in families:
        if family not in FAMILIES:
            raise UsageError(f"--family {family}: unknown; {', '.join(FAMILIES)} exist")
    if not options.json.parent.is_dir():
        raise UsageError(f"--json {options.json}: no folder {options.json.parent}; make it first")
    found = load_record(options.json) if options.resume else dict[str, Any]()

    def keep(more: dict[str, Any]) -> None:
        found.update(more)
        replace_text(options.json, json.dumps(found, indent=1) + "\n")

    state = options.json.with_suffix(".state")
    forms = options.form or [f for f in FORMS if f not in SLOW_FORMS]
    work: dict[str, Callable[[], dict[str, Any]]] = {
        "datapaths": lambda: measure(options.layer or list(LAYERS), families, forms, found, keep),
        "faults": lambda: faulty_links(frames), "conv2": lambda: alexnet_conv2(options.quick),
        "loaded": lambda: loaded_layers(options.loaded or list(LOADED)), "links": link_ends,
        "port": lambda: host_ports(build_design(coded_graph(*LAYERS[SMALL]), "port_core")), "rom": roms, "memories": memories,
        "reduced": lambda: reduced(state),
        "pair": lambda: pair(state), "cut": lambda: cut(state), "network": lambda: network(state),
        "floats": lambda: float_layers(found, keep, options.filters),
        "fic": lambda: boards_of_fic(options.boards or list(FIC_BOARDS))}
    for part in options.part or PARTS:
        if part not in GROWING_PARTS and options.resume and KEYS[part] in found:
            print(f"{part}: kept as {options.json} has it", flush=True)
            continue
        print(f"== {part}", flush=True)
        began = time.monotonic()
        keep(work[part]())
        earlier = found.get("wall_s", {})
        keep({"wall_s": {**earlier, part: round(time.monotonic() - began + earlier.get(part, 0.0) * options.resume, 1)}})
    for key in TARGETS:
        if key in found:
            print(f"{key}: at most {found[key]['value']:.3f} of its LUTs (target {found[key]['target']})", flush=True)
    return 0


def load_record(path: Path) -> dict[str, Any]:
    """What an earlier run has found; nothing where there is none."""
    if not path.is_file():
        return {}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: not a record to go on from ({error}); leave out --resume, or name another file") from None
    if not isinstance(found, dict):
        raise UsageError(f"{path}: holds a {type(found).__name__}; a record of this bench is an object")
    return found


if __name__ == "__main__":
    try:
        sys.exit(main())
    except DovetailError as error:
        print(f"lq: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
