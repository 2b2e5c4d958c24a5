"""Resource counts of small hand-written designs with the real Yosys."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace

import pytest

from dovetail.errors import ToolError, UsageError
from dovetail.fpga.design import Design, StreamPort
from dovetail.fpga.toolchain import tools
from dovetail.fpga.toolchain.synthesize import RESOURCES, divide, find_synthesizer, parse_cells, synthesize
from dovetail.platform.fitted import dhm_model


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DOVETAIL_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


PORTS = ("input wire clk, input wire rst, input wire x_valid, output wire x_ready, input wire [15:0] x_data, "
         "output wire y_valid, input wire y_ready, output wire [15:0] y_data")


def filters(taps: int = 6, lanes: int = 2) -> Design:
    """`lanes` instances in a row of one module that sums shifted and delayed copies of its input."""
    lines = ["// a * b in a comment is no multiplication", f"module lane ({PORTS});", "assign x_ready = y_ready;"]
    lines += [f"reg [15:0] t{i}; reg v{i};" for i in range(taps)]
    lines += ["always @(posedge clk) begin"]
    for i in range(taps):
        before, valid = (f"t{i - 1}", f"v{i - 1}") if i else ("x_data", "x_valid")
        lines.append(f"  if (y_ready) t{i} <= {before} + {{{before}[{12 - i}:0], {i + 3}'d0}} + 16'd{1000 + i};")
        lines.append(f"  v{i} <= rst ? 1'b0 : y_ready ? {valid} : v{i};")
    lines += ["end", f"assign y_valid = v{taps - 1};", f"assign y_data = t{taps - 1};", "endmodule"]
    top = [f"module chain ({PORTS});"]
    wires = [f"s{i}" for i in range(lanes - 1)]
    top += [f"wire {w}_valid, {w}_ready; wire [15:0] {w}_data;" for w in wires]
    for i, (a, b) in enumerate(zip(["x", *wires], [*wires, "y"], strict=True)):
        pins = ", ".join(f".{s}_{p}({w}_{p})" for s, w in (("x", a), ("y", b)) for p in ("valid", "ready", "data"))
        top.append(f"lane lane{i} (.clk(clk), .rst(rst), {pins});")
    stream = {"channels": 2, "bits": 8, "signed": True, "height": 1, "width": 1}
    return Design("chain", {"lane.v": "\n".join(lines), "chain.v": "\n".join([*top, "endmodule", ""])},
                  (StreamPort("x", "x", **stream),), (StreamPort("y", "y", **stream),))


def storage(family: str) -> Design:
    """One multiplier and a memory of 1024 words of 16 bits."""
    text = f"""module store ({PORTS});
reg [15:0] words [0:1023]; reg [15:0] read; reg [9:0] address; reg v; reg [15:0] p;
assign x_ready = 1'b1;
always @(posedge clk) begin
  if (x_valid) words[address] <= x_data;
  read <= words[address];
  address <= rst ? 10'd0 : address + 10'd1;
  p <= $signed(x_data[7:0]) * $signed(x_data[15:8]);
  v <= x_valid & ~rst;
