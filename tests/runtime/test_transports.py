"""Real boards, by fake device files that answer as the public register maps say, with the simulated board behind them."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from dovetail.cli import main
from dovetail.errors import TransportError, UsageError
from dovetail.fpga.part import load_part_shell
from dovetail.fpga.transport import SimulatedBoard
from dovetail.ir import Clip
from dovetail.runtime.build import Build
from dovetail.runtime.driver import Accelerator
from dovetail.runtime.transports import serial_line, uio, xdma
from dovetail.runtime.transports.attach import with_boards
from dovetail.runtime.transports.board import BoardPart, BoardPlace, parse_board
from dovetail.runtime.transports.device_files import FileRegisters, MappedRegisters, open_device
from tests.fpga.shells import Case, cases, two_inputs
from tests.runtime.fake_devices import FakeDma, FakeShellRegisters, FakeStream, make_buffer, serial_board
from tests.strategies import Net, quantized

ROOM = 1 << 16


class Uio:
    """The fake devices of a board behind UIO, by the names of their files."""

    def __init__(self, board: SimulatedBoard, folder: Path, monkeypatch: pytest.MonkeyPatch, room: int = ROOM) -> None:
        core = board.model.shell.core
        self.buffer = make_buffer(folder, room)
        self.dmas = [FakeDma(board, n, self.buffer) for n in range(max(len(core.inputs), len(core.outputs)))]
        self.shell = FakeShellRegisters(board)
        named = {"uio0": self.shell, **{f"uio{n + 1}": dma for n, dma in enumerate(self.dmas)}}
        monkeypatch.setattr(uio, "SYSFS", folder / "sys")
        monkeypatch.setattr(uio, "MappedRegisters", lambda path, size: named[path.name])
        files = [folder / "dev" / name for name in named]
        self.text = f"uio:{','.join(map(str, (*files, self.buffer)))},timeout=20"
        self.place = parse_board(self.text)[1]


@pytest.fixture
def reached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Makes the fake devices of a case."""
    return lambda case, stall_seed=None, room=ROOM: Uio(case.board(stall_seed), tmp_path, monkeypatch, room)


@pytest.mark.parametrize("stall_seed", [None, 4])
def test_frames_through_axi_dmas_are_those_of_the_reference(reached, stall_seed: int | None) -> None:
    case = two_inputs()
    devices = reached(case, stall_seed)
    with devices.place.open(case.shell) as board:
        assert board.self_test().passed
        case.check(board.run(case.inputs))
        board.transport.send(0, bytes(case.packets(0)[0]))
        board.soft_reset(abandon=True)
        case.check(board.run(case.inputs))
    assert all(device.closed for device in (devices.shell, *devices.dmas))


def test_frames_that_another_program_left_in_the_board_are_forgotten(reached) -> None:
    case = two_inputs()
    devices = reached(case)
    devices.shell.board.send(0, bytes(case.packets(0)[0]))
    with devices.place.open(case.shell) as board:
        case.check(board.run(case.inputs))


def fault(devices: Uio, **told: object) -> None:
    for name, value in told.items():
        setattr(devices.dmas[0], name, value)


@pytest.mark.parametrize(("told", "message"), [
    ({"fails_at": (3, 5)}, r"AXI DMA of (in|out)put 0: DMASR reads 0x0000[0-9A-F]{4}, DMASlvErr: memory answered with SLVERR"),
    ({"fails_at": (4, 6)}, r"AXI DMA of (in|out)put 0: DMASR reads 0x0000[0-9A-F]{4}, DMADecErr: no memory at that address; are"),
    ({"dead": True}, r"board: no packet from output 0 within 0.2 s; was a frame sent to every input, and is the design"),
    ({"shortens": True}, r"board: no packet from output 0 within 0.2 s; \d+ packets came cut short; was a frame sent"),
    ({"flips": True}, r"board, input 0: checksum 0x[0-9A-F]{8} there, 0x[0-9A-F]{8} here; packets were changed on the way$"),
    ({"length_bits": 8}, r"AXI DMA of input 0: 464 bytes were asked for and 208 stand in the length register; give the AXI DMA a "
                         r"buffer length register of 9 bits or more$")])
