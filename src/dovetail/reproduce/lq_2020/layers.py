"""LQ multi-FPGA 2020, layer by layer: what one board holds, and what bits cost beside what they are worth.

Areas are those plans go by. Accuracies come from a record of `bench/lq_training.py`, layers in floats, which are simulated and
counted by Yosys, from one of `bench/lq.py`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from dovetail import cost
from dovetail.cost.folded import coded_shape
from dovetail.cost.lq_folds import CodedShape, best_coded_fold
from dovetail.errors import UsageError
from dovetail.ir import Coded, Graph, Node
from dovetail.ir.operators.lq import steps_of
from dovetail.platform.device import Device
from dovetail.terminal import table

CLAIM = {"bram": 0.5, "lut": 0.3}
"""Parts of a board that a layer stays below, as the paper says."""
RESOURCES = (("bram", "bram36"), ("lut", "lut"), ("dsp", "dsp"))
BITS = ((1, 1), (1, 2), (2, 2), (3, 3), (4, 4), (1, 8), (8, 8), (32, 32))
"""Bits of weights and activations; 8 for plain bytes, 32 for floats, which no plan folds."""
FLOAT_BITS = 32
CONV2_CLOCKS = 90_000
LAYER_PACES = (51_529, 103_058, 206_116, 515_290, 1_030_580)
"""Clocks per frame that are tried for layers by themselves: from one per pixel of the image to twenty."""
FLOAT_FOLDS = {"1x1x1": "one product a clock", "1x3x32": "96 products a clock"}
"""Folds of layers in floats: the nearest to the paper's loops, and one that fills a fifth of a board."""
PAPER_ROWS = ("trad_1", "pps_1", "trad_2", "pps_2")
NETWORK, OTHER = "resnet20", "vgg-small"
"""Whose accuracies stand beside the bits."""
TRAINING = Path(__file__).parent.parent / "records" / "lq_training.json"
NOT_MEASURED = "not measured"


def layers_on_one_board(graph: Graph, device: Device, paces: Sequence[int]) -> list[dict[str, Any]]:
    """Every layer of codes by itself on one board: parts of the board at the least pace, of some that ascend, at which the
    paper's claim holds; where it never does, at which the board holds the layer at all."""
    rows = []
    for node in graph.nodes:
        if isinstance(node.op, Coded):
            tried = [_at_pace(graph, node, device, pace) for pace in paces]
            rows.append(next((r for r in tried if r["as_claimed"]), next((r for r in tried if r["fits"]), tried[-1])))
    return rows


def _at_pace(graph: Graph, node: Node, device: Device, pace: int) -> dict[str, Any]:
    """A layer in the engine that plans take, or folded where that is as claimed and the other is not."""
    found = cost.costs_of(graph, node, None, np.asarray([0]), np.asarray([1]), device.at_pace(pace))
    folded = best_coded_fold(coded_shape(graph, node), device.model, tuple(sorted(device.resources.items())), pace)
    forms = [{} if found is None else {key: float(found.resources[key][0]) for _, key in RESOURCES if key in found.resources},
             *([dict(folded[4])] if folded is not None else [])]
    rows = [_row(graph, node, device, pace, used) for used in forms]
    return next((r for r in rows if r["as_claimed"]), rows[0])


def _row(graph: Graph, node: Node, device: Device, pace: int, used: Mapping[str, float]) -> dict[str, Any]:
    assert isinstance(node.op, Coded)
    parts = {name: used[key] / device.resources[key] for name, key in RESOURCES if key in used}
    return {"layer": node.name, "weights_mbit": graph.params(node)[0].array.size * (node.op.weight_bits or 8) / 1e6,
            "pace_clocks": pace, **parts, "fits": bool(parts) and max(parts.values()) <= 1.0,
            "as_claimed": bool(parts) and all(parts.get(k, 0.0) < most for k, most in CLAIM.items())
            and max(parts.values()) <= 1.0}


def with_bits(shape: CodedShape, weights: int, activations: int) -> CodedShape:
    """A layer of other bits; 8 are plain bytes."""
    coded, read = (0 if bits == 8 else bits for bits in (weights, activations))
    return replace(shape, weight_bits=coded, input_bits=read, weight_width=weights, input_width=activations,
                   steps=steps_of(read) if read else 0)


def bits_of_conv2(graph: Graph, device: Device, training: Mapping[str, Any],
                  clocks: int = CONV2_CLOCKS) -> list[dict[str, Any]]:
    """Layer 2 over bit widths, each in its best fold within so many clocks, beside what networks of those bits reached."""
    shape, limits, rows = coded_shape(graph, graph.node("conv2")), tuple(sorted(device.resources.items())), list[dict[str, Any]]()
    for weights, activations in BITS:
        best, kind = None, "float"
        if weights < FLOAT_BITS:
            best = best_coded_fold(with_bits(shape, weights, activations), device.model, limits, clocks)
            kind = f"w{weights}a{activations}"
        trained, other = (training["experiments"].get(f"{name}-{kind}", {}) for name in (NETWORK, OTHER))
        row = {"weights": weights, "activations": activations, "experiment": f"{NETWORK}-{kind}",
               "accuracy": trained.get("mean_accuracy"), "points_lost": trained.get("points_lost"),
               "accuracy_of_other": other.get("mean_accuracy")}
        if best is not None:
            used = dict(best[4])
            row |= {"fold": str(best[0]), "cycles": best[1], **{key: used.get(key, 0.0) for _, key in RESOURCES},
                    "fits": all(used.get(key, 0.0) <= device.resources[key] for _, key in RESOURCES)}
        rows.append(row)
    return rows


