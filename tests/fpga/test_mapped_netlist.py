"""Registers behind block memories: absorbed where that changes nothing, left where it would."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.fpga.toolchain.output_registers import absorb_output_registers


def register(data: int, out: int, **changes: Any) -> dict[str, Any]:
    wires = {"CLK": [1], "DI": [data], "Q": [out], "LSR": ["0"], "CE": ["1"]} | changes
    directions = {name: "output" if name == "Q" else "input" for name in wires}
    return {"type": "TRELLIS_FF", "parameters": {"CEMUX": "CE"}, "port_directions": directions, "connections": wires}


def netlist(*registers: dict[str, Any], watched: tuple[int, ...] = (20, 21)) -> dict[str, Any]:
    """A memory of two used bits, 10 and 11, and what reads them; `watched` are bits of the module's output."""
    wires = {"CLKA": [1], "CLKB": [1], "DOB0": [10], "DOB1": [11], "DOB2": [12], "OCEB": ["1"]}
    memory = {"type": "DP16KD", "parameters": {"REGMODE_A": "NOREG", "REGMODE_B": "NOREG"}, "connections": wires,
              "port_directions": {name: "output" if name.startswith("DO") else "input" for name in wires}}
    cells = {"memory": memory, **{f"register{i}": r for i, r in enumerate(registers)}}
    return {"modules": {"top": {"cells": cells, "ports": {"y": {"direction": "output", "bits": list(watched)}}}}}


def test_registers_behind_every_used_bit_move_into_the_memory() -> None:
    design = netlist(register(10, 20), register(11, 21))
    assert absorb_output_registers(design, "top") == 2
    (memory,) = design["modules"]["top"]["cells"].values()
    assert memory["parameters"] == {"REGMODE_A": "NOREG", "REGMODE_B": "OUTREG"}
    assert [memory["connections"][port] for port in ("DOB0", "DOB1")] == [[20], [21]]


@pytest.mark.parametrize("second", [
    register(11, 21, CLK=[2]),
    register(11, 21, LSR=[3]),
    register(11, 21, CE=[4]),
    register(13, 21),
], ids=["another clock", "a reset", "an enable", "no register"])
def test_a_port_with_any_other_reader_stays_as_it_is(second: dict[str, Any]) -> None:
    design = netlist(register(10, 20), second, watched=(11, 20, 21) if second["connections"]["DI"] == [13] else (20, 21))
    assert absorb_output_registers(design, "top") == 0
    assert design["modules"]["top"]["cells"]["memory"]["parameters"]["REGMODE_B"] == "NOREG"
    assert len(design["modules"]["top"]["cells"]) == 3


def test_a_bit_read_twice_stays_outside() -> None:
    design = netlist(register(10, 20), register(11, 21), register(11, 22))
    assert absorb_output_registers(design, "top") == 0
