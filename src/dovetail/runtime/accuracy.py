"""Accuracy on labelled data: the float model, its integers, ONNX Runtime's int8 of it, and a build on its devices."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dovetail.errors import UsageError
from dovetail.ir import Array, Graph
from dovetail.numerics import quality
from dovetail.numerics.calibration import Samples, frames_for, load_arrays, load_samples
from dovetail.numerics.fast import run_quantized
from dovetail.numerics.fixed import dequantize
from dovetail.runtime.build import Build
from dovetail.runtime.execute import run_stored, store
from dovetail.words import counted

WAYS = ("float", "int8", "onnxruntime_int8", "build")
"""Who computes the scores, as `evaluate --json` calls them."""

Progress = Callable[[str, int, int], None]
Outputs = dict[str, dict[str, Array]]
"""Real outputs by way and tensor."""


def load_data(path: str | Path, graph: Graph) -> tuple[dict[str, Array], Array | None]:
    """Frames by input, and for a classifier with one input integer labels `y`, one per frame."""
    classes = quality.classes(graph)
    if classes is None or len(graph.inputs) != 1:
        return dict(load_samples(path, graph).values), None
    arrays = load_arrays(Path(path))
    if not {"x", "y"} <= set(arrays):
        raise UsageError(f"{path}: holds {sorted(arrays)}; images under 'x' and labels under 'y' are needed")
    x, y = frames_for(arrays["x"], graph, graph.inputs[0], str(path)), arrays["y"].reshape(-1)
    if y.dtype.kind not in "iu" or len(y) != len(x) or y.min(initial=0) < 0 or y.max(initial=0) >= classes:
        raise UsageError(f"{path}: {counted(len(y), 'label')} of type {y.dtype} for {counted(len(x), 'image')}; one "
                         f"integer from 0 to {classes - 1} per image is needed")
    return {graph.inputs[0]: x}, y


def right(scores: Array, labels: Array) -> float:
    """Fraction of rows whose largest score is at the label; the first of equals counts."""
    return float((quality.top_classes(scores) == labels).mean())


def outputs(network: Graph, graph: Graph, samples: Samples, inputs: Mapping[str, Array],
            progress: Progress) -> tuple[Outputs, str]:
    """Of the float network, its integers and ONNX Runtime's int8; of a model that came quantized, of its integers alone."""
    if not network.quantized:
        return quality.compare(network, graph, samples, inputs, progress)
    total = len(next(iter(inputs.values())))
    return {"int8": run_quantized(graph, inputs, lambda n: progress("integers", n, total))}, ""


def build_outputs(build: Build, inputs: Mapping[str, Array], progress: Progress | None = None) -> dict[str, Array]:
    """What the build's devices compute, as real values."""
    stored = run_stored(build, store(build.graph, inputs, "evaluate"), progress)
    schemes = {name: build.graph.tensors[name].scheme for name in stored}
    return {name: x if (scheme := schemes[name]) is None else dequantize(x, scheme) for name, x in stored.items()}


def judged(graph: Graph, found: Outputs, labels: Array | None) -> dict[str, Any]:
    """Fractions right, agreement with float, output noise, and whether the build computes what the reference computes."""
    name = graph.outputs[0]
    accuracy = {way: right(found[way][name], labels) if way in found and labels is not None else None for way in WAYS}
    beside = quality.answers(graph, found) if "float" in found else \
        {"snr_db": {}, "agreement": None, "agreement_note": "no float network: the model came quantized"}
    equal = all(np.array_equal(x, found["int8"][t]) for t, x in found["build"].items()) if "build" in found else None
    return {**accuracy, "build_equals_int8": equal, **beside}
