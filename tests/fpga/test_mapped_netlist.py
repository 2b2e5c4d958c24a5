"""A mapped netlist made faster: registers in memories and multipliers, copies of what drives much, unless it would change it."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from dovetail.fpga.toolchain.mapped_netlist import absorb_output_registers, absorb_product_registers, copy_drivers


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


def test_words_of_36_bits_move_both_ports_by_the_clock_that_reads() -> None:
    design = netlist(register(10, 20), register(11, 21))
    memory = design["modules"]["top"]["cells"]["memory"]
    memory["connections"] |= {"DOA0": memory["connections"].pop("DOB0"), "CLKA": ["0"]}
    memory["port_directions"]["DOA0"] = "output"
    assert absorb_output_registers(design, "top") == 1  # ports of their own: the first one has no clock
    design = netlist(register(10, 20), register(11, 21))
    memory = design["modules"]["top"]["cells"]["memory"]
    memory["connections"] |= {"DOA0": memory["connections"].pop("DOB0"), "CLKA": ["0"]}
    memory["port_directions"]["DOA0"] = "output"
    memory["parameters"] |= {"DATA_WIDTH_B": f"{36:032b}"}
    assert absorb_output_registers(design, "top") == 2
    assert [memory["parameters"][f"REGMODE_{side}"] for side in "AB"] == ["OUTREG", "OUTREG"]
    assert [memory["connections"][port] for port in ("CLKA", "OCEA", "OCEB")] == [[1], ["1"], ["1"]]


def multiplied(*registers: dict[str, Any], watched: tuple[int, ...] = (22, 23)) -> dict[str, Any]:
    """A multiplier of factors 20 and 21, the latter widened by its sign, with a product of bits 10 and 11."""
    wires = {"A0": [20], "A1": ["0"], "B0": [21], "B1": [21], "P0": [10], "P1": [11], "P2": [12], "SIGNEDA": ["1"]}
    block = {"type": "MULT18X18D", "parameters": {}, "connections": wires,
             "port_directions": {name: "output" if name.startswith("P") else "input" for name in wires}}
    cells = {"block": block, **{f"register{i}": r for i, r in enumerate(registers)}}
    return {"modules": {"top": {"cells": cells, "ports": {"y": {"direction": "output", "bits": list(watched)}}}}}


def test_registers_around_a_multiplier_move_into_it() -> None:
    design = multiplied(register(30, 20), register(31, 21), register(10, 22), register(11, 23))
    assert absorb_product_registers(design, "top") == 1
    (block,) = design["modules"]["top"]["cells"].values()
    assert block["parameters"] == {
        "REG_INPUTA_CLK": "CLK0", "REG_INPUTB_CLK": "CLK0", "REG_OUTPUT_CLK": "CLK0", "GSR": "DISABLED"}
    assert {port: block["connections"][port][0] for port in ("A0", "A1", "B0", "B1", "P0", "P1", "CLK0", "CE0", "RST0")} == {
        "A0": 30, "A1": "0", "B0": 31, "B1": 31, "P0": 22, "P1": 23, "CLK0": 1, "CE0": "1", "RST0": "0"}


def test_a_factor_that_others_read_keeps_its_register() -> None:
    design = multiplied(register(30, 20), register(31, 21), register(10, 22), register(11, 23), watched=(20, 22, 23))
    assert absorb_product_registers(design, "top") == 1
    assert set(design["modules"]["top"]["cells"]) == {"block", "register0"}


@pytest.mark.parametrize(("registers", "watched", "moved"), [
    ((register(30, 20), register(10, 22), register(11, 23)), (22, 23), {"OUTPUT"}),
    ((register(30, 20), register(31, 21), register(10, 22)), (11, 22), {"INPUTA", "INPUTB"}),
    ((register(30, 20), register(31, 21, CLK=[2]), register(10, 22), register(11, 23)), (22, 23), {"OUTPUT"}),
    ((register(30, 20), register(31, 21), register(10, 22), register(11, 23, CE=[4])), (22, 23), {"INPUTA", "INPUTB"}),
    ((register(30, 20), register(10, 22)), (11, 22), set()),
], ids=["one factor", "a bit of the product read as it is", "two clocks", "a product that waits", "neither"])
def test_a_side_of_a_multiplier_moves_whole_or_not_at_all(registers: tuple[dict[str, Any], ...], watched: tuple[int, ...],
                                                          moved: set[str]) -> None:
    design = multiplied(*registers, watched=watched)
    absorb_product_registers(design, "top")
    choices = design["modules"]["top"]["cells"]["block"]["parameters"]
    assert {name.split("_")[1] for name in choices if name.startswith("REG_")} == moved


@pytest.mark.parametrize(("reset", "enable", "known"), [*product(("LSR", "INV"), ("1 ", "CE", "INV"), ("RESET", "SET"))])
def test_a_factor_with_a_reset_or_an_enable_leaves_a_table_of_what_it_takes_next(reset: str, enable: str, known: str) -> None:
    own = register(30, 20, LSR=[3], **({} if enable == "1 " else {"CE": [4]}))
    own["parameters"] = {"LSRMUX": reset, "CEMUX": enable, "REGSET": known, "SRMODE": "LSR_OVER_CE"}
    design = multiplied(own, register(31, 21), register(10, 22), register(11, 23))
    assert absorb_product_registers(design, "top") == 1
    cells = design["modules"]["top"]["cells"]
    table = cells["register0_next"]
    assert cells["block"]["connections"]["A0"] == table["connections"]["Z"]
    assert ("register0" in cells) == (enable != "1 ")  # what may keep its value is still asked for it
    for taken, kept, waits, cleared in product((0, 1), repeat=4):
        values = {30: taken, 20: kept, 4: waits, 3: cleared, "0": 0, "1": 1}
        place = sum(values[table["connections"][port][0]] << k for k, port in enumerate("ABCD"))
        resets = cleared != (reset == "INV")
        takes = enable == "1 " or waits != (enable == "INV")
        assert int(table["parameters"]["INIT"][15 - place]) == ((known == "SET") if resets else taken if takes else kept)


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


def table(wires: dict[str, Any], out: int, kind: str = "LUT4") -> dict[str, Any]:
    wires = {port: [bit] for port, bit in wires.items()}
    return {"type": kind, "parameters": {}, "connections": {**wires, "Z": [out]},
            "port_directions": {**dict.fromkeys(wires, "input"), "Z": "output"}}


def module_of(cells: dict[str, Any]) -> dict[str, Any]:
    return {"modules": {"top": {"cells": cells, "ports": {}}}}


def test_what_enables_many_registers_drives_logic_by_itself_and_them_by_copies() -> None:
    words = {f"word{i:02}": register(100 + i, 200 + i, CE=[30]) for i in range(20)}
    design = module_of({"enable": table({"A": 10, "B": 11}, 30), "count": table({"A": 30}, 31), **words})
    assert copy_drivers(design, "top", 16) == 2
    cells = design["modules"]["top"]["cells"]
    assert cells["count"]["connections"]["A"] == [30]
    assert [cells[f"word{i:02}"]["connections"]["CE"] for i in range(20)] == [
        *[cells["enable_copy1"]["connections"]["Z"]] * 10, *[cells["enable_copy2"]["connections"]["Z"]] * 10]
    assert all(cells[f"enable_copy{n}"]["connections"]["A"] == [10] for n in (1, 2))
    few = module_of({"enable": table({"A": 10}, 30), "count": table({"A": 30}, 31), **dict(list(words.items())[:16])})
    assert copy_drivers(few, "top", 32) == 0


def test_a_register_that_drives_several_instances_has_a_copy_for_each() -> None:
    cells = {"a.may": register(10, 30), "a.step": table({"A": 30}, 31), "b.load": table({"A": 30}, 32),
             "b.again": table({"A": 30}, 33)}
    design = module_of(cells)
    assert copy_drivers(design, "top") == 1
    (copy,) = set(cells) - {"a.may", "a.step", "b.load", "b.again"}
    assert cells["a.step"]["connections"]["A"] == [30]
    assert cells["b.load"]["connections"]["A"] == cells["b.again"]["connections"]["A"] == cells[copy]["connections"]["Q"] != [30]
    assert copy_drivers(module_of({**cells, "b.word": register(30, 40)}), "top") == 0  # data goes where it goes


def test_copies_of_logic_are_driven_by_the_copies_of_its_registers() -> None:
    words = {f"a.word{i:02}": register(100 + i, 200 + i, CE=[30]) for i in range(20)}
    cells = {"b.may": register(10, 20), "b.step": table({"A": 20}, 21), "a.load": table({"A": 20}, 30),
             "a.count": table({"A": 30}, 31), **words}
    assert copy_drivers(module_of(cells), "top") == 2
    assert cells["a.load"]["connections"]["A"] == cells["a.load_copy1"]["connections"]["A"] == [20]
    assert cells["b.step"]["connections"]["A"] == cells["b.may_copy1"]["connections"]["Q"]


def test_a_choice_between_tables_is_copied_with_its_tables() -> None:
    words = {f"word{i:02}": register(100 + i, 200 + i, CE=[30]) for i in range(20)}
    cells = {"low": table({"A": 10}, 20), "high": table({"A": 11}, 21), "count": table({"A": 30}, 31), **words,
             "enable": table({"BLUT": 20, "ALUT": 21, "C0": 12}, 30, "PFUMX")}
    assert copy_drivers(module_of(cells), "top") == 3
    copy = cells["enable_copy1"]["connections"]
    assert copy["Z"] == cells["word00"]["connections"]["CE"] != [30]
    assert copy["C0"] == [12]
    assert copy["BLUT"] == cells["enable_copy1_BLUT"]["connections"]["Z"] != [20]
    assert cells["enable_copy1_BLUT"]["connections"]["A"] == [10]
    assert cells["enable_copy1_ALUT"]["connections"]["A"] == [11]
