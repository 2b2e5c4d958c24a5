"""AlexNet's conv1 and conv2 in single precision, folded: the baselines of *LQ multi-FPGA 2020*, tables 5.1 and 5.2.

`python bench/lq.py --part floats --json FILE --resume`. Four layers, as the paper names them: `trad_1` and `trad_2` multiply and
add FP32 and end in bias and rectifier; `pps_1` multiplies FP32 and ends in two-bit codes; `pps_2` looks products of two-bit codes
up in tables of floats. Every one exists at two folds: one product a clock, which is nearest to the paper's loops, and 96.

Each is synthesized, and a frame is simulated and held against `numerics.floats` in every bit. `--filters N` simulates the first N
filters of a layer alone; what FILE holds of as many is not made again. Weights are synthesized as a written memory of the same
words and width, since 20 Mbit of contents take Yosys hours: a ROM takes the same blocks (`memories`, `rom_equal`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import date
from math import prod
from typing import Any

import numpy as np

from dovetail.fpga.design import Design
from dovetail.fpga.engines.float_lane import weight_store
from dovetail.fpga.float_layer import INPUT, OUTPUT, float_design
from dovetail.fpga.rtl.expressions import pack, signal
from dovetail.fpga.rtl.modules import Memory, Module
from dovetail.fpga.rtl.verilog import print_module
from dovetail.fpga.toolchain.simulate import simulate
from dovetail.fpga.toolchain.synthesize import synthesize
from dovetail.hardware.folds import Channels, Fold, Loops
from dovetail.ir import Array, Window
from dovetail.numerics.floats import FloatFilters, convolve, words_of
from dovetail.numerics.lq import boundaries_of, fit_weights, levels_of, ranked, weight_values

FAMILY = "xcup"
COMMAND = "python bench/lq.py --part floats --json FILE --resume"
UNIT_BYTES = 1_400
"""Text from which a module is synthesized apart: adders and multipliers are."""
RESOURCES = {"lut": "lut", "ff": "register", "bram": "bram36", "dsp": "dsp"}
BITS = 2
ACTIVATIONS = np.asarray([0.52, 1.05])
"""The basis of the codes, as in bench/lq.py."""
SHAPES = {"1": ((3, 227, 227), 96, Window((11, 11), (4, 4))), "2": ((96, 27, 27), 256, Window((5, 5), pads=(2, 2, 2, 2)))}
"""Inputs, filters and windows of both layers."""
ROWS = ("pps_1", "trad_1", "pps_2", "trad_2")
FOLDS = (Fold(1, 3, 32), Fold(1, 1, 1))


def drawn(row: str) -> tuple[FloatFilters, Array]:
    """The layer's filters (Gaussian, seed 0) and a frame: of bytes as an image has them, of rectified numbers, or of codes."""
    shape, count, window = SHAPES[row[-1]]
    rng = np.random.default_rng(0)
    taps = shape[0] * prod(window.kernel)
    weights = (rng.normal(size=(count, shape[0], *window.kernel)) / np.sqrt(taps)).astype(np.float32)
    gain, offset = np.abs(rng.normal(1.0, 0.2, count)), rng.normal(0.0, 0.3, count)
    levels, _ = ranked(ACTIVATIONS)
    steps = ((boundaries_of(levels)[None, :] - offset[:, None]) / gain[:, None]).astype(np.float32)
    frame = rng.integers(0, 256, (1, *shape)) / 256 if row[-1] == "1" else np.maximum(rng.normal(size=(1, *shape)), 0.0)
    if row.startswith("trad"):
        return FloatFilters(window, weights, bias=offset.astype(np.float32)), frame.astype(np.float32)
    if row[-1] == "1":
        return FloatFilters(window, weights, steps=steps), frame.astype(np.float32)
    codes, basis = fit_weights(weights, BITS)
    values = weight_values(np.broadcast_to(np.arange(1 << BITS), (count, 1 << BITS)), basis).astype(np.float32)
    tables = values[:, :, None] * levels_of(ACTIVATIONS).astype(np.float32)
    return FloatFilters(window, codes, tables, steps), rng.integers(0, 1 << BITS, (1, *shape)).astype(np.uint8)


