"""PyTorch's weight files with NumPy alone: zip archives (since 1.6) and the older run of pickles.

A pickle may name any function; here it can name only those that put tensors together, and the names
themselves decide which stand-in runs, so nothing of the file is ever executed.
"""

from __future__ import annotations

import pickle
import sys
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from dovetail.errors import ModelError

LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
STORAGES = {"DoubleStorage": "<f8", "FloatStorage": "<f4", "HalfStorage": "<f2", "LongStorage": "<i8", "IntStorage": "<i4",
            "ShortStorage": "<i2", "CharStorage": "i1", "ByteStorage": "u1", "BoolStorage": "?"}
DAMAGED = (pickle.UnpicklingError, EOFError, ValueError, TypeError, KeyError, IndexError, AttributeError, ImportError,
           OverflowError, MemoryError, zipfile.BadZipFile, NotImplementedError)


@dataclass(frozen=True, slots=True)
class Storage:
    """Numbers of one type; in the older format they arrive after the tensors that refer to them."""

    key: str
    dtype: np.dtype[Any]
    count: int


@dataclass(frozen=True, slots=True)
class View:
    """A tensor: where it lies in its storage."""

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def of(self, values: np.ndarray) -> np.ndarray:
        """The tensor's values, copied; a view that leaves its storage is refused."""
        last = self.offset + sum((n - 1) * s for n, s in zip(self.shape, self.strides, strict=True))
        if min(self.offset, *self.strides, *self.shape, 0) < 0 or (prod(self.shape) and last >= len(values)):
            raise ValueError("a tensor reaches beyond its storage")
        steps = [s * values.itemsize for s in self.strides]
        return np.lib.stride_tricks.as_strided(values[self.offset:], self.shape, steps, writeable=False).copy()


def _tensor(storage: Storage, offset: int, shape: tuple[int, ...], strides: tuple[int, ...], *_: Any) -> View:
    return View(storage, offset, tuple(shape), tuple(strides))


def _parameter(view: View, *_: Any) -> View:
    return view


ALLOWED: dict[tuple[str, str], Callable[..., Any]] = {
    ("torch._utils", "_rebuild_tensor"): _tensor,
    ("torch._utils", "_rebuild_tensor_v2"): _tensor,
    ("torch._utils", "_rebuild_parameter"): _parameter,
    ("collections", "OrderedDict"): OrderedDict,
}


class _Unpickler(pickle.Unpickler):
    """Knows the functions of `ALLOWED` and the storage types, nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        if module == "torch" and name in STORAGES:
            return name
        if (module, name) not in ALLOWED:
            raise pickle.UnpicklingError(f"it wants {module}.{name}, which is no part of a tensor")
        return ALLOWED[module, name]

    def persistent_load(self, pid: Any) -> Storage:
        kind, storage, key, _, count = pid[:5]
        if kind != "storage" or (len(pid) > 5 and pid[5] is not None):
            raise pickle.UnpicklingError("it refers to something that is no whole storage")
        return Storage(str(key), np.dtype(STORAGES[storage]), int(count))


def read_tensors(path: Path) -> dict[str, np.ndarray]:
    """The named tensors of a state dictionary, in the file's order.

    Raises:
        ModelError: the file is damaged, is no state dictionary, or wants code run.
    """
    try:
        with path.open("rb") as stream:
            found, stored = _zipped(stream) if zipfile.is_zipfile(stream) else _legacy(stream)
        if not isinstance(found, dict) or not all(isinstance(v, View) for v in found.values()):
            raise ValueError("it holds something else than named tensors")
        return {str(name): view.of(stored[view.storage.key]) for name, view in found.items()}
    except DAMAGED as error:
        raise ModelError(f"{path}: not a readable PyTorch weight file ({error}); save it with torch.save(model.state_dict())") \
            from None


def _zipped(stream: BinaryIO) -> tuple[Any, dict[str, np.ndarray]]:
    """An archive with `NAME/data.pkl` and one `NAME/data/KEY` per storage."""
    with zipfile.ZipFile(stream) as archive:
        index = next((n for n in archive.namelist() if n.endswith("/data.pkl")), None)
        if index is None:
            raise ValueError("the archive has no data.pkl")
        root = index.removesuffix("data.pkl")
        if f"{root}byteorder" in archive.namelist() and archive.read(f"{root}byteorder") != b"little":
            raise ValueError("its numbers are big-endian")
        found = _Unpickler(BytesIO(archive.read(index))).load()
        views = found.values() if isinstance(found, dict) else ()
        storages = {v.storage for v in views if isinstance(v, View)}
        return found, {s.key: np.frombuffer(archive.read(f"{root}data/{s.key}"), s.dtype) for s in storages}


def _legacy(stream: BinaryIO) -> tuple[Any, dict[str, np.ndarray]]:
    """Magic number, version, the writer's machine, the dictionary, the storages' keys, then each storage with its length."""
    stream.seek(0)
    if _Unpickler(stream).load() != LEGACY_MAGIC:
        raise ValueError("wrong magic number")
    _Unpickler(stream).load()
    machine = _Unpickler(stream).load()
    if not isinstance(machine, dict) or machine.get("little_endian") is not True or sys.byteorder != "little":
        raise ValueError("its numbers are not little-endian")
    found = _Unpickler(stream).load()
    keys = _Unpickler(stream).load()
    types = {v.storage.key: v.storage.dtype for v in found.values()}
    stored = {}
    for key in keys:
        count = int(np.frombuffer(stream.read(8), "<i8")[0])
        stored[str(key)] = np.frombuffer(stream.read(count * types[str(key)].itemsize), types[str(key)])
        if count < 0 or len(stored[str(key)]) != count:
            raise ValueError("it ends in the middle of its numbers")
    return found, stored
