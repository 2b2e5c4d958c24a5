"""Every network of the zoo: how to write it, what it counts, and what its authors or its best-known code say it counts.

From a name and a few numbers `build` makes an ONNX file, `count` its counts without the weights.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from functools import partial
from math import isfinite
from typing import Any

from dovetail.errors import UsageError
from dovetail.ir.onnx.builder import OnnxBuilder
from dovetail.words import counted
from dovetail.zoo import alexnet, inception, mobilenet, resnet, shufflenet, squeezenet, transformer, unet, yolo
from dovetail.zoo.network import Net

GREATEST_SIZE = 4096
"""Pixels a side; above it one map alone would fill a machine."""
GREATEST_WIDTH = 8.0


@dataclass(frozen=True, slots=True)
class Published:
    """A figure as its source prints it; `tolerance` is what its rounding, or its way of counting, allows (a fraction)."""

    value: float
    source: str
    tolerance: float = 0.0


@dataclass(frozen=True, slots=True)
class ZooEntry:
    """One network at its native size and width.

    `parameters` are trainable numbers (BatchNorm: gamma and beta); `macs` are the multiply-accumulates of its
    convolutions, fully connected layers and matrix products for one image. `widths` lists the widths that exist
    where not every one does. `free_batch` tells whether the file takes any number of images at once. `classes` are those of an
    image, or of a pixel where the network segments.
    """

    name: str
    title: str
    write: Callable[[Net, int], str]
    size: int
    least_size: int
    parameters: int
    macs: int
    published_parameters: Published
    published_macs: Published
    width: float = 1.0
    widths: tuple[float, ...] | None = None
    free_batch: bool = True
    classes: int = 1000


PYTORCHCV = "pytorchcv model table (osmr/imgclsmob)"


def _torchvision(count: int) -> Published:
    return Published(count, "torchvision, num_params of the weights' metadata")


def _giga(value: float) -> Published:
    """A figure of torchvision's GFLOPS column, which counts multiply-accumulates and prints three digits behind the point."""
    return Published(value * 1e9, "torchvision, GFLOPS of the model page (multiply-accumulates)", 5e-4 / value)


