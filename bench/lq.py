"""Datapaths for layers of learned quantization: popcounts, tables, conditionals, and int8 as Direct Hardware Mapping builds it.

`python bench/lq.py --json FILE [--layer NAME ...] [--family NAME ...]`. Every layer exists four times with the same drawn weights
(Gaussian, seed 0): as 2-bit codes over a basis per filter that quantization error minimisation found, read by 2-bit activations
over a basis per layer, in three datapaths; and as int8 between bytes, in adder graphs. All of them are whole engines: line
memories, arithmetic, output stage (thresholds, or rounding) and FIFO. Areas are Yosys counts before place and route.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from dovetail.errors import DovetailError, UsageError
from dovetail.files import replace_text
from dovetail.fpga.assemble import build_design
from dovetail.fpga.engines.lq import Datapath
from dovetail.fpga.synthesize import FAMILIES, synthesize
from dovetail.ir import RELU, Array, Constant, Conv, Graph, Node, Real, Scheme, Tensor, Window
from dovetail.numerics.lq import Learned, boundaries_of, coded_node, ranked, weight_values

SAME = (2, 2, 2, 2)
LAYERS: dict[str, tuple[Conv, tuple[int, int, int]]] = {
    "5x5, 8 to 4": (Conv(4, Window((5, 5), pads=SAME)), (8, 27, 27)),
    "slice of AlexNet conv2, 5x5, 24 to 4": (Conv(4, Window((5, 5), pads=SAME)), (24, 27, 27)),
}
COUNTS = {"lut": ("lut", "lut4", "alm"), "ff": ("register",), "bram": ("bram36", "bram", "m10k", "m20k"), "dsp": ("dsp",)}
"""What each family calls it; Cyclone's unit is the ALM."""
BITS = 2
ACTIVATIONS = np.asarray([0.52, 1.05])
"""A basis near the best for half a normal distribution of deviation 1, as BatchNorm and ReLU leave it."""
TARGETS = {"popcount_vs_int8": 0.30, "popcount_vs_table": 0.42}
FIT_ROUNDS = 50


def learned_codes(weights: Real) -> tuple[Array, Real]:
    """Codes and bases of weights (filters, …) by alternating nearest levels and least squares (LQ-Nets, algorithm 1)."""
    flat = weights.reshape(len(weights), -1)
    basis = np.outer(flat.std(axis=1), [0.5, 1.0])
    codes = np.zeros(flat.shape, dtype=np.int64)
    for _ in range(FIT_ROUNDS):
        levels = weight_values(np.broadcast_to(np.arange(4), (len(flat), 4)), basis)
        codes = np.abs(flat[:, :, None] - levels[:, None, :]).argmin(axis=2)
        for f, row in enumerate(codes):
            planes = np.stack([(row >> i & 1) * 2.0 - 1 for i in range(BITS)], axis=1)
            basis[f] = np.linalg.lstsq(planes, flat[f], rcond=None)[0]
    return codes.reshape(weights.shape).astype(np.uint8), basis


def drawn(op: Conv, shape: tuple[int, int, int]) -> tuple[Real, Real, Real]:
    """Weights, gains and offsets of a layer whose outputs are spread like those behind BatchNorm."""
    rng = np.random.default_rng(0)
    weights = rng.normal(size=(op.filters, shape[0], *op.window.kernel))
    spread = np.sqrt(weights[0].size) * 0.9
    return weights, rng.normal(1.0, 0.2, op.filters) / spread, rng.normal(0.0, 0.3, op.filters)


def coded_graph(op: Conv, shape: tuple[int, int, int]) -> Graph:
    weights, gain, offset = drawn(op, shape)
    codes, basis = learned_codes(weights)
    boundaries = boundaries_of(ranked(ACTIVATIONS)[0]).tolist()
    node, constants = coded_node("conv", Learned(op, codes, BITS, basis, BITS, ACTIVATIONS, gain, offset), "x", "y", boundaries)
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
    design = build_design(graph, f"lq_{datapath}", datapath=datapath)
    found = synthesize(design, family).resources
    row = {key: float(next((found[n] for n in names if n in found), 0.0)) for key, names in COUNTS.items()}
    return {**row, "adders": float(design.adders)}


def measure(layers: list[str], families: list[str]) -> dict[str, Any]:
    datapaths: dict[str, Any] = {}
    for name in layers:
        codes, whole = coded_graph(*LAYERS[name]), byte_graph(*LAYERS[name])
        forms = [*((str(d), codes, d) for d in Datapath), ("int8", whole, Datapath.POPCOUNT)]
        for form, graph, datapath in forms:
            for family in families:
                row = counted(graph, family, datapath)
                datapaths.setdefault(f"{name}: {form}", {})[family] = row
                print(f"{name:38} {form:9} {family:12} {row['lut']:8.0f} LUT {row['ff']:8.0f} FF {row['bram']:4.0f} BRAM "
                      f"{row['adders']:6.0f} adders", flush=True)
    ratios: dict[str, Any] = {}
    for key, target in TARGETS.items():
        peer = key.removeprefix("popcount_vs_")
        by = {name: {f: datapaths[f"{name}: popcount"][f]["lut"] / datapaths[f"{name}: {peer}"][f]["lut"] for f in families}
              for name in layers}
        largest = max(r for row in by.values() for r in row.values())
        ratios[key] = {"value": largest, "target": target, "status": "ok" if largest <= target else "missed", "by_layer": by}
        print(f"{key}: at most {largest:.3f} of its LUTs (target {target})", flush=True)
    return {"datapaths": datapaths, **ratios}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--layer", action="append", choices=list(LAYERS), help="default: all")
    parser.add_argument("--family", action="append", help=f"of {', '.join(FAMILIES)} (default: xcup)")
    options = parser.parse_args()
    families = options.family or ["xcup"]
    for family in families:
        if family not in FAMILIES:
            raise UsageError(f"--family {family}: unknown; {', '.join(FAMILIES)} exist")
    replace_text(options.json, json.dumps(measure(options.layer or list(LAYERS), families), indent=1) + "\n")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except DovetailError as error:
        print(f"lq: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
