"""Labelled images from local files: an .npz (or shards of one), CIFAR-10's Python batches, or IDX files such as Fashion-MNIST's.

These are held in memory; sets that are larger stay in their files (`streams.py`). Nothing is downloaded; what is missing is named
together with where it comes from.
"""

from __future__ import annotations

import gzip
import io
import pickle
import struct
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.errors import UsageError
from dovetail.words import counted

Bytes = NDArray[np.uint8]
Labels = NDArray[np.int64]
MOST_CLASSES = 1 << 20
"""Labels from here on are something else, such as times: the last layer has a row of weights for every class."""
WHERE = ("give a .npz with train_images, train_labels, test_images, test_labels (images as bytes N,C,H,W or N,H,W, labels "
         "as integers), shards of one (NAME-*.npz), a folder of CIFAR-10's Python batches (cs.toronto.edu/~kriz/cifar.html), "
         "a folder of IDX files (Fashion-MNIST: Debian package dataset-fashion-mnist, /usr/share/datasets/fashion-mnist), a "
         "folder of train_images*.npy, train_labels*.npy, test_images*.npy, test_labels*.npy, or one of pictures, "
         "train/CLASS/ and val/CLASS/, as ImageNet is unpacked")
ROLES = ("train_images", "train_labels", "test_images", "test_labels")
IDX = {"train_images": "train-images-idx3-ubyte", "train_labels": "train-labels-idx1-ubyte",
       "test_images": "t10k-images-idx3-ubyte", "test_labels": "t10k-labels-idx1-ubyte"}


class ImageSource(ABC):
    """Labelled images that are read as they are asked for: bytes (C, H, W) each."""

    shape: tuple[int, int, int]
    labels: Labels

    @abstractmethod
    def read(self, rows: Labels, margin: int = 0) -> Bytes:
        """Images by number, so many pixels larger on each side: of the picture where it has more, else zeros."""


class DataSet(ABC):
    """Images to train with and images to test with."""

    name: str

    @property
    @abstractmethod
    def train(self) -> ImageSource:
        """Images to train with."""

    @property
    @abstractmethod
    def test(self) -> ImageSource:
        """Images to test with."""

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.train.shape

    @property
    def classes(self) -> int:
        return int(max(self.train.labels.max(), self.test.labels.max())) + 1


def spread(source: ImageSource, count: int | None) -> Labels:
    """Numbers of so many of a source's images, of its beginning as of its end: sets are often sorted by class."""
    whole = len(source.labels)
    return np.linspace(0, whole - 1, whole if count is None else min(count, whole)).astype(np.int64)


class HeldImages(ImageSource):
    """Images in memory."""

    def __init__(self, images: Bytes, labels: Labels) -> None:
        self.images, self.labels = images, labels
        self.shape = (images.shape[1], images.shape[2], images.shape[3])

    def read(self, rows: Labels, margin: int = 0) -> Bytes:
        return np.pad(self.images[rows], ((0, 0), (0, 0), (margin, margin), (margin, margin)))


@dataclass(frozen=True, slots=True)
class Images(DataSet):
    """Training and test images as bytes (N, C, H, W) and their labels, in memory."""

    name: str
    train_images: Bytes
    train_labels: Labels
    test_images: Bytes
    test_labels: Labels

    def __post_init__(self) -> None:
        for part in ("train", "test"):
            images, labels = getattr(self, f"{part}_images"), getattr(self, f"{part}_labels")
            if images.ndim != 4 or images.dtype != np.uint8 or len(images) != len(labels) or not len(images):
                raise UsageError(f"{self.name}: {part} images of type {images.dtype} and shape {list(images.shape)} with "
                                 f"{counted(len(labels), 'label')}; bytes N,C,H,W and one label each are needed")
        if self.train_images.shape[1:] != self.test_images.shape[1:]:
            raise UsageError(f"{self.name}: training images are {list(self.train_images.shape[1:])}, test images "
                             f"{list(self.test_images.shape[1:])}; they must agree")

    @property
    def train(self) -> HeldImages:
        return HeldImages(self.train_images, self.train_labels)

    @property
    def test(self) -> HeldImages:
        return HeldImages(self.test_images, self.test_labels)


