"""Compiled networks in files: the graph and the chosen kernels, so that whoever loads one does not tune.

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
from dovetail.gpu.executor import Compiled, assembled, gpu_here, in_order, options_of
from dovetail.gpu.lane import Program
from dovetail.gpu.launcher import TYPES, launcher_here
from dovetail.gpu.precompile import precompile
from dovetail.gpu.tuning import ChosenKernel
from dovetail.ir.onnx.read import read_onnx
from dovetail.ir.onnx.write import to_onnx
from dovetail.kernels.lower import lower
from dovetail.numerics.tables import tabulate

FORMAT = 1
"""Counts changes of the file's form."""
CHOICE: Mapping[str, type] = {"run": int, "first": int, "last": int, "kernel": str, "key": str, "config": dict, "seconds": float}
"""What is kept of a chosen kernel."""


def versions() -> dict[str, str]:
    """What choices depend on, besides the network."""
    return {"gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else "none", "torch": torch.__version__,
            "triton": triton.__version__}


def save(network: Compiled, path: str | Path) -> None:
    """Write a network with its kernels."""
    if network.program.functions:
        raise UsageError("save: the network came from a module of PyTorch; save the module with torch.export.save, and compile "
                         "what torch.export.load gives: choices of kernels are remembered in DOVETAIL_CACHE")
    chosen = [{"run": s.run, "first": s.first, "last": s.last, "kernel": s.call.kernel, "key": s.call.key,
               "config": dict(s.config), "seconds": s.seconds}
              for s in network.program.steps if isinstance(s, ChosenKernel)]
    held = {"format": FORMAT, **versions(), "kind": network.lowered.kind, "images": network.images,
            "avoided": sorted(network.program.avoided), "kernels": chosen}
    content = BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("choices.json", json.dumps(held, indent=1))
        file.writestr("model.onnx", to_onnx(network.graph))
    replace_bytes(path, content.getvalue())


def load(path: str | Path) -> Compiled:
    """A saved network on this GPU, as it was saved; UsageError where it was made for another GPU or version."""
    held, content = _contents(Path(path))
    here = versions()
    if differ := [f"{name} {held.get(name)}, here {own}" for name, own in here.items() if held.get(name) != own]:
        raise UsageError(f"{path}: made with {'; '.join(differ)}; kernels were chosen for those: compile the model here")
    graph, kind = tabulate(read_onnx(content).graph), held["kind"]
    lowered = lower(graph, kind, gpu_here(), held["images"], library=True, avoided=held["avoided"])
    ways = {(run, first, last, call.key): call for run, each in enumerate(options_of(lowered, whole=True))
            for first, last, call in each}
    parts = []
    for one in held["kernels"]:
        place = (one["run"], one["first"], one["last"], one["key"])
        if place not in ways or one["config"] not in ways[place].configs:
            raise ModelError(f"{path}: kernel {one['kernel']} of run {one['run']} is none of this version's; compile the model "
                             "again")
        parts.append(ChosenKernel(one["run"], one["first"], one["last"], ways[place], one["config"], one["seconds"]))
    launcher = launcher_here(kind)
    if launcher.device != "cpu":
        precompile([launcher.described(part.call, part.config) for part in parts])
    return assembled(Program(graph, lowered, in_order(lowered, parts), {}, frozenset(held["avoided"])), launcher)


def _contents(path: Path) -> tuple[dict[str, Any], bytes]:
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
    kernels, images, avoided = held.get("kernels"), held.get("images"), held.get("avoided")
    return (held.get("kind") in TYPES and type(images) is int and images > 0 and isinstance(kernels, list)
            and isinstance(avoided, list) and all(isinstance(name, str) for name in avoided)
            and all(isinstance(one, dict) and all(isinstance(one.get(key), kind) for key, kind in CHOICE.items())
                    for one in kernels))
