"""GoogLeNet (Szegedy et al. 2015) as torchvision has it: BatchNorm, 3x3 in place of 5x5, no auxiliary classifiers.

Then Xception (Chollet 2017) as Keras has it: SAME padding, BatchNorm after the pointwise convolution only.
"""

from __future__ import annotations

from dovetail.zoo.network import SAME, Activation, Net

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


MIDDLE_BLOCKS = 8


def _separable(net: Net, x: str, name: str, channels: int) -> str:
    depth = net.shape(x)[1]
    x = net.conv(x, f"{name}.depthwise", depth, 3, pad=1, groups=depth, bias=False)
    x = net.conv(x, f"{name}.pointwise", channels, bias=not net.batch_norm)
    return net.norm(x, f"{name}.bn", EPSILON)


def _downsampling(net: Net, x: str, name: str, first: int, channels: int, leading_relu: bool = True) -> str:
    """Two separable convolutions and a pool beside a strided 1x1 convolution."""
    shortcut = net.unit(x, f"{name}.shortcut", channels, stride=2, pad=SAME, act=Activation.NONE, epsilon=EPSILON)
    y = net.activate(x, f"{name}.relu1") if leading_relu else x
    y = net.activate(_separable(net, y, f"{name}.sepconv1", first), f"{name}.relu2")
    y = net.max_pool(_separable(net, y, f"{name}.sepconv2", channels), f"{name}.pool", pad=SAME)
    return net.add(y, shortcut, f"{name}.add")


def xception(net: Net, classes: int) -> str:
    x = net.unit(net.image(), "block1.conv1", net.channels(32), 3, stride=2, pad=0, epsilon=EPSILON)
    x = net.unit(x, "block1.conv2", net.channels(64), 3, pad=0, epsilon=EPSILON)
    for index, channels in enumerate((128, 256, 728), 2):
        wide = net.channels(channels)
        x = _downsampling(net, x, f"block{index}", wide, wide, leading_relu=index > 2)
    for index in range(5, 5 + MIDDLE_BLOCKS):
        y = x
        for i in (1, 2, 3):
            y = _separable(net, net.activate(y, f"block{index}.relu{i}"), f"block{index}.sepconv{i}", net.channels(728))
        x = net.add(y, x, f"block{index}.add")
    x = _downsampling(net, x, "block13", net.channels(728), net.channels(1024))
    for i, channels in enumerate((1536, 2048), 1):
        x = net.activate(_separable(net, x, f"block14.sepconv{i}", net.channels(channels)), f"block14.relu{i}")
    return net.gemm(net.flatten(net.global_pool(x, "avgpool"), "flatten"), "predictions", classes)
