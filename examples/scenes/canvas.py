"""Scenes to segment: one or two garments of Fashion-MNIST on a cluttered canvas, drawn from a seed, with a class per pixel.

Needs numpy and the standard library only.
"""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

DATA_DIR = Path("/usr/share/datasets/fashion-mnist")  # the Debian package dataset-fashion-mnist
KINDS = ("background", "top or dress", "trousers", "shoe", "bag")
KIND_OF_LABEL = np.array([1, 2, 1, 1, 1, 3, 1, 3, 4, 3])  # by Fashion-MNIST's ten labels
SIDE, ITEM = 48, 28  # pixels of a canvas and of a garment
VISIBLE = 24  # a garment's pixels are those brighter than this


def garments(split: str, folder: Path = DATA_DIR) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Images ``(N, 28, 28)`` and the kinds of one split, ``train`` or ``t10k``."""
    def bytes_of(name: str, header: int) -> NDArray[np.uint8]:
        path = folder / f"{split}-{name}-ubyte.gz"
        if not path.is_file():
            raise FileNotFoundError(f"{path} not found; install it with\n    apt-get install -y dataset-fashion-mnist")
        return np.frombuffer(gzip.decompress(path.read_bytes()), np.uint8, offset=header)
    return bytes_of("images-idx3", 16).reshape(-1, ITEM, ITEM), KIND_OF_LABEL[bytes_of("labels-idx1", 8)]


def scene(images: NDArray[np.uint8], kinds: NDArray[np.int64],
          rng: np.random.Generator) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """A canvas and the kind of each of its pixels; later garments cover earlier ones."""
    canvas = np.full((SIDE, SIDE), rng.integers(0, 60), np.float64) + rng.normal(0, 8, (SIDE, SIDE))
    for _ in range(rng.integers(3, 8)):  # clutter: rectangles and bars of one brightness, as bright as garments
        h, w = rng.integers(2, 16, 2)
        y, x = rng.integers(0, SIDE - h), rng.integers(0, SIDE - w)
        canvas[y:y + h, x:x + w] = rng.integers(20, 230) + rng.normal(0, 12, (h, w))
    truth = np.zeros((SIDE, SIDE), np.uint8)
    for _ in range(rng.integers(1, 3)):
        pick = rng.integers(len(images))
        y, x = rng.integers(0, SIDE - ITEM + 1, 2)
        item = images[pick][:, ::rng.choice((-1, 1))].astype(np.float64)
        shown = item > VISIBLE
        canvas[y:y + ITEM, x:x + ITEM][shown] = item[shown]
        truth[y:y + ITEM, x:x + ITEM][shown] = kinds[pick]
    return np.clip(canvas, 0, 255).astype(np.uint8), truth


def scenes(split: str, count: int, seed: int, folder: Path = DATA_DIR) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Canvases ``(count, 1, 48, 48)`` and the kinds of their pixels ``(count, 48, 48)``."""
    images, kinds = garments(split, folder)
    rng = np.random.default_rng(seed)
    drawn = [scene(images, kinds, rng) for _ in range(count)]
    return np.stack([c for c, _ in drawn])[:, None], np.stack([t for _, t in drawn])
