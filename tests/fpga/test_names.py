"""Whatever a network calls its nodes and tensors, its hardware has distinct, legal names and says what it was made from."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from dovetail.errors import UsageError
from dovetail.fpga.assemble import build_design
from dovetail.fpga.locate import wrong_engine
from dovetail.fpga.mapping import identifiers
from dovetail.fpga.toolchain.simulate import simulate
from dovetail.ir import RELU, Add, Clip, Conv, Gemm, Graph, Reshape, Window
from dovetail.numerics.reference import run_integer
from dovetail.runtime.build import synthetic_integers
from tests.strategies import Net, quantized

PADDED = Window((3, 3), pads=(1, 1, 1, 1))
AWKWARD = ("a/b", "a_b", "A_b", "always", "1", "", "日本", "two\nmodule lines", "slash\\", "verilator lint_off NOSUCH",
           "synopsys translate_off", "x" * 300, "x" * 301, "fork_a", "a_b_pad")


def test_identifiers_are_legal_short_and_differ_by_more_than_case() -> None:
    found = identifiers(AWKWARD)
    assert len({name.lower() for name in found.values()}) == len(AWKWARD)
    assert all(name.isascii() and name.isidentifier() and len(name) < 60 for name in found.values())


def awkward_network() -> Graph:
    net = Net(5)
    first = x = net.input((1, 2, 4, 4), "in put")
    for name in AWKWARD:
        x = net.add(Conv(2, Window((1, 1)), 2), x, name=name)
    return quantized(net.graph(net.add(Add(RELU), x, first, name="join")))


@pytest.mark.verilator
def test_awkward_names_reach_neither_the_simulator_nor_the_file_system() -> None:
    graph = awkward_network()
    design = build_design(graph, "awkward")
    assert all(len(name) < 200 and name.isascii() for name in design.files)
    inputs = synthetic_integers(graph, 2, 0)
    (tensor,) = graph.outputs
    np.testing.assert_array_equal(simulate(design, inputs).outputs[tensor], run_integer(graph, inputs)[tensor])


def test_links_whose_names_would_run_together_stay_apart() -> None:
    net = Net(1)
    x = net.input((1, 2, 4, 4), "a")
    y = net.input((1, 2, 4, 4), "a_to_b")
    design = build_design(quantized(net.graph(net.add(Clip(RELU), x, name="b_to_c"), net.add(Clip(RELU), y, name="c"))), "apart")
    wires = Counter(line for line in design.files["apart.v"].splitlines() if line.startswith("wire"))
    assert max(wires.values()) == 1


@pytest.mark.verilator
def test_the_wrong_engine_is_named_although_another_has_the_same_identifier() -> None:
    net = Net(3)
    x = net.add(Conv(2, PADDED, 1, RELU), net.input((1, 2, 5, 5)), name="a/b")
    graph = quantized(net.graph(net.add(Conv(2, PADDED), x, name="a_b")))
    design = build_design(graph, "clash")
    name = "clash_a_b_2.v"
    wrong = replace(design, files={**design.files, name: design.files[name].replace("pixel <= in0_data;", "pixel <= ~in0_data;")})
    inputs = synthetic_integers(graph, 2, 0)
    assert wrong_engine(graph, design, inputs) is None
    assert wrong_engine(graph, wrong, inputs) == "a_b"


@pytest.mark.verilator
def test_a_flat_input_joined_with_a_flattened_map_streams_like_the_map() -> None:
    """Another device flattened it: the part sees features where its neighbour sends pixels."""
    net = Net(2)
    flat = net.input((1, 18), "flat")
    here = net.add(Reshape((1, 18)), net.add(Conv(2, PADDED), net.input((1, 2, 3, 3), "map")))
    again = net.add(Reshape((1, 2, 3, 3)), net.add(Add(), flat, here))
    graph = quantized(net.graph(net.add(Gemm(3), net.add(Reshape((1, 18)), net.add(Conv(2, PADDED), again)))))
    design = build_design(graph, "flat")
    assert [(p.channels, p.height, p.width) for p in design.inputs] == [(2, 3, 3), (2, 3, 3)]
    inputs = synthetic_integers(graph, 2, 0)
    (tensor,) = graph.outputs
    found = simulate(design, {name: x.reshape(2, 2, 3, 3) for name, x in inputs.items()}).outputs[tensor]
    np.testing.assert_array_equal(found.reshape(2, 3), run_integer(graph, inputs)[tensor])


@pytest.mark.parametrize("name", ["module", "endmodule", "logic", "a-b", "1a", ""])
def test_designs_are_not_named_by_words_of_the_language(name: str) -> None:
    with pytest.raises(UsageError, match="not a Verilog module name"):
        build_design(awkward_network(), name)
