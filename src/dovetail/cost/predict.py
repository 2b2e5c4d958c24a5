"""Predictions of fitted quantities: value, 90 % interval and whether the point lies in the measured box.

Everything is vectorised: one call predicts any number of layers (bench/models.py counts them).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dovetail.hardware.shares import Flags, Floats, Ints
from dovetail.platform.quantity import BASE_VARIABLES, FILTER_TILE, Form, Posynomial, QuantityModel, ratio_interval

WIDENING = 2.0
"""How much wider, in logarithms, an interval becomes outside of the box."""


@dataclass(frozen=True, slots=True)
class SquareLayers:
    """Square convolutions to predict, one entry per layer; LEVELS of the models, stride 1 and no padding as measured."""

    side: Floats
    channels: Floats
    kernel: Floats
    filters: Floats

    @property
    def levels(self) -> tuple[Floats, ...]:
        """By LEVELS."""
        return self.side, self.channels, self.kernel, self.filters

    def logs(self, variables: tuple[str, ...]) -> Floats:
        """Natural logarithms of the named variables, one row per layer."""
        return np.log(np.stack([self._variable(v) for v in variables], axis=1))

    def _variable(self, name: str) -> Floats:
        if name == "output_side":
            return np.maximum(self.side - self.kernel + 1, 1.0)
        if name == "filter_tiles":
            return np.ceil(self.filters / FILTER_TILE)
        value: Floats = getattr(self, name)
        return value


@dataclass(frozen=True, slots=True)
class Prediction:
    """Values with their 90 % interval; `inside` is false where the model extrapolates."""

    value: Floats
    low: Floats
    high: Floats
    inside: Flags


def predict(model: QuantityModel, layers: SquareLayers, form: Form = Form.EVALUATION) -> Prediction:
    """The quantity in the model's unit, for every layer."""
    value = posynomial_values(model, layers) if form is Form.POSYNOMIAL else evaluation_values(model, layers)
    inside = inside_box(model, layers)
    low, high = ratio_interval(model.errors[form], value)
    widening = np.where(inside, 1.0, WIDENING)
    return Prediction(value, value * low**widening, value * high**widening, inside)


def physics_values(model: QuantityModel, layers: SquareLayers) -> Floats:
    """The part of a model that may be followed outside of the box."""
    return model.physics.at(layers.logs(BASE_VARIABLES))


def posynomial_values(model: QuantityModel, layers: SquareLayers) -> Floats:
    """The posynomial of the layer's kernel size; of the nearest measured one, scaled by physics, for other sizes."""
    values, nearest = nearest_values(model.posynomials, model.variables, layers)
    other = nearest != layers.kernel
    if other.any():
        # The same output size with the measured kernel: what changes is the work per output value.
        side = layers.side - layers.kernel + nearest
        measured = SquareLayers(side, layers.channels, nearest, layers.filters)
        ratio = physics_values(model, layers) / physics_values(model, measured)
        values = np.where(other, values * ratio, values)
    return values


def nearest_values(kernels: Mapping[int, Posynomial], variables: tuple[str, ...],
                   layers: SquareLayers) -> tuple[Floats, Floats]:
    """Values of the posynomials of the known kernel sizes nearest to the layers' own, and those sizes."""
    known = np.array(sorted(kernels), dtype=np.float64)
    nearest = known[np.abs(np.log(layers.kernel[:, None] / known[None, :])).argmin(axis=1)]
    values, logs = np.empty(len(nearest)), layers.logs(variables)
    for kernel in np.unique(nearest):
        values[nearest == kernel] = kernels[int(kernel)].at(logs[nearest == kernel])
    return values, nearest


def evaluation_values(model: QuantityModel, layers: SquareLayers) -> Floats:
    """Physics times the tabled correction, interpolated between measured levels.

    Outside of the box the correction stays that of the box's nearest point, so that physics alone gives the shape;
    it never exceeds the model's bound.
    """
    located = locate(model.levels, layers.levels)
    correction = np.clip(located.interpolate(model.correction), -model.bound, model.bound)
    return physics_values(model, layers) * np.exp(correction)


@dataclass(frozen=True, slots=True)
class Location:
    """Where points lie among levels: the corners around each (corners x points), and how far between them along each axis.

    Tables are multilinear in logarithms of the levels, constant beyond the first and last. Corners are joined axis by axis, in
    the same order for one point as for thousands, so that the two agree to the last bit.
    """

    corners: Ints
    parts: tuple[Floats, ...]

    def interpolate(self, table: Floats) -> Floats:
        """A table over the levels at every point."""
        corners, count = table.ravel()[self.corners], self.corners.shape[1]
        for part in self.parts:
            low, high = corners.reshape(2, -1, count)
            corners = low + (high - low) * part
        return np.asarray(corners.reshape(count), dtype=np.float64)


def locate(axes: Sequence[Floats], points: Sequence[Floats]) -> Location:
    """Where points given axis by axis lie, for all tables over the same levels; one entry alone holds for all points."""
    count = max(len(p) for p in points)
    base, parts, widths = np.zeros(count, dtype=np.int64), list[Floats](), list[int]()
    for levels, coordinate in zip(axes, points, strict=True):
        value = np.clip(coordinate, levels[0], levels[-1])
        below = np.minimum(np.searchsorted(levels, value, side="right") - 1, max(len(levels) - 2, 0))
        above = np.minimum(below + 1, len(levels) - 1)
        span = np.log(np.where(above > below, levels[above] / levels[below], np.e))
        parts.append(np.log(value / levels[below]) / span)
        base, widths = base * len(levels) + below, [*(w * len(levels) for w in widths), min(1, len(levels) - 1)]
    return Location(base + _corner_offsets(tuple(widths))[:, None], tuple(parts))


@lru_cache(maxsize=64)
def _corner_offsets(widths: tuple[int, ...]) -> NDArray[np.int64]:
    """Steps in a table from the lowest corner of a cell to each of its corners, the first axis slowest."""
    found = np.zeros(1, dtype=np.int64)
    for width in widths:
        found = (found[:, None] + np.array([0, width])).ravel()
    return found


def inside_box(model: QuantityModel, layers: SquareLayers) -> Flags:
    """Whether each layer lies between the smallest and largest measured values."""
    inside = np.ones(len(layers.side), dtype=np.bool_)
    for name, (low, high) in model.box.items():
        value: Floats = getattr(layers, name)
        inside &= (value >= low) & (value <= high)
    return inside


def seen_in_fit(model: QuantityModel, layers: SquareLayers) -> Flags:
    """Whether the model was fitted on a row of exactly this layer."""
    exact, cells = _cells(model, layers)
    return exact & model.seen[cells]


def left_out_values(model: QuantityModel, layers: SquareLayers, form: Form) -> Floats:
    """What is predicted for layers as if the fit had seen none of them: rows of the fit by a fit without their fold."""
    value = posynomial_values(model, layers) if form is Form.POSYNOMIAL else evaluation_values(model, layers)
    exact, cells = _cells(model, layers)
    return np.where(exact & model.seen[cells], value * np.exp(model.left_out[form][cells]), value)


def _cells(model: QuantityModel, layers: SquareLayers) -> tuple[Flags, tuple[Ints, ...]]:
    """Whether layers lie on the model's grid, and on which cells (of the nearest below where they do not)."""
    exact, index = np.ones(len(layers.side), dtype=np.bool_), list[Ints]()
    for value, levels in zip(layers.levels, model.levels, strict=True):
        at = np.clip(np.searchsorted(levels, value), 0, len(levels) - 1)
        exact &= levels[at] == value
        index.append(at)
    return exact, tuple(index)
