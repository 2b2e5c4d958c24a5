"""Labels of data sets: kept as they are, or refused."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

from dovetail.errors import UsageError
from dovetail.train.data import held_images


def stored(folder: Path, labels: np.ndarray) -> Path:
    images = np.zeros((len(labels), 1, 3, 3), np.uint8)
    np.savez(folder / "d.npz", train_images=images, train_labels=labels, test_images=images, test_labels=labels)
    return folder / "d.npz"


@pytest.mark.parametrize("kind", [np.int16, np.int64, np.uint64])
def test_labels_above_a_byte_keep_their_values(tmp_path: Path, kind: type) -> None:
    found = held_images(stored(tmp_path, np.array([0, 255, 300, 999], kind)))
    assert found.train_labels.tolist() == found.test_labels.tolist() == [0, 255, 300, 999]
    assert found.classes == 1000


@pytest.mark.parametrize(("labels", "message"), [
    (np.array([0, -1]), r"d\.npz: labels from -1 to 0; classes are counted from 0, and below 1,048,576"),
    (np.array([0, 1 << 40]), r"d\.npz: labels from 0 to 1099511627776; classes are counted from 0"),
    (np.array([0.0, 1.5]), r"d\.npz: labels of type float64; integers from 0 on are needed"),
])
def test_labels_that_are_no_classes_are_refused(tmp_path: Path, labels: np.ndarray, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        held_images(stored(tmp_path, labels))


def test_labels_of_batches_are_not_wrapped_either(tmp_path: Path) -> None:
    for name in (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"):
        content = {b"data": np.zeros((2, 3072), np.uint8), b"labels": [0, 300]}
        (tmp_path / name).write_bytes(pickle.dumps(content, protocol=2))
    assert held_images(tmp_path).test_labels.tolist() == [0, 300]
