"""What becomes of a trained network: its accuracy in exact integers beside torch's, and the whole of it as simulated hardware.

    python bench/lq_accuracy.py runs/resnet20-w2a2-0 --data cifar10.npz --json FILE
    python bench/lq_accuracy.py runs/vgg-small-w2a2-0/model.onnx --data cifar10.npz -p fic:1 --rtl-images 1 --json FILE

Takes the folder of a run (`dovetail train`, `bench/lq_training.py`) or a model in exact integers, and labelled images: an .npz
with `test_images` (bytes, N,C,H,W) and `test_labels`. `integers` is the accuracy over the test images; `reference_equal` says
that the fast way there gave the reference's integers on the first of them. `torch` is what the run's `result.json` recorded, and,
where `model.pt` is beside it and torch is installed, of how many images the answers differ. `rtl` is the whole network compiled
for a board as `dovetail compile` does it, every layer on its FPGAs, and simulated in Verilator on the first images, freely and
with stalls: bit for bit, or the first difference. Exit code 1 where that fails or a layer was not simulated.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from dovetail.errors import DovetailError, UsageError
from dovetail.files import replace_text
from dovetail.ir import Array, Graph
from dovetail.ir.onnx.read import read_onnx
from dovetail.numerics.calibration import load_arrays
from dovetail.numerics.fast import exact_nodes, run_stored
from dovetail.numerics.fixed import dequantize
from dovetail.numerics.quality import classes, top_classes
from dovetail.numerics.reference import run_integer
from dovetail.partition.plan import whole_on
from dovetail.pipeline import compile as compile_network
from dovetail.pipeline import verification_json, verify_build
from dovetail.planning import Options
from dovetail.platform.device import Kind
from dovetail.platform.load import load_platform

SCHEMA = 1
CHECKED = 32
"""Images on which the fast way is held against the reference."""
PRODUCTS = 1_200
"""Products at once, about, that a network is folded to unless told otherwise: what a simulator compiles in minutes."""
TORCH_BATCH = 250

Heard = Callable[[str], None]


def network_of(path: Path) -> tuple[Path, Graph]:
    """The model of a run's folder, or the model itself, as a quantized classifier of images."""
    model = path / "model.onnx" if path.is_dir() else path
    graph = read_onnx(model).graph
    if not graph.quantized:
        raise UsageError(f"{model}: a float network; give one of exact integers, as `dovetail train --bits w2a2` writes it")
    if len(graph.inputs) != 1 or classes(graph) is None:
        raise UsageError(f"{model}: not a classifier of one input and one output of scores; give one")
    return model, graph


def labelled_images(path: Path, graph: Graph, count: int) -> tuple[Array, Array]:
    """The first test images and their labels."""
    arrays = load_arrays(path)
    if not {"test_images", "test_labels"} <= set(arrays):
        raise UsageError(f"{path}: holds {sorted(arrays)}; test_images and test_labels are needed")
    images, labels = arrays["test_images"], arrays["test_labels"].reshape(-1)
    shape, known = graph.shape(graph.inputs[0])[1:], classes(graph) or 0
    if images.shape[1:] != shape or images.dtype != np.uint8 or len(images) != len(labels) or not len(images):
        raise UsageError(f"{path}: {len(labels)} labels for test_images of type {images.dtype} and shape {list(images.shape)}; "
                         f"bytes [N, {', '.join(map(str, shape))}] and a label each are needed")
    if int(labels.max()) >= known:
        raise UsageError(f"{path}: label {int(labels.max())}; the network has {known} classes")
    return images[:count], labels[:count]


