"""The area model against counted layers: coefficients from one part of a campaign, errors on the other.

What an engine is made of comes from `hardware.engines`, the same numbers that plans are priced with; only what one bit of each
part costs in a family is fitted, by least squares of the relative error, none negative.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from math import ceil

import numpy as np

from dovetail.cost.dhm import resources_of
from dovetail.cost.fitting.nonnegative import least_squares
from dovetail.explore.area_campaign import CountedArea
from dovetail.explore.area_layers import AreaLayer, area_graph
from dovetail.hardware.engines import EngineSizes, engine_of, joined_engines
from dovetail.hardware.shares import Floats
from dovetail.platform.fitted import DhmModel, dhm_model
from dovetail.words import counted

MODELS: Mapping[str, str] = {"ecp5": "dhm-ecp5", "gw2a": "dhm-gw2a", "xcu": "dhm-xcu", "xcup": "dhm-xcup",
                             "cyclone10gx": "dhm-cyclone10gx", "cyclonev": "dhm-cyclone10gx"}
"""The model of each family; Cyclone V is the proxy of Cyclone 10 GX where its synthesizer is missing."""
LOGIC = ("logic_per_engine", "logic_per_adder_bit", "logic_per_adder", "logic_per_loop_bit", "logic_per_division_bit",
         "logic_per_bias_bit", "logic_per_rounded_bit", "logic_per_comparison_bit",
         "logic_per_output_bit", "logic_per_control_bit", "logic_per_mask_bit")
REGISTERS = ("register_per_engine", "register_per_sum_bit", "register_per_lag_bit", "register_per_output_bit",
             "register_per_control_bit")
"""Fitted coefficients; what memories, tables and multipliers cost is known from the family's primitives."""


@dataclass(frozen=True, slots=True)
class AreaErrors:
    """|predicted - counted| / counted over some layers."""

    median: float
    p90: float
    largest: float
    worst: str
    layers: int


@dataclass(frozen=True, slots=True)
class Judgement:
    """Errors of a family's model by resource, on the layers it was fitted to and on the others.

    RAM blocks are few: `blocks` counts the judged layers with any, and those of them predicted exactly.
    """

    family: str
    tool: str
    calibration: Mapping[str, AreaErrors]
    validation: Mapping[str, AreaErrors]
    blocks: tuple[int, int]


def engines(layers: Mapping[AreaLayer, CountedArea]) -> EngineSizes:
    """What the engine of every layer is made of."""
    one = np.zeros(1, dtype=np.int64), np.ones(1, dtype=np.int64)
    found = []
    for layer in layers:
        graph = area_graph(layer)
        node = next(n for n in reversed(graph.nodes) if not n.op.still)
        found.append(engine_of(graph, node, None, *one))
    return joined_engines(found)


def predicted(engine: EngineSizes, model: DhmModel, **coefficients: float) -> dict[str, Floats]:
    """Resources by the model, with some coefficients changed."""
    return resources_of(engine, replace(model, coefficients={**model.coefficients, **coefficients}))


def fit_model(family: str, layers: Mapping[AreaLayer, CountedArea]) -> dict[str, float]:
    """Coefficients of a family from the calibrating layers; one that no layer shows keeps its value."""
    model, chosen = dhm_model(MODELS[family]), {k: v for k, v in layers.items() if k.calibrates}
    engine = engines(chosen)
    found: dict[str, float] = {}
    for resource, names in ((model.logic, LOGIC), ("register", REGISTERS)):
        counted = np.array([c.resources[resource] for c in chosen.values()])
        nothing = dict.fromkeys(names, 0.0)
        rest = predicted(engine, model, **nothing)[resource]
        features = np.stack([predicted(engine, model, **{**nothing, n: 1.0})[resource] - rest for n in names], axis=1)
        fitted = least_squares(features / counted[:, None], (counted - rest) / counted)
        found |= {n: float(f) for n, f, column in zip(names, fitted, features.T, strict=True) if column.any()}
    return found


