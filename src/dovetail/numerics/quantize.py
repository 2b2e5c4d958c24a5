"""Post-training quantization: power-of-two scales chosen by mean squared error, biases corrected.

Decides every number of the integer graph, before and independently of any partitioning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, log2

import numpy as np

from dovetail.errors import ModelError, UnsupportedError
from dovetail.ir import Add, Array, Concat, Constant, Conv, Function, Gemm, Graph, MaxPool, Movement, Node, Opaque, Real, Scheme
from dovetail.numerics.calibration import Samples
from dovetail.numerics.reference import run_float
from dovetail.numerics.tables import tabulate

CANDIDATES = 4
"""Exponents tried per tensor: the one that covers the largest value, and three finer ones that saturate."""
MAX_ADD_GAP = 15
"""Largest difference of exponents an addition aligns (docs/numerics.md)."""
CHUNK_ELEMENTS = 1 << 24
LARGEST_BIAS = float(1 << 22)
"""A bias finer than this many steps says nothing: the weights beside it are far below one step of the output."""
LARGEST = 2.0**40
"""Activations beyond this are a diverging network, not data to quantize; scales stay far inside float32."""

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class _Statistics:
    """What calibration saw of one tensor."""

    lo: float
    hi: float
    errors: Mapping[int, float]
    """Sum of squared rounding and saturation errors by exponent."""


def quantize_graph(graph: Graph, samples: Samples, bits: int = 8, progress: Progress | None = None) -> Graph:
    """The integer graph of a float graph: schemes on every tensor, integer weights and biases."""
    if not 2 <= bits <= 8:
        raise UnsupportedError(f"quantize: {bits} bits; 2 to 8 are supported")
    if graph.quantized:
        return graph
    statistics = _observe(graph, samples, bits, progress or (lambda stage, done, total: None))
    schemes = _activation_schemes(graph, statistics, bits)
    constants: dict[str, Constant] = {}
    means = _weight_error_means(graph, samples, bits)
    for node in graph.nodes:
        if isinstance(node.op, Conv | Gemm):
            constants |= _integer_params(graph, node, schemes[node.inputs[0]], bits, means[node.name])
        else:
            constants |= {name: graph.constants[name] for name in node.params}
    tensors = {name: replace(t, scheme=schemes.get(name)) for name, t in graph.tensors.items()}
    return tabulate(replace(graph, tensors=tensors, constants=constants))


def _chunks(graph: Graph, samples: Samples) -> Iterator[dict[str, Array]]:
    per_sample = sum(t.size for t in graph.tensors.values())
    step = max(1, CHUNK_ELEMENTS // per_sample)
    for start in range(0, samples.count, step):
        yield {name: x[start:start + step] for name, x in samples.values.items()}


def _observe(graph: Graph, samples: Samples, bits: int, progress: Progress) -> dict[str, _Statistics]:
    """Two passes over the samples: ranges first, then the error of each candidate exponent."""
    chosen = integer_tensors(graph)
    lo = dict.fromkeys(chosen, np.inf)
    hi = dict.fromkeys(chosen, -np.inf)
    done = 0
    for chunk in _chunks(graph, samples):
        for name, x in _kept(graph, chunk, chosen):
            lo[name], hi[name] = min(lo[name], float(x.min())), max(hi[name], float(x.max()))
        done += len(next(iter(chunk.values())))
        progress("ranges", done, samples.count)
    errors: dict[str, dict[int, float]] = {}
    for name in chosen:
        if not max(-lo[name], hi[name]) < LARGEST:
            raise ModelError(f"tensor {name}: reaches {max(-lo[name], hi[name]):g} on the calibration samples; values must stay "
                             f"below {LARGEST:g}, normalise the inputs or check the weights")
        first = covering_exponent(max(-lo[name], hi[name]), bits, lo[name] < 0)
        errors[name] = dict.fromkeys(range(first, first - CANDIDATES, -1), 0.0)
    done = 0
    for chunk in _chunks(graph, samples):
        for name, x in _kept(graph, chunk, chosen):
            signed = lo[name] < 0
            for exponent in errors[name]:
                errors[name][exponent] += _squared_error(x, Scheme(bits, signed, (exponent,)))
        done += len(next(iter(chunk.values())))
        progress("scales", done, samples.count)
    return {name: _Statistics(lo[name], hi[name], errors[name]) for name in chosen}


def _kept(graph: Graph, chunk: Mapping[str, Array], chosen: frozenset[str]) -> Iterator[tuple[str, Real]]:
    return ((name, x) for name, x in run_float(graph, chunk, keep=True).items() if name in chosen)


def integer_tensors(graph: Graph) -> frozenset[str]:
    """Tensors that become integers: what typed operators compute, and what they read from foreign ones or from outside.

    Between foreign operators, and behind the last typed one, values stay floats; movements and formulas follow their neighbours.
    """
    needed: set[str] = set()
    for node in reversed(graph.nodes):
        follows = isinstance(node.op, Movement | Function) and node.output not in needed
        if not isinstance(node.op, Opaque) and not follows:
            needed |= {node.output, *node.inputs}
    for node in graph.nodes:
        if isinstance(node.op, Movement | Function) and node.inputs[0] in needed:
            needed.add(node.output)
    return frozenset(name for name in needed if graph.tensors[name].element == "float32")


def covering_exponent(magnitude: float, bits: int, signed: bool) -> int:
    """The smallest exponent whose range reaches `magnitude`."""
    if magnitude <= 0.0:
        return -bits
    exponent = ceil(log2(magnitude / ((1 << (bits - 1 if signed else bits)) - 1)))
    return max(-60, min(60, exponent))


def _squared_error(x: Real, scheme: Scheme) -> float:
    scale = 2.0**scheme.exponent
    stored = np.clip(np.rint(x / scale), scheme.lo, scheme.hi)
    return float(np.square(stored * scale - x).sum())


def _best(statistics: _Statistics, bits: int) -> Scheme:
    exponent = min(statistics.errors, key=lambda e: (statistics.errors[e], -e))
    return Scheme(bits, statistics.lo < 0, (exponent,))


def _activation_schemes(graph: Graph, statistics: Mapping[str, _Statistics], bits: int) -> dict[str, Scheme]:
    """One scheme per tensor; movements and MaxPool keep their input's, Concat's inputs prefer one shared scale."""
    schemes = {name: _best(s, bits) for name, s in statistics.items()}
    home: dict[str, str] = {}
    for node in graph.nodes:
        if isinstance(node.op, Movement | MaxPool):
            home[node.output] = home.get(node.inputs[0], node.inputs[0])
        elif isinstance(node.op, Concat):
            _share_scale(graph, node, schemes)
    for node in graph.nodes:
        if isinstance(node.op, Add):
            _limit_gap([home.get(t, t) for t in node.inputs], schemes)
    return {name: schemes[home.get(name, name)] for name in schemes}


def _share_scale(graph: Graph, node: Node, schemes: dict[str, Scheme]) -> None:
    """Give inputs that only this Concat reads the output's exponent, so that hardware concatenates by wiring."""
    wanted = schemes[node.output].exponent
    for name in node.inputs:
        if graph.consumers(name) == (node,) and name not in graph.outputs and graph.producer(name) is not None:
            schemes[name] = replace(schemes[name], exponents=(wanted,))


