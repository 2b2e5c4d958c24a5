"""TensorFlow Lite files of one operator, written with LiteRT's schema, and what LiteRT makes of frames."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter, OpResolverType

from dovetail.ir.tensor import Array, Shape

TYPES = {"float32": 0, "float16": 1, "int32": 2, "int8": 9}
Scale = tuple[Any, Any]
"""Scale and zero point, one or an array."""


@dataclass
class Lite:
    """A file being written."""

    model: Any = field(default_factory=schema.ModelT)

    def __post_init__(self) -> None:
        graph = schema.SubGraphT()
        graph.name, graph.tensors, graph.operators = "main", [], []
        self.model.version, self.model.buffers, self.model.operatorCodes = 3, [schema.BufferT()], []
        self.model.subgraphs = [graph]

    @property
    def graph(self) -> Any:
        return self.model.subgraphs[0]

    def tensor(self, name: str, shape: Shape, dtype: str = "float32", scale: Scale | None = None, values: Array | None = None,
               axis: int = 0) -> int:
        made = schema.TensorT()
        made.name, made.shape, made.type, made.buffer = name, list(shape), TYPES[dtype], 0
        if values is not None:
            buffer = schema.BufferT()
            buffer.data = np.frombuffer(np.asarray(values, dtype).tobytes(), np.uint8)
            self.model.buffers.append(buffer)
            made.buffer = len(self.model.buffers) - 1
        if scale is not None:
            made.quantization = schema.QuantizationParametersT()
            made.quantization.scale = np.atleast_1d(np.asarray(scale[0], np.float32))
            made.quantization.zeroPoint = np.atleast_1d(np.asarray(scale[1], np.int64))
            made.quantization.quantizedDimension = axis
        self.graph.tensors.append(made)
        return len(self.graph.tensors) - 1

    def operator(self, kind: str, inputs: Sequence[int], outputs: Sequence[int], options: str | None = None,
                 version: int = 1, **values: Any) -> None:
        code, made = schema.OperatorCodeT(), schema.OperatorT()
        code.builtinCode = getattr(schema.BuiltinOperator, kind)
        code.deprecatedBuiltinCode, code.version = min(code.builtinCode, 127), version
        self.model.operatorCodes.append(code)
        made.opcodeIndex, made.inputs, made.outputs = len(self.model.operatorCodes) - 1, list(inputs), list(outputs)
        if options is not None:
            made.builtinOptionsType = getattr(schema.BuiltinOptions, options)
            made.builtinOptions = getattr(schema, f"{options}T")()
            for name, value in values.items():
                setattr(made.builtinOptions, name, value)
        self.graph.operators.append(made)

    def content(self, inputs: Sequence[int], outputs: Sequence[int]) -> bytes:
        """The file's bytes."""
        self.graph.inputs, self.graph.outputs = list(inputs), list(outputs)
        builder = flatbuffers.Builder(1024)
        builder.Finish(self.model.Pack(builder), file_identifier=b"TFL3")
        return bytes(builder.Output())


def litert(content: bytes, frames: Sequence[Array], reference: bool = False) -> Array:
    """LiteRT on one frame for each input, or on many, one after the other: its default kernels, or its `reference` ones."""
    kernels = OpResolverType.BUILTIN_REF if reference else OpResolverType.AUTO
    interpreter = Interpreter(model_content=content, experimental_op_resolver_type=kernels)
    interpreter.allocate_tensors()
    outputs = []
    for frame in zip(*frames, strict=True):
        for detail, values in zip(interpreter.get_input_details(), frame, strict=True):
            interpreter.set_tensor(detail["index"], values[None])
        interpreter.invoke()
        outputs.append(interpreter.get_tensor(interpreter.get_output_details()[0]["index"])[0])
    return np.stack(outputs)
