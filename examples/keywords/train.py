"""Train, export and evaluate the spoken-digit network.

    python examples/keywords/train.py free-spoken-digit-dataset/recordings            # train, write both files, evaluate
    python examples/keywords/train.py free-spoken-digit-dataset/recordings --evaluate # evaluate the files that are there

Needs `pip install 'dovetail-accel[train]'`; features come from ``sounds.py``.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
import torch
from sounds import BANDS, CLASSES, FRAMES, load
from torch import Tensor, nn
from torch.nn import functional

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from paired import compare, export, fit, quantize

HERE = Path(__file__).resolve().parent
EPOCHS, BATCH, RATE, SEED = 60, 64, 0.01, 1
CALIBRATION = 128  # training recordings that decide scales


def layer(inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1) -> nn.Sequential:
    conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outputs), nn.ReLU6())


def network() -> nn.Sequential:
    """Depthwise-separable convolutions, 49x32 to 7x4, then the mean of each map and one matrix."""
    blocks: list[nn.Module] = [layer(1, 16, 3, 2)]
    for inputs, outputs, stride in ((16, 24, 1), (24, 32, 2), (32, 32, 1), (32, 48, 2)):
        blocks += [layer(inputs, inputs, 3, stride, inputs), layer(inputs, outputs, 1)]
    return nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(48, len(CLASSES)))


def augment(x: Tensor, generator: torch.Generator) -> Tensor:
    """Move every recording by up to 120 ms and 1 band, add noise, and silence a stretch of time and a few bands."""
    count = len(x)
    dt, db, t, b = (torch.randint(0, most, (count,), generator=generator) for most in (13, 3, FRAMES, BANDS))
    padded = functional.pad(x[:, 0], (1, 1, 6, 6)).unfold(1, FRAMES, 1).unfold(2, BANDS, 1)
    x = padded[torch.arange(count), dt, db].unsqueeze(1)
    x = (x + 0.04 * torch.randn(x.shape, generator=generator)).clamp(0, 1)
    frames, bands = torch.arange(FRAMES), torch.arange(BANDS)
    kept_t = (frames < t[:, None]) | (frames >= t[:, None] + 5)
    kept_b = (bands < b[:, None]) | (bands >= b[:, None] + 3)
    return x * kept_t[:, None, :, None] * kept_b[:, None, None, :]


def train(x: Tensor, y: Tensor) -> nn.Sequential:
    def loss(model: nn.Module, index: Tensor, generator: torch.Generator) -> Tensor:
        return functional.cross_entropy(model(augment(x[index], generator)), y[index], label_smoothing=0.05)

    return fit(network, loss, len(x), EPOCHS, BATCH, RATE, SEED)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recordings", type=Path, help="the folder of .wav files")
    parser.add_argument("--out", type=Path, default=HERE, help="where keywords.onnx and keywords-int8.onnx lie (default: here)")
    parser.add_argument("--evaluate", action="store_true", help="do not train")
    options = parser.parse_args()
    try:
        pictures, digits, held_back = load(options.recordings)
    except (FileNotFoundError, ValueError) as error:
        sys.exit(str(error))
    x = (pictures / 256).astype(np.float32)
    floats, integers = options.out / "keywords.onnx", options.out / "keywords-int8.onnx"
    if not options.evaluate:
        model = train(torch.from_numpy(x[~held_back]), torch.from_numpy(digits[~held_back]))
        export(model, x[:1], floats, "sound", "digit")
        chosen = np.flatnonzero(~held_back)[::(~held_back).sum() // CALIBRATION][:CALIBRATION]
        quantize(floats, x[chosen], integers)
    y = digits[held_back]
    print(compare(floats, integers, x[held_back], lambda scores: scores.argmax(1) == y, "recordings"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
