"""Cost models as files: fitted posynomials of processors, coefficients of directly mapped hardware.

platform/models/*.toml hold what `python -m dovetail.cost.fitting` found, readable by a person: formula, coefficients,
units, source, rows, cross-validated error and the box they are valid in.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dovetail.platform.calibrated import CALIBRATED, PARAMETERS
from dovetail.platform.schema import Limits, TomlTable, shipped, shipped_names

Floats = NDArray[np.float64]

ROOFLINE = "roofline"
"""The model that needs no file: peak rate, efficiency, bandwidth and launch time are parameters of the device."""

DHM = "dhm"
"""The formula of models of directly mapped hardware."""

MODEL_PARAMETERS: Mapping[str, tuple[str, ...]] = {
    ROOFLINE: ("peak_flop_per_s", "efficiency", "bandwidth_bytes_per_s", "launch_s", "interval_fraction"),
    CALIBRATED: tuple(PARAMETERS),
    "tx2-cpu": ("bandwidth_bytes_per_s", "launch_s"),
    "tx2-gpu": ("bandwidth_bytes_per_s", "launch_s"),
}
"""Parameters a device must state for its model; models not named need none."""

VARIABLES = ("input_side", "output_side", "channels", "kernel", "filters")
"""What a posynomial of a square convolution may depend on."""

_ANY = Limits(-1e6, 1e6, "")
_POSITIVE = Limits(0.0, 1e9, "")


@dataclass(frozen=True, slots=True)
class Term:
    """A monomial with its time. `part` is `layer`, or `loop` for what the measuring loop itself spent."""

    name: str
    part: str
    exponents: tuple[float, ...]
    """One per entry of VARIABLES."""
    latency_s: float


TABLE_LEVELS = ("input_side", "channels", "kernel", "filters")
"""Axes of a layer table; convolutions of stride 1 without padding."""


@dataclass(frozen=True, slots=True)
class LayerTable:
    """Natural logarithms of a layer's seconds and joules at the measured levels, both rising along every axis.

    The joules are those of the whole rail, idle included, while the layer runs.
    """

    levels: tuple[Floats, ...]
    log_seconds: Floats = field(repr=False)
    log_joules: Floats = field(repr=False)


@dataclass(frozen=True, slots=True)
class PosynomialModel:
    """Time of one convolution as a sum of monomials, time and energy as tables, with the errors of 5-fold cross-validation.

    Errors are |predicted - measured| / measured over the whole measured loop, mean and 90th percentile; those of
    energy are the errors of predicted time x predicted power.
    `box` bounds each variable in the rows; outside it predictions are extrapolated.
    """

    name: str
    description: str
    source: str
    rows: int
    latency_error: tuple[float, float]
    energy_error: tuple[float, float]
    box: Mapping[str, tuple[float, float]]
    terms: tuple[Term, ...]
    table: LayerTable

    def term(self, name: str) -> Term:
        """The term of that name."""
        return next(t for t in self.terms if t.name == name)


@dataclass(frozen=True, slots=True)
class DhmModel:
    """Area and power of directly mapped hardware in one FPGA family.

    `logic`, `block` name the resources that adders and line buffers consume; `shapes` are the (depth, width)
    configurations of one of the `parts` of a RAM block that can be used alone, `distributed`
    those of a memory in look-up tables. `error` and `clock_error` are relative half-widths of area and clock;
    `accelerator_error` is that of the area of whole accelerators, in which errors of engines partly average out.
    """

    name: str
    description: str
    source: str
    logic: str
    block: str
    shapes: tuple[tuple[int, int], ...]
    parts: int
    distributed: tuple[tuple[int, int], ...]
    error: float
    accelerator_error: float
    clock_error: float
    coefficients: Mapping[str, float]
    sources: Mapping[str, str]


DHM_COEFFICIENTS: Mapping[str, Limits] = {
    "logic_per_adder_bit": Limits(0.01, 10.0, "logic cells per bit of a carry chain"),
    "logic_per_counted_bit": Limits(0.0, 10.0, "logic cells per bit that a counter of ones removes"),
    "logic_per_bias_bit": Limits(0.0, 10.0, "logic cells per bit of adding a constant"),
    "logic_per_rounded_bit": Limits(0.0, 10.0, "logic cells per bit of adding one bit"),
    "logic_per_output_bit": Limits(0.0, 100.0, "logic cells per bit of a clamped output"),
    "logic_per_control_bit": Limits(0.0, 100.0, "logic cells per bit of a counter"),
    "logic_per_adder": Limits(0.0, 10.0, "logic cells per adder, beside its carry chain"),
    "logic_per_loop_bit": Limits(0.0, 10.0, "logic cells per bit of a sum over a frame"),
    "logic_per_division_bit": Limits(0.0, 10.0, "logic cells per bit of a carry chain that multiplies by a reciprocal"),
    "logic_per_comparison_bit": Limits(0.0, 10.0, "logic cells per bit of a maximum"),
    "logic_per_mask_bit": Limits(0.0, 10.0, "logic cells per tap bit that padding blanks"),
    "logic_per_buffer_bit": Limits(0.0, 1.0, "logic cells per bit of a buffer in distributed memory"),
    "logic_per_table_bit": Limits(0.0, 1.0, "logic cells per bit of a table of constants"),
    "logic_per_chain_bit": Limits(0.0, 2.0, "logic cells per bit of a chain of registers"),
    "register_per_chain_bit": Limits(0.0, 1.0, "registers per register of a chain"),
    "logic_per_choice_bit": Limits(0.0, 10.0, "logic cells per bit of a choice between two"),
    "logic_per_rom_bit": Limits(0.0, 1.0, "logic cells per bit of a small memory of constants"),
    "dsp_per_product": Limits(0.0, 8.0, "multiplier blocks per product of two activations"),
    "logic_per_engine": Limits(0.0, 1e5, "logic cells"),
    "register_per_sum_bit": Limits(0.0, 10.0, "registers per bit of a sum or of an operand that waits"),
    "register_per_counted_bit": Limits(0.0, 10.0, "registers per bit that a counter of ones removes"),
    "register_per_lag_bit": Limits(0.0, 10.0, "registers per bit and clock of an output that waits for deeper ones"),
    "register_per_output_bit": Limits(0.0, 100.0, "registers per bit of a sum with its bias, rounded, or clamped"),
    "register_per_control_bit": Limits(0.0, 100.0, "registers per bit of a counter"),
    "register_per_engine": Limits(0.0, 1e5, "registers"),
    "power_w_per_logic": Limits(0.0, 1.0, "W per logic cell at the power clock"),
    "power_w_per_block": Limits(0.0, 1.0, "W per RAM block at the power clock"),
    "power_clock_hz": Limits(1e6, 1e9, "Hz"),
    "power_activity": Limits(1e-3, 2.0, "toggles per clock and signal that the power holds at"),
}

MASTERS, MASTER_BYTES = (1, 2, 4), (4, 8, 16, 32, 64, 128)
"""Numbers and widths of masters to memory that a board may state."""

DHM_PARAMETERS: Mapping[str, Limits] = {
    "activity": Limits(1e-3, 2.0, "toggles per clock and signal"),
    "pace_clocks": Limits(1, 1e12, "clocks per frame that a layer with shared multipliers may take"),
    "products_per_dsp": Limits(1, 2, "products of 8-bit numbers that one multiplier block can make at once"),
    "memory_bytes_per_s": Limits(1e6, 1e13, "B/s that the fabric reads of external memory, all masters together"),
    "memory_masters": Limits(1, 4, "masters of the fabric's bus to that memory that a design may use: 1, 2 or 4"),
    "memory_master_bytes": Limits(4, 128, "bytes wide that each of them is: 4, 8, ... 128"),
    "memory_latency_s": Limits(0.0, 1e-3, "s from a request of the fabric to its first beat"),
    "fill": Limits(0.01, 1.0, "of every resource that plans may take by the area model"),
}
"""What a board may state for its FPGA besides."""


def model_names() -> tuple[str, ...]:
    """Names of the shipped model files."""
    return shipped_names("models")


@lru_cache(maxsize=32)
def formula_of(name: str) -> str:
    """What kind of model a name stands for: `roofline`, `calibrated`, `posynomial` (processors) or `dhm` (FPGAs)."""
    return name if name in (ROOFLINE, CALIBRATED) else shipped("models", name).choice("formula", ("posynomial", DHM))


@lru_cache(maxsize=16)
def posynomial_model(name: str) -> PosynomialModel:
    """The fitted model of a processor by name."""
    return parse_posynomial(shipped("models", name))


def parse_posynomial(table: TomlTable) -> PosynomialModel:
    """A checked posynomial model from the entries of its file."""
    table.check_keys(("name", "formula", "description", "source", "rows", "error", "box", "term", "layer_table"),
                     ("floor", "assumption"))
    table.choice("formula", ["posynomial"])
    error, box = table.table("error"), table.table("box")
    error.check_keys(("latency_mean", "latency_p90", "energy_mean", "energy_p90"))
    box.check_keys(VARIABLES)
    bounds: dict[str, tuple[float, float]] = {}
    for key, value in box.values.items():
        if not isinstance(value, list) or len(value) != 2:
            box.fail(f"key {key} is {value!r}; a pair [smallest, largest] is needed")
        bounds[key] = (float(value[0]), float(value[1]))
    fraction = Limits(0.0, 100.0, "(fraction)")
    return PosynomialModel(
        table.text("name"), table.text("description"), table.text("source"),
        int(table.plain_number("rows", Limits(1, 1e9, "rows"))),
        (error.plain_number("latency_mean", fraction), error.plain_number("latency_p90", fraction)),
        (error.plain_number("energy_mean", fraction), error.plain_number("energy_p90", fraction)),
        bounds, tuple(_term(t) for t in table.tables("term")), _layer_table(table))


def _layer_table(table: TomlTable) -> LayerTable:
    entry = table.table("layer_table")
    entry.check_keys((*TABLE_LEVELS, "log_seconds", "log_joules"))
    levels = tuple(np.array(entry.values[name], dtype=np.float64) for name in TABLE_LEVELS)
    shape = tuple(len(v) for v in levels)
    found = {key: np.array(entry.values[key], dtype=np.float64) for key in ("log_seconds", "log_joules")}
    for key, values in found.items():
        if values.shape != shape:
            entry.fail(f"key {key} has shape {values.shape}; levels ask for {shape}")
    return LayerTable(levels, found["log_seconds"], found["log_joules"])


def _term(table: TomlTable) -> Term:
    table.check_keys(("name", "part", "exponents", "latency_s"))
    exponents = table.table("exponents")
    exponents.check_keys((), VARIABLES)
    return Term(table.text("name"), table.choice("part", ["loop", "layer"]),
                tuple(exponents.plain_number(v, _ANY) if v in exponents.values else 0.0 for v in VARIABLES),
                table.plain_number("latency_s", _POSITIVE))


@lru_cache(maxsize=16)
def dhm_model(name: str) -> DhmModel:
    """The hardware coefficients of an FPGA family by model name, checked."""
    table = shipped("models", name)
    table.check_keys(("name", "formula", "description", "source", "logic", "block", "shapes", "parts", "distributed", "error",
                      "clock_error", "coefficients"), ("accelerator_error",))
    table.choice("formula", [DHM])
    entries = table.table("coefficients")
    entries.check_keys(tuple(DHM_COEFFICIENTS))
    found = {key: entries.number(key, limits) for key, limits in DHM_COEFFICIENTS.items()}
    fraction = Limits(0.0, 10.0, "(fraction)")
    shapes, distributed = (tuple((int(depth), int(width)) for depth, width in table.values[key])
                           for key in ("shapes", "distributed"))
    return DhmModel(
        table.text("name"), table.text("description"), table.text("source"), table.text("logic"), table.text("block"), shapes,
        int(table.plain_number("parts", Limits(1, 8, "parts of a RAM block"))), distributed,
        table.plain_number("error", fraction),
        table.plain_number("accelerator_error" if "accelerator_error" in table.values else "error", fraction),
        table.plain_number("clock_error", fraction),
        {k: v for k, (v, _) in found.items()}, {k: s for k, (_, s) in found.items()})
