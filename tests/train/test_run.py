"""Runs: they learn, resume where they were interrupted, write everything, and say what is wrong with what they are given."""

from __future__ import annotations

import gzip
import json
import pickle
import struct
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from dovetail.cli import main
from dovetail.errors import UsageError
from dovetail.ir.onnx.read import read_onnx
from dovetail.train import loop
from dovetail.train.batches import Augmented
from dovetail.train.data import held_images
from dovetail.train.loop import train
from dovetail.train.networks import precision_of
from dovetail.train.recipe import Pace, TrainingRecipe
from dovetail.train.run import run
from dovetail.train.streams import load_images
from tests.train.images import packed, patterns

RECIPE = TrainingRecipe("small", "w2a2", epochs=3, batch=32, rate=0.05, pad=0, flip=False, width=4)
EACH = Pace(1)
"""An evaluation after each epoch."""


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def quiet(line: str) -> None:
    assert line


@pytest.mark.parametrize("method", ["lq", "lsq", "apot"])
def test_a_network_of_two_bits_learns_and_its_integers_agree_with_torch(tmp_path: Path, method: str) -> None:
    result = run(replace(RECIPE, epochs=6, method=method), packed(tmp_path, patterns()), tmp_path / "run", quiet, "cpu", Pace(2))
    assert result["test_accuracy"] > 0.7  # 0.99 in four runs of other seeds, 0.25 untrained
    assert abs(result["integer_accuracy"] - result["torch_accuracy_on_them"]) <= 0.1  # wrong integers say 0.25
    assert [e["epoch"] for e in result["epochs"]] == [2, 4, 6]
    assert result["epochs"][-1]["loss"] < result["epochs"][0]["loss"]
    assert {p.name for p in (tmp_path / "run").iterdir()} == {"model.pt", "model.onnx", "result.json"}
    assert json.loads((tmp_path / "run" / "result.json").read_text())["recipe"]["bits"] == "w2a2"
    assert read_onnx(tmp_path / "run" / "model.onnx").graph.quantized


def test_an_interrupted_run_ends_like_one_that_was_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images, precision, cpu = patterns(count=256), precision_of("w2a2"), torch.device("cpu")
    for name in ("whole", "broken"):
        (tmp_path / name).mkdir()
    whole, _ = train(RECIPE, precision, images, tmp_path / "whole", cpu, quiet, EACH)
    real, calls = loop.accuracy, []

    def interrupt(*given):  # type: ignore[no-untyped-def]
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return real(*given)

    monkeypatch.setattr(loop, "accuracy", interrupt)
    with pytest.raises(KeyboardInterrupt):
        train(RECIPE, precision, images, tmp_path / "broken", cpu, quiet, EACH)
    heard: list[str] = []
    resumed, seen = train(RECIPE, precision, images, tmp_path / "broken", cpu, heard.append, EACH)
    assert heard[0] == "resumed after epoch 2"
    assert [e["epoch"] for e in seen] == [1, 2, 3]
    for name, value in whole.state_dict().items():
        torch.testing.assert_close(resumed.state_dict()[name], value, rtol=0, atol=0)


def test_another_recipe_does_not_resume_a_run(tmp_path: Path) -> None:
    images, precision = patterns(count=128), precision_of("w2a2")
    train(replace(RECIPE, epochs=1), precision, images, tmp_path, torch.device("cpu"), quiet)
    with pytest.raises(UsageError, match=r"checkpoint of another recipe \(epochs, rate differ\); choose another folder"):
        train(replace(RECIPE, epochs=2, rate=0.5), precision, images, tmp_path, torch.device("cpu"), quiet)


def test_fewer_bits_start_from_more_and_learn_from_floats(tmp_path: Path) -> None:
    data = packed(tmp_path, patterns())
    floats = replace(RECIPE, bits="float", epochs=2)
    run(floats, data, tmp_path / "float", quiet, "cpu", EACH)
    start = str(tmp_path / "float" / "model.pt")
    heard: list[str] = []
    result = run(replace(RECIPE, epochs=1, start=start, teacher=start), data, tmp_path / "few", heard.append, "cpu", EACH)
    assert heard[0].endswith(f"tensors from {start}")
    assert result["test_accuracy"] > 0.6  # 0.96 to 0.99 in runs of other seeds, 0.25 untrained


