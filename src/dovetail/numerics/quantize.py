"""Post-training quantization: power-of-two scales chosen by mean squared error, biases corrected.

Decides every number of the integer graph, before and independently of any partitioning.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, inf, log2

import numpy as np

from dovetail.errors import ModelError, UnsupportedError
from dovetail.ir import Add, Array, Constant, Graph, Node, Real, Scheme
from dovetail.numerics import observe
from dovetail.numerics.calibration import Samples
from dovetail.numerics.equalize import Equalise, Equalised
from dovetail.numerics.equalize import equalise as equalised
from dovetail.numerics.fast import run_quantized
from dovetail.numerics.kernels import channel_means, weighted_sum
from dovetail.numerics.quality import decibels, outputs_snr_db
from dovetail.numerics.reference import fixes_batch
from dovetail.numerics.tables import tabulate
from dovetail.progress import Progress
from dovetail.words import counted

DEFAULT_BITS = 8
CANDIDATES = 4
"""Exponents tried per tensor: the one that covers the largest value, and three finer ones that saturate."""
MAX_ADD_GAP = 15
"""Largest difference of exponents an addition aligns (docs/method/numerics.md)."""
KEPT_SAMPLES = 32
"""Samples, evenly spread, on which equalisation is judged."""
BLOCK_ELEMENTS = 1 << 22
"""Weights looked at together; the largest matrices have a hundred million."""
LARGEST_BIAS = float(1 << 22)
"""A bias finer than this many steps says nothing: the weights beside it are far below one step of the output."""
LARGEST = 2.0**40
"""Activations beyond this are a diverging network, not data to quantize; scales stay far inside float32."""


@dataclass(frozen=True, slots=True)
class Quantized:
    """An integer graph, the float graph it was made from, and how close its outputs come to it."""

    graph: Graph
    source: Graph
    """The float graph after equalisation, where that was kept."""
    snr_db: float | None
    """Of the outputs on calibration samples; None where there was nothing to choose."""
    note: str


def check_bits(bits: int) -> None:
    """Raise UnsupportedError where a network cannot be quantized to so many bits."""
    if not 2 <= bits <= 8:
        raise UnsupportedError(f"quantize: {counted(bits, 'bit')}; 2 to 8 are supported")


def quantize_graph(graph: Graph, samples: Samples, bits: int = DEFAULT_BITS, progress: Progress | None = None,
                   equalise: Equalise = Equalise.AUTO) -> Graph:
    """The integer graph of a float graph: schemes on every tensor, integer weights and biases."""
    return quantize_network(graph, samples, bits, progress, equalise).graph


def quantize_network(graph: Graph, samples: Samples, bits: int = DEFAULT_BITS, progress: Progress | None = None,
                     equalise: Equalise = Equalise.AUTO) -> Quantized:
    """`quantize_graph` with what it decided on the way."""
    check_bits(bits)
    if graph.quantized:
        return Quantized(graph, graph, None, "")
    progress = progress or (lambda stage, done, total: None)
    seen = observe.ranges(graph, samples, graph.integers, progress)
    for name, x in seen.items():
        if not x.magnitude < LARGEST:
            raise ModelError(f"tensor {name}: reaches {x.magnitude:g} on the calibration samples; values must stay "
                             f"below {LARGEST:g}, normalise the inputs or check the weights")
    plain = Equalised(graph, {})
    scaled = None if equalise is Equalise.OFF else equalised(
        graph, {name: x.channels for name, x in seen.items()}, {name: x.lo < 0 for name, x in seen.items()}, bits)
    variants = [v for v in (plain if equalise is not Equalise.ON or scaled is None else None, scaled) if v is not None]
    # The samples on which equalisation is judged; few where foreign nodes take them one by one.
    judged = 0 if len(variants) < 2 else min(samples.count, KEPT_SAMPLES // 8 if fixes_batch(graph) else KEPT_SAMPLES)
    kept = sorted({int(i) for i in np.linspace(0, samples.count - 1, judged)})
    found = observe.rounding(graph, samples, [_candidates(v, seen, bits) for v in variants], kept, progress)
    results = []
    for number, (variant, errors) in enumerate(zip(variants, found.errors, strict=True)):
        least = {name: min(own, key=lambda e: (own[e], -e)) for name, own in errors.items()}  # the coarsest of equals
        best = {name: Scheme(bits, x.lo < 0, (least[name],)) for name, x in seen.items()}
        integers = _integers(variant, best, found.means, bits)
        ratio = None
        if kept:
            progress("equalisation", number, len(variants))
            outputs = run_quantized(integers, {n: x[kept] for n, x in samples.values.items()})
            ratio = outputs_snr_db(found.outputs, outputs)
        results.append(Quantized(integers, variant.graph, ratio, ""))
    return _better(results, scaled)


def _better(results: Sequence[Quantized], scaled: Equalised | None) -> Quantized:
    best = max(results, key=lambda r: -inf if r.snr_db is None else r.snr_db)
    if len(results) < 2 or scaled is None:
        return best
    plain, other = (r.snr_db for r in results)
    what = f"equalising the channels of {counted(len(scaled.factors), 'tensor')} changes the outputs' signal-to-noise ratio " \
           f"from {decibels(plain)} to {decibels(other)} on the calibration samples"
    return replace(best, note=f"{what}: {'kept' if best is results[1] else 'left out'}")


def _candidates(variant: Equalised, seen: Mapping[str, observe.Extremes], bits: int) -> dict[str, observe.ScaleCandidates]:
    found = {}
    for name, x in seen.items():
        factor = variant.factors.get(name)
        magnitude = x.magnitude if factor is None else float((x.channels / factor).max())
        first = covering_exponent(magnitude * (1 - 1e-6), bits, x.lo < 0)  # an equalised bound is on the grid but for rounding
        scheme = Scheme(bits, x.lo < 0, (first,))
        found[name] = observe.ScaleCandidates(tuple(range(first, first - CANDIDATES, -1)), scheme.lo, scheme.hi, factor)
    return found


def _integers(variant: Equalised, best: Mapping[str, Scheme], means: Mapping[str, Real], bits: int) -> Graph:
    """Schemes, integer weights and corrected biases of one variant; `means` are what its weighted sums read on average."""
    graph = variant.graph
    schemes = _activation_schemes(graph, best)
    constants: dict[str, Constant] = {}
    for node in graph.nodes:
        if node.op.product:
            name = node.inputs[0]
            mean = means[name] if name not in variant.factors else observe.divided(means[name], variant.factors[name])
            constants |= _integer_params(graph, node, schemes[name], bits, mean)
        else:
            constants |= {name: graph.constants[name] for name in node.params}
    tensors = {name: replace(t, scheme=schemes.get(name)) for name, t in graph.tensors.items()}
    return tabulate(replace(graph, tensors=tensors, constants=constants))


def covering_exponent(magnitude: float, bits: int, signed: bool) -> int:
    """The smallest exponent whose range reaches `magnitude`."""
    if magnitude <= 0.0:
        return -bits
    exponent = ceil(log2(magnitude / ((1 << (bits - 1 if signed else bits)) - 1)))
    return max(-60, min(60, exponent))


def _activation_schemes(graph: Graph, best: Mapping[str, Scheme]) -> dict[str, Scheme]:
    """One scheme per tensor; movements and MaxPool keep their input's, Concat's inputs prefer one shared scale."""
    schemes, home = dict(best), dict[str, str]()
    for node in graph.nodes:
        if node.op.commutes:
            home[node.output] = home.get(node.inputs[0], node.inputs[0])
        elif node.op.joins:
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


def quantize_weight(weight: Array, bits: int) -> tuple[Array, tuple[int, ...]]:
    """Integers (as float32) and exponents per output channel, each exponent the one of least squared error."""
    flat = np.asarray(weight, dtype=np.float32).reshape(weight.shape[0], -1)
    limit = (1 << (bits - 1)) - 1
    integers, exponents = np.empty_like(flat), np.empty(len(flat), dtype=np.int64)
    step = max(1, BLOCK_ELEMENTS // flat.shape[1])
    for start in range(0, len(flat), step):
        block = flat[start:start + step]
        magnitude = np.abs(block).max(axis=1).astype(np.float64)
        safe = np.where(magnitude > 0, magnitude, 1.0)
        first = np.clip(np.ceil(np.log2(safe / limit)), -60, 60).astype(np.int64)
        best, chosen = np.full(len(block), np.inf), first.copy()
        for finer in range(CANDIDATES):
            error = np.square(_rounded(block, first - finer, limit) * _steps(first - finer) - block).sum(axis=1, dtype=np.float64)
            better = error < best
            best, chosen = np.where(better, error, best), np.where(better, first - finer, chosen)
        integers[start:start + step], exponents[start:start + step] = _rounded(block, chosen, limit), chosen
    return integers.reshape(weight.shape), tuple(int(e) for e in exponents)


def _steps(exponents: Array) -> Array:
    return np.ldexp(np.float32(1), exponents.astype(np.int32))[:, None]


def _rounded(rows: Array, exponents: Array, limit: int) -> Array:
    """Rows to integers of their exponents; dividing float32 by a power of two is exact."""
    return np.clip(np.rint(rows / _steps(exponents)), -limit - 1, limit)


def _integer_params(graph: Graph, node: Node, source: Scheme, bits: int, mean: Real) -> dict[str, Constant]:
    """Integer weight and bias of a Conv or Gemm; weight exponents rise where an int32 accumulator would overflow.

    They also rise where tiny weights would make the bias needlessly fine, beyond what float32 adds exactly. The bias takes
    up the mean shift that weight rounding causes on inputs of which `mean` is the mean frame.
    """
    weight_name, bias_name = node.params
    weight = np.asarray(graph.constants[weight_name].array, dtype=np.float32)
    integers, found = quantize_weight(weight, bits)
    exponents = np.asarray(found, dtype=np.int64)
    flat, sums = weight.reshape(len(weight), -1), integers.reshape(len(weight), -1)
    bias = graph.constants[bias_name].array.astype(np.float64) + _mean_shift(node, mean, weight, integers, exponents)
    limit = float((1 << 31) - 1)
    while True:
        unit = np.ldexp(1.0, (source.exponent + exponents).astype(np.int32))
        total = np.abs(sums).sum(axis=1, dtype=np.float64) * max(-source.lo, source.hi) + np.abs(bias / unit)
        over = (total > limit) | (np.abs(bias / unit) > LARGEST_BIAS)
        if not np.any(over):
            break
        exponents = exponents + over
        sums[over] = _rounded(flat[over], exponents[over], (1 << (bits - 1)) - 1)
    chosen = tuple(int(e) for e in exponents)
    return {weight_name: Constant(weight_name, integers.astype(np.int8), Scheme(bits, True, chosen, 0)),
            bias_name: Constant(bias_name, np.rint(bias / unit).astype(np.int32),
                                Scheme(32, True, tuple(source.exponent + e for e in chosen), 0))}


def _mean_shift(node: Node, mean: Real, weight: Array, integers: Array, exponents: Array) -> Real:
    """What weight rounding takes from the mean of each output channel; means are linear, so the mean frame is enough."""
    assert node.op.product is not None
    residual = weight - integers * _steps(exponents).reshape(-1, *[1] * (weight.ndim - 1))
    return channel_means(weighted_sum(node.op.product, mean, residual))
