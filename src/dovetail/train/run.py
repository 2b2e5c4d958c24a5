"""From a recipe to a folder of results: trained, exported, and compared in exact integers with what torch computes."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from platform import machine, python_version
from typing import Any

import numpy as np
import torch

from dovetail.errors import UsageError
from dovetail.files import replace_bytes, replace_text
from dovetail.ir import Array, Graph
from dovetail.ir.onnx.read import read_onnx
from dovetail.ir.onnx.write import to_onnx
from dovetail.numerics.fixed import quantize
from dovetail.numerics.reference import run_integer
from dovetail.train import imported
from dovetail.train.data import Bytes, DataSet, Images, ImageSource, Labels, spread
from dovetail.train.export import to_graph
from dovetail.train.loop import CHECKPOINT, TOP, Heard, Hits, accuracy, course_of, load, network_of, save
from dovetail.train.networks import precision_of
from dovetail.train.recipe import Pace, TrainingRecipe
from dovetail.train.streams import load_images
from dovetail.words import counted

SCHEMA = 1
MODEL, TRAINED = "model.pt", "trained.json"
"""Files of a run that is trained: its weights, and until it is finished what else is known of it."""
CALIBRATION = 256
"""Training images that show how large fixed-point tensors become."""


def integer_accuracy(graph: Graph, source: ImageSource, rows: Labels, batch: int = 100,
                     read: Callable[[Bytes], Array] = lambda x: x) -> Hits:
    """Accuracy of the exported integers in the reference, on images by number.

    `read` turns bytes into the integers that the graph takes, where these are not the bytes themselves.
    """
    compute = _computing()
    right, among = 0, 0
    for start in range(0, len(rows), batch):
        own = rows[start:start + batch]
        answer = compute(graph, {graph.inputs[0]: read(source.read(own))})[graph.outputs[0]].reshape(len(own), -1)
        best = np.argsort(-answer.astype(np.int64), axis=1, kind="stable")[:, :TOP] == source.labels[own][:, None]
        right, among = right + int(best[:, 0].sum()), among + int(best.sum())
    return Hits(right / len(rows), among / len(rows) if source.labels.max() >= TOP else None)


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


def run(recipe: TrainingRecipe, data: str | Path, folder: str | Path, say: Heard, device: str = "auto",
        pace: Pace | None = None, integer_images: int | None = 1000, command: Sequence[str] | None = None) -> dict[str, Any]:
    """Train, export, evaluate; `result.json` of the folder. A folder that has one is not trained again."""
    folder = Path(folder)
    done = folder / "result.json"
    found: dict[str, Any] = json.loads(done.read_text(encoding="utf-8")) if done.is_file() else {}
    if found and not recipe.differs(found.get("recipe", {})):
        say(f"{done}: there already")
        return found
    precision = precision_of(recipe.bits, recipe.method, recipe.ends)
    images = load_images(data, recipe.size)
    if pace is not None and pace.workers and isinstance(images, Images):
        raise UsageError(f"{data}: held in memory; --workers read images that stay in their files, leave it out")
    folder.mkdir(parents=True, exist_ok=True)
    chosen = torch.device(("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device)
    if (trained := read_trained(recipe, folder)) is None:
        for _ in training(recipe, images, folder, say, chosen, pace):
            pass
        trained = read_trained(recipe, folder)
        assert trained is not None
    network = network_of(recipe, recipe.network, precision, images)
    network.load_state_dict(load(folder / MODEL, "cpu")["network"])
    seen = trained.pop("epochs")
    if not seen or seen[-1]["epoch"] != recipe.epochs:
        found_hits = accuracy(network.to(chosen), images.test, spread(images.test, None), chosen)
        seen.append({"epoch": recipe.epochs, **found_hits.named("test")})
        say(f"trained {counted(recipe.epochs, 'epoch')}: test accuracy {found_hits}")
    network = network.cpu().eval()
    shown = images.train.read(spread(images.train, CALIBRATION))
    graph = exported(network, shown, f"{Path(recipe.network).stem}_{precision}")
    replace_bytes(folder / "model.onnx", to_onnx(graph))
    result = {
        "schema": SCHEMA, "recipe": asdict(recipe), "data": images.name, "command": list(command or sys.argv),
        **trained, "train_images": len(images.train.labels), "test_images": len(images.test.labels), "classes": images.classes,
        "epochs": seen, **{key: value for key, value in seen[-1].items() if key.startswith("test_")},
        **_integers(precision.floating, folder, network, images.test, integer_images, say)}
    replace_text(done, json.dumps(result, indent=1) + "\n")
    (folder / TRAINED).unlink()
    return result


def training(recipe: TrainingRecipe, images: DataSet, folder: Path, say: Heard, device: Any,
             pace: Pace | None = None) -> Generator[None]:
    """The steps of a run one at a time; then its model, and beside it what else the result says of training."""
    started = time.monotonic()
    folder.mkdir(parents=True, exist_ok=True)
    course = course_of(recipe, precision_of(recipe.bits, recipe.method, recipe.ends), images, folder, device, say, pace)
    yield from course.steps(say)
    save(folder / MODEL, {"network": course.network.state_dict(), "recipe": asdict(recipe)})
    replace_text(folder / TRAINED, json.dumps({
        "recipe": asdict(recipe), "date": time.strftime("%Y-%m-%d", time.gmtime()), **machine_facts(device),
        "seconds": time.monotonic() - started, "epochs": course.seen}) + "\n")
    (folder / CHECKPOINT).unlink(missing_ok=True)


def read_trained(recipe: TrainingRecipe, folder: Path) -> dict[str, Any] | None:
    """What is known of a run that is trained but not yet exported and evaluated; None where there is none of this recipe."""
    path = folder / TRAINED
    if not path.is_file():
        return None
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return None if recipe.differs(found.pop("recipe")) else found


def _reader(graph: Graph, network: Any) -> Callable[[Bytes], Array]:
    """How a graph's input is made of bytes: as they are, or as the nearest of its own integers."""
    if not isinstance(network, imported.ImportedNetwork):
        return lambda x: x
    scheme = graph.tensors[graph.inputs[0]].scheme
    assert scheme is not None
    return lambda x: quantize(imported.as_read(network, x).astype(np.float64), scheme).astype(scheme.dtype)


def _integers(floating: bool, folder: Path, network: Any, source: ImageSource, limit: int | None, say: Heard) -> dict[str, Any]:
    """What the file that was written computes, beside what torch says about the same images."""
    if floating:
        return {}
    graph = read_onnx(folder / "model.onnx").graph
    rows = spread(source, limit)
    exact = integer_accuracy(graph, source, rows, read=_reader(graph, network))
    peer = accuracy(network, source, rows, torch.device("cpu"))
    say(f"integers {exact}, torch {peer}, on {counted(len(rows), 'test image')}")
    return {**exact.named("integer"), "torch_accuracy_on_them": peer.top1, "integer_images": len(rows)}
