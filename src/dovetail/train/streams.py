"""Labelled images that stay in their files: arrays by memory map, or pictures in a folder per class, as ImageNet is unpacked.

Every image is read when a batch needs it, so that a set may be larger than memory. Pictures are scaled until their shorter side
fits and cut to a square around their middle; where training shifts images, what it shifts in is more of the picture.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from dovetail.errors import ToolError, UsageError
from dovetail.train.data import ROLES, WHERE, Bytes, DataSet, ImageSource, Labels, checked_labels, held_images
from dovetail.words import counted

PICTURES = (".jpg", ".jpeg", ".png", ".bmp", ".webp", ".ppm", ".tif", ".tiff")
TESTS = ("val", "test")
"""Folders of pictures to test with, the first that is there."""


@dataclass(frozen=True, slots=True)
class StreamedImages(DataSet):
    """A data set whose images are read batch by batch."""

    name: str
    train: ImageSource
    test: ImageSource

    def __post_init__(self) -> None:
        if self.train.shape != self.test.shape:
            raise UsageError(f"{self.name}: training images are {list(self.train.shape)}, test images {list(self.test.shape)}; "
                             "they must agree")


def load_images(path: str | Path, size: int | None = None) -> DataSet:
    """The data set a path holds, in memory or in its files; see `WHERE` for what it may be. Pictures are cut to `size`."""
    path = Path(path)
    if (path / "train").is_dir():
        if size is None:
            raise UsageError(f"{path}: pictures of any size; say how many pixels a side is to have, with --size")
        return _pictures(path, size)
    if size is not None:
        raise UsageError(f"{path}: no folder of pictures (train/CLASS/, val/CLASS/), which alone have a --size; leave it out")
    if path.is_dir() and list(path.glob("train_images*.npy")):
        parts = (MappedImages(path, *ROLES[:2]), MappedImages(path, *ROLES[2:]))
        return StreamedImages(path.name, *parts)
    return held_images(path)


class MappedImages(ImageSource):
    """Shards of one array of bytes (N, C, H, W) or (N, H, W), mapped into memory when they are first read."""

    def __init__(self, folder: Path, images: str, labels: str) -> None:
        self.paths = sorted(folder.glob(f"{images}*.npy"))
        found = [checked_labels(_array(p), p) for p in sorted(folder.glob(f"{labels}*.npy"))]
        if not self.paths or not found:
            raise UsageError(f"{folder}: without {labels if self.paths else images}*.npy; {WHERE}")
        self.labels = np.concatenate(found)
        self.maps: list[Any] = []
        shapes = {p: m.shape[1:] for p, m in zip(self.paths, self._mapped(), strict=True)}
        whole = sum(len(m) for m in self.maps)
        if len(set(shapes.values())) > 1 or any(m.dtype != np.uint8 for m in self.maps) or whole != len(self.labels) or not whole:
            kinds = sorted({f"{m.dtype} {list(m.shape[1:])}" for m in self.maps})
            raise UsageError(f"{folder}: {counted(whole, 'image')} {images} ({'; '.join(kinds)}) with "
                             f"{counted(len(self.labels), 'label')}; bytes C,H,W of one size and one label each are needed")
        self.starts = np.cumsum([0, *(len(m) for m in self.maps)])
        channels, height, width = self.maps[0].shape[1:]
        self.shape = (channels, height, width)

    def _mapped(self) -> list[Any]:
        if not self.maps:
            self.maps = [_images_of(p) for p in self.paths]
        return self.maps

    def __getstate__(self) -> dict[str, Any]:
        """What another process is sent: files by name, not what is in them."""
        return {**self.__dict__, "maps": []}

    def read(self, rows: Labels, margin: int = 0) -> Bytes:
        channels, height, width = self.shape
        found = np.zeros((len(rows), channels, height + 2 * margin, width + 2 * margin), dtype=np.uint8)
        inner = found[:, :, margin:margin + height, margin:margin + width]
        for held, (start, stop) in zip(self._mapped(), pairwise(self.starts), strict=True):
            own = np.flatnonzero((rows >= start) & (rows < stop))
            inner[own] = held[rows[own] - start]
        return found


def _array(path: Path) -> Any:
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise UsageError(f"{path}: not a readable .npy ({error}); {WHERE}") from None


def _images_of(path: Path) -> Any:
    found = _array(path)
    if found.ndim not in (3, 4):
        raise UsageError(f"{path}: an array of shape {list(found.shape)}; bytes N,C,H,W or N,H,W are needed")
    return found[:, None] if found.ndim == 3 else found


class Pictures(ImageSource):
    """Pictures of any size and kind as colours of `size` by `size` pixels; needs Pillow."""

    def __init__(self, paths: list[Path], labels: Labels, size: int) -> None:
        self.paths, self.labels, self.shape = paths, labels, (3, size, size)

    def read(self, rows: Labels, margin: int = 0) -> Bytes:
        side = self.shape[1] + 2 * margin
        return np.stack([_picture(self.paths[row], side) for row in rows])


def _picture(path: Path, side: int) -> Bytes:
    from PIL import Image, ImageOps
    try:
        with Image.open(path) as picture:
            picture.draft("RGB", (side, side))
            whole = ImageOps.fit(picture.convert("RGB"), (side, side), Image.Resampling.BILINEAR)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise UsageError(f"{path}: not a readable picture ({error}); remove it or put it right") from None
    return np.asarray(whole, dtype=np.uint8).transpose(2, 0, 1)


def _pictures(folder: Path, size: int) -> StreamedImages:
    try:
        import PIL  # noqa: F401
    except ModuleNotFoundError:
        raise ToolError(f"{folder}: pictures need Pillow; get it with pip install 'dovetail-accel[train]'") from None
    if size < 1:
        raise UsageError(f"{folder}: pictures of {size} pixels a side; at least one is needed")
    tests = next((folder / name for name in TESTS if (folder / name).is_dir()), None)
    if tests is None:
        raise UsageError(f"{folder}: train/ without {' or '.join(f'{t}/' for t in TESTS)}; {WHERE}")
    classes = sorted(p.name for p in (folder / "train").iterdir() if p.is_dir())
    return StreamedImages(folder.name, _of_classes(folder / "train", classes, size), _of_classes(tests, classes, size))


def _of_classes(folder: Path, classes: list[str], size: int) -> Pictures:
    """Every picture below the folders of classes, in the order of their names."""
    unknown = sorted({p.name for p in folder.iterdir() if p.is_dir()} - set(classes))
    if unknown:
        raise UsageError(f"{folder}: class {unknown[0]!r} has no folder of training pictures; remove it or add one")
    paths, labels = list[Path](), list[int]()
    for label, name in enumerate(classes):
        own = sorted(entry.name for entry in os.scandir(folder / name) if Path(entry.name).suffix.lower() in PICTURES) \
            if (folder / name).is_dir() else []
        paths += [folder / name / p for p in own]
        labels += [label] * len(own)
    if not paths:
        raise UsageError(f"{folder}: no pictures in {counted(len(classes), 'folder')} of classes; {', '.join(PICTURES)} are read")
    return Pictures(paths, np.asarray(labels, dtype=np.int64), size)
