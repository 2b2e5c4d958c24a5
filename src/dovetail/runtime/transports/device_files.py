"""Device files of boards: opened, mapped, read and written, and what goes wrong with them said in one sentence."""

from __future__ import annotations

import errno
import mmap
import os
from io import FileIO
from pathlib import Path
from typing import Protocol

import numpy as np

from dovetail.errors import TransportError

DRIVER_GAVE_UP = (errno.ETIMEDOUT, 512)
"""What a transfer that took too long ends with: 512 is ERESTARTSYS, which XDMA's driver lets out (libxdma.c)."""
FORBIDDEN = "let this user open it, by a udev rule or its group"
GONE = "the device is gone; was the board reset or unplugged?"
REMEDIES = {
    errno.ENOENT: "is the board there, and its driver loaded?", errno.EBUSY: "another program has it open; end that first",
    errno.EACCES: FORBIDDEN, errno.EPERM: FORBIDDEN, errno.ENODEV: GONE, errno.ENXIO: GONE, errno.EIO: GONE}
"""What a user does about an error of a device file."""


def refused(path: Path, error: OSError) -> TransportError:
    """The error of a device file as a sentence with its remedy."""
    if error.errno in DRIVER_GAVE_UP:
        return TransportError(f"{path}: the driver gave up waiting for the board; was a frame sent to every input, and is the "
                              "design enabled?")
    return TransportError(f"{path}: {error.strerror or error}; {REMEDIES.get(error.errno or 0, 'is it the right device file?')}")


def open_device(path: Path, flags: int) -> FileIO:
    """A device file without any buffer in between; raises TransportError where it cannot be opened."""
    mode = {os.O_RDONLY: "rb", os.O_WRONLY: "wb", os.O_RDWR: "r+b"}[flags & os.O_ACCMODE]
    try:
        return FileIO(path, mode, opener=lambda name, _: os.open(name, flags | os.O_CLOEXEC))
    except OSError as error:
        raise refused(path, error) from None


class Registers(Protocol):
    """Registers of 32 bits by their byte offset."""

    def read(self, offset: int) -> int: ...
    def write(self, offset: int, value: int) -> None: ...
    def close(self) -> None: ...


class MappedRegisters:
    """Registers in a device file that is mapped: region 0 of a UIO device (Linux' UIO howto, "mmap() device memory").

    Words are numbers of NumPy: each access is one load or store of 32 bits, as AXI4-Lite wants it.
    """

    def __init__(self, path: Path, size: int) -> None:
        with open_device(path, os.O_RDWR | os.O_SYNC) as file:
            try:
                self.memory = mmap.mmap(file.fileno(), size)
            except (OSError, ValueError) as error:
                raise TransportError(f"{path}: {size} bytes of registers cannot be mapped, {error}; is it the UIO device of that "
                                     "address range?") from None
        self.words = np.frombuffer(self.memory, dtype=np.uint32)

    def read(self, offset: int) -> int:
        return int(self.words[offset >> 2])

    def write(self, offset: int, value: int) -> None:
        self.words[offset >> 2] = value

    def close(self) -> None:
        self.words = np.zeros(0, dtype=np.uint32)
        self.memory.close()


class FileRegisters:
    """Registers in a device file that is read and written at their offset, four bytes at a time (XDMA's `cdev_ctrl.c`)."""

    def __init__(self, path: Path, base: int = 0) -> None:
        """`base` is where the shell's registers begin in the file."""
        self.path, self.base, self.file = path, base, open_device(path, os.O_RDWR)

    def read(self, offset: int) -> int:
        try:
            octets = os.pread(self.file.fileno(), 4, self.base + offset)
        except OSError as error:
            raise refused(self.path, error) from None
        if len(octets) != 4:
            raise TransportError(f"{self.path}: {len(octets)} bytes of register 0x{offset:03X} were read, 4 are needed; does the "
                                 "file reach that far?")
        return int.from_bytes(octets, "little")

    def write(self, offset: int, value: int) -> None:
        try:
            os.pwrite(self.file.fileno(), value.to_bytes(4, "little"), self.base + offset)
        except OSError as error:
            raise refused(self.path, error) from None

    def close(self) -> None:
        self.file.close()
