"""Products in logic: equal to products, whatever the ranges."""

from __future__ import annotations

import numpy as np
import pytest

from dovetail.fpga.design import Design, StreamPort
from dovetail.fpga.engines.soft import soft_multiplier, soft_product, soft_stages
from dovetail.fpga.rtl.expressions import Bits, all_of, bit_width
from dovetail.fpga.rtl.modules import Module
from dovetail.fpga.rtl.verilog import print_module
from dovetail.fpga.toolchain.simulate import simulate_many
from dovetail.fpga.toolchain.synthesize import synthesize

RANGES = (((-128, 255), (-128, 127)), ((0, 255), (-128, 127)), ((-8, 7), (-4, 3)), ((0, 15), (0, 7)), ((-128, 127), (-1, 1)),
          ((0, 251), (-127, 127)), ((-100, 90), (-100, 127)))


def design(number: int, x: tuple[int, int], w: tuple[int, int], structure: bool, registered: bool) -> Design:
    """A stream of pairs in, their products out, one after the other; nothing waits."""
    top, made = Module(f"soft_{number}"), soft_multiplier(f"soft_{number}_product", x, w, registered)
    if structure:
        made.behaviour = ()
    widths = bit_width(*x), bit_width(*w)
    valid, data, ready = top.input("in0_valid"), top.input("in0_data", 32), top.input("out0_ready")
    stages = soft_stages(w) if registered else 0
    left = top.wire("left", Bits(*x, data, 0, widths[0]))
    right = top.wire("right", Bits(*w, top.wire("upper", data.bits(16, 16)), 0, widths[1]))
    product = top.wire("both", soft_product(top, made, "multiplier", left, right), (-(1 << 31), (1 << 31) - 1))
    top.output("in0_ready", all_of(ready))
    for stage in range(stages):
        valid = top.register(f"valid_{stage}", valid, reset=0)
    top.output("out0_valid", all_of(valid))
    top.output("out0_data", product.bits(0, 32))
    files = {f"{m.name}.v": print_module(m) for m in (top, made)}
    size = (x[1] - x[0] + 1) * (w[1] - w[0] + 1)
    return Design(top.name, files, (StreamPort("in0", "pairs", 2, 16, True, 1, size),),
                  (StreamPort("out0", "products", 1, 32, True, 1, size),), latency_cycles=size + stages,
                  interval_cycles=size)


@pytest.mark.verilator
@pytest.mark.parametrize("registered", [True, False])
@pytest.mark.parametrize("structure", [True, False])
def test_products_in_logic_and_what_a_simulator_sees_of_them_are_products_for_all_operands(structure: bool,
                                                                                           registered: bool) -> None:
    pairs = [np.stack(np.meshgrid(np.arange(x[0], x[1] + 1), np.arange(w[0], w[1] + 1)), axis=0).reshape(1, 2, 1, -1)
             for x, w in RANGES]
    jobs = [(design(number, *ranges, structure, registered), {"pairs": own})
            for number, (ranges, own) in enumerate(zip(RANGES, pairs, strict=True))]
    for own, result in zip(pairs, simulate_many(jobs), strict=True):
        np.testing.assert_array_equal(result.outputs["products"].reshape(-1), (own[0, 0] * own[0, 1]).reshape(-1))


@pytest.mark.yosys
def test_a_range_that_leaves_codes_unused_takes_no_more_logic() -> None:
    counted = []
    for name, most in (("whole", 255), ("part", 251)):
        made = soft_multiplier(name, (0, most), (-127, 127))
        counted.append(synthesize(Design(name, {f"{name}.v": print_module(made)}, (), ()), "xcup").resources["lut"])
    assert counted[1] <= counted[0] <= 49  # four of them shift registers
