"""The NumPy-only reader of PyTorch weight files, on files written here byte by byte."""

from __future__ import annotations

import io
import os
import pickle
import struct
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dovetail.errors import ModelError
from lib.imagenet.torch_file import LEGACY_MAGIC, read_tensors

VALUES = np.arange(12, dtype=np.float32)


class _Global:
    """Pickles as a reference to a function of PyTorch, which is not installed here."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self) -> None:
        """References are callable, or pickle would refuse them in `__reduce__`."""


class _Call:
    def __init__(self, function: Any, *arguments: Any) -> None:
        self.function, self.arguments = function, arguments

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return self.function, self.arguments


class _Stored:
    """A storage, which a pickle names by a persistent id."""


class _Pickler(pickle._Pickler):  # type: ignore[misc, name-defined]  # the Python one lets us write names of absent modules
    def persistent_id(self, obj: Any) -> Any:
        return ("storage", _Global("torch FloatStorage"), "0", "cpu", len(VALUES)) if isinstance(obj, _Stored) else None

    def save(self, obj: Any, save_persistent_id: bool = True) -> None:
        if isinstance(obj, _Global):
            module, name = obj.name.split()
            self.write(b"c" + f"{module}\n{name}\n".encode())
        else:
            super().save(obj, save_persistent_id)


def _pickled(value: Any) -> bytes:
    stream = io.BytesIO()
    _Pickler(stream, protocol=2).dump(value)
    return stream.getvalue()


def _tensor(offset: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> _Call:
    return _Call(_Global("torch._utils _rebuild_tensor_v2"), _Stored(), offset, shape, strides, False, OrderedDict())


def _zip_file(path: Path, state: Any) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("net/data.pkl", _pickled(state))
        archive.writestr("net/data/0", VALUES.tobytes())


def _legacy_file(path: Path, state: Any) -> None:
    path.write_bytes(_pickled(LEGACY_MAGIC) + _pickled(1001) + _pickled({"little_endian": True}) + _pickled(state)
                     + _pickled(["0"]) + struct.pack("<q", len(VALUES)) + VALUES.tobytes())


Writer = Callable[[Path, Any], None]
both = pytest.mark.parametrize("write", [_zip_file, _legacy_file])


@both
def test_tensors_come_back_in_order_with_shape_and_strides(write: Writer, tmp_path: Path) -> None:
    state = OrderedDict(b=_tensor(0, (3, 4), (4, 1)), a=_tensor(2, (2, 3), (1, 2)))
    write(tmp_path / "w.pth", state)
    found = read_tensors(tmp_path / "w.pth")
    assert list(found) == ["b", "a"]
    np.testing.assert_array_equal(found["b"], VALUES.reshape(3, 4))
    np.testing.assert_array_equal(found["a"], [[2, 4, 6], [3, 5, 7]])


@both
def test_a_file_that_wants_code_run_is_refused(write: Writer, tmp_path: Path) -> None:
    flag = tmp_path / "ran"
    write(tmp_path / "w.pth", {"a": _Call(os.mkdir, str(flag))})
    with pytest.raises(ModelError, match=r"w\.pth: not a readable PyTorch weight file \(it wants posix\.mkdir, which is no part"):
        read_tensors(tmp_path / "w.pth")
    assert not flag.exists()


@both
def test_a_tensor_beyond_its_storage_is_refused(write: Writer, tmp_path: Path) -> None:
    write(tmp_path / "w.pth", {"a": _tensor(8, (3, 4), (4, 1))})
    with pytest.raises(ModelError, match="a tensor reaches beyond its storage"):
        read_tensors(tmp_path / "w.pth")


@both
def test_a_file_cut_anywhere_is_refused_in_words(write: Writer, tmp_path: Path) -> None:
    write(tmp_path / "w.pth", {"a": _tensor(0, (3, 4), (4, 1))})
    content = (tmp_path / "w.pth").read_bytes()
    for length in range(0, len(content) - 1, 7):
        (tmp_path / "cut.pth").write_bytes(content[:length])
        with pytest.raises(ModelError, match=r"cut\.pth: not a readable PyTorch weight file"):
            read_tensors(tmp_path / "cut.pth")