_ENTRIES = (
    ZooEntry("alexnet", "AlexNet, torchvision's form", alexnet.torchvision, 224, 63, 61_100_840, 714_188_480,
             _torchvision(61_100_840), _giga(0.714)),
    ZooEntry("alexnet-bn", "AlexNet with BatchNorm, LQ-Nets' form", alexnet.lq_nets, 227, 67, 62_396_104, 1_135_256_096,
             Published(62_396_104, "summed from the layer list of microsoft/LQ-Nets, alexnet_model.py (no count is published)"),
             Published(1_135_256_096, "summed from the same layer list at 227x227 (no count is published)")),
    ZooEntry("vgg16", "VGG16", alexnet.vgg16, 224, 32, 138_357_544, 15_470_264_320, _torchvision(138_357_544), _giga(15.47)),
    ZooEntry("resnet18", "ResNet18", partial(resnet.resnet, repeats=(2, 2, 2, 2), bottleneck=False), 224, 32, 11_689_512,
             1_814_073_344, _torchvision(11_689_512), _giga(1.814)),
    ZooEntry("resnet50", "ResNet50 (stride in the 3x3)", partial(resnet.resnet, repeats=(3, 4, 6, 3), bottleneck=True), 224, 32,
             25_557_032, 4_089_184_256, _torchvision(25_557_032), _giga(4.089)),
    ZooEntry("squeezenet1.0", "SqueezeNet 1.0", partial(squeezenet.squeezenet, channels=96, kernel=7, pool_after=(4, 8)), 224, 32,
             1_248_424, 818_924_576, _torchvision(1_248_424), _giga(0.819)),
    ZooEntry("squeezenet1.1", "SqueezeNet 1.1", partial(squeezenet.squeezenet, channels=64, kernel=3, pool_after=(3, 5)), 224, 32,
             1_235_496, 349_151_936, _torchvision(1_235_496), _giga(0.349)),
    ZooEntry("mobilenet-v1", "MobileNetV1", mobilenet.mobilenet_v1, 224, 32, 4_231_976, 568_740_352,
             Published(4_231_976, PYTORCHCV), Published(569e6, "Howard et al. 2017, Table 4 (1.0 MobileNet-224)", 0.001)),
    ZooEntry("mobilenet-v2", "MobileNetV2", mobilenet.mobilenet_v2, 224, 32, 3_504_872, 300_774_272,
             _torchvision(3_504_872), _giga(0.301)),
    ZooEntry("mobilenet-v2-0.5", "MobileNetV2, half width", mobilenet.mobilenet_v2, 224, 32, 1_968_680, 97_131_840,
             Published(1.95e6, "Keras documentation, table of MobileNetV2 checkpoints (printed in millions)", 0.01),
             Published(97e6, "Keras documentation, the same table, width 0.5 at 224", 0.005), width=0.5),
    ZooEntry("mobilenet-v3-small", "MobileNetV3-Small",
             partial(mobilenet.mobilenet_v3, blocks=mobilenet.V3_SMALL, features=1024), 224, 32, 2_542_856, 56_510_400,
             _torchvision(2_542_856), _giga(0.057)),
    ZooEntry("mobilenet-v3-large", "MobileNetV3-Large",
             partial(mobilenet.mobilenet_v3, blocks=mobilenet.V3_LARGE, features=1280), 224, 32, 5_483_032, 216_589_760,
             _torchvision(5_483_032), _giga(0.217)),
    ZooEntry("shufflenet-v1", "ShuffleNetV1, 3 groups", shufflenet.shufflenet_v1, 224, 32, 1_865_728, 137_460_672,
             Published(1_865_728, "pytorchcv, shufflenet_g3_w1"), Published(137e6, "Zhang et al. 2018, Table 1 (g = 3)", 0.005)),
    ZooEntry("shufflenet-v2", "ShuffleNetV2 1.0x", shufflenet.shufflenet_v2, 224, 32, 2_278_604, 144_907_992,
             _torchvision(2_278_604), _giga(0.145), widths=tuple(shufflenet.V2_CHANNELS)),
    ZooEntry("shufflenet-v2-0.5", "ShuffleNetV2 0.5x", shufflenet.shufflenet_v2, 224, 32, 1_366_792, 40_476_448,
             _torchvision(1_366_792), _giga(0.04), width=0.5, widths=tuple(shufflenet.V2_CHANNELS)),
    ZooEntry("googlenet", "GoogLeNet without auxiliary classifiers", inception.googlenet, 224, 32, 6_624_904, 1_498_376_192,
             Published(6_624_904, "torchvision, num_params of the weights without the auxiliary classifiers"), _giga(1.498)),
    ZooEntry("xception", "Xception", inception.xception, 299, 32, 22_855_952, 8_357_403_496,
             Published(22_855_952, "Keras, trainable parameters of Xception (22,910,480 with running statistics)"),
             Published(8_403.63e6, f"{PYTORCHCV}, which counts more than products", 0.01)),
    ZooEntry("mnasnet", "MnasNet 1.0 (B1)", mobilenet.mnasnet, 224, 32, 4_383_312, 314_415_872,
             _torchvision(4_383_312), _giga(0.314)),
    ZooEntry("proxylessnas-mobile", "ProxylessNAS-mobile", mobilenet.proxylessnas_mobile, 224, 32, 4_080_512, 320_427_584,
             Published(4_080_512, "pytorchcv, proxylessnas_mobile"),
             Published(320e6, "Cai et al. 2020 (Once-for-All), comparison table (printed in millions)", 0.005)),
    ZooEntry("efficientnet-b0", "EfficientNet-B0", mobilenet.efficientnet_b0, 224, 32, 5_288_548, 385_814_752,
             _torchvision(5_288_548), _giga(0.386)),
    ZooEntry("efficientnet-lite0", "EfficientNet-Lite0", mobilenet.efficientnet_lite0, 224, 32, 4_652_008, 385_187_552,
             Published(4_652_008, "keras-hub, efficientnet_lite0_ra_imagenet"),
             Published(407e6, "tensorflow/tpu EfficientNet-lite model table, whose way of counting is not described", 0.06)),
    ZooEntry("ceit-t", "CeiT-T", transformer.ceit_t, 224, 32, 6_356_904, 1_399_412_736,
             Published(6.4e6, "Yuan et al. 2021, table of CeiT variants (printed in millions)", 0.01),
             Published(1.2e9, "Yuan et al. 2021, the same table, without the products inside attention", 0.17),
             widths=(1.0,), free_batch=False),
    ZooEntry("cvt-13", "CvT-13", transformer.cvt_13, 224, 32, 19_997_480, 4_566_089_216,
             Published(20e6, "microsoft/CvT model table (printed in millions)", 0.01),
             Published(4.5e9, "microsoft/CvT model table (printed with one digit)", 0.02), widths=(1.0,), free_batch=False),
    ZooEntry("unet-small", "U-Net, three levels from 16 channels", unet.unet, 128, 32, 482_754, 580_124_672,
             Published(482_754, "summed from milesial/Pytorch-UNet's layers, no biases before BatchNorm (none is published)"),
             Published(580_124_672, "summed from the same layer list at 128x128 (none is published)"), classes=2),
    ZooEntry("yolov2", "YOLOv2 for COCO", yolo.yolov2, 416, 32, 50_962_889, 14_732_084_224,
             Published(50_983_561, "AlexeyAB/darknet issue 1910: floats of yolov2.weights, running statistics too", 5e-4),
             Published(62.94e9 / 2 * (416 / 608) ** 2, "pjreddie.com: 62.94 Bn operations at 608x608, by area", 1e-4),
             classes=80),
)

TABLE: dict[str, ZooEntry] = {entry.name: entry for entry in _ENTRIES}

