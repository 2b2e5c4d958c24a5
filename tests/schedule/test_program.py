"""Lowering a plan: whatever the splits, the segments together compute the reference's integers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.ir import Axis, Conv, Graph, Reduce, Window, slices
from dovetail.numerics.reference import run_integer
from dovetail.partition.plan import Piece, Split, whole_on
from dovetail.schedule.program import Program, lower
from tests.strategies import Net, networks, quantized


def run_program(program: Program, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    memory = dict(inputs)
    for segment in program.segments:
        reads = {b.name: memory[b.tensor][(slice(None), *slices(b.region)[1:])] for b in segment.reads}
        results = run_integer(segment.graph, reads)
        for binding in segment.writes:
            tensor = program.tensors[binding.tensor]
            frames = len(next(iter(inputs.values())))
            home = memory.setdefault(binding.tensor, np.zeros((frames, *tensor.shape[1:]), tensor.dtype))
            home[(slice(None), *slices(binding.region)[1:])] = results[binding.name]
    return {name: memory[name] for name in program.graph.outputs}


def draw_split(data: st.DataObject, graph: Graph, name: str, devices: list[str]) -> Split:
    node = graph.node(name)
    shapes = graph.input_shapes(node)
    axis = data.draw(st.sampled_from([None, *node.op.axes(shapes)]))
    if axis is None:
        return whole_on(data.draw(st.sampled_from(devices)))
    extent = node.op.extent(axis, shapes)
    edges = sorted({0, extent, *data.draw(st.lists(st.integers(0, extent), max_size=2))})
    chosen = data.draw(st.permutations(devices))
    pieces = tuple(Piece(d, a, b) for d, a, b in zip(chosen, edges, edges[1:], strict=False))
    return Split(axis, pieces, chosen[0] if axis is Axis.INPUT_CHANNELS else None)


@pytest.mark.slow("lowers and computes many random assignments")
@settings(max_examples=120, deadline=None)
@given(st.data(), networks())
def test_any_assignment_computes_the_reference(data: st.DataObject, network: Graph) -> None:
    graph = quantized(network)
    devices = ["cpu", "gpu", "fpga"]
    assignment = {n.name: draw_split(data, graph, n.name, devices) for n in graph.nodes}
    scheme = graph.tensors["x"].scheme
    rng = np.random.default_rng(3)
    x = rng.integers(scheme.lo, scheme.hi + 1, (2, *graph.shape("x")[1:]))
    expected = run_integer(graph, {"x": x})
    found = run_program(lower(graph, assignment), {"x": x.astype(scheme.dtype)})
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values)


def chain() -> Graph:
    net = Net(1)
    x = net.input((1, 4, 6, 6))
    x = net.add(Conv(4, Window((3, 3), pads=(1, 1, 1, 1))), x, name="a")
    x = net.add(Conv(4, Window((1, 1))), x, name="b")
    x = net.add(Conv(4, Window((1, 1))), x, name="c")
    return quantized(net.graph(x))


def test_neighbours_on_one_device_become_one_segment() -> None:
    program = lower(chain(), {"a": whole_on("fpga"), "b": whole_on("fpga"), "c": whole_on("cpu")})
    assert [(s.device, s.nodes) for s in program.segments] == [("fpga", ("a", "b")), ("cpu", ("c",))]


def test_a_detour_over_another_device_opens_a_new_segment() -> None:
    program = lower(chain(), {"a": whole_on("fpga"), "b": whole_on("cpu"), "c": whole_on("fpga")})
    assert [s.name for s in program.segments] == ["fpga0", "cpu0", "fpga1"]


def test_an_input_channel_split_ends_in_one_reduction() -> None:
    split = Split(Axis.INPUT_CHANNELS, (Piece("cpu", 0, 1), Piece("gpu", 1, 4)), "cpu")
    program = lower(chain(), {"a": whole_on("cpu"), "b": split, "c": whole_on("cpu")})
    reducing = [n for s in program.segments for n in s.graph.nodes if isinstance(n.op, Reduce)]
    assert [n.name for n in reducing] == ["b_reduce"]
    assert program.tensors["b_out_partial_0_1"].scheme.bits == 32


def test_a_name_the_network_uses_already_is_not_given_again() -> None:
    """`c` cut in two makes `c_0_2`, `c_out_d1_0_2` and `c_weight_d0_0_2`, which are there already."""
    net = Net(1)
    x = net.input((1, 4, 5, 5))
    padded = Window((3, 3), pads=(1, 1, 1, 1))
    outputs = [net.add(Conv(4, padded), x, name="c")]
    outputs += [net.add(Conv(2, padded), x, name=name) for name in ("c_0_2", "c_reduce", "c_out_partial_0_2")]
    graph = quantized(net.graph(*outputs))
    taken = {"c_0_2_weight": "c_weight_d0_0_2", "c_0_2_bias": "c_bias_d0_0_2", "c_0_2_out": "c_out_d1_0_2",
             "c_out_partial_0_2_out": "c_out_partial_0_2"}
    nodes = tuple(replace(n, params=tuple(taken.get(p, p) for p in n.params), output=taken.get(n.output, n.output))
                  for n in graph.nodes)
    graph = replace(graph, nodes=nodes, outputs=tuple(n.output for n in nodes),
                    tensors={taken.get(k, k): replace(t, name=taken.get(k, k)) for k, t in graph.tensors.items()},
                    constants={taken.get(k, k): replace(c, name=taken.get(k, k)) for k, c in graph.constants.items()})
    pieces = (Piece("a", 0, 2), Piece("b", 2, 4))
    for split in (Split(Axis.OUTPUT_CHANNELS, pieces), Split(Axis.INPUT_CHANNELS, pieces, "a")):
        program = lower(graph, {n.name: whole_on("a") if n.name != "c" else split for n in graph.nodes})
        frames = np.random.default_rng(0).integers(0, 100, (2, 4, 5, 5)).astype(graph.tensors[x].dtype)
        found, expected = run_program(program, {x: frames}), run_integer(graph, {x: frames})
        for tensor in graph.outputs:
            np.testing.assert_array_equal(found[tensor], expected[tensor])
        for segment in program.segments:
            assert len({n.name for n in segment.graph.nodes}) == len(segment.graph.nodes)
