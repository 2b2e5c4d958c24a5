"""Programs of both devices, run frame after frame and as a stream, give the reference's integers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import pytest

from dovetail.gpu.executor import options_of
from dovetail.ir import Array, Axis, Graph
from dovetail.kernels.estimator import FITTED_ON
from dovetail.kernels.lower import lower as lower_kernels
from dovetail.numerics.reference import run_integer
from dovetail.partition.plan import Piece, Split, whole_on
from dovetail.platform.gpu_specification import specification
from dovetail.schedule.program import lower
from lib.execution import kernels, pieces
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
    model = fitted([(own, 1.25 * sum(k.seconds for k in own)) for own in measured])
    assert from_json(to_json(model)) == model
    found = model.predicted([kernel(5000), kernel(5000, "Floor float")])
    assert found["seconds"] == pytest.approx(1.25 * 2 * (2e-6 + 1.5e-6), rel=1e-3)
    assert found["extrapolated_s"] == pytest.approx(1.25 * 3.5e-6, rel=1e-3)
    assert found["nodes"] == {"n5000": pytest.approx(1.25 * 7e-6, rel=1e-3)}


@pytest.mark.parametrize("name", ["inverted", "shuffled", "fire"])
def test_pieces_of_a_network_hold_every_node_once_and_begin_at_products(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "NODES", 2)
    graph = quantized(GRAPHS[name]())
    found = pieces.cut(graph)
    assert sum(count * len(own.nodes) for own, count in zip(found.graphs, found.counts, strict=True)) == len(graph.nodes)
    assert found.number > 1
    assert sum(bool(own.nodes[0].op.product) for own in found.graphs) >= len(found.graphs) - 1
    assert all(s > 0 for s in pieces.timed(found, Manner("int8", 1), 2, 0.0))


def test_equal_pieces_are_timed_once_and_starts_are_taken_off() -> None:
    own = quantized(GRAPHS["tiny"]())
    parted, taken = pieces.Pieces((own, own), (3, 1)), (2e-3, 5e-3)
    assert pieces.start_s([(parted, taken, 8e-3)]) == pytest.approx(1e-3)
    assert pieces.whole_s(parted, taken, 1e-3) == pytest.approx(8e-3)


def test_kernels_are_corrected_by_class_and_copies_beside_them_by_channel() -> None:
    rows = [kernels.TimedKernel(("conv of windows", "conv", ""), 1.5e-6 * i, 1e-6 * i, 0) for i in range(1, 5)]
    rows += [kernels.TimedKernel(("pool", ""), 1e-6, 1e-6, 0) for _ in range(2)]
    rows += [kernels.TimedKernel(("conv of windows", "conv", ""), 1.5e-6 + 2e-8 * c, 1e-6, c) for c in (8, 16)]
    found = kernels.fitted(rows, [1.0, 1.21])
    assert found.by_class == pytest.approx({"conv of windows": 1.5, "conv": 1.5, "": 1.5 ** (4 / 6)})
    assert (found.copied_s, found.in_place) == pytest.approx((2e-8, 1.1))
    graph = quantized(GRAPHS["shuffled"]())
    lowered = lower_kernels(graph, "int8", specification(FITTED_ON))
    calls = [call for ways in options_of(lowered) for *_, call in ways]
    assert any(kernels.copied_channels(call) for call in calls)
    single = kernels.Factors({"": 1.0}, 0.0, 1.0)
    assert single.network_s(lowered) <= sum(call.estimates_s[0] for call in calls)
    assert kernels.Factors({"": 2.0}, 0.0, 1.1).network_s(lowered) == pytest.approx(2.2 * single.network_s(lowered))
