"""The numbers of a network: which integers a model file stands for, and what is to be said of where they come from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dovetail.errors import UsageError
from dovetail.ir import Graph
from dovetail.ir.onnx.read import Imported, Source, read_model
from dovetail.ir.tensor import Shape
from dovetail.numerics.calibration import Calibration, Samples, clipped_notes, constant_notes, samples_of
from dovetail.numerics.equalize import Equalise
from dovetail.numerics.quantize import DEFAULT_BITS, check_bits, quantize_network
from dovetail.numerics.scales import Scales
from dovetail.numerics.tables import tabulate
from dovetail.progress import Progress, silent

AS_INT8 = ("no calibration data was given: planned as int8 with weights rounded as they are, not with the scales of a "
           "quantized network; pass --calibration X.npz")
"""What is to be said of a plan for a float network."""


@dataclass(frozen=True, slots=True)
class Numbers:
    """A quantized graph with the samples that decided it."""

    graph: Graph
    source: Graph
    """The float graph whose tensors the integers stand for: the imported one, its channels perhaps equalised."""
    samples: Samples
    imported: Imported
    warnings: tuple[str, ...]


def decide_numbers(model: Source, calibration: Calibration | None = None, bits: int | None = None,
                   shapes: Mapping[str, Shape] | None = None, progress: Progress = silent,
                   equalise: Equalise = Equalise.AUTO, scales: Scales = Scales.POW2) -> Numbers:
    """Import a model and quantize it, to 8 bits unless told, where it is still float; a QDQ model keeps its numbers.

    Raises:
        UsageError: bits are given for a model that came quantized.
    """
    imported = read_model(model, shapes)
    graph = source = tabulate(imported.graph)
    samples, warnings = samples_of(calibration, graph, imported.normalisation), list(imported.notes)
    _check_bits(imported, bits)
    if not graph.quantized and graph.integers:
        found = quantize_network(graph, samples, DEFAULT_BITS if bits is None else bits,
                                 lambda stage, done, total: progress(f"calibrate {stage}", done, total), equalise, scales)
        graph, source = found.graph, found.source
        warnings += filter(None, (samples.note, found.note))
    if calibration is not None:
        warnings += (*constant_notes(samples), *clipped_notes(graph, samples.values, samples.source))
    return Numbers(graph, source, samples, imported, tuple(warnings))


def graph_to_plan(model: Source, calibration: Calibration | None = None, bits: int | None = None,
                  shapes: Mapping[str, Shape] | None = None, progress: Progress = silent,
                  equalise: Equalise = Equalise.AUTO, scales: Scales = Scales.POW2) -> tuple[Graph, tuple[str, ...]]:
    """The graph a plan alone needs, with notes: without calibration a float model is planned as the int8 it will become.

    Other bits, or channels that are equalised, are those of a network quantized on synthetic inputs.
    """
    if calibration is not None or bits not in (None, DEFAULT_BITS) or equalise is Equalise.ON or scales is not Scales.POW2:
        numbers = decide_numbers(model, calibration, bits, shapes, progress, equalise, scales)
        return numbers.graph, numbers.warnings
    imported = read_model(model, shapes)
    _check_bits(imported, bits)
    graph = tabulate(imported.graph)
    return graph, (*imported.notes, *((AS_INT8,) if graph.integers and not graph.quantized else ()))


def _check_bits(imported: Imported, bits: int | None) -> None:
    """Refuse bits that cannot be, and any for a network that has its own."""
    if bits is None:
        return
    check_bits(bits)
    if imported.graph.quantized:
        raise UsageError(f"--bits {bits}: {imported.graph.name} came quantized, and its numbers stay; leave out --bits, or give "
                         "the float model")
