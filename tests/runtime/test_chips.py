"""Whole chips for boards, simulated from pin to pin: the serial driver opens a terminal whose far end is the chip's UART."""

from __future__ import annotations

import re
import zlib
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import FunctionType

import numpy as np
import pytest

from dovetail.errors import PlatformError, TransportError, UnsupportedError, UsageError
from dovetail.fpga.boards.simulated import simulated_chip
from dovetail.fpga.boards.top import FAULTS, LEAST_CLOCKS, ChipTop, chip_top
from dovetail.fpga.framing import ENDLESS, Message, MessageKind, encode
from dovetail.fpga.part import load_part_shell
from dovetail.fpga.transport import ACCESS
from dovetail.pipeline import compile as compile_model
from dovetail.platform.load import load_platform, platform_from_dict, platform_to_dict
from dovetail.runtime.build import Build, run_stored, synthetic_integers
from dovetail.runtime.transports.attach import with_boards
from dovetail.runtime.transports.board import parse_board
from dovetail.runtime.transports.serial_line import SerialTransport
from tests.fpga.lint import check_clean
from tests.fpga.shells import two_inputs
from tests.runtime.conftest import DIVIDED, whole_on

pytestmark = pytest.mark.verilator
BOARDS = ("ulx3s", "tang-primer-20k")
FRAMES = 20
SIMULATED_SILENCE_BITS = 12
"""Bits of silence after which a message is given up: fewer than on a board, because a simulation is slower than its host."""
SIMULATED_BAUD = 3e6
"""What a ULX3S has; on a slower line only the simulation takes longer."""
SPOIL_EVERY = 3000
"""Bytes of a direction of which one is damaged: more than one in every two frames fails."""


def chip_of(board: str) -> ChipTop:
    """Two inputs and two outputs of different widths on a board, soon out of patience with a silent line."""
    device = load_platform(board).device("fpga")
    assert device.top is not None
    assert device.family is not None
    chip = chip_top(two_inputs().shell, device.top, device.family, baud=SIMULATED_BAUD)
    return replace(chip, silence_bits=SIMULATED_SILENCE_BITS)


@pytest.mark.parametrize("board", BOARDS)
def test_frames_pass_a_whole_chip_from_pin_to_pin(board: str) -> None:
    case, chip = two_inputs(), chip_of(board)
    with simulated_chip(chip) as run:
        place = parse_board(f"serial:{run.terminal},baud={chip.baud:.0f},timeout=20")[1]
        for _ in range(2):  # the second host finds a board that has talked before
            with place.open(case.shell) as driver:
                assert driver.self_test().passed
                case.check(driver.run(case.inputs))
                assert driver.transport.room == chip.room
        with place.open(case.shell) as driver:
            driver.transport.send(0, bytes(case.packets(0)[0]))
            driver.soft_reset(abandon=True)
            case.check(driver.run(case.inputs))
    assert run.clocks > 0
    assert run.spoilt == (0, 0)


@pytest.mark.parametrize("board", BOARDS)
def test_every_tool_reads_a_whole_chip_without_a_word(board: str, tmp_path: Path) -> None:
    chip = chip_of(board)
    check_clean(tmp_path, chip.name, {**chip.files, **chip.clock_model})


def ask_for_nothing(link: SerialTransport, packet: bytes) -> None:
    link.read(0x1004)


def ask_the_shell_for_nothing(link: SerialTransport, packet: bytes) -> None:
    link.write(0xFFC, 1)


def send_too_much(link: SerialTransport, packet: bytes) -> None:
    link.send(0, packet + b"\0")
    link.receive(0)


def send_without_end(link: SerialTransport, packet: bytes) -> None:
    link.room = ENDLESS
    while True:
        link.send(0, packet)
        link.read(0)


def send_for_another(link: SerialTransport, packet: bytes) -> None:
    link.design ^= 1
    link.send(0, packet)
    link.receive(0)


def leave_out_a_number(link: SerialTransport, packet: bytes) -> None:
    link.messenger.sent += 1
    link.read(0)


def send_noise(link: SerialTransport, packet: bytes) -> None:
    link.line.write(b"noise")
    link.read(0)


def stop_half_way(link: SerialTransport, packet: bytes) -> None:
    link.line.write(b"DVLK")
    found = link.messenger.receive()
    assert found is not None
    raise TransportError(found.payload.decode())


def spoil(link: SerialTransport, at: int) -> None:
    """One request with a bit flipped."""
    octets = bytearray(encode(Message(MessageKind.READ, ACCESS.pack(0, 0)), link.messenger.sent))
    octets[at] ^= 1
    if at == 4:  # a version that nobody knows, rightly checked
        octets[24:28] = zlib.crc32(octets[:24]).to_bytes(4, "little")
    link.line.write(bytes(octets))
    found = link.messenger.receive()
    assert found is not None
    raise TransportError(found.payload.decode())


