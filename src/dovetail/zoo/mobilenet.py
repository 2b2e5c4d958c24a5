"""MobileNetV1 (Howard et al. 2017), V2 (Sandler et al. 2018) and V3 (Howard et al. 2019) in torchvision's form, any width.

Then networks of the same inverted residuals that were found by search: MnasNet, ProxylessNAS-mobile, EfficientNet-B0 and Lite0.
"""

from __future__ import annotations

from dovetail.zoo.network import SAME, Activation, Net, Pads, divisible

V1_PAIRS = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *((512, 1),) * 5, (1024, 2), (1024, 1))
"""Channels and stride of V1's depthwise-pointwise pairs."""
V2_STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
"""Expansion, channels, repeats and first stride of V2's stages."""
V3_LARGE = (
    (3, 16, 16, False, False, 1), (3, 64, 24, False, False, 2), (3, 72, 24, False, False, 1), (5, 72, 40, True, False, 2),
    (5, 120, 40, True, False, 1), (5, 120, 40, True, False, 1), (3, 240, 80, False, True, 2), (3, 200, 80, False, True, 1),
    (3, 184, 80, False, True, 1), (3, 184, 80, False, True, 1), (3, 480, 112, True, True, 1), (3, 672, 112, True, True, 1),
    (5, 672, 160, True, True, 2), (5, 960, 160, True, True, 1), (5, 960, 160, True, True, 1),
)
"""Kernel, expanded channels, channels, squeeze-excite, hard swish, stride (Howard et al. 2019, Table 1)."""
V3_SMALL = (
    (3, 16, 16, True, False, 2), (3, 72, 24, False, False, 2), (3, 88, 24, False, False, 1), (5, 96, 40, True, True, 2),
    (5, 240, 40, True, True, 1), (5, 240, 40, True, True, 1), (5, 120, 48, True, True, 1), (5, 144, 48, True, True, 1),
    (5, 288, 96, True, True, 2), (5, 576, 96, True, True, 1), (5, 576, 96, True, True, 1),
)
"""As above, Table 2."""
V3_EPSILON = 1e-3


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


def mobilenet_v3(net: Net, classes: int, blocks: tuple[tuple[int, int, int, bool, bool, int], ...], features: int) -> str:
    """Hard swish in the deeper half, squeeze-excite in some blocks, pooling before the last expansion."""
    swish = Activation.HARD_SWISH
    x = net.unit(net.image(), "features.0", net.channels(16), 3, stride=2, act=swish, epsilon=V3_EPSILON)
    for i, (kernel, expanded, channels, excited, swished, stride) in enumerate(blocks, 1):
        name, depth, wide, out = f"features.{i}", net.shape(x)[1], net.channels(expanded), net.channels(channels)
        act = swish if swished else Activation.RELU
        y = x if wide == depth else net.unit(x, f"{name}.expand", wide, act=act, epsilon=V3_EPSILON)
        y = net.unit(y, f"{name}.depthwise", wide, kernel, stride=stride, groups=wide, act=act, epsilon=V3_EPSILON)
        y = net.squeeze_excite(y, f"{name}.se", divisible(wide // 4)) if excited else y
        y = net.unit(y, f"{name}.project", out, act=Activation.NONE, epsilon=V3_EPSILON)
        x = net.add(y, x, f"{name}.add") if stride == 1 and depth == out else y
    x = net.unit(x, f"features.{len(blocks) + 1}", 6 * net.shape(x)[1], act=swish, epsilon=V3_EPSILON)
    x = net.gemm(net.flatten(net.global_pool(x, "avgpool"), "flatten"), "classifier.0", net.channels(features), gain=2.0)
    return net.gemm(net.activate(x, "classifier.1", swish), "classifier.3", classes)


MNASNET = ((3, 24, 3, 3, 2), (5, 40, 3, 3, 2), (5, 80, 6, 3, 2), (3, 96, 6, 2, 1), (5, 192, 6, 4, 2), (3, 320, 6, 1, 1))
"""Kernel, channels, expansion, repeats, first stride (Tan et al. 2019; torchvision's MnasNet-B1 without squeeze-excite)."""
EFFICIENTNET = ((3, 16, 1, 1, 1), (3, 24, 6, 2, 2), (5, 40, 6, 2, 2), (3, 80, 6, 3, 2), (5, 112, 6, 3, 1),
                (5, 192, 6, 4, 2), (3, 320, 6, 1, 1))
"""As above: the stages of EfficientNet-B0 (Tan and Le 2019), and of Lite0 without squeeze-excite, ReLU6 in place of swish."""
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
    for kernel, channels, expansion, repeats, stride in EFFICIENTNET:
        for i in range(repeats):
            x = inverted_residual(net, x, f"blocks.{index}", net.channels(channels), kernel, stride if i == 0 else 1, expansion,
                                  same=True, epsilon=epsilon)
            index += 1
    x = net.unit(x, "head", 1280, act=Activation.RELU6, epsilon=epsilon)
    return net.gemm(net.flatten(net.global_pool(x, "avgpool"), "flatten"), "fc", classes)


def efficientnet_b0(net: Net, classes: int) -> str:
    """Swish, and squeeze-excite to a quarter of a block's input channels in every block; torchvision's padding."""
    swish = Activation.SWISH
    x = net.unit(net.image(), "features.0", net.channels(32), 3, stride=2, act=swish)
    for stage, (kernel, channels, expansion, repeats, first) in enumerate(EFFICIENTNET, 1):
        for i in range(repeats):
            name, depth, out, stride = f"features.{stage}.{i}", net.shape(x)[1], net.channels(channels), first if i == 0 else 1
            y = x if expansion == 1 else net.unit(x, f"{name}.expand", depth * expansion, act=swish)
            y = net.unit(y, f"{name}.depthwise", depth * expansion, kernel, stride=stride, groups=depth * expansion, act=swish)
            y = net.squeeze_excite(y, f"{name}.se", max(1, depth // 4), swish, hard=False)
            y = net.unit(y, f"{name}.project", out, act=Activation.NONE)
            x = net.add(y, x, f"{name}.add") if stride == 1 and depth == out else y
    x = net.unit(x, f"features.{len(EFFICIENTNET) + 1}", 4 * net.shape(x)[1], act=swish)
    return net.gemm(net.flatten(net.global_pool(x, "avgpool"), "flatten"), "classifier", classes)
