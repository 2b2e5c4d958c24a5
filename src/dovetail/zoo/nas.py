"""Networks found by search, all of inverted residuals: MnasNet, ProxylessNAS-mobile, EfficientNet-Lite0."""

from __future__ import annotations

from dovetail.zoo.mobilenet import inverted_residual
from dovetail.zoo.network import SAME, Activation, Net

MNASNET = ((3, 24, 3, 3, 2), (5, 40, 3, 3, 2), (5, 80, 6, 3, 2), (3, 96, 6, 2, 1), (5, 192, 6, 4, 2), (3, 320, 6, 1, 1))
"""Kernel, channels, expansion, repeats, first stride (Tan et al. 2019; torchvision's MnasNet-B1 without squeeze-excite)."""
EFFICIENTNET_LITE0 = ((3, 16, 1, 1, 1), (3, 24, 6, 2, 2), (5, 40, 6, 2, 2), (3, 80, 6, 3, 2), (5, 112, 6, 3, 1),
                      (5, 192, 6, 4, 2), (3, 320, 6, 1, 1))
"""As above: EfficientNet-B0's stages (Tan and Le 2019) without squeeze-excite, ReLU6 in place of swish."""
PROXYLESS_MOBILE = (
    (16, 1, ((3, 1),)),
    (32, 2, ((5, 3), (3, 3))),
    (40, 2, ((7, 3), (3, 3), (5, 3), (5, 3))),
    (80, 2, ((7, 6), (5, 3), (5, 3), (5, 3))),
    (96, 1, ((5, 6), (5, 3), (5, 3), (5, 3))),
    (192, 2, ((7, 6), (7, 6), (7, 3), (7, 3))),
    (320, 1, ((7, 6),)),
)
"""Channels, first stride, and (kernel, expansion) of each block the search kept (Cai et al. 2019)."""


def mnasnet(net: Net, classes: int) -> str:
    x = net.unit(net.image(), "stem", net.channels(32), 3, stride=2)
    depth = net.shape(x)[1]
    x = net.unit(x, "separable.depthwise", depth, 3, groups=depth)
    x = net.unit(x, "separable.pointwise", net.channels(16), act=Activation.NONE)
    for stage, (kernel, channels, expansion, repeats, stride) in enumerate(MNASNET, 1):
        for i in range(repeats):
            x = inverted_residual(net, x, f"stack{stage}.{i}", net.channels(channels), kernel, stride if i == 0 else 1,
                                  expansion, Activation.RELU)
    x = net.unit(x, "head", 1280)
    return net.gemm(net.mean(x, "mean"), "classifier", classes)


def proxylessnas_mobile(net: Net, classes: int) -> str:
    epsilon = 1e-3
    x = net.unit(net.image(), "stem", net.channels(32), 3, stride=2, act=Activation.RELU6, epsilon=epsilon)
    for stage, (channels, stride, blocks) in enumerate(PROXYLESS_MOBILE, 1):
        for i, (kernel, expansion) in enumerate(blocks):
            x = inverted_residual(net, x, f"stage{stage}.{i}", net.channels(channels), kernel, stride if i == 0 else 1, expansion,
                                  epsilon=epsilon)
    x = net.unit(x, "head", net.channels(1280), act=Activation.RELU6, epsilon=epsilon)
    return net.gemm(net.flatten(net.global_pool(x, "avgpool"), "flatten"), "classifier", classes)


def efficientnet_lite0(net: Net, classes: int) -> str:
    """TensorFlow's padding: where the stride is 2 an even map is padded at its end alone. Stem and head keep their width."""
    epsilon = 1e-3
    x = net.unit(net.image(), "stem", 32, 3, stride=2, pad=SAME, act=Activation.RELU6, epsilon=epsilon)
    index = 0
    for kernel, channels, expansion, repeats, stride in EFFICIENTNET_LITE0:
        for i in range(repeats):
            x = inverted_residual(net, x, f"blocks.{index}", net.channels(channels), kernel, stride if i == 0 else 1, expansion,
                                  same=True, epsilon=epsilon)
            index += 1
    x = net.unit(x, "head", 1280, act=Activation.RELU6, epsilon=epsilon)
    return net.gemm(net.flatten(net.global_pool(x, "avgpool"), "flatten"), "fc", classes)
