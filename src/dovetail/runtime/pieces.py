"""A plan as plain ONNX files: every part for ONNX Runtime alone, whatever its device, and how they are joined."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dovetail.files import replace_folder
from dovetail.ir import Tensor
from dovetail.ir.onnx.write import to_onnx
from dovetail.ir.onnx.writer import Boundary
from dovetail.runtime.build import SCHEMA, Build
from dovetail.schedule.program import Binding

PIECES = "pieces.json"
"""What says how the files are joined, and tells their folder from anything else."""


def export_pieces(build: Build, folder: Path) -> list[Path]:
    """Write the parts of a build in the order of their computing, each with the build's integers; returns the files.

    `pieces.json` names for each what region of which tensor goes in and comes out, and what integers stand for.
    """
    program = build.program
    names = [f"{number:02}-{segment.name}.onnx" for number, segment in enumerate(program.segments)]
    pieces = [{"file": name, "device": s.device, "layers": list(s.nodes), "reads": [_joint(b) for b in s.reads],
               "writes": [_joint(b) for b in s.writes]} for name, s in zip(names, program.segments, strict=True)]
    document = {"schema": SCHEMA, "model": build.graph.name, "inputs": list(build.graph.inputs),
                "outputs": list(build.graph.outputs), "tensors": {name: _numbers(t) for name, t in program.tensors.items()},
                "pieces": pieces}
    with replace_folder(folder, PIECES) as temporary:
        for name, segment in zip(names, program.segments, strict=True):
            (temporary / name).write_bytes(to_onnx(segment.graph, Boundary.INTEGER))
        (temporary / PIECES).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return [folder / name for name in names]


def _joint(binding: Binding) -> dict[str, Any]:
    """A file's input or output and the region of a tensor it is: first index and the one behind the last, per dimension."""
    return {"name": binding.name, "tensor": binding.tensor, "region": [list(span) for span in binding.region]}


def _numbers(tensor: Tensor) -> dict[str, Any]:
    """A tensor's shape, and what its integers stand for: (integer - zero) * scale; floats have neither."""
    scheme = tensor.scheme
    return {"shape": list(tensor.shape)} if scheme is None else \
        {"shape": list(tensor.shape), "bits": scheme.bits, "signed": scheme.signed, "zero": scheme.zero,
         "scales": [float(s) for s in scheme.scales], **({} if scheme.axis is None else {"axis": scheme.axis})}
