"""Small labelled images that a network can learn in a second: a pattern per class, shifted in brightness, with noise."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from dovetail.train.data import Images


def patterns(shape: tuple[int, int, int] = (1, 12, 12), classes: int = 4, count: int = 512, seed: int = 3) -> Images:
    rng = np.random.default_rng(seed)
    kinds = rng.integers(0, 160, (classes, *shape))
    parts = []
    for number in (count, count // 2):
        labels = rng.integers(0, classes, number).astype(np.uint8)
        noise = rng.normal(0, 40, (number, *shape)) + rng.uniform(0, 60, (number, 1, 1, 1))
        parts += [np.clip(kinds[labels] + noise, 0, 255).astype(np.uint8), labels]
    return Images("patterns", *parts)


def packed(folder: Path, images: Images) -> Path:
    path = folder / "patterns.npz"
    np.savez(path, train_images=images.train_images, train_labels=images.train_labels, test_images=images.test_images,
             test_labels=images.test_labels)
    return path
