"""MLPerf Tiny's networks: their integers, seeded inputs, and what LiteRT's reference kernels make of these."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from ai_edge_litert.interpreter import Interpreter, OpResolverType

from dovetail.ir import Graph
from dovetail.ir.tensor import Array
from dovetail.ir.tflite.file import LiteModel, read_tables
from dovetail.numbers import graph_to_plan

HERE = Path(__file__).parents[2] / "mlperf_tiny"
TASKS = {"ic": "image classification, ResNet-8", "vww": "visual wake words, MobileNetV1 0.25",
         "kws": "keyword spotting, DS-CNN", "ad": "anomaly detection, autoencoder"}
KINDS = ("uniform", "smooth", "sparse", "flat")
"""Of seeded inputs: any integers, slow waves, few spots on the zero point, one integer everywhere."""
CLASSIFIERS = ("SOFTMAX",)
"""Last operators that are computed in floats, on the host."""


@dataclass(frozen=True, slots=True)
class TinyNetwork:
    """A network as a file and as integers."""

    content: bytes
    lite: LiteModel
    graph: Graph
    notes: tuple[str, ...]

    @property
    def scores(self) -> int:
        """The tensor of the file that the last layer leaves: the output, or what a softmax reads."""
        last = self.lite.operators[-1]
        return last.inputs[0] if last.kind in CLASSIFIERS else self.lite.outputs[0]


@cache
def network(task: str) -> TinyNetwork:
    """A task's int8 network of the closed division."""
    content = (HERE / f"{task}.tflite").read_bytes()
    graph, notes = graph_to_plan(content)
    return TinyNetwork(content, read_tables(content, f"{task}.tflite"), graph, notes)


def inputs_of(lite: LiteModel, count: int, seed: int = 0) -> dict[str, Array]:
    """So many inputs in all, by kind, as int8."""
    (number,), rng = lite.inputs, np.random.default_rng(seed)
    shape, own = lite.tensors[number].shape[1:], lite.tensors[number].quantized
    zero, shares = 0 if own is None else int(own.zeros[0]), np.array_split(np.arange(count), len(KINDS))
    anything = rng.integers(-128, 128, (len(shares[0]), *shape))
    spots = np.where(rng.random((len(shares[2]), *shape)) < 0.05, rng.integers(-128, 128, (len(shares[2]), *shape)), zero)
    flat = np.broadcast_to(rng.integers(-128, 128, (len(shares[3]), *[1] * len(shape))), (len(shares[3]), *shape))
    found = {"uniform": anything, "smooth": waves(rng, len(shares[1]), shape), "sparse": spots, "flat": flat}
    return {kind: np.ascontiguousarray(values, dtype=np.int8) for kind, values in found.items()}


def waves(rng: np.random.Generator, count: int, shape: tuple[int, ...]) -> Array:
    """Sums of a few slow waves along all axes, over the whole range."""
    places = np.stack(np.meshgrid(*(np.linspace(0, 1, n) for n in shape), indexing="ij"))
    steps = np.tensordot(rng.uniform(-4, 4, (count, 3, len(shape))), places, 1) + rng.random((count, 3, *[1] * len(shape)))
    total = np.sin(2 * np.pi * steps).sum(axis=1)
    return np.rint(127 * total / np.abs(total).max(axis=tuple(range(1, total.ndim)), keepdims=True))


def litert(tiny: TinyNetwork, frames: Array) -> tuple[Array, Array]:
    """Scores and outputs of LiteRT's reference kernels, frame by frame."""
    interpreter: Any = Interpreter(model_content=tiny.content, experimental_op_resolver_type=OpResolverType.BUILTIN_REF,
                                   experimental_preserve_all_tensors=True)
    interpreter.allocate_tensors()
    found = []
    for frame in frames:
        interpreter.set_tensor(tiny.lite.inputs[0], frame[None])
        interpreter.invoke()
        found.append([interpreter.get_tensor(number)[0] for number in (tiny.scores, tiny.lite.outputs[0])])
    scores, outputs = zip(*found, strict=True)
    return np.stack(scores), np.stack(outputs)
