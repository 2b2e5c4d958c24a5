"""Proofs of the lanes of folded engines: products, their sum over slices, and what rounds it, for the weights of each filter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from dovetail.fpga.engines.folded import joined
from dovetail.fpga.engines.lane import FilterConstants
from dovetail.fpga.proofs.dataflow import Dataflow
from dovetail.fpga.proofs.forms import LinearForm
from dovetail.fpga.proofs.netlist import Netlist
from dovetail.fpga.proofs.obligations import Computed, prove_outputs
from dovetail.fpga.proofs.solver import SolverVerdict, Term, Vectors
from dovetail.fpga.proofs.specification import WantedRounding
from dovetail.fpga.proofs.sums import Summed, prove_sum
from dovetail.fpga.proofs.verdicts import Method, Proof, Ruling
from dovetail.fpga.rtl.expressions import bit_width
from dovetail.hardware.adders.graph import IntMatrix

Bounds = tuple[int, int]


def fixed_of(weights: Sequence[int], w: Bounds, constants: FilterConstants, number: int) -> dict[str, int]:
    """The ports of a lane that a filter's words drive."""
    width = bit_width(*w)
    found = {"w": joined([int(v) for v in weights], [width] * len(weights))}
    for name, values in constants.fields():
        found[name] = values[number] % (1 << bit_width(min(values), max(values)))
    return found


def prove_lane(name: str, netlist: Netlist, weights: IntMatrix, x: Bounds, w: Bounds, bias: Sequence[int],
               constants: FilterConstants, rounding: WantedRounding, limit_s: float = 60.0) -> Proof:
    """A lane for all inputs and every filter of `weights` (filters, slices, taps), whose biases are those of the layer."""
    filters, slices, taps = weights.shape
    proof = Proof(name, "folded lane", "sums of products over slices, rounded and saturated", Method.SUMS, Ruling.PROVEN,
                  f"{taps * bit_width(*x)} bits x {filters} filters x {slices} slices")
    sources = {f"x_{i}": x for i in range(taps)}
    for number in range(filters):
        if slices == 1:
            flow = Dataflow(netlist, sources, Vectors(limit_s), fixed_of(weights[number, 0], w, constants, number))
            named = {f"x_{i}": int(v) for i, v in enumerate(weights[number, 0])}
            found = prove_sum(flow, netlist.bits("y"), Summed(named, int(bias[number]), rounding))
            if found.verdict is not SolverVerdict.IMPOSSIBLE:
                given = {**found.values, **fixed_of(weights[number, 0], w, constants, number)}
                return replace(proof, status=Ruling.REFUTED, detail=f"filter {number} differs", counterexample={"taps": given})
            continue
        broken = _accumulates(netlist, weights[number], sources, w, constants, number)
        if broken:
            return replace(proof, status=Ruling.REFUTED, detail=f"filter {number}: {broken}")
        ends = [int(np.where(weights[number] > 0, weights[number] * x[k], weights[number] * x[1 - k]).sum()) for k in (0, 1)]
        flow = Dataflow(netlist, {"running": (ends[0], ends[1])}, Vectors(limit_s),
                        fixed_of(weights[number, 0], w, constants, number))
        found = prove_sum(flow, netlist.bits("y"), Summed({"running": 1}, int(bias[number]), rounding))
        if found.verdict is not SolverVerdict.IMPOSSIBLE:
            return replace(proof, status=Ruling.REFUTED, detail=f"filter {number}: its rounding differs",
                           counterexample={"taps": found.values})
    return proof


def _accumulates(netlist: Netlist, weights: IntMatrix, sources: Mapping[str, Bounds], w: Bounds, constants: FilterConstants,
                 number: int) -> str:
    """What is wrong with one clock of the sum over slices: it starts, goes on, or waits; nothing where it is right."""
    bits = netlist.bits("running")
    most = 1 << len(bits) - 1
    register = netlist.drivers[bits[0]][0]
    for part in range(len(weights)):
        for starts, works in ((1, 1), (0, 1), (0, 0), (1, 0)):
            fixed = fixed_of(weights[part], w, constants, number) | {"starts": starts, "works": works}
            flow = Dataflow(netlist, {**sources, "running": (-most, most - 1)}, Vectors(), fixed)
            pieces = flow.pieces(register.ports["D"], 0)
            found = flow.form_of(pieces)
            clocks = {clock for name, clock in flow.sources(pieces) if name != "running"}
            expected = LinearForm({}) if starts and works else flow.form(("source", "running", 0))
            if works:
                if len(clocks) != 1:
                    return "a slice's products are of different clocks"
                (clock,) = clocks
                for i, value in enumerate(weights[part]):
                    if value:
                        expected = expected.plus(flow.form(("source", f"x_{i}", clock)).times(int(value)))
            if reduced(found, len(bits)) != reduced(expected, len(bits)):
                return f"slice {part} with starts={starts}, works={works}"
    return ""


def reduced(form: LinearForm, width: int) -> tuple[dict[object, int], int]:
    """A form modulo 2**width."""
    whole = 1 << width
    return {v: weight % whole for v, weight in form.weights.items() if weight % whole}, form.constant % whole


def prove_pair(name: str, netlist: Netlist, x: Bounds, w: Bounds, limit_s: float = 240.0) -> Proof:
    """Two products in one multiplier, for every activation and every pair of weights."""
    narrow, wide = bit_width(*w), bit_width(w[0] - 1, w[1])

    def lower(vectors: Vectors, terms: Sequence[Term]) -> Term:
        return vectors.fitted(vectors.extract(terms[1], 0, narrow), 2 * (narrow + wide), True)

    def of_lower(vectors: Vectors, terms: Sequence[Term]) -> Term:
        return vectors.make("BV_MUL", [lower(vectors, terms), vectors.fitted(terms[0], 2 * (narrow + wide), True)])

    def of_upper(vectors: Vectors, terms: Sequence[Term]) -> Term:
        stored = vectors.fitted(vectors.extract(terms[1], narrow, wide), 2 * (narrow + wide), True)
        borrowed = vectors.fitted(vectors.extract(terms[1], narrow - 1, 1), 2 * (narrow + wide), False)
        whole = vectors.make("BV_ADD", [stored, borrowed])
        return vectors.make("BV_MUL", [whole, vectors.fitted(terms[0], 2 * (narrow + wide), True)])

    ends = [a * b for a in x for b in (w[0], w[1] + 1, w[0] - 1)]
    both = [Computed(("x_0", "w"), make, (min(ends), max(ends)), WantedRounding()) for make in (of_lower, of_upper)]
    width = len(netlist.bits("y")) // 2
    done = 0
    proof = Proof(name, "packed DSP product pair", "both products of a multiplier are exact", Method.SMT, Ruling.PROVEN)
    for value in range(x[0], x[1] + 1):  # one activation after the other: with it fixed, products are sums
        whole = {"x_0": (value, value), "w": (0, (1 << narrow + wide) - 1)}
        found = prove_outputs(name, proof.family, netlist, whole, both, width, "y", limit_s)
        done += 1
        if found.status is not Ruling.PROVEN:
            return replace(found, method=proof.method, states=proof.states)
    return replace(proof, size=f"{bit_width(*x) + narrow + wide} bits", detail=f"{done} activations, each with every pair")