end
assign y_valid = v;
assign y_data = read ^ p;
endmodule
"""
    stream = {"channels": 2, "bits": 8, "signed": True, "height": 1, "width": 1}
    return Design("store", {f"store_{family}.v": text}, (StreamPort("x", "x", **stream),), (StreamPort("y", "y", **stream),))


MAIN = {"ecp5": "lut4", "xcu": "lut", "xcup": "lut", "cyclonev": "alm", "cyclone10gx": "alm"}


@pytest.mark.yosys
@pytest.mark.parametrize("family", ["ecp5", "xcup", "cyclonev", "cyclone10gx",
                                    pytest.param("xcu", marks=pytest.mark.deep("Yosys maps it by the steps of xcup"))])
def test_parts_add_up_to_the_whole_design(family):
    heard: list[tuple[int, int]] = []
    parts = synthesize(filters(), family, progress=lambda done, total: heard.append((done, total)), unit_bytes=400)
    whole = synthesize(filters(), family, unit_bytes=None)
    assert heard == [(1, 2), (2, 2)]
    assert "sum over 2 parts synthesized out of context" in parts.notes
    assert parts.resources["register"] == whole.resources["register"] == 2 * 6 * 17
    assert parts.resources[MAIN[family]] == pytest.approx(whole.resources[MAIN[family]], rel=0.03)
    assert parts.resources[MAIN[family]] > 0


@pytest.mark.yosys
@pytest.mark.parametrize(("family", "memory", "blocks", "dsp"), [
    ("ecp5", "bram", 1, 1), ("xcup", "bram36", 0.5, 1), ("cyclonev", "m10k", 2, 1 / 3), ("cyclone10gx", "m20k", 1, 0.5),
])
def test_memories_and_multipliers_are_counted_by_the_names_of_the_boards(family, memory, blocks, dsp):
    found = synthesize(storage(family), family)
    assert found.resources[memory] == blocks
    assert found.resources["dsp"] == pytest.approx(dsp)


@pytest.mark.yosys
def test_a_second_synthesis_comes_from_the_cache():
    first = synthesize(filters(taps=2, lanes=1), "ecp5")
    second = synthesize(filters(taps=2, lanes=1), "ecp5")
    assert (first.cached, second.cached) == (False, True)
    assert first.cells == second.cells
    assert second.notes == first.notes


def test_large_modules_become_parts_with_black_boxes_around_them():
    top, lane = divide(filters(), unit_bytes=400)
    assert (top.top, lane.top) == ("chain", "lane")
    assert "(* blackbox *) module lane (" in top.text
    assert "always" not in top.text
    assert "chain" not in lane.text
    assert [unit.top for unit in divide(filters(), unit_bytes=None)] == ["chain"]


def renamed(design: Design, **names: str) -> Design:
    """The design with other names of modules."""
    files = dict(design.files)
    for old, new in names.items():
        files = {file: re.sub(rf"\b{old}\b", new, text) for file, text in files.items()}
    return replace(design, top=names.get(design.top, design.top), files=files)


@pytest.mark.yosys
def test_parts_that_differ_in_names_alone_are_synthesized_once():
    first = synthesize(filters(taps=3), "ecp5", unit_bytes=200)
    second = synthesize(renamed(filters(taps=3), lane="other", chain="row"), "ecp5", unit_bytes=200)
    assert second.cached
    assert (second.cells, second.resources) == (first.cells, first.resources)
    assert [(p.module, p.instances) for p in second.parts] == [("row", 1), ("other", 2)]


@pytest.mark.yosys
def test_parts_say_how_often_they_are_there_and_add_up():
    found = synthesize(filters(taps=3), "ecp5", unit_bytes=200)
    assert [(p.module, p.instances) for p in found.parts] == [("chain", 1), ("lane", 2)]
    for name, total in found.resources.items():
        assert sum(p.instances * p.resources[name] for p in found.parts) == total


def test_multipliers_are_left_out_only_where_nothing_multiplies():
    assert "-nodsp" in divide(filters(), None)[0].script("ecp5")
    assert "-nodsp" not in divide(storage("ecp5"), None)[0].script("ecp5")


@pytest.mark.yosys
def test_leaving_out_the_search_for_state_machines_changes_no_count(monkeypatch):
    lanes = divide(filters(), None)[0]
    assert "fsm_encoding" not in lanes.script("ecp5")
    searched = synthesize(filters(), "ecp5")
    monkeypatch.setattr("dovetail.fpga.toolchain.synthesize.FSM_SEARCH_BYTES", 0)
    assert "fsm_encoding" in lanes.script("ecp5")
    assert synthesize(filters(), "ecp5").cells == searched.cells


def test_counts_follow_the_hierarchy_in_both_formats_of_yosys():
    lane = {"num_cells_by_type": {"LUT4": 3, "box": 1}}
    old = {"modules": {"\\top": {"num_cells_by_type": {"lane": 2, "LUT4": 1}}, "\\lane": lane}, "design": {}}
    assert parse_cells(json.dumps(old), "top") == {"LUT4": 7, "box": 2}
    assert parse_cells(json.dumps({"modules": {"\\lane": lane}}), "lane") == {"LUT4": 3, "box": 1}


def test_distributed_memory_and_carry_count_as_logic():
    assert RESOURCES["ecp5"]({"LUT4": 10, "CCU2C": 3, "TRELLIS_DPR16X4": 2})["lut4"] == 28
    assert RESOURCES["xcup"]({"LUT6": 10, "SRL16E": 1, "RAM64M8": 2})["lut"] == 27


def test_alms_follow_the_registers_where_those_need_more():
    assert RESOURCES["cyclonev"]({"MISTRAL_ALUT6": 1, "MISTRAL_FF": 400})["alm"] == 100
    both = RESOURCES["cyclone10gx"]({"MISTRAL_ALUT6": 10, "MISTRAL_ALUT3": 10, "MISTRAL_ALUT_ARITH": 20, "MISTRAL_MLAB": 4})
    assert (both["alm_low"], both["alm"]) == (27, 30)


def test_an_unknown_family_lists_the_known_ones():
    message = "synthesis of chain: family is ice40; known are ecp5, gw2a, xcu, xcup, cyclonev, cyclone10gx"
    with pytest.raises(UsageError, match=f"^{re.escape(message)}$"):
        synthesize(filters(), "ice40")


@pytest.mark.yosys
def test_verilog_that_yosys_refuses_is_shown_with_its_error():
    broken = Design("broken", {"broken.v": "module broken (input wire a); assign = a; endmodule"}, (), ())
    with pytest.raises(ToolError, match=r"(?s)^yosys \(broken for ecp5\): failed with .*unit\.v:1.*syntax error"):
        synthesize(broken, "ecp5")


def test_cyclone10gx_without_an_old_yosys_offers_the_proxy(monkeypatch, tmp_path):
    monkeypatch.delenv("DOVETAIL_YOSYS", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    message = (
        "yosys: cyclone10gx needs release 0.41 or older, none is installed; apt-get install yosys (Debian 12 has 0.23) "
        "and name it in DOVETAIL_YOSYS, or synthesize for cyclonev as a proxy (2 to 4 % fewer ALMs)"
    )
    with pytest.raises(ToolError, match=f"^{re.escape(message)}$"):
        find_synthesizer("cyclone10gx")


def test_no_yosys_at_all_says_how_to_install_it(monkeypatch, tmp_path):
    monkeypatch.delenv("DOVETAIL_YOSYS", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(tools.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ToolError, match=r"^yosys: not found; install it with pip install 'dovetail-accel\[fpga\]'$"):
        find_synthesizer("ecp5")


@pytest.mark.yosys
def test_ultrascale_and_ultrascale_plus_count_alike_so_they_share_coefficients():
    older, newer = (dict(synthesize(filters(), family).resources) for family in ("xcu", "xcup"))
    assert older == newer
    cells = [{k: v for k, v in dhm_model(name).coefficients.items() if not k.startswith("power_")}
             for name in ("dhm-xcu", "dhm-xcup")]
    assert cells[0] == cells[1]


def test_words_in_strings_name_no_module() -> None:
    inner = 'module inner (input wire clk);\n(* ram_style = "block" *) reg [7:0] m [0:3];\n' + "// filler\n" * 40 + "endmodule\n"
    top = "module block (input wire clk);\ninner i (.clk(clk));\nendmodule\n"
    units = divide(Design("block", {"block.v": top, "inner.v": inner}, (), ()), 100)
    found = [(u.top, re.findall(r"\bmodule (\w+)", u.text)) for u in units]
    assert found == [("block", ["block", "inner"]), ("inner", ["inner"])]
    whole, _ = divide(Design("block", {"block.v": top, "inner.v": inner}, (), ()), None)[0].nameless()
    assert '(* ram_style = "block" *)' in whole.text
    assert "module unit" in whole.text