def test_a_teacher_may_be_another_network_but_not_one_of_few_bits(tmp_path: Path) -> None:
    data = packed(tmp_path, patterns())
    run(replace(RECIPE, network="resnet8", bits="float", epochs=1), data, tmp_path / "other", quiet, "cpu", EACH)
    taught = replace(RECIPE, epochs=2, teacher=str(tmp_path / "other" / "model.pt"), temperature=4.0)
    run(taught, data, tmp_path / "few", quiet, "cpu", EACH)
    with pytest.raises(UsageError, match=r"model.pt: a network of w2a2; a teacher is a float run's"):
        run(replace(taught, teacher=str(tmp_path / "few" / "model.pt")), data, tmp_path / "again", quiet, "cpu", EACH)


def test_what_is_learned_from_a_teacher_does_not_fade_with_temperature() -> None:
    """Zero for equal answers at any temperature; for large ones the gradient tends to the plain difference over the classes."""
    ours, theirs = torch.tensor([[1.0, 2.0, -3.0]], requires_grad=True), torch.tensor([[0.5, 2.5, -3.0]])
    assert float(loop.distance(theirs, theirs, 4.0)) == pytest.approx(0.0, abs=1e-6)
    loop.distance(ours, theirs, 1000.0).backward()
    assert torch.allclose(ours.grad, (ours.detach() - theirs) / 3, atol=1e-3)


def test_a_folder_that_is_done_is_not_trained_again(tmp_path: Path) -> None:
    data, recipe = packed(tmp_path, patterns(count=128)), replace(RECIPE, epochs=1)
    first = run(recipe, data, tmp_path / "run", quiet, "cpu", EACH)
    result = tmp_path / "run" / "result.json"
    first["recipe"].pop("size")  # as a run before pictures wrote it
    result.write_text(json.dumps(first))
    heard: list[str] = []
    assert run(recipe, data, tmp_path / "run", heard.append, "cpu", EACH) == first
    assert heard == [f"{tmp_path / 'run' / 'result.json'}: there already"]


def test_the_rate_rises_and_falls() -> None:
    cosine = replace(RECIPE, epochs=10, warmup=2, rate=1.0)
    rates = [cosine.rate_at(e / 10) for e in range(11)]
    assert rates[0] < rates[1] < rates[2] == 1.0
    assert rates[2:] == sorted(rates[2:], reverse=True)
    assert rates[10] == pytest.approx(0.0)
    step = replace(RECIPE, schedule="step", rate=1.0)
    assert [round(step.rate_at(p), 3) for p in (0.0, 0.49, 0.5, 0.75)] == [1.0, 1.0, 0.1, 0.01]


def test_an_epoch_depends_on_seed_and_number_alone() -> None:
    images = patterns(count=100)
    data = Augmented(images, replace(RECIPE, pad=1, flip=True), torch.device("cpu"))
    (first, labels), again, other = next(data.epoch(3)), next(data.epoch(3)), next(data.epoch(4))
    assert torch.equal(first, again[0])
    assert not torch.equal(first, other[0])
    assert first.shape == (32, 1, 12, 12)
    still = Augmented(images, RECIPE, torch.device("cpu"))
    x, y = next(still.epoch(3))
    assert torch.equal(y, labels)
    where = [int(np.flatnonzero((images.train_images == row.numpy()).all(axis=(1, 2, 3)))[0]) for row in x[:5]]
    assert images.train_labels[where].tolist() == y[:5].tolist()


