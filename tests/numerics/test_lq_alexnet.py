"""AlexNet of codes with drawn weights: its layers, its bits, and that its codes are all in use."""

from __future__ import annotations

import numpy as np

from dovetail.ir import Coded, Conv
from dovetail.numerics.lq_alexnet import lq_alexnet, weight_bits_of
from dovetail.numerics.reference import run_integer

SMALL = lq_alexnet(99, 12, 48, 10)


def test_layers_are_those_of_alexnet_and_ends_have_bytes() -> None:
    shapes = {n.name: SMALL.shape(n.output)[1:] for n in SMALL.nodes}
    assert shapes["conv1"] == (12, 23, 23)
    assert shapes["conv2_pool"] == (32, 5, 5)
    assert shapes["conv5_pool"] == (32, 2, 2)
    assert shapes["fc6"] == (48, 1, 1), "fully connected layers keep the map's order: their kernel is the whole map"
    bits = {n.name: n.op.weight_bits for n in SMALL.nodes if isinstance(n.op, Coded)}
    assert bits == {"conv1": 0, "conv2": 2, "conv3": 2, "conv4": 2, "conv5": 2, "fc6": 2, "fc7": 2, "fc8": 0}


def test_weights_are_counted_in_the_bits_they_are_stored_in() -> None:
    first, last = 12 * 3 * 121 * 8, 10 * 48 * 8
    inner = 32 * 12 * 25 + 48 * 32 * 9 + 48 * 48 * 9 + 32 * 48 * 9 + 48 * 32 * 4 + 48 * 48
    assert weight_bits_of(SMALL) == first + last + 2 * inner


def test_every_code_occurs_in_every_layer() -> None:
    x = np.random.default_rng(0).integers(0, 256, (2, 3, 99, 99)).astype(np.uint8)
    values = run_integer(SMALL, {"image": x}, keep=True)
    for node in SMALL.nodes:
        if isinstance(node.op, Coded) and node.op.output_bits:
            assert set(np.unique(values[node.output])) == {0, 1, 2, 3}, node.name
    assert len(np.unique(values["fc8_y"])) > 10


def test_windows_are_the_published_ones() -> None:
    windows = {n.name: n.op.body.window for n in SMALL.nodes if isinstance(n.op, Coded) and isinstance(n.op.body, Conv)}
    assert {name: (w.kernel[0], w.stride[0], w.pads[0]) for name, w in windows.items() if name.startswith("conv")} == {
        "conv1": (11, 4, 0), "conv2": (5, 1, 2), "conv3": (3, 1, 1), "conv4": (3, 1, 1), "conv5": (3, 1, 1)}
    assert all(len(set(w.pads)) == len(set(w.stride)) == 1 for w in windows.values())
