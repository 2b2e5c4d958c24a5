"""Images and runs of trained codes as few small files, and runs side by side that are finished elsewhere."""

from __future__ import annotations

import json
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

from PIL import Image

import lq_training
from dovetail.errors import UsageError
from lib.lq_carry import pack_images, pack_runs, unpack_images, unpack_runs


def npm_package(folder: Path, count: int) -> dict[str, np.ndarray]:
    """A folder like the unpacked package, with so many images in each of its six pictures."""
    rng = np.random.default_rng(1)
    folder.mkdir()
    found: dict[str, list[np.ndarray]] = {"train": [], "test": []}
    for name in (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"):
        images = rng.integers(0, 256, (count, 32, 32, 3)).astype(np.uint8)
        Image.fromarray(images.reshape(count, 1024, 3)).save(folder / f"{name}.png")
        found["test" if name == "test_batch" else "train"].append(images.transpose(0, 3, 1, 2))
    for role in found:
        labels = [int(x) for x in rng.integers(0, 10, count * len(found[role]))]
        (folder / f"{role}_lables.json").write_text(json.dumps(labels))
    return {role: np.concatenate(images) for role, images in found.items()}


def test_images_come_back_as_they_were(tmp_path: Path) -> None:
    images = npm_package(tmp_path / "package", 60)
    made = pack_images(tmp_path / "package", tmp_path / "packed")
    assert [p.name for p in made] == ["train-00.webp", "test-00.webp"]
    assert unpack_images(tmp_path / "packed", tmp_path / "x.npz") == {"train": 300, "test": 60}
    with np.load(tmp_path / "x.npz") as found:
        for role, expected in images.items():
            np.testing.assert_array_equal(found[f"{role}_images"], expected)
            labels = json.loads((tmp_path / "package" / f"{role}_lables.json").read_text())
            assert found[f"{role}_labels"].tolist() == labels
    for path in (tmp_path / "packed").glob("test-*"):
        path.unlink()
    assert unpack_images(tmp_path / "packed", tmp_path / "x.npz") == {"train": 300, "test": 0}
    with pytest.raises(UsageError, match=r"no train-\*\.webp in it"):
        unpack_images(tmp_path, tmp_path / "x.npz")


def test_runs_come_back_as_they_were_and_what_is_done_stays(tmp_path: Path) -> None:
    rng, sizes = np.random.default_rng(2), {"a": ("model.pt", 3000), "b": ("checkpoint.pt", 4000), "c": ("trained.json", 50)}
    for name, (what, size) in sizes.items():
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / what).write_bytes(rng.bytes(size))
    parts = pack_runs(tmp_path / "runs", tmp_path / "parts", 0.004, 1)
    assert [p.name for p in parts] == [f"runs.tar.{k}" for k in range(len(parts))]
    assert len(parts) > 2
    assert unpack_runs(parts, tmp_path / "back") == ["c", "a", "b"]
    for name, (what, _) in sizes.items():
        assert (tmp_path / "back" / name / what).read_bytes() == (tmp_path / "runs" / name / what).read_bytes()
    (tmp_path / "back" / "a" / "result.json").write_text("{}")
    (tmp_path / "back" / "a" / "model.pt").write_bytes(b"finished")
    assert unpack_runs(parts, tmp_path / "back") == ["c", "b"]
    assert (tmp_path / "back" / "a" / "model.pt").read_bytes() == b"finished"
    assert unpack_runs(pack_runs(tmp_path / "runs", tmp_path / "few", 1, 0.004), tmp_path / "third") == ["c", "a"]


def test_parts_that_hold_something_else_are_refused(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("x")
    with tarfile.open(tmp_path / "runs.tar.0", "w") as file:
        file.add(tmp_path / "x", "../model.pt")
    with pytest.raises(UsageError, match="no file of a run"):
        unpack_runs([tmp_path / "runs.tar.0"], tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow("trains a network and exports it in a process of its own")
def test_runs_are_trained_side_by_side_and_finished_by_another_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    np.savez(tmp_path / "x.npz", train_images=rng.integers(0, 256, (128, 3, 8, 8)).astype(np.uint8),
             train_labels=np.arange(128) % 10, test_images=rng.integers(0, 256, (20, 3, 8, 8)).astype(np.uint8),
             test_labels=np.arange(20) % 10)

    def call(*more: str) -> int:
        monkeypatch.setattr(sys, "argv", ["lq_training.py", "resnet20-float", "--seeds", "1", "--epochs", "1", "--data",
                                          str(tmp_path / "x.npz"), "--runs", str(tmp_path / "runs"), "--device", "cpu", *more])
        return lq_training.main()

    assert call("--lanes", "2") == 0
    assert sorted(p.name for p in (tmp_path / "runs" / "resnet20-float-0").iterdir()) == ["model.pt", "trained.json"]
    assert call("--finish", "--json", str(tmp_path / "out.json")) == 0
    assert list(json.loads((tmp_path / "out.json").read_text())["experiments"]) == ["resnet20-float"]