def test_faults_of_an_axi_dma_are_named_and_the_next_run_is_right(reached, told: dict[str, object], message: str) -> None:
    case = cases()[0]
    devices = reached(case)
    before = {name: getattr(devices.dmas[0], name) for name in told}
    with devices.place.open(case.shell) as board:
        fault(devices, **told)
        board.transport.timeout_s = 0.2 if "within 0.2 s" in message else 20
        with pytest.raises(TransportError, match=f"^{message}"):
            board.run(case.inputs)
        fault(devices, **before)
        board.transport.timeout_s = 20
        board.soft_reset(abandon=True)
        case.check(board.run(case.inputs))


def test_devices_that_do_not_fit_are_named(reached, tmp_path: Path) -> None:
    case = two_inputs()
    devices = reached(case, room=8192)
    with pytest.raises(TransportError, match=r"udmabuf0: 8,192 bytes, of which 8,192 are taken; AXI DMA of output 0 needs 192, "
                                             r"load u-dma-buf with udmabuf0=8384$"):
        devices.place.open(case.shell)
    files = devices.place.files
    with pytest.raises(TransportError, match=r"^board: named were 1 AXI DMA; r5_axi has 2 inputs and 2 outputs, name 2$"):
        BoardPlace("uio", (files[0], files[1], files[-1])).open(case.shell)
    with pytest.raises(TransportError, match=r"^board: ID register reads 0x00010002; 0x4C545644 was expected"):
        BoardPlace("uio", (files[1], files[0], files[2], make_buffer(tmp_path, ROOM))).open(case.shell)
    with pytest.raises(TransportError, match=r"^AXI DMA of input 1: DMACR reads 0x4C545644, but bit 1 of every AXI DMA is set"):
        BoardPlace("uio", (files[0], files[1], files[0], files[-1])).open(case.shell)
    (tmp_path / "sys" / "u-dma-buf" / "udmabuf0" / "size").unlink()
    with pytest.raises(TransportError, match=r"udmabuf0: phys_addr or size in .* cannot be read, .*; is it u-dma-buf's\?$"):
        devices.place.open(case.shell)
    with pytest.raises(TransportError, match=r"udmabuf7: .*/sys/u-dma-buf/udmabuf7 is not there; is it a buffer of u-dma-buf"):
        BoardPlace("uio", (*files[:-1], tmp_path / "udmabuf7")).open(case.shell)


def test_memory_for_the_master_lies_behind_the_packets(reached) -> None:
    case = cases()[0]
    devices = reached(case)
    board = uio.open_uio(case.shell, devices.place.files, 1.0)
    address = board.provide(b"weights", 5000)
    assert address % 4096 == 0
    assert address == board.buffer.address + 8192, "a page for each of two channels"
    assert devices.buffer.read_bytes()[8192:8199] == b"weights"
    with pytest.raises(TransportError, match=r"of which 8,192 are taken; the design's memory needs 65,536, load u-dma-buf with"):
        board.provide(b"", ROOM)
    board.close()


def test_mapped_registers_are_words_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "uio0"
    path.write_bytes(bytes(range(16)) + bytes(4080))
    registers = MappedRegisters(path, 4096)
    assert registers.read(4) == 0x07060504
    registers.write(8, 0xFEDC_BA98)
    registers.close()
    assert path.read_bytes()[8:12] == b"\x98\xBA\xDC\xFE"
    with pytest.raises(TransportError, match=r"uio0: 8192 bytes of registers cannot be mapped, .*; is it the UIO device of"):
        MappedRegisters(path, 8192)
    with pytest.raises(TransportError, match=r"uio1: No such file or directory; is the board there, and its driver loaded\?$"):
        MappedRegisters(tmp_path / "uio1", 4096)


def test_registers_of_a_file_lie_behind_their_base(tmp_path: Path) -> None:
    path = tmp_path / "xdma0_user"
    path.write_bytes(bytes(range(32)))
    registers = FileRegisters(path, 16)
    assert registers.read(4) == 0x17161514
    registers.write(8, 5)
    assert path.read_bytes()[24:28] == b"\x05\0\0\0"
    with pytest.raises(TransportError, match=r"xdma0_user: 0 bytes of register 0x010 were read, 4 are needed; does the"):
        registers.read(16)
    registers.close()


@pytest.mark.parametrize(("number", "remedy"), [
    (errno.EACCES, "let this user open it, by a udev rule or its group"),
    (errno.EBUSY, "another program has it open; end that first"),
    (errno.ENODEV, "the device is gone; was the board reset or unplugged?")])