def load_training(path: Path | None) -> dict[str, Any]:
    """The record of trainings: one that was asked for, or the one that comes along."""
    source = path or TRAINING
    try:
        found: dict[str, Any] = json.loads(source.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{source}: not a record of trainings ({error}); bench/lq_training.py --json writes one") from None
    if not isinstance(found, dict) or not isinstance(found.get("experiments"), dict):
        raise UsageError(f"{source}: no experiments in it; bench/lq_training.py --json writes them")
    return found


def float_layers(record: Mapping[str, Any], device: Device) -> list[dict[str, Any]]:
    """The paper's four rows at both folds as simulated and synthesized, with the parts of the board that they take.

    Clocks of a layer of which some filters alone were simulated are those of the closed form.
    """
    named, rows = {"lut": "lut", "ff": "register", "bram": "bram36", "dsp": "dsp"}, []
    for row in PAPER_ROWS:
        for fold in FLOAT_FOLDS:
            found = record["float_layers"][f"{row} {fold}"]
            parts = {f"{key}_part": found["area"][key] / device.resources[name] for key, name in named.items()}
            run = found["simulated"]
            whole = run["filters"] == found["filters"]
            rows.append({"row": row, "fold": fold, "clocks": run["latency_cycles"] if whole else found["closed_form_cycles"],
                         **found["area"], **parts, "filters": run["filters"], "bit_exact": run["bit_exact"]})
    return rows


def float_table(rows: list[dict[str, Any]], printed: Mapping[str, tuple[int, int]]) -> str:
    """Tables 5.1 and 5.2 with our rows, for a terminal; of the former the paper's cells are not legible."""
    shown = [(r["row"], FLOAT_FOLDS[r["fold"]], f"{printed[r['row']][0]:,}", f"{r['clocks']:,}",
              f"{printed[r['row']][0] / r['clocks']:,.1f}", *(f"{r[key]:,.0f}" for key in ("lut", "ff", "dsp")),
              f"{r['bram']:,.1f} ({r['bram_part']:.1%})",
              f"{r['filters']} filters{', bit-exact' if r['bit_exact'] else ', WRONG'}") for r in rows]
    return table(("layer", "ours", "paper's clocks", "our clocks", "paper / ours", "LUT", "registers", "DSP", "BRAM36",
                  "simulated"), shown)


def layer_table(rows: list[dict[str, Any]]) -> str:
    """Layers on one board, for a terminal."""
    shown = [(r["layer"], f"{r['weights_mbit']:.1f}", f"{r['pace_clocks']:,}",
              *(f"{r[k]:.1%}" if k in r else "" for k, _ in RESOURCES),
              "yes" if r["as_claimed"] else "fits, not as claimed" if r["fits"] else "no board holds it alone") for r in rows]
    return table(("layer", "Mbit", "clocks", "BRAM", "LUT", "DSP", "below 50 % BRAM, 30 % logic"), shown)


def bits_table(rows: list[dict[str, Any]]) -> str:
    """Bits, resources and accuracy, for a terminal."""
    shown = [(f"W{r['weights']}A{r['activations']}" if r["weights"] < FLOAT_BITS else "float",
              NOT_MEASURED if r["accuracy"] is None else f"{r['accuracy']:.2f} %",
              "" if r["points_lost"] is None else f"{r['points_lost']:.2f}",
              "" if r["accuracy_of_other"] is None else f"{r['accuracy_of_other']:.2f} %",
              *((r["fold"], f"{r['cycles']:,}", *(f"{r[key]:,.0f}" for key in ("lut", "bram36", "dsp")))
                if "fold" in r else ("no fold", "", "", "", "")), "yes" if r.get("fits") else "no") for r in rows]
    return table(("bits", f"{NETWORK}, CIFAR-10", "points lost", OTHER, "fold", "cycles", "LUT", "BRAM36", "DSP", "fits"), shown)


def training_table(training: Mapping[str, Any]) -> str:
    """Every experiment that was trained, for a terminal."""
    shown = [(name, f"{row['mean_accuracy']:.2f} %", "" if row.get("points_lost") is None else f"{row['points_lost']:.2f}",
              str(len(row.get("runs", ()))), row.get("published") or "") for name, row in training["experiments"].items()]
    return table(("experiment", "accuracy, mean", "points lost", "seeds", "published"), shown)
