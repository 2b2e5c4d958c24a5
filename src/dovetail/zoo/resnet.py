"""ResNet18 and ResNet50 (He et al. 2016) as torchvision has them: the bottleneck's stride is in its 3x3 convolution."""

from __future__ import annotations

from dovetail.zoo.network import Activation, Net

EXPANSION = 4
"""Output channels of a bottleneck over its inner ones."""


def _joined(net: Net, body: str, shortcut: str, name: str) -> str:
    return net.activate(net.add(body, shortcut, f"{name}.add"), f"{name}.relu")


def _shortcut(net: Net, x: str, name: str, channels: int, stride: int) -> str:
    if stride == 1 and net.shape(x)[1] == channels:
        return x
    return net.unit(x, f"{name}.downsample", channels, stride=stride, act=Activation.NONE)


def _layer(net: Net, x: str, name: str, index: int, channels: int, kernel: int = 1, stride: int = 1, last: bool = False) -> str:
    """convN, bnN, reluN of a block; the last one's ReLU comes after the addition."""
    x = net.conv(x, f"{name}.conv{index}", channels, kernel, stride=stride, pad=kernel // 2, bias=not net.batch_norm,
                 gain=1.0 if last else 2.0)
    x = net.norm(x, f"{name}.bn{index}")
    return x if last else net.activate(x, f"{name}.relu{index}")


def _basic(net: Net, x: str, name: str, channels: int, stride: int) -> str:
    body = _layer(net, x, name, 1, channels, 3, stride)
    body = _layer(net, body, name, 2, channels, 3, last=True)
    return _joined(net, body, _shortcut(net, x, name, channels, stride), name)


def _bottleneck(net: Net, x: str, name: str, channels: int, stride: int) -> str:
    body = _layer(net, x, name, 1, channels)
    body = _layer(net, body, name, 2, channels, 3, stride)
    body = _layer(net, body, name, 3, channels * EXPANSION, last=True)
    return _joined(net, body, _shortcut(net, x, name, channels * EXPANSION, stride), name)


def resnet(net: Net, classes: int, repeats: tuple[int, ...], bottleneck: bool) -> str:
    """So many blocks in each stage, with or without bottlenecks."""
    x = net.conv(net.image(), "conv1", net.channels(64), 7, stride=2, pad=3, bias=not net.batch_norm, gain=2.0)
    x = net.max_pool(net.activate(net.norm(x, "bn1"), "relu"), "maxpool", pad=1)
    block = _bottleneck if bottleneck else _basic
    for stage, count in enumerate(repeats, 1):
        for i in range(count):
            x = block(net, x, f"layer{stage}.{i}", net.channels(32 << stage), 2 if stage > 1 and i == 0 else 1)
    return net.gemm(net.flatten(net.global_pool(x, "avgpool"), "flatten"), "fc", classes)