def _limit_gap(added: Sequence[str], schemes: dict[str, Scheme]) -> None:
    """Raise the finest exponent of an addition until the gap is one that integers align exactly."""
    coarsest = max(schemes[t].exponent for t in added)
    for name in added:
        if coarsest - schemes[name].exponent > MAX_ADD_GAP:
            schemes[name] = replace(schemes[name], exponents=(coarsest - MAX_ADD_GAP,))


def quantize_weight(weight: Real, bits: int) -> tuple[Real, tuple[int, ...]]:
    """Integers and exponents per output channel, each exponent the one of least squared error."""
    flat = weight.reshape(weight.shape[0], -1)
    magnitude = np.abs(flat).max(axis=1)
    limit = (1 << (bits - 1)) - 1
    safe = np.where(magnitude > 0, magnitude, 1.0)
    first = np.clip(np.ceil(np.log2(safe / limit)), -60, 60).astype(np.int64)
    best, chosen = np.full(len(flat), np.inf), first.copy()
    for step in range(CANDIDATES):
        scale = np.ldexp(1.0, (first - step).astype(np.int32))[:, None]
        error = np.square(np.clip(np.rint(flat / scale), -limit - 1, limit) * scale - flat).sum(axis=1)
        better = error < best
        best, chosen = np.where(better, error, best), np.where(better, first - step, chosen)
    scale = np.ldexp(1.0, chosen.astype(np.int32)).reshape(-1, *[1] * (weight.ndim - 1))
    return np.clip(np.rint(weight / scale), -limit - 1, limit), tuple(int(e) for e in chosen)


