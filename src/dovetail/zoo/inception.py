"""GoogLeNet (Szegedy et al. 2015) as torchvision has it: BatchNorm, 3x3 in place of 5x5, no auxiliary classifiers."""

from __future__ import annotations

from dovetail.zoo.network import Net

EPSILON = 1e-3
BLOCKS = {
    "3a": (64, 96, 128, 16, 32, 32), "3b": (128, 128, 192, 32, 96, 64),
    "4a": (192, 96, 208, 16, 48, 64), "4b": (160, 112, 224, 24, 64, 64), "4c": (128, 128, 256, 24, 64, 64),
    "4d": (112, 144, 288, 32, 64, 64), "4e": (256, 160, 320, 32, 128, 128),
    "5a": (256, 160, 320, 32, 128, 128), "5b": (384, 192, 384, 48, 128, 128),
}
"""Channels: 1x1; reduction and 3x3; reduction and second 3x3; projection after the pool."""
POOLS = {"3b": 3, "4e": 2}
"""Kernel of the pool after a block; each halves the map and rounds up."""


def _unit(net: Net, x: str, name: str, channels: int, kernel: int = 1, stride: int = 1) -> str:
    return net.unit(x, name, net.channels(channels), kernel, stride=stride, epsilon=EPSILON)


def _block(net: Net, x: str, name: str, channels: tuple[int, ...]) -> str:
    single, reduce3, wide3, reduce5, wide5, projection = channels
    branches = [
        _unit(net, x, f"{name}.branch1", single),
        _unit(net, _unit(net, x, f"{name}.branch2.0", reduce3), f"{name}.branch2.1", wide3, 3),
        _unit(net, _unit(net, x, f"{name}.branch3.0", reduce5), f"{name}.branch3.1", wide5, 3),
        _unit(net, net.max_pool(x, f"{name}.branch4.pool", 3, 1, pad=1, ceil_mode=True), f"{name}.branch4.1", projection),
    ]
    return net.concat(branches, f"{name}.concat")


def googlenet(net: Net, classes: int) -> str:
    x = _unit(net, net.image(), "conv1", 64, 7, 2)
    x = net.max_pool(x, "maxpool1", ceil_mode=True)
    x = _unit(net, _unit(net, x, "conv2", 64), "conv3", 192, 3)
    x = net.max_pool(x, "maxpool2", ceil_mode=True)
    for name, channels in BLOCKS.items():
        x = _block(net, x, f"inception{name}", channels)
        if name in POOLS:
            x = net.max_pool(x, f"maxpool{name[0]}", POOLS[name], 2, ceil_mode=True)
    return net.gemm(net.flatten(net.global_pool(x, "avgpool"), "flatten"), "fc", classes)
