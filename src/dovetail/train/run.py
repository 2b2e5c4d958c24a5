"""From a recipe to a folder of results: trained, exported, and compared in exact integers with what torch computes."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from platform import machine, python_version
from typing import Any

import numpy as np
import torch

from dovetail.files import replace_bytes, replace_text
from dovetail.ir import Array, Graph
from dovetail.ir.onnx.read import read_onnx
from dovetail.ir.onnx.write import to_onnx
from dovetail.numerics.fixed import quantize
from dovetail.numerics.reference import run_integer
from dovetail.train import imported
from dovetail.train.data import Bytes, Images, load_images
from dovetail.train.export import to_graph
from dovetail.train.loop import CHECKPOINT, Heard, TrainingRecipe, accuracy, save, train
from dovetail.train.networks import precision_of
from dovetail.words import counted

SCHEMA = 1
CALIBRATION = 256
"""Training images that show how large fixed-point tensors become."""


def integer_accuracy(graph: Graph, images: Images, limit: int | None, batch: int = 100,
                     read: Callable[[Bytes], Array] = lambda x: x) -> tuple[float, int]:
    """Accuracy of the exported integers in the reference, on the first `limit` test images, and how many those are.

    `read` turns bytes into the integers that the graph takes, where these are not the bytes themselves.
    """
    count = len(images.test_labels) if limit is None else min(limit, len(images.test_labels))
    compute = _computing()
    right = 0
    for start in range(0, count, batch):
        x = read(images.test_images[start:min(count, start + batch)])
        answer = compute(graph, {graph.inputs[0]: x})[graph.outputs[0]].reshape(len(x), -1)
        right += int(np.sum(answer.argmax(axis=1) == images.test_labels[start:start + len(x)]))
    return right / count, count


def _computing() -> Callable[[Graph, dict[str, Array]], dict[str, Array]]:
    """The reference, or where ONNX Runtime is installed what gives the same numbers sooner."""
    if find_spec("onnxruntime") is None:
        return run_integer
    from dovetail.numerics.fast import run_stored
    return run_stored


def exported(network: Any, images: Bytes, name: str) -> Graph:
    """A trained network as a graph, of whichever kind it is."""
    write = imported.to_graph if isinstance(network, imported.ImportedNetwork) else to_graph
    return write(network, images, name)


def machine_facts(device: Any) -> dict[str, str]:
    """What ran it."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" \
        else f"CPU ({machine()}), {counted(torch.get_num_threads(), 'thread')}"
    return {"device": name, "torch": torch.__version__, "python": python_version(), "numpy": np.__version__}


def run(recipe: TrainingRecipe, data: str | Path, folder: str | Path, say: Heard, device: str = "auto", every: int = 10,
        integer_images: int | None = 1000, command: Sequence[str] | None = None, record: bool = True) -> dict[str, Any]:
    """Train, export, evaluate; `result.json` of the folder. A folder that has one is not trained again.

    `record` lets a GPU replay its steps as CUDA graphs; without it every kernel is launched, slower but plain.
    """
    folder = Path(folder)
    done = folder / "result.json"
    if done.is_file() and json.loads(done.read_text(encoding="utf-8")).get("recipe") == asdict(recipe):
        say(f"{done}: there already")
        found: dict[str, Any] = json.loads(done.read_text(encoding="utf-8"))
        return found
    precision = precision_of(recipe.bits, recipe.method, recipe.ends)
    images = load_images(data)
    folder.mkdir(parents=True, exist_ok=True)
    chosen = torch.device(("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device)
    started = time.monotonic()
    network, seen = train(recipe, precision, images, folder, chosen, say, every, record)
    seconds = time.monotonic() - started
    save(folder / "model.pt", {"network": network.state_dict(), "recipe": asdict(recipe)})
    network = network.cpu()
    graph = exported(network, images.train_images[:CALIBRATION], f"{Path(recipe.network).stem}_{precision}")
    replace_bytes(folder / "model.onnx", to_onnx(graph))
    result = {
        "schema": SCHEMA, "recipe": asdict(recipe), "data": images.name, "command": list(command or sys.argv),
        "date": time.strftime("%Y-%m-%d", time.gmtime()), **machine_facts(chosen), "seconds": seconds,
        "train_images": len(images.train_labels), "test_images": len(images.test_labels), "epochs": seen,
        "test_accuracy": seen[-1]["test_accuracy"], **_integers(precision.floating, folder, network, images, integer_images, say)}
    replace_text(done, json.dumps(result, indent=1) + "\n")
    (folder / CHECKPOINT).unlink(missing_ok=True)
    return result


def _reader(graph: Graph, network: Any) -> Callable[[Bytes], Array]:
    """How a graph's input is made of bytes: as they are, or as the nearest of its own integers."""
    if not isinstance(network, imported.ImportedNetwork):
        return lambda x: x
    scheme = graph.tensors[graph.inputs[0]].scheme
    assert scheme is not None
    return lambda x: quantize(imported.as_read(network, x).astype(np.float64), scheme).astype(scheme.dtype)


def _integers(floating: bool, folder: Path, network: Any, images: Images, limit: int | None, say: Heard) -> dict[str, Any]:
    """What the file that was written computes, beside what torch says about the same images."""
    if floating:
        return {}
    graph = read_onnx(folder / "model.onnx").graph
    exact, count = integer_accuracy(graph, images, limit, read=_reader(graph, network))
    peer = accuracy(network, images.test_images[:count], images.test_labels[:count], torch.device("cpu"))
    say(f"integers {exact:.2%}, torch {peer:.2%}, on {counted(count, 'test image')}")
    return {"integer_accuracy": exact, "torch_accuracy_on_them": peer, "integer_images": count}
