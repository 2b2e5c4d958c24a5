"""A network of as many layers as are asked for: residual blocks of four convolutions, in four resolutions, seeded weights."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper, numpy_helper

BLOCK = 5
"""Layers of a block: four convolutions and what adds."""
CHANNELS, SIZE, STAGES = 16, 64, 4


def long_network(layers: int, seed: int = 0) -> bytes:
    """An ONNX file of so many layers."""
    rng, nodes, weights = np.random.default_rng(seed), [], []
    here, size = "input", SIZE

    def conv(x: str, name: str, inputs: int, stride: int = 1) -> str:
        deviation = (inputs * 9) ** -0.5
        weights.append(numpy_helper.from_array(rng.normal(0, deviation, (CHANNELS, inputs, 3, 3)).astype(np.float32),
                                               f"{name}.weight"))
        nodes.append(helper.make_node("Conv", [x, f"{name}.weight"], [f"{name}.y"], f"{name}/Conv", kernel_shape=[3, 3],
                                      pads=[1, 1, 1, 1], strides=[stride, stride]))
        return f"{name}.y"

    here = conv(here, "/features/features.0/conv", 3)
    blocks = (layers - 1) // BLOCK
    for block in range(1, blocks + 1):
        stride = 2 if block % -(-blocks // STAGES) == 0 else 1
        size //= stride
        came = here = conv(here, f"/features/features.{block}/conv/conv.0", CHANNELS, stride)
        for i in (1, 2, 3):
            here = conv(here, f"/features/features.{block}/conv/conv.{i}", CHANNELS)
        nodes.append(helper.make_node("Add", [came, here], [f"{block}.sum"], f"/features/features.{block}/Add"))
        here = f"{block}.sum"
    for extra in range(layers - 1 - blocks * BLOCK):
        here = conv(here, f"/classifier/classifier.{extra}", CHANNELS)
    graph = helper.make_graph(nodes, "long", [helper.make_tensor_value_info("input", TensorProto.FLOAT, (1, 3, SIZE, SIZE))],
                              [helper.make_tensor_value_info(here, TensorProto.FLOAT, (1, CHANNELS, size, size))], weights)
    return bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString())