def test_errors_of_device_files_have_a_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, remedy: str) -> None:
    def refuse(*_: object) -> int:
        raise OSError(number, os.strerror(number))
    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(TransportError, match=f"{re.escape(f'{os.strerror(number)}; {remedy}')}$"):
        MappedRegisters(tmp_path / "uio0", 4096)


class Xdma:
    """The fake devices of a board behind XDMA, by the names of their files."""

    def __init__(self, case: Case, monkeypatch: pytest.MonkeyPatch, stall_seed: int | None = None) -> None:
        self.board = case.board(stall_seed)
        self.registers = FakeShellRegisters(self.board)
        self.streams: dict[str, FakeStream] = {}
        monkeypatch.setattr(xdma, "FileRegisters", lambda path, base: self.registers)
        monkeypatch.setattr(xdma, "open_device", self.opened)
        self.place = parse_board("xdma:/dev/xdma0,timeout=20")[1]

    def opened(self, path: Path, flags: int) -> FakeStream:
        """A file of either direction; reads end with packets only by O_TRUNC."""
        assert flags == (os.O_WRONLY if "h2c" in path.name else os.O_RDONLY | os.O_TRUNC)
        self.streams[path.name] = FakeStream(self.board, self.registers, str(path))
        return self.streams[path.name]


@pytest.mark.parametrize("stall_seed", [None, 4])
def test_frames_through_xdma_are_those_of_the_reference(monkeypatch: pytest.MonkeyPatch, stall_seed: int | None) -> None:
    case = two_inputs()
    devices = Xdma(case, monkeypatch, stall_seed)
    devices.board.send(0, bytes(case.packets(0)[0]))
    with devices.place.open(case.shell) as board:
        assert board.self_test().passed
        case.check(board.run(case.inputs))
        board.transport.send(0, bytes(case.packets(0)[0]))
        board.soft_reset(abandon=True)
        assert [len(stream.pending) for stream in board.transport.outputs] == [1, 1], "a read waits for the next packet of each"
        case.check(board.run(case.inputs))
    assert sorted(devices.streams) == ["xdma0_c2h_0", "xdma0_c2h_1", "xdma0_h2c_0", "xdma0_h2c_1"]
    assert devices.registers.closed
    assert all(stream.closed for stream in devices.streams.values())


def test_faults_of_xdma_are_named_and_the_next_run_is_right(monkeypatch: pytest.MonkeyPatch) -> None:
    case = cases()[0]
    devices = Xdma(case, monkeypatch)
    with devices.place.open(case.shell) as board:
        to_board, from_board = devices.streams["xdma0_h2c_0"], devices.streams["xdma0_c2h_0"]
        from_board.loses, board.transport.timeout_s = True, 0.4
        with pytest.raises(TransportError, match=r"^board: no packet from output 0 within 0.4 s; was a frame sent to every"):
            board.run(case.inputs)
        from_board.loses, to_board.flips, board.transport.timeout_s = False, True, 20
        board.soft_reset(abandon=True)
        with pytest.raises(TransportError, match=r"^board, input 0: checksum 0x[0-9A-F]{8} there, 0x[0-9A-F]{8} here; packets"):
            board.run(case.inputs)
        to_board.flips = False
        board.soft_reset(abandon=True)
        case.check(board.run(case.inputs))


def test_packets_go_through_a_device_file_in_one_transfer_each(tmp_path: Path) -> None:
    path = tmp_path / "xdma0_h2c_0"
    os.mkfifo(path)
    far = os.open(path, os.O_RDWR | os.O_NONBLOCK)
    there, back = (xdma.StreamFile(open_device(path, flags), 64) for flags in (os.O_WRONLY, os.O_RDONLY | os.O_TRUNC))
    there.write(bytes(range(64)))
    back.read()
    assert there.result(20) == back.result(20) == bytes(range(64))
    there.close()
    os.close(far)
    back.read()
    with pytest.raises(TransportError, match=r"xdma0_h2c_0: the stream has ended; is the board still there\?$"):
        back.result(20)
    back.close()


