"""How close integers come to the float network: the noise in every tensor, and the answers at the end.

Signal-to-noise ratios, in decibels, compare the quantized graph, as real values, with the float graph on the same samples. Top-1
agreement is the fraction of samples for which both give the same class the largest score.

Beside them stands ONNX Runtime's own static int8 quantization of the same network with the same samples: QDQ, per-channel
weights, MinMax ranges, what `onnxruntime.quantization.quantize_static` does unless told otherwise, but for `per_channel`. Its
model runs with graph optimisations off, so its rounding is that of its scales alone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from math import inf, isfinite, log10
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import numpy as np

from dovetail.errors import ModelError
from dovetail.ir import Array, Graph
from dovetail.ir.onnx.write import to_onnx
from dovetail.numerics.calibration import Samples
from dovetail.numerics.fast import quantized_values, run_quantized
from dovetail.numerics.observe import chunks, float_values
from dovetail.numerics.oracle import session
from dovetail.numerics.reference import batches, collect_outputs, own_frames
from dovetail.progress import Progress

UNDEFINED = "top-1 agreement is not defined: the network has no single output of class scores"


def snr_db(signal: float, noise: float) -> float:
    """Of two powers (or sums of squares); infinite where there is no noise."""
    return inf if noise <= 0.0 else -inf if signal <= 0.0 else 10 * log10(signal / noise)


def powers(expected: Array, found: Array) -> tuple[float, float]:
    """Sums of squares of the expected values and of the difference."""
    reals = np.asarray(expected, dtype=np.float64)
    return float(np.square(reals).sum()), float(np.square(np.asarray(found, dtype=np.float64) - reals).sum())


def outputs_snr_db(expected: Mapping[str, Array], found: Mapping[str, Array]) -> float | None:
    """Mean over the outputs that hold floats; None where none does."""
    ratios = [snr_db(*powers(x, found[name])) for name, x in expected.items() if x.dtype.kind == "f"]
    return sum(ratios) / len(ratios) if ratios else None


def decibels(ratio: float | None) -> str:
    return "unknown" if ratio is None else f"{ratio:.1f} dB"


@dataclass(frozen=True, slots=True)
class LayerNoise:
    """One tensor of a quantized graph beside its float original."""

    tensor: str
    node: str
    operator: str
    snr_db: float
    scheme: str
    least: float
    most: float
    """What the float network reached on the samples."""


def classes(graph: Graph) -> int | None:
    """How many class scores the network gives; None where its outputs are something else."""
    if len(graph.outputs) != 1:
        return None
    _, *shape = graph.shape(graph.outputs[0]) or (1,)
    scores = [d for d in shape if d > 1]
    return scores[0] if len(scores) == 1 and shape[0] == scores[0] else None


def top_classes(scores: Array) -> Array:
    """Index of the largest score per frame; the first of equals counts."""
    return np.asarray(scores.reshape(len(scores), -1).argmax(axis=1))


def agreement(a: Array, b: Array) -> float:
    """Fraction of frames with the same top class."""
    return float((top_classes(a) == top_classes(b)).mean())


def run_single(graph: Graph, inputs: Mapping[str, Array], done: Callable[[int], None] | None = None) -> dict[str, Array]:
    """The outputs of a float graph in float32; `done` hears after how many frames."""
    return collect_outputs(graph, chunks(graph, inputs), lambda chunk: float_values(graph, chunk), done)


def layer_noise(source: Graph, graph: Graph, samples: Samples, progress: Progress) -> list[LayerNoise]:
    """Every quantized tensor, in the network's order; `source` is the float graph the integers were made from."""
    integer, sums = quantized_values(graph), dict[str, tuple[float, float]]()
    ends: dict[str, tuple[float, float]] = {}
    for rows, chunk in chunks(graph, samples.values):
        for (name, real), (_, found) in zip(float_values(source, chunk), integer(chunk), strict=True):
            if graph.tensors[name].scheme is not None:
                signal, noise = powers(*(own_frames(x, range(len(rows)), len(chunk[graph.inputs[0]])) for x in (real, found)))
                before = sums.get(name, (0.0, 0.0))
                sums[name] = (before[0] + signal, before[1] + noise)
                least, most = ends.get(name, (inf, -inf))
                ends[name] = (min(least, float(real.min())), max(most, float(real.max())))
        progress("compare", rows.stop, samples.count)
    makers = {n.output: n for n in graph.nodes}
    return [LayerNoise(name, makers[name].name if name in makers else "", makers[name].op.kind if name in makers else "input",
                       snr_db(*pair), str(graph.tensors[name].scheme), *ends[name]) for name, pair in sums.items()]


def _typed(graph: Graph, chunk: Mapping[str, Array]) -> dict[str, Array]:
    return {name: x.astype(graph.tensors[name].dtype) for name, x in chunk.items()}


