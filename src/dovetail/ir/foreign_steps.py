"""Foreign nodes and formulas for those who compute them without ONNX Runtime: nodes with plain attributes and arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import onnx
from onnx import helper, numpy_helper

from dovetail.ir.tensor import Array


@dataclass(frozen=True, slots=True, eq=False)
class OnnxStep:
    """One ONNX node: its attributes as numbers, text, lists of those, or arrays; "" stands for an absent input."""

    operator: str
    domain: str
    attributes: Mapping[str, Any]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    result_shapes: tuple[tuple[int, ...] | None, ...]
    """As the model states them; None where it does not."""

    @property
    def has_subgraphs(self) -> bool:
        """Whether it is control flow, or has it."""
        return any(isinstance(value, onnx.GraphProto) for value in self.attributes.values())


@dataclass(frozen=True, slots=True, eq=False)
class OnnxSteps:
    """The content of an `Opaque` or a `Function`: nodes in order and their constants by name."""

    steps: tuple[OnnxStep, ...]
    constants: Mapping[str, Array]
    opset: int


@lru_cache(maxsize=1024)
def steps_of(content: bytes) -> OnnxSteps:
    """A serialized model of a few nodes."""
    model = onnx.load_model_from_string(content)
    shapes = {v.name: tuple(d.dim_value for d in v.type.tensor_type.shape.dim)
              for v in model.graph.output if v.type.tensor_type.HasField("shape")}
    steps = tuple(OnnxStep(node.op_type, "" if node.domain == "ai.onnx" else node.domain,
                           {a.name: _value(a) for a in node.attribute}, tuple(node.input), tuple(node.output),
                           tuple(shapes.get(o) for o in node.output)) for node in model.graph.node)
    opset = next((int(o.version) for o in model.opset_import if o.domain in ("", "ai.onnx")), 0)
    return OnnxSteps(steps, {c.name: numpy_helper.to_array(c) for c in model.graph.initializer}, opset)


def _value(attribute: Any) -> Any:
    value = helper.get_attribute_value(attribute)
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value
