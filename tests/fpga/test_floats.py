"""Single precision in logic: every sum and product has the bits that NumPy's float32 has."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from dovetail.fpga.design import Design, StreamPort
from dovetail.fpga.engines.floats import ADDER_STAGES, MULTIPLIER_STAGES, WORD, float_adder, float_multiplier
from dovetail.fpga.engines.layers import MappedLayer, join_engine
from dovetail.fpga.engines.stream import Format, Pipeline, Staged
from dovetail.fpga.engines.window import Taps
from dovetail.fpga.rtl.expressions import Signal
from dovetail.fpga.rtl.modules import Instance, Module
from dovetail.fpga.rtl.verilog import print_module
from dovetail.fpga.toolchain.simulate import simulate_many

Floats = NDArray[np.float32]
COUNT = 20_000


def design(name: str, made: Module, stages: int) -> Design:
    """A stream of pairs in, one result each out."""
    form = Format(2, 32, False, *WORD, 1, COUNT)
    result = Format(1, 32, False, *WORD, 1, COUNT)

    def compute(pipeline: Pipeline, taps: Taps) -> tuple[list[Staged], int]:
        a, b = (taps[key] for key in sorted(taps))
        assert isinstance(a.value, Signal)
        assert isinstance(b.value, Signal)
        y = pipeline.module.net("result", 32)
        pipeline.module.instances.append(Instance(made.name, "unit", (("a", a.value), ("b", b.value), ("y", y))))
        return [Staged(y, a.stage + stages)], 1

    engine = join_engine(MappedLayer(f"{name}_engine", "unit", (), (form,), result), compute)
    top, inner = Module(name), engine.modules[0]
    pins = []
    for port in (*inner.inputs, *inner.outputs):
        outer = Signal(port.lo, port.hi, port.name.replace("out_", "out0_"))
        (top.inputs if port in inner.inputs else top.outputs).append(outer)
        pins.append((port.name, outer))
    top.instances.append(Instance(inner.name, "inner", tuple(pins)))
    files = {f"{m.name}.v": print_module(m) for m in (top, *engine.modules, made)}
    return Design(name, files, (StreamPort("in0", "pairs", 2, 32, False, 1, COUNT),),
                  (StreamPort("out0", "results", 1, 32, False, 1, COUNT),), latency_cycles=COUNT, interval_cycles=COUNT)


def drawn(seed: int, exponents: int) -> Floats:
    """Pairs of numbers of both signs: mantissas of all lengths, exponents within ± so many, zeros, near and exact opposites."""
    rng = np.random.default_rng(seed)
    fraction = rng.integers(0, 1 << 23, (2, COUNT)) & -(1 << rng.integers(0, 24, (2, COUNT)))
    exponent = rng.integers(127 - exponents, 128 + exponents, (2, COUNT))
    near = rng.random(COUNT) < 0.6
    beside = np.clip(exponent[0] + rng.integers(-30, 31, COUNT), 127 - exponents, 127 + exponents)
    exponent[1] = np.where(near, beside, exponent[1])
    words = (rng.integers(0, 2, (2, COUNT)) << 31 | exponent << 23 | fraction).astype(np.uint32)
    cancels = rng.random(COUNT) < 0.1
    words[1] = np.where(cancels, words[0] ^ (1 << 31) ^ (rng.integers(0, 8, COUNT) * (rng.random(COUNT) < 0.7)), words[1])
    for row in words:
        row[rng.random(COUNT) < 0.03] &= 1 << 31  # zeros of both signs
    return words.view(np.float32)


def ties(pairs: Floats) -> Floats:
    """Pairs whose first hundred sums lie halfway between two numbers."""
    pairs[0, :100] = np.arange(1, 101, dtype=np.float32) + np.float32(1 << 23)
    pairs[1, :100] = np.where(np.arange(100) % 2, np.float32(0.5), np.float32(-0.5))
    return pairs


@pytest.mark.verilator
def test_sums_and_products_have_numpys_bits() -> None:
    kinds: list[tuple[str, Module, int, Floats, Callable[[Floats, Floats], Floats]]] = [
        ("sums", float_adder("sums_unit"), ADDER_STAGES, ties(drawn(1, 75)), np.add),
        ("products", float_multiplier("products_unit"), MULTIPLIER_STAGES, drawn(2, 60), np.multiply)]
    jobs = [(design(name, made, stages), {"pairs": pairs.view(np.uint32).astype(np.int64)[None, :, None]})
            for name, made, stages, pairs, _ in kinds]
    for (name, *_, pairs, right), found in zip(kinds, simulate_many(jobs), strict=True):
        expected = right(pairs[0], pairs[1]).view(np.uint32)
        np.testing.assert_array_equal(found.outputs["results"].reshape(-1), expected.astype(np.int64), err_msg=name)
