"""Designs that use memory, behind an AXI4 master in Verilator: weights streamed, maps spilled, pauses, errors, soft resets."""

from __future__ import annotations

import socket
import threading
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.errors import MismatchError, TransportError, UnsupportedError, UsageError
from dovetail.fpga.accelerator import build_accelerator
from dovetail.fpga.axi import registers
from dovetail.fpga.axi.memory import MASTER, possible_bits
from dovetail.fpga.axi.shell import Shell, build_shell, has_room, image_bytes, load_shell, port_image
from dovetail.fpga.axi.striped import part_bytes
from dovetail.fpga.design import Design, MemoryPort
from dovetail.fpga.packing import as_pixels, to_packets
from dovetail.fpga.reusable.block import build_block
from dovetail.fpga.toolchain.synthesize import synthesize
from dovetail.fpga.toolchain.verilate import cycles_of
from dovetail.fpga.transport import MEMORY_ADDRESS, LinkTransport, SimulatedBoard, serve
from dovetail.ir import Array, Graph
from dovetail.numerics.reference import run_integer
from dovetail.partition.accelerator.architecture import accelerator_of
from dovetail.partition.accelerator.blocks import Blocks
from dovetail.partition.accelerator.search import AcceleratorSearch
from dovetail.platform.accelerator import Architecture
from dovetail.runtime.driver import Accelerator
from tests.fpga.lint import check_clean
from tests.fpga.random_graphs import random_inputs
from tests.fpga.reusable_blocks import cases, outside_cases
from tests.partition.test_hybrid import bottlenecks, fpga

FRAMES = 3


@dataclass(frozen=True)
class Case:
    """A shell with an AXI4 master, frames, and what the reference makes of them."""

    shell: Shell
    inputs: dict[str, Array]
    expected: dict[str, Array]

    def open(self, stall_seed: int | None = None) -> Accelerator:
        return Accelerator(self.shell, self.board(stall_seed))

    def board(self, stall_seed: int | None = None) -> SimulatedBoard:
        return SimulatedBoard(self.shell, stall_seed, bundle=[c.shell for c in made()])

    def check(self, results: dict[str, Array]) -> None:
        (port,) = self.shell.core.outputs
        np.testing.assert_array_equal(results[port.tensor], as_pixels(port, self.expected[port.tensor]), self.shell.top)


def case(graph: Graph, design: Design, memory_bits: int | None = None) -> Case:
    inputs = random_inputs(graph, FRAMES, 1)
    return Case(build_shell(design, graph, 64, memory_bits), inputs, run_integer(graph, inputs))


def hybrid() -> Case:
    """Dedicated engines in front, reusable ones behind, as `--architecture fibha` builds them."""
    graph = bottlenecks(11)
    best = AcceleratorSearch(graph, fpga(0.15), (5,), Blocks(graph, fpga(0.15))).fastest()
    return case(graph, build_accelerator(graph, "hybrid", accelerator_of(graph, best, Architecture.FIBHA)))


@cache
def made() -> tuple[Case, ...]:
    """Weights alone; maps too, words narrower and wider than a beat, on buses as wide as a beat and as narrow as an eighth."""
    found = [hybrid()]
    for name, memory_bits in (("compact_slow", None), ("outside_narrow", None), ("outside_wide", 32),
                              ("outside_two_masters", None), ("four_masters", None), ("outside_uneven", 32)):
        graph, config = {**cases(), **outside_cases()}[name]
        block = build_block(graph, [n.name for n in graph.nodes], config, name)
        found.append(case(graph, block.design, memory_bits))
    return tuple(found)


def spilled() -> Case:
    return next(c for c in made() if c.shell.core.top == "outside_narrow")


@pytest.mark.verilator
@pytest.mark.parametrize("stall_seed", [None, 1, 2])
def test_memory_behind_axi_gives_what_the_reference_gives(stall_seed: int | None) -> None:
    for one in made():
        with one.open(stall_seed) as board:
            assert board.self_test().passed, one.shell.top
            one.check(board.run(one.inputs))
            memory = one.shell.core.memory
            assert board.transport.model.violation == ""
            assert (board.read("MEMORY_WRITES") > 0) == memory.writes
            assert board.read("MEMORY_FAULTS") == 0
            held = board.transport.model.stored(MEMORY_ADDRESS, len(one.shell.memory_image))
            assert weights_in(one.shell, held) == weights_in(one.shell, one.shell.memory_image), "weights are only read"


