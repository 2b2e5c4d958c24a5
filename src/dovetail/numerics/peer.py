"""ONNX Runtime's own static int8 quantization of the same network with the same samples, for comparison.

QDQ, per-channel weights, MinMax ranges: what `onnxruntime.quantization.quantize_static` does unless told otherwise,
but for `per_channel`. Its model runs with graph optimisations off, so its rounding is that of its scales alone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from dovetail.errors import ModelError
from dovetail.ir import Array, Graph
from dovetail.ir.onnx.write import to_onnx
from dovetail.numerics.calibration import Samples
from dovetail.numerics.oracle import session
from dovetail.numerics.reference import batches, collect_outputs


class _Reader:
    """Samples as ONNX Runtime asks for them, one batch after another."""

    def __init__(self, graph: Graph, values: Mapping[str, Array]) -> None:
        self.batches: Iterator[dict[str, Array]] = (_typed(graph, chunk) for _, chunk in batches(graph, values))

    def get_next(self) -> dict[str, Array] | None:
        return next(self.batches, None)


def _typed(graph: Graph, chunk: Mapping[str, Array]) -> dict[str, Array]:
    return {name: x.astype(graph.tensors[name].dtype) for name, x in chunk.items()}


def static_int8(graph: Graph, samples: Samples) -> bytes:
    """The float graph as ONNX Runtime's quantizer writes it.

    Raises:
        ModelError: that quantizer does not take the network.
    """
    from onnxruntime import quantization  # slow to import, and only comparisons need it
    with TemporaryDirectory() as name, _silent_logging():
        source, prepared, target = (Path(name) / f"{stage}.onnx" for stage in ("float", "prepared", "int8"))
        source.write_bytes(to_onnx(graph))
        try:
            quantization.shape_inference.quant_pre_process(str(source), str(prepared), skip_symbolic_shape=True)
            quantization.quantize_static(str(prepared), str(target), _Reader(graph, samples.values), per_channel=True,
                                         quant_format=quantization.QuantFormat.QDQ)
        except Exception as error:  # whatever it stumbles over, the comparison is what falls away
            reason = (str(error) or type(error).__name__).splitlines()[0]
            raise ModelError(f"network {graph.name}: ONNX Runtime's static quantization failed ({reason})") from None
        return target.read_bytes()


@contextmanager
def _silent_logging() -> Iterator[None]:
    """Without the quantizer's advice on how to prepare a model: it was prepared."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)


def run_peer(content: bytes, graph: Graph, inputs: Mapping[str, Array],
             done: Callable[[int], None] | None = None) -> dict[str, Array]:
    """The outputs of `static_int8`'s model for float frames; `done` hears after how many."""
    runner, names = session(content), list(graph.outputs)
    return collect_outputs(graph, batches(graph, inputs),
                           lambda chunk: zip(names, runner.run(names, _typed(graph, chunk)), strict=True), done)
