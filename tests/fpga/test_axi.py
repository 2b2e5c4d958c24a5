"""The shell in Verilator: packets, registers, soft reset, framing errors, counters, self-test."""

from __future__ import annotations

import subprocess
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.errors import ToolError, UnsupportedError, UsageError
from dovetail.fpga.assemble import build_design
from dovetail.fpga.axi import registers
from dovetail.fpga.axi.pattern import pattern_frame, random_bits, update_masks
from dovetail.fpga.axi.shell import Shell, build_shell, load_shell, shell_name
from dovetail.fpga.design import Design, StreamPort, is_verilog
from dovetail.fpga.packing import packet_bytes
from dovetail.fpga.toolchain.tools import find_compiler, find_pyosys, find_yosys
from dovetail.fpga.transport import SimulatedBoard
from tests.fpga.lint import check_clean
from tests.fpga.random_graphs import random_graph
from tests.fpga.shells import FRAMES, cases, folded, tampered, two_inputs

ONES = 0xFFFF_FFFF


def register(board: SimulatedBoard, name: str) -> int:
    core = board.model.shell.core
    return board.read(registers.addresses(len(core.inputs), len(core.outputs))[name])


def control(board: SimulatedBoard, *fields: registers.Field) -> None:
    board.write(0x0C, sum(f.mask for f in fields))


def idle(board: SimulatedBoard, cycles: int) -> None:
    board.model.run([1 << 40] * len(board.model.shell.core.outputs), cycles)


@pytest.mark.verilator
@pytest.mark.parametrize("stall_seed", [None, 1, 2])
def test_every_shell_gives_what_the_reference_gives(stall_seed: int | None) -> None:
    for case in cases():
        with case.accelerator(stall_seed) as accelerator:
            case.check(accelerator.run(case.inputs))


@pytest.mark.verilator
@pytest.mark.parametrize("stall_seed", [None, 4])
def test_counters_are_exact(stall_seed: int | None) -> None:
    case = two_inputs()
    with case.accelerator() as accelerator:
        model = accelerator.transport.model
        model.stall(stall_seed)
        for _ in range(2):
            before = [model.refused(k, inward) for inward in (True, False) for k in range(2)]
            accelerator.run(case.inputs)
            counters = accelerator.counters()
            after = [model.refused(k, inward) for inward in (True, False) for k in range(2)]
            counted = [c.stalls for c in (*counters.inputs, *counters.outputs)]
            assert counted == [b - a for a, b in zip(before, after, strict=True)]
            assert [c.frames for c in (*counters.inputs, *counters.outputs)] == [FRAMES] * 4
            assert [(c.early, c.late) for c in counters.inputs] == [(0, 0)] * 2
            assert all(1 <= c.high_water <= 32 for c in (*counters.inputs, *counters.outputs))
        model.stall(None)
        first, then = accelerator.read("CYCLES_LO"), model.cycles
        idle(accelerator.transport, 1234)
        assert accelerator.read("CYCLES_LO") - first == model.cycles - then


@pytest.mark.verilator
def test_a_core_that_never_waits_is_not_slowed_down() -> None:
    case = cases()[0]
    with case.accelerator() as accelerator:
        accelerator.run(case.inputs)
        core, found = case.shell.core, accelerator.counters()
        assert found.inputs[0].starved == 0
        assert found.cycles <= core.latency_cycles + (FRAMES - 1) * core.interval_cycles + 120


