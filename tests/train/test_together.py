"""Runs side by side in one process."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from dovetail.train.loop import load  # noqa: E402
from dovetail.train.recipe import Pace, TrainingRecipe  # noqa: E402
from dovetail.train.run import run, training  # noqa: E402
from dovetail.train.together import side_by_side  # noqa: E402
from tests.train.images import patterns  # noqa: E402

RECIPE = TrainingRecipe("resnet8", "w2a2", epochs=2, batch=32, rate=0.05, width=4)
CPU = torch.device("cpu")


def quiet(line: str) -> None:
    del line


def weights(folder: Path) -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = load(folder / "model.pt", "cpu")["network"]
    return found


def test_runs_side_by_side_end_like_each_alone(tmp_path: Path) -> None:
    images = patterns(count=128)
    recipes = [replace(RECIPE, seed=0), replace(RECIPE, seed=1), replace(RECIPE, method="lsq")]
    for k, recipe in enumerate(recipes):
        assert len(list(training(recipe, images, tmp_path / f"alone{k}", quiet, CPU))) == 2 * 128 // 32
    waiting = [training(r, images, tmp_path / f"beside{k}", quiet, CPU) for k, r in enumerate(recipes)]
    side_by_side(lambda: waiting.pop(0) if waiting else None, 2, CPU)
    for k in range(len(recipes)):
        alone, beside = weights(tmp_path / f"alone{k}"), weights(tmp_path / f"beside{k}")
        assert alone.keys() == beside.keys()
        assert all(torch.equal(alone[n], beside[n]) for n in alone)


def test_runs_that_are_closed_go_on_where_they_were(tmp_path: Path) -> None:
    images = patterns(count=128)
    list(training(RECIPE, images, tmp_path / "alone", quiet, CPU))
    begun = training(RECIPE, images, tmp_path / "closed", quiet, CPU)
    for _ in range(5):
        next(begun)
    begun.close()
    heard: list[str] = []
    list(training(RECIPE, images, tmp_path / "closed", heard.append, CPU))
    assert heard[0] == "resumed after epoch 1 and 1 step of the next"
    alone, closed = weights(tmp_path / "alone"), weights(tmp_path / "closed")
    assert all(torch.equal(alone[n], closed[n]) for n in alone)


def test_a_run_that_was_trained_elsewhere_is_only_finished(tmp_path: Path) -> None:
    images = patterns(count=128)
    np.savez(tmp_path / "x.npz", train_images=images.train_images, train_labels=images.train_labels,
             test_images=images.test_images, test_labels=images.test_labels)
    list(training(RECIPE, images, tmp_path / "run", quiet, CPU, Pace(tests=False)))
    before, heard = weights(tmp_path / "run"), list[str]()
    result = run(RECIPE, tmp_path / "x.npz", tmp_path / "run", heard.append, "cpu", integer_images=20)
    assert heard[0].startswith("trained 2 epochs: test accuracy")
    assert 0 <= result["test_accuracy"] <= 1
    assert all(torch.equal(before[n], v) for n, v in weights(tmp_path / "run").items())
    assert sorted(p.name for p in (tmp_path / "run").iterdir()) == ["model.onnx", "model.pt", "result.json"]


def test_a_lane_that_is_free_takes_the_next_run() -> None:
    said: list[str] = []

    def counting(name: str, steps: int) -> Generator[None]:
        for step in range(steps):
            said.append(f"{name}{step}")
            yield

    waiting = [counting("a", 1), counting("b", 3), counting("c", 2)]
    assert side_by_side(lambda: waiting.pop(0) if waiting else None, 2, CPU) == 1 + 3 + 2
    assert said == ["a0", "b0", "b1", "c0", "b2", "c1"]
