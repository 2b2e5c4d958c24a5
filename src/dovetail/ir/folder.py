"""Model folders as Hugging Face's Optimum writes them: the network, its labels, and what its frames look like."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dovetail.errors import ModelError
from dovetail.ir.tensor import Array, Shape

PLACES = ("model.onnx", "onnx/model.onnx")
"""Where a folder has its network, the first that is there."""
CONFIG, PREPROCESSOR = "config.json", "preprocessor_config.json"
MAX_CONFIG_BYTES = 1 << 24
"""Of a description; labels of 22,000 classes are 1 MB."""


@dataclass(frozen=True, slots=True)
class Normalisation:
    """How pixels become frames: (byte * factor - mean) / deviation, per channel."""

    factor: float = 1.0
    mean: tuple[float, ...] = (0.0,)
    deviation: tuple[float, ...] = (1.0,)

    def frames(self, x: Array) -> Array:
        """Images of values from 0 to 1, which stand for bytes, as frames; anything but images of these channels as it is."""
        if x.ndim != 4 or len(self.mean) not in (1, x.shape[1]):
            return x
        mean, deviation = (np.asarray(v, np.float32)[:, None, None] for v in (self.mean, self.deviation))
        return (x * np.float32(255 * self.factor) - mean) / deviation

    def __str__(self) -> str:
        mean, deviation = (" ".join(f"{v:g}" for v in values) for values in (self.mean, self.deviation))
        return f"(byte * {self.factor:.6g} - [{mean}]) / [{deviation}]"


@dataclass(frozen=True, slots=True)
class Described:
    """What a folder says of its network beside the file."""

    file: Path
    image: Shape = ()
    """Channels, height and width of an image, as far as they are known."""
    labels: tuple[str, ...] = ()
    normalisation: Normalisation | None = None


def described(path: Path) -> Described:
    """A model file as it is; a folder's network with what is said beside it.

    Raises:
        ModelError: the folder has no network, or what it says cannot be read.
    """
    if not path.is_dir():
        return Described(path)
    file = next((path / place for place in PLACES if (path / place).is_file()), None)
    if file is None:
        others = sorted(f.name for f in path.glob("*.onnx"))
        raise ModelError(f"{path}: a folder without model.onnx; give the path of an ONNX file" +
                         (f", such as {path / others[0]}" if others else " or of a folder with one"))
    config, pixels = _read(path / CONFIG), _read(path / PREPROCESSOR)
    try:
        return Described(file, _image(config, pixels), _labels(config), _normalisation(pixels))
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise ModelError(f"{path}: {CONFIG} or {PREPROCESSOR} is not as Optimum writes it ({error}); export the folder again, or "
                         f"give {file}") from None


def _read(path: Path) -> Mapping[str, Any]:
    if not path.is_file():
        return {}
    try:
        if path.stat().st_size > MAX_CONFIG_BYTES:
            raise ValueError(f"more than {MAX_CONFIG_BYTES >> 20} MiB")
        found = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(found, dict):
            raise ValueError("not an object")
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(f"{path}: not readable as JSON ({error}); export the folder again, or give the ONNX file alone"
                         ) from None
    return found


def _image(config: Mapping[str, Any], pixels: Mapping[str, Any]) -> Shape:
    """Channels, height and width; none where the folder does not say all three."""
    size = (pixels.get("crop_size") if pixels.get("do_center_crop") else None) or pixels.get("size") or config.get("image_size")
    if isinstance(size, Mapping):
        sides = [size.get(k, size.get("shortest_edge")) for k in ("height", "width")]
    else:
        sides = list(size) if isinstance(size, list) else [size, size]
    if len(sides) != 2 or None in sides:
        return ()
    found = tuple(int(v) for v in (config.get("num_channels", len(pixels.get("image_mean") or (0, 0, 0))), *sides))
    if min(found) < 1:
        raise ValueError(f"an image of {list(found)}")
    return found


def _labels(config: Mapping[str, Any]) -> tuple[str, ...]:
    names = {int(index): " ".join(str(name).split()) for index, name in (config.get("id2label") or {}).items()}
    return tuple(names[i] for i in range(len(names))) if sorted(names) == list(range(len(names))) else ()


def _normalisation(pixels: Mapping[str, Any]) -> Normalisation | None:
    if not pixels:
        return None
    factor = float(pixels.get("rescale_factor", 1 / 255)) if pixels.get("do_rescale", True) else 1.0
    if not pixels.get("do_normalize", "image_mean" in pixels):
        return Normalisation(factor)
    mean, deviation = (tuple(np.asarray(pixels[key], np.float64).ravel().tolist()) for key in ("image_mean", "image_std"))
    if len(mean) != len(deviation) or min(deviation) <= 0:
        raise ValueError("image_mean and image_std do not fit each other")
    return Normalisation(factor, mean, deviation)
