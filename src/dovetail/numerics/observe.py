"""What calibration sees: a float network node by node on many samples, in bounded memory.

Values are float32 and a tensor is forgotten after its last reader; sums over samples are float64. Two passes:
`ranges` first, then `rounding` for the scales that the ranges suggest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from dovetail.ir import Array, Graph, Node, Real
from dovetail.numerics.calibration import Samples
from dovetail.numerics.kernels import frames_at_once, weighted_sum
from dovetail.numerics.reference import batches, fixes_batch, own_frames, run_float_node
from dovetail.progress import Progress

BLOCK_VALUES = 1 << 13
"""Values rounded at once: they and their errors stay in a cache, and no product of them starts threads.

Chosen: 2.4 million values take 31 ms of processor time at four scales, 57 ms all at once, and 400 ms in blocks of 2^14, whose
products OpenBLAS divides among threads.
"""
Compute = Callable[[Node, list[Array]], Array]


@dataclass(frozen=True, slots=True)
class Extremes:
    """The range of one tensor, and the largest magnitude of each channel (index of axis 1)."""

    lo: float
    hi: float
    channels: Real

    @property
    def magnitude(self) -> float:
        return max(-self.lo, self.hi)

    def joined(self, other: Extremes) -> Extremes:
        return Extremes(min(self.lo, other.lo), max(self.hi, other.hi), np.maximum(self.channels, other.channels))


@dataclass(frozen=True, slots=True)
class ScaleCandidates:
    """Scales to try on one tensor; its channels are divided by `factor` first, where there is one."""

    exponents: tuple[float, ...]
    lo: int
    hi: int
    factor: Real | None = None


@dataclass(frozen=True, slots=True)
class Rounding:
    """Per variant the squared errors by tensor and exponent; mean frames; outputs of the kept samples."""

    errors: tuple[dict[str, dict[float, float]], ...]
    means: dict[str, Real] = field(default_factory=dict)
    outputs: dict[str, Array] = field(default_factory=dict)


def walk(graph: Graph, inputs: Mapping[str, Array], compute: Compute) -> Iterator[tuple[str, Array]]:
    """Every tensor with its values, inputs first; `compute` gives a node's output from its inputs."""
    readers = {t: len(graph.consumers(t)) for t in graph.tensors}
    values: dict[str, Array] = {}
    for name in graph.inputs:
        values[name] = inputs[name]
        yield name, inputs[name]
    for node in graph.nodes:
        result = compute(node, [values[t] for t in node.inputs])
        for tensor in dict.fromkeys(node.inputs):
            readers[tensor] -= 1
            if not readers[tensor]:
                del values[tensor]
        if readers[node.output]:
            values[node.output] = result
        yield node.output, result


def float_values(graph: Graph, inputs: Mapping[str, Array]) -> Iterator[tuple[str, Array]]:
    """Every tensor of a float graph, in float32."""
    def compute(node: Node, xs: list[Array]) -> Array:
        if (op := node.op.product) is None:
            return _single(run_float_node(graph, node, xs))
        weight, *bias = graph.params(node)
        total = weighted_sum(op, xs[0], weight.array)
        for constant in bias:
            total += constant.array.reshape((1, -1) + (1,) * (total.ndim - 2)).astype(np.float32)
        clamp = node.op.bounds
        return total if clamp is None else np.clip(total, np.float32(clamp.lo), np.float32(clamp.hi), out=total)

    return walk(graph, {name: _single(x) for name, x in inputs.items()}, compute)


def _single(x: Array) -> Array:
    return x.astype(np.float32, copy=False) if x.dtype.kind == "f" else x


def chunks(graph: Graph, values: Mapping[str, Array]) -> Iterator[tuple[range, dict[str, Array]]]:
    """Frames that fit into memory together, with their numbers; a fixed batch is filled up (`reference.batches`)."""
    if fixes_batch(graph):
        yield from batches(graph, values)
        return
    count = len(next(iter(values.values())))
    step = frames_at_once(sum(t.size for t in graph.tensors.values()))
    for start in range(0, count, step):
        yield range(start, min(start + step, count)), {n: values[n][start:start + step] for n in graph.inputs}


def ranges(graph: Graph, samples: Samples, chosen: frozenset[str], progress: Progress) -> dict[str, Extremes]:
    """First pass: how far each tensor reaches."""
    found: dict[str, Extremes] = {}
    for rows, chunk in chunks(graph, samples.values):
        for name, x in float_values(graph, chunk):
            if name in chosen:
                axes = tuple(d for d in range(x.ndim) if d != 1) if x.ndim > 1 else None
                lo, hi = (np.atleast_1d(pick(x, axis=axes)).astype(np.float64) for pick in (np.min, np.max))
                seen = Extremes(float(lo.min()), float(hi.max()), np.maximum(-lo, hi))
                found[name] = seen if name not in found else found[name].joined(seen)
        progress("ranges", rows.stop, samples.count)
    return found


def rounding(graph: Graph, samples: Samples, variants: Sequence[Mapping[str, ScaleCandidates]], kept: Sequence[int],
             progress: Progress) -> Rounding:
    """Second pass: what each scale would cost, for several variants of the same network at once.

    It also gives the mean frame of every tensor that a weighted sum reads, and the outputs of the samples in `kept` (rows,
    rising).
    """
    errors: tuple[dict[str, dict[float, float]], ...] = tuple({} for _ in variants)
    read = {n.inputs[0] for n in graph.nodes if n.op.product}
    sums: dict[str, Real] = {}
    outputs: dict[str, list[Array]] = {name: [] for name in graph.outputs}
    for rows, chunk in chunks(graph, samples.values):
        own = [row - rows.start for row in kept if row in rows]
        for name, x in float_values(graph, chunk):
            for variant, found in zip(variants, errors, strict=True):
                if name in variant:
                    _add_errors(found.setdefault(name, {}), x, variant[name])
            if name in read:
                sums[name] = sums.get(name, 0.0) + x.mean(axis=0, dtype=np.float64) * len(rows)
            if name in outputs and own:
                outputs[name].append(own_frames(x, own, len(chunk[graph.inputs[0]])))
        progress("scales", rows.stop, samples.count)
    return Rounding(errors, {name: total[None] / samples.count for name, total in sums.items()},
                    {name: np.concatenate(parts) for name, parts in outputs.items() if parts})


def divided(x: Array, factor: Real) -> Array:
    """Each channel (index of axis 1) by its factor."""
    return np.asarray(x / factor.reshape((1, -1) + (1,) * (x.ndim - 2)).astype(x.dtype))


def _add_errors(found: dict[float, float], x: Array, candidates: ScaleCandidates) -> None:
    """Squared errors of every scale, block after block, so that what is rounded stays in the processor's cache."""
    values = np.ascontiguousarray(x if candidates.factor is None else divided(x, candidates.factor)).reshape(-1)
    scales, kept = [(e, np.float32(2.0**e)) for e in candidates.exponents], np.empty(BLOCK_VALUES, np.float32)
    for start in range(0, values.size, BLOCK_VALUES):
        block = values[start:start + BLOCK_VALUES]
        error = kept[:block.size]
        for exponent, scale in scales:
            np.divide(block, scale, out=error)
            np.rint(error, out=error)
            np.clip(error, candidates.lo, candidates.hi, out=error)
            error *= scale
            error -= block
            found[exponent] = found.get(exponent, 0.0) + float(np.dot(error, error))
