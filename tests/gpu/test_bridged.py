"""The kernel from one block into the next gives the reference's results, and those of the layer between where others read it."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest

from dovetail.gpu.executor import Compiled, compile_graph
from dovetail.ir import Array
from dovetail.kernels.calls import Call
from dovetail.numerics.reference import run_float, run_integer
from tests.gpu.stored import stored
from tests.kernels.networks import blocks
from tests.strategies import quantized

WORDS = 52
"""Channels that come four in a word where they are bytes."""
TOLERANCE = {"float16": 0.02, "tf32": 1e-3, "int8": 0.0}


def through(made: Compiled) -> Call:
    """The call of the kernel; there is one."""
    (call,) = [call for run in made.lowered.runs if not isinstance(run, Call)
               for *_, call in made.lowered.options(run, inf) if call.kernel == "bridged"]
    return call


@pytest.mark.usefixtures("kept_inside")
@pytest.mark.parametrize(("size", "kernel", "stride", "adds", "kept", "inner", "kind"), [
    ((3, 9), 3, 1, True, True, 50, "tf32"), ((3, 9), 3, 1, True, True, 50, "int8"), *(
        (*case, inner, kind) for inner, kind in ((50, "float16"), (WORDS, "int8")) for case in (
            ((3, 9), 3, 1, True, True), ((4, 10), 3, 2, False, True), ((3, 3), 5, 1, True, False), ((3, 9), 5, 2, False, False))),
    ((9, 3), 3, 2, False, False, WORDS, "int8"),
    pytest.param((7, 7), 5, 1, False, True, WORDS, "int8", marks=pytest.mark.deep("a minute in the interpreter"))])
def test_layers_of_two_blocks_in_one_kernel(size: tuple[int, int], kernel: int, stride: int, adds: bool, kept: bool, inner: int,
                                            kind: str) -> None:
    graph, rng = blocks(size, kernel, stride, adds, kept, inner), np.random.default_rng(0)
    if kind == "int8":
        graph = quantized(graph)
        scheme = graph.tensors["x"].scheme
        assert scheme is not None
        inputs: dict[str, Array] = {"x": rng.integers(scheme.lo, scheme.hi + 1, (2, 3, *size)).astype(scheme.dtype)}
        ((name, wanted),) = run_integer(graph, inputs).items()
    else:
        inputs = {"x": rng.normal(size=(2, 3, *size)).astype(np.float32)}
        ((name, wanted),) = run_float(graph, inputs).items()
    made = compile_graph(graph, kind, 2)
    call = through(made)
    assert (call.constants["KEPT"], call.constants["ADD"]) == (kept, adds)
    assert (call.constants["WORDS"] > 0) == (inner == WORDS)
    made.launcher.buffers.clear()
    made.load("x", inputs["x"], made.lowered.inputs["x"])
    order = [way for run in made.lowered.runs if not isinstance(run, Call) for way in made.lowered.options(run, inf)]
    singles = [c for first, last, c in order if first == last and c.kernel in ("conv", "depthwise", "bytewise")]
    before = [c for c in singles if not set(c.nodes) & set(call.nodes)][:2]
    after = [c for c in singles if not set(c.nodes) & set(call.nodes)][2:]
    for config in (call.configs[0], call.configs[-1]):
        for operand in made.launcher.buffers:
            if operand != "x":
                made.launcher.buffers[operand].fill_(7)
        for each in before:
            made.launcher.bound(each, each.configs[0])()
        made.launcher.bound(call, config)()
        for each in after:
            made.launcher.bound(each, each.configs[0])()
        found = stored(made, name)
        assert np.linalg.norm(found.astype(np.float64) - wanted) <= TOLERANCE[kind] * np.linalg.norm(wanted), dict(config)


def test_only_this_kernel_goes_through_what_others_read() -> None:
    made = compile_graph(blocks((5, 9), 3, 1, True, True), "float32", 1)
    runs = [run for run in made.lowered.runs if not isinstance(run, Call)]
    ends = {item.names[-1] for run in runs for item in run if item.kept}
    assert ends
    for run in runs:
        for *_, call in made.lowered.options(run, inf):
            assert call.kernel != "bridged"
            assert not ends & set(call.nodes[:-1])
