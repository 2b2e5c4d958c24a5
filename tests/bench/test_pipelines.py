"""GPU and CPU in a pipeline: where networks are cut, what that promises, and that streams give the integers of parts in turn."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np
import pytest

from dovetail.ir import RELU, Add, Array, Conv, Gemm, Graph, Reshape, Window
from dovetail.numerics.reference import run_integer
from lib.execution.parts import Runner, noise
from lib.execution.pipelines import Here, candidates, case, compared, cuts, parted, promise, share, stages_of
from lib.execution.timing import Effort
from tests.strategies import Net, quantized

ONCE = Effort(0.0, 1, 1)


def network() -> Graph:
    """Two convolutions, one of them bridged, and a classifier."""
    net = Net(3, "bridged")
    first = net.add(Conv(4, Window((3, 3), pads=(1, 1, 1, 1)), 1, RELU), net.input((1, 2, 6, 6), "image"), name="first")
    second = net.add(Conv(4, Window((3, 3), pads=(1, 1, 1, 1)), 1, RELU), first, name="second")
    both = net.add(Add(RELU), first, second, name="both")
    return quantized(net.graph(net.add(Gemm(5), net.add(Reshape((1, 144)), both, name="flat"), name="class")))


class Emulated:
    """A part by the reference, and how often it ran."""

    def __init__(self, graph: Graph) -> None:
        self.calls, self.compute = 0, partial(run_integer, graph)

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        self.calls += 1
        return self.compute(inputs)


class Fake:
    """Devices by the reference."""

    def __init__(self, able: bool = True) -> None:
        self.able = able

    def gpu(self, graph: Graph, images: int) -> Runner | str:
        return Emulated(graph) if self.able else "no kernel for anything"

    def cpu(self, graph: Graph, threads: int) -> Runner:
        return Emulated(graph)


def test_cuts_are_where_one_tensor_crosses() -> None:
    graph = network()
    names = [node.name for node in graph.nodes]
    assert [names[cut] for cut in cuts(graph)] == ["second", "flat", "class"]
    assert [s.device for s in parted(graph, 3).segments] == ["gpu", "cpu"]
    assert candidates(graph) == [c for c in cuts(graph) if share(graph, c) >= 0.5]
    assert (promise([2.0, 2.0]), promise([3.0, 1.0])) == (2.0, pytest.approx(4 / 3))


def test_a_case_is_balanced_streamed_and_compared() -> None:
    graph = network()
    found = case(graph, 3, Fake(), 4, ONCE, items=5, rounds=2)
    assert (found["frames"], found["wrong"], found["equal"]) == (15, 0, True)
    assert sum(found["nodes"]) == len(graph.nodes)
    assert found["threads"] in (1, 2)
    parts = [found["gpu_s"], found["cpu_s"][str(found["threads"])]]
    between = found["handing_s"]
    assert found["promised_without_handing"] == promise(parts)
    assert found["promised"] == pytest.approx((sum(parts) + between["in_turn"]) / (max(parts) + between["stream"]))
    assert found["planned_s"] == pytest.approx(sum(parts) + 4 * (max(parts) + between["stream"]))
    assert found["judged"] == (found["promised"] >= 1.7)
    assert found["ok"] == (not found["judged"] or found["gain"] >= 1.5)
    assert [len(times) for times in found["rounds"].values()] == [2, 2]
    assert case(graph, 1, Fake(able=False), 4, ONCE) == {"not possible": "no kernel for anything"}


def test_a_part_that_is_wrong_once_is_counted() -> None:
    class Wrong(Emulated):
        def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
            found = super().run(inputs)
            return {name: x + np.array(self.calls == 9, x.dtype) for name, x in found.items()}

    graph = network()
    program = parted(graph, cuts(graph)[-1])
    first, last = program.segments
    stages = stages_of(program, {first.name: Emulated(first.graph), last.name: Wrong(last.graph)})
    found = compared(program, stages, noise(graph, 2), 4, 1)
    assert not found["equal"]
    assert found["wrong"] > 0


def test_onnx_runtime_takes_the_place_of_kernels_where_there_is_no_gpu() -> None:
    found = case(network(), 2, Here(pretends=True), 2, ONCE, items=3, rounds=1)
    assert found["equal"]
