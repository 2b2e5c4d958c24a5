"""Batches of training images in an order that is the same every time, shifted and mirrored: from memory, or by several processes.

Everything about an epoch follows from the seed and its number; where one was interrupted, the rest of it follows too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

from dovetail.errors import DovetailError
from dovetail.train.data import Bytes, DataSet, HeldImages, Images, ImageSource, Labels
from dovetail.train.recipe import TrainingRecipe

CUT = 100
"""Batches that are cut out of the padded images at once: a few launches for all of them."""
SEEDS_APART = 100003
AHEAD = 4
"""Batches that each process has ready."""
Tensor = Any


@dataclass(frozen=True, slots=True)
class Order:
    """An epoch: images by number, how far each is shifted down and right, and whether it is mirrored."""

    rows: Tensor
    shift: Tensor
    mirror: Tensor

    @classmethod
    def drawn(cls, recipe: TrainingRecipe, count: int, number: int) -> Order:
        """What follows from the seed and the epoch's number alone."""
        chance = torch.Generator().manual_seed(recipe.seed * SEEDS_APART + number)
        rows = torch.randperm(count, generator=chance)
        shift = torch.randint(0, 2 * recipe.pad + 1, (2, count), generator=chance)
        return cls(rows, shift, (torch.rand(count, generator=chance) < 0.5) & recipe.flip)


class Augmented:
    """Training images on the device; every epoch they are shuffled, shifted and mirrored at once, as bytes."""

    def __init__(self, images: Images, recipe: TrainingRecipe, device: Any) -> None:
        self.recipe, self.device = recipe, device
        p = recipe.pad
        self.padded = functional.pad(torch.as_tensor(images.train_images.copy(), device=device), (p, p, p, p))
        self.labels = torch.as_tensor(images.train_labels.copy(), device=device).long()
        self.size = images.shape[1:]

    def epoch(self, number: int, first: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
        """Batches of an epoch from the `first` on; a last incomplete batch is left out."""
        count, batch = len(self.labels), min(self.recipe.batch, len(self.labels))
        drawn = Order.drawn(self.recipe, count, number)
        order, shift, mirror = (t.to(self.device) for t in (drawn.rows, drawn.shift, drawn.mirror))
        labels = self.labels[order]
        for whole in range(first * batch, count - batch + 1, CUT * batch):
            rows = slice(whole, whole + CUT * batch)
            images = self._cut(order[rows], shift[:, rows], mirror[rows])
            for start in range(0, len(images) - batch + 1, batch):
                yield images[start:start + batch], labels[whole + start:whole + start + batch]

    def _cut(self, index: Tensor, shift: Tensor, mirror: Tensor) -> Tensor:
        height, width = self.size
        y = shift[0][:, None] + torch.arange(height, device=self.device)
        across = torch.arange(width, device=self.device)
        x = shift[1][:, None] + torch.where(mirror[:, None], across.flip(0), across)
        channels = torch.arange(self.padded.shape[1], device=self.device)
        return self.padded[index[:, None, None, None], channels[None, :, None, None], y[:, None, :, None], x[:, None, None, :]]


Asked = tuple[Labels, Any, Any]
"""A batch to be read: numbers of images, shifts (2, n), mirrored or not."""


class _Reader(Dataset[Any]):
    """What a process does for a batch. An error is given back as one, so that it is told once and without a traceback."""

    def __init__(self, source: ImageSource, margin: int) -> None:
        self.source, self.margin = source, margin

    def __getitem__(self, asked: Asked) -> tuple[Tensor, Tensor] | DovetailError:
        rows, shift, mirror = asked
        try:
            return torch.from_numpy(_shifted(self.source, self.margin, rows, shift, mirror)), \
                torch.from_numpy(self.source.labels[rows])
        except DovetailError as error:
            return error


def _shifted(source: ImageSource, margin: int, rows: Labels, shift: Any, mirror: Any) -> Bytes:
    _, height, width = source.shape
    wide = source.read(rows, margin)
    found = np.empty((len(rows), *source.shape), dtype=np.uint8)
    for k, image in enumerate(wide):
        own = image[:, shift[0, k]:shift[0, k] + height, shift[1, k]:shift[1, k] + width]
        found[k] = own[:, :, ::-1] if mirror[k] else own
    return found


class Batches:
    """Batches of a source as they are asked for, read ahead by `workers` processes, or (0) by this one when it is their turn."""

    def __init__(self, source: ImageSource, margin: int, workers: int, pinned: bool) -> None:
        self.asked: list[Asked] = []
        more: dict[str, Any] = {} if not workers else {
            "persistent_workers": True, "prefetch_factor": AHEAD, "multiprocessing_context": _context()}
        self.loader = DataLoader(_Reader(source, margin), batch_size=None, sampler=_Turns(self), num_workers=workers,
                                 collate_fn=_as_it_is, pin_memory=pinned, **more)

    def read(self, asked: list[Asked]) -> Iterator[tuple[Tensor, Tensor]]:
        self.asked = asked
        for found in self.loader:
            if isinstance(found, DovetailError):
                raise found
            yield found


class _Turns:
    """What a loader goes through, which changes from epoch to epoch."""

    def __init__(self, batches: Batches) -> None:
        self.batches = batches

    def __iter__(self) -> Iterator[Asked]:
        return iter(self.batches.asked)

    def __len__(self) -> int:
        return len(self.batches.asked)


def _as_it_is(found: Any) -> Any:
    return found


def _context() -> Any:
    """Processes that know nothing of this one's GPU or threads, and start in a moment after the first."""
    context = torch.multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["dovetail.train.streams", __name__])
    return context


class Streamed:
    """Training images read from their files, in the same order and cut alike."""

    def __init__(self, source: ImageSource, recipe: TrainingRecipe, device: Any, workers: int) -> None:
        self.recipe, self.device, self.count = recipe, device, len(source.labels)
        self.batches = Batches(source, recipe.pad, workers, device.type == "cuda")

    def epoch(self, number: int, first: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
        """Batches of an epoch from the `first` on; a last incomplete batch is left out."""
        batch = min(self.recipe.batch, self.count)
        drawn = Order.drawn(self.recipe, self.count, number)
        rows, shift, mirror = drawn.rows.numpy(), drawn.shift.numpy(), drawn.mirror.numpy()
        asked = [(rows[at:at + batch], shift[:, at:at + batch], mirror[at:at + batch])
                 for at in range(first * batch, self.count - batch + 1, batch)]
        for images, labels in self.batches.read(asked):
            yield images.to(self.device, non_blocking=True), labels.to(self.device, non_blocking=True)


def training_batches(images: DataSet, recipe: TrainingRecipe, device: Any, workers: int) -> Augmented | Streamed:
    """Batches of a set that is in memory, or of one that is not."""
    if isinstance(images, Images):
        return Augmented(images, recipe, device)
    return Streamed(images.train, recipe, device, workers)


def in_order(source: ImageSource, rows: Labels, batch: int, workers: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Images by number as they are, with their labels; what memory holds is not sent to other processes."""
    parts = [rows[at:at + batch] for at in range(0, len(rows), batch)]
    asked = [(part, np.zeros((2, len(part)), dtype=np.int64), np.zeros(len(part), dtype=np.bool_)) for part in parts]
    return Batches(source, 0, 0 if isinstance(source, HeldImages) else workers, pinned=False).read(asked)
