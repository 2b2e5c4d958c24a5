"""Parts of the library as one function give what they give node by node."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest

from dovetail.gpu.executor import Compiled, compile_graph
from dovetail.gpu.library import joined
from dovetail.gpu.library.joined import JoinedPart
from dovetail.gpu.library.part import LibraryLaunch
from tests.gpu.vision import NETWORKS, network, through_onnx


def compiled(name: str, images: int) -> tuple[Compiled, dict[str, Any], dict[str, Any], list[Any]]:
    """A network, frames, their results, and what its lane launches."""
    graph = through_onnx(*network(name))
    made = compile_graph(graph, "float32", images)
    shape = (images, *graph.shape(graph.inputs[0])[1:])
    frames = {graph.inputs[0]: np.random.default_rng(0).normal(size=shape).astype(np.float32)}
    return made, frames, made.run(frames), made.lanes_for(False, False)[0].kept[0]


def as_traced(launch: LibraryLaunch) -> JoinedPart:
    """A part in ATen operators, with no compiler behind it."""
    module, example, names, nesting = joined.traced(launch)
    return JoinedPart(lambda *tensors: module(*tensors), joined.layouts(example), names, nesting)


def join(launches: list[Any], how: Any) -> list[LibraryLaunch]:
    """Everything once, in order, with every part of several nodes as one function."""
    parts = []
    for each in launches:
        if isinstance(each, LibraryLaunch) and len(each.part.nodes) > 1:
            each.joined = how(each)
            parts.append(each)
        each()
    return parts


@pytest.mark.parametrize("images", [1, 2])
@pytest.mark.parametrize("name", NETWORKS)
def test_a_traced_part_gives_what_its_nodes_give(name: str, images: int) -> None:
    made, frames, wanted, launches = compiled(name, images)
    parts = join(launches, as_traced)
    assert parts
    for part in parts:  # its nodes would hide a function that is not for these tensors
        part.nodes = []
    found = made.run(frames)
    for output, values in wanted.items():
        np.testing.assert_array_equal(found[output], values)


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")  # of the compiler's own imports
def test_a_compiled_part_gives_what_its_nodes_give() -> None:
    made, frames, wanted, launches = compiled("ConvNeXt", 1)
    for part in join(launches, joined.joined):
        part.nodes = []
    for output, values in made.run(frames).items():
        np.testing.assert_allclose(values, wanted[output], rtol=0, atol=1e-5)


def test_a_function_for_other_tensors_is_not_used() -> None:
    made, frames, wanted, launches = compiled("SSD", 1)

    def used(*tensors: Any) -> list[Any]:
        raise AssertionError("a function ran on tensors that it was not made for")
    for part in join(launches, as_traced):
        own = part.joined
        assert isinstance(own, JoinedPart)
        part.joined = JoinedPart(used, (), own.made, own.nesting)
    for output, values in made.run(frames).items():
        np.testing.assert_array_equal(values, wanted[output])


def test_the_faster_form_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    launches = compiled("ViT", 1)[3]
    launch = next(each for each in launches if isinstance(each, LibraryLaunch) and len(each.part.nodes) > 1)
    monkeypatch.setattr(joined, "joined", as_traced)
    for nodes_s, function_s in ((2.0, 1.0), (1.0, 2.0)):
        times = iter((nodes_s, function_s))

        def seconds(call: Any, times: Any = times) -> float:
            call()
            return float(next(times))
        choice = joined.faster(launch, seconds)
        assert (choice.function is not None, choice.seconds) == (function_s < nodes_s, 1.0)


def test_a_part_that_the_compiler_refuses_runs_node_by_node(monkeypatch: pytest.MonkeyPatch,
                                                            caplog: pytest.LogCaptureFixture) -> None:
    launches = compiled("ViT", 1)[3]
    launch = next(each for each in launches if isinstance(each, LibraryLaunch) and len(each.part.nodes) > 1)

    def refused(launch: LibraryLaunch) -> JoinedPart:
        raise NotImplementedError("no such operator\nat a place")
    monkeypatch.setattr(joined, "joined", refused)
    with caplog.at_level(logging.WARNING, "dovetail.gpu"):
        choice = joined.faster(launch, lambda call: 1.0)
    assert (choice.function, choice.seconds) == (None, 1.0)
    assert "computed one by one: no such operator" in caplog.text
