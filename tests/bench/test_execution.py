"""Programs of both devices, run frame after frame and as a stream, give the reference's integers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import pytest

from dovetail.ir import Array, Axis, Graph
from dovetail.numerics.reference import run_integer
from dovetail.partition.plan import Piece, Split, whole_on
from dovetail.schedule.program import lower
from lib.execution.parts import Manner, cpu_runner, differing, noise
from lib.execution.programs import Execution
from lib.execution.sessions import Kernel, fitted, from_json, profiled, to_json
from lib.execution.timing import Effort, spread
from tests.kernels.networks import GRAPHS, activated
from tests.strategies import quantized


class Emulated:
    """A part by the reference."""

    def __init__(self, graph: Graph) -> None:
        self.run = partial(run_integer, graph)


class Failing:
    """A part that does not run."""

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        raise ValueError(f"no {next(iter(inputs))} today")


def execution(name: str) -> Execution:
    """Nodes in turn on either device, convolutions divided between them by their filters."""
    graph, assignment = quantized(GRAPHS[name]()), dict[str, Split]()
    for i, node in enumerate(graph.nodes):
        extents = {a: node.op.extent(a, graph.input_shapes(node)) for a in node.op.axes(graph.input_shapes(node))}
        half = extents.get(Axis.OUTPUT_CHANNELS, 0) // 2
        assignment[node.name] = whole_on(("cpu", "gpu")[i % 2]) if not half or i % 3 else Split(
            Axis.OUTPUT_CHANNELS, (Piece("cpu", 0, half), Piece("gpu", half, extents[Axis.OUTPUT_CHANNELS])))
    program = lower(graph, assignment)
    runners: dict[str, Any] = {s.name: cpu_runner(s.graph, Manner("plain", 1)) if s.device == "cpu" else Emulated(s.graph)
                               for s in program.segments}
    return Execution(program, runners)


@pytest.mark.parametrize("name", ["inverted", "classifier", "sums"])
def test_a_frame_and_a_stream_give_the_same_integers(name: str) -> None:
    made = execution(name)
    frame = noise(made.program.graph, 1)
    wanted = run_integer(made.program.graph, frame)
    assert {s.device for s in made.program.segments} == {"cpu", "gpu"}
    assert differing(made.frame(frame), wanted) == 0
    assert [differing(found, wanted) for found in made.stream(frame, 9)] == [0] * 9
    assert {len(taken) for taken in made.seconds.values()} == {10}


def test_what_a_part_raises_ends_the_stream() -> None:
    made = execution("inverted")
    last = made.program.segments[-1]
    broken = Execution(made.program, {**made.runners, last.name: Failing()})
    with pytest.raises(ValueError, match="today"):
        broken.stream(noise(made.program.graph, 1), 20)


def test_elements_that_differ_are_counted() -> None:
    assert differing({"y": np.array([[1, 2, 3]])}, {"y": np.array([[1, 5, 7]])}) == 2


def test_a_call_is_timed_as_often_as_asked() -> None:
    calls = list[int]()
    assert spread(lambda: calls.append(1), Effort(0.0, 4, 4), warm=2)["runs"] == 4
    assert len(calls) == 6


def test_kernels_of_a_session_belong_to_nodes_and_have_sizes() -> None:
    graph = quantized(GRAPHS["inverted"]())
    one, two = (profiled(graph, Manner("int8", 1), noise(graph, images), 1) for images in (1, 2))
    assert {n.name for n in graph.nodes if n.op.layer is not None} <= {k.node for k in one}
    assert sum(k.macs for k in one) == graph.macs
    assert [(k.sorts, k.node, 2 * k.macs) for k in one] == [(k.sorts, k.node, k.macs) for k in two]
    assert all(k.seconds > 0 and k.written_bytes > 0 for k in one)


@pytest.mark.parametrize(("graph", "slices"), [(GRAPHS["shuffled"], True), (partial(activated, "HardSwish"), False)])
def test_moving_maps_is_another_sort_of_kernel_than_looking_up_entries(graph: Callable[[], Graph], slices: bool) -> None:
    made = quantized(graph())
    sorts = {k.sorts[-2] for k in profiled(made, Manner("int8", 1), noise(made, 1), 1) if k.sorts[0].startswith("Gather")}
    assert sorts == {"Gather of slices" if slices else "Gather"}


def test_a_session_takes_what_its_kernels_take_and_sorts_not_measured_are_extrapolated() -> None:
    def kernel(size: int, sort: str = "Add int8", seconds: float = 0.0) -> Kernel:
        return Kernel((sort, sort.split()[0], "moves"), f"n{size}", 0.0, 2.0 * size, float(size), seconds)
    measured = [[kernel(10**i, seconds=2e-6 + 3e-10 * 10**i) for i in range(2, 2 + count)] for count in (3, 4, 5)]
    model = fitted([(own, 4e-5 + 1e-6 * len(own) + sum(k.seconds for k in own)) for own in measured])
    assert from_json(to_json(model)) == model
    found = model.predicted([kernel(5000), kernel(5000, "Floor float")])
    assert found["seconds"] == pytest.approx(4e-5 + 2 * (1e-6 + 2e-6 + 1.5e-6), rel=1e-3)
    assert found["extrapolated_s"] == pytest.approx(4.5e-6, rel=1e-3)
    assert found["nodes"] == {"n5000": pytest.approx(9e-6, rel=1e-3)}
