"""Ports to external memory: what certificates restate of them beside what searches offer, and what one board's is."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.certificate.arrays import port_of
from dovetail.hardware.arrays.layers import Config
from dovetail.partition.accelerator.blocks import MemorySizes, memory_port
from dovetail.platform.device import Device, Kind
from dovetail.platform.load import load_platform


def fpga(board: str) -> Device:
    (found,) = load_platform(board).of_kind(Kind.FPGA)
    return found


@given(st.integers(1, 20000), st.sampled_from([1, 2, 4]), st.sampled_from([4, 8, 16, 64, 128]), st.floats(1e6, 1e11),
       st.floats(1e7, 1e9))
def test_searches_and_certificates_know_the_same_ports(row: int, masters: int, width: int, rate: float, clock: float) -> None:
    device = fpga("zcu102")
    for known in ({"memory_bytes_per_s": rate, "memory_masters": float(masters), "memory_master_bytes": float(width)},
                  {"memory_bytes_per_s": rate, "memory_latency_s": 1e-7}, {}):
        stated = replace(device, clock_hz=clock, parameters=known)
        port = memory_port(stated, row)
        assert port_of(stated, row) == tuple(port)
        assert port.port_bytes <= max(row, 16)
        assert Config(4, 8, **port._asdict()).port_bytes == port.port_bytes


@pytest.mark.parametrize(("board", "row", "port"), [
    ("zcu102", 512, MemorySizes(64, 57.5625, 60, 4)), ("zcu102", 63, MemorySizes(32, 28.75, 60, 2)),
    ("zcu102", 16, MemorySizes(16, 14.375, 60, 1)), ("kcu105", 4096, MemorySizes(64, 57.5625, 60, 1)),
    ("zc706", 512, MemorySizes(16, 12.0, 80, 2))])
def test_ports_of_boards_at_200_mhz(board: str, row: int, port: MemorySizes) -> None:
    assert memory_port(replace(fpga(board), clock_hz=200e6), row) == port
