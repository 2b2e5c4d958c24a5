"""Energy of a calibrated device from layers whose energy was read, and power of the authors' hardware from their rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dovetail.cost.fitting.nonnegative import fit_dictionary, least_squares
from dovetail.cost.fitting.rows import LEVEL_COLUMNS, Columns, divisions, fold_numbers
from dovetail.cost.fitting.scatter import errors_of
from dovetail.hardware.shares import Floats
from dovetail.hardware.work import whole_units, work_of
from dovetail.ir import Graph
from dovetail.platform.quantity import Errors

FEWEST = 8
"""Layers with energy that are needed to tell the three terms apart; fewer give one power for all."""
POWER_COLUMNS = (*LEVEL_COLUMNS, "power_w", "alm", "m20k")


@dataclass(frozen=True, slots=True)
class EnergyFit:
    """`running_w` above idle while a layer runs, and joules per multiply-add and per element read or written.

    `errors` are those of a layer's whole energy, idle included, for layers left out of the fit.
    """

    running_w: float
    j_per_mac: float
    j_per_element: float
    errors: Errors
    layers: int


def fit_energy(graphs: Sequence[Graph], seconds: Floats, joules: Floats, idle_power_w: float) -> EnergyFit:
    """Non-negative terms of the energy above idle that minimise the relative deviation of the whole."""
    features = np.column_stack([seconds, np.array([_done(graph) for graph in graphs])])
    idle = idle_power_w * seconds
    predicted = np.empty(len(joules))
    for seen, kept in divisions(features, min(5, len(joules))):
        taken = seen if seen.any() else kept
        predicted[kept] = features[kept] @ _fit(features[taken], joules[taken], idle[taken]) + idle[kept]
    running, per_mac, per_element = (float(c) for c in _fit(features, joules, idle))
    return EnergyFit(running, per_mac, per_element, errors_of(predicted, joules), len(joules))


def _done(graph: Graph) -> tuple[float, float]:
    """Multiply-adds, and elements read and written, of a graph's only node."""
    (node,) = graph.nodes
    work = work_of(graph, node, None, *whole_units())
    return float(work.macs[0]), float((work.reads + work.writes)[0])


def _fit(features: Floats, joules: Floats, idle: Floats) -> Floats:
    if len(joules) < FEWEST:
        return np.array([max(0.0, float(np.median((joules - idle) / features[:, 0]))), 0.0, 0.0])
    scaled = features / joules[:, None]
    scale = np.maximum(scaled.max(axis=0), np.finfo(np.float64).tiny)
    return np.asarray(least_squares(scaled / scale, np.maximum(joules - idle, 0.0) / joules) / scale, dtype=np.float64)


def fit_power(columns: Columns) -> tuple[Floats, Errors]:
    """Watts that Quartus estimates for an empty design, per logic cell and per RAM block, and the errors of rows left out.

    The estimates do not follow the rows' clock: they were made at one clock for all.
    """
    power = columns["power_w"]
    features = np.stack([np.ones_like(power), columns["alm"], columns["m20k"]], axis=1)
    points = np.stack([columns[c] for c in LEVEL_COLUMNS], axis=1)
    predicted: Floats = np.empty(len(power))
    for seen, kept in divisions(points):
        predicted[kept] = features[kept] @ fit_dictionary(features[seen], power[seen])
    return fit_dictionary(features, power), errors_of(predicted, power, fold_numbers(points))