def test_images_come_from_batches_of_cifar_and_from_idx_files(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for name in (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"):
        content = {b"data": rng.integers(0, 256, (4, 3072)).astype(np.uint8), b"labels": [0, 1, 2, 9]}
        (tmp_path / name).write_bytes(pickle.dumps(content))
    cifar = held_images(tmp_path)
    assert (cifar.shape, cifar.classes, len(cifar.train_labels), len(cifar.test_labels)) == ((3, 32, 32), 10, 20, 4)
    folder = tmp_path / "idx"
    folder.mkdir()
    for part, count in (("train", 6), ("t10k", 3)):
        pixels = rng.integers(0, 256, (count, 5, 4)).astype(np.uint8)
        (folder / f"{part}-images-idx3-ubyte.gz").write_bytes(
            gzip.compress(b"\0\0\x08\x03" + struct.pack(">3I", *pixels.shape) + pixels.tobytes()))
        (folder / f"{part}-labels-idx1-ubyte").write_bytes(b"\0\0\x08\x01" + struct.pack(">I", count) + bytes(range(count)))
    idx = held_images(folder)
    assert (idx.shape, len(idx.train_labels), idx.test_labels.tolist()) == ((1, 5, 4), 6, [0, 1, 2])


def test_shards_are_one_data_set(tmp_path: Path) -> None:
    images = patterns(count=64)
    np.savez(tmp_path / "p-0.npz", train_images=images.train_images[:40], train_labels=images.train_labels[:40])
    np.savez(tmp_path / "p-1.npz", train_images=images.train_images[40:], train_labels=images.train_labels[40:],
             test_images=images.test_images, test_labels=images.test_labels)
    found = held_images(tmp_path / "p-*.npz")
    np.testing.assert_array_equal(found.train_images, images.train_images)
    assert found.name == "p"


def test_a_batch_that_runs_code_is_refused(tmp_path: Path) -> None:
    for name in (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"):
        (tmp_path / name).write_bytes(pickle.dumps({b"data": Path("x")}))
    with pytest.raises(UsageError, match="data_batch_1: not a batch of CIFAR-10"):
        load_images(tmp_path)


@pytest.mark.parametrize(("change", "message"), [
    ({"train_images": None}, "without train_images"),
    ({"train_labels": np.zeros(3, np.int64)}, "train images of type uint8"),
    ({"test_images": np.zeros((256, 1, 5, 5), np.uint8)}, r"training images are \[1, 12, 12\], test images \[1, 5, 5\]"),
])
def test_images_that_do_not_fit_are_refused(tmp_path: Path, change: dict[str, np.ndarray | None], message: str) -> None:
    images = patterns()
    content = {k: getattr(images, k) for k in ("train_images", "train_labels", "test_images", "test_labels")} | change
    np.savez(tmp_path / "x.npz", **{k: v for k, v in content.items() if v is not None})
    with pytest.raises(UsageError, match=message):
        load_images(tmp_path / "x.npz")


def test_missing_data_says_where_it_comes_from(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "small", "--data", str(tmp_path / "none.npz"), "-o", str(tmp_path / "run")]) == 2
    said = capsys.readouterr().err
    assert "no images found there" in said
    assert "dataset-fashion-mnist" in said
    assert not (tmp_path / "run").exists()


def test_the_command_trains_and_reports(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = packed(tmp_path, patterns(count=192))
    arguments = ["train", "small", "--bits", "w2a2", "--width", "4", "--epochs", "2", "--batch", "32", "--every", "1",
                 "--pad", "0", "--rate", "0.05", "--device", "cpu", "--data", str(data), "-o", str(tmp_path / "run")]
    assert main(arguments) == 0
    found = capsys.readouterr()
    assert "epoch 2 of 2" in found.err
    assert "as integers" in found.out


def test_training_and_its_judgement_need_no_onnx_runtime(tmp_path: Path) -> None:
    """A machine with PyTorch, NumPy and onnx alone trains, exports and counts right answers."""
    data = packed(tmp_path, patterns(count=128))
    script = """
import importlib.util, sys

class Absent:
    def find_spec(self, name, *rest):
        if name.split(".")[0] in ("onnxruntime", "scipy", "cvxpy"):
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Absent())
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "onnxruntime" else find(name, *rest)
from dovetail.train.recipe import TrainingRecipe
from dovetail.train.run import run
data, folder = sys.argv[1:]
result = run(TrainingRecipe("small", "w2a2", epochs=1, batch=32, pad=0, width=4), data, folder, print, "cpu", None, 10)
print(result["integer_images"])
"""
    command = [sys.executable, "-c", script, str(data), str(tmp_path / "run")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-1] == "10"
