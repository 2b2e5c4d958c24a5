"""Train, export and evaluate the network that segments garments.

    python examples/scenes/train.py                 # draw scenes, train, write the files, evaluate
    python examples/scenes/train.py --evaluate      # evaluate the files that are there

Needs `pip install 'dovetail-accel[train]'`; scenes come from ``canvas.py``.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
import torch
from canvas import DATA_DIR, KINDS, scenes
from torch import Tensor, nn
from torch.nn import functional

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from paired import compare, export, fit, quantize

HERE = Path(__file__).resolve().parent
EPOCHS, BATCH, RATE, SEED = 8, 32, 0.008, 1
TRAINING, CALIBRATION, HELD_BACK = 8000, 64, 1000  # scenes; held-back ones hold the test split's garments


class Separable(nn.Sequential):
    """A 3x3 filter per map, then a matrix over maps."""

    def __init__(self, inputs: int, outputs: int, stride: int = 1) -> None:
        super().__init__(nn.Conv2d(inputs, inputs, 3, stride, 1, groups=inputs, bias=False), nn.BatchNorm2d(inputs), nn.ReLU6(),
                         nn.Conv2d(inputs, outputs, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU6())


class Segmenter(nn.Module):
    """Down from 48 to 6 pixels a side, up again, each level joined with the maps of its size on the way down."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, 12, 3, 2, 1, bias=False), nn.BatchNorm2d(12), nn.ReLU6())
        self.down = nn.ModuleList([nn.Sequential(Separable(a, b, 2), Separable(b, b)) for a, b in ((12, 24), (24, 48))])
        self.bottom = Separable(48, 48)
        self.up = nn.ModuleList([Separable(48 + 24, 24), Separable(24 + 12, 20)])
        self.out = nn.Conv2d(20, len(KINDS), 1)

    def forward(self, x: Tensor) -> Tensor:
        """Scores per kind and pixel, ``(N, 5, 48, 48)``."""
        fine = self.stem(x)
        middle = self.down[0](fine)
        y = self.bottom(self.down[1](middle))
        y = self.up[0](torch.cat([functional.interpolate(y, scale_factor=2.0), middle], 1))
        y = self.up[1](torch.cat([functional.interpolate(y, scale_factor=2.0), fine], 1))
        return functional.interpolate(self.out(y), scale_factor=2.0)


def train(x: Tensor, y: Tensor) -> Segmenter:
    """Scenes are mirrored at random."""
    def loss(model: nn.Module, index: Tensor, generator: torch.Generator) -> Tensor:
        flip = torch.rand(BATCH, generator=generator) < 0.5
        images = torch.where(flip[:, None, None, None], x[index].flip(-1), x[index])
        truth = torch.where(flip[:, None, None], y[index].flip(-1), y[index])
        return functional.cross_entropy(model(images), truth)

    return fit(Segmenter, loss, len(x), EPOCHS, BATCH, RATE, SEED)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA_DIR, help=f"Fashion-MNIST's four files (default: {DATA_DIR})")
    parser.add_argument("--out", type=Path, default=HERE, help="where scenes.onnx and scenes-int8.onnx lie (default: here)")
    parser.add_argument("--evaluate", action="store_true", help="do not train")
    options = parser.parse_args()
    floats, integers = options.out / "scenes.onnx", options.out / "scenes-int8.onnx"
    try:
        images, truth = scenes("t10k", HELD_BACK, 2, options.data)
        if not options.evaluate:
            drawn, kinds = scenes("train", TRAINING, 1, options.data)
            x = (drawn / 256).astype(np.float32)
            export(train(torch.from_numpy(x), torch.from_numpy(kinds.astype(np.int64))), x[:1], floats, "scene", "kinds")
            quantize(floats, x[:CALIBRATION], integers)
    except FileNotFoundError as error:
        sys.exit(str(error))
    x = (images / 256).astype(np.float32)

    def pixels(scores: np.ndarray) -> np.ndarray:
        return (scores.argmax(1) == truth).mean((1, 2))

    def overlap(scores: np.ndarray) -> np.ndarray:
        """Mean over the garments' kinds that are in a scene: pixels in both, of those in either."""
        found, kinds = scores.argmax(1)[..., None], np.arange(1, len(KINDS))
        both, either = (((found == kinds) & (truth[..., None] == kinds)).sum((1, 2)),
                        ((found == kinds) | (truth[..., None] == kinds)).sum((1, 2)))
        here = (truth[..., None] == kinds).any((1, 2))
        return np.where(here, both / np.maximum(either, 1), 0).sum(1) / np.maximum(here.sum(1), 1)

    for name, score in (("right pixels", pixels), ("intersection over union", overlap)):
        print(f"{name}: {compare(floats, integers, x, score, 'scenes')}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
