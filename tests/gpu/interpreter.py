"""Triton's interpreter with less work around every operation; what kernels compute and what it checks stays the same.

Of a small kernel's time in the interpreter nine tenths go to Python: it replaces the functions of `triton.language` at every
call of a function, makes types anew for every value, and checks every sum of integers by a dozen operations of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import triton.language as tl
from triton.language.semantic import TritonSemantic
from triton.runtime import interpreter

CHECKED = {"add": np.add, "sub": np.subtract, "mul": np.multiply}
"""Operations whose results must fit their type, by the name of Triton's function."""


@contextmanager
def quickened() -> Iterator[None]:
    """Replace the slow parts of the interpreter."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interpreter, "_get_np_dtype", _numbers_of(interpreter._get_np_dtype))
        patch.setattr(tl.block_type, "__init__", _known(tl.block_type.__init__))
        patch.setattr(tl.tensor, "__init__", _begun(tl.tensor.__init__))
        patch.setattr(TritonSemantic, "broadcast_impl_value", _side_by_side(TritonSemantic.broadcast_impl_value))
        patch.setattr(TritonSemantic, "binary_op_sanitize_overflow_impl", _fits)
        with _replaced_once(patch):
            yield


def _numbers_of(slow: Any) -> Any:
    """The type of NumPy that a type of Triton has, by its name."""
    known: dict[str, Any] = {}

    def kind(of: Any) -> Any:
        name = of.name
        if name not in known:
            known[name] = slow(of)
        return known[name]
    return kind


def _known(slow: Any) -> Any:
    """Types of blocks are made once for every element and shape."""
    known: dict[tuple[Any, ...], dict[str, Any]] = {}

    def begin(self: Any, element_ty: Any, shape: Any) -> None:
        key = (element_ty.name, getattr(element_ty, "address_space", None), *map(_plain, shape))
        if key not in known:
            slow(self, element_ty, shape)
            known[key] = dict(self.__dict__)
        self.__dict__.update(known[key])
    return begin


def _plain(size: Any) -> Any:
    return size.value if isinstance(size, tl.constexpr) else size


def _begun(slow: Any) -> Any:
    """A value's shape, as constants, is made once for every shape."""
    known: dict[tuple[int, ...], tuple[Any, Any]] = {}

    def begin(self: Any, handle: Any, type: Any) -> None:
        sizes = tuple(type.shape.values) if type.is_block() else ()
        if sizes not in known:
            slow(self, handle, type)
            known[sizes] = self.shape, self.numel
        self.handle, self.type, self.dtype = handle, type, type.scalar
        self.shape, self.numel = known[sizes]
    return begin


def _side_by_side(slow: Any) -> Any:
    """Operands of one shape need no search for the shape of both."""
    def broadcast(self: Any, lhs: Any, rhs: Any) -> Any:
        shapes = [operand.type.shape.values if operand.type.is_block() else [] for operand in (lhs, rhs)]
        return (lhs, rhs) if shapes[0] == shapes[1] else slow(self, lhs, rhs)
    return broadcast


def _fits(self: Any, lhs: Any, rhs: Any, binary_op: Any) -> None:
    """Fail where a result of integers does not fit its type, as Triton does, without building the test from its operations."""
    kind = lhs.type.scalar
    if kind.int_bitwidth >= 64 or not self.builder.options.sanitize_overflow:
        return
    assert kind == rhs.type.scalar
    assert kind.is_int()
    found = CHECKED[binary_op.__name__](lhs.handle.data, rhs.handle.data, dtype=np.int64)
    assert kind.get_int_min_value() <= found.min(), f"int{kind.int_bitwidth} overflow in {binary_op.__name__}"
    assert found.max() <= kind.get_int_max_value(), f"int{kind.int_bitwidth} overflow in {binary_op.__name__}"


@contextmanager
def _replaced_once(patch: pytest.MonkeyPatch) -> Iterator[None]:
    """The functions of `triton.language` stay replaced, where they are replaced and restored at every call otherwise."""
    replace, nothing, scopes = interpreter._patch_lang, interpreter._LangPatchScope(), dict[tuple[bool, ...], Any]()

    def once(function: Any) -> Any:
        languages = tuple(any(module is value for value in function.__globals__.values()) for module in (tl, tl.core))
        if languages not in scopes:
            scopes[languages] = replace(function)
        return nothing
    patch.setattr(interpreter, "_patch_lang", once)
    try:
        yield
    finally:
        for scope in reversed(scopes.values()):
            scope.restore()
