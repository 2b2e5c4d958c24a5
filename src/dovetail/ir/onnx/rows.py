"""One-dimensional networks (N,C,L) as images of one row (N,C,1,L), so that every accelerator of images takes them.

Windows start it, element-wise operators between them follow. Each lifted node is read as the two-dimensional node it
equals; its result is reshaped back for whoever reads it in one dimension, and that reshape is dropped where nobody does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import helper

from dovetail.ir import Constant, Reshape
from dovetail.ir.onnx.file import copied
from dovetail.ir.onnx.state import Reader

STARTING = ("Conv", "MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool", "BatchNormalization")
FOLLOWING = ("Add", "Clip", "Concat", "Elu", "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu", "Mish", "Mul", "PRelu",
             "ReduceMean", "Relu", "Sigmoid", "Softplus", "Sub", "Sum", "Tanh")
PER_AXIS = ("kernel_shape", "strides", "dilations")


def lifts(reader: Reader, node: Any) -> bool:
    """Whether a node works on rows and has an equal on images."""
    if node.domain not in ("", "ai.onnx") or not node.input:
        return False
    moving = [t for i in node.input if i and (t := reader.tensor(i)) in reader.tensors]
    if node.op_type == "Conv" and reader.alias.get(node.input[0]) in reader.padding:  # after a lifted Pad
        return node.input[1] in reader.constants and reader.constants[node.input[1]].array.ndim == 3
    if not moving or any(len(reader.tensors[t].shape) != 3 or reader.tensors[t].element != "float32" for t in moving):
        return False
    if node.op_type == "Pad":  # only where it disappears into windows: a padding alias cannot be reshaped back
        return reader.users.get(node.output[0]) == {"Conv"} and len(node.input) <= 3
    if node.op_type == "Conv":
        return node.input[1] in reader.constants
    return node.op_type in STARTING or (node.op_type in FOLLOWING and any(t in reader.rows for t in moving))


def lift(reader: Reader, node: Any, read: Callable[[Reader, Any], None]) -> None:
    """Read a node as its equal on images of one row."""
    output = node.output[0]
    image = copied(node)
    for i, name in enumerate(node.input):
        if not name:
            continue
        tensor = reader.tensor(name)
        image.input[i] = _image(reader, name) if tensor in reader.tensors else _constant(reader, node, i)
    image.output[0] = f"{output}/row"
    for attribute in image.attribute:
        _widen(attribute, node.op_type)
    reader.users[f"{output}/row"] = reader.users.get(output, set())
    read(reader, image)
    if node.op_type == "Pad":
        reader.alias[output] = f"{output}/row"
        return
    made = reader.tensor(image.output[0])
    shape = reader.tensors[made].shape
    flat = shape if len(shape) < 4 else (*shape[:2], shape[3])
    reader.add(helper.make_node("Reshape", [made], [output], name=f"{output}/back"), Reshape(flat))
    reader.rows[output] = made


def _image(reader: Reader, name: str) -> str:
    """The image of a row: made before, or a reshape."""
    if reader.alias.get(name) in reader.padding:
        return reader.alias[name]  # a lifted Pad: an alias of an image already
    tensor = reader.tensor(name)
    if tensor not in reader.rows:
        batch, channels, length = reader.tensors[tensor].shape
        made = f"{tensor}/row"
        reader.add(helper.make_node("Reshape", [tensor], [made], name=made), Reshape((batch, channels, 1, length)))
        reader.rows[tensor] = made
    if tensor in reader.schemes:
        reader.schemes.setdefault(reader.rows[tensor], reader.schemes[tensor])
    return reader.rows[tensor]


def _constant(reader: Reader, node: Any, index: int) -> str:
    """A constant operand with the row's dimension put in before the last; per-channel vectors and axes as they are."""
    name = node.input[index]
    if name not in reader.constants:
        return str(name)
    constant = reader.constants[name]
    array, made = constant.array, f"{name}/row{index}"
    if node.op_type == "Pad":
        if index != 1:
            return str(name)
        array = np.insert(array.reshape(2, 3), 2, 0, axis=1).reshape(-1)
    elif node.op_type == "ReduceMean":
        array = np.asarray(_axes(array.reshape(-1)), dtype=np.int64)
    elif array.ndim >= 2:
        array = np.expand_dims(array, -2)
    else:
        return str(name)
    reader.constants[made] = Constant(made, array, constant.scheme)
    return made


def _axes(axes: Any) -> list[int]:
    """The columns of a row are the rows and columns of its image."""
    return sorted({j for i in axes for j in ((2, 3) if int(i) % 3 == 2 else (int(i) % 3,))})


def _widen(attribute: Any, operator: str) -> None:
    """Attributes of one dimension for two; the row itself has windows of one."""
    values = list(attribute.ints)
    if attribute.name in PER_AXIS and len(values) == 1:
        attribute.ints[:] = [1, *values]
    elif attribute.name == "pads" and operator == "Pad":
        attribute.ints[:] = [*values[:2], 0, *values[2:5], 0, *values[5:]]
    elif attribute.name == "pads" and len(values) == 2:
        attribute.ints[:] = [0, values[0], 0, values[1]]
    elif attribute.name == "axis" and operator == "Concat" and attribute.i in (2, -1):
        attribute.i = 3
    elif attribute.name == "axis" and operator == "Concat" and attribute.i < 0:
        attribute.i %= 3
    elif attribute.name == "axes" and operator == "ReduceMean":
        attribute.ints[:] = _axes(values)
