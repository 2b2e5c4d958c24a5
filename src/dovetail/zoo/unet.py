"""A small U-Net (Ronneberger et al. 2015) for segmentation: padded convolutions with BatchNorm, as its best-known code has them.

The layers are those of milesial/Pytorch-UNet, with three levels below the image in place of four, 16 channels at the top in
place of 64, and no biases before BatchNorm.
"""

from __future__ import annotations

from dovetail.zoo.network import Net

TOP_CHANNELS = 16
"""Channels at the image's own size; every level below has twice as many."""
LEVELS = 3
"""Halvings between the image and the bottom."""


def unet(net: Net, classes: int) -> str:
    """Down to an eighth of the image and up again; every level's map goes across as well. Every pixel has its classes."""
    skips, x = list[str](), _double(net, net.image(), "inc", net.channels(TOP_CHANNELS))
    for level in range(1, LEVELS + 1):
        skips.append(x)
        x = net.max_pool(x, f"down{level}.pool", 2, 2)
        x = _double(net, x, f"down{level}", net.channels(TOP_CHANNELS << level))
    for level in range(LEVELS, 0, -1):
        channels = net.channels(TOP_CHANNELS << level - 1)
        up = net.conv_transpose(x, f"up{level}.up", channels)
        x = _double(net, net.concat([skips.pop(), up], f"up{level}.concat"), f"up{level}", channels)
    return net.conv(x, "outc", classes)


def _double(net: Net, x: str, name: str, channels: int) -> str:
    """Two 3x3 convolutions with BatchNorm and ReLU."""
    return net.unit(net.unit(x, f"{name}.1", channels, 3), f"{name}.2", channels, 3)