def first_filters(filters: FloatFilters, count: int) -> FloatFilters:
    """The first so many of a layer's filters."""
    kept = {name: None if value is None else value[:count] for name, value in (
        ("weights", filters.weights), ("tables", filters.tables), ("steps", filters.steps), ("bias", filters.bias))}
    return replace(filters, **kept)


def with_written_weights(design: Design, words: int, width: int) -> Design:
    """The design with a memory in the place of its ROM of weights, of the same geometry, that is written under reset."""
    m = Module(weight_store(f"{design.top}_lanes"))
    address, read = m.input("address", (words - 1).bit_length()), signal("word_read", 0, (1 << width) - 1)
    bits = [(address.bit(i % address.width), 1) for i in range(width)]
    m.memories.append(Memory("store", width, words, signal("rst"), address, pack(bits), address, read, True))
    m.output("y", m.register("word", read))
    return replace(design, files={**design.files, f"{m.name}.v": print_module(m)})


def area(filters: FloatFilters, size: tuple[int, int], fold: Fold, name: str) -> dict[str, float]:
    """What Yosys counts of a layer's design."""
    loops = Loops(Channels(1, filters.weights[0].size, filters.count), fold)
    design = with_written_weights(float_design(name, filters, size, fold), loops.clocks,
                                  filters.weight_bits * fold.inputs * loops.lanes)
    found = synthesize(design, FAMILY, unit_bytes=UNIT_BYTES).resources
    return {key: float(found.get(name, 0.0)) for key, name in RESOURCES.items()}


def simulated(filters: FloatFilters, x: Array, fold: Fold, name: str) -> dict[str, Any]:
    """A frame through the design, beside the reference."""
    design, right = float_design(name, filters, x.shape[2:], fold), convolve(filters, x, fold.inputs)
    given, wanted = (words_of(v) if v.dtype == np.float32 else v.astype(np.int64) for v in (x, right))
    found = simulate(design, {INPUT: given})
    return {"latency_cycles": found.frame_cycles[0], "closed_form_cycles": design.latency_cycles, "filters": filters.count,
            "values": right.size, "bit_exact": bool((found.outputs[OUTPUT].reshape(wanted.shape) == wanted).all()),
            "distinct_outputs": len(np.unique(right)), "simulated_cycles_per_s": round(found.cycles / found.run_s)}


def float_layers(known: Mapping[str, Any], keep: Callable[[dict[str, Any]], None], count: int | None) -> dict[str, Any]:
    """All rows, of which the first `count` filters are simulated; `keep` hears of every figure."""
    rows = {name: dict(row) for name, row in known.get("float_layers", {}).items()}
    for name, fold, (filters, x) in _asked():
        own = rows.setdefault(name, {})
        own |= {"fold": str(fold), "products_at_once": fold.inputs * fold.outputs, "filters": filters.count}
        label = name.replace(" ", "_")
        many = min(count or filters.count, filters.count)
        wanted = {"simulated": own.get("simulated", {}).get("filters", 0) < many, "area": "area" not in own}
        for key in (key for key, asked in wanted.items() if asked):
            began = time.monotonic()
            own[key] = (simulated(first_filters(filters, many), x, fold, label) if key == "simulated" else
                        area(filters, x.shape[2:], fold, label))
            own |= {"closed_form_cycles": float_design(label, filters, x.shape[2:], fold).latency_cycles,
                    "date": date.today().isoformat(), "command": COMMAND, f"{key}_s": round(time.monotonic() - began, 1)}
            print(f"{name}, {key}: {own[key]}, {own[f'{key}_s']} s", flush=True)
            keep({"float_layers": rows})
    return {"float_layers": rows}


def _asked() -> Iterator[tuple[str, Fold, tuple[FloatFilters, Array]]]:
    for fold in FOLDS:
        for row in ROWS:
            yield f"{row} {fold}", fold, drawn(row)
