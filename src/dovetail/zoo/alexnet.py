"""AlexNet, twice: as torchvision has it, and with BatchNorm as LQ-Nets trains it; and VGG16, which ends as the former does.

Krizhevsky 2014, "One weird trick for parallelizing convolutional neural networks" (torchvision's form);
Zhang et al. 2018, "LQ-Nets", whose published code pools before it normalises and writes the first two fully
connected layers as convolutions; Simonyan and Zisserman 2015, configuration D (torchvision's form).
"""

from __future__ import annotations

from dovetail.zoo.network import Net

FEATURES = ((64, 11, 4, 2, True), (192, 5, 1, 2, True), (384, 3, 1, 1, False), (256, 3, 1, 1, False), (256, 3, 1, 1, True))
"""Per convolution: channels, kernel, stride, padding, whether a 3x3 pool with stride 2 follows."""


def torchvision(net: Net, classes: int) -> str:
    x = net.image()
    for i, (channels, kernel, stride, pad, pooled) in enumerate(FEATURES, 1):
        x = net.conv(x, f"features.conv{i}", net.channels(channels), kernel, stride=stride, pad=pad, gain=2.0)
        x = net.activate(x, f"features.relu{i}")
        if pooled:
            x = net.max_pool(x, f"features.pool{i}")
    return classifier(net, x, grid=6, classes=classes)


def classifier(net: Net, x: str, grid: int, classes: int) -> str:
    """Two hidden fully connected layers and the last one, over a `grid` x `grid` map.

    At the native size the map has that shape. A map that is a multiple is averaged down to it, as torchvision's
    adaptive pooling does; any other is taken as it is, so that a small image gives a small first layer.
    """
    side = net.shape(x)[2]
    if side > grid and side % grid == 0:
        x = net.average_pool(x, "avgpool", side // grid, side // grid)
    x = net.flatten(x, "flatten")
    for i in (1, 2):
        x = net.activate(net.gemm(x, f"classifier.fc{i}", net.channels(4096), gain=2.0), f"classifier.relu{i}")
    return net.gemm(x, "classifier.fc3", classes)


def lq_nets(net: Net, classes: int) -> str:
    """227x227 is native: only then does the last map have the 6x6 of `fc6`; other sizes get a kernel of their own."""
    x = net.image()
    bias = not net.batch_norm
    x = net.conv(x, "conv1", net.channels(96), 11, stride=4, bias=bias, gain=2.0)
    x = net.activate(net.norm(net.max_pool(x, "pool1"), "bn1"), "relu1")
    x = net.conv(x, "conv2", net.channels(256), 5, pad=2, bias=bias, gain=2.0)
    x = net.activate(net.norm(net.max_pool(x, "pool2"), "bn2"), "relu2")
    for i in (3, 4):
        x = net.conv(x, f"conv{i}", net.channels(384), 3, pad=1, bias=bias, gain=2.0)
        x = net.activate(net.norm(x, f"bn{i}"), f"relu{i}")
    x = net.conv(x, "conv5", net.channels(256), 3, pad=1, bias=bias, gain=2.0)
    x = net.activate(net.norm(net.max_pool(x, "pool5"), "bn5"), "relu5")
    for i, kernel in ((6, net.shape(x)[2]), (7, 1)):
        x = net.conv(x, f"fc{i}", net.channels(4096), kernel, gain=2.0)  # a bias beside BatchNorm, as in the original
        x = net.activate(net.norm(x, f"bn{i}"), f"relu{i}")
    return net.gemm(net.flatten(x, "flatten"), "fc8", classes)


VGG_STAGES = ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))
"""Channels and number of 3x3 convolutions; a 2x2 pool ends each stage."""


def vgg16(net: Net, classes: int) -> str:
    x = net.image()
    for stage, (channels, repeats) in enumerate(VGG_STAGES, 1):
        for i in range(1, repeats + 1):
            x = net.conv(x, f"conv{stage}_{i}", net.channels(channels), 3, pad=1, gain=2.0)
            x = net.activate(x, f"relu{stage}_{i}")
        x = net.max_pool(x, f"pool{stage}", kernel=2)
    return classifier(net, x, grid=7, classes=classes)
