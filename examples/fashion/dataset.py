"""Fashion-MNIST, read from the files of the Debian package ``dataset-fashion-mnist``.

Needs numpy and the standard library only.
"""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

#: Where the Debian package installs the four gzipped IDX files.
DATA_DIR = Path("/usr/share/datasets/fashion-mnist")

#: The ten classes, in label order.
CLASSES = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)

_PREFIX = {"train": "train", "test": "t10k"}
_IDX_UINT8 = 0x08


def read_idx(path: Path) -> NDArray[np.uint8]:
    """Read one gzipped IDX file of unsigned bytes.

    Raises:
        FileNotFoundError: the file is missing; the message says which package brings it.
        ValueError: the file is not an IDX file of unsigned bytes, or its length is wrong.
    """
    if not path.is_file():
        raise FileNotFoundError(
            f"{path} not found. Fashion-MNIST comes with a Debian package; install it with:\n"
            "    apt-get update && apt-get install -y dataset-fashion-mnist"
        )
    raw = gzip.decompress(path.read_bytes())
    if len(raw) < 4 or raw[0] != 0 or raw[1] != 0 or raw[2] != _IDX_UINT8:
        raise ValueError(f"{path}: not an IDX file of unsigned bytes")
    rank = raw[3]
    header = 4 + 4 * rank
    if len(raw) < header:
        raise ValueError(f"{path}: truncated IDX header")
    shape = struct.unpack(f">{rank}I", raw[4:header])
    data = np.frombuffer(raw, dtype=np.uint8, offset=header)
    if data.size != int(np.prod(shape, dtype=np.int64)):
        raise ValueError(f"{path}: {data.size} bytes of data, expected shape {shape}")
    return data.reshape(shape).copy()


def load(split: str, data_dir: Path | str = DATA_DIR) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Load one split.

    Args:
        split: ``"train"`` (60,000 images) or ``"test"`` (10,000 images).
        data_dir: folder with the four ``*-ubyte.gz`` files.

    Returns:
        The images, ``uint8 (N, 28, 28)``, and their labels, ``uint8 (N,)``.
    """
    if split not in _PREFIX:
        raise ValueError(f"split must be one of {sorted(_PREFIX)}, not {split!r}")
    folder, prefix = Path(data_dir), _PREFIX[split]
    images = read_idx(folder / f"{prefix}-images-idx3-ubyte.gz")
    labels = read_idx(folder / f"{prefix}-labels-idx1-ubyte.gz")
    if images.ndim != 3 or images.shape[1:] != (28, 28) or labels.shape != images.shape[:1]:
        raise ValueError(f"{folder}: unexpected shapes {images.shape} and {labels.shape} for split {split!r}")
    return images, labels


def normalise(images: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Scale to [0, 1) by exactly 2**-8 and add the channel axis: ``float32 (N, 1, 28, 28)``.

    The scale is a power of two, so quantizing the result to uint8 with scale 2**-8 gives the
    original bytes back without any rounding.
    """
    return (images.astype(np.float32) / np.float32(256))[:, np.newaxis, :, :]
