"""A second simulator says the same, from unknown and from random states, under stalls, and after a reset amid a frame."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dovetail.errors import MismatchError
from dovetail.fpga.design import Design
from dovetail.fpga.toolchain.icarus import simulate_in_icarus
from dovetail.fpga.toolchain.simulate import Simulation
from dovetail.numerics.reference import run_integer
from tests.fpga.random_bundles import Drawn, draw
from tests.fpga.reusable_blocks import cases
from tests.fpga.test_reusable import check_outputs, run_of

pytestmark = pytest.mark.verilator


def check(network: Drawn, simulation: Simulation) -> None:
    for tensor, values in run_integer(network.graph, network.inputs).items():
        np.testing.assert_array_equal(simulation.outputs[tensor].reshape(values.shape), values, err_msg=network.design.top)


@pytest.mark.parametrize("number", [1, 8, 15, 22, 43, 50, 57])
def test_random_networks_equal_the_reference(number: int) -> None:
    network = draw(number)
    free = simulate_in_icarus(network.design, network.inputs)
    check(network, free)
    assert free.frame_cycles[0] == network.design.latency_cycles
    middle = network.design.latency_cycles // 2 + 1
    check(network, simulate_in_icarus(network.design, network.inputs, stall_seed=number, reset_at=middle, start_seed=number))


@pytest.mark.parametrize("name", ["averaged", "gated", "pooled", "two_masters"])
def test_reusable_engines_equal_the_reference(name: str) -> None:
    run = graph, block, inputs = run_of(name, *cases()[name])
    frames = {block.program.layers.entry: inputs[graph.inputs[0]]}
    check_outputs([run], [simulate_in_icarus(block.design, frames)])
    check_outputs([run], [simulate_in_icarus(block.design, frames, stall_seed=5, reset_at=2_900, start_seed=1)])


def changed(design: Design, old: str, new: str) -> Design:
    """The design with its Verilog changed wherever `old` stands."""
    found = {name: text.replace(old, new) for name, text in design.files.items()}
    assert found != dict(design.files), old
    return replace(design, files=found)


def test_a_register_without_a_reset_is_found_that_random_states_forgive() -> None:
    network = draw(1)
    with pytest.raises(MismatchError, match=r"is unknown|unknown bits"):
        simulate_in_icarus(changed(network.design, "if (rst)", "if (1'b0)"), network.inputs)


def test_an_output_that_says_too_much_or_nothing_is_named() -> None:
    network = draw(1)
    port = network.design.outputs[0]
    longer = replace(network.design, outputs=(replace(port, width=port.width + 1),))
    with pytest.raises(MismatchError, match="deadlock"):
        simulate_in_icarus(longer, network.inputs)
    shorter = replace(network.design, outputs=(replace(port, height=1, width=1),))
    with pytest.raises(MismatchError, match="more beats than its frames hold"):
        simulate_in_icarus(shorter, network.inputs)
