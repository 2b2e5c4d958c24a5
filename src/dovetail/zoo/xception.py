"""Xception (Chollet 2017) as Keras has it: SAME padding, BatchNorm after the pointwise convolution only."""

from __future__ import annotations

from dovetail.zoo.network import SAME, Activation, Net

EPSILON = 1e-3
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
