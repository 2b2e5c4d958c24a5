"""MobileNetV1 (Howard et al. 2017) and MobileNetV2 (Sandler et al. 2018, torchvision's form), any width."""

from __future__ import annotations

from dovetail.zoo.network import SAME, Activation, Net, Pads, divisible

V1_PAIRS = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *((512, 1),) * 5, (1024, 2), (1024, 1))
"""Channels and stride of V1's depthwise-pointwise pairs."""
V2_STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
"""Expansion, channels, repeats and first stride of V2's stages."""


def mobilenet_v1(net: Net, classes: int) -> str:
    """ReLU and symmetric padding, the common PyTorch form."""
    x = net.unit(net.image(), "stem", net.channels(32), 3, stride=2)
    for i, (channels, stride) in enumerate(V1_PAIRS, 1):
        depth = net.shape(x)[1]
        x = net.unit(x, f"block{i}.depthwise", depth, 3, stride=stride, groups=depth)
        x = net.unit(x, f"block{i}.pointwise", net.channels(channels))
    return net.gemm(net.flatten(net.global_pool(x, "avgpool"), "flatten"), "fc", classes)


def inverted_residual(net: Net, x: str, name: str, channels: int, kernel: int, stride: int, expansion: int,
                      act: Activation = Activation.RELU6, *, same: bool = False, epsilon: float = 1e-5) -> str:
    """Expand, filter depthwise, project without activation; a shortcut where shape and stride allow one.

    `same` pads as TensorFlow does, one pixel more at the end where the stride is 2.
    """
    depth = net.shape(x)[1]
    pad: Pads = SAME if same else kernel // 2
    y = x if expansion == 1 else net.unit(x, f"{name}.expand", depth * expansion, act=act, epsilon=epsilon)
    y = net.unit(y, f"{name}.depthwise", depth * expansion, kernel, stride=stride, pad=pad, groups=depth * expansion, act=act,
                 epsilon=epsilon)
    y = net.unit(y, f"{name}.project", channels, act=Activation.NONE, epsilon=epsilon)
    return net.add(y, x, f"{name}.add") if stride == 1 and depth == channels else y


def mobilenet_v2(net: Net, classes: int) -> str:
    """ReLU6; the last convolution never gets narrower than 1280 channels."""
    x = net.unit(net.image(), "features.0", net.channels(32), 3, stride=2, act=Activation.RELU6)
    index = 1
    for expansion, channels, repeats, stride in V2_STAGES:
        for i in range(repeats):
            x = inverted_residual(net, x, f"features.{index}", net.channels(channels), 3, stride if i == 0 else 1, expansion)
            index += 1
    x = net.unit(x, f"features.{index}", divisible(1280 * max(1.0, net.width)), act=Activation.RELU6)
    return net.gemm(net.flatten(net.global_pool(x, "avgpool"), "flatten"), "classifier", classes)
