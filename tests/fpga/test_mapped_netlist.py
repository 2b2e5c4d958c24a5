"""A mapped netlist made faster: registers in block memories, copies of what drives much, unless that would change anything."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.fpga.toolchain.mapped_netlist import absorb_output_registers, copy_drivers


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


def enabled(count: int) -> dict[str, Any]:
    """A register, 30, that enables so many others."""
    others = {f"word{i:02}": register(100 + i, 200 + i, CE=[30]) for i in range(count)}
    ports = {"y": {"direction": "output", "bits": [30, *range(200, 200 + count)]}}
    return {"modules": {"top": {"cells": {"enable": register(29, 30), **others}, "ports": ports}}}


def test_what_drives_much_has_copies_that_share_its_loads() -> None:
    design = enabled(10)
    assert copy_drivers(design, "top", 4) == 2
    cells = design["modules"]["top"]["cells"]
    by = {name: cell["connections"]["Q"][0] for name, cell in cells.items() if name.startswith("enable")}
    assert set(by) == {"enable", "enable_copy1", "enable_copy2"}
    assert by["enable"] == 30  # the output of the module stays with the first
    assert all(cells[name]["connections"]["DI"] == [29] for name in by)
    assert [cells[f"word{i:02}"]["connections"]["CE"][0] for i in range(10)] == [
        *[by["enable"]] * 4, *[by["enable_copy1"]] * 4, *[by["enable_copy2"]] * 2]
    taken = [cell["connections"]["Q"][0] for cell in cells.values()]
    assert len(set(taken)) == len(taken)


def test_what_drives_little_or_a_clock_has_no_copies() -> None:
    design = enabled(4)
    assert copy_drivers(design, "top", 4) == 0
    design["modules"]["top"]["cells"]["word00"]["connections"]["CLK"] = [30]
    assert copy_drivers(design, "top", 2) == 0