@pytest.mark.parametrize("board", BOARDS[:1])
def test_a_chip_says_what_is_wrong_and_the_next_host_finds_it_well(board: str) -> None:
    case, chip = two_inputs(), chip_of(board)
    tried = {ask_for_nothing: 9, ask_the_shell_for_nothing: 9, send_too_much: 7, send_without_end: 8, send_for_another: 6,
             leave_out_a_number: 5, send_noise: 1, stop_half_way: 10, partial(spoil, at=9): 2, partial(spoil, at=4): 3,
             partial(spoil, at=30): 4}
    with simulated_chip(chip) as run:
        place = parse_board(f"serial:{run.terminal},baud={chip.baud:.0f},timeout=20")[1]
        for wrong, number in tried.items():
            with place.open(case.shell) as driver, pytest.raises(TransportError, match=f"^{re.escape(FAULTS[number])}$"):
                wrong(driver.transport, *([bytes(case.packets(0)[0])] if isinstance(wrong, FunctionType) else []))
        with place.open(case.shell) as driver:
            case.check(driver.run(case.inputs))


@pytest.fixture(scope="module")
def on_ulx3s(model: Path, samples: Path, tmp_path_factory: pytest.TempPathFactory) -> Build:
    """A network for a ULX3S, its classifier on the host."""
    nodes = {name: whole_on("cpu" if name in ("flat", "fc") else "fpga") for name in DIVIDED}
    return compile_model(model, "ulx3s", tmp_path_factory.mktemp("builds") / "ulx3s", assignment=nodes, calibration=samples,
                         verify=False)


def test_frames_are_bit_exact_over_a_line_with_errors(on_ulx3s: Build) -> None:
    (segment,) = (s for s in on_ulx3s.program.segments if s.device == "fpga")
    device = on_ulx3s.platform.device("fpga")
    assert device.top is not None
    chip = chip_top(load_part_shell(segment.graph, on_ulx3s.folder / "fpga"), device.top, "ecp5",
                    baud=device.top.design_hz / LEAST_CLOCKS)
    stored = synthetic_integers(on_ulx3s.graph, FRAMES, seed=1)
    with simulated_chip(replace(chip, silence_bits=SIMULATED_SILENCE_BITS), 1, SPOIL_EVERY) as run:
        attached = with_boards(on_ulx3s, [f"serial:{run.terminal},timeout=1,retries=40"])
        found = run_stored(attached, stored)
    expected = run_stored(on_ulx3s, stored)
    for name in expected:
        np.testing.assert_array_equal(found[name], expected[name])
    assert min(run.spoilt) > 0, "both directions were damaged"


def test_chips_that_cannot_be_are_refused() -> None:
    shell, top = two_inputs().shell, load_platform("ulx3s").device("fpga").top
    assert top is not None
    with pytest.raises(UsageError, match=r"^top of r5_axi: 3e\+06 baud at 20 MHz are 6.7 clocks a bit; 8 are needed, choose a f"):
        chip_top(shell, top, "ecp5", design_hz=20e6)
    with pytest.raises(UnsupportedError, match=r"^clock of 700 MHz from 25 MHz: no divisors of ecp5 come within 5 %; choose an"):
        chip_top(shell, top, "ecp5", design_hz=700e6)
    with pytest.raises(UnsupportedError, match=r"^top for family xcu: no clock generator is known; possible are ecp5, gw2a"):
        chip_top(shell, top, "xcu")
    with pytest.raises(UnsupportedError, match=r"^top of r5_axi: a frame in and its result take [\d,]+ bytes, and the board gi"):
        chip_top(shell, replace(top, buffer_bytes=9.0), "ecp5")


@pytest.mark.parametrize(("changes", "message"), [
    ({"clock": "2G"}, r"pins: key clock is '2G'; a name such as G2 is needed$"),
    ({"leds": "B2"}, r"pins: key leds is 'B2'; a list of sites such as \[\"B2\", \"C2\"\] is needed$"),
    ({"to_host": "M1"}, r"pins: site M1 stands there twice; a pin has one use$")])
def test_a_board_files_pins_are_checked(changes: dict[str, str], message: str) -> None:
    entries = platform_to_dict(load_platform("ulx3s"))
    assert platform_from_dict(entries) == load_platform("ulx3s")
    next(d for d in entries["device"] if "top" in d)["top"]["pins"].update(changes)
    with pytest.raises(PlatformError, match=message):
        platform_from_dict(entries)
