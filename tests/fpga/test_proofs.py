"""Proofs of the engine families: small cases of each, and mutants of their Verilog that must not pass."""

from __future__ import annotations

from itertools import islice

import pytest

from dovetail.fpga.proofs.cases import Case
from dovetail.fpga.proofs.families import codes, folded, nodes, streams
from dovetail.fpga.proofs.forms import LinearForm
from dovetail.fpga.proofs.framing import axi, links
from dovetail.fpga.proofs.mutants import mutants, shown
from dovetail.fpga.proofs.netlist import read_netlist
from dovetail.fpga.proofs.specification import WantedRounding
from dovetail.fpga.proofs.verdicts import Proof, Ruling
from dovetail.numerics.fixed import divide_half_even
from dovetail.runtime.proofs import yosys_command

QUICK = {"pointwise", "31 bits a filter", "stride 2", "largest of 2x2", "sum of two scales", "depth 5", "depth 9, reserved",
         "fork to 3", "register slice", "three slices", "1 bit by 1 bit", "cells are whole", "cells in order", "registers",
         "3 bytes to 2"}
"""Cases of one second or two, one of every family but the pair of products."""


def chosen() -> list[Case]:
    return [case for group in (nodes, streams, folded, codes, links, axi) for case in group() if case.name in QUICK]


def proofs_of(case: Case, old: str = "", new: str = "") -> list[Proof]:
    """The proofs of a case, with a piece of its Verilog replaced."""
    texts = {name: text.replace(old, new) if old else text for name, text in case.files.items()}
    assert not old or texts != dict(case.files), f"{old!r} is not in the Verilog of {case.name}"
    return list(case.prove(texts, yosys_command()))


@pytest.mark.yosys
def test_every_family_is_proven() -> None:
    found = {case.name: proofs_of(case) for case in chosen()}
    assert set(found) == QUICK
    for name, proofs in found.items():
        assert proofs, name
        assert {p.status for p in proofs} == {Ruling.PROVEN}, [(name, p.states, p.detail) for p in proofs]


@pytest.mark.yosys
@pytest.mark.parametrize(("name", "old", "new"), [
    ("depth 5", "write_at == 3'd3", "write_at == 3'd2"),
    ("depth 5", "push | (|waiting[2:1])", "(|waiting[2:1])"),
    ("fork to 3", "in_valid & ~done1", "in_valid"),
    ("stride 2", "until_output - ", "until_output + "),
    ("stride 2", "in0_data;", "~in0_data;"),
    ("pointwise", "issuing <= step;", "issuing <= ~step;"),
    ("3 bytes to 2", "out_last = word_last", "out_last = ~word_last"),
])
def test_what_is_wrong_in_control_is_refuted(name: str, old: str, new: str) -> None:
    (case,) = (c for c in chosen() if c.name == name)
    refuted = [p for p in proofs_of(case, old, new) if p.status is Ruling.REFUTED]
    assert refuted
    assert refuted[0].counterexample or refuted[0].family == "adder graph"


@pytest.mark.yosys
def test_a_wrong_bit_of_arithmetic_is_refuted_with_values_that_show_it() -> None:
    (case,) = (c for c in chosen() if c.name == "sum of two scales")
    (text,) = (t for n, t in case.files.items() if n == f"{case.top}.v")
    constant = next(word for word in text.split() if "'d" in word and "node_acc" not in word and text.count(word) == 1)
    width, value = constant.rstrip(";").split("'d")
    refuted = [p for p in proofs_of(case, constant.rstrip(";"), f"{width}'d{int(value) ^ 1}") if p.status is Ruling.REFUTED]
    assert refuted
    assert refuted[0].counterexample


def test_rounding_in_exact_integers_is_that_of_the_reference() -> None:
    rule = WantedRounding(1717986917, 3, 40, 2, (-100, 90))
    for value in range(-4000, 4000, 7):
        product = value * 1717986917
        expected = int(divide_half_even(product, 3 << 40)) + 2  # type: ignore[arg-type]
        assert rule.of(value) == min(max(expected, -100), 90)


def test_forms_know_their_exact_range_and_their_multiples() -> None:
    form = LinearForm({"a": 6, "b": -4}, 10)
    assert form.bounds({"a": (-1, 2), "b": (0, 5)}) == (-16, 22)
    primitive, factor, offset = form.primitive()
    assert (factor, offset) == (2, 10)
    assert form.multiple_of(primitive) == (2, 10)
    assert LinearForm({"a": 6, "b": -3}).multiple_of(primitive) is None


@pytest.mark.yosys
def test_seeded_mutants_are_refuted_and_a_simulator_shows_them() -> None:
    for case in (c for c in streams() if c.name in ("depth 3", "fork to 2")):
        netlist = read_netlist(case.files, case.top, yosys_command())
        inputs = {name: len(bits) for name, bits in netlist.inputs.items() if name not in ("clk", "rst")}
        for what, files in islice(mutants(case.files, 37), 4):
            refuted = [p for p in case.prove(files, yosys_command()) if p.status is Ruling.REFUTED]
            differs = shown(case.files, files, case.top, inputs, list(netlist.outputs),
                            refuted[0].counterexample if refuted else {}, 1)
            assert bool(refuted) == differs, what
