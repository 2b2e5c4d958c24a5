"""Bitstreams of whole chips by one command, and boards that get them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path

import pytest

from dovetail.cli import main
from dovetail.errors import InfeasibleError, MissingToolError, ToolError, UsageError
from dovetail.fpga.boards.bitstream import constraints, load_bitstream, make_bitstream, routed
from dovetail.fpga.boards.clocks import ClockGenerator
from dovetail.fpga.boards.top import ChipTop
from dovetail.fpga.toolchain.ecp5 import ECP5
from dovetail.fpga.toolchain.gowin import GW2A
from dovetail.partition.plan import whole_on
from dovetail.pipeline import compile as compile_model
from dovetail.platform.load import load_platform
from dovetail.runtime.build import Build
from tests.runtime.conftest import DIVIDED
from tests.runtime.test_chips import BOARDS, chip_of

PREAMBLE = b"\xbd\xb3"
"""With which every bitstream of an ECP5 begins, behind its comment (FPGA-TN-02039)."""


GOWIN_PREAMBLE = b"1010010111000011"
"""The word after the ones with which every bitstream of a Gowin begins, as text."""


class Echo(ChipTop):
    """A chip that sends back every byte: the line and the lights of its board, and its oscillator for a clock."""

    @property
    def files(self) -> Mapping[str, str]:
        step, high = round(self.baud / self.generator.hz * (1 << 16)), ", output wire high" if self.board.high else ""
        text = f"""module {self.name} (input wire clock, input wire from_host, output wire to_host, input wire reset_n,
  output wire [{len(self.board.leds) - 1}:0] led{high});