def weights_in(shell: Shell, held: bytes) -> list[bytes]:
    """The part of each master; behind it lie its maps."""
    port, beats = shell.core.memory, len(port_image(shell.core))
    place = part_bytes(port, beats)
    return [held[n * place:n * place + beats * port.bytes // port.masters] for n in range(port.masters)]


@pytest.mark.verilator
def test_words_on_the_bus_are_those_the_layer_program_moves() -> None:
    graph, config = outside_cases()["outside_narrow"]
    block = build_block(graph, [n.name for n in graph.nodes], config, "outside_narrow")
    stored = sum(t.beats for t in block.program.transfers if t.kind.name == "STORE")
    one = spilled()
    with one.open() as board:
        one.check(board.run(one.inputs))
        assert board.read("MEMORY_WRITES") == FRAMES * stored


@pytest.mark.verilator
def test_an_axi_master_costs_few_clocks() -> None:
    one = spilled()
    with one.open() as board:
        one.check(board.run(one.inputs))
        core = one.shell.core
        assert board.counters().cycles < 1.03 * (core.latency_cycles + (FRAMES - 1) * core.interval_cycles)


@pytest.mark.verilator
@pytest.mark.parametrize(("writes", "response"), [(False, 2), (False, 3), (True, 2), (True, 3)])
def test_an_error_of_memory_is_reported(writes: bool, response: int) -> None:
    one = spilled()
    with one.open(5) as board:
        board.transport.model.fail(writes, 7, response)
        with pytest.raises(TransportError, match=rf"^board: memory answered \d+ times with an error, MEMORY_STATUS reads 0x.* "
                                                 rf"\(RRESP {0 if writes else response}, BRESP {response if writes else 0}\)"):
            board.run(one.inputs)
        status = board.read("MEMORY_STATUS")
        assert registers.READ_ERROR.of(status) == (not writes)
        assert registers.WRITE_ERROR.of(status) == writes
        board.clear()
        assert registers.MEMORY_ERROR.of(board.read("STATUS")) == 0
        board.soft_reset(abandon=True)
        one.check(board.run(one.inputs))


@pytest.mark.verilator
def test_a_board_at_the_far_end_of_a_link_gets_its_image() -> None:
    one = spilled()
    board = one.board(6)
    here, there = socket.socketpair()
    with here, there, here.makefile("rwb") as near, there.makefile("rwb") as far:
        thread = threading.Thread(target=serve, args=(far, board, one.shell.build_hash))
        thread.start()
        one.check(Accelerator(one.shell, LinkTransport(near, one.shell.build_hash)).run(one.inputs))
        here.shutdown(socket.SHUT_RDWR)
        thread.join()
    assert board.model.stored(MEMORY_ADDRESS, len(one.shell.memory_image)) == one.shell.memory_image
    board.close()


@pytest.mark.verilator
def test_an_image_that_is_not_there_is_an_error_and_not_a_result() -> None:
    one = spilled()
    with one.open() as board:
        board.write("MEMORY_BASE_HI", 5)
        with pytest.raises(MismatchError, match=rf"a burst outside the memory on {MASTER}; AXI4 does not allow it$"):
            board.run(one.inputs)


@pytest.mark.verilator
def test_a_soft_reset_waits_for_bursts_under_way_and_begins_none() -> None:
    for one, seed, cycles in zip(made(), (None, 1, 2, 3, 4, 5, None), (40, 333, 3456, 4567, 2345, 567, 3001), strict=True):
        for more in (0, 57):
            with one.open(seed) as board:
                board.transport.send(0, first_packet(one))
                board.transport.model.run([1 << 40], cycles + more)
                board.soft_reset(abandon=True)
                one.check(board.run(one.inputs))
                assert board.transport.model.violation == ""


def first_packet(one: Case) -> bytes:
    port = one.shell.core.inputs[0]
    return to_packets(port, as_pixels(port, one.inputs[port.tensor])[:1], one.shell.bus_bits)[0].tobytes()


MISTAKES = {
    "assign wlast = w_last;": ("assign wlast = 1'd0;", "wlast not on the last word of a burst"),
    "assign arlen = ar_len;": ("assign arlen = 8'd255;", "a burst across 4096 bytes"),
    "assign arburst = ar_burst;": ("assign arburst = 2'd0;", "a burst that is not INCR"),
    "assign awvalid = aw_waits;": ("assign awvalid = aw_waits & ~wait_count[0];", "channel aw changed before it was taken"),
    "w_valid <= w_step | (w_valid & ~wready);": ("w_valid <= w_step;", "channel w changed before it was taken"),
    "{base, 12'd0}": ("({base, 12'd0} + 64'd8)", "an address that is no multiple of a word"),
}


@pytest.mark.verilator
def test_a_master_that_breaks_a_rule_is_found_out() -> None:
    right = spilled()
    name = f"{right.shell.top}_memory.v"
    wrong = []
    for text, (other, _) in MISTAKES.items():
        assert right.shell.files[name].count(text) == 1, text
        files = {**right.shell.files, name: right.shell.files[name].replace(text, other)}
        wrong.append(replace(right.shell, files=files))
    for shell, (_, rule) in zip(wrong, MISTAKES.values(), strict=True):
        board = SimulatedBoard(shell, 3, bundle=wrong, cycles=cycles_of(shell.core, FRAMES))
        with Accelerator(shell, board) as accelerator, pytest.raises(MismatchError, match=rule):
            accelerator.run(right.inputs)


@pytest.mark.verilator
def test_nothing_is_asked_of_memory_before_it_is_enabled() -> None:
    one = spilled()
    board = one.board()
    board.model.run([1], 3000)
    places = registers.addresses(1, 1, True)
    assert [board.read(places[f"MEMORY_{name}"]) for name in ("READS", "STATUS", "CONTROL")] == [0, 0, 0]
    assert board.read(places["MEMORY_BYTES"]) == one.shell.core.memory.beats * one.shell.core.memory.bytes
    assert board.read(places["MEMORY_IMAGE_BYTES"]) == len(one.shell.memory_image)
    board.write(places["MEMORY_BASE_LO"], 0xFFFF_FFFF)
    assert board.read(places["MEMORY_BASE_LO"]) == 0xFFFF_F000
    board.close()


def test_the_image_in_memory_is_the_blocks() -> None:
    graph, config = cases()["pointwise"]
    block = build_block(graph, [n.name for n in graph.nodes], config, "block")
    assert image_bytes(block.design) == block.image.tobytes()


def test_a_stored_shell_with_a_master_is_the_shell(tmp_path: Path) -> None:
    shell = made()[-1].shell
    for name, text in {**shell.files, **shell.documents()}.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert load_shell(shell.core, tmp_path) == shell
    assert f"#define {shell.core.top.upper()}_MEMORY_BASE_LO 0x080u" in (tmp_path / f"{shell.core.top}_registers.h").read_text()


@pytest.mark.verilator
def test_front_ends_find_nothing_to_warn_about_in_a_master(tmp_path: Path) -> None:
    for one in made():
        folder = tmp_path / one.shell.top
        folder.mkdir()
        check_clean(folder, one.shell.top, one.shell.design.files)


@pytest.mark.yosys
def test_a_master_is_small() -> None:
    shell = spilled().shell
    name = f"{shell.top}_memory"
    files = {n: text for n, text in shell.files.items() if n.startswith(name)}
    found = synthesize(Design(name, files, (), ()), "xcup").resources
    assert found["dsp"] == 0
    assert found["bram36"] == 0
    assert found["lut"] < 300
    assert found["register"] < 700


@given(st.integers(1, 300), st.booleans())
def test_bursts_of_every_possible_bus_stay_in_their_limits(size: int, writes: bool) -> None:
    for bits in possible_bits(MemoryPort("memory", size, "x.hex", 1, 1, 1, writes)):
        assert bits in (32, 64, 128, 256, 512, 1024)
        assert 32 * size * 8 // bits <= 256
        assert 4096 % (32 * size) == 0


def test_memory_ports_that_no_axi_bus_has_are_refused() -> None:
    graph, config = cases()["pointwise"]
    odd = build_block(graph, [n.name for n in graph.nodes], replace(config, port_bytes=12, bandwidth_bytes=12), "odd").design
    assert not has_room(odd)
    with pytest.raises(UnsupportedError, match=r"^shell of odd: a memory port with beats of 12 bytes and .* 128 bytes"):
        build_shell(odd, graph)
    block = build_block(graph, [n.name for n in graph.nodes], config, "block").design
    with pytest.raises(UsageError, match=r"^shell of block: a memory bus of 256 bits; 128, 64, 32 are possible for beats"):
        build_shell(block, graph, 64, 256)