class Broken:
    """A stream's device file that fails, or moves less than it was given."""

    name = "/dev/xdma0_h2c_0"

    def __init__(self, number: int | None) -> None:
        self.number = number

    def write(self, octets: memoryview) -> int:
        if self.number is not None:
            raise OSError(self.number, os.strerror(self.number))
        return len(octets) - 1

    def readinto(self, octets: memoryview) -> int:
        raise OSError(512, "Unknown error 512")

    def close(self) -> None:
        """Nothing is open."""


@pytest.mark.parametrize(("number", "message"), [
    (errno.ENODEV, "No such device; the device is gone; was the board reset or unplugged?"),
    (errno.ETIMEDOUT, "the driver gave up waiting for the board; was a frame sent to every input, and is the design enabled?"),
    (None, "463 of 464 bytes were taken; a packet must go in one transfer")])
def test_a_stream_that_fails_is_named(number: int | None, message: str) -> None:
    case = cases()[0]
    broken = Broken(number)
    board = xdma.XdmaTransport(case.shell, FakeShellRegisters(case.board()), [broken], [broken], 5.0)
    board.send(0, bytes(case.packets(0)[0]))
    with pytest.raises(TransportError, match=f"^/dev/xdma0_h2c_0: {re.escape(message)}$"):
        board.receive(0)
    board.close()


def test_xdma_says_what_it_cannot_do_and_which_file_is_missing(tmp_path: Path) -> None:
    case = cases()[0]
    (tmp_path / "xdma0_user").write_bytes(bytes(4096))
    with pytest.raises(TransportError, match=r"xdma0_h2c_0: No such file or directory; is the board there, and its driver"):
        BoardPlace("xdma", (tmp_path / "xdma0",)).open(case.shell)
    board = xdma.XdmaTransport(case.shell, FakeShellRegisters(case.board()), [Broken(None)], [Broken(None)], 5.0)
    with pytest.raises(TransportError, match=r"^board: r0_axi needs 4,096 bytes of memory, and XDMA with streams fills none; "):
        board.provide(b"", 4096)
    board.close()


def test_frames_over_a_serial_line_are_those_of_the_reference(tmp_path: Path) -> None:
    case = two_inputs()
    with serial_board(case.board(), case.shell.build_hash) as (path, stream):
        place = parse_board(f"serial:{path},baud=921600,timeout=20")[1]
        for _ in range(2):  # the second host finds a board that has talked before
            with place.open(case.shell) as board:
                assert board.self_test().passed
                case.check(board.run(case.inputs))
        with place.open(case.shell) as board:
            stream.damage_at = 900
            with pytest.raises(TransportError, match=r"^link: .* damaged on the way, (its|their) checksum differs; check"):
                board.run(case.inputs)
        with place.open(case.shell) as board:
            case.check(board.run(case.inputs))


def test_the_rest_of_an_answer_to_somebody_else_is_forgotten() -> None:
    far, near = os.openpty()
    stream = serial_line.SerialStream(Path(os.ttyname(near)), 115200, 2.0)
    os.write(far, b"rest of an answer")
    stream.drain()
    os.write(far, b"new")
    assert stream.read(100) == b"new"
    stream.file.close()
    os.close(far)
    os.close(near)


def test_a_serial_line_that_is_silent_or_none_is_named(tmp_path: Path) -> None:
    case = cases()[0]
    far, near = os.openpty()
    place = BoardPlace("serial", (Path(os.ttyname(near)),), {"timeout": 0.05})
    with pytest.raises(TransportError, match=r"^link: cannot be read, nothing came for 0.05 s; is the board still there\?$"):
        place.open(case.shell)
    with pytest.raises(UsageError, match=r"/dev/pts/\d+: 7 baud; this system knows 50, 75, "):
        BoardPlace("serial", place.files, {"baud": 7}).open(case.shell)
    os.close(far)
    os.close(near)
    (tmp_path / "file").touch()
    with pytest.raises(TransportError, match=r"file: no terminal device, Inappropriate ioctl for device; name the serial line"):
        BoardPlace("serial", (tmp_path / "file",)).open(case.shell)


