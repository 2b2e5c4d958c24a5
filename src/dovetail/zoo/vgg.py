"""VGG16 (Simonyan and Zisserman 2015, configuration D) as torchvision has it."""

from __future__ import annotations

from dovetail.zoo.alexnet import classifier
from dovetail.zoo.network import Net

STAGES = ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))
"""Channels and number of 3x3 convolutions; a 2x2 pool ends each stage."""


def vgg16(net: Net, classes: int) -> str:
    x = net.image()
    for stage, (channels, repeats) in enumerate(STAGES, 1):
        for i in range(1, repeats + 1):
            x = net.conv(x, f"conv{stage}_{i}", net.channels(channels), 3, pad=1, gain=2.0)
            x = net.activate(x, f"relu{stage}_{i}")
        x = net.max_pool(x, f"pool{stage}", kernel=2)
    return classifier(net, x, grid=7, classes=classes)