def held_images(path: str | Path) -> Images:
    """The data set a path holds, read into memory; see `WHERE` for what it may be."""
    path = Path(path)
    shards = sorted(path.parent.glob(path.name)) if "*" in path.name else [path]
    if path.suffix == ".npz" and shards and all(s.is_file() for s in shards):
        return _packed(path, shards)
    if path.is_dir() and (path / "data_batch_1").is_file():
        return _batches(path)
    if path.is_dir() and _idx_file(path, IDX["train_images"]) is not None:
        return _idx(path)
    raise UsageError(f"{path}: no images found there; {WHERE}")


def _images(array: Any) -> Bytes:
    found: Bytes = np.asarray(array)
    return found[:, None] if found.ndim == 3 else found


def checked_labels(array: Any, where: str | Path) -> Labels:
    """One class per image, never wrapped or rounded into range.

    Raises:
        UsageError: labels that are no integers from 0 on.
    """
    found = np.asarray(array).reshape(-1)
    if found.dtype.kind not in "iu":
        raise UsageError(f"{where}: labels of type {found.dtype}; integers from 0 on are needed")
    if len(found) and not 0 <= int(found.min()) <= int(found.max()) < MOST_CLASSES:
        raise UsageError(f"{where}: labels from {found.min()} to {found.max()}; classes are counted from 0, and below "
                         f"{MOST_CLASSES:,}")
    return found.astype(np.int64)


def _packed(path: Path, shards: list[Path]) -> Images:
    parts: dict[str, list[Bytes]] = {role: [] for role in ROLES}
    for shard in shards:
        try:
            with np.load(shard, allow_pickle=False) as content:
                for role in set(ROLES) & set(content.files):
                    parts[role].append(content[role])
        except (OSError, ValueError) as error:
            raise UsageError(f"{shard}: not a readable .npz ({error}); {WHERE}") from None
    missing = [role for role in ROLES if not parts[role]]
    if missing:
        raise UsageError(f"{path}: without {', '.join(missing)}; {WHERE}")
    found = {role: np.concatenate(arrays) for role, arrays in parts.items()}
    return Images(path.stem.rstrip("-*"), _images(found["train_images"]), checked_labels(found["train_labels"], path),
                  _images(found["test_images"]), checked_labels(found["test_labels"], path))


class _Arrays(pickle.Unpickler):
    """Reads what NumPy pickles and nothing else: a data file must not run code."""

    ALLOWED = (("numpy.core.multiarray", "_reconstruct"), ("numpy._core.multiarray", "_reconstruct"), ("numpy", "ndarray"),
               ("numpy", "dtype"), ("_codecs", "encode"))

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self.ALLOWED:
            raise pickle.UnpicklingError(f"{module}.{name} is no array")
        return super().find_class(module, name)


def _batch(path: Path) -> tuple[Bytes, Labels]:
    try:
        content = _Arrays(io.BytesIO(path.read_bytes()), encoding="bytes").load()
        return content[b"data"].reshape(-1, 3, 32, 32), checked_labels(content[b"labels"], path)
    except (OSError, pickle.UnpicklingError, KeyError, ValueError, EOFError, AttributeError) as error:
        raise UsageError(f"{path}: not a batch of CIFAR-10 ({error}); {WHERE}") from None


def _batches(folder: Path) -> Images:
    parts = [_batch(folder / f"data_batch_{i}") for i in range(1, 6)]
    test = _batch(folder / "test_batch")
    return Images("cifar10", np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts]), *test)


def _idx_file(folder: Path, name: str) -> Path | None:
    return next((p for p in (folder / f"{name}.gz", folder / name) if p.is_file()), None)


def _idx(folder: Path) -> Images:
    found = {}
    for role, name in IDX.items():
        path = _idx_file(folder, name)
        if path is None:
            raise UsageError(f"{folder}: {name} is missing; {WHERE}")
        raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        rank = raw[3] if raw[:3] == b"\0\0\x08" else 0
        shape = struct.unpack(f">{rank}I", raw[4:4 + 4 * rank]) if rank and len(raw) >= 4 + 4 * rank else ()
        if not shape or len(raw) != 4 + 4 * rank + int(np.prod(shape)):
            raise UsageError(f"{path}: not an IDX file of bytes; {WHERE}")
        found[role] = np.frombuffer(raw, dtype=np.uint8, offset=4 + 4 * rank).reshape(shape)
    return Images(folder.name, _images(found["train_images"]), checked_labels(found["train_labels"], folder),
                  _images(found["test_images"]), checked_labels(found["test_labels"], folder))
