"""ShuffleNetV1 with three groups (Zhang et al. 2018) and ShuffleNetV2 (Ma et al. 2018, torchvision's form)."""

from __future__ import annotations

from dovetail.zoo.network import Activation, Net

REPEATS = (4, 8, 4)
"""Units per stage in both versions; the first of each halves the map."""
V1_GROUPS = 3
V1_CHANNELS = (240, 480, 960)
V2_CHANNELS = {0.5: (48, 96, 192, 1024), 1.0: (116, 232, 464, 1024), 1.5: (176, 352, 704, 1024), 2.0: (244, 488, 976, 2048)}
"""Stage channels and those of the last convolution per published width (Table 5 of the paper)."""


def _v1_unit(net: Net, x: str, name: str, channels: int, first_of_net: bool, halves: bool) -> str:
    """Grouped 1x1, shuffle, depthwise 3x3, grouped 1x1; joined by addition, or by concatenation where the map is halved."""
    depth, inner = net.shape(x)[1], channels // 4
    y = net.unit(x, f"{name}.compress", inner, groups=1 if first_of_net else V1_GROUPS)
    y = net.shuffle(y, f"{name}.shuffle", V1_GROUPS)
    y = net.unit(y, f"{name}.depthwise", inner, 3, stride=2 if halves else 1, groups=inner, act=Activation.NONE)
    y = net.unit(y, f"{name}.expand", channels - depth if halves else channels, groups=V1_GROUPS, act=Activation.NONE)
    if halves:
        joined = net.concat([y, net.average_pool(x, f"{name}.pool", 3, 2, pad=1)], f"{name}.concat")
    else:
        joined = net.add(y, x, f"{name}.add")
    return net.activate(joined, f"{name}.relu")


def shufflenet_v1(net: Net, classes: int) -> str:
    """Widths round to twelve channels: a quarter of them still splits into three groups."""
    x = net.unit(net.image(), "stem", net.channels(24, by=12), 3, stride=2)
    x = net.max_pool(x, "maxpool", pad=1)
    for stage, (channels, repeats) in enumerate(zip(V1_CHANNELS, REPEATS, strict=True), 2):
        for i in range(repeats):
            x = _v1_unit(net, x, f"stage{stage}.{i}", net.channels(channels, by=12), stage == 2 and i == 0, i == 0)
    return net.gemm(net.flatten(net.global_pool(x, "avgpool"), "flatten"), "fc", classes)


def _v2_branch(net: Net, x: str, name: str, half: int, stride: int) -> str:
    y = net.unit(x, f"{name}.pointwise1", half)
    y = net.unit(y, f"{name}.depthwise", half, 3, stride=stride, groups=half, act=Activation.NONE)
    return net.unit(y, f"{name}.pointwise2", half)


def v2_unit(net: Net, x: str, name: str, channels: int, halves: bool) -> str:
    """The unit that halves the image and works on all channels, or the one that works on half of them and keeps its size."""
    depth, half = net.shape(x)[1], channels // 2
    if halves:
        kept = net.unit(x, f"{name}.branch1.depthwise", depth, 3, stride=2, groups=depth, act=Activation.NONE)
        kept = net.unit(kept, f"{name}.branch1.pointwise", half)
        worked = _v2_branch(net, x, f"{name}.branch2", half, 2)
    else:
        kept, worked = net.split(x, f"{name}.split", (half, half))
        worked = _v2_branch(net, worked, f"{name}.branch2", half, 1)
    return net.shuffle(net.concat([kept, worked], f"{name}.concat"), f"{name}.shuffle", 2)


def shufflenet_v2(net: Net, classes: int) -> str:
    *stages, last = V2_CHANNELS[net.width]
    x = net.max_pool(net.unit(net.image(), "conv1", 24, 3, stride=2), "maxpool", pad=1)
    for stage, (channels, repeats) in enumerate(zip(stages, REPEATS, strict=True), 2):
        for i in range(repeats):
            x = v2_unit(net, x, f"stage{stage}.{i}", channels, i == 0)
    x = net.unit(x, "conv5", last)
    return net.gemm(net.mean(x, "mean"), "fc", classes)
