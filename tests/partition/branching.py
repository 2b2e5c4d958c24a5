"""Small networks that fork: few candidate columns per node, so that every plan can be tried, and every kind of branch."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dovetail.ir import Add, Concat, Graph, Node
from tests.partition.worlds import Builder, seeded


def two_arms(b: Builder, stem: str, rng: np.random.Generator) -> str:
    """Fire's expansions: two convolutions of one tensor, concatenated."""
    return b.add(Concat(1), b.conv(stem, 1, 1), b.conv(stem, int(rng.integers(1, 3)), 1))


def three_arms(b: Builder, stem: str, rng: np.random.Generator) -> str:
    return b.add(Concat(1), *(b.conv(stem, 1, 1) for _ in range(3)))


def downsample(b: Builder, stem: str, rng: np.random.Generator) -> str:
    """A residual branch of two nodes beside a convolution in its shortcut."""
    long = b.conv(b.conv(stem, 1, 1), 2, 1)
    return b.add(Add(), long, b.conv(stem, 2, 1))


def with_identity(b: Builder, stem: str, rng: np.random.Generator) -> str:
    """Two arms and a plain shortcut."""
    return b.add(Concat(1), stem, b.conv(stem, 1, 1), b.conv(b.conv(stem, 1, 1), 1, 1))


def nested(b: Builder, stem: str, rng: np.random.Generator) -> str:
    """An arm that forks again."""
    inner = b.conv(stem, 1, 1)
    inner = b.add(Concat(1), b.conv(inner, 1, 1), b.conv(inner, 1, 1))
    return b.add(Concat(1), inner, b.conv(stem, 1, 1))


def shared(b: Builder, stem: str, rng: np.random.Generator) -> str:
    """Arms that both read a tensor from before the fork as well."""
    fork = b.conv(stem, 1, 1)
    return b.add(Concat(1), b.add(Concat(1), fork, stem), b.conv(b.add(Concat(1), stem, fork), 1, 1))


def interleaved(b: Builder, stem: str, rng: np.random.Generator) -> str:
    """Arms whose nodes alternate in the order they were written."""
    first, second = b.conv(stem, 1, 1), b.conv(stem, 1, 1)
    third, fourth = b.conv(first, 1, 1), b.conv(second, 1, 1)
    return b.add(Concat(1), third, fourth)


SHAPES: dict[str, Callable[[Builder, str, np.random.Generator], str]] = {
    f.__name__: f for f in (two_arms, three_arms, downsample, with_identity, nested, shared, interleaved)}


def branching(shape: str, seed: int, most: int = 1) -> Graph:
    """One block, often behind a convolution and often with one after it, of up to `most` channels and rows at its input."""
    rng = seeded(seed, shape)
    b = Builder(int(rng.integers(1, most + 1)), int(rng.integers(1, most + 1)))
    stem = b.conv("x", int(rng.integers(1, most + 1)), 1) if rng.uniform() < 0.7 else "x"
    end = SHAPES[shape](b, stem, rng)
    if rng.uniform() < 0.5 and len(b.nodes) < 5:
        end = b.conv(end, 1, 1)
    return b.graph(end)


def two_blocks(seed: int) -> Graph:
    """A block whose join is the fork of the next."""
    rng = seeded(seed, "two blocks")
    b = Builder(1, 1)
    return b.graph(two_arms(b, three_arms(b, "x", rng) if rng.uniform() < 0.3 else two_arms(b, "x", rng), rng))


def shuffled(graph: Graph, seed: int) -> Graph:
    """The same network with its nodes in another topological order."""
    rng = np.random.default_rng(seed)
    waiting, order, known = list(graph.nodes), list[Node](), set(graph.inputs)
    while waiting:
        ready = [n for n in waiting if known.issuperset(n.inputs)]
        node = ready[int(rng.integers(len(ready)))]
        waiting.remove(node)
        order.append(node)
        known.add(node.output)
    return graph.with_nodes(order)
