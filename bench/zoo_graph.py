"""Networks of the zoo as the import reads them; needs onnx and NumPy alone."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from dovetail import zoo
from dovetail.ir import Graph
from dovetail.ir.onnx_read import read_onnx


def network(name: str) -> Graph:
    """A network of the zoo, BatchNorm folded by the import; `mobilenet-v2@32` for images of 32 x 32 pixels."""
    name, _, size = name.partition("@")
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"{name}.onnx"
        path.write_bytes(zoo.build(name, size=int(size)) if size else zoo.build(name))
        return read_onnx(path).graph
