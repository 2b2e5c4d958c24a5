"""Sets that stay in their files: a thousand classes, batches that are the same every time, interruptions, pictures, bad files."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from dovetail.cli import main
from dovetail.errors import DovetailError, UsageError
from dovetail.train import loop
from dovetail.train.batches import Augmented, Streamed, in_order
from dovetail.train.data import ROLES, Images, spread
from dovetail.train.loop import accuracy, train
from dovetail.train.networks import precision_of
from dovetail.train.recipe import Pace, TrainingRecipe
from dovetail.train.run import run
from dovetail.train.streams import load_images
from tests.train.images import packed, patterns

RECIPE = TrainingRecipe("small", "w2a2", epochs=2, batch=32, rate=0.05, pad=1, width=4)
CLASSES = 1000
CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def quiet(line: str) -> None:
    assert line


def sharded(folder: Path, images: Images, shards: int = 3) -> Path:
    """A set as files of arrays, several of each kind."""
    folder.mkdir()
    for role in ROLES:
        for k, part in enumerate(np.array_split(getattr(images, role), shards)):
            np.save(folder / f"{role}-{k}.npy", part)
    return folder


def many_classes(each: int) -> Images:
    """Four drawn colours per class, lightly disturbed."""
    rng = np.random.default_rng(8)
    kinds = np.kron(rng.integers(0, 200, (CLASSES, 3, 2, 2)), np.ones((4, 4), dtype=np.int64))
    parts = []
    for count in (each, 1):
        labels = np.repeat(np.arange(CLASSES), count)
        parts += [np.clip(kinds[labels] + rng.normal(0, 10, (len(labels), 3, 8, 8)), 0, 255).astype(np.uint8), labels]
    return Images("many", *parts)


def test_a_thousand_classes_are_learned_from_files_by_several_processes(tmp_path: Path,
                                                                         capsys: pytest.CaptureFixture[str]) -> None:
    data = sharded(tmp_path / "many", many_classes(5))
    done = main(["train", "small", "--bits", "w2a2", "--width", "16", "--epochs", "3", "--batch", "50", "--rate", "0.2",
                 "--pad", "0", "--no-flip", "--every", "3", "--device", "cpu", "--workers", "2", "--integer-images", "200",
                 "--data", str(data), "-o", str(tmp_path / "run")])
    assert done == 0
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert (result["classes"], result["train_images"], result["test_images"]) == (CLASSES, 5000, CLASSES)
    assert result["test_accuracy"] > 0.2  # 0.001 untrained
    assert result["test_top5"] > result["test_accuracy"]
    assert abs(result["integer_accuracy"] - result["torch_accuracy_on_them"]) <= 0.05
    assert result["integer_top5"] >= result["integer_accuracy"]
    assert "among five" in capsys.readouterr().out


@pytest.mark.parametrize("workers", [0, 2])
def test_files_give_the_batches_that_memory_gives(tmp_path: Path, workers: int) -> None:
    images = patterns(count=100)
    stays = load_images(sharded(tmp_path / "s", images))
    held, streamed = Augmented(images, RECIPE, CPU), Streamed(stays.train, RECIPE, CPU, workers)
    for epoch, first in ((0, 0), (3, 1)):
        both = list(zip(held.epoch(epoch, first), streamed.epoch(epoch, first), strict=True))
        assert len(both) == 3 - first
        for (x, y), (files_x, files_y) in both:
            assert torch.equal(x, files_x)
            assert torch.equal(y, files_y)
    assert stays.classes == images.classes
    x, y = next(in_order(stays.test, spread(stays.test, 3), 10, 0))
    assert torch.equal(x, torch.from_numpy(images.test_images[[0, 24, 49]]))
    assert y.tolist() == images.test_labels[[0, 24, 49]].tolist()


def test_a_run_that_is_interrupted_within_an_epoch_ends_like_one_that_was_not(tmp_path: Path,
                                                                               monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint after every step; the twelfth of sixteen is lost."""
    images, precision = load_images(sharded(tmp_path / "s", patterns(count=256))), precision_of("w2a2", "lsq")
    for name in ("whole", "broken"):
        (tmp_path / name).mkdir()
    whole, seen = train(RECIPE, precision, images, tmp_path / "whole", CPU, quiet, Pace(1))
    real, calls = loop.Stepper._step, []

    def interrupt(stepper: loop.Stepper) -> None:
        calls.append(1)
        if len(calls) == 12:
            raise KeyboardInterrupt
        real(stepper)

    monkeypatch.setattr(loop.Stepper, "_step", interrupt)
    with pytest.raises(KeyboardInterrupt):
        train(RECIPE, precision, images, tmp_path / "broken", CPU, quiet, Pace(1, minutes=0))
    heard: list[str] = []
    resumed, again = train(RECIPE, precision, images, tmp_path / "broken", CPU, heard.append, Pace(1, minutes=0))
    assert heard[0] == "resumed after epoch 1 and 3 steps of the next"
    assert len(calls) == 12 + 16 - 11
    first, second = ([(e["epoch"], e["loss"], e["test_accuracy"]) for e in entries] for entries in (seen, again))
    assert first == second
    for name, value in whole.state_dict().items():
        torch.testing.assert_close(resumed.state_dict()[name], value, rtol=0, atol=0)