wire clk = clock, locked = 1'b1, valid, ready;
wire [7:0] octet;
wire rst = !(locked && reset_n);
dovetail_uart_rx #(.STEP({step})) rx (.clk(clk), .rst(rst), .line(from_host), .valid(valid), .octet(octet));
dovetail_uart_tx #(.STEP({step})) tx (.clk(clk), .rst(rst), .valid(valid), .octet(octet), .ready(ready), .line(to_host));
assign led = ready ? 0 : ~0;
{"assign high = 1'b1;" if high else ""}
endmodule
"""
        uart = {name: text for name, text in ChipTop.files.fget(self).items() if "_uart_" in name}
        return {**uart, f"{self.name}.v": text}


def echo_of(chip: ChipTop) -> Echo:
    """Without the clock generator, at whose place nextpnr stays for a minute or two."""
    own = {entry.name: getattr(chip, entry.name) for entry in fields(chip)}
    return Echo(**{**own, "generator": ClockGenerator(chip.board.oscillator_hz, "", "")})


def small(board: str, model: Path, samples: Path, folder: Path) -> Build:
    """A network whose pooling alone is on a board."""
    nodes = {name: whole_on("fpga" if name == "pool" else "cpu") for name in DIVIDED}
    return compile_model(model, board, folder / "small", assignment=nodes, calibration=samples, verify=False)


def loader(folder: Path, exit_code: int) -> Path:
    """A program that writes down what it was asked for, in the place of openFPGALoader."""
    program = folder / "openFPGALoader"
    program.write_text(f'#!/bin/sh\necho "$@" > {folder}/asked\necho "Error: unable to open ftdi device" >&2\nexit {exit_code}\n')
    program.chmod(0o755)
    return program


@pytest.mark.deep("places and routes a chip of 5,700 look-up tables: three minutes of processor time")
@pytest.mark.parametrize(("board", "suffix", "begins", "clock_hz", "cells"), [
    ("ulx3s", ".bit", PREAMBLE, 60e6, {"EHXPLLL": 1, "TRELLIS_IO": 13})], ids=BOARDS[:1])
def test_one_command_makes_a_bitstream_and_another_puts_it_on_the_board(
        board: str, suffix: str, begins: bytes, clock_hz: float, cells: dict[str, int], model: Path, samples: Path,
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build = small(board, model, samples, tmp_path)
    assert main(["bitstream", str(build.folder), "--json", str(tmp_path / "chips.json")]) == 0
    (chip,) = json.loads((tmp_path / "chips.json").read_text())["chips"]
    octets = (build.folder / "bitstream" / f"{chip['segment']}{suffix}").read_bytes()
    assert begins in octets[:400]
    assert chip["fmax_hz"] >= chip["clock_hz"] == clock_hz
    assert {name: chip["used"][name] for name in cells} == cells, "a clock generator, and every pin"
    monkeypatch.setenv("DOVETAIL_OPENFPGALOADER", str(loader(tmp_path, 0)))
    assert main(["flash", str(build.folder), "--keep"]) == 0
    words = (tmp_path / "asked").read_text().split()
    assert words[:3] == ["-b", board.replace("-", ""), "-f"]
    assert Path(words[3]).read_bytes() == octets


@pytest.mark.yosys
@pytest.mark.parametrize(("board", "begins", "pins"), [("ulx3s", PREAMBLE, {"TRELLIS_IO": 13}),
                                                       ("tang-primer-20k", GOWIN_PREAMBLE, {"IOB": 8})], ids=BOARDS)
def test_a_small_chip_becomes_a_bitstream(board: str, begins: bytes, pins: dict[str, int], tmp_path: Path,
                                          monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOVETAIL_CACHE", str(tmp_path))
    chip, device = echo_of(chip_of(board)), load_platform(board).device("fpga")
    assert device.family is not None
    assert device.part is not None
    found = make_bitstream(chip, device.family, device.part)
    assert begins in found.file.read_bytes()[:400]
    assert found.fmax_hz > chip.generator.hz
    assert pins.items() <= found.used.items(), "clock, reset, line, lights, and what is held high"


def test_what_cannot_become_a_bitstream_is_refused(divided: Build, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bitstream", str(divided.folder)]) == 2
    assert "device fpga of board tx2-c10gx states no part and table top" in capsys.readouterr().err
    for option, value in (("--mhz", "0"), ("--baud", "-1"), ("--seed", "0")):
        assert main(["bitstream", str(divided.folder), option, value]) == 2
        assert capsys.readouterr().err.startswith(f"dovetail: {option} {value}: ")
    with pytest.raises(UsageError, match=r"^part LFE5U-85F: pins need the whole order code, with speed and package, such as LFE"):
        ECP5.order_code("LFE5U-85F")
    assert ECP5.order_code("LFE5U-85F-6BG381C") == ("85k", "CABGA381", "6")


def test_a_chip_that_is_too_slow_is_refused_with_the_clock_it_reaches(tmp_path: Path) -> None:
    step = {"type": "logic", "delay": 9.0, "from": {"cell": "a"}, "to": {"cell": "link.crc_TRELLIS_FF_Q"}}
    report = {"fmax": {"clk": {"achieved": 59.9}}, "critical_paths": [{"from": "clk", "to": "clk", "path": [step]}],
              "utilization": {"DP16KD": {"used": 5, "available": 208}, "DCUA": {"used": 0, "available": 2}}}
    (tmp_path / "report.json").write_text(json.dumps(report))
    chip = chip_of("ulx3s")
    with pytest.raises(InfeasibleError, match=r"^r5_top: routed at 59.9 MHz, and its clock is 60 MHz \(slowest: from link.crc to "
                                              r"link.crc: .*\); give --mhz 59 or another --seed$"):
        routed(chip, ECP5, tmp_path)
    slower = replace(chip, generator=replace(chip.generator, hz=50e6))
    assert routed(slower, ECP5, tmp_path).used == {"DP16KD": 5}


def test_constraints_name_every_pin() -> None:
    (text,) = constraints(chip_of("ulx3s"), ECP5).values()
    for line in ('LOCATE COMP "clock" SITE "G2";', 'FREQUENCY PORT "clock" 25 MHZ;', 'LOCATE COMP "led[7]" SITE "H3";',
                 'IOBUF PORT "reset_n" IO_TYPE=LVCMOS33 PULLMODE=UP;'):
        assert line in text.splitlines()
    (text,) = constraints(chip_of("tang-primer-20k"), GW2A).values()
    for line in ('IO_LOC "clock" H11;', 'IO_PORT "clock" IO_TYPE=LVCMOS33 PULL_MODE=NONE;', 'IO_LOC "led[3]" L16;',
                 'IO_PORT "reset_n" IO_TYPE=LVCMOS33 PULL_MODE=UP;'):
        assert line in text.splitlines()


def test_boards_that_cannot_be_reached_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOVETAIL_OPENFPGALOADER", "")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingToolError, match=r"^openFPGALoader: not found; install it with apt-get install openfpgaloader"):
        load_bitstream(tmp_path / "x.bit", "ulx3s")
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setenv("DOVETAIL_OPENFPGALOADER", str(loader(tmp_path, 1)))
    with pytest.raises(ToolError, match=r"^openFPGALoader: failed with exit code 1: Error: unable to open ftdi device; is the"):
        load_bitstream(tmp_path / "x.bit", "ulx3s")
    assert (tmp_path / "asked").read_text().split() == ["-b", "ulx3s", str(tmp_path / "x.bit")]