def judge(family: str, layers: Mapping[AreaLayer, CountedArea], coefficients: Mapping[str, float] | None = None) -> Judgement:
    """Errors of the shipped model, or of the coefficients given, on both parts of the layers."""
    model = dhm_model(MODELS[family])
    parts = [{k: v for k, v in layers.items() if k.calibrates is calibrates} for calibrates in (True, False)]
    errors: list[dict[str, AreaErrors]] = []
    blocks = (0, 0)
    for part in parts:
        errors.append({})
        if not part:
            continue
        expected = predicted(engines(part), model, **(coefficients or {}))
        for resource in (model.logic, "register"):
            errors[-1][resource] = _errors([str(k) for k in part], expected[resource],
                                           np.array([c.resources[resource] for c in part.values()]))
        counted = np.array([c.resources.get(model.block, 0.0) for c in part.values()])
        blocks = int((counted > 0).sum()), int(((counted > 0) & (np.abs(expected[model.block] - counted) < 0.01)).sum())
    tool = next(iter(layers.values())).tool
    return Judgement(family, tool, errors[0], errors[1], blocks)


def _errors(names: list[str], expected: Floats, counted: Floats) -> AreaErrors:
    error = np.abs(expected / counted - 1)
    worst = int(error.argmax())
    return AreaErrors(float(np.median(error)), float(np.quantile(error, 0.9)), float(error[worst]), names[worst], len(error))


def judgement_json(found: Judgement) -> dict[str, object]:
    """As `campaign area --json` states it: `median` and `p90` are the worse of logic's and registers', on unseen layers."""
    def plain(errors: Mapping[str, AreaErrors]) -> dict[str, object]:
        return {resource: {"median": e.median, "p90": e.p90, "largest": e.largest, "worst_layer": e.worst, "layers": e.layers}
                for resource, e in errors.items()}

    worst = found.validation.values()
    return {"median": max((e.median for e in worst), default=None), "p90": max((e.p90 for e in worst), default=None),
            "validation": plain(found.validation), "calibration": plain(found.calibration), "tool": found.tool,
            "layers_with_blocks": found.blocks[0], "blocks_exact": found.blocks[1]}


def judgement_table(found: Sequence[Judgement]) -> str:
    """The same for people."""
    lines = [f"{'family':<13}{'resource':<10}{'layers':<13}{'median':>8}{'p90':>8}{'worst':>8}   worst layer"]
    for one in found:
        for name, errors in (("calibrated", one.calibration), ("unseen", one.validation)):
            for resource, e in errors.items():
                lines.append(f"{one.family:<13}{resource:<10}{e.layers:>3} {name:<9}"
                             f"{e.median:>8.1%}{e.p90:>8.1%}{e.largest:>8.1%}   {e.worst}")
        exact, some = one.blocks[::-1]
        lines.append(f"{one.family:<13}RAM blocks exact for {exact} of the {counted(some, 'unseen layer')} with any; {one.tool}")
    return "\n".join([*lines, "", "|predicted - counted| / counted; unseen: layers the coefficients were not fitted to, chosen",
                      "by the hash of their description. Counted after technology mapping, before place and route."])


def fitted_text(found: Judgement, coefficients: Mapping[str, float]) -> str:
    """The family's model file with fitted coefficients, their source, and the error they were judged to have."""
    file = resources.files("dovetail.platform") / "models" / f"{MODELS[found.family]}.toml"
    text, name = file.read_text(encoding="utf-8"), dhm_model(MODELS[found.family]).logic
    seen, unseen, registers = found.calibration[name], found.validation[name], found.validation["register"]
    short = f"fit of {counted(seen.layers, 'layer')} synthesized with {found.tool.split(' (')[0]} (dovetail campaign area)"
    for key, value in coefficients.items():
        text = re.sub(rf"(?m)^{key} = .*$", f'{key} = {{ value = {value:.4g}, source = "{short}" }}', text)
    text = re.sub(r"(?m)^error = .*$", f"error = {max(0.05, ceil(100 * unseen.p90) / 100)}", text)
    return re.sub(r"(?m)^source = .*$", f'source = "{short}; {unseen.layers} others err by {unseen.median:.1%} '
                  f'(p90 {unseen.p90:.1%}), registers {registers.median:.1%} ({registers.p90:.1%})"', text)
