"""Programs of both devices, run frame after frame and as a stream, give the reference's integers."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import pytest

from dovetail.ir import Array, Axis, Graph
from dovetail.numerics.reference import run_integer
from dovetail.partition.plan import Piece, Split, whole_on
from dovetail.schedule.program import lower
from lib.execution.parts import cpu_runner, differing, noise
from lib.execution.programs import Execution
from lib.execution.timing import Effort, spread
from tests.kernels.networks import GRAPHS
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
    runners: dict[str, Any] = {s.name: cpu_runner(s.graph, "plain", 1) if s.device == "cpu" else Emulated(s.graph)
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
