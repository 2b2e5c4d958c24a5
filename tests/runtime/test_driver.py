"""The driver over every transport: the simulated board, and the link shell with that board at its far end."""

from __future__ import annotations

import re
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dovetail import pipeline
from dovetail.errors import TransportError, UsageError
from dovetail.fpga.part import FpgaPart
from dovetail.fpga.transport import LinkTransport, Transport, serve
from dovetail.runtime.board_trial import compare
from dovetail.runtime.driver import Accelerator
from tests.fpga.shells import Case, cases, tampered, two_inputs


class Damaging:
    """A stream that changes one byte of what it writes, `at` bytes from the start."""

    def __init__(self, stream, at: int) -> None:
        self.stream, self.left = stream, at

    def read(self, count: int) -> bytes:
        return self.stream.read(count)

    def write(self, octets: bytes) -> int:
        if 0 <= self.left < len(octets):
            octets = octets[: self.left] + bytes([octets[self.left] ^ 4]) + octets[self.left + 1:]
        self.left -= len(octets)
        return self.stream.write(octets)

    def flush(self) -> None:
        self.stream.flush()


@contextmanager
def linked(case: Case, stall_seed: int | None = None, damaged_at: int | None = None) -> Iterator[Transport]:
    """A transport over a socket, with the simulated board served at the other end."""
    here, there = socket.socketpair()
    board = case.board(stall_seed)
    far = there.makefile("rwb")
    thread = threading.Thread(target=serve, args=(far, board, case.shell.build_hash))
    thread.start()
    near = here.makefile("rwb")
    try:
        yield LinkTransport(near if damaged_at is None else Damaging(near, damaged_at), case.shell.build_hash)
    finally:
        near.close()
        here.close()
        thread.join()
        with suppress(OSError):
            far.close()
        there.close()
        board.close()


@pytest.mark.parametrize("stall_seed", [None, 3])
def test_the_link_gives_what_the_board_gives(stall_seed: int | None) -> None:
    case = two_inputs()
    with linked(case, stall_seed) as transport:
        accelerator = Accelerator(case.shell, transport)
        assert accelerator.identify() == case.shell.hash_text
        assert accelerator.self_test().passed
        case.check(accelerator.run(case.inputs))
        accelerator.soft_reset(abandon=True)
        case.check(accelerator.run(case.inputs))


def test_a_damaged_frame_is_reported_and_not_computed() -> None:
    case = cases()[0]
    with linked(case, damaged_at=1200) as transport:
        accelerator = Accelerator(case.shell, transport)
        with pytest.raises(TransportError, match=r"^link: the \d+ bytes of message \d+ were damaged on the way"):
            accelerator.run(case.inputs)


def test_a_board_with_another_build_is_refused() -> None:
    case, other = cases()[0], cases()[-1]
    with pytest.raises(TransportError) as caught:
        Accelerator(replace(case.shell, build_hash=other.shell.build_hash), case.board())
    assert str(caught.value) == (f"board: build hash {case.shell.hash_text}; this build has {other.shell.hash_text}, load the "
                                 "bitstream made from this build or open the build the board was made from")
    with linked(case) as transport:
        foreign = LinkTransport(transport.messenger.stream, other.shell.build_hash)
        foreign.send(0, b"")
        with pytest.raises(TransportError, match=r"^link: a frame for design [0-9a-f]{16}; the board holds [0-9a-f]{16}, load"):
            foreign.read(0)


def test_something_else_at_the_address_is_refused() -> None:
    case = cases()[0]
    board = case.board()
    with pytest.raises(TransportError, match=r"^board: ID register reads 0x00000000; 0x4C545644 was expected"):
        Accelerator(case.shell, Elsewhere(board))


class Elsewhere:
    """A board whose registers all read 0."""

    def __init__(self, board: Transport) -> None:
        self.board = board

    def read(self, address: int) -> int:
        return 0

    def __getattr__(self, name: str) -> object:
        return getattr(self.board, name)


def test_words_lost_between_driver_and_board_are_noticed() -> None:
    case = cases()[0]

    class Losing(Elsewhere):
        def read(self, address: int) -> int:
            return self.board.read(address)

        def send(self, port: int, packet: bytes) -> None:
            self.board.send(port, packet[:-8])

    accelerator = Accelerator(case.shell, Losing(case.board()))
    with pytest.raises(TransportError, match=r"^board, input 0: 6 packets ended early and 0 late; words were lost"):
        accelerator.run(case.inputs)

    class Changing(Losing):
        def send(self, port: int, packet: bytes) -> None:
            self.board.send(port, b"\x01" + packet[1:])

    accelerator = Accelerator(case.shell, Changing(case.board()))
    with pytest.raises(TransportError, match=r"^board, input 0: checksum 0x[0-9A-F]{8} there, 0x[0-9A-F]{8} here; packets were"):
        accelerator.run(case.inputs)


def test_a_board_that_gives_no_frame_is_given_up() -> None:
    case = cases()[1]
    board = case.board()
    board.patience = 500
    with pytest.raises(TransportError, match=r"^simulation of r1_axi: no packet from output 0 within 500 cycles; was a frame"):
        board.receive(0)


def test_wrong_frames_are_named() -> None:
    case = cases()[0]
    message = r"^accelerator r0: inputs are y; the design takes x0$"
    with case.accelerator() as accelerator, pytest.raises(UsageError, match=message):
        accelerator.run({"y": np.zeros((1, 3, 17, 9), int)})


def test_a_wrong_core_is_located_by_beat_pixel_and_channel() -> None:
    case = tampered()
    with case.accelerator() as accelerator:
        wrong = compare(case.shell, case.expected, accelerator.run(case.inputs))
    assert wrong is not None
    port = case.shell.core.outputs[0]
    found = dict(zip(("frame", "beat", "row", "column", "channel"), numbers(wrong), strict=False))
    assert found["frame"] == 0
    assert found["beat"] == found["row"] * port.width + found["column"]


def numbers(text: str) -> list[int]:
    return [int(n) for n in re.findall(r"(?:frame|beat|row|column|channel) (\d+)", text)]


def test_the_part_of_a_build_brings_its_shell_and_draws_waveforms_when_asked(streamed, tmp_path: Path) -> None:
    trials = pipeline.try_boards(streamed, frames=3, stall_seed=2, trace=tmp_path / "wave.fst")
    assert [t["equal"] for t in trials] == [True]
    assert trials[0]["self_test"]
    assert trials[0]["counters"]["inputs"][0]["frames"] == 3
    part = streamed.part(next(s for s in streamed.program.segments if s.device == "fpga"))
    assert isinstance(part, FpgaPart)
    assert (streamed.folder / "fpga" / part.graph.name / "axi" / "registers.json").is_file()
    kind, _, start, end = struct.unpack(">BQQQ", (tmp_path / "wave.fst").read_bytes()[:25])
    assert (kind, start) == (0, 0), "an FST file begins with its header block"
    assert end > 2 * trials[0]["cycles"], "two steps per clock cycle"