def _weight_error_means(graph: Graph, samples: Samples, bits: int) -> dict[str, Real]:
    """Mean output shift per channel that weight rounding causes, for bias correction."""
    residual: dict[str, Real] = {}
    for node in graph.nodes:
        if isinstance(node.op, Conv | Gemm):
            weight = graph.constants[node.params[0]].array.astype(np.float64)
            integers, exponents = quantize_weight(weight, bits)
            scale = np.ldexp(1.0, np.asarray(exponents, dtype=np.int32)).reshape(-1, *[1] * (weight.ndim - 1))
            residual[node.name] = weight - integers * scale
    sums = {name: np.zeros(len(r)) for name, r in residual.items()}
    counts = dict.fromkeys(residual, 0)
    for chunk in _chunks(graph, samples):
        values = run_float(graph, chunk, keep=True)
        for node in graph.nodes:
            if node.name in residual:
                zero = np.zeros(len(residual[node.name]))
                shift = node.op.accumulate([values[node.inputs[0]]], [residual[node.name], zero])
                axes = tuple(d for d in range(shift.ndim) if d != 1)
                sums[node.name] += shift.sum(axis=axes)
                counts[node.name] += shift.size // shift.shape[1]
    return {name: sums[name] / counts[name] for name in residual}


def _integer_params(graph: Graph, node: Node, source: Scheme, bits: int, correction: Real) -> dict[str, Constant]:
    """Integer weight and bias of a Conv or Gemm; weight exponents rise where an int32 accumulator would overflow.

    They also rise where tiny weights would make the bias needlessly fine, beyond what float32 adds exactly.
    """
    weight_name, bias_name = node.params
    weight = graph.constants[weight_name].array.astype(np.float64)
    bias = graph.constants[bias_name].array.astype(np.float64) + correction
    integers, found = quantize_weight(weight, bits)
    exponents = np.asarray(found, dtype=np.int64)
    limit = float((1 << 31) - 1)
    while True:
        unit = np.ldexp(1.0, (source.exponent + exponents).astype(np.int32))
        total = np.abs(integers).reshape(len(integers), -1).sum(axis=1) * max(-source.lo, source.hi) + np.abs(bias / unit)
        over = (total > limit) | (np.abs(bias / unit) > LARGEST_BIAS)
        if not np.any(over):
            break
        exponents = exponents + over
        scale = np.ldexp(1.0, exponents.astype(np.int32)).reshape(-1, *[1] * (weight.ndim - 1))
        integers = np.clip(np.rint(weight / scale), -(1 << (bits - 1)), (1 << (bits - 1)) - 1)
    chosen = tuple(int(e) for e in exponents)
    return {
        weight_name: Constant(weight_name, integers.astype(np.int8), Scheme(bits, True, chosen, 0)),
        bias_name: Constant(bias_name, np.rint(bias / unit).astype(np.int32),
                            Scheme(32, True, tuple(source.exponent + e for e in chosen), 0)),
    }
