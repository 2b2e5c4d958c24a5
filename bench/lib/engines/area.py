"""Folded layers against synthesis: counted by Yosys and predicted by `dovetail.cost.folded`, per FPGA family.

`python bench/engines.py --part area --json FILE [--family xcup --family ecp5 --family cyclonev]` prints both and the model's
error, and fits the two coefficients that only folded layers show. Cyclone V stands for Cyclone 10 GX, to which no Yosys maps
memories of constants; its blocks are smaller and its multipliers three in a block, so only logic and registers are compared.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from scipy.optimize import nnls

from dovetail.cost.folded import shape_of
from dovetail.cost.folded_area import folded_cost
from dovetail.fpga.assemble import build_design
from dovetail.fpga.toolchain.synthesize import synthesize
from dovetail.hardware.folds import Fold
from dovetail.ir import RELU, Constant, Conv, Graph, Node, Tensor, Window
from dovetail.numerics.calibration import synthetic
from dovetail.numerics.quantize import quantize_graph
from dovetail.platform.fitted import DhmModel, dhm_model

MODELS = {"xcup": "dhm-xcup", "xcu": "dhm-xcu", "ecp5": "dhm-ecp5", "cyclonev": "dhm-cyclone10gx"}
SAME = (1, 1, 1, 1)
LAYERS: dict[str, tuple[Conv, tuple[int, int, int], Fold]] = {
    "16 to 32, 3x3, 4 x 4 at once": (Conv(32, Window((3, 3), pads=SAME), 1, RELU), (16, 28, 28), Fold(1, 4, 4)),
    "64 to 64, 1x1, 8 x 8 at once": (Conv(64, Window((1, 1)), 1, RELU), (64, 14, 14), Fold(1, 8, 8)),
    "64 to 64, 3x3, 2 x 2 at once": (Conv(64, Window((3, 3), pads=SAME), 1, RELU), (64, 14, 14), Fold(1, 2, 2)),
    "depthwise 32, 3x3, 8 at once": (Conv(32, Window((3, 3), pads=SAME), 32, RELU), (32, 14, 14), Fold(8, 1, 1)),
    "3 to 16, 3x3/2, 3 x 4 at once": (Conv(16, Window((3, 3), (2, 2), SAME), 1, RELU), (3, 32, 32), Fold(1, 3, 4)),
    "128 to 32, 1x1, 4 x 2 at once": (Conv(32, Window((1, 1))), (128, 7, 7), Fold(1, 4, 2)),
    "32 to 24, 3x3, 1 x 5 at once": (Conv(24, Window((3, 3), pads=SAME)), (32, 14, 14), Fold(1, 1, 5)),
}
FITTED = ("logic_per_choice_bit", "logic_per_rom_bit")


def layer(op: Conv, shape: tuple[int, int, int], seed: int) -> Graph:
    """One convolution whose filters differ by up to three powers of two, quantized on synthetic inputs."""
    rng = np.random.default_rng(seed)
    size, _ = op.param_shapes(((1, *shape),))
    weight = rng.normal(size=size) * 2.0 ** rng.integers(-3, 1, size[0]).reshape(-1, 1, 1, 1)
    constants = {"w": Constant("w", weight.astype(np.float32)), "b": Constant("b", rng.normal(size=size[0]).astype(np.float32))}
    tensors = {"x": Tensor("x", (1, *shape)), "y": Tensor("y", op.infer(((1, *shape),)))}
    graph = Graph("layer", ("x",), ("y",), (Node("conv", op, ("x",), ("w", "b"), "y"),), tensors, constants)
    return quantize_graph(graph, synthetic(graph, 4, seed))


def predicted(graph: Graph, fold: Fold, model: DhmModel, **coefficients: float) -> dict[str, float]:
    changed = replace(model, coefficients={**model.coefficients, **coefficients})
    return dict(folded_cost(shape_of(graph, graph.nodes[0]), fold, changed).resources)


def fit(contents: Sequence[Sequence[float]], rest: Sequence[float], counted: Sequence[float]) -> list[float]:
    """Coefficients of least squared relative error, none negative."""
    scale = 1 / np.array(counted)
    found, _ = nnls(np.array(contents) * scale[:, None], np.array(rest) * scale)
    return [float(v) for v in found]


def measure(family: str) -> dict[str, object]:
    """Counted and predicted resources of every layer, and the coefficients the counts ask for."""
    model = dhm_model(MODELS[family])
    names = [n for n in FITTED if model.coefficients[n]]
    layers: dict[str, object] = {}
    contents, rest, logic, errors = [], [], [], []
    for seed, (name, (op, shape, fold)) in enumerate(LAYERS.items()):
        graph = layer(op, shape, seed)
        counted = synthesize(build_design(graph, "layer", folds={graph.nodes[0].name: fold}), family).resources
        expected = predicted(graph, fold, model)
        tiny = dict.fromkeys(names, 1e-12)
        base = predicted(graph, fold, model, **tiny)[model.logic]
        contents.append([predicted(graph, fold, model, **{**tiny, n: 1.0})[model.logic] - base for n in names])
        logic.append(float(counted[model.logic]))
        rest.append(logic[-1] - base)
        keys = [k for k in expected if k in counted and (family != "cyclonev" or k in (model.logic, "register"))]
        errors.append([expected[k] / counted[k] - 1 for k in (model.logic, "register")])
        layers[name] = {"counted": {k: float(counted[k]) for k in keys}, "predicted": {k: expected[k] for k in keys}}
        print(f"{family:9s} {name:30s}", *(f"{k} {counted[k]:7.0f} / {expected[k]:7.0f}" for k in keys), flush=True)
    size = np.abs(np.array(errors))
    found = fit(contents, rest, logic)
    unseen = []
    for out in range(len(logic)):
        keep = [i for i in range(len(logic)) if i != out]
        own = fit([contents[i] for i in keep], [rest[i] for i in keep], [logic[i] for i in keep])
        unseen.append(abs(float(np.dot(contents[out], own)) - rest[out]) / logic[out])
    print(f"{family}: the shipped model errs by {size[:, 0].mean():.1%} of {model.logic} ({size[:, 0].max():.1%} at worst) and "
          f"{size[:, 1].mean():.1%} of registers ({size[:, 1].max():.1%}); fitted anew {dict(zip(names, found, strict=True))}, "
          f"a layer left out errs by {np.mean(unseen):.1%}, {np.max(unseen):.1%} at worst")
    return {"layers": layers, "logic_error_mean": float(size[:, 0].mean()), "logic_error_largest": float(size[:, 0].max()),
            "register_error_mean": float(size[:, 1].mean()), "register_error_largest": float(size[:, 1].max()),
            "fitted": dict(zip(names, found, strict=True)), "left_out_mean": float(np.mean(unseen)),
            "left_out_largest": float(np.max(unseen))}


def main(asked: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--family", action="append", choices=sorted(MODELS))
    options = parser.parse_args(asked)
    results = {family: measure(family) for family in options.family or ("xcup", "ecp5", "cyclonev")}
    options.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")