def test_places_of_boards_are_read_or_refused() -> None:
    name, place = parse_board("fpga=xdma:/dev/xdma0,offset=0x10000,timeout=2.5")
    assert (name, place.kind, place.files, place.option("offset"), place.option("timeout"), place.option("baud")) == (
        "fpga", "xdma", (Path("/dev/xdma0"),), 65536, 2.5, 115_200)
    assert parse_board("uio:/dev/uio0,/dev/uio1,/dev/udmabuf0")[0] is None
    for wrong in ("zynq:/dev/uio0", "uio:/dev/uio0,/dev/udmabuf0", "serial:", "xdma", "serial:/dev/a,/dev/b"):
        with pytest.raises(UsageError, match=rf"^--board {wrong}: not the place of a board; write uio:REGISTERS,DMA"):
            parse_board(wrong)
    with pytest.raises(UsageError, match=r"^--board serial:/dev/a,baud=fast: option baud is 'fast'; a number is needed$"):
        parse_board("serial:/dev/a,baud=fast")
    with pytest.raises(UsageError, match=r"^--board serial:/dev/a,parity=1: option parity=1; options are timeout, baud, offset"):
        parse_board("serial:/dev/a,parity=1")


def test_a_build_runs_on_its_board_by_one_option(streamed: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                 capsys: pytest.CaptureFixture[str]) -> None:
    segment = next(s for s in streamed.program.segments if s.device == "fpga")
    devices = Uio(SimulatedBoard(load_part_shell(segment.graph, streamed.folder / "fpga")), tmp_path, monkeypatch)
    frames = tmp_path / "x.npy"
    np.save(frames, np.random.default_rng(3).random((5, *streamed.graph.tensors[streamed.graph.inputs[0]].shape[1:]), np.float32))
    command = ["run", str(streamed.folder), "-i", str(frames), "-o"]
    assert main([*command, str(tmp_path / "simulated.npy")]) == 0
    assert main([*command, str(tmp_path / "board.npy"), "--board", f"fpga={devices.text}"]) == 0
    np.testing.assert_array_equal(np.load(tmp_path / "board.npy"), np.load(tmp_path / "simulated.npy"))
    assert devices.dmas[0].transfers > 5
    assert devices.shell.closed
    assert main(["selftest", str(streamed.folder), "--frames", "2", "--board", devices.text]) == 0
    assert "2 frames bit-exact; soft reset in mid-frame: right afterwards" in capsys.readouterr().out
    assert main(["selftest", str(streamed.folder), "--stall-seed", "1", "--board", devices.text]) == 2
    with pytest.raises(UsageError, match=r"^--board gpu=xdma:/a: device gpu; FPGAs of this build are fpga, each with one board"):
        with_boards(streamed, ["gpu=xdma:/a"])


@pytest.mark.quick
@pytest.mark.parametrize(("retries", "sizes"), [((), [5]), ((2,), [1] * 5)])
def test_frames_go_to_a_board_together_unless_failed_ones_are_sent_again(retries: tuple[int, ...], sizes: list[int]) -> None:
    net, sent = Net(1), list[int]()
    graph = quantized(net.graph(net.add(Clip(), net.input((1, 2)))))

    def run(inputs: dict[str, np.ndarray], on_frame: object) -> dict[str, np.ndarray]:
        sent.append(len(inputs["x"]))
        return {graph.outputs[0]: inputs["x"]}

    part = BoardPart(graph, Path(), SimpleNamespace(open=None), *retries)
    part.board = SimpleNamespace(run=run, transport=SimpleNamespace(close=lambda: None))
    assert len(part.run({"x": np.zeros((5, 2), np.uint8)})[graph.outputs[0]]) == 5
    assert sent == sizes


def test_a_part_opens_its_board_again_after_an_error(streamed: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    segment = next(s for s in streamed.program.segments if s.device == "fpga")
    devices = Uio(SimulatedBoard(load_part_shell(segment.graph, streamed.folder / "fpga")), tmp_path, monkeypatch)
    part = with_boards(streamed, [devices.text]).part(segment)
    shapes = {name: segment.graph.tensors[name] for name in segment.graph.inputs}
    inputs = {name: np.zeros((2, *t.shape[1:]), t.dtype) for name, t in shapes.items()}
    devices.dmas[0].flips = True
    with pytest.raises(TransportError, match=r"packets were changed on the way$"):
        part.run(inputs)
    devices.dmas[0].flips = False
    expected = streamed.part(segment).run(inputs)
    for name, found in part.run(inputs).items():
        np.testing.assert_array_equal(found, expected[name])
    assert Accelerator is type(part.board)
