"""The engine families on their own, as `make prove` proves them: small cases of each, whatever a network asks for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from dovetail import ir
from dovetail.fpga.assemble import build_design
from dovetail.fpga.engines.lane import constants_of, lane_module, ranges_of
from dovetail.fpga.engines.layers import Rescale
from dovetail.fpga.engines.soft import soft_multiplier
from dovetail.fpga.engines.stream import fifo_module, fork_module, slice_module
from dovetail.fpga.engines.twin import twin_module
from dovetail.fpga.network import make_network
from dovetail.fpga.proofs import framing, lanes, parts, wanted
from dovetail.fpga.proofs.cases import Case, Files, one, texts
from dovetail.fpga.proofs.netlist import Netlist
from dovetail.fpga.proofs.obligations import Computed, prove_outputs
from dovetail.fpga.proofs.solver import Term, Vectors
from dovetail.fpga.proofs.specification import WantedRounding
from dovetail.fpga.proofs.verdicts import Method, Proof, Ruling, timed
from dovetail.hardware.adders.graph import IntMatrix
from dovetail.ir import Constant, Graph, Node, Op, Scheme, Tensor, Window
from dovetail.ir.tensor import scheme_of_scales

Prove = Callable[[Files, Sequence[str]], Iterator[Proof]]

# Engines of one node.

FIXED = Scheme(8, True, (-4,))
SCALED = scheme_of_scales(8, True, (0.0371,), None)


def node_case(name: str, family: str, op: Op, shapes: Sequence[tuple[int, ...]], target: Scheme,
              sources: Sequence[Scheme] = (FIXED,), params: tuple[Constant, ...] = ()) -> Case:
    """The engine of a single node."""
    inputs = [f"x{i}" for i in range(len(shapes))]
    schemes = [sources[min(i, len(sources) - 1)] for i in range(len(shapes))]
    tensors = {t: Tensor(t, shape, scheme) for t, shape, scheme in zip(inputs, shapes, schemes, strict=True)}
    tensors["y"] = Tensor("y", op.infer(tuple(shapes)), target)
    node = Node("node", op, tuple(inputs), tuple(c.name for c in params), "y")
    graph = Graph("engine", tuple(inputs), ("y",), (node,), tensors, {c.name: c for c in params})
    design = build_design(graph, "engine")
    (station,) = make_network(graph, "engine").stations
    names = {m.name for e in station.engines for m in e.modules}
    files = {f: t for f, t in design.files.items() if f.partition(".")[0] in names}

    def prove(given: Files, yosys: Sequence[str]) -> Iterator[Proof]:
        for engine in station.engines:
            for proof in parts.engine_proofs(graph, node, station, engine, given, yosys, 60.0):
                yield replace(proof, part=f"{name}: {proof.part}")
        for fifo in (n for n in given if n.endswith("_fifo.v")):
            module = fifo.removesuffix(".v")
            otherwise = Proof(module, "FIFO", "every beat leaves once, in order", Method.NONE, Ruling.SIMULATED)
            yield timed(partial(parts.prove_fifo, module, given[fifo], yosys), otherwise)

    return Case(name, family, files, station.engines[-1].modules[0].name, prove)


def weights_of(rng: np.random.Generator, shape: tuple[int, ...], scheme: Scheme) -> Constant:
    return Constant("w", np.clip(np.rint(rng.normal(0, 45, shape)), -128, 127).astype(np.int8), scheme)


def bias_of(rng: np.random.Generator, filters: int, scheme: Scheme) -> Constant:
    return Constant("b", rng.integers(-3000, 3000, filters).astype(np.int32), scheme)


def convolution(name: str, family: str, seed: int, op: ir.Conv, shape: tuple[int, ...], target: Scheme, source: Scheme = FIXED,
                scales: tuple[float, ...] = ()) -> Case:
    """A convolution of random weights."""
    rng = np.random.default_rng(seed)
    own = scheme_of_scales(8, True, scales, 0) if scales else Scheme(8, True, (-7,))
    steps = tuple(source.scale * s for s in own.scales)
    total = scheme_of_scales(32, True, steps, 0 if len(steps) > 1 else None)
    weights = weights_of(rng, (op.filters, shape[1] // op.groups, *op.window.kernel), own)
    return node_case(name, family, op, (shape,), target, (source,), (weights, bias_of(rng, op.filters, total)))


def nodes() -> list[Case]:
    """Engines of single nodes."""
    same, square = Window((3, 3), (1, 1), (1, 1, 1, 1)), Window((2, 2), (2, 2))
    unsigned, wide = Scheme(8, False, (-3,)), Scheme(8, True, (-1,))
    fifth, real = scheme_of_scales(8, True, (0.21,), None), scheme_of_scales(8, True, (0.053,), None)
    rng = np.random.default_rng(5)
    table = Constant("table", rng.integers(-128, 128, 256).astype(np.int8), FIXED)
    found = [
        convolution("pointwise", "adder graph", 1, ir.Conv(4, Window((1, 1))), (1, 4, 2, 3), wide),
        convolution("3x3", "adder graph", 2, ir.Conv(3, Window((3, 3))), (1, 2, 4, 4), wide),
        convolution("depthwise", "adder graph", 3, ir.Conv(2, Window((3, 3)), groups=2), (1, 2, 4, 3), wide),
        convolution("relu", "adder graph", 4, ir.Conv(3, Window((1, 1)), clamp=ir.RELU), (1, 3, 2, 2), unsigned),
        convolution("31 bits", "requantizer", 6, ir.Conv(3, Window((1, 1))), (1, 3, 2, 2), fifth, SCALED, (0.0113,)),
        convolution("31 bits a filter", "requantizer", 7, ir.Conv(3, Window((1, 1)), clamp=ir.RELU), (1, 3, 2, 2),
                    scheme_of_scales(8, False, (0.17,), None), SCALED, (0.0113, 0.0271, 0.00512)),
        convolution("shifted up", "requantizer", 8, ir.Conv(2, Window((1, 1))), (1, 2, 2, 2), Scheme(8, True, (-13,))),
        convolution("not shifted", "requantizer", 9, ir.Conv(2, Window((1, 1))), (1, 2, 2, 2), Scheme(8, True, (-11,))),
        node_case("clip", "requantizer", ir.Clip(ir.Clamp(-0.5, 0.75)), ((1, 2, 2, 2),), Scheme(8, True, (-6,))),
        node_case("concat", "requantizer", ir.Concat(1), ((1, 2, 2, 2), (1, 1, 2, 2)), FIXED, (FIXED, Scheme(8, True, (-6,)))),
        convolution("padded", "window and padding", 10, ir.Conv(1, same), (1, 1, 4, 4), wide),
        convolution("padded, lines in memory", "window and padding", 11, ir.Conv(1, same), (1, 1, 3, 9), wide),
        convolution("stride 2", "window and padding", 12, ir.Conv(1, replace(same, stride=(2, 2))), (1, 1, 5, 5), wide),
        convolution("dilated", "window and padding", 13, ir.Conv(1, Window((2, 2), dilation=(2, 2))), (1, 1, 4, 5), wide),
        convolution("one sided", "window and padding", 14, ir.Conv(1, Window((3, 2), (1, 2), (1, 0, 0, 1))), (1, 1, 4, 5), wide),
        convolution("beyond the kernel", "window and padding", 15, ir.Conv(1, replace(same, kernel=(1, 1))), (1, 1, 2, 3), wide),
        node_case("largest of 2x2", "pooling", ir.MaxPool(square), ((1, 2, 4, 4),), FIXED),
        node_case("largest of 3x3, padded", "pooling", ir.MaxPool(replace(same, stride=(2, 2))), ((1, 1, 5, 5),), FIXED),
        node_case("average of 2x2", "pooling", ir.AvgPool(square), ((1, 2, 4, 4),), FIXED),
        node_case("average of 3x3", "pooling", ir.AvgPool(Window((3, 3))), ((1, 1, 4, 4),), FIXED),
        node_case("sum of two scales", "add with skip", ir.Add(), ((1, 2, 2, 2),) * 2, FIXED, (FIXED, Scheme(8, True, (-6,)))),
        node_case("sum, ReLU", "add with skip", ir.Add(ir.RELU), ((1, 2, 2, 2),) * 2, unsigned, (FIXED, Scheme(8, True, (-5,)))),
        node_case("sum of real scales", "add with skip", ir.Add(), ((1, 1, 2, 2),) * 2, scheme_of_scales(8, True, (0.09,), None),
                  (SCALED, real)),
        node_case("product", "product of streams", ir.Mul(), ((1, 1, 2, 2),) * 2, Scheme(8, True, (-2,))),
        node_case("table", "table", ir.Lookup("table", True), ((1, 1, 2, 2),), FIXED, (FIXED,), (table,)),
    ]
    return found


# Streams.

def streams() -> list[Case]:
    """FIFOs, register slices and forks."""
    found = [Case("register slice", "FIFO", texts(slice_module("fifo", 2)), "fifo", _fifo)]
    for depth in (1, 2, 3, 5, 8, 16, 33, 64):
        fifo = fifo_module("fifo", 2, depth)
        found.append(Case(f"depth {depth}", "FIFO", texts(fifo), "fifo", _fifo))
    for depth in (4, 9, 16):
        fifo = fifo_module("fifo", 2, depth, reserved=True)
        found.append(Case(f"depth {depth}, reserved", "FIFO", texts(fifo), "fifo", _fifo))
    for branches in (2, 3, 4):
        fork = fork_module("fork", 2, branches)
        prove = partial(_fork, branches)
        found.append(Case(f"fork to {branches}", "FIFO", texts(fork), "fork", prove))
    return found


def _fifo(files: Files, yosys: Sequence[str]) -> Iterator[Proof]:
    otherwise = Proof("fifo", "FIFO", "", Method.NONE, Ruling.SIMULATED)
    yield timed(lambda: parts.prove_fifo("fifo", files["fifo.v"], yosys), otherwise)


def _fork(branches: int, files: Files, yosys: Sequence[str]) -> Iterator[Proof]:
    otherwise = Proof("fork", "FIFO", "", Method.NONE, Ruling.SIMULATED)
    yield timed(lambda: parts.prove_fork("fork", files["fork.v"], branches, yosys), otherwise)


# Lanes.

def folded() -> list[Case]:
    """Lanes of folded engines, the product in logic, and two products in a multiplier."""
    rng = np.random.default_rng(8)
    found = []
    for name, slices, multiplied in (("one slice", 1, False), ("three slices", 3, False), ("31 bits", 1, True)):
        weights = np.clip(np.rint(rng.normal(0, 50, (4, slices, 6))), -128, 127).astype(np.int64)
        bias = [int(b) for b in rng.integers(-2000, 2000, 4)]
        scale = (1717986917, 41) if multiplied else (1, 8)
        found.append(_lane_case(name, weights, bias, scale))
    x, w = (0, 255), (-128, 127)
    soft = soft_multiplier("soft", x, w)
    product = Computed(("x", "w"), lambda v, t: v.make("BV_MUL", [v.fitted(t[0], 20, True), v.fitted(
        v.fitted(v.extract(t[1], 0, 8), 20, True), 20, True)]), (-(1 << 16), 1 << 16), WantedRounding())

    def multiplies(netlist: Netlist) -> Proof:
        statement = "the product of x and w"
        for value in range(x[0], x[1] + 1):
            made = prove_outputs("soft", "folded lane", netlist, {"x": (value, value), "w": (0, 255)}, [product],
                                 len(netlist.bits("y")), "y")
            if made.status is not Ruling.PROVEN:
                return replace(made, states=statement)
        return replace(made, states=statement, size="16 bits", detail="256 activations, each with every weight")

    found.append(Case("product in logic", "folded lane", texts(soft), "soft", one(multiplies, "folded lane", "soft")))
    return [*found, pair_case()]


def _lane_case(name: str, weights: IntMatrix, bias: list[int], scale: tuple[int, int]) -> Case:
    x, w = (-128, 127), (-128, 127)
    rescale = Rescale(1, (scale,) * len(weights), (-128, 127))
    ranges = ranges_of([weights[:, s] for s in range(weights.shape[1])], x)
    constants = constants_of(bias, rescale)
    lane = lane_module("lane", weights.shape[2], x, w, ranges, int(weights.shape[1] > 1), constants, rescale)
    rounding = WantedRounding(scale[0], 1, scale[1], 0, (-128, 127))

    def prove(netlist: Netlist) -> Proof:
        return lanes.prove_lane("lane", netlist, weights, x, w, bias, constants, rounding)

    return Case(name, "folded lane", texts(lane.module, *lane.parts), "lane", one(prove, "folded lane", "lane"))


def pair_case() -> Case:
    """Two products in one multiplier, without rounding."""
    x, w = (0, 255), (-128, 127)
    rescale = Rescale(1, None, (-(1 << 31), (1 << 31) - 1))
    every = np.array([[-128], [127]], dtype=np.int64)
    lane = twin_module("pair", 1, x, w, ranges_of([every], x), 0, constants_of([0, 0], rescale), rescale)
    return Case("pair", "packed DSP product pair", texts(lane.module, *lane.parts), "pair",
                one(lambda netlist: lanes.prove_pair("pair", netlist, x, w), "packed DSP product pair", "pair"))


# Codes.

def codes() -> list[Case]:
    """Layers of codes: popcount planes to thresholds and to rounded sums."""
    found = []
    for name, bits, taps in (("1 bit by 1 bit", (1, 1, 1), 9), ("2 bits by 2 bits", (2, 2, 2), 6)):
        rng = np.random.default_rng(sum(bits))
        body = ir.Conv(2, Window((1, 1)))
        op = ir.Coded(body, *bits)
        stored = rng.integers(0, 1 << bits[0], (2, taps, 1, 1)).astype(np.uint8)
        products = rng.integers(20, 200, (2, bits[0], bits[1])).astype(np.int32)
        steps = np.sort(rng.integers(-600, 600, (2, (1 << bits[2]) - 1)), axis=1).astype(np.int32)
        basis = (np.ones((2, bits[0]), dtype=np.float32), np.ones(bits[1], dtype=np.float32))
        total = Scheme(32, True, (-8, -8), 0)
        params = (Constant("codes", stored, Scheme(8, False, (0,))), Constant("products", products, total),
                  Constant("steps", steps, total), Constant("basis", basis[0]), Constant("levels", basis[1]))
        made = node_case(name, "popcount lane", op, ((1, taps, 1, 2),), Scheme(bits[2], False, (0,)),
                         (Scheme(bits[1], False, (0,)),), params)
        outputs = [_coded(op, stored[f], products[f], steps[f], taps) for f in range(2)]
        sources = {wanted.tap(c, 0, 0): (0, (1 << bits[1]) - 1) for c in range(taps)}
        own = one(partial(_popcount, made.top, sources, outputs, bits[2]), "popcount lane", made.top)
        found.append(replace(made, prove=partial(_both, own, made.prove)))
    return found


def _both(first: Prove, second: Prove, files: Files, yosys: Sequence[str]) -> Iterator[Proof]:
    """What a layer of codes computes, and what holds of every engine."""
    yield from first(files, yosys)
    yield from (proof for proof in second(files, yosys) if proof.family == "FIFO")


def _popcount(top: str, sources: Mapping[str, tuple[int, int]], outputs: Sequence[Computed], bits: int,
              netlist: Netlist) -> Proof:
    return prove_outputs(top, "popcount lane", netlist, sources, outputs, bits, limit_s=200.0)


def _coded(op: ir.Coded, stored: IntMatrix, products: IntMatrix, steps: IntMatrix, taps: int) -> Computed:
    """The number of thresholds that a sum of signed planes reaches."""
    def make(vectors: Vectors, terms: Sequence[Term]) -> Term:
        width, total = 24, vectors.value(0, 24)
        for c, term in enumerate(terms):
            for j in range(op.input_planes):
                plane = vectors.fitted(vectors.extract(term, j, 1), width, False)
                weight = sum((int(stored[c, 0, 0]) >> i & 1) * 2 * int(products[i, j]) - int(products[i, j])
                             for i in range(op.weight_planes))
                total = vectors.make("BV_ADD", [total, vectors.make("BV_MUL", [plane, vectors.value(weight, width)])])
        count = vectors.value(0, width)
        for step in steps:
            reached = vectors.compare("BV_SGE", total, vectors.value(int(step), width))
            count = vectors.make("BV_ADD", [count, vectors.fitted(reached, width, False)])
        return count

    return Computed(tuple(wanted.tap(c, 0, 0) for c in range(taps)), make, (0, (1 << op.output_bits) - 1), WantedRounding())


def cases() -> list[Case]:
    """All cases, family after family."""
    return [*nodes(), *streams(), *folded(), *codes(), *framing.links(), *framing.axi()]