def test_the_five_largest_answers_are_counted() -> None:
    """A network that answers with its first pixels: labels in first, fifth and sixth place."""
    class First(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.flatten(1)

    pixels = np.tile(np.asarray([90, 80, 70, 60, 50, 40, 30, 20, 10], dtype=np.uint8).reshape(1, 1, 3, 3), (3, 1, 1, 1))
    images = Images("x", pixels, np.asarray([0, 4, 5]), pixels, np.asarray([0, 4, 5]))
    found = accuracy(First(), images.test, spread(images.test, None), CPU)
    assert (found.top1, found.top5) == (pytest.approx(1 / 3), pytest.approx(2 / 3))
    assert str(found) == "33.33% (among five: 66.67%)"
    assert accuracy(First(), images.test, np.asarray([0]), CPU).named("test") == {"test_accuracy": 1.0, "test_top5": 1.0}


def pictured(folder: Path, classes: tuple[str, ...] = ("cat", "dog")) -> Path:
    """Pictures of two sizes and kinds, one colour per class."""
    for part in ("train", "val"):
        for k, name in enumerate(classes):
            (folder / part / name).mkdir(parents=True)
            for n, (kind, size) in enumerate((("PNG", (20, 12)), ("JPEG", (12, 30)))):
                Image.new("RGB", size, (200 * k, 100, 40)).save(folder / part / name / f"{n}.{kind.lower()}")
            (folder / part / name / "notes.txt").write_text("no picture")
    return folder


def test_pictures_of_any_size_are_read_by_class(tmp_path: Path) -> None:
    found = load_images(pictured(tmp_path), 8)
    assert (found.shape, found.classes, found.train.labels.tolist()) == ((3, 8, 8), 2, [0, 0, 1, 1])
    wide = found.train.read(np.asarray([3, 0]), 2)
    assert wide.shape == (2, 3, 12, 12)
    assert np.abs(wide[:, :, 0, 0].astype(int) - [[200, 100, 40], [0, 100, 40]]).max() <= 3, "margins show the picture"
    batch, labels = next(Streamed(found.train, replace(RECIPE, batch=4), CPU, 0).epoch(0))
    assert batch.shape == (4, 3, 8, 8)
    assert (batch[:, 0, 4, 4] > 100).long().tolist() == labels.tolist()


@pytest.mark.parametrize("workers", [0, 1])
def test_a_spoiled_picture_is_one_error_whoever_reads_it(tmp_path: Path, workers: int) -> None:
    found = load_images(pictured(tmp_path), 8)
    (tmp_path / "train" / "dog" / "0.png").write_bytes(b"\x89PNG not really")
    with pytest.raises(UsageError, match=r"^[^\n]*dog/0\.png: not a readable picture \([^\n]*\); remove it or put it right$"):
        list(Streamed(found.train, replace(RECIPE, batch=4), CPU, workers).epoch(0))


def test_folders_of_pictures_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    folder = pictured(tmp_path)
    with pytest.raises(UsageError, match="pictures of any size; say how many pixels a side is to have, with --size"):
        load_images(folder)
    (folder / "val" / "bird").mkdir()
    with pytest.raises(UsageError, match="class 'bird' has no folder of training pictures"):
        load_images(folder, 8)
    (folder / "val").rename(folder / "other")
    with pytest.raises(UsageError, match="train/ without val/ or test/"):
        load_images(folder, 8)


def spoiled(folder: Path, change: str) -> None:
    images = np.zeros((4, 3, 5, 5), np.uint8)
    for role in ROLES:
        np.save(folder / f"{role}.npy", images if role.endswith("images") else np.arange(4))
    if change == "labels":
        np.save(folder / "train_labels.npy", np.arange(5))
    elif change == "kind":
        np.save(folder / "test_images.npy", images.astype(np.float32))
    elif change == "size":
        np.save(folder / "test_images.npy", images[:, :, :4])
    elif change == "text":
        (folder / "train_images.npy").write_text("text")
    elif change == "none":
        (folder / "test_labels.npy").unlink()


@pytest.mark.parametrize(("change", "message"), [
    ("labels", r"4 images train_images \(uint8 \[3, 5, 5\]\) with 5 labels; bytes C,H,W of one size and one label each"),
    ("kind", r"4 images test_images \(float32 \[3, 5, 5\]\) with 4 labels"),
    ("size", r"training images are \[3, 5, 5\], test images \[3, 4, 5\]; they must agree"),
    ("text", r"train_images\.npy: not a readable \.npy"),
    ("none", r"without test_labels\*\.npy; give a \.npz"),
])
def test_files_that_do_not_fit_are_refused(tmp_path: Path, change: str, message: str) -> None:
    spoiled(tmp_path, change)
    with pytest.raises(DovetailError, match=message):
        load_images(tmp_path)


def test_what_only_pictures_have_and_a_pace_of_nothing_are_refused(tmp_path: Path) -> None:
    spoiled(tmp_path, "")
    with pytest.raises(UsageError, match=r"no folder of pictures .* which alone have a --size; leave it out"):
        load_images(tmp_path, 8)
    with pytest.raises(UsageError, match=r"--every 0, --minutes 10, --workers 0: at least 1 epoch"):
        Pace(0)
    with pytest.raises(UsageError, match="held in memory; --workers read images that stay in their files, leave it out"):
        run(RECIPE, packed(tmp_path, patterns(count=64)), tmp_path / "run", quiet, "cpu", Pace(1, workers=2))
    assert not (tmp_path / "run").exists()
