"""Post-training quantization: scales, powers of two or any, chosen by mean squared error, biases corrected.

Decides every number of the integer graph, before and independently of any partitioning.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, inf, log2

import numpy as np

from dovetail.errors import ModelError, UnsupportedError
from dovetail.ir import Add, Array, Constant, Graph, Node, Real, Scheme
from dovetail.ir.tensor import scheme_of_scales
from dovetail.numerics import observe
from dovetail.numerics.calibration import Samples
from dovetail.numerics.equalize import Equalise, Equalised
from dovetail.numerics.equalize import equalise as equalised
from dovetail.numerics.fast import run_quantized
from dovetail.numerics.kernels import channel_means, weighted_sum
from dovetail.numerics.quality import decibels, outputs_snr_db
from dovetail.numerics.reference import fixes_batch
from dovetail.numerics.scales import JUDGED, TOLERANCE, Scales, agreement
from dovetail.numerics.tables import tabulate
from dovetail.progress import Progress
from dovetail.words import counted

DEFAULT_BITS = 8
CANDIDATES = 4
"""Exponents tried per tensor: the one that covers the largest value, and three finer ones that saturate."""
FINER = 8
"""Scales tried per octave where they need not be powers of two, one octave in all. Chosen, not measured."""
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
                   equalise: Equalise = Equalise.AUTO, scales: Scales = Scales.POW2) -> Graph:
    """The integer graph of a float graph: schemes on every tensor, integer weights and biases."""
    return quantize_network(graph, samples, bits, progress, equalise, scales).graph


def quantize_network(graph: Graph, samples: Samples, bits: int = DEFAULT_BITS, progress: Progress | None = None,
                     equalise: Equalise = Equalise.AUTO, scales: Scales = Scales.POW2) -> Quantized:
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
        best = {name: Scheme(bits, x.lo < 0, (int(least[name]),)) for name, x in seen.items()}
        integers = _integers(variant, best, found.means, bits)
        ratio = None
        if kept:
            progress("equalisation", number, len(variants))
            outputs = run_quantized(integers, {n: x[kept] for n, x in samples.values.items()})
            ratio = outputs_snr_db(found.outputs, outputs)
        results.append(Quantized(integers, variant.graph, ratio, ""))
    powers = _better(results, scaled)
    if scales is Scales.POW2:
        return powers
    chosen = next(v for v in variants if v.graph is powers.source)
    return _with_any_scales(graph, powers, chosen, samples, seen, bits, scales, progress)


def _with_any_scales(graph: Graph, plain: Quantized, variant: Equalised, samples: Samples, seen: Mapping[str, observe.Extremes],
                     bits: int, scales: Scales, progress: Progress) -> Quantized:
    """The network with any scales, or `plain` where `auto` finds that powers of two answer as well."""
    judged = min(samples.count, JUDGED // 8 if fixes_batch(plain.source) else JUDGED)
    kept = sorted({int(i) for i in np.linspace(0, samples.count - 1, judged)})
    found = observe.rounding(graph, samples, [_candidates(variant, seen, bits, FINER)], kept, progress)
    best = {name: scheme_of_scales(bits, seen[name].lo < 0, (float(_powers(np.array(min(own, key=lambda e: (own[e], -e))))),))
            for name, own in found.errors[0].items()}
    integers = _integers(variant, best, found.means, bits, FINER)
    multiplied = f"rounding multiplies in {counted(sum(bool(n.op.product) for n in integers.nodes), 'layer')}"
    if scales is Scales.ANY:
        return replace(plain, graph=integers, note=_joined(plain.note, f"any scales: {multiplied}"))
    frames = {n: x[kept] for n, x in samples.values.items()}
    progress("scales of both kinds", 0, 2)
    shifted, other = (agreement(found.outputs, run_quantized(g, frames)) for g in (plain.graph, integers))
    enough = shifted >= other - TOLERANCE
    said = f"powers of two give the float network's answer on {shifted:.1%} of {counted(len(kept), 'sample')}, any scales on " \
           f"{other:.1%}: {'powers of two' if enough else f'any scales, {multiplied}'}"
    return replace(plain, graph=plain.graph if enough else integers, note=_joined(plain.note, said))


def _joined(*notes: str) -> str:
    return "; ".join(filter(None, notes))


def _better(results: Sequence[Quantized], scaled: Equalised | None) -> Quantized:
    best = max(results, key=lambda r: -inf if r.snr_db is None else r.snr_db)
    if len(results) < 2 or scaled is None:
        return best
    plain, other = (r.snr_db for r in results)
    what = f"equalising the channels of {counted(len(scaled.factors), 'tensor')} changes the outputs' signal-to-noise ratio " \
           f"from {decibels(plain)} to {decibels(other)} on the calibration samples"
    return replace(best, note=f"{what}: {'kept' if best is results[1] else 'left out'}")


def _candidates(variant: Equalised, seen: Mapping[str, observe.Extremes], bits: int,
                finer: int = 1) -> dict[str, observe.ScaleCandidates]:
    """Scales to try, as exponents of two: whole ones, or so many per octave."""
    found = {}
    for name, x in seen.items():
        factor = variant.factors.get(name)
        magnitude = x.magnitude if factor is None else float((x.channels / factor).max())
        first = covering_exponent(magnitude * (1 - 1e-6), bits, x.lo < 0)  # an equalised bound is on the grid but for rounding
        scheme = Scheme(bits, x.lo < 0, (first,))
        tried: tuple[float, ...] = tuple(range(first, first - CANDIDATES, -1))
        if finer > 1 and magnitude > 0:
            tried = tuple(log2(magnitude / scheme.hi) - k / finer for k in range(finer))
        found[name] = observe.ScaleCandidates(tried, scheme.lo, scheme.hi, factor)
    return found


def _integers(variant: Equalised, best: Mapping[str, Scheme], means: Mapping[str, Real], bits: int, finer: int = 1) -> Graph:
    """Schemes, integer weights and corrected biases of one variant; `means` are what its weighted sums read on average."""
    graph = variant.graph
    schemes = _activation_schemes(graph, best)
    constants: dict[str, Constant] = {}
    for node in graph.nodes:
        if node.op.product:
            name = node.inputs[0]
            mean = means[name] if name not in variant.factors else observe.divided(means[name], variant.factors[name])
            constants |= _integer_params(graph, node, schemes[name], bits, mean, finer)
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
    wanted = schemes[node.output]
    for name in node.inputs:
        if graph.consumers(name) == (node,) and name not in graph.outputs and graph.producer(name) is not None:
            schemes[name] = replace(schemes[name], exponents=wanted.exponents, mantissas=wanted.mantissas)


def _limit_gap(added: Sequence[str], schemes: dict[str, Scheme]) -> None:
    """Raise the finest exponent of an addition until the gap is one that integers align exactly."""
    finest = max(schemes[t].scale for t in added) / 2.0**MAX_ADD_GAP
    for name in added:
        if schemes[name].scale < finest:
            schemes[name] = scheme_of_scales(schemes[name].bits, schemes[name].signed, (finest,))


def quantize_weight(weight: Array, bits: int, finer: int = 1) -> tuple[Array, tuple[float, ...]]:
    """Integers (as float32) and exponents per output channel, each exponent the one of least squared error.

    Exponents are whole, or one of `finer` per octave.
    """
    flat = np.asarray(weight, dtype=np.float32).reshape(weight.shape[0], -1)
    limit = (1 << (bits - 1)) - 1
    integers, exponents = np.empty_like(flat), np.empty(len(flat), dtype=np.int64 if finer == 1 else np.float64)
    step = max(1, BLOCK_ELEMENTS // flat.shape[1])
    for start in range(0, len(flat), step):
        block = flat[start:start + step]
        magnitude = np.abs(block).max(axis=1).astype(np.float64)
        safe = np.where(magnitude > 0, magnitude, 1.0)
        covering = np.log2(safe / limit)
        first = np.clip(np.ceil(covering) if finer == 1 else covering, -60, 60).astype(exponents.dtype)
        best, chosen = np.full(len(block), np.inf), first.copy()
        for step_down in [k / finer for k in range(finer)] if finer > 1 else range(CANDIDATES):
            tried = first - step_down
            error = np.square(_rounded(block, tried, limit) * _steps(tried) - block).sum(axis=1, dtype=np.float64)
            better = error < best
            best, chosen = np.where(better, error, best), np.where(better, tried, chosen)
        integers[start:start + step], exponents[start:start + step] = _rounded(block, chosen, limit), chosen
    return integers.reshape(weight.shape), tuple(exponents.tolist())


def _steps(exponents: Array) -> Array:
    return _powers(exponents).astype(np.float32)[:, None]


def _powers(exponents: Array) -> Real:
    """Powers of two, as files can state them: exact where exponents are whole."""
    whole = np.floor(exponents)
    mantissas = np.exp2(exponents - whole).astype(np.float32)
    return np.asarray(np.ldexp(mantissas.astype(np.float64), whole.astype(np.int32)), dtype=np.float64)


def _rounded(rows: Array, exponents: Array, limit: int) -> Array:
    """Rows to integers of their exponents; dividing float32 by a whole power of two is exact."""
    return np.clip(np.rint(rows / _steps(exponents)), -limit - 1, limit)


def _integer_params(graph: Graph, node: Node, source: Scheme, bits: int, mean: Real, finer: int) -> dict[str, Constant]:
    """Integer weight and bias of a Conv or Gemm; weight exponents rise where an int32 accumulator would overflow.

    They also rise where tiny weights would make the bias needlessly fine, beyond what float32 adds exactly. The bias takes
    up the mean shift that weight rounding causes on inputs of which `mean` is the mean frame.
    """
    weight_name, bias_name = node.params
    weight = np.asarray(graph.constants[weight_name].array, dtype=np.float32)
    integers, found = quantize_weight(weight, bits, finer)
    exponents = np.asarray(found)
    flat, sums = weight.reshape(len(weight), -1), integers.reshape(len(weight), -1)
    bias = graph.constants[bias_name].array.astype(np.float64) + _mean_shift(node, mean, weight, integers, exponents)
    limit = float((1 << 31) - 1)
    while True:
        unit = source.scale * _powers(exponents)
        total = np.abs(sums).sum(axis=1, dtype=np.float64) * max(-source.lo, source.hi) + np.abs(bias / unit)
        over = (total > limit) | (np.abs(bias / unit) > LARGEST_BIAS)
        if not np.any(over):
            break
        exponents = exponents + over
        sums[over] = _rounded(flat[over], exponents[over], (1 << (bits - 1)) - 1)
    steps = tuple(_powers(exponents).tolist())
    return {weight_name: Constant(weight_name, integers.astype(np.int8), scheme_of_scales(bits, True, steps, 0)),
            bias_name: Constant(bias_name, np.rint(bias / unit).astype(np.int32),
                                scheme_of_scales(32, True, tuple(source.scale * step for step in steps), 0))}


def _mean_shift(node: Node, mean: Real, weight: Array, integers: Array, exponents: Array) -> Real:
    """What weight rounding takes from the mean of each output channel; means are linear, so the mean frame is enough."""
    assert node.op.product is not None
    residual = weight - integers * _steps(exponents).reshape(-1, *[1] * (weight.ndim - 1))
    return channel_means(weighted_sum(node.op.product, mean, residual))
