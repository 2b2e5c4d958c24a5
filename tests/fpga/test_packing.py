"""Frames as bus packets: the layout that hosts rely on."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.errors import UsageError
from dovetail.fpga.design import StreamPort
from dovetail.fpga.packing import BUS_BITS, first_wrong, from_packets, packet_bytes, packet_words, to_packets

ports = st.builds(lambda channels, bits, signed, height, width: StreamPort("in0", "x", channels, bits, signed, height, width),
                  st.integers(1, 20), st.integers(1, 33), st.booleans(), st.integers(1, 5), st.integers(1, 5))


def values(port: StreamPort, frames: int, seed: int) -> np.ndarray:
    low = -(1 << (port.bits - 1)) if port.signed else 0
    return np.random.default_rng(seed).integers(low, low + (1 << port.bits), (frames, port.channels, port.height, port.width))


@given(ports, st.sampled_from(BUS_BITS), st.integers(1, 3), st.integers(0, 1000))
def test_any_frame_survives_the_bus(port: StreamPort, bus_bits: int, frames: int, seed: int) -> None:
    x = values(port, frames, seed)
    packets = to_packets(port, x, bus_bits)
    assert packets.shape == (frames, packet_bytes(port, bus_bits))
    assert packet_bytes(port, bus_bits) == packet_words(port, bus_bits) * bus_bits // 8
    np.testing.assert_array_equal(from_packets(port, packets, bus_bits), x)


@given(st.integers(1, 9), st.integers(1, 4), st.integers(1, 4), st.sampled_from(BUS_BITS))
def test_a_packet_of_bytes_is_the_tensor_in_nhwc_order_and_zeros(channels: int, height: int, width: int, bus_bits: int) -> None:
    port = StreamPort("in0", "x", channels, 8, True, height, width)
    x = values(port, 2, channels)
    packets, used = to_packets(port, x, bus_bits), channels * height * width
    np.testing.assert_array_equal(packets[:, :used].view(np.int8), x.transpose(0, 2, 3, 1).reshape(2, -1))
    assert not packets[:, used:].any()
    assert packets.shape[1] - used < bus_bits // 8


def test_channels_of_few_bits_lie_side_by_side_and_pixels_in_whole_bytes() -> None:
    port = StreamPort("in0", "x", 3, 5, True, 1, 2)
    packets = to_packets(port, np.array([[[[1, -1]], [[2, 0]], [[3, 15]]]]), 32)
    assert packets.tolist() == [[1 | 2 << 5 & 0xFF, (2 << 5 | 3 << 10) >> 8, 31, 15 << 2]]


def test_packets_of_another_size_are_refused() -> None:
    port = StreamPort("out0", "y", 3, 8, True, 2, 2)
    with pytest.raises(UsageError, match=r"^stream out0: packets are shaped \(1, 12\); one of 16 bytes per frame is needed$"):
        from_packets(port, np.zeros((1, 12), np.uint8), 64)


def test_the_first_wrong_beat_is_the_first_to_leave() -> None:
    port = StreamPort("out0", "y", 2, 8, True, 3, 4)
    right = np.zeros((2, 2, 3, 4), int)
    wrong = right.copy()
    wrong[1, 0, 2, 3] = 5
    wrong[1, 1, 1, 2] = 7
    assert first_wrong(port, right, right) is None
    assert first_wrong(port, right, wrong) == "out0 frame 1, beat 6: row 1, column 2, channel 1 is 7, expected 0"
