"""Accuracy on labelled data, three ways: the float model, its integers, and a build on its devices."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from dovetail.errors import UsageError
from dovetail.ir import Array, Graph
from dovetail.numerics.calibration import frames_for, load_arrays
from dovetail.numerics.reference import run_float, run_integer
from dovetail.runtime.build import Build
from dovetail.runtime.execute import run_stored, store

CHUNK_ELEMENTS = 1 << 25

Progress = Callable[[str, int, int], None]


def load_labelled(path: str | Path, graph: Graph) -> tuple[Array, Array]:
    """Images `x` and integer labels `y`, one row each, for a network with one input and one output of scores."""
    if len(graph.inputs) != 1 or len(graph.outputs) != 1:
        raise UsageError(f"{path}: accuracy needs a network with one input and one output; this one has inputs "
                         f"{', '.join(graph.inputs)} and outputs {', '.join(graph.outputs)}")
    arrays = load_arrays(Path(path))
    if not {"x", "y"} <= set(arrays):
        raise UsageError(f"{path}: holds {sorted(arrays)}; images under 'x' and labels under 'y' are needed")
    x, y = frames_for(arrays["x"], graph, graph.inputs[0], str(path)), arrays["y"].reshape(-1)
    classes = int(np.prod(graph.shape(graph.outputs[0])[1:]))
    if y.dtype.kind not in "iu" or len(y) != len(x) or y.min(initial=0) < 0 or y.max(initial=0) >= classes:
        raise UsageError(f"{path}: {len(y)} labels of type {y.dtype} for {len(x)} images; one integer from 0 to {classes - 1} "
                         "per image is needed")
    return x, y


def right(scores: Array, labels: Array) -> float:
    """Fraction of rows whose largest score is at the label; the first of equals counts."""
    return float((scores.reshape(len(labels), -1).argmax(axis=1) == labels).mean())


def _chunks(graph: Graph, x: Array) -> Iterator[Array]:
    step = max(1, CHUNK_ELEMENTS // sum(t.size for t in graph.tensors.values()))
    return (x[i:i + step] for i in range(0, len(x), step))


def float_scores(graph: Graph, x: Array, progress: Progress | None = None) -> Array:
    """Scores of the float network."""
    name, found = graph.inputs[0], list[Array]()
    for chunk in _chunks(graph, x):
        found.append(run_float(graph, {name: chunk})[graph.outputs[0]])
        if progress is not None:
            progress("float", sum(map(len, found)), len(x))
    return np.concatenate(found)


def integer_scores(graph: Graph, x: Array, progress: Progress | None = None) -> Array:
    """Scores of the quantized network, as stored values (their order is that of the real scores)."""
    name, found = graph.inputs[0], list[Array]()
    for chunk in _chunks(graph, x):
        found.append(run_integer(graph, store(graph, {name: chunk}, "evaluate"))[graph.outputs[0]])
        if progress is not None:
            progress("integers", sum(map(len, found)), len(x))
    return np.concatenate(found)


def build_scores(build: Build, x: Array, progress: Progress | None = None) -> Array:
    """Scores that the build's devices compute."""
    stored = store(build.graph, {build.graph.inputs[0]: x}, "evaluate")
    return run_stored(build, stored, progress)[build.graph.outputs[0]]
