"""Whether hardware fits its device, by the estimate, before any tool is started on it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from dovetail.cost.accelerator import accelerator_costs
from dovetail.cost.dhm import dhm_costs
from dovetail.cost.estimate import ShareCosts
from dovetail.cost.folded import chosen_fold, word_part
from dovetail.errors import InfeasibleError
from dovetail.ir import Graph, Node
from dovetail.platform.device import Device, Kind, ModelSet
from dovetail.platform.fitted import dhm_model, model_names

ALUTS_PER_ALM = 2
"""Combinational look-up tables of an ALM. Source: Cyclone 10 GX Core Fabric Handbook (Intel 683775), 1.1.5."""
ALMS_PER_LAB = 10
"""Source: Stratix 10 LAB and ALM User Guide (Intel 683699), 3.1; taken to hold for a Cyclone 10 GX, whose 80,330 it divides."""


def usable(device: Device, accelerator: bool = False) -> dict[str, float]:
    """What plans may take of a device's resources by the area model: all that its parameter `fill` allows.

    Without `fill`, so much that a design fits with 95 % confidence (see `margin`). RAM blocks and multipliers are counted as they
    are built, so all of them may be used. The authors' models of GP partitioning 2023 limit ALUTs and LABs too (Eq. 4).
    """
    if device.kind is not Kind.FPGA:
        return dict(device.resources)
    if device.models is ModelSet.PUBLISHED and "alm" in device.resources:
        device = replace(device, resources={**device.resources, "alut": ALUTS_PER_ALM * device.resources["alm"],
                                            "lab": device.resources["alm"] / ALMS_PER_LAB})
    if "fill" in device.parameters:
        return {r: amount * device.parameters["fill"] for r, amount in device.resources.items()}
    left = margin(device, accelerator)
    unsure = (dhm_model(device.model).logic, "register") if left else ()
    return {r: amount * (1 - left) if r in unsure else float(amount) for r, amount in device.resources.items()}


def margin(device: Device, accelerator: bool = False) -> float:
    """The part of an FPGA's logic and registers to leave free, so that the rest suffices with 95 % confidence.

    It is the 90th percentile of |predicted / counted - 1| over designs that the area model was not fitted to: half of its errors
    are assumed to be counts above the prediction, so 5 % of designs count more than predicted / (1 - margin). For layers that are
    placed one by one it is that of single layers: they share the fitted coefficients, and one layer can be most of a design, so
    nothing is taken to average out. For an accelerator it is that of whole accelerators, in which errors partly do. The papers'
    own models are believed as they are, and so are costs that come from no model file.
    """
    if device.models is not ModelSet.PLANNING or device.model not in model_names():
        return 0.0
    model = dhm_model(device.model)
    return model.accelerator_error if accelerator or device.accelerator is not None else model.error


def fill_note(device: Device, accelerator: bool = False) -> str:
    """How far plans may fill an FPGA, and why, in words."""
    if "fill" in device.parameters:
        return f"{device.name}: filled to {device.parameters['fill']:.0%} of each resource at the most, as asked for"
    left = margin(device, accelerator)
    if not left:
        return f"{device.name}: filled to the last of each resource, as no error of its area is known"
    return (f"{device.name}: {dhm_model(device.model).logic} and register are filled to {1 - left:.1%} at the most, so that the "
            f"design fits with 95 % confidence (area is estimated to ±{left:.1%}); --fill changes it")


def estimate(graphs: Iterable[Graph], device: Device) -> dict[str, float]:
    """What the engines of quantized graphs need of a device, folded where it folds them; FIFOs between engines included."""
    total: dict[str, float] = {}
    one = np.zeros(1, dtype=np.int64), np.ones(1, dtype=np.int64)
    for graph in graphs:
        for node in graph.nodes:
            costs = dhm_costs(graph, node, None, *one, device)
            needs = (_folded(graph, node, costs, device) if device.accelerator is None
                     else accelerator_costs(graph, (node, ((None, *one),)), costs, device).resources)
            for resource, amount in needs.items():
                total[resource] = total.get(resource, 0.0) + float(np.sum(amount))
    return total


def _folded(graph: Graph, node: Node, costs: ShareCosts, device: Device) -> Mapping[str, float]:
    """What a node's engine needs where layers are folded one by one, or not at all."""
    direct = {r: float(v[0]) for r, v in costs.resources.items()}
    fold = chosen_fold(graph, node, device, direct)
    part = word_part(graph, node, device)
    spread = dhm_model(device.model).logic, "register", "dsp"
    return {r: v * part if r in spread else v for r, v in direct.items()} if fold is None else dict(fold.resources)


def check_budget(graphs: Iterable[Graph], device: Device, what: str) -> tuple[str, ...]:
    """Notes on resources that may not suffice; `what` is estimated for all graphs that share the device.

    Raises:
        InfeasibleError: a resource does not suffice even if the estimate is as far too high as the model errs.
    """
    model = dhm_model(device.model)
    over = excess(estimate(graphs, device), device.resources)
    lines = [f"{resource} {used:,.0f} of {limit:,.0f}, {used - limit:,.0f} too many"
             for resource, (used, limit) in over.items()]
    if any(used * (1 - model.error) > limit for used, limit in over.values()):
        raise InfeasibleError(f"{what}: does not fit {device.name} ({device.part or device.family}) by estimate: "
                              f"{', '.join(lines)} (±{model.error:.0%}; {model.source}); let layers share multipliers (--fold "
                              "auto), give the network one budget (--budget shared), or take a larger board")
    return tuple(f"{what}: may not fit {device.name}, by estimate {line} (±{model.error:.0%}); `dovetail synth` counts it"
                 for line in lines)


def excess(used: Mapping[str, float], limits: Mapping[str, float]) -> dict[str, tuple[float, float]]:
    """Resources of which more is used than there is: (used, limit), the worst first."""
    over = {r: (amount, limits[r]) for r, amount in used.items() if r in limits and amount > limits[r]}
    return dict(sorted(over.items(), key=lambda item: -item[1][0] / max(item[1][1], 1e-9)))