def integers(graph: Graph, images: Array, labels: Array, say: Heard) -> tuple[Array, dict[str, Any]]:
    """Answers of the exact integers, how many are right, and that the first are the reference's."""
    name, output = graph.inputs[0], graph.outputs[0]
    started, told = time.monotonic(), [0]

    def done(count: int) -> None:
        if count - told[0] >= len(images) // 10:
            told[0] = count
            say(f"integers: {count} of {len(images)} images, {time.monotonic() - started:.0f} s")

    scores = run_stored(graph, {name: images}, done)[output]
    seconds = time.monotonic() - started
    few = images[:CHECKED]
    equal = bool(np.array_equal(run_integer(graph, {name: few})[output], scores[:len(few)]))
    answers = top_classes(scores)
    right = int((answers == labels).sum())
    exact = exact_nodes(graph)
    row = {"images": len(images), "right": right, "accuracy": right / len(images), "seconds": seconds,
           "reference_equal": equal, "reference_images": len(few),
           "layers_in_float64": [n.name for n in graph.nodes if n.name not in exact]}
    say(f"integers: {right} of {len(images)} right, {right / len(images):.2%}; {len(images) / seconds:.0f} images/s; "
        f"the first {len(few)} {'equal' if equal else 'DIFFER FROM'} the reference")
    return answers, row


def beside_torch(model: Path, graph: Graph, images: Array, answers: Array, row: dict[str, Any], limit: int,
                 say: Heard) -> dict[str, Any] | None:
    """What the run recorded, and the answers of its weights in torch on the first images; None for a model by itself."""
    record = model.with_name("result.json")
    if not record.is_file():
        say(f"torch: no {record.name} beside the model, nothing to compare with")
        return None
    known = json.loads(record.read_text(encoding="utf-8"))
    found: dict[str, Any] = {key: known[key] for key in ("test_accuracy", "test_images", "recipe")}
    if known["test_images"] == row["images"]:
        found["points_apart"] = 100 * (row["accuracy"] - known["test_accuracy"])
        say(f"torch: recorded {known['test_accuracy']:.2%}, integers {found['points_apart']:+.2f} points")
    weights = model.with_name("model.pt")
    if limit and weights.is_file():
        theirs = torch_answers(weights, known["recipe"], images[:limit], classes(graph) or 0, say)
        if theirs is not None:
            differ = int((theirs != answers[:len(theirs)]).sum())
            found |= {"compared": len(theirs), "answers_that_differ": differ}
            say(f"torch: {differ} of {len(theirs)} answers differ from the integers'")
    return found


def torch_answers(weights: Path, recipe: dict[str, Any], images: Array, count: int, say: Heard) -> Array | None:
    """The classes that the trained network gives images in torch's float32."""
    try:
        import torch
    except ImportError:
        say("torch: not installed, its answers are not compared")
        return None
    from dovetail.train.loop import load
    from dovetail.train.networks import build, precision_of
    precision = precision_of(recipe["bits"], recipe["method"], recipe["ends"])
    network = build(recipe["network"], precision, images.shape[1:], count, recipe["width"])
    network.load_state_dict(load(weights, "cpu")["network"])
    network.eval()
    found = []
    with torch.no_grad():
        for start in range(0, len(images), TORCH_BATCH):
            x = torch.as_tensor(images[start:start + TORCH_BATCH].copy()).float() / 256
            found.append(network(x).argmax(dim=1).numpy())
    return np.concatenate(found)


