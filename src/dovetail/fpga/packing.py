"""How frames of integers become bytes: of a Verilated port beat by beat, and of a bus packet without gaps.

On a bus a pixel takes `pixel_bytes` bytes: its channels side by side, channel 0 in the lowest bits, zeros above the last.
Pixels follow each other in raster order without gaps, lowest byte first, across the borders of bus words; zeros fill the last
word. A frame is one packet. With 8-bit channels a packet is the tensor in NHWC order, padded at its end.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from dovetail.errors import UsageError
from dovetail.fpga.design import Design, StreamPort

Integers = npt.NDArray[np.integer[Any]]
Octets = npt.NDArray[np.uint8]

BUS_BITS = (32, 64, 128, 256, 512)
"""Widths a packet bus may have."""


def pixel_bytes(port: StreamPort) -> int:
    """Bytes of one beat on a bus: a pixel, or a word of one."""
    return -(-port.data_bits // 8)


def packet_words(port: StreamPort, bus_bits: int) -> int:
    """Bus words of one frame."""
    return -(-port.beats * pixel_bytes(port) * 8 // bus_bits)


def packet_bytes(port: StreamPort, bus_bits: int) -> int:
    """Bytes of one frame on a bus, the padding of its last word included."""
    return packet_words(port, bus_bits) * bus_bits // 8


def count_frames(design: Design, inputs: Mapping[str, Integers], where: str) -> int:
    """Number of frames, the same for every input that takes frames; checks names, shapes and value ranges."""
    if {port.tensor for port in design.inputs} != set(inputs):
        wanted, found = ", ".join(sorted(port.tensor for port in design.inputs)), ", ".join(sorted(inputs))
        raise UsageError(f"{where}: inputs are {found or 'none'}; the design takes {wanted}")
    counts = {port.tensor: _checked_frames(port, np.asarray(inputs[port.tensor]), f"{where}, input {port.tensor}")
              for port in design.inputs}
    frames = {port.tensor: counts[port.tensor] for port in design.streams}
    if len(set(frames.values())) != 1:
        raise UsageError(f"{where}: inputs differ in frames, {frames}; give every input the same number")
    return next(iter(frames.values()))


def _checked_frames(port: StreamPort, values: Integers, where: str) -> int:
    shape = (port.channels, port.height, port.width)
    if (values.ndim < 1 or not len(values) or values.size // len(values) != int(np.prod(shape))
            or (values.ndim == 4 and values.shape[1:] != shape)):
        raise UsageError(f"{where}: shape is {values.shape}; needed is (frames, {', '.join(map(str, shape))})")
    if not np.issubdtype(values.dtype, np.integer):
        raise UsageError(f"{where}: values are {values.dtype}; integers are needed")
    low, high = (-(1 << (port.bits - 1)), (1 << (port.bits - 1)) - 1) if port.signed else (0, (1 << port.bits) - 1)
    if int(values.min()) < low or int(values.max()) > high:
        raise UsageError(f"{where}: values span {values.min()} to {values.max()}; the port carries {low} to {high}")
    return len(values)


def to_packets(port: StreamPort, values: Integers, bus_bits: int) -> Octets:
    """Frames as packets, shaped (frames, packet bytes); values must be in the port's range."""
    frames = len(values)
    packets = np.zeros((frames, packet_bytes(port, bus_bits)), dtype=np.uint8)
    used = pixel_octets(port, values, frames).reshape(frames, -1)
    packets[:, : used.shape[1]] = used
    return packets


def from_packets(port: StreamPort, packets: Octets, bus_bits: int) -> npt.NDArray[np.int64]:
    """Values of packets, shaped (frames, channels, height, width); padding is not looked at."""
    size = packet_bytes(port, bus_bits)
    if packets.ndim != 2 or packets.shape[1] != size:
        raise UsageError(f"stream {port.name}: packets are shaped {packets.shape}; one of {size} bytes per frame is needed")
    used = packets[:, : port.beats * pixel_bytes(port)].reshape(-1, pixel_bytes(port))
    return pixel_values(port, used, len(packets))