def static_int8(graph: Graph, samples: Samples) -> bytes:
    """The float graph as ONNX Runtime's quantizer writes it.

    Raises:
        ModelError: that quantizer does not take the network.
    """
    from onnxruntime import quantization  # slow to import, and only comparisons need it
    chunks_left = (_typed(graph, chunk) for _, chunk in batches(graph, samples.values))
    reader = SimpleNamespace(get_next=lambda: next(chunks_left, None))  # samples as it asks for them, batch after batch
    with TemporaryDirectory() as name, ExitStack() as at_end:
        at_end.callback(logging.disable, logging.root.manager.disable)
        logging.disable(logging.WARNING)  # it advises how to prepare a model, which was prepared
        source, prepared, target = (Path(name) / f"{stage}.onnx" for stage in ("float", "prepared", "int8"))
        source.write_bytes(to_onnx(graph))
        try:
            quantization.shape_inference.quant_pre_process(str(source), str(prepared), skip_symbolic_shape=True)
            quantization.quantize_static(str(prepared), str(target), reader, per_channel=True,
                                         quant_format=quantization.QuantFormat.QDQ)
        except Exception as error:  # whatever it stumbles over, the comparison is what falls away
            reason = (str(error) or type(error).__name__).splitlines()[0]
            raise ModelError(f"network {graph.name}: ONNX Runtime's static quantization failed ({reason})") from None
        return target.read_bytes()


def compare(network: Graph, graph: Graph, samples: Samples | str, inputs: Mapping[str, Array],
            progress: Progress) -> tuple[dict[str, dict[str, Array]], str]:
    """Outputs of the float network, our integers and ONNX Runtime's int8, by name; and why the last is missing, if it is.

    `samples` are those that calibrated the integers: they calibrate ONNX Runtime's quantizer as well. Where they are not at
    hand, the reason stands in their place and nothing of ONNX Runtime's is compared. `inputs` are what all compute.
    """
    total = len(next(iter(inputs.values())))
    found = {"float": run_single(network, inputs, lambda n: progress("float", n, total)),
             "int8": run_quantized(graph, inputs, lambda n: progress("integers", n, total))}
    if isinstance(samples, str):
        return found, samples
    try:
        progress("ONNX Runtime's int8", 0, total)
        runner, names = session(static_int8(network, samples)), list(network.outputs)
        found["onnxruntime_int8"] = collect_outputs(
            network, batches(network, inputs), lambda chunk: zip(names, runner.run(names, _typed(network, chunk)), strict=True),
            lambda n: progress("ONNX Runtime's int8", n, total))
    except ModelError as error:
        return found, str(error)
    return found, ""


def answers(network: Graph, outputs: Mapping[str, Mapping[str, Array]]) -> dict[str, Any]:
    """Output noise and agreement with the float network, as JSON; a ratio without noise is None."""
    expected = outputs["float"]
    scored = classes(network) is not None
    rest = {name: x for name, x in outputs.items() if name != "float"}
    return {"snr_db": {name: finite(outputs_snr_db(expected, x)) for name, x in rest.items()},
            "agreement": {name: agreement(expected[network.outputs[0]], x[network.outputs[0]]) for name, x in rest.items()}
            if scored else None,
            "agreement_note": "" if scored else UNDEFINED}


MEASURES = {"output SNR": ("snr_db", "{:.1f} dB"), "agreement with float": ("agreement", "{:.4f}"),
            "right answers": ("right", "{:.4f}")}
"""What integers are judged by: its key, and how it is written."""


def peer_lead(found: Mapping[str, Any], right: Mapping[str, float | None] | None = None) -> str:
    """In words, where ONNX Runtime's int8 is more accurate than our integers; empty where it is not, or is not compared.

    `found` is of `answers`, `right` the fraction of right answers by way.
    """
    leads = []
    for name, (key, form) in MEASURES.items():
        values = (right if key == "right" else found[key]) or {}
        ours, theirs = (values.get(way) for way in ("int8", "onnxruntime_int8"))
        if ours is not None and theirs is not None and form.format(theirs) != form.format(ours) and theirs > ours:
            leads.append(f"{name} ({form.format(theirs)} against {form.format(ours)})")
    return f"ONNX Runtime's int8 is more accurate than these integers by {', '.join(leads)}" if leads else ""


def finite(ratio: float | None) -> float | None:
    return None if ratio is None or not isfinite(ratio) else ratio


def report(network: Graph, source: Graph, graph: Graph, samples: Samples, progress: Progress) -> dict[str, Any]:
    """What `dovetail quantize --report` knows, as JSON: layers worst first, then the outputs beside ONNX Runtime's int8."""
    layers = sorted(layer_noise(source, graph, samples, progress), key=lambda x: x.snr_db)
    outputs, missing = compare(network, graph, samples, samples.values, progress)
    return {"samples": samples.count, "calibration": samples.source,
            "layers": [asdict(x) | {"snr_db": finite(x.snr_db)} for x in layers],
            **(found := answers(network, outputs)), "peer_lead": peer_lead(found), "peer_note": missing}