def hardware(model: Path, graph: Graph, images: Array, options: argparse.Namespace, folder: Path, say: Heard) -> dict[str, Any]:
    """The network compiled and simulated on images; what it takes of its board, and its clocks."""
    pace = options.fold or max(1, graph.macs // PRODUCTS)
    samples, scheme = folder / "images.npz", graph.tensors[graph.inputs[0]].scheme
    assert scheme is not None
    np.savez_compressed(samples, x=dequantize(images, scheme).astype(np.float32))
    started = time.monotonic()
    boards = [d.name for d in load_platform(options.platform).of_kind(Kind.FPGA)]
    alone = {n.name: whole_on(boards[0]) for n in graph.nodes} if len(boards) == 1 else None
    build = compile_network(model, options.platform, folder / "build", calibration=samples, verify=False, assignment=alone,
                            options=Options(fold=pace, time_limit_s=options.time_limit))
    planned = time.monotonic() - started
    placed = {d for split in build.plan.assignment.values() for d in split.devices}
    if others := sorted(placed - set(boards)):
        raise UsageError(f"{options.platform}: at {pace:,} clocks per frame {', '.join(others)} computes layers too; give a"
                         " slower --fold, or a board of one FPGA, which then gets all layers")
    say(f"rtl: {len(build.plan.assignment)} layers on {', '.join(sorted(placed))} at {pace:,} clocks per frame; simulating "
        f"{len(images)} images")
    outcome = verification_json(verify_build(build, len(images)))
    simulated = all(s["backend"] == "verilator" for s in outcome["segments"])
    state = "bit-exact" if outcome["equal"] and simulated else "NOT simulated" if outcome["equal"] else "WRONG"
    used = {d: {k: [float(v[0]), build.platform.device(d).resources.get(k)] for k, v in r.items()}
            for d, r in build.plan.resources.items() if d in placed}
    row = {"platform": options.platform, "pace_clocks": pace, "images": len(images), "bit_exact": outcome["equal"] and simulated,
           "simulated": simulated, "first_mismatch": outcome["first_mismatch"], "segments": outcome["segments"],
           "elements_compared": outcome["elements_compared"], "cycles": outcome["cycles"], "speed": outcome["speed"],
           "resources_of_limits": used, "plan_s": planned, "seconds": time.monotonic() - started}
    say(f"rtl: {state} on {len(images)} images, {row['seconds']:.0f} s in all; cycles {outcome['cycles']}")
    return row


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("network", type=Path, help="a run's folder, or an ONNX file of exact integers")
    parser.add_argument("--data", type=Path, required=True, help=".npz with test_images and test_labels")
    parser.add_argument("--images", type=int, default=10_000, help="test images for the integers (default: %(default)s)")
    parser.add_argument("--torch-images", type=int, default=1_000, help="of which torch computes again (default: %(default)s)")
    parser.add_argument("--rtl-images", type=int, default=4, help="of which are simulated; 0 for none (default: %(default)s)")
    parser.add_argument("-p", "--platform", default="zcu102", help="the board that holds the network (default: %(default)s)")
    parser.add_argument("--fold", type=int, metavar="CLOCKS", help="clocks per frame (default: about 1,200 products at once)")
    parser.add_argument("--time-limit", type=float, default=20.0, metavar="S", help="of the plan (default: %(default)s)")
    parser.add_argument("--json", type=Path, required=True)
    options = parser.parse_args(arguments)

    def say(line: str) -> None:
        print(line, flush=True)

    for name in ("images", "torch_images", "rtl_images"):
        if getattr(options, name) < (name == "images"):
            raise UsageError(f"--{name.replace('_', '-')} {getattr(options, name)}: too few; at least {int(name == 'images')}")
    model, graph = network_of(options.network)
    images, labels = labelled_images(options.data, graph, options.images)
    answers, row = integers(graph, images, labels, say)
    found: dict[str, Any] = {
        "schema": SCHEMA, "model": graph.name, "sha256": hashlib.sha256(model.read_bytes()).hexdigest(), "command": sys.argv[1:],
        "date": time.strftime("%Y-%m-%d", time.gmtime()), "integers": row,
        "torch": beside_torch(model, graph, images, answers, row, options.torch_images, say)}
    if options.rtl_images:
        with TemporaryDirectory() as folder:
            found["rtl"] = hardware(model, graph, images[:options.rtl_images], options, Path(folder), say)
    replace_text(options.json, json.dumps(found, indent=1) + "\n")
    return 0 if row["reference_equal"] and ("rtl" not in found or found["rtl"]["bit_exact"]) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except DovetailError as error:
        print(f"lq_accuracy: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
