"""Which quantity is fitted from which column of which file, with which terms and how much smoothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from dovetail.cost.fitting.kriging import Smoothing
from dovetail.cost.fitting.rows import Columns
from dovetail.hardware.shares import Flags, Floats
from dovetail.platform.quantity import Form

Term = Mapping[str, float]

M20K_LIMIT = 587.0
"""RAM blocks of the 10CX220: rows at the limit say only that at least so many were wanted."""

LAYER_TERMS: tuple[Term, ...] = (
    {},
    {"side": 2, "channels": 1},
    {"side": 1, "channels": 0.5},
    {"kernel": 2, "channels": 1, "filters": 1},
    {"output_side": 2, "kernel": 2, "channels": 1, "filters": 1},
    {"output_side": 2, "filters": 1},
    {"output_side": 2, "kernel": 2, "channels": 1},
)
"""Of a measured loop: itself, new input (twice, in its size and its root), new weights; of the layer: multiply-adds,
results written, window values gathered."""
AREA_TERMS: tuple[Term, ...] = (
    {}, {"filters": 1}, {"channels": 1, "kernel": 2}, {"channels": 1, "kernel": 2, "filters": 1})
"""Of directly mapped hardware: what every engine has, roundings, window registers, multipliers."""


@dataclass(frozen=True, slots=True)
class FitRecipe:
    """One quantity of one device. `value` computes it from the columns, in `unit`; `usable` marks rows that tell it."""

    device: str
    quantity: str
    unit: str
    description: str
    columns: tuple[str, ...]
    value: Callable[[Columns], Floats]
    physics: tuple[Term, ...]
    variables: tuple[str, ...]
    terms: tuple[int, ...]
    smoothing: Smoothing
    bound: float = float(np.log(4.0))
    usable: Callable[[Floats], Flags] = lambda value: value > 0
    treatment: str = "all rows; rows far off their neighbours count less"
    table_over: Form = Form.POSYNOMIAL
    """What the table corrects: the posynomials, or, as `evaluation`, physics, where no posynomial comes near."""

    @property
    def name(self) -> str:
        return f"{self.device}-{self.quantity}"


def _column(name: str, factor: float = 1.0) -> Callable[[Columns], Floats]:
    return lambda columns: columns[name] * factor


def fmax_hz(columns: Columns) -> Floats:
    """The clock behind the published FPGA latency, which is hw^2 c n / fmax: fully serial over channels."""
    serial_s = columns["latency_ms"] * 1e-3
    return np.divide(columns["hw"] ** 2 * columns["c"] * columns["n"], serial_s, out=np.zeros_like(serial_s), where=serial_s > 0)


def _uncensored(value: Floats) -> Flags:
    return (value > 0) & (value < M20K_LIMIT)


POWER_BOUND = 3.5
"""A rail's power has no formula but its middle; the idle rail lies a factor of 26 below it."""
M20K_BOUND = 4.2
"""Layers of one channel and a 2x2 kernel need one block where larger ones need one per weight."""
PROCESSOR = ("side", "channels", "filters", "filter_tiles")
HARDWARE = ("side", "channels", "filters")
_GPU, _CPU = "Jetson TX2 GPU, PyTorch convolution in float32, batch 1", "Jetson TX2 CPU, PyTorch convolution in float32, batch 1"
_DHM = "8-bit direct hardware mapping on a Cyclone 10 GX 10CX220 after a Quartus 17.1 fit"

RECIPES: tuple[FitRecipe, ...] = (
    FitRecipe("tx2-gpu", "latency", "s", f"{_GPU}: one turn of the measuring loop", ("latency_ms",), _column("latency_ms", 1e-3),
              LAYER_TERMS, PROCESSOR, (4, 6), Smoothing((1.0, 1.0, 1.0, 1.0), 30.0, 0.1, 0.003)),
    FitRecipe("tx2-gpu", "power", "W", f"{_GPU}: GPU rail, idle included", ("power_w",), _column("power_w"),
              ({},), PROCESSOR, (1, 2), Smoothing((2.0, 2.0, 2.0, 1.0), 3.0, 0.3, 0.0003), POWER_BOUND,
              table_over=Form.EVALUATION),
    FitRecipe("tx2-cpu", "latency", "s", f"{_CPU}: one turn of the measuring loop", ("latency_ms",), _column("latency_ms", 1e-3),
              LAYER_TERMS, PROCESSOR, (3, 4), Smoothing((1.0, 2.0, 0.5, 1.0), 5.0, 0.1, 0.006)),
    FitRecipe("tx2-cpu", "power", "W", f"{_CPU}: CPU rail, idle included", ("power_w",), _column("power_w"),
              ({},), PROCESSOR, (1, 2), Smoothing((2.0, 2.0, 2.0, 1.0), 30.0, 0.3, 0.0003), POWER_BOUND,
              table_over=Form.EVALUATION),
    FitRecipe("c10gx", "alm", "ALM", _DHM, ("alm",), _column("alm"), AREA_TERMS, HARDWARE, (2, 3, 4),
              Smoothing((60.0, 1.0, 1.0, 1.0), 30.0, 0.01, 0.0003, 0.05)),
    FitRecipe("c10gx", "alut", "ALUT", _DHM, ("alut",), _column("alut"), AREA_TERMS, HARDWARE, (2, 3, 4),
              Smoothing((60.0, 1.0, 1.0, 1.0), 30.0, 0.01, 0.0003, 0.05)),
    FitRecipe("c10gx", "lab", "LAB", _DHM, ("lab",), _column("lab"), AREA_TERMS, HARDWARE, (2, 3, 4),
              Smoothing((60.0, 0.7, 0.7, 0.7), 10.0, 0.01, 0.0004, 0.05)),
    FitRecipe("c10gx", "m20k", "M20K", _DHM, ("m20k",), _column("m20k"), AREA_TERMS, HARDWARE, (1, 2),
              Smoothing((60.0, 1.0, 1.0, 1.0), 30.0, 0.3, 0.0003, 0.05), M20K_BOUND, usable=_uncensored,
              table_over=Form.EVALUATION,
              treatment="rows at the device limit of 587 are censored and left out, rows without any block too"),
    FitRecipe("c10gx", "power", "W", f"{_DHM}: static and dynamic, a model of Quartus, not a measurement", ("power_w",),
              _column("power_w"), AREA_TERMS, HARDWARE, (2, 3, 4), Smoothing((3.0, 3.0, 3.0, 3.0), 3.0, 0.01, 0.00001)),
    FitRecipe("c10gx", "fmax", "Hz", f"{_DHM}: clock recovered from the published latency hw^2 c n / fmax", ("latency_ms",),
              fmax_hz, ({},), HARDWARE, (2, 3), Smoothing((60.0, 1.0, 1.0, 1.0), 30.0, 0.01, 0.0015),
              treatment="all rows; about one in ten lies a quarter below its neighbours, which counts as noise"),
)
"""Smoothing and candidate numbers of terms were chosen by 5-fold cross-validation."""

CONCAVE = ("tx2-gpu-power", "tx2-cpu-power", "c10gx-lab", "c10gx-m20k")
"""Quantities that level off as layers grow: rails at what the processor draws at most, logic as the part fills up, blocks
as soon as a layer has a line to keep. The logarithm of a posynomial is convex, so that theirs are coarse: for optimisers
that need the form, not to judge by."""
