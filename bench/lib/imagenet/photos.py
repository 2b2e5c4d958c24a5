"""Twenty labelled ImageNet photos from the package foolbox, cut as torchvision cuts them."""

from __future__ import annotations

import numpy as np

from dovetail.errors import ToolError
from lib.imagenet.packages import unpacked

PACKAGE = "foolbox==3.3.4"
RESIZED, SIDE = 256, 224


def labelled_photos() -> tuple[np.ndarray, np.ndarray]:
    """Pixels 0 to 255 (photos, 3, 224, 224) and class indices; the shorter side scaled to 256, then the middle.

    Raises:
        ToolError: Pillow, which decodes JPEG, is not installed.
    """
    try:
        from PIL import Image
    except ImportError:
        raise ToolError("photos: Pillow is needed to decode JPEG; install it with pip install 'dovetail-accel[bench]'") from None
    pixels, labels = [], []
    for path in sorted((unpacked(PACKAGE) / "foolbox" / "data").glob("imagenet_*_*.jpg")):
        with Image.open(path) as opened:
            image = opened.convert("RGB")
        scale = RESIZED / min(image.size)
        width, height = (max(RESIZED, int(n * scale)) for n in image.size)
        left, top = round((width - SIDE) / 2), round((height - SIDE) / 2)
        cut = image.resize((width, height), Image.Resampling.BILINEAR).crop((left, top, left + SIDE, top + SIDE))
        pixels.append(np.asarray(cut, dtype=np.float64).transpose(2, 0, 1))
        labels.append(int(path.stem.rsplit("_", 1)[1]))
    return np.stack(pixels), np.asarray(labels)