HEADINGS = ("name", "network", "size", "parameters", "MACs", "published parameters", "published MACs")


def listing() -> str:
    """An aligned table: what each network counts here, and what its source prints; sources below."""
    rows = [HEADINGS, *(_row(e) for e in TABLE.values())]
    widths = [max(len(row[i]) for row in rows) for i in range(len(HEADINGS))]
    lines = ["  ".join(f"{cell:<{w}}" if i < 2 else f"{cell:>{w}}" for i, (cell, w) in enumerate(zip(row, widths, strict=True)))
             for row in rows]
    sources = [f"{e.name:<{widths[0]}}  parameters: {e.published_parameters.source}\n{'':<{widths[0]}}  MACs: "
               f"{e.published_macs.source}" for e in TABLE.values()]
    notes = ("Parameters are trainable ones (BatchNorm: gamma and beta); MACs are those of convolutions, fully connected\n"
             "layers and matrix products for one image. A published figure with ~ is coarsely rounded or counts other things.")
    return "\n".join([*(line.rstrip() for line in lines), "", notes, "", "Sources of the published figures", *sources])


def listing_json() -> list[dict[str, Any]]:
    """One object per network, numbers as numbers."""
    return [{key: value for key, value in asdict(e).items() if key != "write"} for e in TABLE.values()]


def _row(entry: ZooEntry) -> tuple[str, ...]:
    return (entry.name, entry.title, f"{entry.size}x{entry.size}", f"{entry.parameters:,}", _short(entry.macs),
            _printed(entry.published_parameters, f"{entry.published_parameters.value:,.0f}"),
            _printed(entry.published_macs, _short(entry.published_macs.value)))


def _printed(published: Published, text: str) -> str:
    return f"~{text}" if published.tolerance > 0.015 else text


def _short(macs: float) -> str:
    return f"{macs / 1e9:.3f} G" if macs >= 1e9 else f"{macs / 1e6:.1f} M"


@dataclass(frozen=True, slots=True)
class Count:
    """Trainable parameters, and multiply-accumulates for one image."""

    parameters: int
    macs: int


def names() -> tuple[str, ...]:
    """Every network, in the order of the table."""
    return tuple(TABLE)


def entry(name: str) -> ZooEntry:
    """The table's row of a network; case, and `_` for `-`, do not matter."""
    key = name.strip().lower().replace("_", "-")
    if key not in TABLE:
        close = get_close_matches(key, TABLE, n=1)
        hint = f"did you mean {close[0]}? " if close else ""
        raise UsageError(f"zoo: no network is called {name!r}; {hint}known are {', '.join(TABLE)}")
    return TABLE[key]


def build(name: str, *, size: int | None = None, width: float | None = None, batch_norm: bool = True,
          classes: int | None = None, seed: int = 0) -> bytes:
    """The network as a serialized ONNX model: opset 17, IR 8, float32 weights inside.

    `size` is the image's side in pixels, `width` multiplies every channel count, each the network's own by
    default, as is the number of `classes`. Without `batch_norm` the convolutions that had it carry a bias instead. The same
    arguments give the same bytes.
    """
    if seed < 0:
        raise UsageError(f"zoo: seed {seed} is negative; give 0 or more")
    builder, output = _written(name, size, width, batch_norm, classes)
    return builder.serialize([output], seed)


def count(name: str, *, size: int | None = None, width: float | None = None, batch_norm: bool = True,
          classes: int | None = None) -> Count:
    """What `build` would give, counted from its nodes and shapes; no weight is drawn."""
    builder, _ = _written(name, size, width, batch_norm, classes)
    return Count(builder.parameters(), builder.macs())


def _written(name: str, size: int | None, width: float | None, batch_norm: bool,
             classes: int | None) -> tuple[OnnxBuilder, str]:
    row = entry(name)
    size = row.size if size is None else size
    width = row.width if width is None else width
    classes = row.classes if classes is None else classes
    _check(row, size, width, classes)
    builder = OnnxBuilder(row.name, row.free_batch)
    return builder, row.write(Net(builder, size, width, batch_norm), classes)


def _check(row: ZooEntry, size: int, width: float, classes: int) -> None:
    if not row.least_size <= size <= GREATEST_SIZE:
        raise UsageError(f"zoo: {row.name} at size {size}; allowed are {row.least_size} to {GREATEST_SIZE} pixels, "
                         f"{row.size} is its own")
    if row.widths is not None and width not in row.widths:
        raise UsageError(f"zoo: {row.name} at width {width:g}; it exists at {', '.join(f'{w:g}' for w in row.widths)}")
    if not (isfinite(width) and 0.0 < width <= GREATEST_WIDTH):
        raise UsageError(f"zoo: {row.name} at width {width:g}; allowed is above 0 and up to {GREATEST_WIDTH:g}")
    if classes < 1:
        raise UsageError(f"zoo: {row.name} with {counted(classes, 'class', 'classes')}; give 1 or more")
