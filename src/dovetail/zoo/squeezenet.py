"""SqueezeNet 1.0 and 1.1 (Iandola et al. 2016) as torchvision has them: no BatchNorm, pools that round up."""

from __future__ import annotations

from dovetail.zoo.network import Net


def fire(net: Net, x: str, name: str, squeeze: int, expand: int) -> str:
    """Squeeze to few channels, expand them by 1x1 and 3x3 filters side by side."""
    x = net.conv(x, f"{name}_squeeze", net.channels(squeeze), gain=2.0)
    x = net.activate(x, f"{name}_squeeze_relu")
    sides = []
    for kernel in (1, 3):
        y = net.conv(x, f"{name}_expand{kernel}x{kernel}", net.channels(expand), kernel, pad=kernel // 2, gain=2.0)
        sides.append(net.activate(y, f"{name}_expand{kernel}x{kernel}_relu"))
    return net.concat(sides, f"{name}_concat")


FIRES = ((16, 64), (16, 64), (32, 128), (32, 128), (48, 192), (48, 192), (64, 256), (64, 256))
"""Squeeze and expand channels of fire2 to fire9."""


def squeezenet(net: Net, classes: int, channels: int, kernel: int, pool_after: tuple[int, ...]) -> str:
    """The first convolution has so many channels and this kernel; a pool follows it and some of the fires."""
    x = net.conv(net.image(), "conv1", net.channels(channels), kernel, stride=2, gain=2.0)
    x = net.max_pool(net.activate(x, "conv1_relu"), "pool1", ceil_mode=True)
    for i, (squeeze, expand) in enumerate(FIRES, 2):
        x = fire(net, x, f"fire{i}", squeeze, expand)
        if i in pool_after:
            x = net.max_pool(x, f"pool{i}", ceil_mode=True)
    x = net.activate(net.conv(x, "conv10", classes, gain=2.0), "conv10_relu")
    return net.flatten(net.global_pool(x, "avgpool"), "flatten")
