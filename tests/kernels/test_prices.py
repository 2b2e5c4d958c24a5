"""Prices of nodes that share kernels: they add up to what the kernels take, and no stretch of nodes is sold for less."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.ir import Add, Concat, Conv, Graph, Mul, Select, Window
from dovetail.kernels.calls import Call
from dovetail.kernels.lower import lower
from dovetail.kernels.prices import PricedRun, priced
from dovetail.platform.gpu_specification import specification
from tests.kernels.networks import GRAPHS, inverted, stem
from tests.strategies import Net, quantized

H200 = specification("h200")


@st.composite
def runs(draw: st.DrawFn) -> PricedRun:
    """Nodes that each have a kernel, and some kernels of two or three of them, of any time."""
    count, times = draw(st.integers(1, 7)), st.floats(0.1, 10.0)
    kernels = {(i, i): draw(times) for i in range(count)}
    for first in range(count):
        for last in range(first + 1, min(first + 3, count)):
            if draw(st.booleans()):
                kernels[first, last] = draw(times)
    return PricedRun(tuple(f"n{i}" for i in range(count)), kernels)


@settings(max_examples=300, deadline=None)
@given(run=runs())
def test_no_stretch_costs_less_than_its_kernels_and_whole_runs_cost_what_they_do(run: PricedRun) -> None:
    prices, count = run.prices(), len(run.nodes)
    for first in range(count):
        best = [s for s, _ in run.cheapest(first, count - 1)]
        for last in range(first, count):
            charged = prices[first].alone_s + sum(p.behind_s for p in prices[first + 1:last + 1])
            assert charged >= best[last - first + 1] * (1 - 1e-9)
            if first == 0:  # a longer kernel may be faster than a shorter one: then the shorter costs what the longer does
                assert charged <= max(best[:last + 2]) * (1 + 1e-9)


@settings(max_examples=100, deadline=None)
@given(run=runs())
def test_the_kernels_of_a_stretch_cover_it_once_and_take_what_it_costs(run: PricedRun) -> None:
    last = len(run.nodes) - 1
    kernels = run.divided(0, last)
    assert [n for names in kernels for n in names] == list(run.nodes)
    spent = sum(run.kernels[run.nodes.index(names[0]), run.nodes.index(names[-1])] for names in kernels)
    assert spent == pytest.approx(run.cheapest(0, last)[-1][0])


@pytest.mark.parametrize("name", [n for n in GRAPHS if n != "tiny"])
@pytest.mark.parametrize("kind", ["float16", "int8"])
def test_a_network_on_a_gpu_costs_what_its_estimated_kernels_take(name: str, kind: str) -> None:
    graph = quantized(GRAPHS[name]()) if kind == "int8" else GRAPHS[name]()
    found, lowered = priced(graph, H200, kind), lower(graph, kind, H200)
    spent = 0.0
    for run in lowered.runs:
        if isinstance(run, Call):
            spent += run.estimates_s[0]
            continue
        best = [0.0]
        options = list(lowered.options(run))
        for stop in range(len(run)):
            best.append(min(best[first] + call.estimates_s[0] for first, last, call in options if last == stop))
        spent += best[-1]
    charged = sum(p.behind_s for p in found.prices.values())
    # A choice is charged as a copy, whoever copies it along; a layer that reads it in place saves no more than it takes itself.
    slack = 1.3e-6 * sum(isinstance(n.op, Select) for n in graph.nodes)
    assert spent * (1 - 1e-6) <= charged <= spent * (1 + 1e-6) + slack


def test_a_float_graph_is_priced_as_the_integers_it_becomes() -> None:
    graph = inverted()
    found, wanted = (priced(g, H200, "int8").prices for g in (graph, quantized(graph)))
    assert found == wanted


def test_joining_nodes_cost_next_to_nothing_behind_their_layer_and_a_launch_alone() -> None:
    graph = inverted()
    own = priced(graph, H200, "int8")
    added = next(n for n in graph.nodes if isinstance(n.op, Add))
    assert own.prices[added.name].behind_s < 0.1e-6
    assert own.prices[added.name].alone_s > 1e-6
    assert any(added.name in names for names in own.together({n.name for n in graph.nodes}))
    assert not any(added.name in names for names in own.together({added.name}))


def test_concatenations_are_places_and_choices_are_read_where_they_are() -> None:
    graph = GRAPHS["fire"]()
    prices = priced(graph, H200, "int8").prices
    kinds = {n.name: type(n.op) for n in graph.nodes}
    joins = [p for name, p in prices.items() if kinds[name] is Concat]
    assert min(p.behind_s for p in joins) == 0
    assert all(p.alone_s > 1e-6 for name, p in prices.items() if kinds[name] in (Concat, Select))


def test_an_operator_without_a_kernel_has_no_price_and_others_keep_theirs() -> None:
    graph = unsupported()
    prices = priced(graph, H200, "int8").prices
    assert set(prices) == {n.name for n in graph.nodes if n.op.kind != "Mul"}
    assert np.isfinite([p.alone_s for p in prices.values()]).all()


def unsupported() -> Graph:
    """A gate of one value per pixel, whose product no kernel computes."""
    net = Net(8)
    x = stem(net)
    gate = net.add(Conv(1, Window((1, 1))), x)
    return net.graph(net.add(Conv(4, Window((1, 1))), net.add(Mul(), x, gate)))
