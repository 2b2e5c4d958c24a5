"""A calibrated device from measured layers: coefficients per class of layer, with errors of layers left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dovetail.cost.calibrated import amounts, class_of
from dovetail.cost.fitting.nonnegative import fit_dictionary
from dovetail.cost.fitting.rows import divisions
from dovetail.cost.fitting.scatter import errors_of
from dovetail.hardware.shares import Floats
from dovetail.hardware.work import whole_units, work_of
from dovetail.ir import Graph
from dovetail.platform.calibrated import CLASSES, TERMS
from dovetail.platform.quantity import Errors

FEWEST = 4
"""Layers of a class that are needed for a fit of its own."""


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
