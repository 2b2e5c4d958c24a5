"""How exactly models that arrive quantized keep their numbers: zoo networks quantized by ONNX Runtime's own static quantizer.

`python bench/numerics.py --part imported --json FILE`. Each node of the imported graph is computed by our integers and by ONNX
Runtime in float32, both from the values ONNX Runtime computed before it. Arbitrary scales make ties possible that the two round
differently; they are counted, not hidden.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import logging
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

from dovetail import zoo
from dovetail.ir import Array, Opaque
from dovetail.ir.onnx.read import read_onnx
from dovetail.numerics.fixed import quantize
from dovetail.numerics.oracle import run_oracle
from dovetail.numerics.reference import run_node

NETWORKS = {"squeezenet1.1": 64, "mobilenet-v2": 64, "shufflenet-v2-0.5": 64, "googlenet": 64, "resnet18": 64}
FORMS = ((QuantFormat.QDQ, QuantType.QUInt8), (QuantFormat.QDQ, QuantType.QInt8), (QuantFormat.QOperator, QuantType.QUInt8))


class Samples(CalibrationDataReader):
    """Frames one by one, as the quantizer asks for them."""

    def __init__(self, name: str, frames: Array) -> None:
        self.rows: Iterator[dict[str, Array]] = iter([{name: f[None]} for f in frames])

    def get_next(self) -> dict[str, Array] | None:
        return next(self.rows, None)


def compare(name: str, size: int, form: QuantFormat, activation: QuantType, folder: Path) -> dict[str, object]:
    source, target = folder / f"{name}.onnx", folder / f"{name}-quantized.onnx"
    source.write_bytes(zoo.build(name, size=size))
    graph = read_onnx(source).graph
    frames = np.random.default_rng(0).normal(0, 1, (4, *graph.shape(graph.inputs[0])[1:])).astype(np.float32)
    logging.disable(logging.WARNING)
    with contextlib.redirect_stdout(io.StringIO()):
        quantize_static(source, target, Samples(graph.inputs[0], frames), quant_format=form, per_channel=True,
                        activation_type=activation, weight_type=QuantType.QInt8)
    graph = read_onnx(target).graph
    scheme = graph.tensors[graph.inputs[0]].scheme
    assert scheme is not None
    values = {graph.inputs[0]: quantize(frames[:1].astype(np.float64), scheme).astype(scheme.dtype)}
    values |= run_oracle(graph, values)
    different, largest, elements = 0, 0, 0
    for node in graph.nodes:
        ours = run_node(graph, node, [values[t] for t in node.inputs])
        gap = np.abs(ours.astype(np.float64) - values[node.output])
        different, largest, elements = different + int(np.count_nonzero(gap)), max(largest, int(gap.max())), elements + gap.size
    return {"network": name, "size": size, "form": f"{form.name} {activation.name}", "nodes": len(graph.nodes),
            "foreign": sum(isinstance(n.op, Opaque) for n in graph.nodes), "elements": elements, "different": different,
            "largest_difference": largest}


def main(asked: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", metavar="FILE", help="write the figures as JSON")
    options = parser.parse_args(asked)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name, size in NETWORKS.items():
            for form, activation in FORMS:
                row = compare(name, size, form, activation, Path(folder))
                print(f"{row['network']:18} {row['form']:16} {row['nodes']:4} nodes, {row['foreign']} foreign: "
                      f"{row['different']} of {row['elements']:,} outputs differ, by at most {row['largest_difference']}",
                      flush=True)
                rows.append(row)
    total, different = sum(r["elements"] for r in rows), sum(r["different"] for r in rows)  # type: ignore[misc]
    print(f"in all {different} of {total:,}")
    if options.json:
        Path(options.json).write_text(json.dumps({"different": different, "elements": total, "networks": rows}, indent=1) + "\n")

