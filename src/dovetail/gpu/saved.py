"""Files of compiled networks: the graph and the chosen kernels, so that whoever loads one (`gpu.loaded`) does not tune.

A file is a zip of the network as ONNX and of choices as JSON; nothing in it is executed.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

import torch
import triton

from dovetail.errors import ModelError, UsageError
from dovetail.files import replace_bytes
from dovetail.gpu.lane import GpuProgram
from dovetail.gpu.launcher import TYPES
from dovetail.gpu.tuning import ChosenKernel
from dovetail.ir.onnx.write import to_onnx

FORMAT = 2
"""Counts changes of the file's form."""
CHOICE: Mapping[str, type] = {"run": int, "first": int, "last": int, "kernel": str, "key": str, "config": dict, "seconds": float}
"""What is kept of a chosen kernel."""


def versions() -> dict[str, str]:
    """What choices depend on, besides the network."""
    return {"gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else "none", "torch": torch.__version__,
            "triton": triton.__version__}


def save(program: GpuProgram, path: str | Path) -> None:
    """Write a network with its kernels."""
    if program.functions:
        raise UsageError("save: the network came from a module of PyTorch; save the module with torch.export.save, and compile "
                         "what torch.export.load gives: choices of kernels are remembered in DOVETAIL_CACHE")
    chosen = [{"run": s.run, "first": s.first, "last": s.last, "kernel": s.call.kernel, "key": s.call.key,
               "config": dict(s.config), "seconds": s.seconds}
              for s in program.steps if isinstance(s, ChosenKernel)]
    held = {"format": FORMAT, **versions(), "kind": program.lowered.kind, "images": program.lowered.images,
            "avoided": sorted(program.avoided), "kernels": chosen,
            "joined": sorted(first for first, choice in program.choices.items() if choice.function is not None)}
    content = BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("choices.json", json.dumps(held, indent=1))
        file.writestr("model.onnx", to_onnx(program.graph))
    replace_bytes(path, content.getvalue())


def contents(path: Path) -> tuple[dict[str, Any], bytes]:
    """Choices and the network as ONNX, as a file holds them; UsageError or ModelError where it is none, or damaged."""
    try:
        with zipfile.ZipFile(path) as file:
            held = json.loads(file.read("choices.json"))
            content = file.read("model.onnx")
    except FileNotFoundError:
        raise UsageError(f"{path}: no such file; save a compiled network there first") from None
    except (zipfile.BadZipFile, KeyError, ValueError):
        raise ModelError(f"{path}: not a saved network, or damaged; save it again") from None
    if not isinstance(held, dict) or held.get("format") != FORMAT:
        raise ModelError(f"{path}: a saved network of another form; save it again with this version")
    if not _well_formed(held):
        raise ModelError(f"{path}: choices.json is damaged; save the network again")
    return held, content


def _well_formed(held: Mapping[str, Any]) -> bool:
    """Whether choices have what `load` reads of them."""
    kernels, images, names = held.get("kernels"), held.get("images"), [held.get("avoided"), held.get("joined")]
    return (held.get("kind") in TYPES and type(images) is int and images > 0 and isinstance(kernels, list)
            and all(isinstance(some, list) and all(isinstance(name, str) for name in some) for some in names)
            and all(isinstance(one, dict) and all(isinstance(one.get(key), kind) for key, kind in CHOICE.items())
                    for one in kernels))
