"""Ranges, widths and printed Verilog of the hardware description, and that real tools accept it without a warning."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.fpga.assemble import build_design, unsupported
from dovetail.fpga.design import is_verilog
from dovetail.fpga.rtl.expressions import ONE, ZERO, all_of, any_of, bit_width, compare, const, pack, select, signal
from dovetail.fpga.rtl.modules import Module
from dovetail.fpga.rtl.verilog import fit, print_module
from dovetail.fpga.toolchain.tools import find_pyosys, find_yosys
from tests.fpga.lint import check_clean
from tests.fpga.random_bundles import draw
from tests.fpga.random_graphs import POINTWISE_SEEDS, random_folds, random_graph

X = signal("x", -128, 127)
U = signal("u", 0, 15)


@given(st.integers(-(10**6), 10**6), st.integers(0, 10**6))
def test_widths_are_the_smallest_that_hold_the_range(lo: int, size: int) -> None:
    hi = lo + size
    width = bit_width(lo, hi)

    def holds(w: int) -> bool:
        return w >= 1 and (-(1 << w - 1) <= lo and hi < 1 << w - 1 if lo < 0 else hi < 1 << w)

    assert holds(width)
    assert not holds(width - 1)


@pytest.mark.parametrize(("expr", "width", "text"), [
    (X, 8, "x"),
    (X, 10, "{{2{x[7]}}, x}"),
    (X, 5, "x[4:0]"),
    (U, 9, "{5'd0, u}"),
    (X + U, 9, "{x[7], x} + {5'd0, u}"),
    ((X << 2) - 3, 11, "{x[7], x, 2'd0} - 11'd3"),
    (X + const(-200), 10, "{{2{x[7]}}, x} + -10'd200"),
    (X >> 3, 5, "x[7:3]"),
    (X >> 3, 7, "{{2{x[7]}}, x[7:3]}"),
    (compare("<", X, U), 1, "$signed(x) < $signed({4'd0, u})"),
    (compare("==", U, 7), 1, "u == 4'd7"),
    (select(compare("<", U, 3), X, 0), 8, "(u < 4'd3) ? x : 8'd0"),
    (pack([(U, 4), (X, 8)]), 12, "{x, u}"),
    (all_of(X.bit(0), ~any_of(X.bit(1), U.bit(0))), 1, "x[0] & ~(x[1] | u[0])"),
])
def test_expressions_print_with_every_operand_at_its_width(expr: object, width: int, text: str) -> None:
    assert fit(expr, width) == text  # type: ignore[arg-type]


def test_what_ranges_decide_costs_no_logic() -> None:
    assert compare("<", X, 128) == ONE
    assert compare(">=", U, 16) == ZERO
    assert select(ONE, X, U) is X
    assert all_of(ONE, ONE) == ONE
    assert ~~compare("==", U, 0) == compare("==", U, 0)


def test_a_module_prints_ports_registers_and_range_comments() -> None:
    module = Module("blink", ("Counts to five.",))
    enable = module.input("enable")
    _, last = module.rounds("count", 6, enable)
    module.output("at_end", last)
    assert print_module(module) == """// Counts to five.
`default_nettype none
module blink (
  input wire clk,
  input wire rst,
  input wire enable,
  output wire at_end
);
reg [2:0] count;  // 0..5
reg count_last;
assign at_end = count_last;
always @(posedge clk)
  if (rst) begin
    count <= 3'd0;
    count_last <= 1'd0;
  end else begin
    if (enable) count <= count_last ? 3'd0 : (count + 3'd1);
    if (enable) count_last <= count == 3'd4;
  end
endmodule
`default_nettype wire
"""


ENLARGED = 21
"""A network of `random_bundles` that repeats pixels along both axes."""


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, list[str]]]:
    """Top module and files of a few random designs, one of every kind of network."""
    found = []
    graphs = {seed: random_graph(seed) for seed in (*range(10), POINTWISE_SEEDS, POINTWISE_SEEDS + 1)}
    graphs[ENLARGED] = draw(ENLARGED).graph
    for seed, graph in graphs.items():
        if any(unsupported(graph, node) for node in graph.nodes):
            continue
        designs = [build_design(graph, f"r{seed}")]
        if folds := random_folds(graph, seed):
            designs.append(build_design(graph, f"r{seed}_folded", folds=folds))
        for design in designs:
            folder = tmp_path_factory.mktemp(design.top)
            for name, text in design.files.items():
                (folder / name).write_text(text, encoding="utf-8")
            found.append((design.top, [str(folder / name) for name in design.files if is_verilog(name)]))
    return found


@pytest.mark.verilator
def test_front_ends_find_nothing_to_warn_about(folders: list[tuple[str, list[str]]]) -> None:
    for top, files in folders:
        check_clean(Path(files[0]).parent, top, {Path(name).name: Path(name).read_text(encoding="utf-8") for name in files})


@pytest.mark.yosys
def test_yosys_reads_every_module_and_finds_no_problem(folders: list[tuple[str, list[str]]], tmp_path: Path) -> None:
    script = tmp_path / "check.ys"
    lines = []
    for top, files in folders:
        lines += [f"read_verilog {' '.join(files)}", f"hierarchy -check -top {top}", "proc", "check -assert", "design -reset"]
    script.write_text("\n".join(lines) + "\n", encoding="ascii")
    pyosys, yosys = find_pyosys(), find_yosys()
    assert pyosys or yosys, "no Yosys: pip install pyosys, or install the package yosys"
    commands = [[*pyosys.command, str(script)]] if pyosys else []
    commands += [[*yosys.command, "-q", str(script)]] if yosys else []
    for command in commands:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        assert "Warning" not in done.stderr, done.stderr