@pytest.mark.verilator
@pytest.mark.parametrize("abandon", [False, True])
def test_a_soft_reset_in_mid_frame_leaves_no_half_frame_behind(abandon: bool) -> None:
    for case in (cases()[0], two_inputs(), folded()):
        core = case.shell.core
        for stall_seed, cycles in ((None, 3), (None, 40), (7, 60), (8, 130), (None, core.latency_cycles), (9, 250)):
            with case.accelerator(stall_seed) as accelerator:
                board = accelerator.transport
                for number in range(len(core.inputs)):
                    board.send(number, case.packets(number)[0].tobytes())
                idle(board, cycles)
                words = [len(case.packets(k)[0]) // case.shell.bus_bytes for k in range(len(core.inputs))]
                while any(board.model.unsent(k) == count for k, count in enumerate(words)):
                    idle(board, 1)  # every packet has begun, for those that have not are not forgotten
                accelerator.soft_reset(abandon)
                for number, port in enumerate(core.outputs):
                    while (packet := board.model.pull(number)) is not None:
                        whole = len(packet.words) == packet_bytes(port, case.shell.bus_bits)
                        assert packet.aborted or whole
                        assert not abandon, "channels that were reset hold nothing"
                case.check(accelerator.run(case.inputs))


@pytest.mark.verilator
def test_a_soft_reset_waits_for_the_rest_of_a_packet_and_says_so() -> None:
    case = cases()[0]
    with case.accelerator() as accelerator:
        board, packet = accelerator.transport, case.packets(0)[0]
        half = len(packet) // 16 * 8
        board.model.push(0, packet[:half], [False] * (half // 8))
        idle(board, 400)
        control(board, registers.ENABLE, registers.SOFT_RESET)
        idle(board, 50)
        assert registers.RESETTING.of(accelerator.read("STATUS")) == 1
        board.model.push(0, packet[half:])
        idle(board, 100)
        assert registers.RESETTING.of(accelerator.read("STATUS")) == 0
        case.check(accelerator.run(case.inputs))


@pytest.mark.verilator
def test_packets_of_the_wrong_length_are_counted_and_do_not_disturb_the_next_frames() -> None:
    case = cases()[0]
    with case.accelerator() as accelerator:
        board, packets = accelerator.transport, case.packets(0)
        word = case.shell.bus_bytes
        for short in (word, len(packets[0]) - word):
            board.send(0, packets[0][:short].tobytes())
        board.send(0, np.concatenate([packets[0], packets[1][: 5 * word]]).tobytes())
        sent = [board.receive(0) for _ in range(3)]
        assert {len(p) for p in sent} == {packet_bytes(case.shell.core.outputs[0], case.shell.bus_bits)}
        assert [(c.early, c.late, c.frames) for c in accelerator.counters().inputs] == [(2, 1, 3)]
        assert registers.ERROR.of(accelerator.read("STATUS")) == 1
        case.check(accelerator.run(case.inputs))
        assert registers.ERROR.of(accelerator.read("STATUS")) == 0


@pytest.mark.verilator
def test_a_long_frame_is_computed_as_if_it_had_ended_in_time() -> None:
    case = cases()[0]
    with case.accelerator() as accelerator:
        board, packets = accelerator.transport, case.packets(0)
        right = accelerator.run({name: x[:1] for name, x in case.inputs.items()})
        accelerator.clear()
        board.send(0, np.concatenate([packets[0], packets[1]]).tobytes())
        board.receive(0)
        late = accelerator.read("OUT0_CRC")
        accelerator.run({name: x[:1] for name, x in case.inputs.items()})
        assert late == accelerator.read("OUT0_CRC")
        case.check(right, 1)


@pytest.mark.verilator
def test_frames_wait_while_the_design_is_not_enabled() -> None:
    case = cases()[0]
    with case.accelerator() as accelerator:
        board = accelerator.transport
        board.write(0x0C, 0)
        board.send(0, case.packets(0)[0].tobytes())
        idle(board, 2 * case.shell.core.latency_cycles)
        assert board.model.waiting(0) == 0
        assert register(board, "IN0_FRAMES") == 0
        control(board, registers.ENABLE)
        idle(board, 2 * case.shell.core.latency_cycles)
        assert board.model.waiting(0) == 1


@pytest.mark.verilator
def test_the_self_test_passes_whatever_is_under_way_and_frames_after_it_are_right() -> None:
    for case in cases():
        with case.accelerator(stall_seed=5) as accelerator:
            accelerator.transport.send(0, case.packets(0)[0].tobytes())
            idle(accelerator.transport, 30)
            outcome = accelerator.self_test()
            assert outcome.passed
            assert outcome.found == outcome.expected == case.shell.test_crcs
            accelerator.soft_reset(abandon=True)
            case.check(accelerator.run(case.inputs))


@pytest.mark.verilator
def test_the_self_test_finds_one_wrong_adder() -> None:
    with tampered().accelerator() as accelerator:
        outcome = accelerator.self_test()
        assert not outcome.passed
        assert outcome.found != outcome.expected


@pytest.mark.verilator
def test_registers_answer_as_the_map_says() -> None:
    case = two_inputs()
    core = case.shell.core
    places = {p.address: p for p in registers.placed(len(core.inputs), len(core.outputs))}
    board = case.board()
    for address in range(0, 1 << registers.ADDRESS_BITS, 4):
        response, _ = board.model.read(address)
        assert (response == registers.OKAY) == (address in places), hex(address)
    for address in (0x00, 0x10, 0x100, 0xFFC):
        assert board.model.write(address, ONES) == registers.SLVERR
    board.write(0x14, 0xAABBCCDD)
    assert board.model.write(0x14, 0x11223344, strobes=0b0101) == registers.OKAY
    assert board.read(0x14) == 0xAA22CC44
    for kind, ports in (("IN", core.inputs), ("OUT", core.outputs)):
        for i, port in enumerate(ports):
            assert register(board, f"{kind}{i}_SIZE") == port.height << 16 | port.width
            assert register(board, f"{kind}{i}_FORMAT") == port.signed << 24 | port.bits << 16 | port.channels
            assert register(board, f"{kind}{i}_WORDS") * case.shell.bus_bytes == packet_bytes(port, case.shell.bus_bits)
    assert register(board, "CAPABILITIES") == 2 | 2 << 8 | case.shell.bus_bytes << 16 | 5 << 24
    board.close()


@pytest.mark.verilator
def test_front_ends_and_a_c_compiler_find_nothing_to_warn_about(tmp_path: Path) -> None:
    compiler = find_compiler()
    for case in cases():
        folder = tmp_path / case.shell.top
        folder.mkdir()
        check_clean(folder, case.shell.top, {**case.shell.design.files, **case.shell.documents()})
        header = folder / f"{case.shell.core.top}_registers.h"
        check = [*compiler.command, "-x", "c", "-Wall", "-Werror", "-fsyntax-only", str(header)]
        subprocess.run(check, check=True)


@pytest.mark.yosys
def test_yosys_finds_no_problem_in_any_shell_and_no_path_from_pin_to_pin(tmp_path: Path) -> None:
    lines = []
    for case in cases():
        for name, text in case.shell.design.files.items():
            (tmp_path / name).write_text(text, encoding="utf-8")
        files = [name for name in case.shell.design.files if is_verilog(name)]
        behind = "i:* %co*:-$dff"  # whatever a pin reaches without a register
        lines += [f"read_verilog {' '.join(files)}", f"hierarchy -check -top {case.shell.top}", "proc", "check -assert",
                  "flatten", "opt_clean", f"select -assert-none {behind} o:* %i", f"select -assert-any {behind} w:*accepted %i",
                  "design -reset"]
    script = tmp_path / "check.ys"
    script.write_text("\n".join(lines) + "\n", encoding="ascii")
    pyosys, yosys = find_pyosys(), find_yosys()
    assert pyosys or yosys, "no Yosys: pip install pyosys, or install the package yosys"
    commands = [[*pyosys.command, str(script)]] if pyosys else []
    commands += [[*yosys.command, "-q", str(script)]] if yosys else []
    for command in commands:
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr


@pytest.mark.verilator
def test_waveforms_without_their_libraries_say_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = tmp_path / "cxx"
    compiler.write_text('#!/bin/sh\n[ "$1" = --version ] && echo cxx 1.0 && exit 0\n'
                        'echo "fatal error: lz4.h: No such file or directory"\nexit 1\n', encoding="ascii")
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    monkeypatch.setenv("DOVETAIL_CACHE", str(tmp_path / "cache"))
    with pytest.raises(ToolError) as caught:
        SimulatedBoard(cases()[1].shell, trace=tmp_path / "wave.fst")
    assert str(caught.value) == ("waveforms: the C++ compiler finds no zlib or lz4; install them with apt-get install zlib1g-dev "
                                 "liblz4-dev, or simulate without a trace")


def test_a_waveform_where_nobody_can_write_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"wave.fst: cannot be written, no such file or directory; give a path in an existing"):
        SimulatedBoard(cases()[1].shell, trace=tmp_path / "missing" / "wave.fst")


def test_a_stored_shell_is_the_shell(tmp_path: Path) -> None:
    shell = cases()[0].shell
    for name, text in {**shell.files, **shell.documents()}.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert load_shell(shell.core, tmp_path) == shell


def test_any_change_of_core_or_bus_changes_the_build_hash() -> None:
    graph = random_graph(1)
    design = build_design(graph, "r1")
    other = Design(design.top, {**design.files, "r1.v": design.files["r1.v"] + "\n"}, design.inputs, design.outputs)
    hashes = [build_shell(design, graph, 64), build_shell(design, graph, 128), build_shell(other, graph, 64)]
    assert len({shell.build_hash for shell in hashes}) == 3
    assert build_shell(design, graph, 64).build_hash == hashes[0].build_hash


def test_what_cannot_have_a_shell_is_refused() -> None:
    graph = random_graph(1)
    design = build_design(graph, "r1")
    with pytest.raises(UsageError, match=r"^shell of r1: a bus of 48 bits; 32, 64, 128, 256, 512 are possible$"):
        build_shell(design, graph, 48)
    many = Design(design.top, design.files, design.inputs * 29, design.outputs)
    with pytest.raises(UnsupportedError, match=r"^shell of r1: 29 inputs and 1 outputs; the register map has room for 28 and"):
        build_shell(many, graph)


def test_a_shell_takes_no_name_of_the_core() -> None:
    design = Design("net", {"net.v": "", "net_AXI_node.v": ""}, (), ())
    assert shell_name(design) == "net_axi_shell"


def test_the_documented_register_map_is_the_one_that_is_built() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "registers.md").read_text(encoding="utf-8")
    assert registers.markdown() in page


def test_addresses_are_distinct_words_inside_their_blocks() -> None:
    places = registers.addresses(registers.MOST_INPUTS, registers.MOST_OUTPUTS, True, registers.MOST_LINKS)
    assert len(set(places.values())) == len(places)
    assert all(0 <= a < 1 << registers.ADDRESS_BITS and a % 4 == 0 for a in places.values())
    assert all(r.offset < registers.BLOCK_BYTES for r in (*registers.INPUT, *registers.OUTPUT))
    assert max(r.offset for r in registers.GLOBAL) < registers.INPUT_BASE


@given(st.sampled_from([32, 64, 128, 256, 512]), st.data())
def test_parities_of_words_are_the_checksum_of_zlib(bus_bits: int, data: st.DataObject) -> None:
    words = data.draw(st.lists(st.binary(min_size=bus_bits // 8, max_size=bus_bits // 8), min_size=1, max_size=4))
    state = ONES
    for word in words:
        both = state | int.from_bytes(word, "little") << 32
        state = sum((both & mask).bit_count() % 2 << bit for bit, mask in enumerate(update_masks(bus_bits)))
    assert state ^ ONES == zlib.crc32(b"".join(words))


@given(st.integers(-200, 100), st.integers(0, 300))
def test_the_test_pattern_stays_in_the_streams_range_and_varies(lo: int, span: int) -> None:
    port = StreamPort("in0", "x", 9, 10, True, 5, 7)
    frame = pattern_frame(port, 0, lo, lo + span)
    assert frame.min() >= lo
    assert frame.max() <= lo + span
    assert (frame.min() < frame.max()) == (random_bits(lo, lo + span) > 0)
    if span:
        assert not np.array_equal(frame, pattern_frame(port, 1, lo, lo + span))


def test_shells_are_readable_text(golden) -> None:
    case = cases()[-1]
    shell: Shell = case.shell
    golden("shell_frame_in.v", shell.files[f"{shell.top}_in0_frame.v"])
    golden("shell_top.v", shell.files[f"{shell.top}.v"])
