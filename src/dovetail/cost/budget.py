"""Whether hardware fits its device, by the estimate, before any tool is started on it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from dovetail.cost.accelerator import accelerator_costs
from dovetail.cost.dhm import dhm_costs
from dovetail.cost.estimate import ShareCosts
from dovetail.cost.folded import chosen_fold, word_part
from dovetail.errors import InfeasibleError
from dovetail.ir import Graph, Node
from dovetail.platform.device import Device
from dovetail.platform.fitted import dhm_model

UNSURE = 0.05
"""The part of a device that accelerators leave free of what the area model may be wrong about."""
CERTAIN = ("dsp",)
"""Resources that are counted as they are built: multiplier blocks."""


def within_reach(resources: Mapping[str, float]) -> dict[str, float]:
    """What an accelerator may take of a device by the model, so that it fits where the model is wrong."""
    return {r: amount if r in CERTAIN else amount * (1 - UNSURE) for r, amount in resources.items()}


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
