"""YOLOv2 (Redmon and Farhadi 2017, "YOLO9000"): Darknet-19 with a passthrough, as yolov2.cfg of its authors lists the layers.

The passthrough is ONNX's SpaceToDepth. Darknet's own reorganisation takes the same pixels in another order of channels.
"""

from __future__ import annotations

from dovetail.errors import UsageError
from dovetail.zoo.network import Activation, Net

ANCHORS = 5
"""Boxes that a cell predicts. Source: `num` of yolov2.cfg."""
BOX = 5
"""Numbers of a box beside its classes: four coordinates and its confidence. Source: Sec. 2 of the paper."""
HALVINGS = 5
"""Poolings, so that a cell is 32 pixels wide. Source: Sec. 2 of the paper."""
DARKNET = ((32,), (64,), (128, 64, 128), (256, 128, 256), (512, 256, 512, 256, 512), (1024, 512, 1024, 512, 1024))
"""Filters between poolings, 3x3 and 1x1 in turn. Source: Table 6 of the paper."""


def yolov2(net: Net, classes: int) -> str:
    """Per cell and anchor a box, its confidence and its classes, as raw numbers."""
    if net.size % (1 << HALVINGS):
        raise UsageError(f"zoo: yolov2 at size {net.size}; it needs a multiple of {1 << HALVINGS} pixels, "
                         f"{net.size // 32 * 32 or 32} for example")
    x, fine = net.image(), ""
    for stage, filters in enumerate(DARKNET):
        x = net.max_pool(x, f"stage{stage}.pool", 2, 2) if stage else x
        for i, count in enumerate(filters):
            x = _unit(net, x, f"stage{stage}.{i}", count, 1 if i % 2 else 3)
        fine = x if stage == HALVINGS - 1 else fine
    x = _unit(net, _unit(net, x, "head.0", 1024, 3), "head.1", 1024, 3)
    joined = net.concat([net.space_to_depth(_unit(net, fine, "passthrough.conv", 64, 1), "passthrough", 2), x], "head.concat")
    return net.conv(_unit(net, joined, "head.2", 1024, 3), "head.boxes", ANCHORS * (BOX + classes))


def _unit(net: Net, x: str, name: str, filters: int, kernel: int) -> str:
    return net.unit(x, name, net.channels(filters), kernel, act=Activation.LEAKY)
