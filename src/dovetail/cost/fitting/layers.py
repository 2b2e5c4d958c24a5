"""A calibrated device from measured layers: time per class of layer, and energy, with errors of layers left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dovetail.cost.calibrated import amounts, class_of
from dovetail.cost.fitting.nonnegative import fit_dictionary, least_squares
from dovetail.cost.fitting.rows import divisions
from dovetail.cost.fitting.scatter import errors_of
from dovetail.hardware.shares import Floats
from dovetail.hardware.work import whole_units, work_of
from dovetail.ir import Graph
from dovetail.platform.calibrated import CLASSES, TERMS
from dovetail.platform.quantity import Errors

FEWEST = 4
"""Layers of a class that are needed for a fit of its own."""
FEWEST_READ = 8
"""Layers with energy that are needed to tell the three terms apart; fewer give one power for all."""


@dataclass(frozen=True, slots=True)
class LayerFit:
    """Coefficients per class and term, errors per class, and over all layers."""

    coefficients: Mapping[str, Mapping[str, float]]
    errors: Mapping[str, Errors]
    total: Errors
    counts: Mapping[str, int]


def layer_features(graph: Graph) -> tuple[str, Floats]:
    """The class of a graph's only node and the amounts of its terms."""
    (node,) = graph.nodes
    found = amounts(graph, node, work_of(graph, node, None, *whole_units()))
    return class_of(graph, node), np.array([float(found[term][0]) for term in TERMS])


def fit_layers(graphs: Sequence[Graph], seconds: Floats) -> LayerFit:
    """Non-negative coefficients of every class that was measured at all."""
    classes, rows = zip(*(layer_features(g) for g in graphs), strict=True)
    features, group_of = np.array(rows), np.array(classes)
    coefficients: dict[str, dict[str, float]] = {}
    errors: dict[str, Errors] = {}
    held_out = np.zeros(len(seconds))
    for group in CLASSES:
        chosen = group_of == group
        if not chosen.any():
            continue
        x, y = features[chosen], seconds[chosen]
        coefficients[group] = {t: float(c) for t, c in zip(TERMS, _fit(x, y), strict=True) if c > 0}
        predicted = np.empty(len(y))
        for seen, kept in divisions(x, min(5, len(y))):
            # A lone layer tells nothing of others: it is taken to err by as much as it took.
            predicted[kept] = x[kept] @ _fit(x[seen], y[seen]) if seen.any() else 2 * y[kept]
        errors[group] = errors_of(predicted, y)
        held_out[chosen] = predicted
    counts = {group: int((group_of == group).sum()) for group in coefficients}
    return LayerFit(coefficients, errors, errors_of(held_out, seconds), counts)


def _fit(features: Floats, seconds: Floats) -> Floats:
    """Coefficients; too few rows for all terms share the work of the largest alone."""
    used = np.asarray((features != 0).any(axis=0))
    if len(seconds) < FEWEST:
        used &= np.isin(list(TERMS), ["launch_s", "s_per_write"])
    found = np.zeros(features.shape[1])
    found[used] = fit_dictionary(features[:, used], seconds)
    return found


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
        predicted[kept] = features[kept] @ _fit_energy(features[taken], joules[taken], idle[taken]) + idle[kept]
    running, per_mac, per_element = (float(c) for c in _fit_energy(features, joules, idle))
    return EnergyFit(running, per_mac, per_element, errors_of(predicted, joules), len(joules))


def _done(graph: Graph) -> tuple[float, float]:
    """Multiply-adds, and elements read and written, of a graph's only node."""
    (node,) = graph.nodes
    work = work_of(graph, node, None, *whole_units())
    return float(work.macs[0]), float((work.reads + work.writes)[0])


def _fit_energy(features: Floats, joules: Floats, idle: Floats) -> Floats:
    if len(joules) < FEWEST_READ:
        return np.array([max(0.0, float(np.median((joules - idle) / features[:, 0]))), 0.0, 0.0])
    scaled = features / joules[:, None]
    scale = np.maximum(scaled.max(axis=0), np.finfo(np.float64).tiny)
    return np.asarray(least_squares(scaled / scale, np.maximum(joules - idle, 0.0) / joules) / scale, dtype=np.float64)