def first_wrong(port: StreamPort, expected: Integers, found: Integers) -> str | None:
    """The first wrong beat in the order they leave the port, with pixel and channel; None where all are right."""
    ours, theirs = (as_pixels(port, np.asarray(x)).transpose(0, 2, 3, 1) for x in (expected, found))
    wrong = np.argwhere(ours != theirs)
    if not len(wrong):
        return None
    frame, row, column, channel = (int(i) for i in wrong[0])
    beat = (row * port.width + column) * port.words + channel // port.fields
    return (f"{port.name} frame {frame}, beat {beat}: row {row}, column {column}, channel {channel} is "
            f"{theirs[frame, row, column, channel]}, expected {ours[frame, row, column, channel]}")


def as_pixels(port: StreamPort, x: Integers) -> Integers:
    """A tensor's frames in the stream's geometry (frames, channels, height, width); flattening keeps C order."""
    return x.reshape(x.shape[0], port.channels, port.height, port.width)


def beat_bytes(data_bits: int) -> int:
    """Bytes of a Verilated port: 1, 2, 4 or 8 up to 64 bits, then as many 32-bit words as needed."""
    return next((size for size in (1, 2, 4, 8) if data_bits <= 8 * size), 4 * -(-data_bits // 32))


def pack(port: StreamPort, values: Integers, frames: int) -> Octets:
    """Beats of all frames in the byte layout of the Verilated port (little-endian), shaped (frames * beats, bytes)."""
    used = pixel_octets(port, values, frames)
    packed = np.zeros((len(used), beat_bytes(port.data_bits)), dtype=np.uint8)
    packed[:, : used.shape[1]] = used
    return packed


def unpack(port: StreamPort, octets: Octets, frames: int) -> npt.NDArray[np.int64]:
    """Values of all frames from the byte layout of the Verilated port, shaped (frames, channels, height, width)."""
    beats = octets.reshape(frames * port.beats, beat_bytes(port.data_bits))
    return pixel_values(port, beats[:, : pixel_bytes(port)], frames)


def pixel_octets(port: StreamPort, values: Integers, frames: int) -> Octets:
    """Beats of all frames in raster order, shaped (frames * beats, bytes of a beat on a bus)."""
    ordered = np.asarray(values).reshape(frames, port.channels, port.height * port.width).transpose(0, 2, 1)
    if port.words * port.fields > port.channels:
        ordered = np.pad(ordered, ((0, 0), (0, 0), (0, port.words * port.fields - port.channels)))
    channels = np.ascontiguousarray(ordered.reshape(frames * port.beats, port.fields).astype(_lane(port)))
    octets = channels.view(np.uint8).reshape(len(channels), port.fields, -1)
    if port.bits % 8 == 0:
        return octets[:, :, : port.bits // 8].reshape(len(channels), -1)
    bits = np.unpackbits(octets, axis=2, count=port.bits, bitorder="little").reshape(len(channels), -1)
    return np.packbits(bits, axis=1, bitorder="little")


def pixel_values(port: StreamPort, pixels: Octets, frames: int) -> npt.NDArray[np.int64]:
    """The inverse of `pixel_octets`, shaped (frames, channels, height, width)."""
    wide = np.zeros((len(pixels), port.fields, _lane(port).itemsize), dtype=np.uint8)
    if port.bits % 8 == 0:
        wide[:, :, : port.bits // 8] = pixels.reshape(len(pixels), port.fields, port.bits // 8)
    else:
        bits = np.unpackbits(pixels, axis=1, count=port.data_bits, bitorder="little")
        used = np.packbits(bits.reshape(len(pixels), port.fields, port.bits), axis=2, bitorder="little")
        wide[:, :, : used.shape[2]] = used
    values = wide.view(_lane(port)).reshape(len(pixels), port.fields).astype(np.int64)
    if port.signed:
        sign = np.int64(1) << np.int64(port.bits - 1)
        values = (values ^ sign) - sign
    ordered = values.reshape(frames, port.height * port.width, port.words * port.fields)[:, :, :port.channels].transpose(0, 2, 1)
    return np.ascontiguousarray(ordered).reshape(frames, port.channels, port.height, port.width)


def _lane(port: StreamPort) -> np.dtype[np.unsignedinteger[Any]]:
    """Smallest little-endian unsigned integer that holds one channel; negative values keep their low bits in it."""
    return np.dtype(f"<u{beat_bytes(port.bits)}")
