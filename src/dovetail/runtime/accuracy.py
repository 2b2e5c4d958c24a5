"""Accuracy on labelled data: the float model, its integers, ONNX Runtime's int8 of it, and a build on its devices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dovetail.errors import UsageError
from dovetail.ir import Array, Graph
from dovetail.ir.onnx.read import Imported
from dovetail.numerics import quality
from dovetail.numerics.calibration import Calibration, Samples, frames_for, load_arrays, load_samples, samples_of
from dovetail.numerics.fast import run_quantized
from dovetail.numerics.reference import real_values
from dovetail.progress import Progress
from dovetail.runtime.build import Build, run_stored, store
from dovetail.words import counted

WAYS = ("float", "int8", "onnxruntime_int8", "build")
"""Who computes the scores, as `evaluate --json` calls them."""

Outputs = dict[str, dict[str, Array]]
"""Real outputs by way and tensor."""


LabelledData = str | Path | tuple[Array, Array] | Mapping[str, Array]
"""A file, images and their labels, or arrays by name: `x`, `y`, or the network's inputs."""


def named(data: LabelledData) -> str:
    """What errors call data."""
    return str(data) if isinstance(data, str | Path) else "data"


def load_data(data: LabelledData, graph: Graph) -> tuple[dict[str, Array], Array | None]:
    """Frames by input, and for a classifier with one input integer labels `y`, one per frame."""
    classes, where = quality.classes(graph), named(data)
    given: Calibration = dict(zip("xy", data, strict=True)) if isinstance(data, tuple) else data
    if classes is None or len(graph.inputs) != 1:
        return dict((load_samples(given, graph) if isinstance(given, str | Path) else samples_of(given, graph)).values), None
    arrays = {n: np.asarray(x) for n, x in given.items()} if isinstance(given, Mapping) else load_arrays(Path(str(given)))
    if not {"x", "y"} <= set(arrays):
        raise UsageError(f"{where}: holds {sorted(arrays)}; images under 'x' and labels under 'y' are needed")
    x, y = frames_for(arrays["x"], graph, graph.inputs[0], where), arrays["y"].reshape(-1)
    if y.dtype.kind not in "iu" or len(y) != len(x) or y.min(initial=0) < 0 or y.max(initial=0) >= classes:
        raise UsageError(f"{where}: {counted(len(y), 'label')} of type {y.dtype} for {counted(len(x), 'image')}; one "
                         f"integer from 0 to {classes - 1} per image is needed")
    return {graph.inputs[0]: x}, y


@dataclass(frozen=True, slots=True)
class Calibrated:
    """What integers were calibrated with: where it came from, how many samples, and these, or why they are not at hand."""

    source: str
    count: int
    samples: Samples | str

    @classmethod
    def by(cls, samples: Samples) -> Calibrated:
        return cls(samples.source, samples.count, samples)


def calibration_of(build: Build, imported: Imported, calibration: Calibration | None = None) -> Calibrated:
    """What calibrated a build, for whoever is compared with it: a file that is the same, else the samples the build keeps.

    Raises:
        UsageError: `calibration` is not what the build was calibrated with.
    """
    source, count = (build.manifest["quantization"][key] for key in ("calibration", "samples"))
    kept = build.samples()
    missing, made = "ONNX Runtime's int8 is not compared: ", build.manifest["model"]
    if calibration is not None:
        given = samples_of(calibration, build.graph)
        where = str(calibration) if isinstance(calibration, str | Path) else "calibration"
        stored = store(build.graph, given.values, where)
        if given.count != count or not all(np.array_equal(stored[name][:len(x)], x) for name, x in kept.items()):
            raise UsageError(f"{where}: not what {build.folder} was calibrated with ({source}, {counted(count, 'sample')}); "
                             "give that file or leave --calibration out")
    else:
        given = Samples(_reals(build.graph, kept), source)
    if imported.sha256 != made["sha256"]:  # perhaps one that came quantized, which its build's samples did not calibrate
        return Calibrated(source, count, f"{missing}the build was made from another file ({made['file']}), and what calibrated "
                                         "its numbers is not known")
    if given.count != count:
        return Calibrated(source, count, f"{missing}the build keeps {given.count} of {counted(count, 'sample')} that calibrated "
                                         f"it; give them all with --calibration ({source})")
    return Calibrated(source, count, given)


def _reals(graph: Graph, stored: Mapping[str, Array]) -> dict[str, Array]:
    """Stored values as real ones."""
    return {name: real_values(graph.tensors[name], x) for name, x in stored.items()}


def right(scores: Array, labels: Array) -> float:
    """Fraction of rows whose largest score is at the label; the first of equals counts."""
    return float((quality.top_classes(scores) == labels).mean())


def outputs(network: Graph, graph: Graph, samples: Samples | str, inputs: Mapping[str, Array],
            progress: Progress) -> tuple[Outputs, str]:
    """Of the float network, its integers and ONNX Runtime's int8; of a model that came quantized, of its integers alone."""
    if not network.quantized:
        return quality.compare(network, graph, samples, inputs, progress)
    total = len(next(iter(inputs.values())))
    return {"int8": run_quantized(graph, inputs, lambda n: progress("integers", n, total))}, ""


def build_outputs(build: Build, inputs: Mapping[str, Array], progress: Progress | None = None) -> dict[str, Array]:
    """What the build's devices compute, as real values."""
    return _reals(build.graph, run_stored(build, store(build.graph, inputs, "evaluate"), progress))


def judged(graph: Graph, found: Outputs, labels: Array | None) -> dict[str, Any]:
    """Fractions right, agreement with float, output noise, and whether the build computes what the reference computes."""
    name = graph.outputs[0]
    accuracy = {way: right(found[way][name], labels) if way in found and labels is not None else None for way in WAYS}
    beside = quality.answers(graph, found) if "float" in found else \
        {"snr_db": {}, "agreement": None, "agreement_note": "no float network: the model came quantized"}
    equal = all(np.array_equal(x, found["int8"][t]) for t, x in found["build"].items()) if "build" in found else None
    return {**accuracy, "build_equals_int8": equal, **beside, "peer_lead": quality.peer_lead(beside, accuracy)}
